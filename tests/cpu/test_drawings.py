"""Drawings of the pages: they say in words what they show, and show what the code computes."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from labtools.derive import derive
from labtools.notebook.book.attention.figures import merge_drawing, softmax_drawing
from labtools.notebook.book.decode.figures import cache_drawing, sharing_drawing
from labtools.notebook.book.first_kernel.figures import lanes_drawing
from labtools.notebook.book.first_two.figures import owners_drawing, tree_drawing
from labtools.notebook.book.index.figures import step_drawing
from labtools.notebook.book.inversion.drawings import (
    bank_group,
    fragment_drawing,
    group_drawing,
    lane_of_pair,
    ring_drawing,
    roles_drawing,
    swizzle_drawing,
    tile_of_stage,
)
from labtools.notebook.book.inversion.views import plot_limits, plot_model, plot_slope, show_steps
from labtools.notebook.book.the_gpu.figures import launch_drawing
from labtools.notebook.book.which_tool.tools import (
    FIVE_TOOLS,
    call_drawing,
    tool_table,
    waits_drawing,
    which_tool_drawing,
)
from labtools.notebook.book.worth.tokens import Decoder, DecodeStep, plot_steps, plot_tokens
from labtools.notebook.exercises import load_exercise
from labtools.notebook.figures import plot_lines
from labtools.notebook.records import GpuRecords, Variant
from labtools.notebook.tables import Shown
from labtools.predict import check_tile, half_tile, load_gpu
from labtools.problem import HEADLINE, Launch, load_rung, make_inputs
from labtools.record import with_counters
from labtools.record.bound import stall_shares


def launch_of(name: str) -> Launch:
    """Of the problem that checks a kernel to write."""
    exercise = load_exercise(name)
    (launch,) = exercise.rung.launches(exercise.problem, load_gpu("h200").limits)
    return launch


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
        *(
            group_drawing(4),
            swizzle_drawing(),
            ring_drawing(4),
            roles_drawing(2, 2),
            which_tool_drawing(),
        ),
        owners_drawing(launch_of("my_add"), 300),
        tree_drawing(launch_of("my_row_sum")),
    ]


def test_each_says_what_it_shows_and_is_drawn_alike_again() -> None:
    first, second = every_drawing(), every_drawing()
    for one, again in zip(first, second, strict=True):
        alt = re.search(r'alt="([^"]+)"', one.html)
        assert alt is not None
        assert len(alt[1]) > 60
        assert one.html == again.html


@pytest.mark.parametrize("count", [1, 32, 300, 384])
def test_the_last_warp_with_elements_is_that_of_the_index(count: int) -> None:
    launch = Launch("vector_add", grid=(-(-count // 128),), block=(128,))
    owner = {
        block * 128 + thread: (block, thread)
        for block in range(launch.num_blocks)
        for thread in range(launch.num_threads)
    }
    block, thread = owner[count - 1]
    lanes = f"its lanes 0 to {thread % 32} own elements {count - 1 - thread % 32} to {count - 1}"
    text = owners_drawing(launch, count).text
    assert f"ends in warp {thread // 32} of block {block}: {lanes}" in text


def test_the_tree_has_the_steps_of_the_kernel() -> None:
    """The halvings of its loop, as its source says them."""
    launch, source = launch_of("my_row_sum"), load_exercise("my_row_sum").body
    assert "active = BLOCK / 2; active > 0; active /= 2" in source
    active, steps = launch.num_threads // 2, []
    while active > 0:
        steps.append(f"{2 * active} sums become {active}")
        active //= 2
    drawn = tree_drawing(launch).text
    assert "; ".join(steps) in drawn and f"{len(steps)} times" in drawn


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


def test_a_group_is_read_as_often_as_it_has_blocks() -> None:
    limits, pairs = load_gpu("h200").limits, HEADLINE.batch * HEADLINE.num_kv_heads
    reads = []
    for name in ("r08", "s07"):
        launch = load_rung(name).launches(HEADLINE, limits, {"split": 1})[0]
        reads.append(launch.num_blocks // pairs)
    said = group_drawing(HEADLINE.group_size).text
    assert f"{reads[0]} in r08, {reads[1]} in s07" in said


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


def test_the_tools_of_the_drawing_are_those_of_the_table() -> None:
    drawn, told = which_tool_drawing().text, tool_table().text
    for one in FIVE_TOOLS:
        assert " ".join(one.doubt.split()) in drawn
        assert one.costs in told and one.blind in told
    assert drawn.count("needs a GPU") == sum(one.needs_gpu for one in FIVE_TOOLS)


def test_a_call_is_taken_apart_by_recorded_times() -> None:
    tries = [Variant("r04", experiment=one) for one in ("", "stream+outside", "outside")]
    short = HEADLINE.replace(batch=1, kv_len=1024)
    first, moved, graph = GpuRecords().times_together(tries, short)
    assert first is not None and moved is not None and graph is not None
    told = re.findall(r"([\d.]+) us", call_drawing(first, moved, graph).text)
    assert sum(map(float, told)) == pytest.approx(float(first), abs=0.2)
    assert float(told[0]) == pytest.approx(float(graph), abs=0.05)


def test_waits_are_those_of_the_record() -> None:
    (record, *_) = with_counters(GpuRecords().all_of("r11", HEADLINE))
    assert record.counters is not None
    share = stall_shares(record.counters.values)["selected"]
    assert f"it issues {share:.0%}" in waits_drawing({"r11": record}).text


def test_a_step_is_its_weights_and_attention() -> None:
    model = Decoder.llama3()
    embeddings = model.vocab * model.dim  # of which a step reads a row a token
    assert model.weights + embeddings == pytest.approx(8.0e9, rel=0.01)  # "8B"
    assert model.kv_bytes(HEADLINE) == 32 * HEADLINE.kv_bytes
    one = DecodeStep.of(model, gb_per_s=4000.0, layer_us=100.0, batch=8)
    assert one.weights_us == pytest.approx(2 * model.weights / 4e12 * 1e6)
    assert one.share == pytest.approx(3200.0 / one.time_us)
    rate = f"{8e6 / (one.weights_us + 3200.0):,.0f}"
    assert f"{rate} tokens a second" in plot_steps({"a kernel": one}, "").text
    shown = plot_tokens({"a kernel": {4096: one}}, {"a library": {1024: one}}, 9999.0, "").text
    assert f"a kernel: 4,096 {rate}" in shown and f"a library: 1,024 {rate}" in shown
