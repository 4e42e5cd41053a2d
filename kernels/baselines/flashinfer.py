"""FlashInfer's batch decode on CUDA cores, over a paged cache.

Inside the timed call: ``run`` of a BatchDecodeWithPagedKVCacheWrapper. Outside it: the copy of K
and V into pages of 16 tokens, and ``plan``, which FlashInfer's users call once a step for all
layers. The output is allocated by FlashInfer in the call.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline

PAGE_SIZE = 16
WORKSPACE_BYTES = 128 * 1024 * 1024

_planned = {}


def make_pages(kv):
    """k or v ``[B, Hkv, S, D]`` to pages ``[B * pages, Hkv, PAGE_SIZE, D]``."""
    import torch

    batch, heads, length, dim = kv.shape
    pages = -(-length // PAGE_SIZE)
    padded = torch.nn.functional.pad(kv, (0, 0, 0, pages * PAGE_SIZE - length))
    split = padded.view(batch, heads, pages, PAGE_SIZE, dim)
    return split.permute(0, 2, 1, 3, 4).reshape(batch * pages, heads, PAGE_SIZE, dim).contiguous()


def page_table(workload):
    """Which pages each sequence has: indptr ``[B + 1]``, indices, last_page_len ``[B]``, int32."""
    import torch

    all_pages = -(-workload.kv_len // PAGE_SIZE)
    indptr, indices, last = [0], [], []
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        used = -(-length // PAGE_SIZE)
        indices += range(sequence * all_pages, sequence * all_pages + used)
        indptr.append(len(indices))
        last.append(length - (used - 1) * PAGE_SIZE)
    return tuple(torch.tensor(values, dtype=torch.int32) for values in (indptr, indices, last))


def plan_wrapper(workload, device, tensor_cores):
    """A planned wrapper; all buffer sets of a workload share one, as all layers of a model do."""
    import flashinfer
    import torch

    key = (workload.key(), str(device), tensor_cores)
    if key not in _planned:
        _planned.clear()  # the workspace of an earlier workload is not needed any more
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device),
            kv_layout="HND",
            use_tensor_cores=tensor_cores,
        )
        indptr, indices, last_page_len = (part.to(device) for part in page_table(workload))
        wrapper.plan(
            indptr,
            indices,
            last_page_len,
            workload.num_qo_heads,
            workload.num_kv_heads,
            workload.head_dim,
            PAGE_SIZE,
            q_data_type=torch.float16,
            kv_data_type=torch.float16,
            sm_scale=workload.sm_scale,
        )
        _planned[key] = wrapper
    return _planned[key]


def prepare_with(tensors, workload, tensor_cores):
    """Copy into pages, plan, and return the call that is timed."""
    q = tensors["q"]
    pages = (make_pages(tensors["k"]), make_pages(tensors["v"]))
    wrapper = plan_wrapper(workload, q.device, tensor_cores)
    return lambda: wrapper.run(q, pages)


def prepare(tensors, workload):
    """q ``[B, Hq, D]``, k and v ``[B, Hkv, S, D]`` to a call that gives ``[B, Hq, D]``."""
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
    doc=__doc__,
    source=Path(__file__),
)
