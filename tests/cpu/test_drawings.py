"""Drawings of the pages: they say in words what they show, and show what the code computes."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from labtools.derive import derive
from labtools.notebook.book.attention.figures import merge_drawing, softmax_drawing
from labtools.notebook.book.decode.figures import cache_drawing, sharing_drawing
from labtools.notebook.book.first_kernel.figures import lanes_drawing
from labtools.notebook.book.index.figures import step_drawing
from labtools.notebook.book.inversion.drawings import (
    bank_group,
    fragment_drawing,
    lane_of_pair,
    ring_drawing,
    roles_drawing,
    swizzle_drawing,
    tile_of_stage,
)
from labtools.notebook.book.inversion.views import plot_limits, plot_model, plot_slope, show_steps
from labtools.notebook.book.the_gpu.figures import launch_drawing
from labtools.notebook.figures import plot_lines
from labtools.notebook.tables import Shown
from labtools.predict import check_tile, half_tile, load_gpu
from labtools.problem import HEADLINE, load_rung, make_inputs


def every_drawing() -> list[Shown]:
    limits = load_gpu("h200").limits
    (launch,) = load_rung("r03").launches(HEADLINE, limits)
    return [
        *(step_drawing(), cache_drawing(HEADLINE), sharing_drawing(8, 2), softmax_drawing()),
        *(
            lanes_drawing(),
            merge_drawing(),
            launch_drawing(launch, limits.num_sms),
            fragment_drawing(),
        ),
        *(swizzle_drawing(), ring_drawing(4), roles_drawing(2, 2)),
    ]


def test_each_says_what_it_shows_and_is_drawn_alike_again() -> None:
    first, second = every_drawing(), every_drawing()
    for one, again in zip(first, second, strict=True):
        alt = re.search(r'alt="([^"]+)"', one.html)
        assert alt is not None
        assert len(alt[1]) > 60
        assert one.html == again.html


def test_the_cache_lies_as_it_is_drawn() -> None:
    keys = make_inputs(HEADLINE.replace(batch=2, kv_len=64)).k
    text = cache_drawing(HEADLINE.replace(batch=2, kv_len=64)).text
    for bytes_apart in keys.strides:
        assert f"{bytes_apart:,} bytes apart" in text


@pytest.mark.parametrize(("layout", "padding"), [("plain", 0), ("plain", 8), ("xor", 0)])
def test_banks_are_those_of_the_check(layout: str, padding: int) -> None:
    """Eight rows that meet in four banks take as many turns as the check of a tile says."""
    tile = half_tile(64, 64, padding, layout)
    (found,) = check_tile(tile, ("matrix",)).accesses
    for chunk in range(8):
        meet = Counter(bank_group(tile, row, chunk) for row in range(8))
        assert max(meet.values()) == found.ways


def test_the_alt_text_of_the_swizzle_counts() -> None:
    told = re.findall(r": (\d) of these stand in the same four banks", swizzle_drawing().text)
    assert told == ["8", "1", "1"]


def test_fragments_are_those_of_the_instruction() -> None:
    """PTX ISA, mma.m16n8k16: c0 to c3 of a lane, and which registers of A lie in which quarter."""
    held: dict[int, list[tuple[int, int]]] = {lane: [] for lane in range(32)}
    for row in range(16):
        for pair in range(8):
            held[lane_of_pair(row, pair)].append((row, 2 * pair))
    for lane, places in held.items():
        group, column = lane // 4, 2 * (lane % 4)
        assert places == [(r, c) for r in (group, group + 8) for c in (column, column + 8)]


def test_a_ring_has_the_next_tiles_and_each_in_its_stage() -> None:
    for trip in range(9):
        tiles = [tile_of_stage(stage, trip, 4) for stage in range(4)]
        assert sorted(tiles) == list(range(trip, trip + 4))
        assert [tile % 4 for tile in tiles] == list(range(4))
    assert "The other 3 wait" in ring_drawing(4).text


@pytest.mark.parametrize(
    "workload", ["16,32,8,4096,128", "prefill:2,4,4,256,64", "gemm:512,512,512"]
)
def test_a_derivation_is_drawn_by_its_numbers(workload: str) -> None:
    design = derive(workload, "h200", quick=True)
    limits = plot_limits(design.steps[0], "")
    (floor,) = (one.value for one in design.steps[0].results if one.name == "floor")
    assert f"{floor:.1f} us" in limits.text and "target" not in limits.text
    decided = show_steps(design.steps)
    assert all(step.decision in decided.text for step in design.steps)
    assert decided.html.count("<details") == 1


def test_a_slope_and_a_model_are_drawn_by_their_numbers() -> None:
    design = derive("prefill:2,4,4,256,64", "h200", quick=True)
    known = [one for one in design.slope if one.traffic_bytes is not None]
    told = plot_slope(design.slope, known[-1].traffic_bytes or 1, {"a buffer": 2048}).text
    assert all(f"{one.buffer_bytes / 1024:,.0f} KiB" in told for one in known)
    assert "a buffer with 2 KiB" in told and f"{known[-1].buffer_bytes / 1024:,.0f} KiB 1" in told
    told = plot_model({"a kernel": [(10.0, 12.0), (20.0, 30.0)]}, "").text
    assert "a kernel, 2 tiles, 1.20 to 1.50" in told
    told = plot_lines({"one": {4: 0.5, 2: 1.25}, "other": {2: 3.0}}, "x", "y", "", "computed").text
    assert "one: 2 1.25, 4 0.5; other: 2 3" in told
