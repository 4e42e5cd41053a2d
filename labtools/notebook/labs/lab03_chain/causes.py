"""What a warp can wait for: one colour, one pattern and one sentence each, for every view."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cause:
    """How one cause of waiting looks, and what it means."""

    name: str  # as in `labtools.predict.Slice`
    colour: str  # at least 3:1 against a white and against a dark page
    hatch: str  # matplotlib's pattern, so that the figure also reads in black and white
    meaning: str  # one sentence


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
CAUSES = {name: Cause(name, *look) for name, look in _ROWS.items()}
"""By name, in the order of a legend."""


def cause_of(name: str) -> Cause:
    """The look of a cause; a name that is not in the list is grey and means itself."""
    return CAUSES.get(name) or Cause(name, "#808080", "x", name)


def in_legend_order(names: Iterable[str]) -> list[str]:
    """Each name once: known causes in their order, then the others."""
    order = {name: place for place, name in enumerate(CAUSES)}
    return sorted(set(names), key=lambda name: (order.get(name, len(order)), name))
