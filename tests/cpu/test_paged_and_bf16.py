"""Paged caches, bfloat16 and quantised caches: the problem, the CPU runner, the stand-in GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from devices import LIMITS
from hypothesis import given, settings
from hypothesis import strategies as st
from live_fake import use_fake_gpu

import labtools.problem as lp
from labtools.measure import check
from labtools.measure.cpu import run_on_cpu
from labtools.measure.gpu.job import Job
from labtools.measure.gpu.measure import time_candidates
from labtools.measure.gpu.plan import plan_rotation
from labtools.measure.gpu.runner import run_on_gpu
from labtools.problem.decode import operation as decode_operation

HERE = Path(__file__).parent
SMALL = lp.Workload(3, 4, 2, 97, 64)
FORMS = ("3,4,2,97,64", "3,4,2,97,64/bf16", "3,4,2,97,64/paged16", "3,4,2,97,64/bf16/paged64")
RAGGED = (97, 1, 64)
INT8_ROWS = lp.Scheme("rows", lp.StorageFormat("int8", "row"), lp.StorageFormat("int8", "row"))


@pytest.fixture
def rung() -> lp.Rung:
    return lp.load_rung(HERE / "split_merge.py")


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fake_gpu(monkeypatch, tmp_path)


def test_keys_of_contiguous_workloads_are_what_they_were() -> None:
    assert lp.HEADLINE.key() == (
        '{"batch":8,"cache_state":"cold","distribution":"normal","dtype":"float16",'
        '"head_dim":128,"kv_len":4096,"layout":"contiguous","num_kv_heads":8,'
        '"num_qo_heads":32,"seed":0,"seq_lens":null}'
    )
    keys = {lp.Workload.parse(text).key() for text in (*FORMS, "3,4,2,97,64/paged64")}
    assert len(keys) == len(FORMS) + 1


def test_bytes_of_a_paged_workload() -> None:
    workload = lp.Workload.parse(FORMS[2]).replace(seq_lens=RAGGED)
    assert workload.pages_used == 7 + 1 + 4
    assert workload.max_pages == 7
    assert workload.num_pages > workload.pages_used
    contiguous = SMALL.replace(seq_lens=RAGGED)
    assert workload.kv_bytes == contiguous.kv_bytes
    assert workload.minimal_bytes == contiguous.minimal_bytes + 4 * 12


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4),
    page_size=st.sampled_from((16, 64)),
    dtype=st.sampled_from(("float16", "bfloat16")),
    distribution=st.sampled_from(lp.DISTRIBUTIONS),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_pages_hold_what_a_contiguous_cache_holds(
    lengths: list[int], page_size: int, dtype: str, distribution: str, seed: int
) -> None:
    plain = lp.Workload(
        *(len(lengths), 4, 2, 70, 64),
        seq_lens=tuple(lengths),
        dtype=dtype,
        distribution=distribution,
        seed=seed,
    )
    workload = plain.replace(layout="paged", page_size=page_size)
    paged, contiguous = lp.make_inputs(workload), lp.make_inputs(plain)
    assert paged.k.shape == workload.kv_shape
    assert paged.page_table is not None
    assert contiguous.page_table is None
    for sequence, head in np.ndindex(len(lengths), 2):
        pairs = zip(paged.kv_rows(sequence, head), contiguous.kv_rows(sequence, head), strict=True)
        for ours, theirs in pairs:
            assert ours.tobytes() == theirs.tobytes()
    used = paged.page_table[paged.page_table < workload.num_pages]
    assert len(set(used.tolist())) == len(used) == workload.pages_used
    assert (paged.page_table >= 0).all()
    for sequence, length in enumerate(lengths):
        behind = paged.page_table[sequence, -(-length // page_size) :]
        assert (behind == workload.num_pages).all()
    tokens = sum(lengths) * 2 * 64
    for array in (paged.k, paged.v):
        finite = int(np.isfinite(array.astype(np.float32)).sum())
        assert finite == (array.size if workload.seed % 2 else tokens)
    np.testing.assert_array_equal(lp.attention_oracle(paged)[0], lp.attention_oracle(contiguous)[0])


def test_pages_are_shuffled_and_another_seed_shuffles_them_otherwise() -> None:
    workload = lp.Workload(4, 4, 2, 512, 64, layout="paged", page_size=16)
    table = lp.make_page_table(workload)
    assert (np.diff(table.reshape(-1)) != 1).sum() > 64
    assert (table == lp.make_inputs(workload).page_table).all()
    assert (table != lp.make_page_table(workload, seed=1)).any()


def test_bfloat16_inputs_are_the_same_draw_with_other_rounding() -> None:
    half, brain = lp.make_inputs(SMALL), lp.make_inputs(SMALL.replace(dtype="bfloat16"))
    assert brain.q.dtype == lp.element_dtype("bfloat16")
    np.testing.assert_allclose(brain.q.astype(float), half.q.astype(float), atol=2e-2)
    assert (brain.q.astype(float) != half.q.astype(float)).any()


def test_supports_names_what_it_refuses() -> None:
    paged = lp.Workload.parse(FORMS[2])
    assert lp.head_dims(64)(SMALL) is None
    assert "paged" in lp.head_dims(64)(paged)
    assert "bfloat16" in lp.head_dims(64)(lp.Workload.parse(FORMS[1]))
    wide = lp.kernel_supports(
        (64,), ("float16", "bfloat16"), ("contiguous", "paged"), groups=(1, 2, 4)
    )
    assert all(wide(lp.Workload.parse(text)) is None for text in FORMS)
    assert "8 query heads" in wide(SMALL.replace(num_qo_heads=16))
    assert "head_dim" in wide(SMALL.replace(head_dim=128))
    plain = dataclasses.replace(lp.load_rung("r03"), supports=lp.Rung.supports)
    assert plain.supports(SMALL.replace(head_dim=96)) is None
    assert plain.supports(paged)


def test_definitions_follow_the_workload(rung: lp.Rung) -> None:
    assert rung.defines(SMALL, LIMITS) == {"HEAD_DIM": "64", "SPLITS": "3"}
    assert rung.defines(lp.Workload.parse(FORMS[3]), LIMITS) == {
        **{"HEAD_DIM": "64", "SPLITS": "3", "BF16": "1", "PAGE_SIZE": "64"}
    }
    grouped = dataclasses.replace(
        rung, defines_extra=lambda w, limits, knobs: {"GROUP_SIZE": str(w.group_size)}
    )
    assert grouped.defines(SMALL, LIMITS)["GROUP_SIZE"] == "2"
    twice = dataclasses.replace(rung, defines_extra=lambda w, limits, knobs: {"HEAD_DIM": "1"})
    with pytest.raises(lp.LabError, match="HEAD_DIM twice"):
        twice.defines(SMALL, LIMITS)


def test_a_page_table_is_refused_where_there_are_no_pages(rung: lp.Rung) -> None:
    launches = rung.launches(lp.Workload.parse(FORMS[2]), LIMITS)
    with pytest.raises(lp.LabError, match=r"page_table.*\n.*is contiguous"):
        rung.with_launch(lambda workload, limits, knobs: launches).launches(SMALL, LIMITS)


def test_what_a_preparation_writes_cannot_be_allocated_in_a_call(rung: lp.Rung) -> None:
    counters = lp.Workspace("counters", (3, 4), "uint32", in_call=True)
    launches = [
        lp.Launch("clear_counters", (12,), (1,), 0, ("counters",), (counters,), prepare=True),
        lp.Launch("split_merge", (1,), (64,), 0, ("q", "counters", "out"), (counters,)),
    ]
    with pytest.raises(lp.LabError, match="in every call"):
        rung.with_launch(lambda workload, limits, knobs: launches).launches(SMALL, LIMITS)


def test_one_scale_for_a_whole_tensor_is_refused(rung: lp.Rung) -> None:
    scheme = lp.Scheme("whole", lp.StorageFormat("int8", "tensor"), lp.StorageFormat("int8", "row"))
    whole = dataclasses.replace(rung, stores=lambda workload, knobs: scheme)
    with pytest.raises(lp.LabError, match="whole tensor"):
        whole.scheme(SMALL)
    assert rung.scheme(SMALL) is None


@pytest.mark.parametrize("text", FORMS)
def test_battery_keeps_dtype_and_layout(text: str) -> None:
    cases = lp.battery(lp.Workload.parse(text))
    assert {case.dtype for case in cases} == {cases[0].dtype}
    assert {case.layout for case in cases} == {cases[0].layout}
    sizes = {case.page_size for case in cases}
    assert sizes == ({16, 64} if "paged" in text else {0})
    ends = {n % size for size in sizes - {0} for case in cases for n in case.lengths.tolist()}
    assert not ends or {0, 1} <= ends  # a full last page, and one of a single token
    few = check._few_of(cases, check.OF_OTHER_KINDS, decode_operation.EXTREME)
    assert {case.page_size for case in few} == sizes


def test_drawn_workloads_are_of_every_kind_and_reproducible() -> None:
    drawn = lp.draw_workloads(200, 7)
    assert drawn == lp.draw_workloads(200, 7)
    assert drawn != lp.draw_workloads(200, 8)
    assert {case.distribution for case in drawn} == set(lp.DISTRIBUTIONS)
    assert {case.dtype for case in drawn} == {"float16", "bfloat16"}
    assert {case.page_size for case in drawn} == {0, 16, 64}
    assert {case.group_size for case in drawn} == set(range(1, 9))
    assert {case.head_dim for case in drawn} == {64, 128}
    assert {case.seq_lens is None for case in drawn} == {True, False}
    assert max(case.kv_len for case in drawn) > 1500
    assert min(case.kv_len for case in drawn) < 4
    assert all(np.prod(case.kv_shape) < 2**24 for case in drawn)


def test_drawn_workloads_keep_to_what_a_kernel_takes() -> None:
    supports = lp.kernel_supports((128,), ("bfloat16",), ("paged",), groups=(4, 8))
    drawn = lp.draw_workloads(40, 1, supports)
    assert len(drawn) == 40
    assert all(supports(case) is None for case in drawn)
    with pytest.raises(lp.LabError, match="never"):
        lp.draw_workloads(2, 1, lambda workload: "never")


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_that_merge_by_atomics_are_right(rung: lp.Rung, text: str, workers: int) -> None:
    workload = lp.Workload.parse(text)
    for lengths in (None, RAGGED):
        run = run_on_cpu(rung, workload.replace(seq_lens=lengths), workers=workers)
        assert run.ok, str(run)
        assert run.out.dtype == lp.element_dtype(workload.dtype)
        assert run.comparison is not None
        assert run.comparison.tolerance == (6e-3 if "bf16" in text else 1e-3)


def test_a_rung_with_a_scheme_is_held_against_what_the_scheme_leaves(rung: lp.Rung) -> None:
    workload = SMALL.replace(seq_lens=RAGGED)
    inputs = lp.make_inputs(workload)
    scheme = lp.Scheme("coarse", lp.StorageFormat("int4", "row"), lp.StorageFormat("int4", "row"))
    kept = lp.dequantise_inputs(inputs, scheme)
    # The kernel computes with what it is given: the inputs as the scheme leaves them.
    given = dataclasses.replace(
        inputs, k=kept.k.astype(np.float16), v=kept.v.astype(np.float16)
    )  # fmt: skip
    plain = run_on_cpu(rung, workload, inputs=given, orders=(0,))
    assert plain.ok, str(plain)
    stored = dataclasses.replace(rung, stores=lambda workload, knobs: scheme)
    assert not run_on_cpu(stored, workload, inputs=inputs, orders=(0,)).ok
    again = run_on_cpu(stored, workload, inputs=given, orders=(0,))
    assert again.comparison is not None


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("text", FORMS[1:])  # the plain form is timed in test_live_timing.py
def test_every_form_is_checked_and_timed(rung: lp.Rung, text: str) -> None:
    workload = lp.Workload.parse(text).replace(seq_lens=RAGGED)
    run = run_on_gpu(rung, workload)
    assert run.ok, str(run)
    assert run.out is not None
    expected, _ = lp.attention_oracle(lp.make_inputs(workload))
    assert lp.compare_output(run.out, expected).ok
    # Normal inputs are drawn on the device, and single pairs are read back for the oracle.
    timing = time_candidates([rung], workload, processes=1, rounds=3, ceiling=False)
    assert timing.failures == {}
    record = timing.find("split_merge")
    assert record.median_us == pytest.approx(25.0)
    assert record.problem == workload
    if text == FORMS[3]:
        late = workload.replace(distribution="late_peaked")
        drawn_on_host = time_candidates([rung], late, processes=1, rounds=3, ceiling=False)
        assert drawn_on_host.failures == {}


@pytest.mark.parametrize("behaviour", ["wrong", "nothing", "writes input", "writes past"])
def test_live_check_of_pages_finds_wrong_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rung: lp.Rung, behaviour: str
) -> None:
    use_fake_gpu(monkeypatch, tmp_path, {"split_merge": behaviour})
    assert not run_on_gpu(rung, lp.Workload.parse(FORMS[3])).ok


def test_a_preparation_does_not_say_that_inputs_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rung: lp.Rung
) -> None:
    """It runs again for other inputs, and could tell a kernel to forget what it kept."""
    use_fake_gpu(monkeypatch, tmp_path, {"split_merge": "keeps till it is prepared"})
    timing = time_candidates([rung], SMALL, processes=1, rounds=3, ceiling=False)
    (problem,) = timing.failures.values()
    assert "inputs have changed" in problem


def test_rows_of_pages_are_those_that_hold_tokens() -> None:
    workload = lp.Workload.parse(FORMS[2]).replace(seq_lens=RAGGED)
    inputs = lp.make_inputs(workload)
    rows = decode_operation._rows_of_pages(workload, inputs.page_table)
    held = np.isfinite(inputs.k.astype(np.float32)).all(axis=(1, 3)).sum(axis=1)
    assert rows.tolist() == held.tolist()


@pytest.mark.usefixtures("fake_gpu")
def test_memory_allocated_in_every_call_is_checked_like_any_other(rung: lp.Rung) -> None:
    def moved(workload: lp.Workload, limits: lp.Limits, knobs: dict[str, int]) -> list[lp.Launch]:
        prepare, timed = rung.launch(workload, limits, knobs)
        spaces = tuple(
            dataclasses.replace(one, in_call=one.name == "partial") for one in timed.workspace
        )
        return [prepare, dataclasses.replace(timed, workspace=spaces)]

    # Checked with the buffer between zones of NaN, as ever.
    assert run_on_gpu(rung.with_launch(moved), SMALL).ok


def int8_rung(folder: Path, scheme: lp.Scheme | None) -> lp.Rung:
    """A rung whose kernel, on the stand-in GPU, computes with K and V in 8 bits a row."""
    source = folder / "int8.cu"
    source.write_text(
        "#include <cuda_fp16.h>\n"
        'extern "C" __global__ void decode_int8(const half* q, const half* k, const half* v, '
        "const int* n, half* out) {}\n"
    )
    launch = lp.Launch("decode_int8", (1,), (32,), 0, ("q", "k", "v", "seq_lens", "out"))
    return lp.Rung(
        *("int8", "", source, "", "", ""),
        lambda workload, limits, knobs: [launch],
        stores=None if scheme is None else lambda workload, knobs: scheme,
    )


@pytest.mark.usefixtures("fake_gpu")
def test_a_scheme_travels_to_the_measuring_child(tmp_path: Path) -> None:
    workload = SMALL.replace(seq_lens=RAGGED)
    stored, plain = int8_rung(tmp_path, INT8_ROWS), int8_rung(tmp_path, None)
    assert run_on_gpu(stored, workload).ok
    assert not run_on_gpu(plain, workload).ok
    timing = time_candidates([stored, "r03"], workload, processes=1, rounds=3, ceiling=False)
    assert timing.failures == {}
    timing = time_candidates([plain, "r03"], workload, processes=1, rounds=3, ceiling=False)
    assert set(timing.failures) == {"int8"}


def test_a_smaller_cache_asks_for_more_buffer_sets(rung: lp.Rung) -> None:
    kept = lp.Workspace("kk", (8, 8, 4096, 64), "uint8")
    other = lp.Workspace("vv", (8, 8, 4096, 64), "uint8")
    launches = [
        lp.Launch("pack", (1,), (32,), 0, ("k", "v", "kk", "vv"), (kept, other), prepare=True),
        lp.Launch("decode", (1,), (32,), 0, ("q", "kk", "vv", "seq_lens", "out"), (kept, other)),
    ]
    job = Job("one", "rung", launches=tuple(launches))
    heads = lp.HEADLINE.minimal_bytes - lp.HEADLINE.kv_bytes
    read = job.call_read_bytes(lp.HEADLINE)
    assert read == heads + lp.HEADLINE.kv_bytes // 4
    whole = Job("one", "rung", launches=tuple(rung.launches(lp.HEADLINE, LIMITS)))
    counters = 4 * lp.HEADLINE.batch * lp.HEADLINE.num_qo_heads
    assert whole.call_read_bytes(lp.HEADLINE) == lp.HEADLINE.minimal_bytes + counters
    fp8 = Job("two", "baseline", storage=lp.StorageFormat("fp8-e4m3", "tensor"))
    assert fp8.call_read_bytes(lp.HEADLINE) == heads + lp.HEADLINE.kv_bytes // 2
    l2, free = 60_000_000, 140 * 10**9
    few, many = plan_rotation(lp.HEADLINE, l2, free), plan_rotation(lp.HEADLINE, l2, free, read)
    assert few.sets < many.sets
    assert many.sets * read >= 8 * l2
    assert plan_rotation(lp.HEADLINE.replace(cache_state="warm"), l2, free, read).sets == 1
