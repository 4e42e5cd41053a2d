"""xformers' split-k attention over a cache of 8-bit floats (e4m3).

Inside the timed call: as ``xformers_splitk``, with K and V kept in e4m3, four in a word; each row
of a head has one scale, fp16, in an array of its own, with a bias of zero. Outside it: the
conversion, which a server makes when it writes the cache, and the copies that ``xformers_splitk``
names.
Half the bytes are read and the output is not that of the 16-bit cache, so it is a peer of rungs
with an 8-bit cache and of no other.
"""

from pathlib import Path

from labtools.problem import Baseline, StorageFormat
from labtools.problem.rung import load_by_path

_SHARED = load_by_path(Path(__file__).with_name("xformers_splitk.py"))
E4M3_MAX = 448.0


def convert(kv):
    """k or v ``[..., D]`` to int32 ``[..., D / 4]`` and the scales, int32 ``[...]``.

    NaN in rows that no sequence owns becomes zero.
    """
    import torch

    wide = torch.nan_to_num(kv.float(), nan=0.0)
    scale = (wide.abs().amax(-1) / E4M3_MAX).clamp_min(_SHARED.LEAST_SCALE).half()
    codes = (wide / scale.float().unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX)
    # The lower half of a word is the scale, the upper one the bias.
    words = scale.view(torch.int16).to(torch.int32)
    return codes.to(torch.float8_e4m3fn).view(torch.int32), words


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    return _SHARED.prepare_with(tensors, workload, convert)


BASELINE = Baseline(
    id="xformers_splitk_fp8",
    title="xformers split-k, FP8 cache",
    prepare=prepare,
    supports=_SHARED.supports,
    storage=StorageFormat("fp8-e4m3", "row"),
    layouts=("contiguous", "paged"),
    # Three bits after the point: rounding alone moves an element by up to a sixteenth.
    tolerance=0.1,
    doc=__doc__,
    source=Path(__file__),
)
