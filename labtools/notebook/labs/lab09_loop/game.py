"""The table that the game looks up: every round that can be played on a recorded grid. All of it
comes from `labtools.optimize`, whose rules stand nowhere else.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from labtools.optimize import budget, pick
from labtools.optimize.ablation import ablate_methods
from labtools.optimize.attribution import classify, threshold_of
from labtools.optimize.bench import RecordedBench
from labtools.optimize.branch import varied_knobs, with_methods
from labtools.optimize.budget import CAP, SLOTS
from labtools.optimize.family import Family, InvalidPoint, Point
from labtools.optimize.gaps import Gaps
from labtools.optimize.loop import check_methods, settled
from labtools.optimize.method import METHOD_AXES, Method
from labtools.optimize.pick import Considered, Retry, Taken
from labtools.optimize.searches import NEAR_FACTORS, Searches
from labtools.optimize.state import RoundKept

from ..lab08_ablation.panels import CLASS_WORDS, proof_rows
from .conditions import say_condition

NO_POINT = "no recorded point that a round may lead with has these methods on together"
"""Why a round can try nothing, where a choice of methods is not refused by the family itself."""

REMOVAL_COLUMNS = "point leads time_us relative low high class harms evidence gone".split()
"""Of what leaving a method out does: number of the point without it in the grid; its place among
the points of the table, or -1; microseconds; the effect with its interval; number of the class;
1 where the next round leads without it; `proof_rows`, and in words what else goes with the
method."""


SINGLE_CLASSES = tuple(CLASS_WORDS)
"""What one method out at a time can tell of it."""
MethodChoice = tuple[str, ...]
"""Ids of a round's methods, in the family's order."""


class GameGrid:
    """A recorded grid as a game: the points that a round may lead with, and the moves between."""

    def __init__(self, bench: RecordedBench) -> None:
        self.family = bench.family
        self.leading = [one for one in bench.family.grid() if bench.refuses(one) is None]
        self._by_methods: dict[MethodChoice, list[Point]] = {}
        for one in self.leading:
            self._by_methods.setdefault(self.family.methods_on(one), []).append(one)
        self._together = [frozenset(names) for names in self._by_methods]
        self._forms = {one.id: self._groups(one) for one in self.family.switchable}
        # The same methods are asked for again and again.
        self._varied = functools.cache(functools.partial(varied_knobs, self.family))

    def moves(
        self, point: Point, eligible: Sequence[str]
    ) -> tuple[dict[MethodChoice, tuple[Point, ...]], dict[MethodChoice, str]]:
        """The points that rounds from a point can try, by their methods, and why the family refuses
        other choices that the slots allow; `NO_POINT` holds for the rest.
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
        return tried, refused

    def _reached(self, point: Point, methods: MethodChoice) -> tuple[tuple[Point, ...], str]:
        """The points among `branch.variants` that may lead, with settings of the hyperparameters
        that a point has, or why the family refuses them all.
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
        hypers = {one.knob for one in self.family.hypers}
        alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for number, form in enumerate(method.on):
            rest = tuple(one for one in form.items() if one[0] not in hypers)
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


def game_tables(bench: RecordedBench, searches: Searches) -> dict[str, Any]:
    """All that the game looks up, as JSON can hold it, and the searches that a reader is compared
    with. The first point is the start.
    """
    family = bench.family
    made = _points(bench)
    least = bench.least_effect()
    best = bench.best_leading()
    assert best is not None  # the points above have times
    told = [
        {"title": one.title, "seeds": one.seeds, "best_us": one.middle_us}
        for one in searches.searches
    ]
    tables = {
        "word": bench.origin,
        "axes": list(METHOD_AXES),
        "slots": SLOTS,
        "cap": CAP,
        "weak": pick.WEAK_STRENGTH,
        "branches": budget.DEFAULT_BRANCHES,
        "least": least.effect,
        "threshold": threshold_of(least),
        "rules": list(get_args(budget.ApportionmentRule)),
        "classes": list(SINGLE_CLASSES),
        "class_words": list(CLASS_WORDS.values()),
        "settled": _settled(bench),
        "retries": [_retries(one) for one in family.switchable],
        "knobs": list(family.start.knobs),
        "methods": [_of_method(family, one) for one in family.switchable],
        "columns": REMOVAL_COLUMNS,
        "points": made,
        "room": _room(),
        "ends": _add_ends(made, least.effect),
        "no_point": NO_POINT,
        "best": {"key": best[0].key, "time_us": best[1]},
        "near": NEAR_FACTORS[0],
        "points_in_all": len(bench.grid),
        "best_us": searches.best_us,
        "searches": told,
    }
    packed = json.dumps(tables, sort_keys=True).encode()
    # What explains the table: no move depends on it, so the version does not either.
    note = bench.gaps(family.start).note
    sizes = {one.knob for one in family.hypers}
    knobs_told = [
        {"name": one.name, "values": one.choices, "doc": one.doc, "size": one.name in sizes}
        for one in family.rung.knobs
    ]
    explained = {
        "gaps_note": note[:1].upper() + note[1:] + "." if note else "",
        "knobs_told": knobs_told,
    }
    return {**tables, "version": hashlib.sha256(packed).hexdigest()[:8], **explained}


def _points(bench: RecordedBench) -> list[dict[str, Any]]:
    """Of each point all that the game looks up, the start first."""
    grid, family = GameGrid(bench), bench.family
    numbers = {one.id: number for number, one in enumerate(family.switchable)}
    places = {one: n for n, one in enumerate(dict.fromkeys((family.start, *grid.leading)))}
    taken_out = [set[str]() for _ in places]
    made = []

    def name(methods: Iterable[str]) -> str:
        return ",".join(str(numbers[one]) for one in methods)

    for point in places:
        checks = _checks(bench, point)
        tried, refused = grid.moves(point, [name for name, one in checks.items() if not one[1]])
        for methods, found in tried.items():
            for one in found:
                taken_out[places[one]] |= set(methods)
        on = family.methods_on(point)
        told = {
            "slots": _slots_told(bench.gaps(point)),
            "forms": {numbers[one]: family.form_of(point, one) for one in on},
            "checks": [checks[one] for one in numbers],
            "moves": {name(one): [places[to] for to in found] for one, found in tried.items()},
            "refused": {name(one): why for one, why in refused.items()},
        }
        made.append({**_of_point(bench, point), **told})
    for point, told, names in zip(places, made, taken_out, strict=True):
        removals = _removals(bench, point, sorted(names), places)
        told["removals"] = {numbers[name]: row for name, row in removals.items()}
    return made


def _slots_told(gaps: Gaps) -> dict[str, str]:
    """Of every way to share slots out, why not, or nothing."""
    known = [gaps.of(axis) for axis in METHOD_AXES]
    told = {}
    for slots in itertools.product(range(CAP + 1), repeat=len(METHOD_AXES)):
        each = zip(METHOD_AXES, slots, known, strict=True)
        tiny = [axis for axis, n, gap in each if n and (gap is None or gap < budget.NEGLIGIBLE)]
        why = "" if sum(slots) else "Give at least one slot."
        if sum(slots) > SLOTS:
            why = f"There are {SLOTS} slots, and you gave {sum(slots)}."
        if tiny:
            why = f"The {tiny[0]} gap is negligible, so it gets no slot."
        told["".join(map(str, slots))] = why
    return told


def _room() -> dict[str, dict[str, str]]:
    """How many methods each axis may take, by its slots and then by how many strong ones it has. A
    slot that no strong method of its axis can use may go to another axis.
    """
    every = list(itertools.product(range(CAP + 1), repeat=len(METHOD_AXES)))
    room: dict[str, dict[str, str]] = {}
    for slots, strong in itertools.product(every, every):
        spare = sum(max(0, s - count) for s, count in zip(slots, strong, strict=True))
        told = room.setdefault("".join(map(str, slots)), {})
        told["".join(map(str, strong))] = "".join(str(min(CAP, s + spare)) for s in slots)
    return room


def _retries(method: Method) -> dict[str, dict[str, Any]]:
    """With what a method can be tried again, by the forms that the compiler dropped.

    ``forms`` by themselves, and the form that is tried ``beside`` another knob where none is said,
    -1 for any.
    """

    def known(dropped: tuple[int, ...], retry: Retry) -> Taken:
        return Taken(failed={method.id: dropped}, acknowledged={method.id: retry})

    def may(dropped: tuple[int, ...], form: int) -> bool:
        return not pick.why_not_again(method, known(dropped, Retry(form=form)))

    every, beside = range(len(method.on)), Retry(knob="another", value=0)
    made = {}
    for count in range(1, len(method.on) + 1):
        for dropped in itertools.combinations(every, count):
            form = pick.retried_form(method, known(dropped, beside)).get(method.id, -1)
            forms = [n for n in every if may(dropped, n)]
            made[".".join(map(str, dropped))] = {"forms": forms, "beside": form}
    return made


def _add_ends(points: list[dict[str, Any]], least: float) -> list[dict[str, Any]]:
    """Put behind each candidate of a move how a round ends with it as the champion.

    Returns the different ends: whether the gain is taken, the number of the method that harms and
    is left out, and of each method the verdict that later rounds have to believe, or nothing.
    """
    ends: dict[str, int] = {}
    for begun in points:
        for name, found in begun["moves"].items():
            methods = [int(number) for number in name.split(",")] if name else []
            told = (_round_end(begun, points[place], methods, least) for place in found)
            numbers = (ends.setdefault(json.dumps(end), len(ends)) for end in told)
            begun["moves"][name] = [*itertools.chain(*zip(found, numbers, strict=True))]
    return [json.loads(one) for one in ends]


def _round_end(
    begun: Mapping[str, Any], champion: Mapping[str, Any], methods: Sequence[int], least: float
) -> dict[str, Any]:
    rows = {
        number: dict(zip(REMOVAL_COLUMNS, champion["removals"][number], strict=True))
        for number in methods
    }
    with_all = gain = begun["time_us"] / champion["time_us"] - 1
    harmful = [number for number in methods if rows[number]["harms"]]
    without = min(harmful, key=lambda number: rows[number]["relative"], default=None)
    if without is not None:
        gain = (1 + gain) / (1 + rows[without]["relative"]) - 1
    classes = {str(number): SINGLE_CLASSES[rows[number]["class"]] for number in methods}
    kept = settled([RoundKept(1, classes=classes, gain=gain)], {1: with_all}, least)
    return {
        "taken": gain > least,
        "without": without,
        "classes": [kept.get(str(number), "") for number in methods],
    }


def _of_method(family: Family, one: Method) -> dict[str, Any]:
    # Numbers of the knobs that its forms leave alone.
    beside = [number for number, name in enumerate(family.start.knobs) if name not in one.off]
    told = {name: getattr(one, name) for name in ("id", "axis", "title", "idea")}
    return {**told, "forms": list(one.on), "beside": beside}


def _of_point(bench: RecordedBench, point: Point) -> dict[str, Any]:
    gaps = bench.gaps(point)
    shared = [budget.allocate(gaps, rule) for rule in get_args(budget.ApportionmentRule)]
    return {
        "number": bench.grid.number(point),
        "knobs": list(point.knobs.values()),
        "time_us": round(bench.time([point]).median_us(point), 3),
        "forecast_us": bench.forecasts_us([point]).get(point),
        "gaps": [gaps.of(axis) for axis in METHOD_AXES],
        "bound": gaps.bound,
        "waits_for": gaps.waits_for,
        # The slots of each axis under each rule, a digit an axis.
        "budgets": ["".join(str(one.of(axis)) for axis in METHOD_AXES) for one in shared],
    }


def _checks(bench: RecordedBench, point: Point) -> dict[str, tuple[float | None, str]]:
    """Of each method the strength of its trigger, and why the four checks refuse it, or nothing, if
    no earlier round says more.
    """
    found = {}
    for one in _considered(bench, point):
        method = bench.family.method(one.method)
        if method.pair is None:
            why = "" if one.checks.passed else _say_refusal(method, one)
            found[one.method] = None if one.strength is None else round(one.strength, 3), why
    return found


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
    of_point = bench.family, point, gaps, budget.allocate(gaps), bench.shares(point)
    where = bench.problem, bench.limits
    return pick.pick_methods(*of_point, *where, taken, entry=bench.entry(point)).considered


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


def _removals(
    bench: RecordedBench, point: Point, methods: Sequence[str], places: Mapping[Point, int]
) -> dict[str, list[Any]]:
    """What leaving out each of some methods does, by its id; see `REMOVAL_COLUMNS`."""
    family = bench.family
    verdicts = {one.method: one for one in check_methods(bench, point, methods)}
    found = {}
    for one in ablate_methods(bench, point, methods):
        method, verdict = family.method(one.method), verdicts[one.method]
        left = family.read_key(one.without)
        number, leads = bench.grid.number(left), places.get(left, -1)
        time_us = round(bench.time([left]).median_us(left), 3)
        effect = [round(value, 5) for value in (one.relative, one.low, one.high)]
        class_ = SINGLE_CLASSES.index(classify(one, verdict))
        harms = int(leads >= 0 and one.high < -one.threshold)
        proof = proof_rows(bench, method, verdict, point, left)
        titles = (family.method(name).title for name in family.dependents(point, one.method))
        gone = ", ".join(titles)
        found[one.method] = [number, leads, time_us, *effect, class_, harms, proof, gone]
    return found
