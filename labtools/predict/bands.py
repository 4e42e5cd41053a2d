"""The bands of forecasts: how far a family of kernels was off on a GPU, and how often the band held
for kernels that it was not made from (``band.toml``, which ``tools/write_band.py`` writes).

A kernel's family follows from what it computes, from how its inputs are stored, and from its
machine code; its name says nothing.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labtools.problem import Launch, Problem, timed_launches
from labtools.toolchain.sass import Sass

from .machine import Machine
from .result import model_name

BANDS = Path(__file__).with_name("band.toml")
KEPT = 0.98
"""Share of the errors on older records that a band holds, the middle ones."""
SAID_BEFORE = frozenset({"chain model 6", model_name()})
"""Models whose forecasts of fresh points count: what the later ones changed was sought on kernels
of no family."""
COPYING = frozenset({"LDGSTS", "UBLKCP", "UTMALDG"})
"""Instructions that bring data to shared memory while their warp goes on."""
FAMILIES = {
    "decode": "decode attention that loads 16-bit keys and values",
    "decode_codes": "decode attention that loads keys and values of 8 or 4 bits",
    "decode_copies": "decode attention that copies 16-bit keys and values to shared memory",
    "decode_copies_codes": "decode attention that copies keys and values of 8 or 4 bits to shared "
    "memory",
    "prefill": "prefill",
    "gemm": "matrix products",
}
"""What each family is, in words."""


@dataclass(frozen=True)
class Band:
    """How far forecasts of a family were off."""

    low: float  # lower end over the forecast
    high: float  # upper end over it
    fitted: int = 0  # kernels and problems that it was made from; 0 where nothing was measured
    # fresh: kernels and problems of the family whose forecast stood before they were measured;
    # held: those of them that the band held for
    held: int = 0
    fresh: int = 0


UNMEASURED = Band(0.5, 2.0)
"""Of a GPU on which no kernel of the family was measured."""


def family_of(problem: Problem, launches: Sequence[Launch], code: Iterable[Sass]) -> str | None:
    """The family (`FAMILIES`) of a call that executes some machine code; None if it has none."""
    if problem.operation != "decode":
        return problem.operation if problem.operation in FAMILIES else None
    copies = any(one.base in COPYING for sass in code for one in sass.instructions)
    family = "decode_copies" if copies else "decode"
    return f"{family}_codes" if _reads_codes(launches) else family


def _reads_codes(launches: Sequence[Launch]) -> bool:
    """Whether a call reads elements of 8 bits or less that a preparation wrote."""
    prepared = {name for one in launches if one.prepare for name in one.named}
    read = {name for one in timed_launches(launches) for name in one.named}
    spaces = [space for one in launches for space in one.workspace]
    return any(one.name in prepared & read and one.dtype in ("int8", "uint8") for one in spaces)


def band_of(machine: Machine, family: str) -> Band:
    """How far forecasts of a family are off on a GPU: `UNMEASURED` where its kernels were not
    measured there."""
    known = _bands().get(machine.name, {}) if machine.calibrated else {}
    return known.get(family, UNMEASURED)


@functools.lru_cache(maxsize=1)
def _bands() -> dict[str, dict[str, Band]]:
    if not BANDS.is_file():
        return {}
    tables = tomllib.loads(BANDS.read_text("utf-8"))
    return {
        gpu: {family: Band(**numbers) for family, numbers in families.items()}
        for gpu, families in tables.items()
    }
