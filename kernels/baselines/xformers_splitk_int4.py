"""xformers' split-k attention over a cache of four-bit whole numbers.

Inside the timed call: as ``xformers_splitk``, with K and V kept in four bits; each row of a head
has one scale and one bias, fp16, in front of its codes. Outside it: the conversion, which a server
makes when it writes the cache, and the copies that ``xformers_splitk`` names.
A quarter of the bytes are read and the output is not that of the 16-bit cache, so it is a peer of
rungs with a four-bit cache and of no other.
"""

from pathlib import Path

from labtools.problem import Baseline, StorageFormat
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("xformers_splitk.py"))
LARGEST_CODE = 15


def convert(kv):
    """k or v ``[..., D]`` to int32 ``[..., 1 + D / 8]``: scale and bias, then eight codes each.

    A code's place is the lowest free one. NaN in rows that no sequence owns becomes zero.
    """
    import torch

    wide = torch.nan_to_num(kv.float(), nan=0.0)
    low, high = wide.amin(-1, keepdim=True), wide.amax(-1, keepdim=True)
    scale = ((high - low) / LARGEST_CODE).clamp_min(_SHARED.LEAST_SCALE).half()
    bias = low.half()
    codes = ((wide - bias.float()) / scale.float()).round().clamp(0, LARGEST_CODE).to(torch.int32)
    places = torch.arange(0, 32, 4, dtype=torch.int32, device=kv.device)
    packed = (codes.unflatten(-1, (-1, 8)) << places).sum(-1, dtype=torch.int32)
    both = torch.cat((scale, bias), -1).contiguous().view(torch.int32)
    return torch.cat((both, packed), -1), None


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    return _SHARED.prepare_with(tensors, workload, convert)


BASELINE = Baseline(
    id="xformers_splitk_int4",
    title="xformers split-k, INT4 cache",
    prepare=prepare,
    supports=_SHARED.supports,
    storage=StorageFormat("int4", "row", asymmetric=True),
    layouts=("contiguous", "paged"),
    # Sixteen values a row: rounding moves an element by up to a thirtieth of the row's range.
    tolerance=0.3,
    doc=__doc__,
    source=Path(__file__),
)
