"""The tool that times layouts, on the fake GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from devices import LIMITS
from live_fake import DEVICE, use_fake_gpu

from labtools.problem import Workload, load_rung
from research import compare_layouts

LADDER = compare_layouts.RING_RUNGS


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simple rungs stand for r09 to r11, whose launches the fake GPU does not know."""
    use_fake_gpu(monkeypatch, tmp_path)
    monkeypatch.setattr(compare_layouts, "require_device", lambda: DEVICE)
    monkeypatch.setattr(compare_layouts, "RING_RUNGS", ("r03", "r02"))


def test_layouts_are_timed_beside_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    asked = ["layouts", "--out", str(tmp_path), "--workload", "1,2,1,512,128", "--processes", "1"]
    assert compare_layouts.main([*asked, "--rounds", "5"]) == 0
    said = capsys.readouterr().out
    assert all(f"{rung}: rule " in said for rung in compare_layouts.RING_RUNGS)
    assert "the rule 1.00 x the best" in said
    assert "c8 s8: r03_one_warp has no knob" in said
    (row,) = json.loads((tmp_path / "layouts.json").read_text())["rows"]
    good = [one for one in row["timed"] if not one["failure"]]
    assert [(one["rung"], one["knobs"]) for one in good] == [("r03", {}), ("r02", {})]
    assert all(len(one["samples"][0]) == 5 for one in good)


def test_rungs_are_compared_on_drawn_workloads(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    asked = ["drawn", "--out", str(tmp_path), "--workload", "2,2,1,300,128", "--processes", "2"]
    assert compare_layouts.main([*asked, "--rounds", "5"]) == 0
    assert "1 of 1 workloads" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "drawn.json").read_text())["rows"]
    assert len(row["timed"]) == 2
    assert len(row["ratios"]) == 1


def test_drawn_workloads_are_those_of_the_promise() -> None:
    drawn = compare_layouts.promised_workloads(40)
    assert len({one.key() for one in drawn}) == 40
    for one in drawn:
        assert not one.is_paged
        assert one.kv_bytes > compare_layouts.LEAST_BYTES
        assert all(load_rung(rung).supports(one) is None for rung in LADDER)
    assert drawn == compare_layouts.promised_workloads(40)


def test_every_layout_that_is_tried_is_a_layout() -> None:
    for text in compare_layouts.FEW_PAIRS:
        workload = Workload.parse(f"{text},128")
        pairs = workload.batch * workload.num_kv_heads
        for knobs in compare_layouts.layouts_of(pairs, 132):
            for rung in LADDER:
                load_rung(rung).launches(workload, LIMITS, knobs)
