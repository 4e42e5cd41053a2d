"""Profiling one call with a stand-in for ncu that behaves well, badly, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fake_ncu import FakeNcu, put_ncu
from processes import ends

from labtools.cli.outcome import plain
from labtools.measure.profiler import ncu as ncu_module
from labtools.measure.profiler import profile as profile_module
from labtools.measure.profiler.ncu import NcuTool, ProfileFailed, ProfilerUnavailable
from labtools.measure.profiler.profile import profile_rung
from labtools.measure.worker import ChildFailed
from labtools.problem import LabError, Workload, load_rung

WORKLOAD = Workload(1, 2, 1, 8, 64)
R03 = load_rung("r03")


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    return put_ncu(monkeypatch, tmp_path)


def test_counters_come_back_live_and_the_report_can_be_kept(ncu: FakeNcu, tmp_path: Path) -> None:
    report = profile_rung(R03, WORKLOAD, {"unroll": 1}, report_path=tmp_path / "kept")
    assert (report.origin, report.tool) == ("live", "ncu 2025.3.1")
    assert report.knobs == {"unroll": 1, "launch_bounds": 1}
    assert report.main_kernel.values["duration_us"] == pytest.approx(10)
    assert report.totals["dram_read_bytes"] == 1024
    kept = report.record_counters()
    assert kept.values["duration_us"] == pytest.approx(10)
    assert kept.values["kernels_per_call"] == 1
    assert "achieved_occupancy_pct" in kept.missing
    data = json.loads(json.dumps(plain(report)))
    assert data["kernels"][0]["values"]["achieved_occupancy_pct"] is None
    assert "achieved_occupancy_pct" in data["kernels"][0]["missing"]
    assert report.report_path == str(tmp_path / "kept.ncu-rep")
    assert Path(report.report_path).exists()


@pytest.mark.parametrize(
    ("mode", "note", "sets"),
    [("unknown metric", "sm__cycles_active", [0, 0]), ("odd complaint", "", [0, 1])],
)
def test_without_the_metrics_that_ncu_refuses_it_is_asked_again(
    ncu: FakeNcu, monkeypatch: pytest.MonkeyPatch, mode: str, note: str, sets: list[int]
) -> None:
    monkeypatch.setenv("FAKE_NCU", mode)
    report = profile_rung(R03, WORKLOAD)
    assert report.main_kernel.values["duration_us"] == pytest.approx(10)
    assert note in "".join(report.notes)
    # A complaint in words not known here ends with ncu's own set.
    assert ["--set" in options for options in ncu.options()] == sets


def _fails(kind: type[LabError], **options: float) -> LabError:
    with pytest.raises(kind) as caught:
        profile_rung(R03, WORKLOAD, **options)  # type: ignore[arg-type]
    assert caught.value.what and caught.value.why and caught.value.still_works
    return caught.value


def test_a_hanging_profiler_is_stopped_with_its_children(
    ncu: FakeNcu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "hang")
    assert "4 s" in _fails(ProfileFailed, time_limit_s=4.0).why
    assert ends(int((ncu.folder / "pid").read_text()))


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("no kernels", ProfileFailed, "nothing was launched"),
        ("crash", ProfileFailed, "error code (11)"),
        ("unreadable", ProfileFailed, "Failed to load report"),
        ("no table", LabError, "no table"),
        ("target failed", ChildFailed, "does not compile: line 3"),
    ],
)
def test_other_failures_say_why(
    ncu: FakeNcu, monkeypatch: pytest.MonkeyPatch, mode: str, kind: type[LabError], words: str
) -> None:
    monkeypatch.setenv("FAKE_NCU", mode)
    assert words in str(_fails(kind))


def test_no_ncu_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LABTOOLS_NCU", raising=False)
    monkeypatch.setattr(ncu_module, "find_tool", lambda name: None)
    with pytest.raises(ProfilerUnavailable) as caught:
        ncu_module.find_ncu()
    assert "LABTOOLS_NCU" in caught.value.why
    assert "labtools records" in caught.value.still_works


def test_a_workload_that_the_rung_refuses_never_reaches_ncu(ncu: FakeNcu) -> None:
    with pytest.raises(LabError):
        profile_rung(R03, WORKLOAD, {"unroll": 3})
    assert not ncu.options()


@pytest.mark.parametrize(
    ("installed", "ncu_version", "usable"),
    [
        *(("", (2026, 3, 0), False), ("0.9.6", (2026, 3, 0), False), ("1.1.0", (), False)),
        *(("1.1.0", (2026, 2, 0), False), ("1.1.0", (2026, 2, 1), True)),
    ],
)
def test_nsight_python_only_with_a_new_enough_ncu(
    monkeypatch: pytest.MonkeyPatch, installed: str, ncu_version: tuple[int, ...], usable: bool
) -> None:
    def version(name: str) -> str:
        if not installed:
            raise profile_module.importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(profile_module.importlib.metadata, "version", version)
    assert ncu_module.nsight_python_usable(NcuTool("ncu", ncu_version)) is usable


FAKE_NSIGHT = r"""
import contextlib, json, os, pathlib

