"""Branches, pruned before anything runs. The first half are the forecast's best of all points that
may lead. The others have the round's methods, with other hyperparameters: what the forecast holds
for much slower than its best goes, half are its first, and half are drawn: within its own error it
cannot order."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .bench import TimingBench
from .family import Family, ForbiddenPoint, InvalidPoint, Point

NEAR_FORECAST = 1.25
"""What the forecast holds for more than this many times as slow as its best is not tried. So far it
may be off; nearer it cannot order."""
MOST_FORECASTS = 96  # settings of one round that are forecast at most. Of more, so many are drawn.
MOST_OTHERS = 24  # points with any methods that are forecast in a loop where a forecast takes time

SWITCHES_ANOTHER = "it would switch another method on or off"
CHANGES_FORM = "it would give a method another form than it may have"
NOT_AS_SAID = "it is not what was said of a method that is tried again"
"""Why a setting is no variant, see `variants`; these are all reasons that are no kernel's."""
KnobValues = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Branch:
    """One candidate of a round."""

    branch: int  # its number in the round, 1, 2, ..
    point: Point  # what is compiled and launched
    forecast_us: float | None  # microseconds; None where there is no forecast
    why: str  # ``forecast`` for one of its first, ``drawn`` for one that was drawn


@dataclass(frozen=True)
class Branching:
    """The branches of a round, and how many settings went before anything ran."""

    branches: tuple[Branch, ...]  # to be checked and timed
    pruned: Mapping[str, int] = field(default_factory=dict)  # settings that went, by reason
    ordered: tuple[Point, ...] = ()  # the settings left, in the forecast's order


def variants(
    family: Family,
    point: Point,
    methods: Sequence[str],
    forms: Mapping[str, int] | None = None,
    fixed: Collection[str] = (),
    settings: Mapping[str, int] | None = None,
) -> Iterator[Point | str]:
    """A point with some methods, in each of their forms and with each setting of hyperparameters.
    What is on already may take another of its forms, but for methods of ``fixed``. Each point comes
    once; in place of one that is no variant or no kernel comes the reason. ``forms`` are numbers of
    the one form that a method may have, and ``settings`` are knobs that each variant has so."""
    seen = {point}
    others: dict[Point, str] = {}
    looked: set[tuple[frozenset[tuple[str, int]], tuple[str, ...]]] = set()
    varied = {one.knob for one in family.hypers}
    only = forms or {}
    choices = [
        [only[name]] if name in only else range(len(family.method(name).on)) for name in methods
    ]
    for numbers in itertools.product(*choices):
        chosen = dict(zip(methods, numbers, strict=True))
        try:
            plain = with_methods(family, point, methods, chosen)
        except InvalidPoint as error:
            yield error.why
            continue
        switched = family.methods_on(plain)
        rest = frozenset((name, plain.knobs[name]) for name in plain.knobs if name not in varied)
        if (rest, switched) in looked:  # forms that the hyperparameters set again
            continue
        looked.add((rest, switched))
        wanted = {**held_forms(family, point, plain, methods, fixed), **only}
        held = [name for name in switched if name not in methods and name not in fixed]
        for values in itertools.product(*_choices(family, held)):
            try:
                made = family.point({**plain.knobs, **dict(itertools.chain(*values))})
            except InvalidPoint as error:
                yield error.why
                continue
            if made in seen:
                continue
            if family.methods_on(made) != switched:
                others[made] = SWITCHES_ANOTHER
            elif any(family.form_of(made, name) != form for name, form in wanted.items()):
                others[made] = CHANGES_FORM
            elif not (settings or {}).items() <= made.knobs.items():
                others[made] = NOT_AS_SAID
            else:
                seen.add(made)
                yield made
    for made, why in others.items():  # another form of the methods may have come to it
        if made not in seen:
            yield why


def held_forms(
    family: Family, point: Point, plain: Point, methods: Sequence[str], fixed: Collection[str]
) -> dict[str, int]:
    """The form that each method of ``fixed`` keeps that the round does not take: that at ``point``,
    or that in which the round's methods brought it along in ``plain``."""
    found = {}
    for name in set(fixed) - set(methods):
        before, now = family.form_of(point, name), family.form_of(plain, name)
        if now is not None:
            found[name] = now if before is None else before
    return found


def with_methods(
    family: Family, point: Point, methods: Sequence[str], forms: Mapping[str, int]
) -> Point:
    """A point with some methods, where need be with one hyperparameter set anew: what a constraint
    forbids beside the hyperparameters of the point may be allowed beside others."""
    try:
        return family.apply(point, methods, forms=forms)
    except ForbiddenPoint:
        settings = [{one.knob: value} for one in family.hypers for value in one.values]
        for setting in settings:
            with contextlib.suppress(InvalidPoint):
                moved = family.point({**point.knobs, **setting})
                if family.methods_on(moved) == family.methods_on(point):
                    return family.apply(moved, methods, forms=forms)
        raise


