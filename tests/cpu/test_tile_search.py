"""The search over tiles: problems that can be drawn, a table that can be read, and what it says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from labtools.predict import load_gpu
from labtools.problem import Gemm, LabError, Prefill, Workload, load_rung, parse_problem
from labtools.record.tile_search import (
    SearchedProblem,
    TileSearch,
    TimedTile,
    read_search,
    search_path,
    text_hash,
)
from tools.search_tiles import COUNT, derived_tile, drawn_problems, tried_tiles

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
    assert table.stale == [], "python -m tools.search_tiles"
    drawn = [one.short() for one in drawn_problems()]
    assert [one.problem for one in table.problems] == drawn
    for one in table.problems[::9]:
        kernel, knobs = derived_tile(parse_problem(one.problem))
        held = one.derived
        rung = load_rung(kernel)
        assert (held.kernel, rung.resolve_knobs(held.knobs)) == (kernel, rung.resolve_knobs(knobs))
