"""The search over tiles: problems that can be drawn, a table that can be read, and what it says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from statistics import median

import pytest

from labtools.predict import load_gpu
from labtools.problem import Gemm, LabError, Prefill, Workload, load_rung, parse_problem
from labtools.problem.decode.block_plan import plan_of
from labtools.record.tile_search import (
    SearchedProblem,
    TileSearch,
    TimedTile,
    layout_search_path,
    read_search,
    search_path,
    text_hash,
)
from research.search_layouts import drawn_problems_of_rings
from research.search_tiles import (
    COUNT,
    DRAW_SEED,
    derived_tile,
    drawn_problems,
    main,
    merged,
    rederived,
    tried_tiles,
)

H200 = load_gpu("h200")
FAST = TimedTile("g02_hopper", {"stages": 3}, (2.0, 2.2, 2.1))
SLOW = TimedTile("g02_hopper", {}, (2.5, 2.4, 2.6))
TABLE = TileSearch(
    gpu="NVIDIA H200",
    driver="1.0",
    date="2026-11-24",
    seed=1,
    sources={"g02_hopper": text_hash("g02_hopper")},
    problems=(
        SearchedProblem("gemm:16,64,64", SLOW, (FAST,), {}),
        SearchedProblem("gemm:32,64,64", FAST, (SLOW,), {"g02_hopper s8": "no room"}),
    ),
)


def test_problems_are_drawn_of_every_operation_and_can_be_read_again() -> None:
    problems = drawn_problems()
    assert len(problems) == COUNT == len(set(problems))
    kinds = [sum(isinstance(one, kind) for one in problems) for kind in (Workload, Prefill, Gemm)]
    assert min(kinds) == COUNT // 3
    assert [parse_problem(one.short()) for one in problems] == problems
    fresh = drawn_problems(8, 15, ("prefill", "gemm"))
    assert {type(one) for one in fresh} == {Prefill, Gemm} and len(fresh) == 8
    assert not set(fresh) & set(problems)


@pytest.mark.parametrize("number", range(0, COUNT, 8))
def test_the_derived_tile_and_those_beside_it_launch(number: int) -> None:
    problem = drawn_problems()[number]
    tiles = tried_tiles(problem, derived_tile(problem))
    assert len(tiles) > 5
    rung = load_rung(tiles[0][0])
    assert rung.launches(problem, H200.limits, tiles[0][1])
    resolved = [tuple(sorted(rung.resolve_knobs(knobs).items())) for _, knobs in tiles]
    assert len(set(resolved)) == len(resolved)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "tiles.json"
    path.write_text(json.dumps(dataclasses.asdict(TABLE)))
    assert read_search(path) == TABLE
    assert TABLE.problems[0].best == FAST and TABLE.problems[1].best == FAST
    assert TABLE.problems[0].ratio == pytest.approx(2.5 / 2.1) and TABLE.problems[1].ratio == 1
    assert TABLE.misses(1.1) == [TABLE.problems[0]] and TABLE.misses(1.25) == []
    assert TABLE.stale == []
    assert dataclasses.replace(TABLE, sources={"g02_hopper": "0"}).stale == ["g02_hopper"]


@pytest.mark.parametrize("damage", ["", "{}", '{"problems": [{"problem": "gemm:1,1,1"}]}'])
def test_a_damaged_table_is_an_error_in_plain_words(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "tiles.json"
    with pytest.raises(LabError, match="cannot be read"):
        read_search(path)
    path.write_text(damage)
    with pytest.raises(LabError, match="cannot be read"):
        read_search(path)


def test_the_shipped_table_is_of_todays_kernels_and_derivations() -> None:
    table = read_search(search_path("h200"))
    assert table.stale == [], "python -m research.search_tiles"
    drawn = [one.short() for one in drawn_problems()]
    assert [one.problem for one in table.problems] == drawn
    for one in table.problems[::7]:  # of every operation
        kernel, knobs = derived_tile(parse_problem(one.problem))
        held = one.derived
        rung = load_rung(kernel)
        assert (held.kernel, rung.resolve_knobs(held.knobs)) == (kernel, rung.resolve_knobs(knobs))


def test_a_row_says_which_of_its_tiles_is_derived_now() -> None:
    row = TABLE.problems[1]
    other = row.deriving("g02_hopper", {})
    assert other is not None and other.derived == SLOW and other.others == (FAST,)
    assert other.deriving("g02_hopper", {"stages": 3}) == row == row.deriving(*_wanted(FAST))
    assert row.deriving("g02_hopper", {"stages": 7}) is None
    assert row.deriving("g01_ring", {}) is None


def _wanted(tile: TimedTile) -> tuple[str, dict[str, int]]:
    return tile.kernel, tile.knobs


def test_new_rows_take_the_place_of_old_ones_and_have_their_date() -> None:
    row = dataclasses.replace(TABLE.problems[0], others=())
    new = dataclasses.replace(TABLE, date="2027-01-02", driver="2.0", problems=(row,))
    kept = {one.problem: one for one in TABLE.problems}
    whole = merged(TABLE, kept, new)
    assert whole.problems[0] == dataclasses.replace(row, date="2027-01-02", driver="2.0")
    assert whole.problems[1] == TABLE.problems[1] and not whole.problems[1].date
    assert (whole.date, whole.driver, whole.seed) == (TABLE.date, TABLE.driver, TABLE.seed)
    for changed in ({"gpu": "NVIDIA L4"}, {"sources": {"g02_hopper": "0"}}):
        with pytest.raises(LabError, match="do not belong"):
            merged(TABLE, kept, dataclasses.replace(new, **changed))
    with pytest.raises(LabError, match="cannot be kept"):
        rederived(dataclasses.replace(TABLE, sources={"g02_hopper": "0"}))


def test_a_row_is_given_the_tile_of_todays_derivation_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "gemm:512,384,256"
    kernel, knobs = derived_tile(parse_problem(text))
    now = TimedTile(kernel, knobs, (3.0,))
    rows = (SearchedProblem(text, SLOW, (now, FAST), {}), SearchedProblem(text, now, (), {}))
    lacking = SearchedProblem("gemm:512,384,512", TimedTile(kernel, {"stages": 2}, (1.0,)), (), {})
    table = dataclasses.replace(TABLE, seed=DRAW_SEED, problems=(*rows[:1], lacking))
    kept, anew = rederived(table)
    assert kept[text].derived == now and kept[lacking.problem] == lacking
    assert [one.short() for one in anew] == [lacking.problem, text]  # without a time first
    assert rederived(dataclasses.replace(TABLE, problems=rows[1:]))[1] == []
    path = tmp_path / "old.json"
    path.write_text(json.dumps(dataclasses.asdict(table)))
    assert main(["--out", str(tmp_path), "--again", str(path), "--seconds", "0"]) == 0
    assert read_search(tmp_path / search_path("h200").name).problems == tuple(kept.values())
    words = ["--out", str(tmp_path), "--again", str(path), "--problem", "gemm:8,8,8"]
    assert main(words) == 1
    assert "no row of gemm:8,8,8" in capsys.readouterr().err


def test_what_an_earlier_search_found_is_timed_again() -> None:
    problem = parse_problem("gemm:512,384,256")
    before = (TimedTile("g02_hopper", {"warpgroups": 3, "tile_n": 16, "stages": 2}, (1.0,)),)
    tiles = tried_tiles(problem, derived_tile(problem), before)
    assert _wanted(before[0]) in tiles
    assert _wanted(before[0]) not in tried_tiles(problem, derived_tile(problem))


@pytest.mark.parametrize(
    "words",
    [
        ("--again", "t.json", "--seed", "15"),
        ("--count", "4"),
        ("--seed", str(DRAW_SEED), "--op", "gemm"),
    ],
)
def test_a_part_of_the_tables_own_draw_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), *words])


def test_the_layouts_that_the_rule_chooses_are_near_the_best() -> None:
    table = read_search(layout_search_path("h200"))
    drawn = {(problem.short(), rung) for rung, problem in drawn_problems_of_rings()}
    assert not table.stale and len(table.problems) >= 25
    for one in table.problems:
        rung, problem = load_rung(one.derived.kernel), Workload.parse(one.problem)
        timed = plan_of(rung, problem, H200.limits, one.derived.knobs)
        assert timed == plan_of(rung, problem, H200.limits), "the rule chooses another layout now"
        assert (one.problem, one.derived.kernel) in drawn and one.others
    assert median(one.ratio for one in table.problems) <= 1.04
    assert [one.problem for one in table.misses(1.1)] == ["1,32,32,2054,128"]
