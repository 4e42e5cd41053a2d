"""The SOL score of SOL-ExecBench, S = 1 / (1 + (t - t_sol) / (t_b - t_sol)): 1 at the floor, 1/2 at
the baseline, towards 0 beyond. Here the floor is the roofline's and the baseline the fastest fair
library, timed in the same processes. A score says nothing by itself and stands beside times."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labtools.problem import LabError


@dataclass(frozen=True)
class SolScore:
    """A score with its ends."""

    score: float  # 1 at the floor, 1/2 at the baseline
    time_us: float  # of the kernel
    floor_us: float  # which nothing beats
    baseline_us: float  # of what it is held against

    def __str__(self) -> str:
        ends = f"floor {self.floor_us:.2f} us, fastest fair library {self.baseline_us:.2f} us"
        return f"{self.score:.2f} ({ends})"


@dataclass(frozen=True)
class ScoreEnds:
    """Between what a time is scored."""

    floor_us: float  # the bulk at the best rate of a plain read and an empty launch, microseconds
    baseline_us: float  # of the fastest fair library, microseconds
    baseline: str  # its name

    def score(self, time_us: float) -> SolScore | None:
        """The score of a time; None where these are no ends for it."""
        try:
            return sol_score(time_us, self.floor_us, self.baseline_us)
        except LabError:
            return None


def sol_score(time_us: float, floor_us: float, baseline_us: float) -> SolScore:
    """Score a time between a floor and a baseline, microseconds. Raises LabError: there is no room
    to score, or the floor is no floor."""
    ends = {"time": time_us, "floor": floor_us, "baseline": baseline_us}
    for name, value in ends.items():
        if not (math.isfinite(value) and value > 0):
            raise _no_score(f"the {name} is {value!r} us, which is no time")
    if baseline_us <= floor_us:
        raise _no_score(
            f"the baseline, {baseline_us:g} us, is not above the floor, {floor_us:g} us"
        )
    if time_us < floor_us:
        raise _no_score(
            f"{time_us:g} us is below the floor, {floor_us:g} us: the floor or the time is wrong"
        )
    score = 1 / (1 + (time_us - floor_us) / (baseline_us - floor_us))
    return SolScore(score, time_us, floor_us, baseline_us)


def _no_score(why: str) -> LabError:
    return LabError("There is no score for this time.", why, "the times themselves")
