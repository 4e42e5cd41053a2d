"""The kernels of prefill: right where they are repaired, and broken as they were written."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from devices import some_of

from labtools.measure.cpu import run_on_cpu
from labtools.notebook.book.prefill.figures import draw_row_starts, draw_step
from labtools.notebook.records import plot_times
from labtools.predict import floors, forecast, load_gpu
from labtools.problem import LabError, Prefill, Rung, load_rung, operation_of
from labtools.problem.attention import softmax
from labtools.problem.prefill.operation import PrefillInputs
from labtools.record import RecordStore, shipped_records_dir
from labtools.record.fields import read_argument, write_argument
from labtools.toolchain.listings import machine_code
from tools.slow_list import EVERY_CASE

P00, P01, P02, P03 = (load_rung(name) for name in ("p00", "p01", "p02", "p03"))
TILE = 64
DRAWN = 100 if EVERY_CASE else 3
MOST_VISITS = 12_000
"""(query, key) pairs of a drawn problem: what a run on the CPU takes a second for."""


def _named(case: object) -> str:
    return case.id if isinstance(case, Rung) else str(case)


def drawn(rung: Rung, count: int, seed: int) -> list[Prefill]:
    def refuse(one: Prefill) -> str | None:
        return "too long" if one.visits > MOST_VISITS else rung.supports(one)

    return operation_of("prefill").draw_problems(count, seed, refuse)


@pytest.mark.parametrize("index", range(DRAWN))
@pytest.mark.parametrize(("rung", "seed"), [(P02, 5), (P03, 6)], ids=["p02", "p03"])
def test_the_tiled_kernels_are_right_on_drawn_problems(rung: Rung, seed: int, index: int) -> None:
    one = drawn(rung, 100, seed)[index]
    run = run_on_cpu(rung, one, orders=(index % 4,))
    assert run.ok, f"{one}: {run}"


@pytest.mark.parametrize(("rung", "order"), [(P00, 0), (P01, 3)], ids=_named)
def test_the_scalar_kernels_are_right_where_they_are_repaired(rung: Rung, order: int) -> None:
    (one,) = drawn(rung, 1, seed=7)
    run = run_on_cpu(rung, one, orders=(order,))
    assert run.ok, f"{one}: {run}"


@pytest.mark.parametrize(
    ("rung", "knobs"),
    [
        (P00, {"block_m": 80, "block_n": 80, "warps": 8}),
        (P00, {"block_m": 128, "block_n": 128, "warps": 4}),
        (P02, {"stages": 1, "warps": 8, "block_n": 128}),
        (P02, {"stages": 3, "block_n": 32}),
        (P03, {"stages": 3, "block_n": 64, "warpgroups": 1}),
        (P03, {"stages": 1, "block_n": 80, "pingpong": 0}),
        (P03, {"warpgroups": 3, "block_n": 96}),
    ],
    ids=_named,
)
def test_other_tiles_are_right_too(rung: Rung, knobs: dict[str, int]) -> None:
    one = Prefill(1, 2, 1, 150, 64, qo_len=140, causal=True, distribution="rising")
    run = run_on_cpu(rung, one, knobs, orders=(0,))
    assert run.ok, str(run)


@pytest.mark.parametrize("rung", [P00, P01], ids=lambda rung: rung.id)
def test_as_written_seven_of_eight_rows_begin_where_no_copy_may_go(rung: Rung) -> None:
    """56 rows x 8 chunks of one tile: the 448 of the case study's 450."""
    assert rung.broken(rung.as_written()) == "faults"
    assert rung.broken() is None
    run = run_on_cpu(rung, Prefill(1, 1, 1, 64, 64), rung.as_written())
    assert not run.ok
    first, *others = run.faults
    assert (first.kind, first.block, first.thread) == ("misaligned", (0, 0, 0), (1, 0, 0))
    assert "copy_rows<BLOCK_M>(tiles.q" in first.source_line
    rows = [row for row in range(TILE) if 2 * 65 * row % 16]
    assert len(rows) == 56
    offsets = ", ".join(f"0x{130 * row:02x}" for row in rows[:3])
    assert offsets == "0x82, 0x104, 0x186"
    assert "448 such copies of 56 threads" in first.message
    assert f"the first to byte {offsets} of shared memory" in first.message
    assert first.offsets == tuple(130 * row for row in rows[:3])
    # K and V are tiles of the same shape, each with a line of its own.
    assert [re.search(r"(\d+) such", one.message)[1] for one in others] == ["448", "448"]  # type: ignore[index]


