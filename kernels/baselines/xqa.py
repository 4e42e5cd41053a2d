"""FlashInfer's XQA, a decode kernel for tensor cores over a paged cache (sm_90 and later).

Inside the timed call: one call of ``flashinfer.xqa.xqa`` and the allocation of its output; the
split of the keys and the overlap with the launch before are left to it. Outside it: a zeroed
workspace and zeroed semaphores, which the kernel leaves zeroed, and, where the cache is contiguous,
its copy into pages of 64 tokens. A cache that is paged already is taken as it is.
"""

from importlib.util import find_spec
from pathlib import Path

from labtools.problem import Baseline
from labtools.problem.rung import load_by_path

PAGE_SIZE = 64
"""Of the pages that a contiguous cache is copied into."""
PAGE_SIZES = (16, 32, 64, 128)
WORKSPACE_BYTES = 128 * 1024 * 1024
SEMAPHORES = 2 * 1024 * 1024
MOST_HEADS = 32
"""Query heads of a group, at most."""

_PAGES = load_by_path(Path(__file__).with_name("flashinfer.py"))
_workspaces = {}


def workspace_on(device):
    """The scratch space and the semaphores, one of each for all calls, which come one by one."""
    import torch

    if device not in _workspaces:
        scratch = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        semaphores = torch.zeros(SEMAPHORES, dtype=torch.int32, device=device)
        _workspaces[device] = scratch, semaphores.view(torch.uint32)
    return _workspaces[device]


def to_e4m3(k, v):
    """k and v to 8-bit floats, and the one scale of both.

    The scale is 1 unless the values do not fit. NaN in rows that no sequence owns becomes zero:
    the kernel reads whole pages and multiplies such rows by zero.
    """
    import torch

    (k, v), scale = _PAGES.to_e4m3(torch.nan_to_num(torch.stack((k, v)), nan=0.0))
    return k, v, scale


def prepare_with(tensors, workload, fp8=False):
    """Page the cache where it is not, convert it if asked; return the timed call."""
    import torch
    from flashinfer.xqa import xqa

    q, k, v = (tensors[name] for name in "qkv")
    if workload.layout == "paged":
        page_size, table = workload.page_size, tensors["page_table"]
    else:
        page_size = PAGE_SIZE
        table = torch.from_numpy(_PAGES.page_table(workload, page_size)).to(q.device, torch.int32)
        k, v = (_PAGES.make_pages(one, page_size) for one in (k, v))
    kv_scale = 1.0
    if fp8:
        k, v, kv_scale = to_e4m3(k, v)
    q = q.unsqueeze(1)
    lengths = tensors["seq_lens"].view(torch.uint32).unsqueeze(1)
    scratch, semaphores = workspace_on(q.device)
    # The kernel divides by the root of head_dim itself.
    q_scale = workload.sm_scale * workload.head_dim**0.5

    def attend():
        out = torch.empty_like(q)
        xqa(
            q,
            k,
            v,
            table,
            lengths,
            out,
            scratch,
            semaphores,
            workload.num_kv_heads,
            page_size,
            q_scale=q_scale,
            kv_scale=kv_scale,
            kv_layout="HND",
        )
        return out.squeeze(1)

    return attend


def prepare(tensors, workload):
    """The cache and q ``[B, Hq, D]`` to a call that gives ``[B, Hq, D]``."""
    return prepare_with(tensors, workload)


def has_xqa():
    """Whether a FlashInfer with XQA is installed; its package is not imported for it."""
    found = find_spec("flashinfer")
    folders = (found and found.submodule_search_locations) or ()
    return any(Path(folder, "xqa.py").is_file() for folder in folders)


def supports(workload):
    """Where a FlashInfer with XQA is installed, for its page sizes, head_dims and groups."""
    if not has_xqa():
        return "no flashinfer-python with XQA is installed"
    if workload.head_dim % 16 or workload.head_dim > 256:
        return f"head_dim is {workload.head_dim}; it takes multiples of 16 up to 256"
    if workload.group_size > MOST_HEADS:
        return f"a KV head serves {workload.group_size} query heads; it takes {MOST_HEADS}"
    if workload.layout == "paged" and workload.page_size not in PAGE_SIZES:
        return f"a page has {workload.page_size} tokens; it takes {PAGE_SIZES}"
    return None


BASELINE = Baseline(
    id="xqa",
    title="FlashInfer XQA",
    prepare=prepare,
    supports=supports,
    layouts=("contiguous", "paged"),
    doc=__doc__,
    source=Path(__file__),
)
