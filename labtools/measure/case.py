"""What became of one workload in a check, on whichever machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labtools.problem import Comparison, LabError, Limits, Problem, Rung
from labtools.record.fields import ProblemField


def checked_limits() -> Limits:
    """The GPU that the CPU runner stands in for: a launch is laid out for it."""
    from labtools.predict import DEFAULT_GPU, load_gpu

    return load_gpu(DEFAULT_GPU).limits


def why_not_launched(
    rung: Rung, problem: Problem, limits: Limits, knobs: Mapping[str, int] | None
) -> str:
    """Why a rung launches nothing for a problem that its `supports` takes; "" where it does."""
    try:
        rung.launches(problem, limits, knobs)
    except LabError as error:
        return f"its supports() takes {problem}: {error.what} {error.why}"
    return ""


@dataclass(frozen=True)
class Fault:
    """One thing that a kernel did wrong, apart from its numbers."""

    # on the CPU one of `cpu.FAULT_KINDS`; on the GPU misaligned, out_of_bounds, hang,
    # out_of_memory, launch, trap, busy, crash or cuda
    kind: str
    message: str  # what happened, in words
    file: str | None = None  # the source, cell or header; None where unknown, as on a GPU
    line: int | None = None  # 1-based line in it
    block: tuple[int, int, int] | None = None  # blockIdx
    thread: tuple[int, int, int] | None = None  # threadIdx

    def to_dict(self) -> dict[str, Any]:
        """What holds of either machine; a fault on the CPU knows more, which is in its text."""
        names = ("kind", "message", "file", "line", "block", "thread")
        return {name: getattr(self, name) for name in names}

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

    def to_dict(self) -> dict[str, Any]:
        """What holds of either machine; a run knows more, such as the output."""
        names = ("workload", "ok", "comparison", "faults")
        return {name: getattr(self, name) for name in names}

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
