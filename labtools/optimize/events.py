"""What happens in a loop: one type for each thing that its log keeps.

Points are named by their key. The types of gaps, budgets, picks, samples, attributions and verdicts
cross as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from labtools.record import Samples, median_us
from labtools.record.fields import ProblemField

from .attribution import AA, Attribution
from .budget import Budget
from .classes import MethodClass
from .family import Axis
from .gaps import Gaps
from .pick import Pick
from .sass_check import SassVerdict
from .score import ScoreEnds

Purpose = Literal["start", "branch", "ablation", "reference", "noise", "frontier"]
"""What a point is timed for: ``reference`` is a known point beside others in one call, ``noise`` an
A/A run, ``frontier`` another workload."""
UNCOUNTED: tuple[Purpose, ...] = ("start", "reference", "noise", "frontier")
"""What is no run of the search: it tries no new candidate at the loop's workload."""


class _Event:
    # A misspelt field would otherwise vanish without a word.
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class LoopSetup:
    """What is fixed for a whole loop.

    Args:
        family: what is tuned: its name, or the path of its file.
        family_hash: of its source, its launch and its methods when the loop began.
        workload: what it is tuned for.
        on: where it is timed: recorded, forecast or gpu.
        gpu: name of the data sheet, or what the device calls itself.
        seed: of everything that is drawn.
        branches: candidates a round.
        rule: of apportionment.
        env: versions and limits, as ``env.json`` holds them.
    """

    family: str
    family_hash: str
    workload: ProblemField
    on: str
    gpu: str
    seed: int
    branches: int
    rule: str
    env: Mapping[str, Any]

    @property
    def kernel(self) -> str:
        """The id of the family's rung, as its file is called."""
        return Path(self.family).stem


@dataclass(frozen=True)
class InitDone(_Event, LoopSetup):
    """A loop began.

    Args:
        start: key of the point that the first round begins from.
        start_knobs: all knobs of that point.
    """

    start: str
    start_knobs: Mapping[str, int]


@dataclass(frozen=True)
class GapsDone(_Event):
    """Step ``gaps``: how far the point is from the peaks.

    Args:
        point: that the round begins from.
        gaps: of it.
        counters: behind them, by stable names; None where missing.
        rising: axes whose gap rose two rounds running.
        ends: between which times are scored; None where the bench has no baseline.
    """

    round: int
    point: str
    gaps: Gaps
    counters: Mapping[str, float | None]
    rising: tuple[Axis, ...] = ()
    ends: ScoreEnds | None = None


@dataclass(frozen=True)
class BudgetDone(_Event):
    """Step ``budget``: methods an axis."""

    round: int
    budget: Budget


@dataclass(frozen=True)
class PickDone(_Event):
    """Step ``pick``: the round's methods.

    Args:
        pick: with all that was considered.
        acknowledged: why a method whose implementation failed may succeed now, by its id: another
            form, other flags, fewer registers.
    """

    round: int
    pick: Pick
    acknowledged: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanMade(_Event):
    """Points are about to be timed."""

    round: int
    purpose: Purpose
    points: tuple[str, ...]


@dataclass(frozen=True)
class PointTimed(_Event):
    """One measurement: a time, or why there is none.

    Args:
        point: its key.
        call: of the bench; points of one call were interleaved, and only they are compared.
        samples: raw times; None where it failed.
        failure: why it is wrong or could not be timed.
        workload: short form; empty for the loop's own.
        knobs: all of the point.
    """

    round: int
    purpose: Purpose
    point: str
    call: int
    samples: Samples | None = None
    failure: str = ""
    workload: str = ""
    knobs: Mapping[str, int] = field(default_factory=dict)

    @property
    def time_us(self) -> float | None:
        """Median over processes of each process's median, microseconds; None where it failed."""
        return None if self.samples is None else median_us(self.samples)


@dataclass(frozen=True)
class BranchTried:
    """A branch and what became of it.

    Args:
        branch: its number in the round, from 1.
        point: its key.
        time_us: microseconds; None where it failed.
        forecast_us: made before it ran; None where there was none.
        why: it was chosen: ``forecast``, ``drawn`` or ``given``.
        failure: why it is no candidate for champion.
    """

    branch: int
    point: str
    time_us: float | None
    forecast_us: float | None = None
    why: str = ""
    failure: str = ""

    @property
    def is_right(self) -> bool:
        """Its answers are right, and it has a time."""
        return self.time_us is not None and not self.failure


@dataclass(frozen=True)
class BranchDone(_Event):
    """Step ``branch``: candidates of the same methods.

    Args:
        branches: those that were run.
        champion: key of the fastest right one; None where none is right, and then the step may
            be done again.
        pruned: settings that went before anything ran, by reason.
        candidates: settings that the forecast ordered.
        best_rank: where it had put the fastest of these, from 1; None where their times are not
            all known.
    """

    round: int
    branches: tuple[BranchTried, ...]
    champion: str | None
    pruned: Mapping[str, int] = field(default_factory=dict)
    candidates: int = 0
    best_rank: int | None = None


@dataclass(frozen=True)
class AblateDone(_Event):
    """Step ``ablate``: the champion with one method out at a time.

    Args:
        aa: the smallest effect that can be told here.
        attribution: of each method.
        pairs: of two methods out together, where that was asked for.
        untimed: why the point without a method, or without two, has no time, by the name of the
            method or of the pair.
    """

    round: int
    aa: AA
    attribution: tuple[Attribution, ...]
    pairs: tuple[Attribution, ...] = ()
    untimed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckDone(_Event):
    """Step ``check``: what of each method is in the champion's machine code."""

    round: int
    sass_check: tuple[SassVerdict, ...]


@dataclass(frozen=True)
class UpdateDone(_Event):
    """Step ``update``: what was learnt.

    Args:
        classes: of each method of the round.
        point: that the next round begins from.
        time_us: of that point, microseconds.
        gain: of the round, relative to the point that it began from, where both were timed in
            one call; None where they were not.
        analysis: in words, by whoever drives the loop.
    """

    round: int
    classes: Mapping[str, MethodClass]
    point: str
    time_us: float
    gain: float | None = None
    analysis: str = ""


@dataclass(frozen=True)
class FrontierScored(_Event):
    """Points of the frontier, timed on other workloads.

    Args:
        times_us: microseconds by point and by workload's short form.
    """

    times_us: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class LoopRestarted(_Event):
    """The next round begins from an entry of the frontier.

    Args:
        round: that begins.
        entry: its place in the frontier, from 0.
        point: its key.
        time_us: as it was measured, microseconds.
    """

    round: int
    entry: int
    point: str
    time_us: float


@dataclass(frozen=True)
class LoopStopped(_Event):
    """The policy, or whoever drives the loop, stops it."""

    round: int
    reason: str


def kind_of(event: Any) -> str:
    """The name that a line of the log has for an event."""
    return next(name for name, of in EVENT_KINDS.items() if of is type(event))


EVENT_KINDS: Mapping[str, type] = {
    "init": InitDone,
    "gaps": GapsDone,
    "budget": BudgetDone,
    "pick": PickDone,
    "branch": BranchDone,
    "ablate": AblateDone,
    "check": CheckDone,
    "update": UpdateDone,
    "plan": PlanMade,
    "timed": PointTimed,
    "frontier": FrontierScored,
    "restart": LoopRestarted,
    "stop": LoopStopped,
}
"""By the name that a line of the log has; that of a step is the step's."""
