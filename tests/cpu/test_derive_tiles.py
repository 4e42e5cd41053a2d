"""Tiles of products, derived: counts against enumeration, the pick against every tile, layouts."""

from __future__ import annotations

import dataclasses
import itertools
import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from labtools.derive import derive
from labtools.derive.capacity import shared_limits
from labtools.derive.gemm import library_pick
from labtools.derive.gemm.rings import SHARING_GAIN, RingModel
from labtools.derive.gemm.tiles import CHOICES, TileModel, with_stages
from labtools.derive.gemm.traffic import nest_traffic
from labtools.derive.gemm.work import ConvWork, TiledWork, read_work
from labtools.derive.layouts import LayoutChoice, best_layouts, compare_layouts_of, prove_alignment
from labtools.derive.parts import ALIKE, NOT_TOLD_APART
from labtools.derive.registry import modelled_us
from labtools.derive.sm import ELEMENT, SUM
from labtools.notebook.book.inversion.views import show_model
from labtools.predict import half_tile, load_gpu, machine_of
from labtools.problem import load_rung, parse_problem
from labtools.problem.gemm.tiling import ProductTile, RingTile
from labtools.record import RecordStore
from labtools.toolchain import CompilerMissing, find_compiler
from tools.slow_list import EVERY_CASE

H200 = load_gpu("h200")


def derived(op: str, text: str | None = None, gpu: str = "h200") -> Any:
    return derive(text, gpu, op=op, quick=True)


def walk(work: TiledWork, sizes: tuple[int, int, int], order: tuple[str, ...]) -> int:
    """Bytes that one loop nest moves: each tile that is not the one just held."""
    (rows, columns, deep), (m,) = sizes, work.rows
    starts = {
        "rows": range(0, m, rows),
        "columns": range(0, work.columns, columns),
        "depth": range(0, work.depth, deep),
    }
    held: dict[str, tuple[int, int] | None] = {"a": None, "b": None, "out": None}
    moved, begun = 0, set()
    for place in itertools.product(*(starts[name] for name in order)):
        at = dict(zip(order, place, strict=True))
        i, j, k = at["rows"], at["columns"], at["depth"]
        high, wide = min(rows, m - i), min(columns, work.columns - j)
        long = min(deep, work.depth - k)
        if held["a"] != (i, k):
            held["a"], moved = (i, k), moved + ELEMENT * high * long
        if held["b"] != (j, k):
            held["b"], moved = (j, k), moved + ELEMENT * wide * long
        if held["out"] != (i, j):
            if (i, j) in begun:  # a sum that left before it was whole: written then, read now
                moved += 2 * SUM * high * wide
            else:
                begun.add((i, j))
                moved += ELEMENT * high * wide
            held["out"] = (i, j)
    return moved


