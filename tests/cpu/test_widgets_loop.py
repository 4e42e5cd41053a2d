"""The game of the loop: its table says what the loop says, and its figure shows every search."""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

import pytest
from packed_tables import unpack_tables

from labtools.notebook.labs.lab09_loop.conditions import say_condition
from labtools.notebook.labs.lab09_loop.figures import searches_figure
from labtools.notebook.labs.lab09_loop.game import GameGrid, choices
from labtools.notebook.labs.lab09_loop.view import open_game, read_game
from labtools.optimize.bench import RecordedBench
from labtools.optimize.branch import variants
from labtools.optimize.budget import allocate
from labtools.optimize.family import Point
from labtools.optimize.loop import ablate_point
from labtools.optimize.method import METHOD_AXES
from labtools.optimize.pick import Taken, pick_methods
from labtools.optimize.searches import Searches
from labtools.problem.text import how_many

CASES = 400 if os.environ.get("LABTOOLS_EVERY_MOVE") else 8
"""Drawn choices of methods that are held against `variants`; each way that one can end has some."""


@pytest.fixture(scope="module")
def read() -> tuple[RecordedBench, Searches]:
    return read_game()


@pytest.fixture(scope="module")
def bench(read: tuple[RecordedBench, Searches]) -> RecordedBench:
    return read[0]


@pytest.fixture(scope="module")
def tables(read: tuple[RecordedBench, Searches]) -> dict[str, Any]:
    return unpack_tables(json.loads(json.dumps(open_game(*read).tables)))  # as the browser has it


def point_at(bench: RecordedBench, tables: dict[str, Any], place: int) -> Point:
    knobs = zip(tables["knobs"], tables["points"][place]["knobs"], strict=True)
    return bench.family.point(dict(knobs))


def considered(bench: RecordedBench, point: Point, taken: Taken | None = None) -> Any:
    """What the loop's own pick says of each method."""
    gaps, where = bench.gaps(point), (bench.problem, bench.limits)
    budget, shares, entry = allocate(gaps), bench.shares(point), bench.entry(point)
    asked = bench.family, point, gaps, budget, shares, *where, taken
    return pick_methods(*asked, entry=entry).considered


def name_of(tables: dict[str, Any], methods: tuple[str, ...]) -> str:
    return ",".join(str(n) for n, one in enumerate(tables["methods"]) if one["id"] in methods)


# ---------------------------------------------------------------------------------- the table


def test_the_table_is_small_and_begins_at_the_start(
    bench: RecordedBench, tables: dict[str, Any]
) -> None:
    assert len(json.dumps(tables).encode()) < 1_000_000
    assert point_at(bench, tables, 0) == bench.family.start
    every = {point_at(bench, tables, place) for place in range(len(tables["points"]))}
    assert every == {one for one in bench.family.grid() if bench.refuses(one) is None}


def test_a_move_leads_where_the_loop_branches(bench: RecordedBench, tables: dict[str, Any]) -> None:
    """Of drawn points and methods: what the table offers is what may lead among `variants`."""
    rng, family = random.Random(os.getpid()), bench.family
    leading = {point_at(bench, tables, n): n for n in range(len(tables["points"]))}
    grid = GameGrid(bench)
    drawn: dict[str, list[tuple[int, tuple[str, ...]]]] = {"moves": [], "refused": [], "": []}
    for place in rng.sample(range(len(tables["points"])), 40):
        told = tables["points"][place]
        checks = zip(tables["methods"], told["checks"], strict=True)
        able = [method["id"] for method, (_, why) in checks if not why]
        for methods in choices(family, able):
            name = name_of(tables, methods)
            kind = next((kind for kind in ("moves", "refused") if name in told[kind]), "")
            drawn[kind].append((place, methods))
    for kind, cases in drawn.items():
        assert cases, kind
        for place, methods in rng.sample(cases, min(CASES, len(cases))):
            point = point_at(bench, tables, place)
            made = {one for one in variants(family, point, methods) if isinstance(one, Point)}
            offered = grid.moves(point, methods)[0].get(methods, ())
            assert set(offered) == made & set(leading), (point.key, methods)
            name = name_of(tables, methods)
            held = tables["points"][place]["moves"].get(name, [])[::2]
            assert held == [leading[one] for one in offered]
            assert bool(held) == (kind == "moves")


def test_pieces_that_are_too_many_for_a_cluster_may_be_fewer(bench: RecordedBench) -> None:
    """What a constraint forbids beside the sizes of a point, loop and game try beside others."""
    many = {"gqa": 1, "math": 1, "load": 2, "unroll": 1, "stages": 3, "swizzle": 1, "warps": 8}
    point = bench.family.point({**bench.family.start.knobs, **many, "split": 16})
    join = ("latency.join_in_the_launch",)
    found = GameGrid(bench).moves(point, join)[0][join]
    clusters = [one for one in found if one.knobs["merge"] == 2]
    assert clusters
    assert all(one.knobs["split"] <= 8 for one in clusters)
    assert set(found) <= set(variants(bench.family, point, join))


