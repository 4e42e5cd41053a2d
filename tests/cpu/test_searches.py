"""Searches beside the loop: what counts a run, what is summed up, and when the file is stale."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from pathlib import Path

import pytest
from test_optimize_bench import FAMILY, HEADLINE, make_grid_of

from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import load_family
from labtools.optimize.grid import grid_path
from labtools.optimize.searches import (
    MOST_RUNS,
    best_after_runs,
    read_searches,
    searches_path,
)
from labtools.problem import LabError
from research import search_baselines as tool
from research.search_baselines import (
    OldPolicy,
    SearchTable,
    answers_to,
    count_groups,
    play_random,
    questions_of,
    rank_strategy,
    runs_until,
    sum_up,
    table_of,
    try_strategy,
    why_stale,
    write_searches,
)

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = searches_path("tunable", "h200")
TABLE = SearchTable(
    ("split", "warps", "stages"),
    ((1, 1, 1), (1, 2, 1), (2, 2, 1), (2, 2, 2), (2, 4, 2)),
    (40.0, 30.0, 20.0, 10.0, math.inf),
)


@pytest.fixture(scope="module")
def bench():
    return RecordedBench(FAMILY, HEADLINE, make_grid_of(noise=0.001, drift=0.0005))


# --------------------------------------------------------------------------------- summing up


def test_a_search_that_ended_keeps_its_best():
    assert best_after_runs([5.0, 7.0, 3.0], 5).tolist() == [5.0, 5.0, 3.0, 3.0, 3.0]
    assert best_after_runs([math.inf, 4.0, 1.0], 2).tolist() == [math.inf, 4.0]


def test_runs_are_counted_to_the_first_that_is_near():
    plays = [[30.0, 10.4, 10.0], [10.0], [20.0, 10.6]]
    found = runs_until(plays, 10.0, 1.05)
    assert (found.median_runs, found.reached) == (2.0, 2)
    never = runs_until([[20.0], [20.0], [10.0]], 10.0, 1.05)
    assert (never.median_runs, never.reached) == (None, 1)
    late = runs_until([[20.0] * MOST_RUNS + [10.0]], 10.0, 1.05)
    assert late.reached == 0


def test_quartiles_are_of_the_best_after_runs():
    plays = [[40.0, 10.0], [30.0, 35.0], [20.0], [math.inf, 50.0]]
    found = sum_up("made", "made up", plays, 10.0)
    assert found.middle_us[:2] == (30.0, 20.0)
    assert found.high_us[:2] == (40.0, 30.0)
    assert len(found.low_us) == MOST_RUNS and found.longest == 2 and found.seeds == 4
    nothing = sum_up("made", "made up", [[math.inf]], 10.0)
    assert set(nothing.middle_us) == {None}


# ------------------------------------------------------------------------------- the searches


def test_random_search_takes_each_point_once_and_follows_its_seed():
    runs = play_random(TABLE, 3)
    assert sorted(runs) == sorted(TABLE.times_us)
    assert runs == play_random(TABLE, 3)
    assert len({tuple(play_random(TABLE, seed)) for seed in range(20)}) > 10


def test_every_answer_to_the_questions_is_a_point():
    """Always the first value, always the last: both lead to a point of the table."""
    assert questions_of(TABLE, lambda name, values: values[0]) == (1, 1, 1)
    assert questions_of(TABLE, lambda name, values: values[-1]) == (2, 4, 2)
    for row in TABLE.rows:
        answers = answers_to(TABLE, row)
        assert questions_of(TABLE, lambda name, values, known=answers: known[name]) == row
    # What the knobs before leave open is asked, and nothing else.
    assert answers_to(TABLE, (2, 4, 2)) == {"split of 1, 2": 2, "warps of 2, 4": 4}
    assert list(answers_to(TABLE, (2, 2, 1))) == [
        "split of 1, 2",
        "warps of 2, 4",
        "stages of 1, 2",
    ]


def test_the_table_has_every_point_and_no_made_up_time():
    grid = make_grid_of()
    at = dataclasses.replace(
        grid.at[0], samples=((), *grid.at[0].samples[1:]), failures={0: "wrong"}
    )
    table = table_of(dataclasses.replace(grid, at=(at, *grid.at[1:])), HEADLINE)
    assert len(table.rows) == len(grid) and table.times_us[0] == math.inf
    assert table.times_us[1] == grid.median(1) and math.isfinite(table.best_us)


def test_the_strategy_is_chosen_by_runs_and_then_by_the_best():
    best = {"one": 10.0, "two": 5.0}
    soon = try_strategy("soon", {"one": [[10.0]], "two": [[20.0, 5.0]]}, best)
    late = try_strategy("late", {"one": [[30.0, 10.0]], "two": [[20.0, 5.0]]}, best)
    near = try_strategy("near", {"one": [[11.0]], "two": [[6.0]]}, best)
    far = try_strategy("far", {"one": [[11.0]], "two": [[7.0]]}, best)
    none = try_strategy("none", {"one": [[math.inf]], "two": [[7.0]]}, best)
    ranked = sorted([none, far, near, late, soon], key=rank_strategy)
    assert [one.name for one in ranked] == ["soon", "late", "near", "far", "none"]
    assert soon.median_runs == {"one": 1.0, "two": 2.0}
    assert none.best_after["one"] is None


def test_the_old_policy_keeps_a_harmful_method_with_a_group_that_gains(bench):
    policy = OldPolicy(bench)
    runs, judged = policy.play(0)
    assert runs == policy.play(0)[0]
    assert len(runs) == 1 + len(judged) > 1, "the start, then one candidate a round"
    assert judged[0][0] == FAMILY.start
    for _, point, methods in judged:
        assert bench.refuses(point) is None
        assert all(FAMILY.has(point, name) for name in methods)
    found = count_groups(bench, judged)
    # Wide accesses help and shuffles do nothing: one verdict for both is wrong of one of them.
    assert found.groups == len(judged) and found.contradicted >= 1
    assert "latency.shuffle_sum" in {one.method for one in found.examples}
    assert found.rides_along + found.dropped >= found.contradicted


# ----------------------------------------------------------------------------------- the file


def test_the_shipped_file_is_of_the_shipped_grid_and_family():
    found = read_searches(SHIPPED)
    family = load_family(found.rung)
    assert why_stale(found, family, grid_path(found.rung, found.gpu)) is None
    assert [one.name for one in found.searches] == list(tool.SEEDS)
    assert {one.name: one.seeds for one in found.searches} == tool.SEEDS
    assert found.named("kernel_tuner").title.endswith(found.strategies[0].name)
    ranked = sorted(found.strategies, key=rank_strategy)
    assert list(found.strategies) == ranked
    assert str(family.workloads[0]) == found.workload
    assert all(found.workload not in one.median_runs for one in found.strategies)
    with pytest.raises(LabError, match="No search"):
        found.named("grid search")


def test_what_takes_no_time_is_played_again_as_the_file_has_it():
    found = read_searches(SHIPPED)
    baselines = tool.Baselines(load_family(found.rung), 1)
    for name in ("random", "random_leading", "forecast"):
        assert baselines.play(name) == found.named(name)
    assert baselines.table.best_us == found.best_us
    for workload in baselines.others:
        there = found.at(str(workload))
        assert baselines.play("forecast", workload) == there.named("forecast")
        assert [one.name for one in there.searches] == list(tool.ELSEWHERE)


def test_the_file_is_stale_where_the_grid_or_the_family_is_another(tmp_path):
    found = read_searches(SHIPPED)
    family = load_family(found.rung)
    other = tmp_path / "other.jsonl.gz"
    other.write_bytes(b"another grid")
    assert "grid" in (why_stale(found, family, other) or "")
    toml = tmp_path / "tunable.toml"
    toml.write_bytes(family.path.read_bytes() + b"\n# changed\n")
    moved = dataclasses.replace(family, path=toml)
    grid = grid_path(found.rung, found.gpu)
    assert "tunable.toml" in (why_stale(found, moved, grid) or "")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"{",
        lambda data: json.dumps(data | {"schema_version": 3}).encode(),
        lambda data: json.dumps({k: v for k, v in data.items() if k != "groups"}).encode(),
    ],
    ids=["damaged", "of another schema", "without a part"],
)
def test_a_file_that_cannot_be_used_is_refused(spoil, tmp_path):
    path = tmp_path / "searches.json"
    write_searches(path, read_searches(SHIPPED))
    assert read_searches(path) == read_searches(SHIPPED)
    path.write_bytes(spoil(json.loads(path.read_bytes())))
    with pytest.raises(LabError, match="cannot be read"):
        read_searches(path)


def test_what_is_kept_must_be_of_the_same_grid_and_family(tmp_path):
    found = read_searches(SHIPPED)
    baselines = tool.Baselines(load_family(found.rung), 1)
    path = tmp_path / "searches.json"
    write_searches(path, dataclasses.replace(found, family_sha256="0" * 64))
    assert tool.kept_from(path, tool.OF_THE_FAMILY, baselines) is not None
    assert tool.kept_from(path, tool.SEEDS, baselines) is None
    with pytest.raises(LabError, match="cannot be kept"):
        tool.kept_from(path, ["loop"], baselines)
    write_searches(path, dataclasses.replace(found, grid_sha256="0" * 64))
    with pytest.raises(LabError, match="cannot be kept"):
        tool.kept_from(path, tool.OF_THE_FAMILY, baselines)


def test_the_libraries_are_needed_by_one_tool_alone():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = extras["optional-dependencies"]["search"]
    assert sorted(one.split("==")[0] for one in wanted) == ["kernel-tuner", "optuna"]
    for folder in ("labtools", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            words = ("import optuna", "import kernel_tuner", "from constraint")
            if path.name != "search_baselines.py":
                assert not any(word in path.read_text() for word in words), path
    makefile = (ROOT / "Makefile").read_text().split("search-baselines:\n")[1]
    assert "$(INSTALL) search" in makefile.split("\n\n")[0]
