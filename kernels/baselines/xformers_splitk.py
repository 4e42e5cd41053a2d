"""xformers' split-k attention, a kernel in Triton.

Inside the timed call: ``triton_splitk.FwOp.apply`` with the query heads of a group as rows of one
query and the number of splits left to it: a kernel, and another that merges where it splits. The
output is allocated in the call. Outside it: where lengths are ragged or the cache is paged, its
lengths and the copy of the cache into the order of axes that xformers then wants,
``[B, S, Hkv, D]`` or pages of that order.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline

PAGES = 64
"""Tokens of a page, or a multiple of it: a block of keys lies in one page."""
HEAD_DIMS = (16, 32, 64, 128, 256, 512)
LEAST_SCALE = 2.0**-14
"""The least normal fp16: a row of equal values needs no scale, and none may be 0."""


def make_bias(tensors, workload):
    """What tells xformers lengths and pages; None where all sequences are of one length."""
    from xformers.ops.fmha import attn_bias

    ones, lengths = [1] * workload.batch, [int(n) for n in workload.lengths]
    device = tensors["q"].device
    if workload.layout == "paged":
        table, size = tensors["page_table"], workload.page_size
        kind = attn_bias.PagedBlockDiagonalPaddedKeysMask
        return kind.from_seqlens(ones, lengths, table, size, device=device)
    if workload.seq_lens is not None:
        kind = attn_bias.BlockDiagonalPaddedKeysMask
        return kind.from_seqlens(ones, workload.kv_len, lengths, device=device)
    return None


def grouped(kv, workload, joined):
    """k, v or their scales ``[B, Hkv, S, ...]`` as ``[B, S, Hkv, G, ...]`` without a copy a group;
    ``joined`` makes the first two axes one, which takes a copy."""
    kv = kv.transpose(1, 2)
    if joined:
        kv = kv.contiguous().flatten(0, 1).unsqueeze(0)
    kv = kv.unsqueeze(3)
    return kv.expand(*kv.shape[:3], workload.group_size, *kv.shape[4:])


def prepare_with(tensors, workload, convert=None):
    """Convert the cache if asked; return the timed call.

    ``convert`` gives for k or v its codes and, where they lie apart, its scales, or None.
    """
    from xformers.ops.fmha import triton_splitk
    from xformers.ops.fmha.common import Inputs

    bias = make_bias(tensors, workload)
    joined = bias is not None
    heads = (workload.num_kv_heads, workload.group_size, workload.head_dim)
    first = (1, workload.batch) if joined else (workload.batch, 1)
    q = tensors["q"].view(*first, *heads)
    kv, scales = {}, {}
    for name in "kv":
        codes, scale = convert(tensors[name]) if convert else (tensors[name], None)
        kv[name] = grouped(codes, workload, joined)
        if scale is not None:
            scales[f"{name}_fp8_scale_shift"] = grouped(scale, workload, joined)
    make = triton_splitk.InputsFp8 if scales else Inputs
    shape = tensors["q"].shape

    def attend():
        inputs = make(q, kv["k"], kv["v"], bias, scale=workload.sm_scale, **scales)
        return triton_splitk.FwOp.apply(inputs, needs_gradient=False)[0].reshape(shape)

    return attend


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    return prepare_with(tensors, workload)


def supports(workload):
    """Where xformers and Triton are installed, for its head_dims and page sizes."""
    for package in ("xformers", "triton"):
        if find_spec(package) is None:
            return f"the package {package} is not installed"
    if workload.head_dim not in HEAD_DIMS:
        return f"head_dim is {workload.head_dim}; it takes {HEAD_DIMS}"
    if workload.layout == "paged" and workload.page_size % PAGES:
        return f"a page has {workload.page_size} tokens; it takes multiples of {PAGES}"
    return None


BASELINE = Baseline(
    id="xformers_splitk",
    title="xformers split-k",
    prepare=prepare,
    supports=supports,
    layouts=("contiguous", "paged"),
    doc=__doc__,
    source=Path(__file__),
)
