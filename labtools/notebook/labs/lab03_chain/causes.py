"""What a warp can wait for: one colour, one pattern and one sentence each, for every view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """How one cause of waiting looks, and what it means."""

    name: str  # as in `labtools.predict.Slice`
    colour: str  # at least 3:1 against a white and against a dark page
    hatch: str  # matplotlib's pattern, so that the figure also reads in black and white
    meaning: str  # one sentence


CAUSES = {
    cause.name: cause
    for cause in (
        Cause("memory: DRAM", "#cf3a24", "", "a load's data come from memory"),
        Cause("memory: L2", "#d2691e", "///", "a load's data come from the L2"),
        Cause("memory: L1", "#a8780a", "...", "a load's data come from the L1"),
        Cause("memory: async copy", "#9c5f3c", "\\\\\\", "an asynchronous copy is not there yet"),
        Cause("shuffle", "#2f75c0", "xx", "a value is on its way from another lane"),
        Cause("shared memory", "#0f8a8f", "++", "a shared load is not there yet"),
        Cause("special function", "#8a5bc0", "oo", "an exponential or a reciprocal is not ready"),
        Cause("conversion", "#b8509b", "**", "a conversion between types is not ready"),
        Cause("tensor", "#6a5be0", "OO", "a tensor-core result is not ready"),
        Cause("barrier", "#2e8540", "--", "other warps of the block have not arrived"),
        Cause("branch and fetch", "#75801a", "||", "the next instruction is fetched"),
        Cause("fixed latency", "#7a7a7a", "", "the stall count that the compiler wrote down"),
        Cause("issue", "#949494", "....", "the issue itself, one cycle an instruction"),
        Cause("contention", "#5f7f8f", "\\\\", "another warp has the slot or the pipe"),
        Cause("operand read", "#9a7060", "//", "a memory instruction still reads its registers"),
        Cause("constant", "#8a8450", "oo", "a constant is not there yet"),
        Cause("special register", "#707f9a", "--", "a special register is not read yet"),
    )
}
"""By name, in the order of a legend."""


def cause_of(name: str) -> Cause:
    """The look of a cause; a name that is not in the list is grey and means itself."""
    return CAUSES.get(name) or Cause(name, "#808080", "x", name)


def in_legend_order(names: Iterable[str]) -> list[str]:
    """Each name once: known causes in their order, then the others."""
    order = {name: place for place, name in enumerate(CAUSES)}
    return sorted(set(names), key=lambda name: (order.get(name, len(order)), name))
