"""The sanitizer bench says what runs, addresses and records say, and so does a row's new length."""

from __future__ import annotations

from typing import Any

import pytest

from labtools.measure.cpu import run_on_cpu
from labtools.measure.profiler import sanitize
from labtools.notebook.labs.lab11_sanitizer import tries
from labtools.notebook.labs.lab11_sanitizer.tries import CpuTry, run_tries, with_stride
from labtools.notebook.labs.lab11_sanitizer.view import REPAIRS, sanitizer_bench
from labtools.notebook.records import GpuRecords
from labtools.predict import load_gpu
from labtools.problem import LabError, Prefill, load_rung, operation_of
from labtools.record import RecordStore

P00, P01 = load_rung("p00"), load_rung("p01")
ONE_TILE, TWO_TILES = Prefill(1, 1, 1, 64, 64), Prefill(1, 1, 1, 128, 64, qo_len=64)
LIMITS = load_gpu("h200").limits


@pytest.fixture(scope="module")
def bench() -> Any:
    return sanitizer_bench(TWO_TILES, GpuRecords("h200"))


@pytest.mark.parametrize(("pad", "stride"), [(0, 65), (1, 72)])
@pytest.mark.parametrize("knobs", [{}, {"block_m": 128, "block_n": 80}])
def test_a_stride_is_launched_as_the_knob_of_that_stride(
    pad: int, stride: int, knobs: dict[str, int]
) -> None:
    chosen = P00.resolve_knobs({**knobs, "pad": pad})
    ours = with_stride(P00, stride)
    assert ours.source_text == P00.source_text
    assert ours.source.parent != P00.source.parent
    assert ours.launch(ONE_TILE, LIMITS, chosen) == P00.launch(ONE_TILE, LIMITS, chosen)


def test_a_stride_of_a_kernel_without_such_rows_is_refused() -> None:
    with pytest.raises(LabError, match="cannot be given another length"):
        with_stride(load_rung("r03"), 72)
    with pytest.raises(LabError, match="a row fits"):
        run_on_cpu(with_stride(P00, 63), ONE_TILE, orders=(0,))


def test_the_bench_holds_every_stride_against_its_addresses(bench: Any) -> None:
    tables = bench.view.tables
    assert bench.controls["stride"].index == bench.view.stride_index == 0
    assert list(bench.controls["repair"].options) == list(REPAIRS)
    assert (tables["strides"][0], tables["strides"][-1]) == (65, 80)
    for stride, cell in zip(tables["strides"], tables["cells"], strict=True):
        run = cell["runs"][0]
        assert (run["outcome"] == "faults") == (cell["missing"] > 0) == (2 * stride % 16 != 0)
        if cell["missing"]:
            assert f"{cell['missing']} such copies" in run["message"]
            assert "copy_rows" in run["code"]
            assert f"{cell['starts'][1]:#x}" in run["message"]
        else:
            outcomes = [one["outcome"] for one in cell["runs"]]
            assert outcomes == ["wrong", "wrong", "wrong", "right"]


def test_the_bench_shows_the_reports_that_were_recorded(bench: Any) -> None:
    cells = dict(zip(bench.view.tables["strides"], bench.view.tables["cells"], strict=True))
    nothing, both = list(REPAIRS).index("nothing"), list(REPAIRS).index("both")
    assert cells[65]["reports"][nothing]["verdict"] == "errors"
    assert "misaligned" in cells[65]["reports"][nothing]["lines"][1]
    assert cells[72]["reports"][both]["verdict"] == "clean"
    assert cells[72]["reports"][nothing]["verdict"] == ""
    assert cells[66]["reports"] == [None] * len(REPAIRS)


def test_tries_are_told_apart() -> None:
    both = {"as written": CpuTry(P00, {"pad": 0}), "repaired": CpuTry(P00)}
    shown = tries.show_tries(both, ONE_TILE).text
    assert "p00_traditional.cu:" in shown
    assert "0x82, 0x104, 0x186" in shown
    for tried in ({"pad": 0}, {}):  # what each try asks for
        (launch,) = P00.launches(ONE_TILE, LIMITS, tried)
        assert f"{launch.num_threads:,}" in shown and f"{launch.smem_bytes:,}" in shown
    assert "right: worst relative error" in shown
    (wrong,) = run_tries([CpuTry(P01, {"rescale": 0})], TWO_TILES)
    assert tries.ending_of(wrong) == tries.say_run(wrong)["outcome"] == "wrong"
    (unseen,) = run_tries([CpuTry(P01, {"rescale": 0})], ONE_TILE)
    assert tries.ending_of(unseen) == "right"


def test_the_recorded_report_counts_a_thread_once() -> None:
    """56 of 64 threads of each block copy a row that begins where no copy may go."""
    watched = operation_of("prefill").watched
    (launch,) = P00.launch(watched, LIMITS, P00.resolve_knobs())
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    verdicts, word = tries.recorded_verdicts(GpuRecords("h200"), P00, P00.as_written())
    assert word is not None
    text = next(one.text for one in verdicts if one.tool == "memcheck")
    assert text.split()[0] == str(56 * blocks)


def test_a_report_is_live_recorded_or_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    watched = operation_of("prefill").watched
    records = GpuRecords("h200")
    monkeypatch.setattr(tries, "can_run_live", lambda: False)
    assert "recorded" in tries.show_sanitizer(records, P00, P00.as_written(), watched).text
    nothing = GpuRecords("h200", RecordStore([tmp_path]))
    assert "no report" in tries.show_sanitizer(nothing, P00, P00.as_written(), watched).text

    def run(*_: Any, **__: Any) -> list[Any]:
        return [sanitize.SanitizerReport("memcheck", "clean")]

    def refuse(*_: Any, **__: Any) -> list[Any]:
        raise LabError("compute-sanitizer was not found.", "it is not here", "the CPU runner")

    monkeypatch.setattr(tries, "can_run_live", lambda: True)
    monkeypatch.setattr(sanitize, "sanitize_rung", run)
    live = tries.show_sanitizer(records, P00, {}, watched).text
    assert "live" in live and "recorded" not in live
    monkeypatch.setattr(sanitize, "sanitize_rung", refuse)
    fallen = tries.show_sanitizer(records, P00, {}, watched).text
    assert "recorded" in fallen and "compute-sanitizer was not found" in fallen
