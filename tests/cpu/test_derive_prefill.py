"""Prefill kernels, derived: counts against enumeration, the pick against every tile and records."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from devices import needs_tools

from labtools.derive import derive
from labtools.derive.attention import attention_nest
from labtools.derive.layouts import prove_alignment
from labtools.derive.parts import NOT_TOLD_APART
from labtools.derive.prefill.costs import PrefillModel, PrefillTile
from labtools.derive.prefill.derivation import PrefillDesign
from labtools.derive.sm import ELEMENT, SUM
from labtools.predict import Tile, load_gpu
from labtools.problem import Workload, load_rung
from labtools.problem.prefill import Prefill
from labtools.record import RecordStore
from labtools.toolchain import compile_rung

H200 = load_gpu("h200")
SOME = (
    "prefill:4,8,8,512,64",
    "prefill:4,32,32,4096,128/causal",
    "prefill:1,8,2,1000,128/q77/causal",
    "prefill:2,4,4,33,64/bf16",
)


def derived(text: str, gpu: str = "h200") -> PrefillDesign:
    return derive(text, gpu, quick=True)


def walk(problem: Prefill, heads: int, queries: int, keys: int, stays: str) -> int:
    """Bytes that one loop nest of one (sequence, KV head) moves, tile by tile."""
    dim, seen = problem.head_dim, problem.keys_seen()
    moved = 0
    row = ELEMENT * dim
    if stays == "output":
        for first in range(0, problem.group_size, heads):
            wide = min(heads, problem.group_size - first)
            for start in range(0, len(seen), queries):
                block = seen[start : start + queries]
                moved += 2 * row * wide * len(block)
                moved += sum(2 * row for _ in range(int(block.max())))
        return moved
    begun: set[tuple[int, int]] = set()
    for start in range(0, problem.kv_len, keys):
        moved += 2 * row * min(keys, problem.kv_len - start)
        for head in range(problem.group_size):
            for query in range(len(seen)):
                if seen[query] <= start:
                    continue
                moved += row
                if (head, query) in begun:
                    moved += 2 * SUM * dim
                else:
                    begun.add((head, query))
                    moved += row
    return moved


@pytest.mark.parametrize(
    "text", ["prefill:1,6,2,9,64/causal", "prefill:1,4,1,7,64/q5/causal", "prefill:1,2,2,6,64"]
)
def test_the_traffic_of_a_nest_is_what_a_walk_through_it_moves(text: str) -> None:
    problem = Prefill.parse(text)
    for heads, queries, keys in itertools.product((1, 2, 3), (1, 3, 4, 9), (1, 2, 5, 9)):
        if heads > problem.group_size:
            continue
        for _, traffic, stays in attention_nest(problem, heads, queries, keys):
            one = walk(problem, heads, queries, keys, stays)
            assert traffic == problem.num_kv_heads * one, (heads, queries, keys, stays)


@pytest.mark.parametrize("key_bytes", [1, 37.5, 1024])
def test_the_keys_of_a_nest_may_be_kept_in_fewer_bytes(key_bytes: float) -> None:
    """All that moves beside K and V is the same, and their part goes with the bytes of a key."""
    problem = Prefill(1, 4, 2, 9, 64, qo_len=1)
    usual = 2 * ELEMENT * problem.head_dim
    for heads, keys in itertools.product((1, 2), (1, 4, 9)):
        whole = attention_nest(problem, heads, 1, keys)
        other = attention_nest(problem, heads, 1, keys, key_bytes)
        for (room, moved, stays), (room_of, moved_of, _) in zip(whole, other, strict=True):
            again = -(-problem.group_size // heads) if stays == "output" else 1
            rows = problem.num_kv_heads * problem.kv_len * again
            assert moved - moved_of == pytest.approx(rows * (usual - key_bytes), abs=2)
            assert room - room_of == pytest.approx(keys * (usual - key_bytes), abs=1)


def test_decode_has_a_slope_too() -> None:
    """One query a sequence: every buffer that holds a group's queries moves each byte once."""
    for work in (Workload(2, 8, 2, 300, 64), Workload(2, 8, 2, 300, 64, seq_lens=(300, 7))):
        design = derive(work, "h200")
        least = work.minimal_bytes - work.lengths.nbytes
        assert {one.traffic_bytes for one in design.slope} == {least}
    low = derive(Workload(2, 8, 2, 320, 128), "h200", 4)
    (moved,) = {one.traffic_bytes for one in low.slope}
    assert moved == pytest.approx(sum(one.value for one in low.step("bytes").inputs[:2]), abs=10)
    # A group too large for the smallest buffer goes over its keys again.
    many = derive(Workload(1, 64, 1, 512, 128), "h200").slope
    assert many[0].traffic_bytes > many[-1].traffic_bytes  # type: ignore[operator]