@pytest.mark.parametrize("knobs", [{"block_m": 128}, {"block_m": 80}, {"warps": 8}], ids=str)
def test_no_other_tile_and_no_more_warps_mend_it(knobs: dict[str, int]) -> None:
    run = run_on_cpu(P00, Prefill(1, 1, 1, 64, 64), {**knobs, "pad": 0}, orders=(0,))
    assert [one.kind for one in run.faults] == ["misaligned"] * len(run.faults) != []
    assert "0x82, 0x104, 0x186" in run.faults[0].message


def rescaled_wrongly(inputs: PrefillInputs) -> tuple[np.ndarray, np.ndarray]:
    """What p01 makes of one head with ``rescale=0``, and the product of its factors a query.

    From the oracle's own scores: at each tile the sum so far is multiplied with exp(largest so far
    - the tile's own maximum); right is the larger of the two in place of the second.
    """
    scores = inputs.scores(0, 0, range(inputs.problem.num_queries))
    v = inputs.v[0, 0].astype(np.float64)
    largest = np.full((len(scores), 1), -np.inf)
    total, factors = np.zeros((len(scores), v.shape[1])), np.ones(len(scores))
    for first in range(0, scores.shape[1], TILE):
        tile = scores[:, first : first + TILE]
        own = tile.max(axis=1, keepdims=True)
        new = np.maximum(largest, own)
        factors *= np.exp(new - own)[:, 0]
        total = total * np.exp(largest - own) + np.exp(tile - new) @ v[first : first + TILE]
        largest = new
    _, lse = softmax(scores)
    return total / np.exp(lse[:, None] - largest), factors


def test_the_wrong_rescale_explains_the_wrong_output() -> None:
    """Wrong are the queries whose maximum lies before the last tile, by the factor that says."""
    one = Prefill(1, 1, 1, 150, 64, qo_len=80)
    inputs = operation_of(one).draw(one)
    run = run_on_cpu(P01, one, {"rescale": 0}, orders=(0,), inputs=inputs)
    assert P01.broken({"rescale": 0}) == "wrong"
    assert not run.ok and not run.faults
    said, factors = rescaled_wrongly(inputs)
    assert run.out is not None
    assert one.compare(run.out, said[None, None]).ok
    expected = operation_of(one).oracle(inputs)[0, 0]
    error = np.linalg.norm(run.out[0, 0] - expected, axis=1) / np.linalg.norm(expected, axis=1)
    right = np.isclose(factors, 1)
    assert right.any() and not right.all()
    assert (error[right] < one.tolerance).all()
    assert (error[~right] > one.tolerance).all()
    # With one tile there is nothing to rescale.
    assert run_on_cpu(P01, Prefill(1, 1, 1, 64, 64), {"rescale": 0}, orders=(0,)).ok


def test_the_unread_scale_is_a_softmax_of_larger_scores() -> None:
    one = Prefill(1, 1, 1, 60, 64, qo_len=20)
    inputs = operation_of(one).draw(one)
    run = run_on_cpu(P01, one, {"scale": 0}, orders=(0,), inputs=inputs)
    weights, _ = softmax(inputs.scores(0, 0, range(20)) / one.sm_scale)
    assert run.out is not None
    assert not run.ok
    assert one.compare(run.out, (weights @ inputs.v[0, 0].astype(np.float64))[None, None]).ok


COMPILED = [(name, gpu) for name in ("p00", "p01", "p02") for gpu in ("a100-80gb", "l4")]


@pytest.mark.parametrize(("name", "gpu"), [*some_of(COMPILED, 2), ("p03", "h200")])
def test_they_compile_without_a_spill(name: str, gpu: str) -> None:
    rung = load_rung(name)
    (used,) = machine_code(rung, Prefill(1, 2, 1, 64, 128), load_gpu(gpu).limits).resources.values()
    assert used.spill_store_bytes == used.spill_load_bytes == 0


