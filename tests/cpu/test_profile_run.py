"""Profiling with a stand-in for ncu that behaves well, badly, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
from pathlib import Path

import pytest
from devices import H200

from labtools.cli.outcome import plain
from labtools.measure.profiler import ncu as ncu_module
from labtools.measure.profiler import profile as profile_module
from labtools.measure.profiler.ncu import (
    NcuTool,
    ProfileFailed,
    ProfilerUnavailable,
    find_ncu,
    ncu_command,
    nsight_python_usable,
)
from labtools.measure.profiler.profile import profile_rung
from labtools.measure.worker import ChildFailed
from labtools.problem import LabError, Rung, Workload, load_rung

WORKLOAD = Workload(1, 2, 1, 8, 64)

# It answers as Nsight Compute 2025.3.1 does; FAKE_NCU says how it behaves. It does not run the
# program it is given (there is no GPU here) but answers the call as the program would.
FAKE_NCU = r"""
import json, os, subprocess, sys, time
from multiprocessing.connection import Client
args, mode = sys.argv[1:], os.environ.get("FAKE_NCU", "good")
csv = os.environ["FAKE_NCU_CSV"]
if "--version" in args:
    print("NVIDIA (R) Nsight Compute Command Line Profiler")
    print("Copyright (c) 2018-2025 NVIDIA Corporation")
    print("Version %s.0 (build 36398880) (public-release)" % os.environ["FAKE_NCU_VERSION"])
    sys.exit(0)
if "--import" in args:
    if mode == "unreadable":
        sys.exit("==ERROR== Failed to load report")
    assert args[args.index("--page") + 1] == "raw" and "--csv" in args
    assert args[args.index("--print-units") + 1] == "base"
    print(open(args[args.index("--import") + 1]).read())
    sys.exit(0)
open(os.environ["FAKE_NCU_LOG"], "a").write(json.dumps(args) + "\n")
print("==PROF== Connected to process 4711 (/usr/bin/python3.12)")
def answer(kind, value):
    channel = Client(args[-1])
    assert json.loads(channel.recv_bytes())[0].endswith(":launch_items")
    channel.send_bytes(json.dumps([kind, value]).encode())
    try:
        channel.recv_bytes()
    except EOFError:
        pass  # the parent has hung up
if mode == "hang":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(os.environ["FAKE_NCU_LOG"] + ".pid", "w").write(str(os.getpid()))
    time.sleep(600)
if mode == "no kernels":
    answer("reply", None)
    print("==WARNING== No kernels were profiled.")
    sys.exit(0)
if mode == "crash":
    sys.exit("==ERROR== The application returned an error code (11).")
if mode == "target failed":
    answer("refusal", {"what": "k.cu does not compile: line 3", "why": "a", "still_works": "b"})
    print("==ERROR== The application returned an error code (3).")
    sys.exit(3)
if mode == "unknown metric" and "--metrics" in args:
    asked = args[args.index("--metrics") + 1].split(",")
    for bad in ("sm__inst_issued.avg.pct_of_peak_sustained_active", "sm__inst_executed.sum"):
        if bad in asked:
            sys.exit("==ERROR== Failed to find metric %s" % bad)
if mode == "odd complaint" and "--metrics" in args:
    sys.exit("==ERROR== Some of the requested metrics are not supported by this chip.")
