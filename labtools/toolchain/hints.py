"""Hints in PTX by which lines stay in L2."""

from __future__ import annotations

import re

_MARKED = re.compile(r"^\s*(?:@\S+\s+)?(\S*L2::evict_last\S*)", re.MULTILINE)
_HINTED = re.compile(r"^\s*(?:@\S+\s+)?(\S*L2::cache_hint\S*)", re.MULTILINE)
_INTEGER = re.compile(r"(?<![\w.])-?(0x[0-9a-fA-F]+|\d{10,20})U?\b")
EVICT_LAST = 0x14
"""The upper byte of a cache policy that says *evict last*. Source: CUTLASS, ``CacheHintSm90``."""


def kept_lines(ptx: str) -> str:
    """The first instruction or policy by which lines stay in L2, or an empty string.

    A policy that is computed while the kernel runs, or comes as an argument, is not seen.
    """
    if "L2::" not in ptx:  # as hardly any has it, and the patterns look at every line
        return ""
    if marked := _MARKED.search(ptx):
        return marked[1]
    hinted = _HINTED.search(ptx)
    for number in _INTEGER.finditer(ptx) if hinted else ():
        value = int(number[1], 0) % 2**64
        if value >> 56 == EVICT_LAST:
            return f"{hinted[1] if hinted else ''} with policy {value:#x}"
    return ""
