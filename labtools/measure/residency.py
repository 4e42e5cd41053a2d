"""Kernels that keep lines in L2 for their next call are refused.

A cold time is that of a call which finds nothing of its inputs in the caches. Between two calls on
the same buffers others are used, more than L2 holds. A line that is marked *evict last* stays all
the same: the host can set such a share of L2 aside, and a kernel can mark its own accesses. What a
launch says leaves no way to the first. The second stands in the PTX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from labtools.problem import KernelError, Limits, Problem, Rung
from labtools.toolchain.compiler import compile_ptx, source_name

_MARKED = re.compile(r"^\s*(?:@\S+\s+)?(\S*L2::evict_last\S*)", re.MULTILINE)
_HINTED = re.compile(r"^\s*(?:@\S+\s+)?(\S*L2::cache_hint\S*)", re.MULTILINE)
_INTEGER = re.compile(r"(?<![\w.])-?(0x[0-9a-fA-F]+|\d{10,20})U?\b")
EVICT_LAST = 0x14
"""The upper byte of a cache policy that says *evict last*. Source: CUTLASS, ``CacheHintSm90``."""


def refuse_kept_lines(
    rung: Rung, workload: Problem, limits: Limits, knobs: Mapping[str, int] | None = None
) -> None:
    """Refuse a rung that marks lines to stay in L2. Shipped ones are not looked at: tests do that.

    A policy that is computed while the kernel runs, or comes as an argument, is not seen.

    Args:
        rung, workload, limits, knobs: what is compiled.

    Raises:
        KernelError: it does.
        CompileError: it does not compile.
    """
    if rung.is_shipped:
        return
    ptx = compile_ptx(
        rung.source_text,
        limits.arch,
        rung.defines(workload, limits, knobs),
        source_name(rung),
        rung.include_dirs,
    )
    if found := kept_lines(ptx):
        raise KernelError(
            f"{rung.id} keeps lines in L2 for its next call.",
            f"its PTX has {found}; a call must find the caches as they are without it",
            "leave the hint out; evict_first and no_allocate are welcome",
        )


def kept_lines(ptx: str) -> str:
    """The first instruction or policy by which lines stay in L2, or an empty string."""
    if marked := _MARKED.search(ptx):
        return marked[1]
    hinted = _HINTED.search(ptx)
    for number in _INTEGER.finditer(ptx) if hinted else ():
        value = int(number[1], 0) % 2**64
        if value >> 56 == EVICT_LAST:
            return f"{hinted[1] if hinted else ''} with policy {value:#x}"
    return ""