answer("reply", None)
csv = "nothing" if mode == "no table" else csv
open(args[args.index("--export") + 1], "w").write(csv)
print("==PROF== Disconnected from process 4711")
"""

CSV = """\
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","gpu__time_duration.sum","dram__bytes_read.sum",\
"sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","ns","byte","%"
"0","4711","python3.12","127.0.0.1","decode","1","7","(32, 1, 1)","(2, 1, 1)","0","9.0",\
"12,345","1,048,576","n/a"
"""


@pytest.fixture
def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the PATH with the stand-in; its log holds one JSON command line a run."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\n{FAKE_NCU}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("LABTOOLS_NCU", raising=False)
    monkeypatch.setenv("FAKE_NCU_CSV", CSV)
    monkeypatch.setenv("FAKE_NCU_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_NCU_VERSION", "2025.3.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The stand-in needs no GPU; only what to compile for.
    monkeypatch.setattr(profile_module, "require_device", lambda: H200)
    monkeypatch.setattr(profile_module, "hold_this_gpu", lambda *_: contextlib.nullcontext())
    return tmp_path / "log"


@pytest.fixture
def rung(tmp_path: Path) -> Rung:
    (tmp_path / "mine.cu").write_text('extern "C" __global__ void decode(void* q, int n) {}\n')
    (tmp_path / "mine.py").write_text(
        textwrap.dedent(
            """
            from pathlib import Path
            import numpy as np
            from labtools.problem import Knob, Launch, Rung

            def launch(workload, limits, knobs):
                return [Launch("decode", (2,), (knobs["block"],), args=("q", np.int32(3)))]

            RUNG = Rung(id="mine", title="mine", source=Path(__file__).with_suffix(".cu"),
                        idea="", limiter="", cost="", launch=launch,
                        knobs=(Knob("block", (32, 64), 32, "threads"),))
            """
        )
    )
    return load_rung(tmp_path / "mine.py")


def test_counters_come_back_live(fake_ncu: Path, rung: Rung) -> None:
    report = profile_rung(rung, WORKLOAD, {"block": 64})
    assert report.origin == "live"
    assert report.tool == "ncu 2025.3.1"
    assert report.knobs == {"block": 64}
    assert report.main_kernel.values["duration_us"] == pytest.approx(12.345)
    assert report.totals["dram_read_bytes"] == 1_048_576
    assert report.main_kernel.values["achieved_occupancy_pct"] is None
    kept = report.record_counters()
    assert kept.values["duration_us"] == pytest.approx(12.345)
    assert kept.values["kernels_per_call"] == 1
    assert "achieved_occupancy_pct" in kept.missing
    data = json.loads(json.dumps(plain(report)))
    assert data["kernels"][0]["values"]["achieved_occupancy_pct"] is None
    assert "achieved_occupancy_pct" in data["kernels"][0]["missing"]


def test_full_asks_for_every_section(tmp_path: Path) -> None:
    command = ncu_command(
        NcuTool("ncu", (2025, 3, 1)), tmp_path / "r.ncu-rep", counters="full", warm=False
    )
    assert command[command.index("--set") + 1] == "full"
    assert "--metrics" not in command


def test_the_report_can_be_kept(fake_ncu: Path, rung: Rung, tmp_path: Path) -> None:
    report = profile_rung(rung, WORKLOAD, report_path=tmp_path / "kept")
    assert report.report_path == str(tmp_path / "kept.ncu-rep")
    assert Path(report.report_path).exists()


def test_a_metric_that_ncu_does_not_know_is_left_out_and_named(
    fake_ncu: Path, rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "unknown metric")
    report = profile_rung(rung, WORKLOAD)
    assert report.main_kernel.values["duration_us"] == pytest.approx(12.345)
    assert "sm__inst_executed.sum" in report.notes[0]
    assert "sm__inst_issued" in report.notes[0]
    assert len(fake_ncu.read_text().splitlines()) == 3


def test_a_complaint_about_metrics_in_other_words_falls_back_to_ncus_own_set(
    fake_ncu: Path, rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "odd complaint")
    report = profile_rung(rung, WORKLOAD)
    assert report.main_kernel.values["duration_us"] == pytest.approx(12.345)
    assert [("--set" in json.loads(line)) for line in fake_ncu.read_text().splitlines()] == [
        False,
        True,
    ]


def _fails(rung: Rung, kind: type[LabError], **options: float) -> LabError:
    with pytest.raises(kind) as caught:
        profile_rung(rung, WORKLOAD, **options)  # type: ignore[arg-type]
    assert caught.value.what
    assert caught.value.why
    assert caught.value.still_works
    return caught.value


def test_a_hanging_profiler_is_stopped_with_its_children(
    fake_ncu: Path, rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "hang")
    error = _fails(rung, ProfileFailed, time_limit_s=3.0)
    assert "3 s" in error.why
    pid = int(Path(str(fake_ncu) + ".pid").read_text())
    stat = Path(f"/proc/{pid}/stat")  # a zombie that nobody has collected yet is dead too
    assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("no kernels", "nothing was launched"),
        ("crash", "error code (11)"),
        ("unreadable", "Failed to load report"),
        ("no table", "no table"),
    ],
)
def test_other_failures_say_why(
    fake_ncu: Path, rung: Rung, monkeypatch: pytest.MonkeyPatch, mode: str, words: str
) -> None:
    monkeypatch.setenv("FAKE_NCU", mode)
    assert words in _fails(rung, LabError).why


def test_an_error_of_the_kernel_is_shown_as_itself(
    fake_ncu: Path, rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "target failed")
    assert "does not compile: line 3" in _fails(rung, ChildFailed).what


def test_no_ncu_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LABTOOLS_NCU", raising=False)
    monkeypatch.setattr(ncu_module, "find_tool", lambda name: None)
    with pytest.raises(ProfilerUnavailable) as caught:
        find_ncu()
    assert "LABTOOLS_NCU" in caught.value.why
    assert "labtools records" in caught.value.still_works


def test_a_workload_that_the_rung_refuses_never_reaches_ncu(fake_ncu: Path, rung: Rung) -> None:
    with pytest.raises(LabError):
        profile_rung(rung, WORKLOAD, {"block": 48})
    assert not fake_ncu.exists()


@pytest.mark.parametrize(
    ("installed", "ncu_version", "usable"),
    [
        (None, (2026, 3, 0), False),
        ("0.9.6", (2026, 3, 0), False),
        ("1.1.0", (2025, 3, 1), False),
        ("1.1.0", (2026, 2, 0), False),
        ("1.1.0", (2026, 2, 1), True),
        ("1.1.0", (), False),
    ],
)
def test_nsight_python_only_with_a_new_enough_ncu(
    monkeypatch: pytest.MonkeyPatch,
    installed: str | None,
    ncu_version: tuple[int, ...],
    usable: bool,
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise profile_module.importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(profile_module.importlib.metadata, "version", version)
    assert nsight_python_usable(NcuTool("ncu", ncu_version)) is usable


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
                pathlib.Path(path).write_text(os.environ["FAKE_NCU_CSV"])
                log = {"metrics": options["metrics"], "cache": options["cache_control"], **seen}
                pathlib.Path(os.environ["FAKE_NCU_LOG"] + ".nsight").write_text(json.dumps(log))
            return call
        return decorate
"""


