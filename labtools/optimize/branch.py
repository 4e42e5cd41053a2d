"""Branches: the same methods with other hyperparameters, pruned before anything runs.

A round's methods are applied in each of their forms with each setting of the hyperparameters. What
the family forbids, what cannot be measured here and what was measured before goes at once. The
forecast orders the rest. All but one of the branches are its first; the last is drawn among those
that it holds for little slower, because the forecast may be wrong where all that it likes is alike.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .bench import TimingBench
from .family import Family, InvalidPoint, Point

DRAWN_WITHIN = 1.25
"""The last branch is drawn among those whose forecast is at most this many times the best one."""
MOST_FORECASTS = 96
"""Settings of one round that are forecast at most. Of more, so many are drawn."""


@dataclass(frozen=True)
class Branch:
    """One candidate of a round.

    Args:
        branch: its number in the round, 1, 2, ...
        point: what is compiled and launched.
        forecast_us: microseconds; None where there is no forecast.
        why: ``forecast`` for one of its first, ``drawn`` for one that was drawn.
    """

    branch: int
    point: Point
    forecast_us: float | None
    why: str


@dataclass(frozen=True)
class Branching:
    """The branches of a round, and how many settings went before anything ran.

    Args:
        branches: to be checked and timed.
        pruned: settings that went, by reason.
        ordered: those that are left, in the forecast's order, the branches among them.
    """

    branches: tuple[Branch, ...]
    pruned: Mapping[str, int] = field(default_factory=dict)
    ordered: tuple[Point, ...] = ()


def variants(
    family: Family,
    point: Point,
    methods: Sequence[str],
    forms: Mapping[str, int] | None = None,
) -> Iterator[Point | str]:
    """A point with some methods, in each of their forms and with each setting of hyperparameters.

    A setting that would switch another method on or off is no variant: nobody would know which of
    the two a gain belongs to. Each point comes once; in place of one that is no kernel comes the
    reason.

    Args:
        family: what is tuned.
        point: what the methods are added to.
        methods: their ids; none varies the hyperparameters alone.
        forms: the number of the one form that a method may have; without it all are tried.
    """
    seen = {point}
    only = forms or {}
    choices = [
        [only[name]] if name in only else range(len(family.method(name).on)) for name in methods
    ]
    names = [one.knob for one in family.hypers]
    for numbers in itertools.product(*choices):
        chosen = dict(zip(methods, numbers, strict=True))
        try:
            plain = family.apply(point, methods, forms=chosen)
        except InvalidPoint as error:
            yield error.why
            continue
        switched = family.methods_on(plain)
        for values in itertools.product(*(one.values for one in family.hypers)):
            try:
                made = family.point({**plain.knobs, **dict(zip(names, values, strict=True))})
            except InvalidPoint as error:
                yield error.why
                continue
            if made not in seen and family.methods_on(made) == switched:
                seen.add(made)
                yield made


def propose(
    bench: TimingBench,
    point: Point,
    methods: Sequence[str],
    *,
    count: int,
    known: Collection[Point] = (),
    seed: str = "",
    forms: Mapping[str, int] | None = None,
) -> Branching:
    """Choose a round's branches.

    Args:
        bench: where they will run.
        point: the champion.
        methods: ids of the round's methods.
        count: how many branches at most.
        known: points that were timed before, or are known to be wrong.
        seed: of what is drawn, in words.
        forms: see `variants`.
    """
    rng = random.Random(seed)
    pruned: Counter[str] = Counter()
    left: list[Point] = []
    for made in variants(bench.family, point, methods, forms):
        reason = made if isinstance(made, str) else _refusal(bench, made, known)
        if isinstance(made, Point) and reason is None:
            left.append(made)
        elif reason is not None:
            pruned[reason] += 1
    if len(left) > MOST_FORECASTS:
        pruned["not drawn to be forecast"] = len(left) - MOST_FORECASTS
        left = rng.sample(left, MOST_FORECASTS)
    forecasts = bench.forecasts_us(left)
    ordered = sorted(left, key=lambda one: (forecasts.get(one, float("inf")), one.key))
    branches = _choose(ordered, forecasts, count, rng)
    if later := len(ordered) - len(branches):
        pruned["the forecast puts it behind the branches"] = later
    return Branching(branches, dict(pruned), tuple(ordered))


def _refusal(bench: TimingBench, point: Point, known: Collection[Point]) -> str | None:
    return "timed before" if point in known else bench.refuses(point)


def _choose(
    ordered: Sequence[Point],
    forecasts: Mapping[Point, float],
    count: int,
    rng: random.Random,
) -> tuple[Branch, ...]:
    """The forecast's first points, and one that is drawn among those that it holds for near."""
    first = list(ordered[: max(1, count - 1)])
    limit = DRAWN_WITHIN * forecasts.get(first[0], float("inf")) if first else 0.0
    near = [one for one in ordered[len(first) :] if forecasts.get(one, float("inf")) <= limit]
    near = near or list(ordered[len(first) : len(first) + 1])
    drawn = rng.sample(near, min(len(near), count - len(first)))
    chosen = [(one, "forecast") for one in first] + [(one, "drawn") for one in drawn]
    return tuple(
        Branch(number, one, forecasts.get(one), why)
        for number, (one, why) in enumerate(chosen, start=1)
    )
