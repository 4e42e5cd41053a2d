"""FlashInfer's batch decode on CUDA cores, over a paged cache.

Inside the timed call: ``run`` of a BatchDecodeWithPagedKVCacheWrapper. Outside it: ``plan``, which
FlashInfer's users call once a step for all layers, and, where the cache is contiguous, its copy
into pages of 16 tokens. A cache that is paged already is taken as it is. The output is allocated
by FlashInfer in the call.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline

PAGE_SIZE = 16
"""Of the pages that a contiguous cache is copied into."""
WORKSPACE_BYTES = 128 * 1024 * 1024
E4M3_MAX = 448.0

_planned = {}
_workspaces = {}


def make_pages(kv, page_size=PAGE_SIZE):
    """k or v ``[B, Hkv, S, D]`` to pages ``[B * pages, Hkv, page_size, D]``."""
    import torch

    batch, heads, length, dim = kv.shape
    pages = -(-length // page_size)
    padded = torch.nn.functional.pad(kv, (0, 0, 0, pages * page_size - length))
    split = padded.view(batch, heads, pages, page_size, dim)
    return split.permute(0, 2, 1, 3, 4).reshape(batch * pages, heads, page_size, dim).contiguous()


def page_table(workload, page_size=PAGE_SIZE):
    """The pages that `make_pages` gave each sequence, int ``[B, pages]``."""
    import numpy as np

    pages = -(-workload.kv_len // page_size)
    return np.arange(workload.batch * pages).reshape(workload.batch, pages)


def list_pages(table, lengths, page_size):
    """FlashInfer's form of a page table: indptr ``[B + 1]``, indices, last_page_len ``[B]``, int32.

    ``table`` is ``[B, max_pages]``; what stands behind a sequence's last page is not looked at.
    """
    import torch

    indptr, indices, last = [0], [], []
    for pages, length in zip(table.tolist(), (int(n) for n in lengths), strict=True):
        used = -(-length // page_size)
        indices += pages[:used]
        indptr.append(len(indices))
        last.append(length - (used - 1) * page_size)
    return tuple(torch.tensor(values, dtype=torch.int32) for values in (indptr, indices, last))


def plan_wrapper(workload, table, page_size, q, kv_dtype, tensor_cores):
    """A planned wrapper.

    Buffer sets with one page table share one, as all layers of a model do. Sets with tables of
    their own have plans of their own over one workspace, since their calls come one by one.
    """
    import flashinfer
    import torch

    problem = (workload.key(), str(q.device), str(kv_dtype), tensor_cores)
    if any(key[0] != problem for key in _planned):
        _planned.clear()  # what an earlier workload needed is not needed any more
    key = (problem, table.tobytes())
    if key not in _planned:
        if q.device not in _workspaces:
            _workspaces[q.device] = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            _workspaces[q.device], kv_layout="HND", use_tensor_cores=tensor_cores
        )
        pages = list_pages(table, workload.lengths, page_size)
        indptr, indices, last_page_len = (part.to(q.device) for part in pages)
        wrapper.plan(
            indptr,
            indices,
            last_page_len,
            workload.num_qo_heads,
            workload.num_kv_heads,
            workload.head_dim,
            page_size,
            q_data_type=q.dtype,
            kv_data_type=kv_dtype,
            sm_scale=workload.sm_scale,
        )
        _planned[key] = wrapper
    return _planned[key]


def to_e4m3(kv):
    """k or v to 8-bit floats and the one scale that turns them back.

    The scale is 1 unless the values do not fit: FlashInfer applies V's scale by another launch
    over the output, and a smaller scale would not make a floating-point number more accurate.
    NaN in rows that no sequence owns stays NaN and does not count.
    """
    import torch

    largest = float(torch.nan_to_num(kv, nan=0.0).abs().max())
    scale = max(1.0, largest / E4M3_MAX)
    return (kv / scale).to(torch.float8_e4m3fn), scale


def prepare_with(tensors, workload, tensor_cores, fp8=False):
    """Page the cache where it is not, convert it if asked, plan; return the timed call."""
    q, k, v = (tensors[name] for name in "qkv")
    if workload.layout == "paged":
        page_size, table = workload.page_size, tensors["page_table"].cpu().numpy()
    else:
        page_size, table = PAGE_SIZE, page_table(workload)
        k, v = make_pages(k), make_pages(v)
    scales = {}
    if fp8:
        (k, k_scale), (v, v_scale) = to_e4m3(k), to_e4m3(v)
        scales = {"k_scale": k_scale, "v_scale": v_scale}
    wrapper = plan_wrapper(workload, table, page_size, q, k.dtype, tensor_cores)
    return lambda: wrapper.run(q, (k, v), **scales)


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    return prepare_with(tensors, workload, tensor_cores=False)


def supports(workload):
    """Wherever FlashInfer is installed."""
    if find_spec("flashinfer") is None:
        return "the package flashinfer-python is not installed"
    return None


BASELINE = Baseline(
    id="flashinfer",
    title="FlashInfer batch decode, CUDA cores",
    prepare=prepare,
    supports=supports,
    layouts=("contiguous", "paged"),
    doc=__doc__,
    source=Path(__file__),
)