@pytest.mark.parametrize("text", SOME)
def test_a_block_goes_over_the_tiles_that_its_queries_see(text: str) -> None:
    problem = Prefill.parse(text)
    model = PrefillModel(problem, H200, "wgmma")
    for tile in (PrefillTile("wgmma", 96, 1, 2), PrefillTile("wgmma", 64, 3, 1)):
        seen = problem.keys_seen()
        counted = [
            len({key // tile.keys for key in range(int(seen[first : first + tile.queries].max()))})
            for first in range(0, len(seen), tile.queries)
        ]
        assert list(model.tiles_of_blocks(tile)) == counted[::-1]
        issued = sum(counted) * tile.queries * tile.keys
        assert model.padded_share(tile) == pytest.approx(1 - seen.sum() / issued)


def test_blocks_are_dealt_to_whoever_is_free() -> None:
    problem = Prefill.parse("prefill:3,5,5,900,64/causal")
    model = PrefillModel(problem, H200, "wgmma")
    tile = PrefillTile("wgmma", 64, 1, 2)
    lasts = model.tiles_of_blocks(tile).astype(float)
    free = np.zeros(7)
    for one in np.tile(lasts, 15):
        free[free.argmin()] += one
    assert model.dealt_cycles(tile, lasts, 7) == free.max()
    assert model.dealt_cycles(tile, lasts, 10_000) == lasts.max()
    even = PrefillModel(Prefill.parse("prefill:3,5,5,900,64"), H200, "wgmma")
    assert even.dealt_cycles(tile, np.full(15, 8.0), 100) == 3 * 8


@pytest.mark.parametrize("text", SOME)
@pytest.mark.parametrize("kind", ["wgmma", "mma"])
def test_the_pick_is_near_the_least_of_the_model(text: str, kind: str) -> None:
    model = PrefillModel(Prefill.parse(text), H200, kind)
    best = model.best()
    assert best is not None
    names = [knob.name for knob in model.rung.knobs]
    fitting = 0
    for values in itertools.product(*(knob.choices for knob in model.rung.knobs)):
        tile = PrefillTile.of(kind, dict(zip(names, map(int, values), strict=True)))
        assert tile.knobs == dict(zip(names, values, strict=True))
        if model.why_not(tile) is None:
            fitting += 1
            assert NOT_TOLD_APART * model.cost(tile).time_us >= best.time_us * (1 - 1e-9)
            cheaper = model.cost(tile).time_us < best.time_us * (1 - 1e-6)
            if kind == "wgmma":  # only the same without turns may be
                same = dataclasses.replace(tile, pingpong=0, stages=best.tile.stages)
                alone = dataclasses.replace(best.tile, pingpong=0)
                assert not cheaper or (same == alone and best.tile.pingpong == 1)
            elif cheaper:
                assert tile.keys <= best.tile.keys
    assert fitting > 10


@pytest.mark.parametrize(("groups", "blocks"), [(1, 1), (2, 1), (3, 1), (1, 2)])
def test_warpgroups_of_an_sm_go_through_a_trip_in_step(groups: int, blocks: int) -> None:
    """The cycles of a trip are those of a walk in which each unit serves one after the other."""
    model = PrefillModel(Prefill.parse("prefill:2,8,8,2048,64"), H200, "wgmma")
    tile = PrefillTile("wgmma", 128, groups, 2)
    together = groups * blocks
    parts, product = model.chain_parts(tile), model.products_cycles(tile)
    cores = 0.0  # when the tensor cores are free: all scores first, then all outputs
    for number in range(together):
        cores += parts["scores"] if number == 0 else product
    meet = cores
    for _ in range(together):
        cores += product
    exponents = meet + parts["weights or output"]
    for _ in range(together - 1):
        exponents += model.exponential_cycles(tile)
    ends = max(cores, exponents) + parts["rescaling and packing"] + parts["barriers"]
    assert model.lockstep_cycles(tile, together) == pytest.approx(ends)
    assert model.shares(tile, blocks)["chain"] == pytest.approx(ends)


def test_times_with_and_without_turns_are_those_that_the_model_rests_on() -> None:
    """p03's records: turns are never slower by more than the model's doubt, and never part the
    warpgroups as much as a trip without meetings would."""
    found: dict[Prefill, dict[int, float]] = {}
    for record in RecordStore().query("h200", "p03_hopper"):
        if not isinstance(record.problem, Prefill) or record.median_us is None:
            continue
        tile = PrefillTile.of("wgmma", record.every_knob)
        if dataclasses.replace(tile, pingpong=0) == PrefillTile("wgmma", 128, 2, 2):
            found.setdefault(record.problem, {})[tile.pingpong] = record.median_us
    both = {problem: times for problem, times in found.items() if len(times) == 2}
    assert len(both) >= 3
    for problem, times in both.items():
        model = PrefillModel(problem, H200, "wgmma")
        tile = PrefillTile("wgmma", 128, 2, 2, 1)
        apart = max(sum(model.chain_parts(tile).values()), model.shares(tile, 1)["tensor cores"])
        assert times[1] <= NOT_TOLD_APART * times[0], problem
        assert times[1] / times[0] > apart / model.lockstep_cycles(tile, 2), problem


def test_every_tile_of_p03_begins_where_the_swizzle_does() -> None:
    model = PrefillModel(Prefill.parse("prefill:1,8,8,256,128"), H200, "wgmma")
    for tile in model.tiles():
        base = 64 * tile.groups * 128 * ELEMENT
        rows = Tile(tile.keys, 128, None, "xor", base)
        proof = prove_alignment("TMA, 128-byte swizzle", rows, 4 * tile.stages, rows.bytes)
        assert proof.holds, tile
    odd = prove_alignment("TMA, 128-byte swizzle", Tile(60, 128, 128, "xor"), 4, 60 * 128)
    assert not odd.holds and odd.first_wrong == (1, 0)


@needs_tools
def test_registers_decide_as_the_compiler_does() -> None:
    """Tiles that the estimate refuses are those that the compiler spills."""
    problem = Prefill.parse("prefill:1,8,8,512,128")
    model = PrefillModel(problem, H200, "wgmma")
    for keys, groups in ((176, 2), (80, 3), (96, 3)):
        tile = PrefillTile("wgmma", keys, groups, 1)
        compiled = compile_rung(model.rung, problem, H200.limits, tile.knobs)
        spilt = compiled.resources_of("prefill_p03").spill_store_bytes > 0
        assert spilt is (model.registers(tile) > model.room_for_registers(tile, 1)), tile


@needs_tools
@pytest.mark.parametrize(("text", "gpu"), [(SOME[0], "h200"), (SOME[2], "h200"), (SOME[1], "l4")])
def test_the_derived_kernel_compiles_without_spilling(text: str, gpu: str) -> None:
    design = derived(text, gpu)
    assert design.kernel is not None
    rung, problem = load_rung(design.kernel), Prefill.parse(text)
    compiled = compile_rung(rung, problem, load_gpu(gpu).limits, design.knobs)
    used = compiled.resources_of(
        rung.launches(problem, load_gpu(gpu).limits, design.knobs)[0].entry
    )
    assert used.spill_store_bytes == 0


def test_of_recorded_tiles_the_pick_is_among_the_best() -> None:
    """p02 on an H200: the model's choice among the recorded points takes at most 1.1 times the
    least recorded time, and its times are no further off than a half."""
    found: dict[Prefill, list[tuple[float, float]]] = {}
    for record in RecordStore().query("h200", "p02_corrected"):
        problem = record.problem
        if not isinstance(problem, Prefill) or record.median_us is None:
            continue
        model = PrefillModel(problem, H200, "mma")
        tile = PrefillTile.of("mma", record.every_knob)
        found.setdefault(problem, []).append((model.cost(tile).time_us, record.median_us))
    many = {problem: times for problem, times in found.items() if len(times) > 2}
    assert many
    for problem, times in found.items():
        for said, measured in times:
            assert 0.5 < said / measured < 1.5, problem
        assert min(times)[1] <= 1.1 * min(one[1] for one in times), problem
