"""The tables of latencies: every number has a source, and says whose it is."""

from __future__ import annotations

import gzip
import json
import os
import tomllib
from pathlib import Path

import pytest

from labtools.predict import latencies
from labtools.predict.latencies import ASSUMED, load_latencies, read_table, table_files
from labtools.predict.sheets import list_gpus
from labtools.problem import LabError
from labtools.record import published_figures


def _pipe(**what: object) -> dict[str, object]:
    """Two lengths of a chain of 24 cycles a step, between 23 and 25."""
    return {
        "samples": [
            {
                "what": {"body": body, "trips": 1, **what},
                "values": [23 * body, 24 * body, 25 * body],
            }
            for body in (32, 64)
        ]
    }


OWN = {
    "schema": 1,
    "kind": "microbench",
    "provenance": {
        "gpu": "NVIDIA H200", "gpu_slug": "h200", "arch": "sm_90", "num_sms": 132,
        "l2_bytes": 62914560, "date": "2026-01-02T03:04:05Z",
    },
    "benchmarks": {
        "clock": {"samples": [{"what": {"test": "clock"}, "values": [1980.0]}]},
        "pipe.shfl": _pipe(test="latency"),
        "chase.l2": {
            "samples": [{"what": {"kib": 8192, "warmed": "by all"}, "values": [250, 270, 290]}]
        },
        "barrier.meet": _pipe(test="meet", warps=4, blocks=1),
        "bandwidth.hbm": {
            "samples": [
                {
                    "what": {"warps": 1, "loads": 1, "bytes_per_lane": 16, "bytes": 170_000},
                    "values": [1.0],
                }
            ]
        },
    },
}  # fmt: skip
"""A record of a few microbenchmarks."""


def _write_record(folder: Path, record: object) -> Path:
    path = folder / "h200" / "microbench.json.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
    return path


@pytest.fixture
def own_table(monkeypatch, tmp_path: Path) -> Path:
    """The published tables, and a record of our own for the H200."""
    monkeypatch.setattr(latencies, "RECORDS", tmp_path)
    return _write_record(tmp_path, OWN)


@pytest.mark.parametrize("name", table_files())
def test_every_number_of_every_table_has_a_source_and_a_spread(name: str) -> None:
    path = table_files()[name]
    table = read_table(path)
    for key, entry in table.entries.items():
        assert entry.low <= entry.value <= entry.high, key
        units = ("cycles", "cycles a cycle", "GB/s", "us", "ns", "MHz", "products")
        assert entry.unit in units, key
        assert len(entry.source) > 3, key
    assert table.calibrated == (not name.startswith("sm_"))
    if name.startswith("sm_"):
        documents = tomllib.loads(path.read_text()).get("documents", {})
        assert all(len(text) > 20 for text in documents.values())
        assert {entry.source for entry in table.entries.values()} == set(documents.values())


@pytest.mark.parametrize("gpu", list_gpus())
def test_every_gpu_has_latencies(gpu: str) -> None:
    table = load_latencies(gpu)
    assert table.interval("fp32") in (1.0, 2.0) or table.calibrated
    own = gpu in table_files()
    assert table.calibrated == own


def test_ours_is_calibrated_and_stands_in_where_nothing_was_published(own_table) -> None:
    h200 = load_latencies("h200")
    assert h200.calibrated
    assert h200.latency("shfl") == 24
    assert h200.sm_mhz == 1980
    assert h200.by_number("latency.barrier") == {4: 24.0}
    assert h200.curve("hbm")[0]["warps"] == 1
    ada = load_latencies("rtx4090")
    assert not ada.calibrated
    assert ada.latency("shfl") == 24
    assert ada.entry("latency.shfl").source == ASSUMED
    assert ada.latency("l2") == 273.0
    assert "Luo" in ada.entry("latency.l2").source
    assert ada.curves_of == "h200"
    assert ada.num_sms == 132
    assert ada.sm_mhz is None  # a clock is one card's own
    assert ada.entry("latency.shfl").assumed
    assert not ada.entry("latency.l2").assumed


def test_a_new_table_is_read_without_a_restart(own_table) -> None:
    assert load_latencies("h200").latency("shfl") == 24
    assert load_latencies("rtx4090").latency("shfl") == 24
    faster = {**OWN["benchmarks"], "pipe.shfl": _pipe(test="latency", trips=2)}
    path = _write_record(own_table.parents[1], {**OWN, "benchmarks": faster})
    os.utime(path, ns=(1, 1))
    assert load_latencies("h200").latency("shfl") == 12
    assert load_latencies("rtx4090").latency("shfl") == 12


def test_what_nobody_knows_is_said(own_table) -> None:
    with pytest.raises(LabError, match=r"Nothing is known of latency\.nonsense"):
        load_latencies("h200").latency("nonsense")
    assert load_latencies("h200").latency("nonsense", 7.0) == 7.0
    for number, damaged in enumerate(({**OWN, "provenance": {}}, [], {**OWN, "schema": 99})):
        os.utime(_write_record(own_table.parents[1], damaged), ns=(number, number))
        with pytest.raises(LabError, match=r"could not be read|no record|another layout"):
            load_latencies("h200")
    own_table.write_bytes(b"nonsense")
    with pytest.raises(LabError, match="could not be read"):
        load_latencies("h200")


def test_the_published_figures_agree_with_those_of_the_book() -> None:
    claims = published_figures()["latency"]
    for gpu, arch in (("RTX 4090", "sm_89"), ("H100 PCIe", "sm_90")):
        index = claims["gpu"].index(gpu)
        table = read_table(table_files()[arch])
        for ours, theirs in (
            ("l1", "l1"), ("l2", "l2"), ("hbm", "dram"), ("shared.32", "shared_memory"),
        ):  # fmt: skip
            assert table.latency(ours) == claims[theirs][index]
