"""What a GPU gives a launch: from sheets, from devices, in records, and in the launch form."""

from __future__ import annotations

import dataclasses
import json
import subprocess

import pytest
from devices import H200, LIMITS
from pydantic import TypeAdapter
from record_samples import make_record

from labtools.measure.campaign.recording import group_key
from labtools.measure.gpu.job import rung_candidate
from labtools.predict import limits_of, load_gpu, merge_device
from labtools.problem import HEADLINE, LabError, Limits, load_rung
from labtools.problem.limits import assumed_limits, clusters_by_rule
from labtools.record import Record, RecordStore
from labtools.toolchain import clusters


def test_the_sheet_of_the_records_gpu_is_what_its_driver_answered() -> None:
    gpu = load_gpu("h200")
    assert gpu.limits.clusters == {2: 66, 4: 30, 8: 15} == clusters_by_rule("sm_90", 132)
    assert "cuOccupancyMaxActiveClusters" in gpu.sources["clusters"]
    assert "not measured" in load_gpu("h100").sources["clusters"]
    assert [LIMITS.clusters_that_fit(size) for size in (1, 2, 4, 8, 16)] == [132, 66, 30, 15, 0]
    assert LIMITS.largest_cluster == 8


def test_gpus_before_sm_90_have_no_clusters() -> None:
    for name in ("t4", "a100-80gb", "rtx4090"):
        limits = load_gpu(name).limits
        assert limits.clusters == {} and limits.largest_cluster == 1
        assert limits.clusters_that_fit(2) == 0


def test_limits_survive_json() -> None:
    known = TypeAdapter(Limits)
    back = known.validate_json(known.dump_json(LIMITS))
    assert back == LIMITS
    assert hash(back) == hash(LIMITS)


def test_a_device_answers_for_its_clusters() -> None:
    asked = merge_device(H200, {2: 66, 4: 32, 8: 16})
    assert asked.limits.clusters[8] == 16
    assert "on this GPU" in asked.sources["clusters"]
    assert merge_device(H200).limits.clusters == LIMITS.clusters
    assert limits_of(H200) == LIMITS
    unknown = dataclasses.replace(H200, name="NVIDIA Future", compute_capability=(15, 0))
    assert limits_of(unknown).arch == "sm_150" and limits_of(unknown).num_sms == 132
    smaller = merge_device(dataclasses.replace(H200, sm_count=120))
    assert smaller.limits.clusters == clusters_by_rule("sm_90", 120)


@pytest.fixture
def fresh_question() -> None:
    clusters.query_clusters.cache_clear()


@pytest.mark.usefixtures("fresh_question")
def test_the_driver_is_asked_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, '{"2": 66, "4": 30, "8": 15}', "")

    monkeypatch.setattr(clusters, "device_query", lambda ordinal: H200)
    monkeypatch.setattr(clusters.subprocess, "run", run)
    assert clusters.query_clusters(0) == {2: 66, 4: 30, 8: 15}
    assert asked[0][1:] == ["-m", "labtools.toolchain.clusters", "0"]
    assert clusters.own_limits(H200).clusters == {2: 66, 4: 30, 8: 15}
    clusters.query_clusters.cache_clear()


@pytest.mark.usefixtures("fresh_question")
@pytest.mark.parametrize("answer", ["", "no json", "[]", None])
def test_without_an_answer_the_rule_stands(
    monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if answer is None:
            raise subprocess.TimeoutExpired(command, 60.0)
        return subprocess.CompletedProcess(command, 0, answer, "")

    monkeypatch.setattr(clusters, "device_query", lambda ordinal: H200)
    monkeypatch.setattr(clusters.subprocess, "run", run)
    assert clusters.query_clusters(0) is None
    assert clusters.own_limits(H200).clusters == clusters_by_rule("sm_90", 132)
    clusters.query_clusters.cache_clear()


@pytest.mark.usefixtures("fresh_question")
def test_a_gpu_without_clusters_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ampere = dataclasses.replace(H200, compute_capability=(8, 0))
    monkeypatch.setattr(clusters, "device_query", lambda ordinal: ampere)
    assert clusters.query_clusters(0) == {}
    clusters.query_clusters.cache_clear()


def test_shipped_records_have_the_limits_of_their_gpu() -> None:
    records = [one for one in RecordStore().load() if (one.file or "").find("h200") >= 0]
    rungs = [one for one in records if one.kind == "rung"]
    for one in rungs:
        assert one.limits is not None
        assert one.limits.dram_gb_per_s == pytest.approx(LIMITS.dram_gb_per_s, rel=0.03)
        same = {"name": LIMITS.name, "dram_gb_per_s": LIMITS.dram_gb_per_s}
        assert dataclasses.replace(one.limits, **same) == LIMITS
    assert all("sms" not in one.knobs for one in records)
    assert all(one.limits is None for one in records if one.kind == "baseline")


def test_a_group_is_the_same_whatever_its_gpu_is_called() -> None:
    """By its data sheet or by the device; another number of multiprocessors is another GPU."""

    def key(**said: object) -> str:
        candidate = rung_candidate(load_rung("r03"), {})
        limits = dataclasses.replace(LIMITS, **said)
        return group_key(HEADLINE, [candidate], {"rounds": 10}, limits)

    assert key() == key(name="NVIDIA H200", dram_gb_per_s=4814.304)
    assert key() != key(num_sms=114)


def test_the_knob_of_an_old_record_becomes_its_limits() -> None:
    old = make_record(candidate="r08_split_loads", knobs={"rows": 8, "warps": 4, "split": 0})
    told = json.loads(old.model_dump_json())
    del told["limits"], told["codec"]
    told |= {"schema_version": 2, "kv_bits": 16}
    told["knobs"]["sms"] = 108
    read = Record.model_validate(told)
    assert read.knobs == old.knobs
    assert read.limits is not None and read.limits.num_sms == 108
    assert read.limits.clusters == clusters_by_rule(read.limits.arch, 108)
    assert read.identity() == old.identity()
    # A new record says them whole, and they come back as they were.
    again = Record.model_validate_json(read.model_dump_json())
    assert again.limits == read.limits
    assert read.limits == assumed_limits(
        *(read.provenance.gpu_slug, read.provenance.arch, 108, read.provenance.l2_bytes or 0)
    )


def test_every_function_of_a_rung_has_the_form() -> None:
    rung = load_rung("r09")
    for name in ("launch", "defines_extra", "plan"):
        with pytest.raises(LabError, match=name):
            dataclasses.replace(rung, **{name: lambda problem, knobs: []})
    fewer = dataclasses.replace(LIMITS, num_sms=40, clusters=clusters_by_rule("sm_90", 40))
    assert rung.launches(HEADLINE, fewer) != rung.launches(HEADLINE, LIMITS)