seen = {"ranges": []}

@contextlib.contextmanager
def annotate(name):
    seen["ranges"].append(name)
    yield

class analyze:
    @staticmethod
    def kernel(**options):
        def decorate(function):
            def call():
                function()
                assert options["clock_control"] == "none" and options["runs"] == 1
                if os.environ.get("FAKE_NSIGHT") == "fails":
                    raise RuntimeError("no injection library")
                path = options["output_prefix"] + "ncu-output-profiled-0.ncu-rep"
                pathlib.Path(path).write_text(os.environ["FAKE_CSV"])
                log = {"metrics": options["metrics"], "cache": options["cache_control"], **seen}
                folder = pathlib.Path(os.environ["FAKE_NCU_FOLDER"])
                (folder / "nsight.json").write_text(json.dumps(log))
            return call
        return decorate
"""


CSV = """\
"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum"
"","","","","ns"
"0","decode","(32, 1, 1)","(2, 1, 1)","12,345"
"""


@pytest.fixture
def nsight(ncu: FakeNcu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nsight-python beside the one for ncu; the file that it leaves."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "nsight.py").write_text(FAKE_NSIGHT)
    paths = [str(tmp_path / "site"), os.environ["PYTHONPATH"]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("FAKE_CSV", CSV)
    monkeypatch.setenv("FAKE_NCU_VERSION", "2026.2.1")
    monkeypatch.setattr(profile_module.importlib.metadata, "version", lambda name: "1.1.0")
    return tmp_path / "nsight.json"


def test_nsight_python_profiles_from_inside_where_ncu_is_new_enough(
    nsight: Path, ncu: FakeNcu
) -> None:
    """A shipped rung, launched for real by the child (on the fake GPU), watched from inside."""
    report = profile_rung(R03, WORKLOAD)
    assert report.tool == "nsight-python 1.1.0, ncu 2026.2.1"
    assert report.notes == ()
    assert report.main_kernel.values["duration_us"] == pytest.approx(12.345)
    log = json.loads(nsight.read_text())
    assert log["ranges"] == ["target"]
    assert "gpu__time_duration.sum" in log["metrics"]
    assert log["cache"] == "all"
    assert not ncu.options()  # ncu only read the report


def test_full_and_a_failing_nsight_python_go_under_ncu(
    nsight: Path, ncu: FakeNcu, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert profile_rung(R03, WORKLOAD, counters="full").tool == "ncu 2026.2.1"
    (options,) = ncu.options()
    assert options[options.index("--set") + 1] == "full"
    assert "--metrics" not in options
    monkeypatch.setenv("FAKE_NSIGHT", "fails")
    report = profile_rung(R03, WORKLOAD)
    assert report.tool == "ncu 2026.2.1"
    assert "no injection library" in report.notes[0]
