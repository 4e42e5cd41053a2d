"""What pages show of records: the right ones, and plain words where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import record_samples

from labtools.measure.profiler.counters import KernelCounters
from labtools.measure.profiler.ncu import ProfileReport
from labtools.notebook import (
    Speedup,
    Word,
    compare_counters,
    find_records,
    make_table,
    measure_speedup,
    recorded_speedup,
    show_ablation,
    show_against,
    show_comparison,
    show_records,
)
from labtools.notebook.counters import show_use
from labtools.notebook.ratios import ratio_table, say_speedup
from labtools.predict import load_gpu
from labtools.problem import HEADLINE, LabError, Problem, Rung, list_rungs, load_rung, operation_of
from labtools.record import Record, RecordStore


def make_record(candidate: str, us: float, campaign: str = "one", **changes: Any) -> Record:
    """A record of an H200 that never was; a second campaign is a day later."""
    if not candidate.startswith("baseline:"):
        changes.setdefault("knobs", load_rung(candidate).resolve_knobs())
    lists = [[us, us * 1.001, us * 0.999]] * 5
    days = 1.0 if campaign == "two" else 0.0
    return record_samples.make_record(candidate, lists, days=days, campaign=campaign, **changes)


def variant(name: str, us: float, **knobs: int) -> Record:
    rung = load_rung(name)
    return make_record(rung.id, us, knobs=rung.resolve_knobs(knobs))


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    times = {"baseline:sdpa": 40.0, "baseline:sdpa_expanded": 680.0}
    times |= {"r02_one_barrier": 600.0, "r03_one_warp": 400.0}
    records = [make_record(name, us) for name, us in times.items()]
    records += [variant("r03", 900.0, unroll=1), variant("r02", 1000.0, unroll=1)]
    records += [variant("r02", 700.0, dims_per_thread=4), make_record("baseline:sdpa", 41.0, "two")]
    kept = RecordStore([tmp_path])
    kept.append("h200.jsonl", records)
    return kept


def rows_of(text: str) -> dict[str, str]:
    """The lines of a table by their first cell."""
    return {line.split("  ")[0]: line for line in text.splitlines()}


def test_a_recorded_speedup_pairs_default_knobs_of_one_campaign(store: RecordStore) -> None:
    found = recorded_speedup("r02", "r03", HEADLINE, store=store)
    assert found.value == pytest.approx(1.5)
    assert found.interval[0] <= 1.5 <= found.interval[1]
    assert (found.source, found.baseline_us, found.candidate_us) == ("recorded", 600.0, 400.0)
    assert "NVIDIA H200, 2026-11-21" in found.what
    newer = recorded_speedup("baseline:sdpa", "baseline:sdpa_expanded", HEADLINE, store=store)
    assert newer.baseline_us == 40.0, "the newer sdpa was not measured beside sdpa_expanded"
    assert recorded_speedup("r02", "r03", HEADLINE, gpu="l4", store=store) is None
    assert recorded_speedup("r00", "r03", HEADLINE, store=store) is None


def test_records_that_were_not_measured_together_are_refused(store: RecordStore) -> None:
    first, second = make_record("baseline:sdpa", 41.0, "two"), make_record("r03_one_warp", 400.0)
    for other, said in ((second, "not measured together"), (60.0, "do not belong together")):
        with pytest.raises(LabError, match=said):
            show_comparison(recorded=(first, other))


def test_defaults_leave_variants_out(store: RecordStore) -> None:
    every = find_records(["r02", "r03"], HEADLINE, store=store)
    default = find_records(["r02", "r03"], HEADLINE, defaults=True, store=store)
    assert [record.median_us for record in default] == [600.0, 400.0]
    assert len(every) == 5
    unrolled = find_records(["r03"], HEADLINE, defaults=True, knobs={"unroll": 1}, store=store)
    assert [record.median_us for record in unrolled] == [900.0]


def test_the_table_names_gpu_day_and_what_is_missing(store: RecordStore) -> None:
    text = show_records(["baseline:sdpa", "r03", "r00"], store=store, check_fresh=False).text
    told = ("41.0", "400.0", "2026-11-22", "[recorded]", "no record of r00")
    assert [words for words in told if words not in text] == []
    assert text.count("NVIDIA H200") == 1  # of all rows, in the caption


def test_against_several_baselines(store: RecordStore) -> None:
    names = ["baseline:sdpa_expanded", "baseline:sdpa", "baseline:flashinfer"]
    text = show_against("r03_one_warp", names, HEADLINE, store=store).text
    assert all(words in text for words in ("1.70x faster", "10.00x slower", "no record yet"))


def test_an_ablation_has_a_cell_for_each_case(store: RecordStore) -> None:
    variants = {"four warps": ("r02", {}), "one warp": ("r03", {})}
    variants["one warp, barrier"] = ("r02", {"dims_per_thread": 4})
    shown = show_ablation(variants, "unroll", (1, 4), HEADLINE, store=store, live=False)
    rows = rows_of(shown.text)
    assert "1000 " in rows["four warps"] and "600.0" in rows["four warps"]
    assert "no record" in rows["one warp, barrier"] and "700.0" in rows["one warp, barrier"]
    assert "900.0" in rows["one warp"]
    assert "1 of 6 cells" in shown.text
    assert 'alt="Line chart.' in shown.html


def test_counters_show_missing_as_missing(tmp_path: Path) -> None:
    values = {"achieved_occupancy_pct": 3.03, "l2_hit_pct": None}
    counters = {"tool": "ncu 2025.3.1", "values": values}
    store = RecordStore([tmp_path])
    store.append("h200.jsonl", [make_record("r03_one_warp", 400.0, counters=counters)])
    rows = rows_of(compare_counters(["r03"], HEADLINE, store=store, live=False).text)
    assert "3.03" in rows["achieved_occupancy_pct"]
    assert "missing" in rows["l2_hit_pct"] and "missing" in rows["registers_per_thread"]
    both = compare_counters(["r02", "r03"], HEADLINE, store=store, live=False)
    assert "no recorded counters of r02_one_barrier" in both.text


@pytest.mark.parametrize(
    ("value", "interval", "said"),
    [
        (0.5, (0.4, 0.8), "2.00x slower (95 %: 1.25 to 2.50)"),
        (0.99, (0.97, 1.0), "the same (0.99x) (95 %: 0.97 to 1.00)"),
        (2.0, (1.9, 2.1), "2.00x faster (95 %: 1.90 to 2.10)"),
    ],
)
def test_an_interval_holds_the_number_beside_it(
    value: float, interval: tuple[float, float], said: str
) -> None:
    speedup = Speedup(value, "recorded", interval=interval)
    assert said in ratio_table("a", "b", [("recorded", speedup, "")], "").text
    assert said == say_speedup(speedup)


def test_live_times_come_from_one_set_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def time_now(jobs: Any, workload: Any) -> list[Record]:
        asked.extend(jobs)
        return [make_record("r02_one_barrier", 600.0), variant("r03", 900.0, unroll=1)]

    monkeypatch.setattr("labtools.notebook.live.can_run_live", lambda: True)
    monkeypatch.setattr("labtools.notebook.live.time_now", time_now)
    found = measure_speedup("r02", "r03", HEADLINE, candidate_knobs={"unroll": 1})
    assert found.source == "live"
    assert found.value == pytest.approx(2 / 3)
    assert [knobs for _, knobs in asked] == [{}, {"unroll": 1}]


@pytest.mark.slow
def test_the_live_path_reaches_the_measuring_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from live_fake import use_fake_gpu

    from labtools.measure.gpu.measure import time_candidates

    use_fake_gpu(monkeypatch, tmp_path)
    monkeypatch.setattr("labtools.notebook.live.can_run_live", lambda: True)
    for name, few in (("processes", 2), ("rounds", 5)):
        monkeypatch.setitem(time_candidates.__kwdefaults__, name, few)
    small = HEADLINE.replace(batch=1, num_qo_heads=2, num_kv_heads=1, kv_len=8, head_dim=64)
    found = measure_speedup("r02", "r03", small, candidate_knobs={"unroll": 1})
    assert found.source == "live" and "NVIDIA Fake GPU" in found.what
    assert found.interval[0] <= found.value <= found.interval[1]
    text = show_ablation({"one warp": ("r03", {})}, "unroll", (1,), small, live=True).text
    assert "live: this machine's GPU" in text and "no record" not in text


def test_counters_fall_back_to_records_when_ncu_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_ncu(*_: Any) -> None:
        raise LabError("Nsight Compute was not found.")

    monkeypatch.setattr("labtools.measure.profile_rung", no_ncu, raising=False)
    nothing = RecordStore([tmp_path])
    text = compare_counters(["r03"], HEADLINE, store=nothing, live=True).text
    assert "Nsight Compute was not found" in text and "no recorded counters" in text


@pytest.mark.parametrize("live", [True, False])
def test_counters_of_runs_that_differ_are_told_live_and_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, live: bool
) -> None:
    alike = {"duration_us": 100.0, "instructions_per_cycle": 1.6}
    alike |= {"warp_latency_cycles": 10.0, "achieved_occupancy_pct": 25.0}
    values = {"r02_one_barrier": alike, "r03_one_warp": {**alike, "instructions_per_cycle": 0.8}}

    def profile(rung: Rung, _: Problem) -> ProfileReport:
        kernels = (KernelCounters(rung.id, "1", "32", values[rung.id]),)
        return ProfileReport(rung.id, {}, {}, "ncu 2025.3.1", kernels, totals={})

    monkeypatch.setattr("labtools.measure.profile_rung", profile, raising=False)
    monkeypatch.setattr("labtools.notebook.counters.gpu_of_device", lambda: load_gpu("h200"))
    store = RecordStore([tmp_path])
    for name, counted in values.items():
        counters = {"tool": "ncu 2025.3.1", "values": counted}
        store.append("h200.jsonl", [make_record(name, 400.0, counters=counters)])
    told = compare_counters(["r02", "r03"], HEADLINE, store=store, live=live).text
    assert "Of r03_one_warp the counters do not belong together" in told
    assert ("live" in told, "recorded" in told) == (live, not live)


def test_the_column_that_needs_room_gets_it() -> None:
    def widest(*row: str | Word) -> int:
        heads = make_table(("what", "us", "where from"), [row]).html.split("<th ")[1:]
        (wide,) = [number for number, head in enumerate(heads) if "min-width" in head]
        return wide

    assert widest("8 warps, 2 stages", "32.4", Word("forecast")) == 0
    assert widest("r03", Word("recorded", "NVIDIA H200, 2026-11-21"), "fresh") == 1
    assert widest("r03", "613", "a sentence that says why") == 2


def test_what_is_used_is_of_the_repaired_point_and_p03_waits_for_its_record(tmp_path: Path) -> None:
    problem, sdpa = operation_of("prefill").headline, "baseline:prefill_sdpa"
    names = [rung.id for rung in list_rungs("prefill")]
    lines = show_use([sdpa, *names], problem, against=sdpa).text.splitlines()
    rows = {line.split("  ")[0]: line.split() for line in lines[2:]}
    assert rows["p00, as written"][3] == rows["p01, as written"][3] == "faults"
    assert "wrong" in rows["p01, its fault repaired alone"]
    assert "p00, its fault repaired alone" not in rows
    assert float(rows["p00, repaired"][2]) > float(rows["p02"][1])
    assert {name.split("_")[0] for name in names} <= {name.split(",")[0] for name in rows}
    assert "prefill_sdpa over it" in lines[1]
    empty = show_use(["p02_corrected"], problem, store=RecordStore([tmp_path])).text
    assert "not measured yet" in empty and "over it" not in empty