def test_a_condition_is_said_in_words(bench: RecordedBench, tables: dict[str, Any]) -> None:
    """Of every method that a check refuses the reader sees why, and no expression."""
    reasons = {why for point in tables["points"] for _, why in point["checks"] if why}
    assert "it is skipped where math is 0 or swizzle is 2" in reasons
    assert "its trigger fires only where memory gap is above 0.1" in reasons
    for reason in reasons:
        assert not re.search(r"[_=*]|ramp|pct", reason), reason
    for text, said in (
        ("0.4 + 0.6 * ramp(x, 1, 4)", "always"),
        ("ramp(a_share + b_share, 0.2, 0.8) * 0.9", "a share + b share is above 0.2"),
        ("ramp(launches, 1, 2) * ramp(t, 600, 60)", "launches is above 1 and t is below 600"),
        ("(a + b) * c / 2 >= 1", "((a + b) * c) / 2 is at least 1"),
        ("not (a > 0 and b == 5)", "it is not so that a is above 0 and b is 5"),
    ):
        assert say_condition(text) == said
    for method in bench.family.methods:
        assert say_condition(method.trigger) != "always", method.id


def test_gaps_slots_and_checks_are_those_of_the_loop(
    bench: RecordedBench, tables: dict[str, Any]
) -> None:
    for place in random.Random(os.getpid()).sample(range(len(tables["points"])), 5):
        point, told = point_at(bench, tables, place), tables["points"][place]
        gaps = bench.gaps(point)
        assert told["gaps"] == [gaps.of(axis) for axis in METHOD_AXES]
        for rule, slots in zip(tables["rules"], told["budgets"], strict=True):
            assert slots == "".join(str(allocate(gaps, rule).of(axis)) for axis in METHOD_AXES)
        passed = {one.method: one.checks.passed for one in considered(bench, point)}
        for number, (_, why) in enumerate(told["checks"]):
            assert (not why) == passed[tables["methods"][int(number)]["id"]]


def test_what_explains_the_table_is_that_of_the_family(
    bench: RecordedBench, tables: dict[str, Any]
) -> None:
    """Knobs with their values and words, the forms of the methods, and what the gaps leave out."""
    family = bench.family
    told = {one["name"]: (tuple(one["values"]), one["doc"]) for one in tables["knobs_told"]}
    assert told == {one.name: (one.choices, one.doc) for one in family.rung.knobs}
    sizes = {one["name"] for one in tables["knobs_told"] if one["size"]}
    assert sizes == {one.knob for one in family.hypers}
    for one in tables["methods"]:
        assert one["forms"] == [dict(form) for form in family.method(one["id"]).on]
    (note,) = {bench.gaps(point_at(bench, tables, n)).note for n in range(len(tables["points"]))}
    assert tables["gaps_note"].lower() == f"{note}."


def test_what_earlier_rounds_settled_is_said_as_the_loop_says_it(
    bench: RecordedBench, tables: dict[str, Any]
) -> None:
    found = considered(bench, bench.family.start, Taken(ineffective=("compute.tensor_core",)))
    (why,) = [one.why for one in found if one.method == "compute.tensor_core"]
    assert tables["settled"]["ineffective"] == why
    assert set(tables["settled"]) == set(tables["classes"]) - {"undecided"}


def test_a_removal_is_classed_as_an_ablation_is(
    bench: RecordedBench, tables: dict[str, Any]
) -> None:
    """All classes occur, and drawn ones are those that ``labtools ablate`` gives."""
    columns, classes = tables["columns"], tables["classes"]
    by_class: dict[int, list[tuple[int, str, dict[str, Any]]]] = {}
    for place, point in enumerate(tables["points"]):
        for number, row in point["removals"].items():
            held = dict(zip(columns, row, strict=True))
            method = tables["methods"][int(number)]["id"]
            by_class.setdefault(held["class"], []).append((place, method, held))
    assert set(by_class) == set(range(len(classes)))
    rng = random.Random(os.getpid())
    for number, cases in by_class.items():
        place, method, held = rng.choice(cases)
        point = point_at(bench, tables, place)
        found = ablate_point(bench.family, bench.problem, "recorded", point.knobs, [method])
        (one,) = found.attribution
        assert found.classes[method] == classes[number]
        assert held["relative"] == pytest.approx(one.relative, abs=1e-5)
        assert held["point"] == bench.grid.number(bench.family.read_key(one.without))
        if held["harms"]:
            assert one.high < -one.threshold
            assert held["leads"] >= 0
        method_data = bench.family.method(method)
        assert held["evidence"]["kind"] == ("signature" if method_data.signature else "proof")
        assert len(held["evidence"]["rows"]) >= len(method_data.signature)


# ---------------------------------------------------------------------------------- the figure


def test_the_figure_tells_each_search_and_the_reader(read: tuple[RecordedBench, Searches]) -> None:
    searches = read[1]
    shown = searches_figure(searches, [2 * searches.best_us, searches.best_us, 9e9])
    for one in searches.searches:
        assert f"{one.title} ({how_many(one.seeds, 'seed')}): " in shown.text
    assert "you: 100.0% after 1, 0.0% after 2, 0.0% after 3" in shown.text
    assert "you:" not in searches_figure(searches).text


def test_every_method_that_a_move_takes_can_be_left_out(tables: dict[str, Any]) -> None:
    for point in tables["points"]:
        for name, moves in point["moves"].items():
            for place in moves[::2]:
                held = tables["points"][place]["removals"]
                assert set(name.split(",") if name else ()) <= set(held)
