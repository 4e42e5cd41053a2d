"""Kernels that keep lines in L2 for their next call are refused.

A cold time is that of a call which finds nothing of its inputs in the caches. Between two calls on
the same buffers others are used, more than L2 holds. A line that is marked *evict last* stays all
the same: the host can set such a share of L2 aside, and a kernel can mark its own accesses. What a
launch says leaves no way to the first. The second stands in the PTX.
"""

from __future__ import annotations

from labtools.problem import KernelError, Rung
from labtools.toolchain import Cubin


def refuse_kept_lines(rung: Rung, cubin: Cubin) -> None:
    """Refuse a rung that marks lines to stay in L2, or may: see `kept_lines`.

    Args:
        rung: what is to be judged.
        cubin: its code.

    Raises:
        KernelError: it does.
    """
    if cubin.keeps_lines:
        raise KernelError(
            f"{rung.id} can keep lines in L2 for its next call.",
            f"its PTX has {cubin.keeps_lines}; a call must find the caches as they are without it",
            "leave the hint out; no_allocate, and createpolicy with evict_first, are welcome",
        )
