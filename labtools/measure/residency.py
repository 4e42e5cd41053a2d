"""Kernels that keep lines in L2 for their next call are refused.

A cold time is that of a call which finds nothing of its inputs in the caches. Between two calls on
the same buffers others are used, more than L2 holds. A line that is marked *evict last* stays all
the same: the host can set a share of L2 aside for such lines, to which no launch leaves a way, and
a kernel can mark its own accesses, which its PTX shows.
"""

from __future__ import annotations

from labtools.problem import KernelError, Rung
from labtools.toolchain import Cubin


def refuse_kept_lines(rung: Rung, cubin: Cubin) -> None:
    """Raise KernelError of a rung whose code marks lines to stay in L2, or may."""
    if cubin.keeps_lines:
        raise KernelError(
            f"{rung.id} can keep lines in L2 for its next call.",
            f"its PTX has {cubin.keeps_lines}; a call must find the caches as they are without it",
            "leave the hint out; no_allocate, and createpolicy with evict_first, are welcome",
        )
