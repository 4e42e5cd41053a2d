"""What one method is worth: the time without it against the time with it, and what can be told.
Identical kernels, timed against each other, say which effect is none here; an effect counts from
there on, and from `THRESHOLD` on. A method is decided where its whole interval lies on one side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from labtools.problem import LabError
from labtools.problem.text import first_line, how_many
from labtools.record import Samples, median_us, ratio_of_samples
from labtools.record.statistics import CONFIDENCE

from .sass_check import SassVerdict

MethodClass = Literal["effective", "ineffective", "implementation_failed", "interacts", "undecided"]
"""What is known of a method after a round. One that ``interacts`` with another has no effect of its
own, see `Interaction`; of an undecided one the measurement could not tell. Both may be taken again.
"""
Decision = Literal["above", "below"]
Outcome = Literal["slower", "same", "faster", "open"]
"""What taking a method out does: on which side of the threshold the whole interval lies."""

UNBOUNDED = 1e9
"""End of an interval of which nothing is known; finite, as JSON has to be."""
MOST_PAIRS_NAMED = 3  # pairs without a time for one reason that are named; more of them are counted
THRESHOLD = 0.02
"""Relative effect that counts as one, as in the source, where the machine can tell as much."""


class TimeRatio(NamedTuple):
    """How many times longer one point takes than another, with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class AA:
    """The smallest effect that can be told here, from identical kernels timed in turn."""

    effect: float  # relative; a smaller one is noise
    pairs: int  # of identical kernels that it follows from
    origin: str  # live, recorded or forecast
    model: str = ""  # how right forecasts are that stand for times, in words


@dataclass(frozen=True)
class Attribution:
    """One method of a point, by the point without it; both were timed in one call."""

    method: str  # its id
    without: str  # key of the point without it
    delta_us: float  # time without it less the time with it, microseconds; positive where it helps
    relative: float  # of the time with it
    low: float  # lower end of the 95 % interval of ``relative``
    high: float  # upper end
    threshold: float  # relative, from which an effect counts
    decided: Decision | None  # on which side of it the whole interval lies, or None


def outcome_of(found: Attribution) -> Outcome:
    """What taking the method out does: ``slower``, it counts; ``faster``, it harms; ``same``,
    neither; ``open``, the interval holds the threshold on one side or the other."""
    if found.low > found.threshold:
        return "slower"
    if found.high < -found.threshold:
        return "faster"
    inside = -found.threshold < found.low and found.high < found.threshold
    return "same" if inside else "open"


def classify(
    attribution: Attribution | None, sass: SassVerdict, interacts: bool = False
) -> MethodClass:
    """The class of a method. What the compiler dropped failed, whatever the time did; one without a
    signature whose proof could not be asked, or without a time, stays undecided. ``interacts``: a
    pair with it does something else than the product of each alone."""
    unsigned = sass.verdict == "no signature"
    if sass.verdict == "absent" or (unsigned and sass.proved is False):
        return "implementation_failed"
    if (unsigned and sass.proved is None) or attribution is None:
        return "undecided"
    if interacts:
        return "interacts"
    if attribution.decided is None:
        return "undecided"
    return "effective" if attribution.decided == "above" else "ineffective"


# ------------------------------------------------------------------------------------ intervals


def ratio_of(above: Samples, below: Samples, noise: float = 0.0) -> TimeRatio:
    """Time of one point over another's: median over the processes that both share, with the
    bootstrap of `ratio_of_samples`. ``noise``, a factor's logarithm that identical kernels differ
    by, widens it."""
    of_above = {one.process: np.asarray(one.us) for one in above.processes}
    of_below = {one.process: np.asarray(one.us) for one in below.processes}
    shared = sorted(set(of_above) & set(of_below))
    if not shared:
        raise LabError(
            "Two points share no process, so they cannot be compared.",
            "each was timed in processes of its own",
            "time both in one call",
        )
    ratio, low, high = ratio_of_samples(
        [of_above[one] for one in shared], [of_below[one] for one in shared]
    )
    factor = float(np.exp(noise))
    return TimeRatio(ratio, min(low, ratio / factor), max(high, ratio * factor))


def noise_of(pairs: Sequence[tuple[Samples, Samples]]) -> float:
    """Logarithm of the factor that all but 5 % of the pairs of identical kernels stay within."""
    off = [abs(float(np.log(median_us(b) / median_us(a)))) for a, b in pairs]
    return float(np.quantile(off, CONFIDENCE, method="higher")) if off else 0.0


