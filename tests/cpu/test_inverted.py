"""r09 to r11: how their blocks are laid out, and what the CPU runner says of planted mistakes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from labtools.measure.cpu import run_on_cpu
from labtools.problem import LabError, Workload, attention_oracle, load_rung, make_inputs
from labtools.problem.block_plan import SMEM_OF_BLOCK, SMEM_OF_SM, clusters_that_fit, plan_of
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
    plan = plan_of(load_rung(name), workload)
    assert plan.pieces * plan.piece_len >= workload.kv_len
    assert plan.pieces % plan.cluster == 0
    assert (plan.pieces - plan.cluster) * plan.piece_len < workload.kv_len
    assert 0 < plan.smem_bytes <= SMEM_OF_BLOCK
    assert plan.stages >= 1 and plan.warps in (1, 2, 4, 8)


def test_few_pairs_are_shared_by_clusters_and_many_are_not() -> None:
    rung = load_rung("r09")
    assert plan_of(rung, Workload.parse("1,32,8,4096,128")).cluster == 8
    assert plan_of(rung, Workload.parse("8,32,8,4096,128")).cluster == 2
    many = plan_of(rung, Workload.parse("64,32,8,2048,128"))
    assert (many.cluster, many.pieces) == (1, 1)
    # Clusters of eight would leave half of the multiprocessors without work.
    long = plan_of(rung, Workload.parse("1,32,8,131072,128"))
    assert (long.cluster, long.pieces) == (2, 16)


@pytest.mark.parametrize("name", NAMES)
def test_clusters_that_do_not_fit_alone_share_multiprocessors(name: str) -> None:
    rung = load_rung(name)
    assert clusters_that_fit(8, 132) == 15
    alone = plan_of(rung, Workload.parse("1,32,8,8192,128"))
    assert (alone.cluster, alone.pairs, alone.blocks_per_sm) == (8, 8, 1)
    shared = plan_of(rung, Workload.parse("2,32,8,8192,128"))
    assert (shared.cluster, shared.pairs, shared.blocks_per_sm) == (8, 16, 2)
    assert 2 * shared.smem_bytes < SMEM_OF_SM


@pytest.mark.parametrize(
    ("batch", "warps", "blocks_per_sm"), [(24, 4, 2), (37, 4, 3), (64, 2, 4), (128, 4, 2)]
)
def test_blocks_that_share_a_multiprocessor_are_smaller(
    batch: int, warps: int, blocks_per_sm: int
) -> None:
    for name in NAMES:
        plan = plan_of(load_rung(name), Workload(batch, 32, 8, 2048, 128))
        assert (plan.pieces, plan.warps, plan.blocks_per_sm) == (1, warps, blocks_per_sm)


def test_lengths_that_differ_are_cut() -> None:
    ragged = Workload(24, 32, 8, 8192, 128, seq_lens=(8192,) + (100,) * 23)
    assert plan_of(load_rung("r09"), ragged).pieces > 1


def test_a_layout_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LabError, match="do not fit"):
        load_rung("r10").launches(Workload(1, 4, 1, 4096, 128), {"warps": 8, "stages": 6})


@pytest.mark.parametrize(("name", "knobs"), [("r09", {}), ("r10", {}), ("r11", {"warps": 4})])
def test_a_ring_of_one_tile_is_refused_where_a_warp_has_more(
    name: str, knobs: dict[str, int]
) -> None:
    rung, workload = load_rung(name), Workload(1, 32, 8, 4096, 128)
    assert plan_of(rung, workload, knobs).tiles_of_warp > 1
    with pytest.raises(LabError, match="one tile"):
        rung.launches(workload, {**knobs, "stages": 1})
    # One tile each: then nothing is left over, and the rule takes a ring of one by itself.
    assert plan_of(load_rung("r11"), workload).stages == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_there_is_a_path_without_clusters(name: str, arch: str) -> None:
    rung = load_rung(name)
    assert not rung.runs_on("sm_75")
    try:
        cubin = compile_rung(rung, Workload(1, 4, 1, 4096, 128), {"cluster": 4}, arch)
    except CompilerMissing as missing:
        pytest.skip(missing.what)
    (decode,) = [entry for entry in cubin.entries if entry.startswith("decode")]
    assert cubin.entries[decode].spill_store_bytes == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  __syncthreads();\n  join_and_store", "  join_and_store"),
        ("    wait_for_copies<STAGES - 2>();\n    __syncwarp();", "    wait_for_copies<0>();"),
    ],
)
def test_a_planted_race_is_flagged(old: str, new: str) -> None:
    rung = load_rung("r09")
    assert old in rung.source_text
    wrong = rung.with_source(rung.source_text.replace(old, new, 1))
    run = run_on_cpu(wrong, Workload(1, 8, 2, 300, 128), {"warps": 2, "stages": 2})
    assert not run.ok


def test_a_maximum_that_never_moves_is_wrong() -> None:
    rung = load_rung("r09")
    wrong = rung.with_source(
        rung.source_text.replace(
            "if (__any_sync(0xffffffffu, far_above)) raise_max", "if (false) raise_max"
        )
    )
    assert wrong.edited
    assert not run_on_cpu(wrong, Workload(1, 4, 1, 100, 128), orders=(0,)).ok


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


@pytest.mark.parametrize("name", ["r10", "r11"])
@pytest.mark.parametrize("kv_len", [20, 100, 259])
def test_warps_without_keys_read_nothing_that_nobody_wrote(name: str, kv_len: int) -> None:
    """Warps that share the scaling of q: some have no keys, or none of their neighbours has."""
    workload = Workload(2, 2, 1, kv_len, 128, seq_lens=(kv_len, 7), distribution="late_peaked")
    for knobs in ({}, {"warps": 8}, {"warps": 4, "split": 1}):
        run = run_on_cpu(load_rung(name), workload, knobs)
        assert run.ok, f"{knobs}: {run}"
