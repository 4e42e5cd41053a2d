"""The table that the game looks up: every round that can be played on a recorded grid.

All of it comes from `labtools.optimize`, whose rules stand nowhere else: the browser only looks up
which points a round can try, what each of them took, and what leaving a method out does there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from labtools.optimize.ablation import ablate_methods
from labtools.optimize.attribution import threshold_of
from labtools.optimize.bench import RecordedBench
from labtools.optimize.branch import varied_knobs, with_methods
from labtools.optimize.budget import (
    CAP,
    DEFAULT_BRANCHES,
    NEGLIGIBLE,
    SLOTS,
    ApportionmentRule,
    allocate,
)
from labtools.optimize.classes import classify
from labtools.optimize.family import METHOD_AXES, Family, InvalidPoint, Method, Point
from labtools.optimize.gaps import Gaps
from labtools.optimize.loop import check_methods
from labtools.optimize.pick import (
    WEAK_STRENGTH,
    Considered,
    Retry,
    Taken,
    pick_methods,
    why_not_again,
)
from labtools.optimize.searches import NEAR_FACTORS, Searches
from labtools.optimize.state import METHOD_CLASSES

from ..lab08_ablation.panels import CLASS_WORDS, proof_rows
from .conditions import say_condition

NO_POINT = "no recorded point that a round may lead with has these methods on together"
"""Why a round can try nothing, where a choice of methods is not refused by the family itself."""

REMOVAL_COLUMNS = (
    *("point", "leads", "time_us", "relative", "low", "high", "class", "harms"),
    *("evidence", "gone"),
)
"""Of what leaving a method out does: number of the point without it in the grid; its place among
the points of the table, or -1; microseconds; the effect with its interval; number of the class;
1 where the next round leads without it; texts: what the machine code shows, as JSON of
`proof_rows`, and what else goes with the method."""


MethodChoice = tuple[str, ...]
"""Ids of a round's methods, in the family's order."""


@dataclass(frozen=True)
class MovesFrom:
    """Where rounds lead from a point."""

    tried: Mapping[MethodChoice, tuple[Point, ...]]  # points that a round can try, by its methods
    # why the family refuses other choices; `NO_POINT` holds for the rest
    refused: Mapping[MethodChoice, str]


class GameGrid:
    """A recorded grid as a game: its points, and the moves between them.

    Args:
        bench: of the grid, at the workload that is played.

    Attributes:
        leading: the points that a round may lead with.
    """

    def __init__(self, bench: RecordedBench) -> None:
        self.family = bench.family
        self._hypers = frozenset(one.knob for one in self.family.hypers)
        self._varied_by: dict[MethodChoice, frozenset[str]] = {}
        self.leading = bench.leading
        self._by_methods: dict[MethodChoice, list[Point]] = {}
        for one in self.leading:
            self._by_methods.setdefault(self.family.methods_on(one), []).append(one)
        self._together = [frozenset(names) for names in self._by_methods]
        self._forms = {one.id: self._groups(one) for one in self.family.switchable}

    def moves(self, point: Point, eligible: Sequence[str]) -> MovesFrom:
        """What rounds from a point can try, with every choice of methods that the slots allow.

        Args:
            point: the champion.
            eligible: ids of the methods to choose from, in the family's order.
        """
        tried: dict[MethodChoice, tuple[Point, ...]] = {}
        refused: dict[MethodChoice, str] = {}
        able = [held for held in self._together if held & set(eligible)]
        for methods in choices(self.family, eligible):
            wanted = frozenset(methods)
            if wanted and not any(wanted <= held for held in able):
                continue
            found, why = self._reached(point, methods)
            if found:
                tried[methods] = found
            elif why:
                refused[methods] = why
        return MovesFrom(tried, refused)

    def _reached(self, point: Point, methods: MethodChoice) -> tuple[tuple[Point, ...], str]:
        """The points among `branch.variants` that may lead, or why the family refuses them all.

        Of the hyperparameters' settings only those of the points are tried.
        """
        found: dict[Point, None] = {}
        why = ""
        for plain in self._plain(point, methods):
            if isinstance(plain, str):
                why = plain
                continue
            switched = self.family.methods_on(plain)
            held = tuple(name for name in switched if name not in methods)
            for one in self._by_methods.get(switched, ()):
                if one != point and self._becomes(plain, one, held):
                    found[one] = None
        return tuple(found), why

    def _becomes(self, plain: Point, wanted: Point, held: MethodChoice) -> bool:
        """Whether a point is another one once what variants set is set as there."""
        try:
            setting = {name: wanted.knobs[name] for name in self._varied(held)}
            return self.family.point({**plain.knobs, **setting}) == wanted
        except InvalidPoint:
            return False

    def _varied(self, held: MethodChoice) -> frozenset[str]:
        """See `branch.varied_knobs`; the same methods are asked for again and again."""
        if held not in self._varied_by:
            self._varied_by[held] = varied_knobs(self.family, held)
        return self._varied_by[held]

    def _plain(self, point: Point, methods: MethodChoice) -> Iterable[Point | str]:
        """The point with the methods in each form, before the hyperparameters are set.

        The first form of a group that makes a kernel stands for all of it. In place of none comes
        the reason.
        """
        for chosen in itertools.product(*(self._forms[name] for name in methods)):
            why = ""
            for numbers in itertools.product(*chosen):
                forms = dict(zip(methods, numbers, strict=True))
                try:
                    yield with_methods(self.family, point, methods, forms)
                    break
                except InvalidPoint as error:
                    why = why or error.why
            else:
                yield why

    def _groups(self, method: Method) -> list[list[int]]:
        """Numbers of a method's forms; those that differ in hyperparameters alone are a group."""
        alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for number, form in enumerate(method.on):
            rest = tuple(one for one in form.items() if one[0] not in self._hypers)
            alike.setdefault(rest, []).append(number)
        return list(alike.values())


