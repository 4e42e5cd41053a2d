"""What became of one workload in a check, on whichever machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from labtools.problem import Comparison, Problem
from labtools.record.fields import ProblemField

P = TypeVar("P", bound=Problem)

SECOND_DRAW = 7919
"""Added to a workload's seed for the second draw."""


def second_draw(workload: P) -> P:
    """The same workload with other inputs, for which an answer to the first is wrong."""
    return workload.replace(seed=workload.seed + SECOND_DRAW)


@dataclass(frozen=True)
class Fault:
    """One thing that a kernel did wrong, apart from its numbers."""

    # on the CPU one of `labtools.measure.cpu.FAULT_KINDS`; on the GPU misaligned, out_of_bounds,
    # hang, out_of_memory, launch, trap, busy, crash or cuda
    kind: str
    message: str  # what happened, in words
    # the kernel's source (or cell, or header); None when no line could be found. A GPU does not
    # say.
    file: str | None = None
    line: int | None = None  # 1-based line in it
    block: tuple[int, int, int] | None = None  # blockIdx, or None
    thread: tuple[int, int, int] | None = None  # threadIdx, or None

    # A fault on the CPU knows more, which is in its text.
    in_json: ClassVar[Mapping[str, str]] = {
        name: name for name in ("kind", "message", "file", "line", "block", "thread")
    }
    """What the JSON of either machine holds."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class CheckCase:
    """One workload of a check."""

    workload: ProblemField  # what was computed; of two draws the one that is wrong, if one is
    ok: bool  # right in both draws, and no fault
    # with the oracle, the worse of the two draws; None when a fault ended the run
    comparison: Comparison | None = None
    faults: Sequence[Fault] = ()  # what the kernel did besides computing wrong numbers
    printed: str = ""  # what the kernel printed, on the CPU, at most 64 KiB

    # A run of one machine knows more, such as the output.
    in_json: ClassVar[Mapping[str, str]] = {
        name: name for name in ("workload", "ok", "comparison", "faults")
    }
    """What the JSON of either machine holds."""

    @property
    def told(self) -> str:
        """What was found, without the workload."""
        if self.ok:
            return str(self.comparison)
        parts = [str(fault) for fault in self.faults]
        if self.comparison is not None and not self.comparison.ok:
            parts.append(str(self.comparison))
        return "\n".join(parts or ["it was not run to its end"])

    def __str__(self) -> str:
        return f"{self.workload}: {self.told}"
