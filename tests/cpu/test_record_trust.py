"""False and foreign records: each is refused, flagged or shown as unsigned, and none runs code."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from devices import LIMITS
from record_samples import make_record, record_of_rung

from labtools.problem import HEADLINE, Launch, Workload, kernels_dir, list_baselines, load_rung
from labtools.problem.rung import move_outside
from labtools.record import (
    DamagedRecordWarning,
    Record,
    RecordStore,
    freshness,
    read_records,
    shipped_records_dir,
)
from labtools.record.query import describe_record
from labtools.record.schema import SCHEMA_VERSION
from labtools.record.staleness import rung_freshness
from labtools.record.trust import contradictions, doubts, loosest_check, read_manifest
from tools.write_manifest import manifest_of

WORKLOAD = Workload(2, 8, 2, 65, 128)


def put(*places: Any) -> Callable[[dict[str, Any]], None]:
    """Set what stands at a path of names to a value: ``put("samples", "processes", [])``."""
    *path, last, value = places

    def change(data: dict[str, Any]) -> None:
        held: Any = data
        for name in path:
            held = held[name]
        held[last] = value

    return change


def times_less(data: dict[str, Any]) -> None:
    """Median and samples edited together."""
    for process in data["samples"]["processes"]:
        process["us"] = [us / 4 for us in process["us"]]
    data["median_us"] /= 4


def samples_less(data: dict[str, Any]) -> None:
    """The samples edited alone."""
    median_us = data["median_us"]
    times_less(data)
    data["median_us"] = median_us


_PUT = tomllib.loads(Path(__file__).with_name("false_records.toml").read_text("utf-8"))
REFUSED = {
    **{name: put(*places) for name, places in _PUT.items()},
    "edited samples": samples_less,
    "an error without a limit": put("comparison", "tolerance", None),
    "a time that nobody takes": put("protocol", None),
}
FLAGGED = {
    "a date to come": put("provenance", "date", "2099-01-01T00:00:00Z"),
    "no error at all": put("comparison", "worst_error", 1e-9),
    "times below its memory's": times_less,
}
UNSIGNED = {
    "another campaign": put("campaign", "mine"),
    "another hash": put("hashes", "sass_hash", "0"),
    "another commit": put("provenance", "commit", "0" * 40),
}


@pytest.fixture(scope="module")
def true_record() -> dict[str, Any]:
    """What a shipped record says."""
    records = RecordStore([shipped_records_dir()]).query(rung="r08", workload=HEADLINE)
    return records[0].model_dump(mode="json")


def test_a_record_may_be_held_to_what_its_baseline_is() -> None:
    for baseline in list_baselines(None):
        assert (baseline.tolerance or 0) <= loosest_check(baseline.storage.bits), baseline.id


def test_false_records_are_refused_flagged_or_unsigned(
    true_record: dict[str, Any], tmp_path: Path
) -> None:
    lines = []
    for change in (REFUSED | FLAGGED | UNSIGNED).values():
        data = json.loads(json.dumps(true_record))
        change(data)
        lines.append(json.dumps(data))
    odd = ["[" * 100_000, '"text"', "null", '{"candidate": "\\ud83d"}', "\x00" * 9]
    (tmp_path / "mine.jsonl").write_text("\n".join([*lines, *odd, ""]))
    store = RecordStore([tmp_path])
    with pytest.warns(DamagedRecordWarning):
        records = store.load()
    refused = [int(problem.what.split()[1]) - 1 for problem in store.problems]
    assert refused == [*range(len(REFUSED)), *range(len(lines), len(lines) + len(odd))]
    assert all(problem.why and len(str(problem)) < 900 for problem in store.problems)
    assert [bool(doubts(record)) for record in records] == [True] * len(FLAGGED) + [False] * len(
        UNSIGNED
    )
    assert all(record.signed is False for record in records)
    assert all(describe_record(record).endswith("unsigned") for record in records)


def test_a_record_does_not_say_of_itself_that_it_is_signed(true_record: dict[str, Any]) -> None:
    data = {**true_record, "signed": True, "file": str(shipped_records_dir() / "x.jsonl")}
    record = Record.model_validate(data)
    assert record.signed is None and record.file is None


def test_a_file_that_inflates_without_end_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labtools.record.store._MOST_BYTES", 2**20)
    (tmp_path / "own.jsonl.gz").write_bytes(gzip.compress(bytes(2**24)))
    _, problems = read_records(tmp_path / "own.jsonl.gz")
    assert "more than 1 MiB" in problems[0].why


@pytest.mark.parametrize("kind", ["rung", "ceiling"])
def test_no_record_makes_code_run(kind: str, tmp_path: Path) -> None:
    """What stands at a record's path is read and compared, and never executed."""
    ran = tmp_path / "ran"
    for name in ("mine", "read_sweep"):
        shutil.copy(kernels_dir() / "decode" / "r03_one_warp.cu", tmp_path / f"{name}.cu")
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\n")
    candidate = "mine" if kind == "rung" else "ceiling:read_sweep"
    record = make_record(candidate, rung_path=str(tmp_path / f"{candidate.split(':')[-1]}.py"))
    for one in (record, record.model_copy(update={"rung_hash": "0"})):
        assert not freshness(one).fresh
        assert one.default_knobs == {}
    for odd in ("/dev/zero", "/dev/zero.py", "x" * 5000 + ".py", "\0.py", str(tmp_path)):
        assert not freshness(record.model_copy(update={"rung_path": odd})).fresh
    assert not ran.exists()


