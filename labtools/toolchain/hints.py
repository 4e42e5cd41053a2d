"""Hints in PTX by which lines stay in L2."""

from __future__ import annotations

import re
from collections.abc import Iterator

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"\.(?:entry|func)\b")
_MARKED = re.compile(r"[^\s;{}]*L2::evict_last[^\s;]*")
_HINTED = re.compile(r"([^\s;{}]*L2::cache_hint[^\s;]*)\s([^;]*);")
_HARMLESS = re.compile(
    r"createpolicy\.(?:fractional|range(?:\.global)?)(?:\.L2::evict_(?:first|normal|unchanged))+\.b64"
)
_MOVE = re.compile(r"mov\.[bsu]64")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|[1-9]\d*|0)U?")
KNOWN_POLICIES = {0x10: "evict_normal", 0x12: "evict_first"}
"""The upper byte of a cache policy that keeps no line, and what it says. Source: CUTLASS,
``CacheHintSm90``."""


def kept_lines(ptx: str) -> str:
    """The first instruction by which lines may stay in L2, or an empty string.

    The policy of an access, a register, may only hold constants of the kernel:
    ``createpolicy.fractional`` or ``.range`` without *evict last*, or one of `KNOWN_POLICIES`.

    Source: PTX ISA, ``createpolicy`` and the qualifier ``.level::cache_hint``.
    """
    if "L2::" not in ptx:  # as hardly any has it, and the patterns look at every line
        return ""
    text = _COMMENT.sub(" ", ptx)
    if marked := _MARKED.search(text):
        return marked[0]
    for function in _FUNCTION.split(text):  # each has registers of its own
        for hinted in _HINTED.finditer(function):
            policy = hinted[2].rsplit(",", 1)[-1].strip()
            if wrong := _not_known(policy, function, ()):
                return f"{hinted[1]} with {wrong}"
    return ""


def _not_known(policy: str, function: str, seen: tuple[str, ...]) -> str:
    """What is wrong with a policy, an operand of some function; empty where nothing is."""
    if _INTEGER.fullmatch(policy):
        value = int(policy.rstrip("U"), 0) % 2**64
        return "" if value >> 56 in KNOWN_POLICIES else f"policy {value:#x}"
    if policy in seen:
        return ""
    written = list(_written(policy, function))
    for opcode, source in written:
        if _HARMLESS.fullmatch(opcode):
            continue
        if not _MOVE.fullmatch(opcode):
            return f"a policy that {opcode} makes"
        if wrong := _not_known(source, function, (*seen, policy)):
            return wrong
    return "" if written else "a policy that the kernel does not make"


def _written(register: str, function: str) -> Iterator[tuple[str, str]]:
    """Each instruction that writes a register: its opcode, and what stands behind the register."""
    first = r"(?<![\w.%$:])([a-z][\w.:]*)\s+(?:[({][^(){};]*?)?(?:[\w%$]+\s*\|\s*)?"
    for found in re.finditer(rf"{first}{re.escape(register)}(?![\w$])([^;]*)", function):
        yield found[1], found[2].strip(" ,\n\t)}")