@pytest.mark.parametrize("sizes", [(7, 5, 9), (4, 4, 4), (1, 6, 8)])
def test_the_traffic_of_a_nest_is_what_a_walk_through_it_moves(sizes: tuple[int, int, int]) -> None:
    work = TiledWork("", (sizes[0],), sizes[1], sizes[2])
    for tile in itertools.product(*(range(1, size + 1) for size in sizes)):
        if not EVERY_CASE and sum(tile) % 3:
            continue
        (tiling,) = work.tilings(tile[0])
        said = [traffic for _, traffic, _ in nest_traffic(work, tiling, tile[1], tile[2])]
        orders = list(itertools.permutations(("rows", "columns", "depth")))
        assert said == [walk(work, tile, order) for order in orders], tile


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [(1, 1), (3, 3), (5, 2)])
def test_the_halo_is_what_the_taps_of_a_patch_touch(stride: int, taps: tuple[int, int]) -> None:
    size = (9, 7)
    text = f"conv:2,{size[0]},{size[1]},8,16,{taps[0]},{taps[1]},{stride}"
    work = read_work("conv", text)
    assert isinstance(work, ConvWork)
    places = (-(-size[0] // stride), -(-size[1] // stride))
    for tiling in work.tilings(8):
        assert tiling.patch is not None
        high, wide = tiling.patch
        touched, most, tiles = 0, 0, 0
        for y, x in itertools.product(range(0, places[0], high), range(0, places[1], wide)):
            seen = {
                (row, column)
                for i in range(y, min(y + high, places[0]))
                for j in range(x, min(x + wide, places[1]))
                for r, s in itertools.product(range(taps[0]), range(taps[1]))
                for row in [i * stride - (taps[0] - 1) // 2 + r]
                for column in [j * stride - (taps[1] - 1) // 2 + s]
                if 0 <= row < size[0] and 0 <= column < size[1]
            }
            # A slab is loaded whole: the rectangle around what the taps name.
            rows, columns = {one[0] for one in seen}, {one[1] for one in seen}
            if stride <= min(taps):
                assert len(seen) == len(rows) * len(columns)
            slab = (max(rows) - min(rows) + 1) * (max(columns) - min(columns) + 1)
            touched, most, tiles = touched + slab, max(most, slab), tiles + 1
        assert (tiling.count, tiling.touched) == (2 * tiles, 2 * touched)
        assert tiling.tile_touched == most


def test_ragged_rows_are_padded_expert_by_expert() -> None:
    work = read_work("moe", "moe:100,8,2,64,32")
    assert sum(work.rows) == 200 and len(set(work.rows)) > 1
    for rows in (16, 64):
        grid = np.zeros((sum(-(-one // rows) for one in work.rows) * rows, 64))
        first = 0
        for one in work.rows:
            grid[first : first + one] = 1
            first += -(-one // rows) * rows
        assert work.blocks(rows, 32) == grid.shape[0] // rows * 2
        assert work.padded_share(rows, 32) == pytest.approx(1 - grid.mean())


@pytest.mark.parametrize(
    ("op", "text", "gpu"),
    [
        ("gemm", "gemm:512,384,256", "h200"),
        ("gemm", "gemm:16,4096,4096", "l4"),
        ("conv", "conv:2,14,14,32,64,3,3,1", "a100-80gb"),
        ("moe", "moe:256,8,2,512,256", "h200"),
    ],
)
def test_the_pick_is_not_told_apart_from_the_best_of_the_model(
    op: str, text: str, gpu: str
) -> None:
    design = derived(op, text, gpu)
    model = TileModel(read_work(op, text), load_gpu(gpu))
    rng = np.random.default_rng(0)
    every = list(itertools.product(*(CHOICES[name] for name in CHOICES)))
    places = range(len(every)) if EVERY_CASE else rng.choice(len(every), 300, replace=False)
    fitting = 0
    for place in places:
        for stages in (2, 3, 5, 8):
            tile = ProductTile(*(int(one) for one in every[place]), stages)
            if model.why_not(tile) is None:
                fitting += 1
                # More stages than the latency asks for may be equal, and never better by more
                # than what the memory's queue still gains.
                cost = model.cost(tile)
                assert cost.time_us >= 0.93 * design.time_us / NOT_TOLD_APART, tile
                if stages == model.stages_for(with_stages(tile, 2)):
                    most = NOT_TOLD_APART * cost.time_us * (1 + 1e-9)
                    assert design.time_us <= most, tile
                    if cost.time_us < design.time_us:  # it loads the units at least as much
                        assert ALIKE * model.load(cost) >= model.load(design.cost), tile
    assert fitting > 50


@pytest.mark.parametrize("gpu", ["l4", "a10", "a100-80gb", "rtx4090", "rtx5090", "h200"])
def test_no_design_leaves_schedulers_or_memory_waiting_and_is_called_the_best(gpu: str) -> None:
    sheet = load_gpu(gpu)
    for text in ("gemm:4096,4096,4096", "gemm:1,4096,4096", "gemm:7,50000,128", "gemm:9000,64,512"):
        design, model = derived("gemm", text, gpu), TileModel(read_work("gemm", text), sheet)
        cost, gemm = design.cost, parse_problem(text)
        if min(gemm.m, gemm.n) > 64:
            assert cost.tile.warps >= sheet.sub_partitions, cost
        # A few SMs do not pull as much as all of them.
        few = model.pulled_us(gemm.minimal_bytes, sheet.sm_count // 8)
        assert few > 1.5 * model.pulled_us(gemm.minimal_bytes, sheet.sm_count)
        assert cost.memory_us >= model.pulled_us(gemm.minimal_bytes, cost.blocks) * (1 - 1e-9)
        if 0.9 * cost.time_us <= gemm.minimal_bytes / model.dram_gb_per_s / 1e3:
            assert 2 * cost.blocks >= sheet.sm_count, cost


@pytest.mark.parametrize("name", ["g02_hopper", "p03_hopper"])
def test_every_recorded_tile_stands_beside_its_model_losses_first(name: str) -> None:
    shown = show_model(name)
    lines = [line for line in shown.text.splitlines() if line.startswith(f"{name[:3]} ")]
    records = RecordStore().query("h200", name)
    known = {(one.problem_key, str(one.every_knob)): one for one in reversed(records)}
    assert len(lines) == len(known) and f"Show {len(lines)} timed tiles" in shown.html
    ratios = [
        float(found[1]) for line in lines if (found := re.search(r" (\d\.\d+) +\w+ ", line + " "))
    ]
    assert ratios == sorted(ratios) and ratios[0] < 1
    for one in known.values():
        model_us = modelled_us(load_rung(name), one.problem, H200, one.every_knob)
        assert model_us is not None and 0.5 < model_us / one.median_us < 1.15


def test_rows_that_come_element_by_element_take_longer() -> None:
    """Recorded tiles of such a product: the model knows that they wait, and which is the better."""
    work = read_work("gemm", "gemm:100,4000,4090")
    model, recorded = TileModel(work, H200), {}
    for record in RecordStore().query("h200", "g01_ring", workload="gemm:100,4000,4090"):
        assert record.median_us is not None
        tile = ProductTile.of(record.every_knob)
        recorded[tile] = record.median_us, model.cost(tile).time_us
    assert len(recorded) > 1
    assert sorted(recorded.values()) == sorted(recorded.values(), key=lambda both: both[1])
    for measured, said in recorded.values():
        assert 0.5 < said / measured < 1.5


def test_a_row_of_65_is_rejected_with_its_reason() -> None:
    proof = prove_alignment("cp.async 16 B", half_tile(64, 64, 1), 2, 64 * 130)
    assert not proof.holds
    assert proof.said.startswith("130 mod 16 = 2")
    assert proof.first_wrong == (0, 1)
    rejected = derived("gemm", "gemm:256,256,256").step("alignment").rejected
    assert rejected[0].choice == "half smem[64][65]" and rejected[0].value == 2


@pytest.mark.parametrize("kind", ["cp.async 16 B", "ldmatrix", "LDS.128", "LDS.64", "LDS.32"])
@pytest.mark.parametrize("pad", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("stage_extra", [0, 8])
def test_an_alignment_proof_is_what_every_address_says(
    kind: str, pad: int, stage_extra: int
) -> None:
    tile = half_tile(8, 64, pad)
    stage = 8 * tile.stride + stage_extra
    proof = prove_alignment(kind, tile, 4, stage)
    wrong = [
        (s, r) for s in range(4) for r in range(8) if (s * stage + r * tile.stride) % proof.needs
    ]
    assert proof.holds is not bool(wrong)
    assert proof.first_wrong == (wrong[0] if wrong else None)


@pytest.mark.parametrize(
    ("text", "bound"), [("gemm:4096,4096,4096", "tensor cores"), ("gemm:16,4096,4096", "memory")]
)
def test_what_no_kernel_beats_is_of_the_fastest_instruction(text: str, bound: str) -> None:
    """The floor of mma.m16n8k16 says its name where the GPU has a faster instruction."""
    gemm = parse_problem(text)
    design = derive(text, "h200", quick=True)
    assert design.step("limits").question == "Which time can no kernel of mma.m16n8k16 beat?"
    ring = design.hopper
    assert ring is not None and ring.bound == bound
    assert H200.fp16_tensor_tflops is not None
    memory = gemm.minimal_bytes / machine_of(H200).dram_bytes_per_cycle
    floors = memory / machine_of(H200).clock_ghz / 1e3, gemm.flops / H200.fp16_tensor_tflops / 1e6
    assert ring.floor_us == pytest.approx(max(floors))
    assert ring.floor_us <= min(ring.time_us, design.floor_us * 1.000001)
    older = derive(text, "a100-80gb", quick=True)
    assert older.step("limits").question == "Which time can no kernel beat?"
    assert older.hopper is None


def test_xor_and_72_satisfy_both_and_the_others_do_not() -> None:
    found = {one.name: one for one in compare_layouts_of(64, 64)}
    assert list(found) == ["64", "65", "66", "72", "xor"]
    matrix = ("cp.async 16 B", "ldmatrix", "ldmatrix.trans", "LDS.128 along rows")

    def is_good(one: LayoutChoice) -> bool:
        return all(one.aligned[kind] and one.turns[kind] == 1 for kind in matrix)

    assert {name for name, one in found.items() if is_good(one)} == {"72", "xor"}
    assert found["66"].turns["2 B down a column"] == 1  # what a scalar kernel wants, and no copy
    best = best_layouts(list(found.values()))
    assert all(one.aligned[kind] and one.turns[kind] == 1 for kind, one in best.items())
    assert {kind: one.name for kind, one in best.items()} == {
        "cp.async 16 B": "64",
        "ldmatrix": "xor",
        "ldmatrix.trans": "xor",
        "LDS.128 along rows": "64",
        "2 B down a column": "66",
    }


def test_few_rows_are_bound_by_memory_and_many_by_the_matrix_units() -> None:
    assert derived("gemm", "gemm:16,4096,4096").bound == "memory"
    assert derived("gemm", "gemm:4096,4096,4096").bound == "tensor cores"


@pytest.mark.parametrize(
    "text", ["gemm:4096,4096,4096", "gemm:16,4096,4096", "gemm:300,1000,520", "gemm:64,128,8192"]
)
def test_sm_90a_gets_a_ring_that_launches_and_is_the_best_of_all(text: str) -> None:
    design = derived("gemm", text)
    assert design.hopper is not None and design.specified is not None
    kernel, knobs = design.specified
    problem = parse_problem(text)
    launch = load_rung(kernel).launches(problem, H200.limits, knobs)[-1]
    assert launch.smem_bytes == design.hopper.cost.tile.smem_bytes
    work = read_work("gemm", text)
    model = RingModel(work, H200)
    chosen = design.hopper.cost
    for tile in model.tiles():
        other = model.cost(tile)
        if tile.split == chosen.tile.split:
            assert chosen.time_us <= NOT_TOLD_APART * other.time_us * (1 + 1e-9)
        elif tile.split > chosen.tile.split:
            assert chosen.time_us <= NOT_TOLD_APART * SHARING_GAIN * other.time_us * (1 + 1e-9)
        else:
            assert chosen.time_us <= other.time_us
    shapes = {(one.warpgroups, one.columns, one.split, one.swap) for one in design.hopper.near}
    assert len(shapes) == len(design.hopper.near) > 8


def test_few_rows_lie_on_the_right_and_share_k() -> None:
    few = derived("gemm", "gemm:1,4096,14336").hopper
    assert few is not None and few.cost.tile.swap == 1
    narrow = derived("gemm", "gemm:64,128,8192").hopper
    assert narrow is not None and narrow.cost.tile.split == 8


@pytest.mark.parametrize("split", [1, 2, 4, 8])
@pytest.mark.parametrize("swap", [0, 1])
def test_what_sharing_a_tile_moves_is_what_a_walk_over_the_blocks_counts(
    split: int, swap: int
) -> None:
    """Every block goes through its items as g02 does, with the sums in an array."""
    work = read_work("gemm", "gemm:300,520,2048")
    model = RingModel(work, H200)
    tile = RingTile(2, 64, 4, split, swap)
    left, right = tile.sides(300, 520)
    places = list(itertools.product(range(0, left, tile.rows), range(0, right, tile.columns)))
    items = len(places) * split
    blocks = min(items, H200.sm_count)
    written = read = joins = turns = 0
    finished = [0] * len(places)
    for turn in range(-(-items // blocks)):
        here = range(turn * blocks, min(items, (turn + 1) * blocks))
        turns += 1
        lasts = []
        for item in here:
            if split == 1:
                continue
            part = np.zeros((tile.workers, tile.rows * tile.columns // tile.workers), np.float32)
            written += part.nbytes
            finished[item // split] += 1
            if finished[item // split] == split:
                read += split * part.nbytes
                lasts.append(item)
        joins += bool(lasts)
    each, last = model.part_bytes(tile)
    assert (written, read) == (items * each, len(places) * last)
    cost = model.cost(tile)
    assert (cost.items, cost.turns) == (items, turns) and joins <= turns
    assert (model.join_us(tile) > 0) is (split > 1)
    if split > 1:
        apart = dataclasses.replace(cost, join_us=0)
        slow = model.machine.fill_bytes_per_cycle
        least = model.us((written / items + read / len(places)) / slow)
        assert cost.join_us > apart.join_us + least
        # Each turn has its join: with the parts and the waits taken out, that is what is left.
        busy = -(-model.slices // split) * max(cost.shares.values())
        rest = model.us(model.latency(tile) + turns * (busy + model.store_cycles(tile)))
        assert cost.sm_us == pytest.approx(rest + turns * cost.join_us)
        room = H200.l2_bytes - work.minimal_bytes
        assert model.traffic_bytes(tile) == work.minimal_bytes and written < room


def test_parts_that_the_l2_has_no_room_for_go_to_memory() -> None:
    work = read_work("gemm", "gemm:4096,8192,4096")
    model = RingModel(work, H200)
    tile = RingTile(2, 256, 4, 4)
    written = 4 * (4096 * 8192) * tile.split
    room = H200.l2_bytes - work.minimal_bytes
    assert written > H200.l2_bytes
    assert model.traffic_bytes(tile) == model.memory_bytes + written - max(0, room)
    assert model.traffic_bytes(dataclasses.replace(tile, split=1)) == model.memory_bytes


@pytest.mark.parametrize(
    ("swap", "columns", "n"), [(0, 64, 512), (0, 16, 512), (0, 64, 516), (1, 64, 512)]
)
def test_the_lines_of_a_store_are_those_that_its_lanes_touch(
    swap: int, columns: int, n: int
) -> None:
    """One tile's stores, lane by lane, as g02 computes where they go."""
    model = RingModel(read_work("gemm", f"gemm:512,{n},512"), H200)
    tile = RingTile(1, columns, 4, 1, swap)
    left_rows, right_rows = tile.sides(512, n)
    lines = 0
    wide = not swap and columns % 32 == 0 and right_rows % 8 == 0
    for warp in range(4):
        lanes = [(warp * 16 + lane // 4, lane % 4) for lane in range(32)]
        if wide:
            for h, t in itertools.product(range(2), range(0, columns // 8, 4)):
                at = {((row + 8 * h) * right_rows + 8 * (t + c)) * 2 // 128 for row, c in lanes}
                lines += len(at)
            continue
        for i in range(columns // 2):
            at = set()
            for row, c in lanes:
                left, right = row + i % 4 // 2 * 8, i // 4 * 8 + 2 * c + i % 2
                at.add((right * left_rows + left if swap else left * right_rows + right) * 2 // 128)
            lines += len(at)
    # Rows of an odd length begin anywhere in a line, so that some pieces touch two.
    assert model.store_lines(tile) == pytest.approx(lines, rel=0.15 if n % 64 else 1e-9)


@pytest.mark.parametrize(("text", "gpu"), [("gemm:64,64,100", "h200"), ("gemm:64,64,64", "l4")])
def test_no_ring_where_the_copy_engine_is_not_or_takes_no_such_rows(text: str, gpu: str) -> None:
    design = derived("gemm", text, gpu)
    assert design.hopper is None and design.specified == ("g01_ring", design.knobs)


def test_eight_warps_may_share_a_tile_of_64_rows_along_n() -> None:
    model = TileModel(read_work("gemm", "gemm:4096,4096,4096"), H200)
    assert model.why_not(ProductTile(64, 128, 32, 8, 1, 2)) is not None
    assert model.why_not(ProductTile(64, 128, 32, 2, 4, 2)) is None


def test_the_compiler_is_asked_how_much_it_takes() -> None:
    try:
        find_compiler()
    except CompilerMissing:
        assert shared_limits(H200).compiler_static == {}
        return
    found = shared_limits(H200)
    assert found.compiler_static["sm_90"] == found.sheet_static == 48 * 1024
    assert "sm_90a" in found.compiler_static
    assert list(shared_limits(load_gpu("l4")).compiler_static) == ["sm_89"]


def test_without_nvidias_package_the_pick_is_said_to_be_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library_pick, "PACKAGE", "no_such_package")
    said = library_pick.pick_of_library(64, 64, 64, H200)
    assert not said.there and "not installed" in said.said
    monkeypatch.setattr(library_pick, "PACKAGE", "json")
    monkeypatch.setattr(library_pick, "_CHILD", "raise SystemExit(139)")
    assert "no answer" in library_pick.pick_of_library(64, 64, 64, H200).said
    answer = '{"cta": [256, 128, 64], "stages": 4, "split_k": 1, "cluster": [1, 2]}'
    says = f"import os; print({answer!r}, flush=True); os.abort()"
    monkeypatch.setattr(library_pick, "_CHILD", says)
    found = library_pick.pick_of_library(64, 64, 64, H200)
    assert found.there and found.cta == (256, 128, 64)
    assert (
        found.said == "256 x 128 x 64, 4 stages, 1 block per tile, clusters of 1 x 2, for CUTLASS3"
    )


@pytest.mark.skipif(not find_spec(library_pick.PACKAGE), reason="the package is not here")
def test_nvidias_pick_is_asked_over_its_whole_set() -> None:
    asked = {
        ("h200", 4096, 4096, 4096): ((256, 128, 64), 4, (1, 2)),
        ("h200", 128, 2048, 7168): ((64, 32, 128), 8, (1, 2)),
        ("l4", 4096, 4096, 4096): ((256, 128, 64), 2, (1, 1)),
    }
    for (gpu, *sizes), told in asked.items():
        found = library_pick.pick_of_library(*sizes, load_gpu(gpu))
        assert (found.cta, found.stages, found.cluster) == told, gpu