@pytest.mark.parametrize("gpu", ["b200", "l4"])
def test_p03_is_for_the_one_architecture_that_it_is_written_for(gpu: str) -> None:
    assert not P03.runs_on(load_gpu(gpu).limits.arch)
    with pytest.raises(LabError, match="written for sm_90a and does not run on"):
        machine_code(P03, Prefill(1, 2, 1, 64, 128), load_gpu(gpu).limits)


def test_a_tensor_map_is_kept_in_a_record_as_it_is() -> None:
    (one,) = P03.launches(Prefill(2, 2, 1, 70, 128), load_gpu("h200").limits)
    assert one.named == ["q", "k", "v", "out"]
    assert tuple(read_argument(write_argument(arg)) for arg in one.args) == one.args
    with pytest.raises(LabError, match="takes no tensor map"):
        dataclasses.replace(one.args[0], box=(1, 300, 64))


def test_a_stride_that_no_copy_may_use_does_not_compile() -> None:
    odd = P02.with_source(P02.source_text.replace("PAD = 8;", "PAD = 1;"))
    with pytest.raises(LabError, match="copy of 16 bytes may go"):
        machine_code(odd, Prefill(1, 2, 1, 64, 64), load_gpu("l4").limits)


@pytest.mark.parametrize(
    ("rung", "gpu"),
    [(P02, "h200"), (P02, "l4"), (P00, "l4")],
    ids=_named,
)
def test_they_are_forecast_for_the_case_studys_workload(rung: Rung, gpu: str) -> None:
    said = forecast(rung, operation_of("prefill").headline, gpu)
    assert said.band_us is not None
    assert said.floor.time_us is not None
    assert max(said.floor.time_us, said.band_us[0]) < said.time_us


@pytest.mark.parametrize("rung", [P00, P01], ids=lambda rung: rung.id)
def test_a_rung_that_is_broken_as_written_has_a_report_in_place_of_a_time(rung: Rung) -> None:
    records = [one for one in RecordStore([shipped_records_dir()]).load() if one.name == rung.id]
    assert records and not any(rung.broken(one.knobs) for one in records)
    verdicts = [one for record in records for one in record.sanitizer if one.tool == "memcheck"]
    repaired = [one.verdict for one in verdicts if one.knobs is None]
    written = [one for one in verdicts if one.knobs == rung.as_written()]
    assert "clean" in repaired and {*repaired} == {"clean"}
    assert written and all(one.verdict == "errors" for one in written)
    assert all("misaligned" in one.text for one in written)


@pytest.mark.parametrize("rung", [P00, P01, P02], ids=_named)
def test_a_drawn_step_is_the_launchs_own(rung: Rung) -> None:
    one = operation_of("prefill").headline
    (launch,) = rung.launches(one, load_gpu("h200").limits)
    text = draw_step(rung.id, one).text
    held = re.search(r"holds (.*?)\. ", text)
    assert held and sum(map(int, re.findall(r"(\d+) KiB", held[1]))) == launch.smem_bytes // 1024
    assert f"{launch.grid[0]} tiles of 64" in text and f"Each of {launch.num_threads // 32}" in text
    assert ("scores" in held[1]) != (rung is P02)
    assert ("one more is copied" in text) == (rung is P02)


def test_rows_are_drawn_where_they_begin() -> None:
    text = draw_row_starts(64, (1, 8)).text
    assert "130 bytes per row, of rows 0 to 8 those at a multiple of 16 are 0, 8;" in text
    assert "144 bytes per row, of rows 0 to 8 those at a multiple of 16 are 0, 1, 2, 3" in text


def test_drawn_times_are_those_of_the_records() -> None:
    one = operation_of("prefill").headline
    text = plot_times(one, "p00").text
    (record, *_) = RecordStore().query("h200", "p00_traditional", one, P00.resolve_knobs())
    floor = floors(one, load_gpu("h200")).time_us
    assert f"p00 {record.median_us:.1f} us (recorded)" in text
    assert f"floor {floor:.1f} us (computed)" in text
    apart = plot_times(one, "p02", "baseline:prefill_sdpa", "baseline:flash_attention_3").text
    assert "flash_attention_3" in apart and "not timed beside these: p02" in apart
