"""Kernels that keep lines in L2 for their next call are refused: a cold call finds no input there.

More than L2 holds is used between two calls, but a line marked *evict last* stays. The host can set
L2 aside, to which no launch leaves a way; a kernel can mark its accesses, which its PTX shows.
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
