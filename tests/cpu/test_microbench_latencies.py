"""The tables of latencies: every number has a source, and says whose it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from labtools.predict import latencies
from labtools.predict.latencies import ASSUMED, list_tables, load_latencies, read_table
from labtools.predict.sheets import list_gpus
from labtools.problem import LabError
from labtools.record import published_figures

OWN = """
[about]
gpu = "h200"
arch = "sm_90"
calibrated = true
num_sms = 132
l2_bytes = 62914560

[clock]
sm = {value=1980.0, low=1980.0, high=1980.0, unit="MHz", source="clock"}

[latency]
shfl = {value=24.0, low=23.0, high=25.0, unit="cycles", source="pipe.shfl"}
l2 = {value=270.0, low=250.0, high=290.0, unit="cycles", source="chase.l2"}

[latency.barrier]
4 = {value=30.0, low=30.0, high=31.0, unit="cycles", source="barrier.meet"}

[curve]
hbm = [{warps=1, gb_per_s=170.0}]
"""


@pytest.fixture
def own_table(monkeypatch, tmp_path: Path) -> Path:
    """The published tables, and one of our own for the H200."""
    for path in latencies.TABLES.glob("sm_*.toml"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "h200.toml").write_text(OWN)
    monkeypatch.setattr(latencies, "TABLES", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", list_tables())
def test_every_number_of_every_table_has_a_source_and_a_spread(name: str) -> None:
    path = latencies.TABLES / f"{name}.toml"
    table = read_table(path)
    documents = tomllib.loads(path.read_text()).get("documents", {})
    for key, entry in table.entries.items():
        assert entry.low <= entry.value <= entry.high, key
        assert entry.unit in ("cycles", "cycles a cycle", "GB/s", "us", "ns", "MHz"), key
        assert len(entry.source) > 3, key
    assert table.calibrated == (not name.startswith("sm_"))
    if name.startswith("sm_"):
        assert all(len(text) > 20 for text in documents.values())
        assert {entry.source for entry in table.entries.values()} == set(documents.values())


@pytest.mark.parametrize("gpu", list_gpus())
def test_every_gpu_has_latencies(gpu: str) -> None:
    table = load_latencies(gpu)
    assert table.interval("fp32") in (1.0, 2.0) or table.calibrated
    own = gpu in list_tables()
    assert table.calibrated == own


def test_ours_is_calibrated_and_stands_in_where_nothing_was_published(own_table) -> None:
    h200 = load_latencies("h200")
    assert h200.calibrated
    assert h200.latency("shfl") == 24
    assert h200.sm_mhz == 1980
    assert h200.by_number("latency.barrier") == {4: 30.0}
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
    assert "latency.shfl" in ada.assumed()
    assert "latency.l2" not in ada.assumed()


def test_a_new_table_is_read_without_a_restart(own_table) -> None:
    assert load_latencies("h200").latency("shfl") == 24
    path = own_table / "h200.toml"
    path.write_text(OWN.replace("value=24.0", "value=24.5"))
    import os

    os.utime(path, ns=(1, 1))
    assert load_latencies("h200").latency("shfl") == 24.5


def test_what_nobody_knows_is_said(own_table) -> None:
    with pytest.raises(LabError, match=r"Nothing is known of latency\.nonsense"):
        load_latencies("h200").latency("nonsense")
    assert load_latencies("h200").latency("nonsense", 7.0) == 7.0
    (own_table / "h200.toml").write_text("[about]\narch = 3")
    with pytest.raises(LabError, match="could not be read"):
        load_latencies("h200")


def test_the_published_figures_agree_with_those_of_the_book() -> None:
    claims = published_figures()["latency"]
    for gpu, arch in (("RTX 4090", "sm_89"), ("H100 PCIe", "sm_90")):
        index = claims["gpu"].index(gpu)
        table = read_table(latencies.TABLES / f"{arch}.toml")
        for ours, theirs in (
            ("l1", "l1"), ("l2", "l2"), ("hbm", "dram"), ("shared.32", "shared_memory"),
        ):  # fmt: skip
            assert table.latency(ours) == claims[theirs][index]
