"""Campaigns on the fake GPU: what they write, how they go on, what they refuse."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from live_fake import use_fake_gpu

from labtools.measure.campaign import recording as campaign
from labtools.measure.campaign.plan import Plan, Section
from labtools.measure.campaign.recording import Effort, record_campaign, record_rung
from labtools.measure.case import Fault, checked_limits, why_not_launched
from labtools.measure.gpu.job import rung_candidate
from labtools.measure.gpu.runner import GpuRun
from labtools.measure.profiler import sanitize
from labtools.measure.profiler.sanitize import SanitizerReport
from labtools.problem import LabError, Workload, kernels_dir, load_rung
from labtools.record import RecordStore, SanitizerVerdict, freshness, median_problems, paired_ratio

SMALL = Workload(2, 4, 2, 64, 64)
TIMES_ALONE = Effort(1, 5, profile=False, sanitize=False)
BOTH, R03 = (SMALL, SMALL.replace(batch=1)), ("r03_one_warp", {})
SECTION = Section(BOTH, (("r02_one_barrier", {}), R03), ceiling=True, profile=(R03,))
TINY = Plan("tiny", "for tests", (SECTION,))


def test_a_campaign_writes_fresh_records_and_goes_on_where_it_was(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path)
    out = tmp_path / "out"
    seen: list[tuple[str, int, int]] = []

    def note(text: str, done: int = 0, total: int = 0) -> None:
        seen.append((text, done, total))

    report = record_campaign(TINY, out, Effort(2, 5), progress=note)
    assert report.ok, report.failures
    assert (report.groups, report.measured, report.resumed) == (2, 2, 0)
    assert report.path == out / "fake" / "tiny.jsonl.gz"
    records = RecordStore([out]).query()
    assert len(records) == 2 * (2 + 4)
    for record in records:
        assert median_problems(record) == []
        assert freshness(record).fresh, freshness(record)
    r02 = RecordStore([out]).query(rung="r02", workload=SMALL)[0]
    r03 = RecordStore([out]).query(gpu="fake", rung="r03", workload=SMALL)[0]
    assert paired_ratio(r02, r03).ratio == pytest.approx(2.0)
    assert r03.forecast is not None and r03.forecast.model
    assert r03.comparison.cases > 10  # the battery and the processes
    # No profiler and no sanitizer here: both say why, and nothing reads as zero.
    assert r03.counters is not None
    assert r03.counters.values == {} and r03.counters.reason
    assert {one.tool for one in r03.sanitizer} == {"memcheck", "racecheck", "synccheck"}
    assert all(one.verdict == "not run" and one.text for one in r03.sanitizer)
    assert r02.counters is None
    assert seen[-1][0] == "done"
    assert any(total for _, _, total in seen)

    again = record_campaign(TINY, out, Effort(2, 5))
    assert (again.measured, again.resumed) == (0, 2)
    assert again.ok

    # Other settings are another measurement; its records take the place of the old ones.
    other = record_campaign(TINY, out, TIMES_ALONE)
    assert other.measured == 2
    assert len(RecordStore([out]).query(latest=False)) == len(records)


def test_a_rung_that_is_broken_as_written_is_watched_as_written_too(monkeypatch):
    asked = []

    def watch(rung, workload, knobs, tools):
        asked.append((rung.id, dict(knobs), *tools))
        return [SanitizerReport(tools[0], "errors" if rung.broken(knobs) else "clean")]

    monkeypatch.setattr(sanitize, "sanitize_rung", watch)
    p00, p02 = (rung_candidate(load_rung(name)) for name in ("p00", "p02"))
    verdicts = campaign._read_verdicts({"p00": p00, "p02": p02}, lambda *_: None)
    said = [(one.tool, one.verdict, one.knobs) for one in verdicts["p00"]]
    tools = ("memcheck", "racecheck", "synccheck")
    assert said == [(tool, "clean", None) for tool in tools] + [
        (tool, "errors", {"pad": 0}) for tool in tools
    ]
    assert [one.knobs for one in verdicts["p02"]] == [None] * 3
    written = {**p00.knobs, "pad": 0}
    assert ("p00_traditional", written, "memcheck") in asked
    kept = verdicts["p00"][3]
    assert SanitizerVerdict.model_validate_json(kept.model_dump_json()) == kept
    assert "knobs" not in verdicts["p00"][0].model_dump()


def test_a_campaign_stopped_in_the_middle_keeps_what_it_had(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path)
    out = tmp_path / "out"
    real = campaign.run_group
    calls = []

    def stop_at_second(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(campaign, "run_group", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        record_campaign(TINY, out, TIMES_ALONE)
    assert len(RecordStore([out]).query(kind="rung")) == 2
    monkeypatch.setattr(campaign, "run_group", real)
    report = record_campaign(TINY, out, TIMES_ALONE)
    assert (report.measured, report.resumed) == (1, 1)
    assert len(RecordStore([out]).query(kind="rung")) == 4


def test_a_wrong_kernel_is_not_timed_and_the_others_are(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path, {"decode_r02": "wrong"})
    report = record_campaign(TINY, tmp_path, TIMES_ALONE)
    assert not report.ok
    assert report.measured == 2
    assert {record.candidate for record in report.records} == {"r03_one_warp", "ceiling:read_sweep"}
    assert all("r02_one_barrier" in key for key in report.failures)


def test_a_rung_outside_the_repository_is_recorded(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    for ending in (".py", ".cu"):
        shutil.copy(kernels_dir() / "decode" / f"r03_one_warp{ending}", folder / f"mine{ending}")
    rung = load_rung(folder / "mine.py")
    report = record_rung(rung, SMALL, out_dir=tmp_path / "out", effort=Effort(1, 5, sanitize=False))
    (record,) = [one for one in report.records if one.candidate == "mine"]
    assert record.rung_path == str(folder / "mine.py")
    assert freshness(record).fresh
    # A changed instruction stales it, a changed comment does not.
    source = folder / "mine.cu"
    source.write_text("// a remark\n" + source.read_text())
    assert freshness(record).fresh
    source.write_text(source.read_text().replace("1.f / weight_sum", "2.f / weight_sum"))
    assert not freshness(record).fresh
    (folder / "mine.py").unlink()
    assert "cannot be loaded" in freshness(record).reason


def test_what_cannot_be_recorded_is_refused(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path, {"decode_r03": "nothing"})
    rung = load_rung("r03")
    edited = rung.with_source(rung.source_text + "\n// and more\nint unused;")
    with pytest.raises(LabError, match="edited"):
        record_rung(edited, SMALL, out_dir=tmp_path)
    with pytest.raises(LabError, match="cannot run"):
        record_rung(rung, SMALL.replace(head_dim=96), out_dir=tmp_path)
    with pytest.raises(LabError, match="was not recorded"):
        record_rung(rung, SMALL, out_dir=tmp_path, effort=TIMES_ALONE)


def test_one_workload_that_fails_does_not_cost_the_others(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path)
    real = campaign.run_group

    def refuse_one(pool, request, *rest):
        if request.workload.batch == 2:
            raise LabError("It could not be measured.", "for a test")
        return real(pool, request, *rest)

    monkeypatch.setattr(campaign, "run_group", refuse_one)
    report = record_campaign(TINY, tmp_path, TIMES_ALONE)
    assert not report.ok
    assert report.measured == 1
    assert {record.problem.batch for record in report.records} == {1}


def test_a_kernel_that_kills_the_checks_process_fails_alone():
    good, bad = rung_candidate("r03"), rung_candidate("r02")
    asked = []

    def run_jobs(jobs):
        asked.append(len(jobs))
        runs = []
        for rung, workload, _ in jobs:
            if rung.id.startswith("r02"):
                fault = Fault("misaligned", "misaligned address")
                return [*runs, GpuRun(workload, False, faults=[fault])]
            runs.append(GpuRun(workload, True))
        return runs

    wanted = {("bad", 64): (bad, SMALL), ("good", 64): (good, SMALL)}
    results = campaign.check_batteries(wanted, checked_limits(), run_jobs)
    assert not results[("bad", 64)].ok
    assert "misaligned" in results[("bad", 64)].problems[0]
    assert results[("good", 64)].ok
    cases = len(campaign.small_cases(SMALL, good.supports))
    assert asked == [2 * cases, cases]
    assert results[("good", 64)].cases == cases


def test_what_a_gpu_cannot_launch_is_no_case():
    """A kernel that asks for more shared memory the longer its sequences are."""
    plain, asked = load_rung("r03"), []

    def launch(problem, limits, knobs):
        made = plain.launch(problem, limits, knobs)
        return [dataclasses.replace(one, smem_bytes=1024 * problem.kv_len) for one in made]

    def run_jobs(jobs):
        asked.extend(workload.kv_len for _, workload, _ in jobs)
        return [GpuRun(workload, True) for _, workload, _ in jobs]

    one = dataclasses.replace(
        rung_candidate("r03"), target=dataclasses.replace(plain, launch=launch)
    )
    left_out = {}
    campaign.check_batteries({("r03", 64): (one, SMALL)}, checked_limits(), run_jobs, left_out)
    assert 0 < max(asked) <= checked_limits().smem_per_block_bytes // 1024
    every = campaign.small_cases(SMALL, one.supports)
    refused = [case for case in every if case.kv_len > max(asked)]
    ((label, why),) = left_out.items()
    assert label == one.label and why.startswith(f"{len(refused)} of {len(every)} small workloads")
    said = why_not_launched(one.target, refused[0], checked_limits(), one.knobs)
    assert said in why and "bytes of shared memory" in said
