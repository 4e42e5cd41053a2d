"""The profiler bench shows what counters say, names what is missing, and labels everything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from record_samples import make_record

from labtools.measure.profiler.counters import COUNTERS
from labtools.notebook.labs.lab07_ncu import panels
from labtools.notebook.labs.lab07_ncu.panels import (
    COUNTER_MEANINGS,
    ceilings,
    make_panel,
    roofline_point,
)
from labtools.notebook.labs.lab07_ncu.run import ProfiledRun, recorded_run, recorded_runs
from labtools.notebook.labs.lab07_ncu.view import NcuBench, compare_runs, ncu_tables
from labtools.notebook.records import GpuRecords, forecast_of
from labtools.predict import load_gpu
from labtools.problem import HEADLINE, LabError, load_rung
from labtools.record import RecordStore

MEMORY_IDLE = {
    "duration_us": 600.0,
    "dram_read_bytes": 130e6,
    "dram_write_bytes": 4.2e6,
    "dram_throughput_pct": 5.0,
    "issue_slot_pct": 14.0,
    "l2_hit_pct": 4.0,
    "l1_hit_pct": 0.0,
    "warp_latency_cycles": 10.0,
    "stall_long_scoreboard_cycles": 6.0,
    "stall_wait_cycles": 1.5,
    "stall_selected_cycles": 2.0,
    "stall_barrier_cycles": 0.0,
    "stall_drain_cycles": 0.01,
    "empty_launch_us": 1.5,
}
"""Counters of a kernel that waits for its own loads."""


def run_of(values: dict[str, float | None], **changes: Any) -> ProfiledRun:
    run = ProfiledRun(
        rung=load_rung("r03"),
        problem=HEADLINE,
        values=values,
        word="recorded",
        where="NVIDIA H200, 2026-11-21, ncu 1",
        gpu=load_gpu("h200"),
        read_bytes=HEADLINE.streamed_bytes,
        time_us=590.0,
        forecast_bound="chain",
    )
    return dataclasses.replace(run, **changes)


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    """r03 with counters, and a newer record of it without."""
    kept = RecordStore([tmp_path])
    knobs = load_rung("r03").resolve_knobs()
    counters = {"tool": "ncu 1", "values": MEMORY_IDLE}
    counted = make_record(knobs=knobs, counters=counters, lists=[[600.0] * 3] * 5)
    newer = make_record(knobs=knobs, days=1, lists=[[601.0] * 3] * 5)
    kept.append("test.jsonl", [counted, newer])
    return kept


# -------------------------------------------------------------------------------------- meanings


def test_every_counter_of_the_bench_is_one_of_the_profiler_and_has_both_sentences() -> None:
    assert set(COUNTER_MEANINGS) <= {counter.name for counter in COUNTERS}
    for name, meaning in COUNTER_MEANINGS.items():
        assert meaning.does_not_mean.startswith("Not "), name
        assert meaning.means.endswith("."), name
    assert len({one.label for one in COUNTER_MEANINGS.values()}) == len(COUNTER_MEANINGS)


# ----------------------------------------------------------------------------------------- panel


def test_the_point_is_the_problems_flops_over_counted_bytes_and_time() -> None:
    point = roofline_point(run_of(MEMORY_IDLE))
    assert point is not None
    assert point[0] == pytest.approx(HEADLINE.flops / 134.2e6)
    assert point[1] == pytest.approx(HEADLINE.flops / 600e-6 / 1e12)
    said = make_panel(run_of(MEMORY_IDLE))["roofline"]["said"]
    # Operations cancel: the place against the slope is that of the counted bytes.
    assert f"{134.2e6 / 600e-6 / 4.8e12:.0%} of the data sheet's memory rate" in said


@pytest.mark.parametrize("gone", ["dram_read_bytes", "dram_write_bytes", "duration_us"])
def test_without_its_counters_there_is_no_point_and_the_bench_says_which(gone: str) -> None:
    for value in (None, float("nan")):
        panel = make_panel(run_of({**MEMORY_IDLE, gone: value}))
        assert panel["roofline"]["point"] is None
        assert COUNTER_MEANINGS[gone].label in panel["roofline"]["said"]
        assert COUNTER_MEANINGS[gone].label in panel["missing"]


def test_waits_stand_largest_first_and_issuing_is_none() -> None:
    waits = make_panel(run_of(MEMORY_IDLE))["waits"]
    bars = waits["bars"]
    assert [bar["name"] for bar in bars] == ["long scoreboard", "selected", "wait"]
    assert [bar["issuing"] for bar in bars] == [False, True, False]
    assert bars[0]["share"] == pytest.approx(0.6)
    assert bars[0]["says"].startswith("Waits for a load")
    assert bars[1]["says"].startswith("Not waiting")
    assert waits["said"] == "2 more states take 0.1% together."


def test_a_missing_counter_has_no_row_and_is_no_zero() -> None:
    values = {**MEMORY_IDLE, "l2_hit_pct": None, "dram_read_bytes": None}
    panel = make_panel(run_of(values))
    assert {"l2_hit_pct", "dram_read_bytes"}.isdisjoint(one["name"] for one in panel["counters"])
    assert {"L2 hit rate", "read from DRAM"} <= set(panel["missing"])
    assert "achieved occupancy" in panel["missing"]  # which was never asked for
    levels = {level["label"]: level for level in panel["memory"]["levels"]}
    read, rate = levels["read from DRAM"], panel["memory"]["rates"][1]
    assert (read["bytes"], read["text"]) == (None, "missing")
    assert (rate["label"], rate["percent"], rate["text"]) == ("L2 hit rate", None, "missing")
    zero = panels.counter_rows({"l1_hit_pct": 0.0})
    assert [row["name"] for row in zero] == ["l1_hit_pct"]  # a measured zero is a value
    assert COUNTER_MEANINGS["l1_hit_pct"].label not in panels.missing_counters({"l1_hit_pct": 0.0})


def test_every_level_says_where_its_bytes_come_from() -> None:
    model = forecast_of("r03", HEADLINE)
    levels = make_panel(run_of(MEMORY_IDLE), model)["memory"]["levels"]
    assert [level["word"] for level in levels] == ["computed", "forecast", "recorded", "recorded"]
    assert levels[1]["bytes"] == model.main_launch.l2_bytes
    live = make_panel(run_of(MEMORY_IDLE, word="live"))["memory"]["levels"]
    assert [level["word"] for level in live][2:] == ["live", "live"]
    assert live[1]["bytes"] is None  # no forecast was made, and no counter stands in for it
    with pytest.raises(LabError, match="does not say where"):
        run_of(MEMORY_IDLE, word="guessed")


def test_the_bound_is_the_one_rules_and_a_difference_is_explained() -> None:
    same = make_panel(run_of(MEMORY_IDLE))["bound"]
    assert same["counted"] == same["forecast"] == "chain"
    full = {**MEMORY_IDLE, "dram_throughput_pct": 85.0}
    other = make_panel(run_of(full))["bound"]
    assert other["counted"] == "bandwidth"
    assert "A busy memory answers late" in other["why"]
    blind = make_panel(run_of({**MEMORY_IDLE, "dram_throughput_pct": None}))["bound"]
    assert blind["counted"] == "not clear"
    assert "dram_throughput_pct is missing" in blind["reason"]
    alone = make_panel(run_of(MEMORY_IDLE, forecast_bound=None))["bound"]
    assert (alone["forecast"], alone["why"]) == (None, "")


def test_counters_of_runs_that_differ_are_said_so_and_give_no_point_and_no_bound() -> None:
    # 10 cycles between two of a warp, 0.2 instructions per cycle: 2 warps, where 4 were resident.
    counts = {**MEMORY_IDLE, "instructions_per_cycle": 0.4, "achieved_occupancy_pct": 6.25}
    alike = run_of(counts)
    assert (alike.apart, make_panel(alike)["apart"], alike.bound_word) == ("", "", "chain")
    assert roofline_point(alike) is not None
    mixed = run_of({**counts, "instructions_per_cycle": 0.2})
    assert roofline_point(mixed) is None
    panel = make_panel(mixed)
    assert panel["apart"].startswith("These counters do not belong together. ")
    assert "2.00 warps on an SM, the occupancy says 4.00" in panel["apart"]
    assert (panel["roofline"]["point"], panel["bound"]["counted"]) == (None, "counters apart")
    assert "do not belong together" in panel["roofline"]["said"]
    assert panel["bound"]["why"] == "The forecast says chain."
    assert "times what is needed" not in panel["memory"]["said"]
    beside = compare_runs(run_of(counts, word="live"), mixed).text
    assert "The recorded counters do not belong together" in beside
    assert make_panel(run_of(mixed.values, forecast_bound=None))["bound"]["why"] == ""


def test_ceilings_that_are_not_known_are_left_out() -> None:
    h200 = load_gpu("h200")
    reader = make_record("ceiling:read_sweep", [[30.0] * 3] * 5)
    lines = ceilings(h200, reader)
    assert [line["word"] for line in lines["memory"]] == ["computed", "recorded"]
    assert lines["memory"][1]["rate"] == pytest.approx(reader.gb_per_s)
    assert "NVIDIA H200" in lines["memory"][1]["label"]
    bare = dataclasses.replace(h200, dram_gb_per_s=None, fp16_tensor_tflops=None)
    assert ceilings(bare)["memory"] == []
    assert [line["label"] for line in ceilings(bare)["compute"]] == ["fp32 outside them"]
    panel = make_panel(run_of(MEMORY_IDLE, gpu=bare))
    assert "data sheet" not in panel["roofline"]["said"]


# --------------------------------------------------------------------------------- records, bench


def test_a_run_comes_from_the_record_that_has_counters(store: RecordStore) -> None:
    run = recorded_run(GpuRecords(store=store), "r03", HEADLINE)
    assert run is not None
    assert (run.word, run.time_us) == ("recorded", 600.0)
    assert "NVIDIA H200, " in run.where
    assert run.where.endswith("ncu 1")
    assert recorded_run(GpuRecords(store=store), "r02", HEADLINE) is None


def test_the_bench_starts_where_asked_and_knows_what_is_chosen(store: RecordStore) -> None:
    records = GpuRecords(store=store)
    other = HEADLINE.replace(batch=1)
    more = run_of(MEMORY_IDLE, rung=load_rung("r02"), problem=other)
    runs = [*recorded_runs(records, ["r02", "r03"], [HEADLINE, other]), more]
    bench = NcuBench(runs, records, rung="r02")
    tables = bench.view.tables
    assert tables["rungs"] == ["r03_one_warp", "r02_one_barrier"]
    there = [[cell is not None for cell in row] for row in tables["cells"]]
    assert there == [[True, False], [False, True]]
    assert bench.view.rung_index == 1
    assert (bench.chosen[0].id, bench.chosen[1]) == ("r02_one_barrier", HEADLINE)
    bench.controls["workload"].index = 1
    assert (bench.chosen[0].id, bench.chosen[1]) == ("r02_one_barrier", other)
    cells = [cell for line in tables["cells"] for cell in line if cell]
    assert {row["name"] for cell in cells for row in cell["counters"]} <= set(tables["meanings"])
    with pytest.raises(LabError, match="not on this bench"):
        NcuBench(runs, records, rung="r99")
    with pytest.raises(LabError, match="nothing to show"):
        ncu_tables([])


def test_a_gpu_that_the_model_does_not_know_gets_no_forecast() -> None:
    foreign = dataclasses.replace(load_gpu("h200"), name="unheard-of")
    (row,) = ncu_tables([run_of(MEMORY_IDLE, gpu=foreign, forecast_bound=None)])["cells"]
    assert row[0]["bound"]["forecast"] is None
    assert row[0]["memory"]["levels"][1]["text"] == "missing"


# ------------------------------------------------------------------------------------------ live


def test_live_counters_stand_beside_the_record() -> None:
    values = {**MEMORY_IDLE, "duration_us": 1200.0, "l2_hit_pct": None}
    live = run_of(values, word="live", where="this GPU")
    shown = compare_runs(live, run_of(MEMORY_IDLE))
    lines = {line.split("  ")[0]: line for line in shown.text.splitlines()}
    assert "2.00" in lines["time under the profiler (us)"]
    assert "[live] [recorded]" in shown.text  # the caption, for all rows
    assert "missing" in lines["L2 hit rate (% of sectors)"]
    assert "achieved occupancy" not in shown.text  # neither has it
    alone = compare_runs(live, None).text
    assert "there is no record of it" in alone and "live, recorded" not in alone