# ---------------------------------------------------------------------- the project's own files


def test_the_shipped_files_are_those_of_the_manifest() -> None:
    assert dict(read_manifest()) == manifest_of(shipped_records_dir()), "make record binds them"


def test_what_the_shipped_records_say_agrees_with_itself() -> None:
    records = RecordStore([shipped_records_dir()]).load()
    assert records and all(record.signed for record in records)
    assert [record for record in records if contradictions(record)] == []


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of two shipped files that stands for the project's folder."""
    folder = tmp_path / "records"
    (folder / "h200").mkdir(parents=True)
    for name in ("rows.jsonl.gz", "splits.jsonl.gz"):
        shutil.copy(shipped_records_dir() / "h200" / name, folder / "h200" / name)
    (folder / "manifest.json").write_text(json.dumps(manifest_of(folder)))
    for module in ("store", "trust"):
        monkeypatch.setattr(f"labtools.record.{module}.shipped_records_dir", lambda: folder)
    return folder


def load_quietly(folder: Path) -> tuple[list[Record], str]:
    store = RecordStore([folder])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = store.load()
    return records, "\n".join(map(str, store.problems))


def test_a_changed_added_or_deleted_shipped_file_is_named(shipped: Path) -> None:
    records, said = load_quietly(shipped)
    assert not said and all(record.signed for record in records)
    rows, splits = shipped / "h200" / "rows.jsonl.gz", shipped / "h200" / "splits.jsonl.gz"

    shutil.copy(rows, shipped / "h200" / "more.jsonl.gz")
    records, said = load_quietly(shipped)
    assert "more.jsonl.gz" in said and sum(not record.signed for record in records) > 0
    (shipped / "h200" / "more.jsonl.gz").unlink()

    text = gzip.decompress(splits.read_bytes()).replace(b'"rounds"', b'"rounds"')
    splits.write_bytes(gzip.compress(text, 1))
    records, said = load_quietly(shipped)
    assert "splits.jsonl.gz is not one that the project ships" in said
    assert {record.signed for record in records} == {True, False}

    rows.unlink()
    assert "rows.jsonl.gz is missing" in load_quietly(shipped)[1]
    (shipped / "manifest.json").write_text("[]")
    records, said = load_quietly(shipped)
    assert "list of the shipped records cannot be read" in said
    assert records and not any(record.signed for record in records)


# ------------------------------------------------------------------- what a timing means, all of it


def kept_of(name: str, **changes: Any) -> Record:
    """A record of a rung as a file gives it back."""
    record = record_of_rung(load_rung(name), WORKLOAD, **changes)
    return Record.model_validate_json(record.model_dump_json())


def timed_too(launches: list[Launch]) -> list[Launch]:
    return [dataclasses.replace(one, prepare=False) for one in launches]


def allocated_in_the_call(launches: list[Launch]) -> list[Launch]:
    return [
        dataclasses.replace(
            one, workspace=tuple(dataclasses.replace(w, in_call=True) for w in one.workspace)
        )
        for one in launches
    ]


def test_what_moves_into_the_timed_call_or_out_of_it_stales_a_record() -> None:
    allocates = kept_of("r04")
    prepares = kept_of("r06")
    shares = kept_of("r08")
    outside = kept_of("r04", experiment="outside")
    outside = outside.model_copy(update={"launches": tuple(move_outside(outside.launches))})
    for record, move, stale in (
        (allocates, list, False),
        (allocates, move_outside, True),
        (prepares, list, False),
        (prepares, timed_too, True),
        (shares, list, False),
        (shares, move_outside, False),  # it allocates nothing in the call
        (shares, allocated_in_the_call, True),
        (outside, list, False),
    ):
        rung = load_rung(record.candidate)
        launches = move(rung.launches(record.problem, LIMITS, record.knobs))
        answer = rung_freshness(record, rung, launches)
        assert answer.fresh is not stale, (record.candidate, move.__name__, answer.reason)
    # A larger allocation costs more.
    (first, *rest) = allocates.launches
    larger = tuple(dataclasses.replace(space, shape=(7, *space.shape)) for space in first.workspace)
    grown = allocates.model_copy(
        update={"launches": (dataclasses.replace(first, workspace=larger), *rest)}
    )
    assert not freshness(grown).fresh
    assert not freshness(prepares.model_copy(update={"codec": "int4"})).fresh


def test_every_shipped_record_says_what_its_timed_call_holds() -> None:
    records = RecordStore([shipped_records_dir()]).load()
    assert {record.schema_version for record in records} == {SCHEMA_VERSION}
    inside = [one for one in records if any(launch.workspace for launch in one.launches)]
    assert {one.candidate for one in inside} == {"r04_split_first"}
    assert {one.protocol for one in inside} == {"stream-1"}
    assert {one.experiment for one in inside} <= {"", "stream"}
    assert any(launch.prepare for one in records for launch in one.launches)


def test_what_is_no_file_is_told_and_a_file_of_rubbish_in_few_words(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to("/dev/zero")
    (tmp_path / "c.jsonl").write_text("{}\n" * 1000)
    store = RecordStore([tmp_path])
    with pytest.warns(DamagedRecordWarning):
        assert store.load() == []
    said = [problem.why for problem in store.problems]
    assert said[:2] == ["it is no file"] * 2 and said[-1].startswith("900 more")
    assert len(said) == 103
