"""The derivation of a decode kernel from a GPU's limits, and shared memory lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from devices import needs_tools
from hypothesis import given, settings
from hypothesis import strategies as st

from labtools.derive import derive
from labtools.derive.decode.facts import tile_work
from labtools.derive.sm import share_in_flight
from labtools.predict import Tile, check_tile, forecast, half_tile, load_gpu, machine_of
from labtools.predict.banks import Access, check_access
from labtools.problem import HEADLINE, LabError, Workload, load_rung

H200 = load_gpu("h200")
MACHINE = machine_of(H200)
RUNGS = {16: "r09", 8: "r10", 4: "r11"}
SHAPES = (
    *("8,32,8,4096,128", "1,32,8,4096,128", "8,32,8,1024,128", "64,32,8,2048,128"),
    *("1,32,8,131072,128", "8,64,8,16384,128", "16,32,32,4096,128"),
)


def test_one_element_of_padding_is_found_misaligned() -> None:
    found = check_tile(half_tile(64, 64, 1), ("copy", "matrix", "column"))
    copy, matrix, column = found.accesses
    # 130 bytes per row: only every eighth row begins at a multiple of 16.
    assert found.stride_mod_16 == 2
    assert found.misaligned_rows == 56
    assert found.first_misaligned == 0x82
    assert found.faults and copy.faults and matrix.faults and not column.faults
    assert not found.conflict_free


@pytest.mark.parametrize(
    ("padding", "aligned", "column_ways", "matrix_free"),
    [(0, True, 32, False), (1, False, 2, False), (2, False, 1, False), (8, True, 4, True)],
)
def test_padding_of_a_tile_of_64_columns(
    padding: int, aligned: bool, column_ways: int, matrix_free: bool
) -> None:
    found = check_tile(half_tile(64, 64, padding), ("matrix", "column"))
    matrix, column = found.accesses
    assert found.faults is not aligned
    assert column.wavefronts == column_ways
    assert matrix.conflict_free is matrix_free
    assert found.padding_bytes == 64 * 2 * padding


@pytest.mark.parametrize("rows", [32, 64])
@pytest.mark.parametrize("row_bytes", [64, 128])
def test_layouts_of_codes(rows: int, row_bytes: int) -> None:
    tile = Tile(rows, row_bytes, None, "codes")
    assert check_tile(tile, ("copy", "codes_of_k", "codes_of_v")).conflict_free
    plain = check_tile(Tile(rows, row_bytes), ("codes_of_k", "codes_of_v"))
    assert not any(one.conflict_free for one in plain.accesses)


@given(
    rows=st.sampled_from([16, 32, 64]),
    chunks=st.sampled_from([4, 8, 16]),
    layout=st.sampled_from(["plain", "xor", "codes"]),
)
@settings(max_examples=40, deadline=None)
def test_a_layout_loses_no_byte(rows: int, chunks: int, layout: str) -> None:
    if layout == "codes" and (rows % 32 or chunks == 16):
        return
    tile = Tile(rows, 16 * chunks, None, layout)
    row, byte = np.divmod(np.arange(tile.bytes), tile.row_bytes)
    assert sorted(tile.address(row, byte)) == list(range(tile.bytes))


@given(stride=st.integers(16, 600), width=st.sampled_from([4, 8, 16]))
@settings(max_examples=60, deadline=None)
def test_conflicts_against_counting_every_bank(stride: int, width: int) -> None:
    tile = Tile(32, 16, stride)
    access = Access("rows", width, np.arange(32), np.zeros(32, int), 128 // width)
    found = check_access(tile, access)
    turns = 0
    for first in range(0, 32, access.group):
        banks: dict[int, set[int]] = {}
        for lane in range(first, first + access.group):
            for byte in range(lane * stride, lane * stride + width, 4):
                banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        turns += max(len(words) for words in banks.values())
    if all(lane * stride % 4 == 0 for lane in range(32)):
        assert found.wavefronts == turns
    misaligned = [lane * stride for lane in range(32) if lane * stride % width]
    assert found.misaligned_lanes == len(misaligned)
    assert found.first_misaligned == min(misaligned, default=None)


def test_tiles_that_are_none() -> None:
    for wrong in (
        lambda: Tile(0, 16),
        lambda: Tile(4, 16, 8),
        lambda: Tile(4, 16, None, "diagonal"),
        lambda: Tile(16, 96, None, "xor"),
        lambda: Tile(16, 128, 130, "xor"),
        lambda: Tile(16, 128, None, "codes"),
        lambda: check_tile(Tile(16, 128), ("sideways",)),
    ):
        with pytest.raises(LabError):
            wrong()


def test_bytes_in_flight_and_their_share_are_inverse() -> None:
    for share in (0.3, 0.8, 0.95, 0.99):
        assert share_in_flight(MACHINE.bytes_in_flight(share), MACHINE) == pytest.approx(share)
    # The law agrees with what the microbenchmark measured at such points.
    from labtools.predict.latencies import load_latencies

    curve = load_latencies(H200).curve("hbm")
    ceiling = max(point["gb_per_s"] for point in curve)
    for point in curve:
        if point["loads"] <= 2 and point["bytes_per_lane"] == 16:
            share = share_in_flight(point["in_flight_bytes_per_sm"], MACHINE)
            assert share == pytest.approx(point["gb_per_s"] / ceiling, rel=0.12)


@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("name", ["h200", "h100", "a100-80gb", "rtx4090", "l4"])
def test_a_design_is_whole_and_fits(name: str, bits: int) -> None:
    gpu = load_gpu(name)
    for text in (*SHAPES, "3,12,4,777,64", "2,64,4,300,128"):
        workload = Workload.parse(text)
        if workload.head_dim * bits // 8 < 64:
            continue
        design = derive(workload, gpu, bits)
        assert design.warps * design.stages * design.tile_bytes <= design.smem_bytes
        assert design.smem_bytes <= gpu.smem_per_block_bytes
        assert design.stages >= (2 if bits == 16 else 1) and design.tile_keys % 16 == 0
        assert design.blocks == design.parts * workload.batch * workload.num_kv_heads
        turns = -(-workload.kv_len // (design.warps * design.tile_keys))
        assert 1 <= design.parts < turns + design.cluster
        assert design.parts % design.cluster == 0
        assert design.cluster == 1 or gpu.compute_capability >= (9, 0)
        assert design.group_columns[0] <= design.group_columns[1]
        assert design.time_us == pytest.approx(sum(one.value for one in design.time_stack))
        assert design.time_us > design.step("bytes").answer.value


def test_other_gpus_get_other_designs() -> None:
    made = {name: derive(HEADLINE, name) for name in ("h200", "h100", "a100-80gb", "rtx4090", "l4")}
    # Less rate an SM, fewer bytes on the way.
    need = {name: one.step("in_flight").answer.value for name, one in made.items()}
    assert need["h200"] > need["h100"] > need["rtx4090"] > need["l4"]
    room = {name: one.step("stages").answer.value * one.warps_per_sm for name, one in made.items()}
    assert room["h200"] > room["h100"] > room["rtx4090"]
    assert len({(one.stages, one.cluster, one.blocks, one.warps) for one in made.values()}) >= 4
    assert made["h200"].calibrated and not made["l4"].calibrated


def test_fewer_bits_need_more_keys_at_a_time() -> None:
    made = {bits: derive(HEADLINE, "h200", bits) for bits in (16, 8, 4)}
    plain = {
        bits: one.step("arithmetic").result("issue slots, CUDA cores") for bits, one in made.items()
    }
    assert plain[16] < plain[8] < plain[4] and plain[4] > 1
    keys = [made[bits].warps_per_sm * made[bits].tile_keys for bits in (16, 8, 4)]
    assert keys == sorted(set(keys))
    assert made[16].time_us > made[8].time_us > made[4].time_us


def test_a_larger_group_uses_more_columns() -> None:
    for group, columns in ((1, 8), (4, 8), (8, 8), (16, 16)):
        design = derive(Workload(8, 8 * group, 8, 4096, 128), "h200")
        assert design.group_columns == (group, columns)
    one, many = (derive(Workload(8, 8 * g, 8, 4096, 128), "h200") for g in (1, 16))
    shares = [d.step("arithmetic").result("issue slots, CUDA cores") for d in (one, many)]
    assert shares[0] < 0.25 and shares[1] > 1


@given(
    batch=st.integers(1, 64),
    heads=st.sampled_from([1, 2, 3, 4, 8, 16]),
    group=st.integers(1, 8),
    kv_len=st.integers(1, 200_000),
    name=st.sampled_from(["h200", "h100", "h100-pcie", "a100-80gb", "rtx4090", "rtx5090", "l4"]),
    bits=st.sampled_from([16, 8, 4]),
)
@settings(max_examples=40, deadline=None)
def test_derivation_and_launch_have_one_layout(
    batch: int, heads: int, group: int, kv_len: int, name: str, bits: int
) -> None:
    workload, gpu = Workload(batch, heads * group, heads, kv_len, 128), load_gpu(name)
    rung, design = load_rung(RUNGS[bits]), derive(workload, gpu, bits)
    knobs = {"tile": design.tile_keys} if bits < 16 else {}
    launch = rung.launches(workload, gpu.limits, knobs)[-1]
    assert launch.num_blocks == design.blocks
    assert launch.grid[0] == design.parts
    assert launch.num_threads == 32 * design.warps
    assert launch.smem_bytes == design.smem_bytes
    defines = rung.defines(workload, gpu.limits, knobs)
    assert (defines["CLUSTER"], defines["STAGES"]) == (str(design.cluster), str(design.stages))


@needs_tools
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_the_derived_knobs_are_forecast_as_fast_as_the_defaults(bits: int) -> None:
    rung = load_rung(RUNGS[bits])
    design = derive(HEADLINE, "h200", bits)
    wanted = {"warps": design.warps, "stages": design.stages, "tile": design.tile_keys}
    known = {knob.name: knob.choices for knob in rung.knobs}
    knobs = {name: n for name, n in wanted.items() if n in known.get(name, ())}
    derived, default = (forecast(rung, HEADLINE, H200, chosen) for chosen in (knobs, {}))
    assert derived.time_us <= 1.05 * default.time_us
    assert derived.time_us == pytest.approx(design.time_us, rel=0.2)


@needs_tools
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_instructions_and_cycles_of_a_tile(bits: int) -> None:
    rung = load_rung(RUNGS[bits])
    keys = rung.resolve_knobs().get("tile", 16)
    # One block an SM, alone: long enough that most of the loop is whole trips.
    made = forecast(rung, Workload(1, 8, 2, 65536, 128), H200, {"split": 8, "warps": 4})
    work = tile_work(keys, 128, bits, MACHINE)
    chain = made.main_launch.chain
    assert len(chain) == pytest.approx(work.instructions, rel=0.1)
    products = sum("HMMA" in link.text for link in chain)
    assert products == pytest.approx(work.products, rel=0.1)
    waiting = sum(link.cycles.get("memory: async copy", 0.0) for link in chain)
    assert chain[-1].issue - waiting == pytest.approx(work.cycles, rel=0.3)