def _choices(family: Family, held: Sequence[str]) -> list[list[KnobValues]]:
    """What a variant may set: one value of each hyperparameter, one form of each method held."""
    hypers = {one.knob for one in family.hypers}
    methods = [family.method(name) for name in held]
    several = [one.on for one in methods if len(one.on) > 1 and set(one.off) - hypers]
    choices: list[list[KnobValues]] = [[tuple(form.items()) for form in some] for some in several]
    return choices + [[((one.knob, value),) for value in one.values] for one in family.hypers]


def varied_knobs(family: Family, held: Sequence[str]) -> frozenset[str]:
    """The knobs that variants set beside those of the round's methods."""
    choices = itertools.chain(*_choices(family, held))
    return frozenset(name for setting in choices for name, _ in setting)


def propose(
    bench: TimingBench,
    point: Point,
    methods: Sequence[str],
    *,
    count: int,
    known: Mapping[Point, str] | None = None,
    seed: str = "",
    forms: Mapping[str, int] | None = None,
    fixed: Collection[str] = (),
    settings: Mapping[str, int] | None = None,
    others: Sequence[Point] = (),
) -> Branching:
    """Choose a round's branches, at most ``count``; ``forms``, ``fixed`` and ``settings`` as of
    `variants`, and ``others`` are points with any methods that the forecast may put first."""
    rng = random.Random(seed)
    pruned: Counter[str] = Counter()
    left: list[Point] = []
    for made in variants(bench.family, point, methods, forms, fixed, settings):
        reason = made if isinstance(made, str) else why_not_tried(bench, made, known or {})
        if reason is not None:
            pruned[reason] += 1
        elif isinstance(made, Point):
            left.append(made)
    if len(left) > MOST_FORECASTS:
        pruned["not drawn to be forecast"] = len(left) - MOST_FORECASTS
        left = rng.sample(left, MOST_FORECASTS)
    every = dict.fromkeys(left)
    every |= {one: None for one in others if why_not_tried(bench, one, known or {}) is None}
    forecasts = bench.forecasts_us(list(every))
    in_order = sorted(every, key=lambda one: (forecasts.get(one, float("inf")), one.key))
    own = set(left)
    ordered = [one for one in in_order if one in own]
    best = [one for one in in_order if one in forecasts] if others else []
    branches = choose_branches(ordered, forecasts, count, rng, best)
    if later := len(set(ordered) - {one.point for one in branches}):
        pruned["the forecast puts it behind the branches"] = later
    return Branching(branches, dict(pruned), tuple(ordered))


def rank_of_best(bench: TimingBench, ordered: Sequence[Point]) -> int | None:
    """Where the fastest of some points stands in their order, from 1; None if it is not known."""
    known = bench.known_us(ordered)
    if not ordered or len(known) < len(ordered):
        return None
    return 1 + min(range(len(ordered)), key=lambda place: known[ordered[place]])


def why_not_tried(bench: TimingBench, point: Point, known: Mapping[Point, str]) -> str | None:
    """Why a setting is no candidate on a bench, or None."""
    return known.get(point) or bench.refuses(point)


def say_methods(methods: Sequence[str]) -> str:
    """Of what settings are: ``of a and b``, or of what is varied beside them."""
    return f"of {' and '.join(methods) or 'the sizes and of other forms of what is on'}"


def say_counted(reasons: Mapping[str, int]) -> str:
    """Why settings went, the commonest reason first: ``12 times a; once b``."""
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    said = [f"{'once' if count == 1 else f'{count} times'} {why}" for why, count in ordered]
    return "; ".join(said) or "the family has none"


def choose_branches(
    ordered: Sequence[Point],
    forecasts: Mapping[Point, float],
    count: int,
    rng: random.Random,
    best: Sequence[Point] = (),
) -> tuple[Branch, ...]:
    """The first of ``best``, half of all; then of the points near the forecast's best of
    ``ordered`` its first, and as many that are drawn. Of an odd number one more is the forecast's,
    and where there are fewer of one kind there are more of the other."""
    known = [forecasts[one] for one in ordered if one in forecasts]
    limit = NEAR_FORECAST * min(known, default=float("inf"))
    near = [one for one in ordered if forecasts.get(one, float("inf")) <= limit]
    led = list(best[: count - count // 2])
    near = [one for one in near if one not in led]
    left = count - len(led)
    first, others = near[: left - left // 2], near[left - left // 2 :]
    drawn = rng.sample(others, min(len(others), left - len(first)))
    chosen = [(one, "forecast") for one in (*led, *first)] + [(one, "drawn") for one in drawn]
    return tuple(
        Branch(number, one, forecasts.get(one), why)
        for number, (one, why) in enumerate(chosen, start=1)
    )