def choices(family: Family, eligible: Sequence[str]) -> Iterable[MethodChoice]:
    """Every choice of methods for a round: at most `SLOTS`, and `CAP` of an axis; none as well."""
    for count in range(SLOTS + 1):
        for methods in itertools.combinations(eligible, count):
            axes = [family.method(name).axis for name in methods]
            if all(axes.count(axis) <= CAP for axis in axes):
                yield methods


# ------------------------------------------------------------------------------------ the table


class _Texts:
    """Sentences, each kept once."""

    def __init__(self) -> None:
        self.every: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.every.setdefault(text, len(self.every))


def game_tables(bench: RecordedBench, searches: Searches) -> dict[str, Any]:
    """All that the game looks up, as JSON can hold it. The first point is the start.

    Args:
        bench: of the grid, at the workload of the searches.
        searches: to compare a reader with.
    """
    grid, family, texts = GameGrid(bench), bench.family, _Texts()
    numbers = {one.id: number for number, one in enumerate(family.switchable)}
    every = list(dict.fromkeys((family.start, *grid.leading)))
    places = {one: place for place, one in enumerate(every)}
    taken_out = [set[str]() for _ in every]
    made = []
    for point in every:
        checks = _checks(bench, point)
        moves = grid.moves(point, [name for name, one in checks.items() if not one[1]])
        for methods, found in moves.tried.items():
            for one in found:
                taken_out[places[one]] |= set(methods)
        told = {
            "forms": {
                numbers[name]: family.form_of(point, name) for name in family.methods_on(point)
            },
            "checks": {
                numbers[name]: [strength, texts.number(why) if why else -1]
                for name, (strength, why) in checks.items()
            },
            "moves": {
                _name_choice(numbers, methods): [places[one] for one in found]
                for methods, found in moves.tried.items()
            },
            "refused": {
                _name_choice(numbers, methods): texts.number(why)
                for methods, why in moves.refused.items()
            },
        }
        made.append({**_of_point(bench, point), **told})
    for point, told, names in zip(every, made, taken_out, strict=True):
        told["removals"] = {
            numbers[name]: row
            for name, row in _removals(bench, point, sorted(names), places, texts).items()
        }
    least = bench.least_effect()
    best = bench.best_leading()
    assert best is not None  # the points above have times
    where = bench.grid.provenance
    tables = {
        "workload": str(bench.problem),
        "where": f"{where.gpu}, {where.date:%Y-%m-%d}",
        "word": bench.origin,
        "axes": list(METHOD_AXES),
        "slots": SLOTS,
        "cap": CAP,
        "negligible": NEGLIGIBLE,
        "weak": WEAK_STRENGTH,
        "branches": DEFAULT_BRANCHES,
        "least": least.effect,
        "threshold": threshold_of(least),
        "rules": list(get_args(ApportionmentRule)),
        "classes": list(METHOD_CLASSES),
        "class_words": [CLASS_WORDS[name] for name in METHOD_CLASSES],
        "settled": _settled(bench),
        "again": {
            "patterns": _retry_patterns(family),
            "why": {words: _why_not_again(bench, words) for words in ("nothing", "no form")},
        },
        "knobs": list(family.start.knobs),
        "methods": [_of_method(one) for one in family.switchable],
        "columns": list(REMOVAL_COLUMNS),
        "points": made,
        "no_point": NO_POINT,
        "best": {"key": best[0].key, "time_us": best[1]},
        "near": NEAR_FACTORS[0],
        "points_in_all": len(bench.grid),
        "best_us": searches.best_us,
        "searches": [
            {"name": one.name, "title": one.title, "seeds": one.seeds, "best_us": one.middle_us}
            for one in searches.searches
        ],
        "texts": list(texts.every),
    }
    packed = json.dumps(tables, sort_keys=True).encode()
    return {
        **_explained(tables, bench),
        "version": hashlib.sha256(packed).hexdigest()[:8],
    }


def _explained(tables: Mapping[str, Any], bench: RecordedBench) -> dict[str, Any]:
    """The table with what explains it. No move depends on that, so the version does not either."""
    family = bench.family
    note = bench.gaps(family.start).note
    sizes = {one.knob for one in family.hypers}
    return {
        **tables,
        "gaps_note": note[:1].upper() + note[1:] + "." if note else "",
        "knobs_told": [
            {
                "name": one.name,
                "values": list(one.choices),
                "doc": one.doc,
                "size": one.name in sizes,
            }
            for one in family.rung.knobs
        ],
    }


