"""r09 to r11: how their blocks are laid out, and what the CPU runner says of planted mistakes."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from devices import LIMITS, some_of
from hypothesis import given, settings
from hypothesis import strategies as st

from labtools.measure.cpu import run_on_cpu
from labtools.predict import forecast, load_gpu
from labtools.problem import LabError, Workload, attention_oracle, load_rung, make_inputs
from labtools.problem.decode.block_plan import (
    MEMORY_JOIN_US,
    REACHED,
    REST_US,
    RESULT_US,
    BlockPlan,
    choose_division,
    divisions,
    plan_of,
)
from labtools.toolchain import CompilerMissing, compile_rung

NAMES = ("r09", "r10", "r11")
SHAPES = (
    *("8,32,8,4096,128", "1,32,8,4096,128", "64,32,8,2048,128", "1,32,8,131072,128"),
    *("16,32,32,4096,128", "1,8,1,17,128", "3,7,1,333,128", "12,32,8,4096,128"),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_is_in_one_piece_and_every_block_fits(name: str, shape: str) -> None:
    workload = Workload.parse(shape)
    plan = plan_of(load_rung(name), workload, LIMITS)
    assert plan.pieces * plan.piece_len >= workload.kv_len
    assert plan.pieces % plan.cluster == 0
    assert (plan.pieces - plan.cluster) * plan.piece_len < workload.kv_len
    assert 0 < plan.smem_bytes <= LIMITS.smem_per_block_bytes
    assert plan.stages >= 1 and plan.warps in (1, 2, 4, 8)


LAID_OUT = (
    ("r09", "1,32,8,4096,128", {"cluster": 8}),
    ("r09", "8,32,8,4096,128", {"cluster": 2}),
    ("r09", "64,32,8,2048,128", {"cluster": 1, "pieces": 1}),
    # Half of the multiprocessors keep up with memory on an fp16 cache, and not on smaller codes.
    ("r09", "1,32,8,131072,128", {"cluster": 8, "pieces": 8}),
    ("r10 r11", "1,32,8,131072,128", {"cluster": 2, "pieces": 16}),
    # Clusters that do not fit alone share multiprocessors.
    ("r09 r10 r11", "1,32,8,8192,128", {"cluster": 8, "pairs": 8, "blocks_per_sm": 1}),
    ("r09 r10 r11", "2,32,8,4096,128", {"cluster": 8, "pairs": 16, "blocks_per_sm": 2}),
    # Blocks that share a multiprocessor are smaller.
    ("r09 r10 r11", "24,32,8,2048,128", {"pieces": 1, "warps": 4, "blocks_per_sm": 2}),
    ("r09", "37,32,8,2048,128", {"pieces": 1, "warps": 4, "blocks_per_sm": 3}),
    # Twelve warps would have too few registers each.
    ("r10 r11", "37,32,8,2048,128", {"pieces": 1, "warps": 2, "blocks_per_sm": 3}),
    # No warp has much more than its share of the keys, and one alone never has.
    ("r11", "24,32,8,1400,128", {"piece_len": 1536, "warps": 4, "run": 2}),
    ("r10 r11", "128,32,8,300,128", {"piece_len": 320, "warps": 1, "blocks_per_sm": 8}),
    ("r09 r10 r11", "64,32,8,2048,128", {"pieces": 1, "warps": 2, "blocks_per_sm": 4}),
    ("r09 r10 r11", "128,32,8,2048,128", {"pieces": 1, "warps": 4, "blocks_per_sm": 2}),
)


@pytest.mark.parametrize(("names", "text", "laid_out"), LAID_OUT)
def test_pairs_are_laid_out_as_the_rule_has_it(
    names: str, text: str, laid_out: dict[str, int]
) -> None:
    assert LIMITS.clusters_that_fit(8) == 15
    for name in names.split():
        plan = plan_of(load_rung(name), Workload.parse(text), LIMITS)
        assert {key: getattr(plan, key) for key in laid_out} == laid_out
        assert plan.blocks_per_sm * plan.smem_bytes < LIMITS.smem_per_sm_bytes


def test_lengths_that_differ_are_cut() -> None:
    ragged = Workload(24, 32, 8, 8192, 128, seq_lens=(8192,) + (100,) * 23)
    assert plan_of(load_rung("r09"), ragged, LIMITS).pieces > 1


@pytest.mark.parametrize(
    ("name", "knobs", "gpu", "words"),
    [
        ("r10", {"warps": 8, "stages": 6}, "h200", "do not fit"),
        ("r09", {"stages": 1}, "h200", "one tile"),
        ("r10", {"stages": 1}, "h200", "one tile"),
        ("r11", {"warps": 4, "stages": 1}, "h200", "one tile"),
        ("r09", {"cluster": 4}, "l4", "no clusters of 4"),
        ("r03", {}, "h200", "no layout"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(
    name: str, knobs: dict[str, int], gpu: str, words: str
) -> None:
    workload = Workload(1, 32, 8, 4096, 128)
    with pytest.raises(LabError, match=words):
        plan_of(load_rung(name), workload, load_gpu(gpu).limits, knobs)
    # One tile each: then nothing is left over, and the rule takes a ring of one by itself.
    assert plan_of(load_rung("r11"), workload, LIMITS).stages == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arch", some_of(["sm_80", "sm_89"], 1))
def test_there_is_a_path_without_clusters(name: str, arch: str) -> None:
    rung = load_rung(name)
    assert not rung.runs_on("sm_75")
    try:
        cubin = compile_rung(rung, Workload(1, 4, 1, 4096, 128), LIMITS, {"cluster": 4}, arch)
    except CompilerMissing as missing:
        pytest.skip(missing.what)
    (decode,) = [entry for entry in cubin.entries if entry.startswith("decode")]
    assert cubin.entries[decode].spill_store_bytes == 0


@pytest.mark.parametrize("name", ["r10", "r11"])
def test_queries_past_fp16_are_refused_where_their_type_holds_them(name: str) -> None:
    kinds = {dtype: Workload(2, 6, 2, 33, 128, dtype=dtype) for dtype in ("float16", "bfloat16")}
    small = {d: dataclasses.replace(one, distribution="small_v") for d, one in kinds.items()}
    supports = load_rung(name).supports
    assert [supports(one) for one in (*kinds.values(), small["float16"])] == [None] * 3
    assert "65504" in (supports(small["bfloat16"]) or "")
    assert np.abs(make_inputs(small["bfloat16"]).q.astype(np.float32)).max() > 65504


@pytest.mark.parametrize("name", NAMES)
def test_a_head_of_nan_ends_and_leaves_the_others_right(name: str) -> None:
    workload = Workload(1, 4, 1, 300, 128)
    inputs = make_inputs(workload)
    q = inputs.q.copy()
    q[0, 1] = np.nan
    rung = dataclasses.replace(load_rung(name), tolerance=0.5)
    run = run_on_cpu(
        rung, workload, orders=(0,), inputs=dataclasses.replace(inputs, q=q), time_limit_s=60
    )
    expected, _ = attention_oracle(inputs)
    for head in (0, 2, 3):
        out = run.out[0, head].astype(np.float64)
        error = np.linalg.norm(out - expected[0, head]) / np.linalg.norm(expected[0, head])
        assert error < 0.3, head
    assert np.isnan(run.out[0, 1].astype(np.float64)).all()


@pytest.mark.parametrize(
    ("name", "kv_len"),
    some_of([(name, kv_len) for name in ("r10", "r11") for kv_len in (20, 100, 259)], 2),
    ids=str,
)
def test_warps_without_keys_read_nothing_that_nobody_wrote(name: str, kv_len: int) -> None:
    """Warps that share the scaling of q: some have no keys, or none of their neighbours has."""
    workload = Workload(2, 2, 1, kv_len, 128, seq_lens=(kv_len, 7), distribution="late_peaked")
    for knobs in ({}, {"warps": 8}, {"warps": 4, "split": 1}):
        run = run_on_cpu(load_rung(name), workload, knobs)
        assert run.ok, f"{knobs}: {run}"


@pytest.mark.parametrize("name", NAMES)
def test_no_multiprocessor_is_idle_where_splitting_pays(name: str) -> None:
    rung = load_rung(name)
    for gpu, text in (("h200", "1,8,1,250000,128"), ("h100", "1,8,1,131072,128")):
        limits = load_gpu(gpu).limits
        plan = plan_of(rung, Workload.parse(text), limits)
        assert plan.pieces >= 0.45 * limits.num_sms
    # Where there are no clusters, blocks join through memory.
    ampere = plan_of(rung, Workload.parse("1,8,1,131072,128"), load_gpu("a100-80gb").limits)
    assert ampere.cluster == 1 and ampere.pieces >= 48


TIMED = json.loads(Path(__file__).with_name("layouts_h200.json").read_text())
"""Written by research/compare_layouts.py on an NVIDIA H200: workload, rung, and microseconds by
cluster and pieces asked for."""


@pytest.mark.parametrize(("text", "name", "timed"), TIMED, ids=lambda one: str(one)[:20])
def test_the_rule_against_timed_layouts(text: str, name: str, timed: dict[str, float]) -> None:
    rung, workload = load_rung(name), Workload.parse(text)

    def key(plan: BlockPlan) -> tuple[int, ...]:
        return (plan.cluster, plan.pieces, plan.warps, plan.piece_len)

    found = {}
    for asked, us in timed.items():
        cluster, split = map(int, asked.split("x"))
        found[key(plan_of(rung, workload, LIMITS, {"cluster": cluster, "split": split}))] = us
    chosen = key(plan_of(rung, workload, LIMITS))
    if chosen in found:
        assert found[chosen] <= 1.1 * min(found.values())
    else:  # a neighbour of it was timed
        assert min(abs(chosen[1] / pieces - 1) for _, pieces, _, _ in found) <= 0.5


def test_most_of_the_choices_were_timed() -> None:
    chosen = 0
    for text, name, timed in TIMED:
        workload, rung = Workload.parse(text), load_rung(name)
        plan = plan_of(rung, workload, LIMITS)
        pairs = [map(int, one.split("x")) for one in timed]
        asked = [{"cluster": cluster, "split": split} for cluster, split in pairs]
        chosen += plan in [plan_of(rung, workload, LIMITS, knobs) for knobs in asked]
    assert chosen >= 0.85 * len(TIMED)


MANY_PAIRS = json.loads(Path(__file__).with_name("many_pairs_h200.json").read_text())
"""Timed beside each other on an NVIDIA H200: workload, rung, microseconds with a block for each
pair; the layout of the rule (cluster, pieces, keys, warps, stages, blocks of a multiprocessor) and
its microseconds; those of r09."""


@pytest.mark.parametrize(
    ("text", "name", "whole_us", "layout", "us", "r09_us"),
    MANY_PAIRS,
    ids=lambda one: str(one)[:20],
)
def test_many_pairs_are_cut_as_was_timed(
    text: str, name: str, whole_us: float, layout: list[int], us: float, r09_us: float
) -> None:
    plan = plan_of(load_rung(name), Workload.parse(text), LIMITS)
    found = [plan.cluster, plan.pieces, plan.piece_len, plan.warps, plan.stages]
    assert [*found, plan.blocks_per_sm] == layout
    assert us < whole_us and us < r09_us


@given(
    batch=st.integers(1, 40),
    heads=st.integers(1, 16),
    kv_len=st.integers(1, 300_000),
    gpu=st.sampled_from(["h200", "h100", "b200", "rtx5090", "a100-80gb", "rtx4090", "l4"]),
    name=st.sampled_from(NAMES),
)
@settings(max_examples=60, deadline=None)
def test_what_the_rule_chooses_is_near_the_least_time(
    batch: int, heads: int, kv_len: int, gpu: str, name: str
) -> None:
    workload, limits = Workload(batch, heads, heads, kv_len, 128), load_gpu(gpu).limits
    plan = plan_of(load_rung(name), workload, limits)
    ways = divisions(workload, limits, plan.kernel)
    chosen = choose_division(ways)
    least = min(way.time_us for way in ways)
    assert chosen.time_us <= max(1.05 * (least + 2.2) - 2.2, least + 0.3) + 1e-6
    assert plan.cluster == chosen.cluster and plan.pieces <= chosen.pieces
    assert plan.pieces * plan.piece_len >= kv_len
    assert plan.cluster <= limits.largest_cluster
    if batch * heads <= limits.num_sms // 2:  # all start at once, two to a multiprocessor at most
        assert plan.pairs * plan.pieces <= 2 * limits.num_sms


@given(
    pairs=st.integers(67, 200),
    group=st.integers(1, 8),
    kv_len=st.integers(64, 40_000),
    name=st.sampled_from(NAMES),
)
@settings(max_examples=150, deadline=None)
def test_no_number_of_pieces_leaves_fewer_idle_by_what_pays(
    pairs: int, group: int, kv_len: int, name: str
) -> None:
    """Against every number of single blocks that start at once, with no list of ways to try."""
    rung, workload = load_rung(name), Workload(pairs, group, 1, kv_len, 128)
    chosen = plan_of(rung, workload, LIMITS)
    kernel = chosen.kernel
    memory_us = pairs * kv_len * kernel.key_bytes / (REACHED * LIMITS.dram_gb_per_s * 1e3)

    def busy_us(plan: BlockPlan) -> float:
        """Of the multiprocessor with the most blocks, if they share its rate evenly."""
        held = -(-plan.pairs * plan.pieces // LIMITS.num_sms)
        rate = kernel.sm_gb_per_s[8 if held * plan.warps >= 8 else 4] * 1e3
        return held * min(plan.piece_len, kv_len) * kernel.key_bytes / rate

    if chosen.cluster > 1:
        return  # clusters have other joins
    join_us = MEMORY_JOIN_US + RESULT_US * group * chosen.pieces if chosen.pieces > 1 else 0.0
    taken_us = max(memory_us, busy_us(chosen)) + join_us
    for pieces in range(2, 4 * LIMITS.num_sms // pairs + 1):
        plan = plan_of(rung, workload, LIMITS, {"cluster": 1, "split": pieces})
        at_once = plan.blocks_per_sm * LIMITS.num_sms
        if pairs * plan.pieces > at_once or plan.warps * plan.blocks_per_sm > 8:
            continue
        if plan.run != chosen.run:  # warps that scale q anew more often have more to do
            continue
        other_us = max(memory_us, busy_us(plan)) + MEMORY_JOIN_US + RESULT_US * group * pieces
        assert taken_us <= max(1.10 * (other_us + REST_US) - REST_US, other_us + 0.6), pieces


@pytest.mark.parametrize("shape", ["9,32,8,16384,128", "17,32,8,16384,128", "18,32,8,16384,128"])
def test_a_few_pairs_more_than_the_multiprocessors_or_their_half_are_cut(shape: str) -> None:
    workload, gains = Workload.parse(shape), {"r10": 0.95, "r11": 0.9}
    for name in NAMES:
        rung = load_rung(name)
        plan = plan_of(rung, workload, LIMITS)
        ways = divisions(workload, LIMITS, plan.kernel)
        whole, chosen = next(way for way in ways if way.pieces == 1), choose_division(ways)
        if name not in gains:  # there memory is kept busy by the multiprocessors that have blocks
            assert chosen is whole and plan.pieces == 1
            continue
        assert plan.pieces > 1 and chosen.sms > whole.sms
        assert chosen.time_us < gains[name] * whole.time_us
        assert plan.pairs * plan.pieces <= plan.blocks_per_sm * LIMITS.num_sms  # all start at once


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "name", "pieces"),
    some_of(list(itertools.product((9, 10, 11, 17, 18, 19), ("r10", "r11"), (1, 2, 3))), 1),
    ids=str,
)
def test_by_the_forecast_no_single_blocks_are_much_sooner(
    batch: int, name: str, pieces: int
) -> None:
    rung, gpu = load_rung(name), load_gpu("h200")
    workload = Workload(batch, 32, 8, 16384, 128)
    chosen = forecast(rung, workload, gpu).time_us
    other = forecast(rung, workload, gpu, {"cluster": 1, "split": pieces}).time_us
    assert chosen <= 1.05 * other


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pairs", some_of([70, 80, 90, 100, 130, 140, 150, 170, 280], 3), ids=str)
def test_a_pair_that_is_cut_keeps_all_its_registers(pairs: int, name: str) -> None:
    rung, workload = load_rung(name), Workload(pairs, 4, 1, 9000, 128)
    plan = plan_of(rung, workload, LIMITS)
    assert plan.pieces == 1 or plan.warps * plan.blocks_per_sm <= plan.kernel.most_warps(LIMITS)
    if plan.pieces == 1:
        return
    try:
        cubin = compile_rung(rung, workload, LIMITS, arch="sm_90")
    except CompilerMissing as missing:
        pytest.skip(missing.what)
    (decode,) = [entry for entry in cubin.entries if entry.startswith("decode")]
    assert cubin.entries[decode].spill_store_bytes == 0