def least_effect_of(
    pairs: Sequence[tuple[Samples, Samples]], origin: str, noise: float = 0.0
) -> AA:
    """The smallest effect that can be told: the farthest end of an interval, in all but 5 % of the
    pairs of identical kernels. ``noise`` is as in `ratio_of`."""
    ends = []
    for first, second in pairs:
        found = ratio_of(second, first, noise)
        ends.append(max(found.high - 1.0, 1.0 - found.low))
    effect = float(np.quantile(ends, CONFIDENCE, method="higher")) if ends else 0.0
    return AA(effect, len(ends), origin)


def threshold_of(least: AA) -> float:
    """From which relative effect on a method counts."""
    return max(THRESHOLD, least.effect)


def relative_gain(before: Samples, after: Samples) -> float:
    """How much longer the time before is than the time after, relative to the time after."""
    return ratio_of(before, after).ratio - 1.0


# ---------------------------------------------------------------------------------- two at a time

_BOTH = " + "  # stands between the methods of a pair; no id of a method holds it


def pair_name(first: str, second: str) -> str:
    """The name of two methods that are out together: ``first + second``."""
    return f"{first}{_BOTH}{second}"


@dataclass(frozen=True)
class Interaction:
    """Two methods that do together something else than each alone."""

    methods: tuple[str, str]  # both ids
    together: float  # relative effect of taking both out
    product: float  # what it would be if each did the same without the other
    additive: bool  # the two have intervals that meet, within what can be told
    told: bool = True  # False: the intervals are of forecasts, wide enough for either

    def __str__(self) -> str:
        """Whether they interact."""
        return "yes" if not self.additive else "no" if self.told else "undecided"


def interactions(
    single: Sequence[Attribution], pairs: Sequence[Attribution], least: AA
) -> tuple[Interaction, ...]:
    """Hold what two methods do together against the product of what each does alone; where their
    intervals are farther apart than the least effect, the two are said to interact."""
    alone = {one.method: one for one in single}
    found = []
    for one in pairs:
        first, second = one.method.split(_BOTH)
        if first in alone and second in alone:
            each = alone[first], alone[second]
            product, low, high = (
                math.prod(1 + getattr(found, end) for found in each) - 1
                for end in ("relative", "low", "high")
            )
            fits = one.low - least.effect <= high and low <= one.high + least.effect
            told = not fits or least.origin != "forecast"
            found.append(Interaction((first, second), one.relative, product, fits, told))
    return tuple(found)


def interacting(found: Sequence[Interaction]) -> frozenset[str]:
    """Ids of the methods that interact with another."""
    return frozenset(name for one in found if not one.additive for name in one.methods)


# ---------------------------------------------------------------------------------------- telling

PAIR_COLUMNS = (
    "without both",
    "us more",
    "longer by",
    "95 % interval",
    "product of each alone",
    "interact",
)
"""What `say_pairs` says of a pair."""


def say_effect(one: Attribution) -> tuple[str, str, str]:
    """Microseconds more without it, how much longer that is, and the interval of it."""
    return f"{one.delta_us:+.2f}", f"{one.relative:+.1%}", say_attributed_interval(one)


def say_attributed_interval(one: Attribution) -> str:
    """The interval of its effect in words."""
    if one.high >= UNBOUNDED:
        return "not known"
    return f"{one.low:+.1%} to {one.high:+.1%}"


def say_pairs(
    pairs: Sequence[Attribution], met: Sequence[Interaction]
) -> Iterator[tuple[str, ...]]:
    """A row a pair, under `PAIR_COLUMNS`; its last cells are empty where one has no time alone."""
    known = {pair_name(*one.methods): one for one in met}
    for pair in pairs:
        one = known.get(pair.method)
        product = "" if one is None else f"{one.product:+.1%}"
        yield (pair.method, *say_effect(pair), product, "" if one is None else str(one))


def say_untimed(untimed: Mapping[str, str]) -> Iterator[str]:
    """What has no time, reason by reason: every method, and pairs up to `MOST_PAIRS_NAMED`."""
    reasons: dict[str, list[str]] = {}
    for name, why in untimed.items():
        reasons.setdefault(first_line(why), []).append(name)
    for why, names in reasons.items():
        pairs = [name for name in names if _BOTH in name]
        if len(pairs) > MOST_PAIRS_NAMED:
            names = [name for name in names if name not in pairs]
            names.append(how_many(len(pairs), "pair"))
        yield f"without a time: {', '.join(names)}: {why}"