def _name_choice(numbers: Mapping[str, int], methods: Iterable[str]) -> str:
    return ",".join(str(numbers[name]) for name in methods)


def _of_method(one: Method) -> dict[str, Any]:
    return {
        **{"id": one.id, "axis": one.axis, "title": one.title, "idea": one.idea},
        "forms": list(one.on),
    }


def _of_point(bench: RecordedBench, point: Point) -> dict[str, Any]:
    gaps = bench.gaps(point)
    return {
        "number": bench.grid.number(point),
        "knobs": list(point.knobs.values()),
        "time_us": round(bench.time([point]).median_us(point), 3),
        "forecast_us": bench.forecasts_us([point]).get(point),
        "gaps": [gaps.of(axis) for axis in METHOD_AXES],
        "bound": gaps.bound,
        "waits_for": gaps.waits_for,
        "budgets": _budgets(gaps),
    }


def _budgets(gaps: Gaps) -> list[list[int]]:
    """The slots of each axis under each rule."""
    made = [allocate(gaps, rule) for rule in get_args(ApportionmentRule)]
    return [[one.of(axis) for axis in METHOD_AXES] for one in made]


def _checks(bench: RecordedBench, point: Point) -> dict[str, tuple[float | None, str]]:
    """Of each method the strength of its trigger, and why the four checks refuse it, or nothing.

    Earlier rounds are left out; what they say is `_settled`.
    """
    return {
        one.method: (
            None if one.strength is None else round(one.strength, 3),
            "" if one.checks.passed else _say_refusal(bench.family.method(one.method), one),
        )
        for one in _considered(bench, point)
        if bench.family.method(one.method).pair is None
    }


def _say_refusal(method: Method, seen: Considered) -> str:
    """Why a check refuses a method, with its condition in words."""
    checks = seen.checks
    could_be = checks.not_taken and checks.architecture
    if not could_be or None in (checks.not_skipped, checks.trigger):
        return seen.why
    if not checks.not_skipped:
        return f"it is skipped where {say_condition(method.skip)}"
    return f"its trigger fires only where {say_condition(method.trigger)}"


def _considered(
    bench: RecordedBench, point: Point, taken: Taken | None = None
) -> tuple[Considered, ...]:
    gaps = bench.gaps(point)
    return pick_methods(
        *(bench.family, point, gaps, allocate(gaps), bench.shares(point)),
        *(bench.problem, bench.limits, taken),
        entry=bench.entry(point),
    ).considered


def _settled(bench: RecordedBench) -> dict[str, str]:
    """Why a method that an earlier round settled is not taken again, by its class."""
    start = bench.family.start
    off = next(one.id for one in bench.family.switchable if not bench.family.has(start, one.id))
    taken = {
        "effective": Taken(effective=(off,)),
        "ineffective": Taken(ineffective=(off,)),
        "implementation_failed": Taken(failed={off: (0,)}),
    }
    return {
        name: next(one.why for one in _considered(bench, start, known) if one.method == off)
        for name, known in taken.items()
    }


def _why_not_again(bench: RecordedBench, named: str) -> str:
    """Why what names nothing, or no form that is left, does not let a dropped method be tried
    again."""
    one = bench.family.switchable[0]
    retry = {"nothing": Retry(), "no form": Retry(form=len(one.on))}[named]
    return why_not_again(one, Taken(failed={one.id: (0,)}, acknowledged={one.id: retry}))


def _retry_patterns(family: Family) -> dict[str, str]:
    """What the browser finds in a reader's words: a knob and its value, a form, a flag."""
    knobs = "|".join(re.escape(one.name) for one in family.rung.knobs)
    return {
        "setting": rf"\b({knobs}) ?= ?([0-9]+)",
        "form": r"\bform ([0-9]+)",
        "elsewhere": r"(?:^|[ (\"'`])--?[a-z]|\b[0-9]+ registers?\b",
    }


def _removals(
    bench: RecordedBench,
    point: Point,
    methods: Sequence[str],
    places: Mapping[Point, int],
    texts: _Texts,
) -> dict[str, list[Any]]:
    """What leaving out each of some methods does, by its id; see `REMOVAL_COLUMNS`."""
    family = bench.family
    verdicts = {one.method: one for one in check_methods(bench, point, methods)}
    found = {}
    for one in ablate_methods(bench, point, methods):
        method, verdict = family.method(one.method), verdicts[one.method]
        left = family.read_key(one.without)
        class_ = classify(one, verdict)
        leads = places.get(left, -1)
        harms = leads >= 0 and one.high < -one.threshold
        gone = family.dependents(point, one.method)
        found[one.method] = [
            bench.grid.number(left),
            leads,
            round(bench.time([left]).median_us(left), 3),
            *(round(value, 5) for value in (one.relative, one.low, one.high)),
            METHOD_CLASSES.index(class_),
            int(harms),
            texts.number(json.dumps(proof_rows(bench, method, verdict, point, left))),
            texts.number(", ".join(family.method(name).title for name in gone)),
        ]
    return found