@pytest.fixture
def fake_nsight(fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nsight-python beside the stand-in for ncu, and the fake GPU under both."""
    from live_fake import FAKE_GPU

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "nsight.py").write_text(FAKE_NSIGHT)
    paths = [str(tmp_path / "site"), str(FAKE_GPU), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("FAKE_NCU_VERSION", "2026.2.1")
    monkeypatch.setenv("FAKE_GPU_BEHAVIOUR", "{}")
    monkeypatch.setattr(profile_module.importlib.metadata, "version", lambda name: "1.1.0")
    return Path(str(fake_ncu) + ".nsight")


def test_nsight_python_profiles_from_inside_where_ncu_is_new_enough(
    fake_nsight: Path, fake_ncu: Path
) -> None:
    """A shipped rung, launched for real by the child (on the fake GPU), watched from inside."""
    report = profile_rung(load_rung("r03"), WORKLOAD)
    assert report.tool == "nsight-python 1.1.0, ncu 2026.2.1"
    assert report.notes == ()
    assert report.main_kernel.values["duration_us"] == pytest.approx(12.345)
    log = json.loads(fake_nsight.read_text())
    assert log["ranges"] == ["target"]
    assert "gpu__time_duration.sum" in log["metrics"]
    assert log["cache"] == "all"
    assert not fake_ncu.exists()  # ncu only read the report


def test_full_and_a_failing_nsight_python_go_under_ncu(
    fake_nsight: Path, fake_ncu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert profile_rung(load_rung("r03"), WORKLOAD, counters="full").tool == "ncu 2026.2.1"
    monkeypatch.setenv("FAKE_NSIGHT", "fails")
    report = profile_rung(load_rung("r03"), WORKLOAD)
    assert report.tool == "ncu 2026.2.1"
    assert "no injection library" in report.notes[0]
