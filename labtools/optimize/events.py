"""What happens in a loop: one type for each thing that its log keeps. Points are named by their
key; gaps, budgets, picks, samples, attributions and verdicts cross as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from labtools.problem import LabError, Problem
from labtools.record import Samples, median_us
from labtools.record.fields import KeptProblemField, UnknownProblem

from .attribution import AA, Attribution, MethodClass
from .budget import Budget
from .gaps import Gaps
from .method import Axis
from .pick import Pick, Retry
from .sass_check import SassVerdict
from .score import ScoreEnds
from .source import BranchSource

Purpose = Literal["start", "branch", "ablation", "reference", "noise", "frontier"]
"""What a point is timed for: ``reference`` is a known point beside others in one call, ``noise`` an
A/A run, ``frontier`` another workload."""
UNCOUNTED: tuple[Purpose, ...] = ("start", "reference", "noise", "frontier")
"""What is no run of the search: it tries no new candidate at the loop's workload."""


def _read_retries(value: Any) -> Any:
    """Logs of before these fields hold a sentence of each method, which is read as the reason."""
    if not isinstance(value, Mapping):
        return value
    return {name: {"reason": one} if isinstance(one, str) else one for name, one in value.items()}


Retries = Annotated[Mapping[str, Retry], BeforeValidator(_read_retries)]


class _Event:
    # A misspelt field would otherwise vanish without a word.
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class LoopSetup:
    """What is fixed for a whole loop."""

    family: str  # what is tuned: its name, or the path of its file
    family_hash: str  # of its source, its launch and its methods when the loop began
    workload: KeptProblemField  # what it is tuned for
    on: str  # where it is timed: recorded, forecast or gpu
    gpu: str  # name of the data sheet, or what the device calls itself
    seed: int  # of everything that is drawn
    branches: int  # candidates a round
    rule: str  # of apportionment
    env: Mapping[str, Any]  # versions and limits, as ``env.json`` holds them

    @property
    def kernel(self) -> str:
        """The id of the family's rung, as its file is called."""
        return Path(self.family).stem

    @property
    def problem(self) -> Problem:
        """The workload. Raises LabError: its operation is not known."""
        if isinstance(self.workload, UnknownProblem):
            raise LabError(
                f"Nothing here can compute {self.workload}.",
                f"{self.kernel} does not bring the operation {self.workload.operation}",
                "status, summary and diff, which only read",
            )
        return self.workload


@dataclass(frozen=True)
class InitDone(_Event, LoopSetup):
    """A loop began."""

    start: str  # key of the point that the first round begins from
    start_knobs: Mapping[str, int]  # all knobs of that point
    source: BranchSource | None = None  # of that point, where the loop keeps it


@dataclass(frozen=True)
class GapsDone(_Event):
    """Step ``gaps``: how far the point is from the peaks."""

    round: int
    point: str  # that the round begins from
    gaps: Gaps  # of it
    counters: Mapping[str, float | None]  # behind them, by stable names; None where missing
    rising: tuple[Axis, ...] = ()  # axes whose gap rose two rounds running
    ends: ScoreEnds | None = None  # None without a baseline


@dataclass(frozen=True)
class BudgetDone(_Event):
    """Step ``budget``: methods an axis."""

    round: int
    budget: Budget


@dataclass(frozen=True)
class PickDone(_Event):
    """Step ``pick``: the round's methods."""

    round: int
    pick: Pick  # with all that was considered
    acknowledged: Retries = field(default_factory=dict)  # by a method's id
    given: bool = False  # the caller chose the methods


@dataclass(frozen=True)
class SourceGiven(_Event):
    """Somebody wrote a branch, which can be used."""

    round: int
    source: BranchSource


@dataclass(frozen=True)
class PlanMade(_Event):
    """Points are about to be timed."""

    round: int
    purpose: Purpose
    points: tuple[str, ...]


@dataclass(frozen=True)
class PointTimed(_Event):
    """One measurement: a time, or why there is none."""

    round: int
    purpose: Purpose
    point: str  # its key
    call: int  # of the bench; points of one call were interleaved, and only they are compared
    samples: Samples | None = None  # raw times; None where it failed
    failure: str = ""  # why it is wrong or could not be timed
    workload: str = ""  # short form; empty for the loop's own
    knobs: Mapping[str, int] = field(default_factory=dict)  # all of the point

    @property
    def time_us(self) -> float | None:
        """Median over processes of each process's median, microseconds; None where it failed."""
        return None if self.samples is None else median_us(self.samples)


@dataclass(frozen=True)
class BranchTried:
    """A branch and what became of it."""

    branch: int  # its number in the round, from 1
    point: str  # its key
    time_us: float | None  # microseconds; None where it failed
    forecast_us: float | None = None  # made before it ran; None where there was none
    why: str = ""  # it was chosen: ``forecast``, ``drawn`` or ``given``; ``written`` as source
    failure: str = ""  # why it is no candidate for champion

    @property
    def is_right(self) -> bool:
        """Its answers are right, and it has a time."""
        return self.time_us is not None and not self.failure


@dataclass(frozen=True)
class BranchDone(_Event):
    """Step ``branch``: candidates of the same methods."""

    round: int
    branches: tuple[BranchTried, ...]  # those that were run; written ones of before again
    champion: str | None  # key of the fastest right one; None: the step may be done again
    pruned: Mapping[str, int] = field(default_factory=dict)  # settings that went before, by reason
    candidates: int = 0  # settings that the forecast ordered
    best_rank: int | None = None  # where it put the fastest, from 1; None: not known
    # that the champion has beyond the round's start, where it has others than were picked; of
    # written branches all that the right ones claim
    other_methods: tuple[str, ...] | None = None


@dataclass(frozen=True)
class AblateDone(_Event):
    """Step ``ablate``: the champion with one method out at a time."""

    round: int
    aa: AA  # the smallest effect that can be told here
    attribution: tuple[Attribution, ...]  # of each method
    pairs: tuple[Attribution, ...] = ()  # of two methods out together, where that was asked for
    untimed: Mapping[str, str] = field(default_factory=dict)  # why, by method or pair


@dataclass(frozen=True)
class CheckDone(_Event):
    """Step ``check``: what of each method is in the champion's machine code."""

    round: int
    sass_check: tuple[SassVerdict, ...]


@dataclass(frozen=True)
class UpdateDone(_Event):
    """Step ``update``: what was learnt."""

    round: int
    classes: Mapping[str, MethodClass]  # of each method of the round
    point: str  # that the next round begins from
    time_us: float  # of that point, microseconds
    gain: float | None = None  # relative to where it began; None: not both timed
    analysis: str = ""  # in words, by whoever drives the loop
    on: tuple[str, ...] | None = None  # methods that are on at that point; None in older logs


@dataclass(frozen=True)
class FrontierScored(_Event):
    """Points of the frontier, timed on other workloads."""

    times_us: Mapping[str, Mapping[str, float]]  # microseconds by point and workload


@dataclass(frozen=True)
class LoopRestarted(_Event):
    """The next round begins from an entry of the frontier."""

    round: int  # that begins
    entry: int  # its place in the frontier, from 0
    point: str  # its key
    time_us: float  # as it was measured, microseconds


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
    "source": SourceGiven,
    "plan": PlanMade,
    "timed": PointTimed,
    "frontier": FrontierScored,
    "restart": LoopRestarted,
    "stop": LoopStopped,
}
"""By the name that a line of the log has; that of a step is the step's."""
