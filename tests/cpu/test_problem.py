"""What is computed: workloads, inputs, the oracle and the comparison."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from devices import LIMITS

import labtools.problem as lp
from labtools.problem import loading

SMALL = lp.Workload(2, 4, 2, 33, 64)


WORKLOADS = lp.draw_workloads(60, 3, lp.kernel_supports(), longest=60)


def test_json_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(SMALL.replace(seq_lens=(33, 7)).to_dict()))
    assert lp.Workload.parse(str(path)).seq_lens == (33, 7)


@pytest.mark.parametrize("seed", [4, 5])
def test_inputs_are_finite_and_past_the_length_stands_padding(seed: int) -> None:
    """NaN with an even seed; with an odd one the keys over again, with other values."""
    for workload in WORKLOADS:
        inputs = lp.make_inputs(workload.replace(seed=seed))
        for sequence, length in enumerate(workload.lengths):
            for array in (inputs.k, inputs.v):
                assert np.isfinite(array[sequence, :, :length]).all()
                padding = array[sequence, :, length:]
                assert (np.isfinite(padding) if seed % 2 else np.isnan(padding)).all()


def test_some_keys_of_padding_would_outweigh_all_others() -> None:
    for dtype in ("float16", "bfloat16"):
        small = SMALL.replace(kv_len=40, seq_lens=(33, 7), seed=5, dtype=dtype)
        inputs = lp.make_inputs(small)
        for sequence, length in enumerate(small.lengths):
            k = np.abs(inputs.k[sequence].astype(np.float32)).max(axis=-1)
            assert (k[:, length:].max(axis=-1) > 100 * k[:, :length].min(axis=-1)).all()


@pytest.mark.parametrize("seed", [4, 5])
def test_padding_in_pages_is_nan_or_looks_like_keys(seed: int) -> None:
    workload = SMALL.replace(batch=3, kv_len=40, seq_lens=(40, 1, 18), layout="paged", page_size=16)
    inputs = lp.make_inputs(workload.replace(seed=seed))
    finite = np.isfinite(inputs.k[:, 0, :, 0].astype(np.float32))
    assert finite.all() if seed % 2 else finite.sum() == 40 + 1 + 18
    for sequence, length in enumerate(workload.lengths):
        assert all(np.isfinite(rows).all() for rows in inputs.kv_rows(sequence, 0)), length


def scores(workload: lp.Workload) -> np.ndarray:
    inputs = lp.make_inputs(workload)
    k = inputs.k[0, 0, : workload.lengths[0]].astype(np.float64)
    return inputs.sm_scale * k @ inputs.q[0, 0].astype(np.float64)


def test_each_distribution_does_what_it_is_for() -> None:
    workload = SMALL.replace(kv_len=256)
    late = scores(workload.replace(distribution="late_peaked"))
    assert late[-4:].min() > late[:-4].max() + 4
    rising = scores(workload.replace(distribution="rising"))
    records = np.maximum.accumulate(rising)
    assert (np.diff(records) > 0).sum() > 20
    large = scores(workload.replace(distribution="large", kv_len=1))
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(large.astype(np.float32))).all()
    one_hot = np.sort(scores(workload.replace(distribution="one_hot")))
    assert one_hot[-1] > one_hot[-2] + 30
    v = lp.make_inputs(workload.replace(distribution="constant_v")).v
    assert (v == v[:, :, :1]).all()


def test_oracle_agrees_with_the_textbook_formula() -> None:
    for workload in WORKLOADS:
        inputs = lp.make_inputs(workload)
        out, lse = lp.attention_oracle(inputs)
        for sequence, head in np.ndindex(*lse.shape):
            rows = inputs.kv_rows(sequence, head // workload.group_size)
            q, k, v = (one.astype(np.longdouble) for one in (inputs.q[sequence, head], *rows))
            found = k @ q * workload.sm_scale
            weights = np.exp(found - found.max())
            expected = weights @ v / weights.sum()
            np.testing.assert_allclose(out[sequence, head], expected, rtol=1e-9, atol=1e-12)
            total = found.max() + np.log(weights.sum())
            np.testing.assert_allclose(lse[sequence, head], total, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_comparison_accepts_rounding_and_rejects_the_rest(dtype: str) -> None:
    expected, _ = lp.attention_oracle(lp.make_inputs(SMALL.replace(dtype=dtype)))
    good = expected.astype(lp.element_dtype(dtype))
    assert lp.compare_output(good, expected).ok
    assert not lp.compare_output(good, expected, 1e-9).ok
    slightly = good.copy()
    slightly[1, 2] = (good[1, 2].astype(float) * 1.01).astype(good.dtype)
    assert not lp.compare_output(slightly, expected).ok
    for value in (np.nan, np.inf, -np.inf):
        bad = good.copy()
        bad[1, 2, 5] = value
        assert not lp.compare_output(bad, expected).ok
    stale = good.copy()
    stale[1, 2, 5] = lp.poisoned((1,), dtype)[0]
    verdict = lp.compare_output(stale, expected)
    assert not verdict.ok
    assert "never written, the first at axis 0 1, axis 1 2, axis 2 5" in verdict.problems[0]
    assert "the first at sequence 1, head 2, dim 5" in SMALL.compare(stale, expected).problems[0]
    one_head = good.copy()
    one_head[1, 3] = good[1, 2]
    assert lp.compare_output(one_head, expected).worst_index == (1, 3)
    assert not lp.compare_output(one_head, expected).ok
    assert not lp.compare_output(good[:1], expected).ok
    assert not lp.compare_output(good, np.full_like(expected, np.nan)).ok


def test_only_parts_that_the_oracle_computed_are_compared_and_named_by_their_places() -> None:
    inputs = lp.make_inputs(SMALL)
    whole, _ = lp.attention_oracle(inputs)
    some, _ = lp.attention_oracle(inputs, pairs=[(1, 3), (0, 2)])
    out = whole.astype(np.float16)
    out[0, 1] = np.nan  # nobody knows what is right there
    verdict = SMALL.compare(out, some)
    assert verdict.ok
    assert verdict.pairs == 2
    out[1, 3] = out[0, 2]
    assert SMALL.compare(out, some).worst_index == (1, 3)
    assert "1 of 2" in SMALL.compare(out, some).problems[0]
    out[1, 3, 7] = np.inf
    where = "1 elements NaN or infinite, the first at sequence 1, head 3, dim 7"
    assert where in str(SMALL.compare(out, some))


def test_one_wrong_head_is_not_lost_among_many() -> None:
    expected = np.random.default_rng(0).standard_normal((64, 64, 64))
    out = expected.astype(np.float16)
    out[40, 7] *= np.float16(1.01)
    assert not lp.compare_output(out, expected).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
def test_poison_is_recognised_bit_by_bit(dtype: str) -> None:
    array = lp.poisoned((5,), dtype)
    assert lp.is_poison(array).all()
    if "float" in dtype:
        assert np.isnan(array.astype(np.float64)).all()
    array[2] = np.nan if "float" in dtype else 0
    assert lp.is_poison(array).tolist() == [True, True, False, True, True]


def test_battery_covers_what_a_workload_leaves_out() -> None:
    cases = lp.battery(lp.Workload(1, 4, 4, 256, 128))
    assert cases[0].short() == "1,4,4,256,128"
    assert {case.distribution for case in cases} == set(lp.DISTRIBUTIONS)
    assert {1, 31, 33} <= {case.kv_len for case in cases}
    lengths = {int(n) for case in cases for n in case.lengths}
    assert set(range(1, 65)) | {127, 128, 129} <= lengths
    ragged = [case for case in cases if case.batch > 1 and case.seq_lens]
    for sequence in (0, 1, 2, -1):  # none of them is always full
        assert any(case.seq_lens[sequence] < case.kv_len for case in ragged)
    assert any(case.group_size > 1 and case.num_kv_heads > 1 for case in cases)
    assert {case.head_dim for case in cases} == {128}


def test_launch_refuses_what_would_crash_later() -> None:
    unknown = lp.Launch("f", (1,), (32,), args=("kk",))  # only the problem knows its buffers
    mistaken = lp.load_rung("r03").with_launch(lambda problem, limits, knobs: [unknown])
    with pytest.raises(lp.LabError, match="names a buffer 'kk'"):
        mistaken.launches(SMALL, LIMITS)
    with pytest.raises(lp.LabError, match="type int"):
        lp.Launch("f", (1,), (32,), args=(4,))
    with pytest.raises(lp.LabError, match="grid"):
        lp.Launch("f", (0,), (32,))
    space = lp.Workspace("w", (4,), "int32")
    launch = lp.Launch("f", (2, 3), (32,), args=("w",), workspace=(space,))
    assert launch.grid == (2, 3, 1)
    assert launch.num_blocks == 6
    assert launch.workspace[0].bytes == 16


def test_every_rung_changes_one_that_stands_before_it() -> None:
    rungs = lp.list_rungs()
    assert [rung.id[:3] for rung in rungs] == [f"r{i:02d}" for i in range(len(rungs))]
    for index, rung in enumerate(rungs[1:], start=1):
        (parent,) = (one for one in rungs[:index] if one.id == rung.parent)
        parent.resolve_knobs(rung.parent_knobs)
    assert rungs[0].parent is None


def test_unrolling_and_launch_bounds_are_equal_along_the_ladder() -> None:
    """Up to r07 no rung may win by its unrolling; from r08 on loads in flight are the idea."""
    defaults = [rung.resolve_knobs() for rung in lp.list_rungs() if rung.id < "r08"]
    assert len({(knobs["unroll"], knobs["launch_bounds"]) for knobs in defaults}) == 1


def test_rungs_are_found_by_id_number_and_path() -> None:
    by_id = lp.load_rung("r03_one_warp")
    assert lp.load_rung("r03").id == by_id.id == lp.load_rung(by_id.source.with_suffix(".py")).id
    with pytest.raises(lp.LabError, match="no rung"):
        lp.load_rung("r99")
    with pytest.raises(lp.LabError, match="no rung at"):
        lp.load_rung("/nowhere/mine.py")


def test_a_shipped_rung_is_loaded_anew_when_its_text_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = lp.load_rung("r03")
    assert lp.load_rung("r03_one_warp") is shipped
    folder = tmp_path / "kernels"
    monkeypatch.setattr(loading, "kernels_dir", lambda: folder)
    path, text = folder / "decode/r03_mine.py", shipped.source.with_suffix(".py").read_text()
    path.parent.mkdir(parents=True)
    path.write_text(text.replace("r03_one_warp", "r03_mine"))
    path.with_suffix(".cu").write_text(shipped.source_text)
    mine = lp.load_rung("r03")
    assert mine.id == "r03_mine" and lp.load_rung("r03") is mine and lp.load_rung(path) is mine
    path.write_text(path.read_text() + "\nRUNG = RUNG.with_source('// another text')\n")
    assert lp.load_rung("r03").source_text == "// another text"
    path.write_text("1 / 0\n")
    with pytest.raises(lp.LabError, match="could not be loaded"):
        lp.load_rung("r03")
    path.write_text(text)
    path.with_suffix(".cu").unlink()
    with pytest.raises(lp.LabError, match="no source"):
        lp.load_rung("r03")
    monkeypatch.setattr(loading, "kernels_dir", lambda: tmp_path / "elsewhere")
    path.with_suffix(".cu").write_text(shipped.source_text)
    assert lp.load_rung(path) is not lp.load_rung(path)  # a reader's own


def test_an_edited_copy_knows_that_it_is_edited() -> None:
    rung = lp.load_rung("r03")
    assert not rung.with_source(rung.source_text).edited
    assert rung.with_source(rung.source_text + "// mine\n").edited
    assert rung.with_launch(lambda workload, limits, knobs: []).edited
    with pytest.raises(lp.LabError, match="launches nothing"):
        rung.with_launch(lambda workload, limits, knobs: []).launches(SMALL, LIMITS)


@pytest.mark.parametrize("distribution", ["sunk", "one_hot"])
def test_under_a_mask_every_query_has_a_key_that_takes_all_the_weight(distribution: str) -> None:
    for seed in range(6):
        problem = lp.Prefill(2, 4, 2, 33, 64, causal=True, distribution=distribution, seed=seed)
        inputs = lp.PrefillAttention().draw(problem)
        for sequence, head in np.ndindex(2, 4):
            found = np.sort(inputs.scores(sequence, head, range(1, 33)))
            assert (found[:, -1] > found[:, -2] + 20).all()
