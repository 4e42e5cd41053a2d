"""The README: its first line, its commands, and a table that nobody typed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from labtools.problem import HEADLINE, Workload, list_rungs
from labtools.record import Record, RecordStore
from tools.readme_table import (
    BEGIN,
    END,
    NOTHING_YET,
    replace_table,
    results_table,
    wanted_readme,
)

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_first_line_names_the_packages() -> None:
    first = README.splitlines()[0]
    for package in ("python3", "python3-venv", "git", "make", "g++"):
        assert package in first


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(
        re.findall(
            r"(?:`|^)make (\w+)", README + (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
        )
    )
    assert named - targets == set()
    ci = (ROOT / ".ci/run").read_text()
    assert "make test" in ci


def test_the_table_is_what_the_records_say() -> None:
    """When this fails: make readme."""
    assert wanted_readme() == README


def record(candidate: str, us: float, **changes: object) -> Record:
    """A measured candidate with three samples in each of two processes."""
    baseline = candidate.startswith("baseline:")
    knobs = {} if baseline else next(r for r in list_rungs() if r.id == candidate).resolve_knobs()
    fields = {
        "candidate": candidate,
        "kind": "baseline" if baseline else "rung",
        "knobs": knobs,
        "workload": HEADLINE.to_dict(),
        "hashes": {"source_hash": "0"},
        "protocol": "test",
        "comparison": {"ok": True},
        "samples": {
            "processes": [
                {"process": p, "us": [us, us * 1.001, us * 0.999], "launches_per_sample": 1,
                 "rotated_sets": 1, "rotated_bytes": 1}
                for p in range(2)
            ]
        },
        "median_us": us,
        "campaign": "one",
        "provenance": {
            "gpu": "NVIDIA Test", "gpu_slug": "test", "arch": "sm_90", "tree_hash": "0",
            "date": datetime(2026, 1, 2, tzinfo=UTC), "command": "test",
        },
    }  # fmt: skip
    return Record.model_validate({**fields, **changes})


def table(tmp_path: Path, *records: Record) -> str:
    store = RecordStore([tmp_path])
    store.append("test.jsonl", records)
    return results_table(store, list_rungs())


def test_rows_and_ratios(tmp_path: Path) -> None:
    text = table(tmp_path, record("baseline:sdpa", 40.0), record("r03_one_warp", 100.0))
    assert "Recorded on NVIDIA Test, 2026-01-02" in text
    assert re.search(r"`r03_one_warp`.*\| 100\.0 us \|.*\| 2\.50 x \(2\.\d\d to 2\.\d\d\) \|", text)
    assert re.search(r"`sdpa` \(baseline\) \| 40\.0 us \|.*\| 1\.00 x \|", text)


def test_what_does_not_belong_is_left_out(tmp_path: Path) -> None:
    other_knobs = {**record("r03_one_warp", 1.0).knobs, "unroll": 1}
    text = table(
        tmp_path,
        record("baseline:sdpa", 40.0),
        record("r03_one_warp", 777.0, knobs=other_knobs),
        record("r02_one_barrier", 888.0, workload=Workload(1, 8, 8, 64, 64).to_dict()),
        record("r00_two_passes", 999.0, rung_path="elsewhere/r00_two_passes.py"),
    )
    assert not re.search("777|888|999", text)


def test_times_of_two_campaigns_are_not_set_side_by_side(tmp_path: Path) -> None:
    text = table(
        tmp_path,
        record("baseline:sdpa", 40.0, campaign="older"),
        record("r03_one_warp", 100.0),
    )
    assert text.count(" us |") == 1


def test_no_records(tmp_path: Path) -> None:
    assert results_table(RecordStore([tmp_path]), list_rungs()) == NOTHING_YET


@pytest.mark.parametrize("text", ["no markers", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_missing_markers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="markers"):
        replace_table(text, "table")
