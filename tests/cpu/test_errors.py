"""Every error that people will meet: provoked, and told as what, why and what still works.

Each case goes through the command line, where a person meets it, and looks at the exit status:
0 right, 1 the kernel is wrong, 2 the command line was wrong, 3 something needed is missing.
"""

from __future__ import annotations

import dataclasses
import gzip
import importlib
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from devices import H200
from fake_ncu import put_ncu
from processes import descendants, ends
from record_samples import make_record

import labtools
from labtools.cli import main
from labtools.measure.worker import child_environment
from labtools.problem import KernelError, LabError, load_rung
from labtools.toolchain import cuda_status
from labtools.toolchain.status import Findings, explain
from tests.wrong_kernels import write_wrong

RIGHT, WRONG, USAGE, MISSING = 0, 1, 2, 3

HAS_GPU = cuda_status().can_run_live
no_gpu = pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")


@dataclasses.dataclass
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> dict[str, str]:
        """The three parts of the message, all of them there."""
        parts: dict[str, str] = json.loads(self.out)["error"]
        assert all(parts[part] for part in ("what", "why", "still_works")), parts
        assert "Traceback" not in self.err
        assert parts["what"] in self.err
        return parts


Cli = Callable[..., Ended]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process, with --json."""

    def call(*arguments: str) -> Ended:
        capsys.readouterr()
        status = main([*arguments, "--json"])
        captured = capsys.readouterr()
        return Ended(int(status), captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may touch the reader's own journal or wait for the machine's own GPU lock."""
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "journal" / "journal.sqlite"))
    monkeypatch.setenv("LABTOOLS_GPU_LOCKS", str(tmp_path / "locks"))


@pytest.fixture
def mine(tmp_path: Path) -> Callable[..., str]:
    """Write r03, or a wrong kernel, as a rung of two files somewhere on disk; gives its path."""
    folder = tmp_path / "own"
    folder.mkdir()

    def write(wrong: str = "", **edit: str) -> str:
        if wrong:
            return str(write_wrong(wrong, folder))
        for ending in (".py", ".cu"):
            shutil.copy(load_rung("r03").source.with_suffix(ending), folder)
        path = folder / "r03_one_warp.cu"
        text = path.read_text()
        for old, new in edit.items():
            assert text.count(old) >= 1
            text = text.replace(old, new, 1)
        path.write_text(text)
        return str(path.with_suffix(".py"))

    return write


# ------------------------------------------------------------------ nothing to run on


@no_gpu
@pytest.mark.parametrize(
    "command",
    ["run r03 --on gpu", "profile r03", "profile sdpa", "sanitize r03", "bench r03", "record r03"],
)
def test_no_gpu(cli: Cli, command: str) -> None:
    ended = cli(*command.split())
    assert ended.status == MISSING
    assert "GPU" in ended.error["what"]
    assert "without a GPU" in ended.error["still_works"]


OLD_DRIVER = dataclasses.replace(H200, cuda_version="12.4", driver_version="550.90.07")


OTHER_CUDA = Findings(True, 0, (12, 4), OLD_DRIVER, "14.2.0", cupy_cuda_major=13)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Findings(), "libcuda.so.1"),
        (Findings(driver_library=True, cu_init=100), "finds no GPU"),
        (Findings(driver_library=True, cu_init=803), "different versions"),
        (OTHER_CUDA, "cupy-cuda12x"),
    ],
    ids=["no driver", "driver without a GPU", "driver mismatch", "CuPy of another CUDA"],
)
def test_what_is_missing_for_a_live_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, facts: Findings, words: str
) -> None:
    from labtools.measure.gpu import job as live_job

    monkeypatch.setattr(live_job, "cuda_status", lambda: explain(facts))
    ended = cli("profile", "r03")
    assert ended.status == MISSING
    assert words in ended.error["why"]


def test_ncu_is_not_permitted(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ncu(monkeypatch, tmp_path)
    monkeypatch.setenv("FAKE_NCU", "permission")
    ended = cli("profile", "r03")
    assert ended.status == MISSING
    assert "ERR_NVGPUCTRPERM" in ended.error["why"]
    assert "NVreg_RestrictProfilingToAdminUsers" in ended.error["why"]
    assert "recorded on an NVIDIA H200" in ended.error["still_works"]


def test_no_cpp_compiler(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ended = cli("run", "r03", "--on", "cpu", "--quick", "--workload", "1,1,1,4,64")
    assert ended.status == MISSING
    assert "compiler" in ended.error["what"].lower() + ended.error["why"].lower()


# ------------------------------------------------------------------ a kernel that is wrong


SMALL = ("--on", "cpu", "--quick", "--workload", "1,2,1,70,64")


def _faults(ended: Ended) -> list[dict[str, Any]]:
    data = json.loads(ended.out)
    assert data["ok"] is False
    faults: list[dict[str, Any]] = data["faults"]
    return faults


@pytest.mark.parametrize(
    "command", [("compile",), ("run", *SMALL)], ids=["for a GPU", "for the CPU"]
)
def test_a_kernel_that_does_not_compile_shows_the_line(
    cli: Cli, mine: Callable[..., str], command: tuple[str, ...]
) -> None:
    path = mine(weight_sum="weight_some")
    source = Path(path).with_suffix(".cu").read_text()
    line = source[: source.index("weight_sum")].count("\n") + 1
    name, *options = command
    ended = cli(name, path, *options)
    assert ended.status == WRONG
    error = json.loads(ended.out)["error"]
    assert f"line {line}" in error["what"]
    assert "weight_sum" in error["what"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("misaligned_load", "misaligned"), ("no_barrier", "race"), ("wrong_scale", None)],
)
def test_a_wrong_kernel_ends_with_status_1_and_its_fault_has_a_line(
    cli: Cli, mine: Callable[..., str], name: str, kind: str | None
) -> None:
    ended = cli("run", mine(name), *SMALL)
    assert ended.status == WRONG
    faults = [one for one in _faults(ended) if one["kind"] == kind]
    assert bool(faults) == (kind is not None)
    assert all(one["file"].endswith(f"{name}.cu") and one["line"] > 0 for one in faults)


# ------------------------------------------------------------------ two at once, and killed


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_or_killed_leaves_nothing_behind(
    mine: Callable[..., str], cli: Cli, ending: signal.Signals
) -> None:
    path = mine("endless_loop")
    command = [sys.executable, "-m", "labtools", "run", path, *SMALL, "--json"]
    running = subprocess.Popen(
        command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell that runs the tests in the background has them, and so this, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        # It has started its kernel when a descendant has used a moment of processor time.
        end = time.monotonic() + 60
        while not (busy := _busy(descendants(running.pid))) and time.monotonic() < end:
            time.sleep(0.05)
        assert busy, "the kernel was never started"
        started = descendants(running.pid)
        running.send_signal(ending)
        _, err = running.communicate(timeout=30)
        assert ends(*started)
        if ending != signal.SIGKILL:
            assert running.returncode == 130, err
            assert "Stopped" in err
            assert "Traceback" not in err
    finally:
        running.kill()
        running.wait()
    # What was killed leaves nothing that a later run trips over.
    ended = cli("run", mine(), *SMALL)
    assert ended.status == RIGHT and json.loads(ended.out)["ok"] is True, ended.err


def _busy(pids: Sequence[int]) -> set[int]:
    """Those that run a compiled kernel, by now for a fifth of a second."""
    found = set()
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            program = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            continue
        ticks = int(fields[11]) + int(fields[12])
        if program.endswith("/kernel") and ticks / os.sysconf("SC_CLK_TCK") > 0.2:
            found.add(pid)
    return found


# ------------------------------------------------------------------ damaged files


@pytest.fixture
def records_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of all records."""
    from labtools.record import store

    folder = tmp_path / "records"
    folder.mkdir()
    monkeypatch.setattr(store, "shipped_records_dir", lambda: folder)
    monkeypatch.setattr(store, "own_records_dir", lambda: tmp_path / "none")
    return folder


def test_a_damaged_record_costs_only_itself(cli: Cli, records_folder: Path) -> None:
    record = make_record(lists=[[10.0, 11.0, 12.0]] * 5)
    good = record.model_dump_json(exclude_defaults=True).encode() + b"\n"
    (records_folder / "good.jsonl.gz").write_bytes(gzip.compress(good + b'{"half": \n'))
    (records_folder / "torn.jsonl.gz").write_bytes(gzip.compress(good * 50)[:-40])
    (records_folder / "noise.jsonl.gz").write_bytes(b"\x1f\x8b not gzip at all")
    ended = cli("records", "--rung", "r03")
    assert ended.status == RIGHT
    data = json.loads(ended.out)
    assert [row["median_us"] for row in data["records"]] == [11.0]
    assert data["records"][0]["stale"] is True
    assert data["records"][0]["freshness"]
    assert len(data["damaged"]) >= 3
    for problem in data["damaged"]:
        assert all(problem[part] for part in ("what", "why", "still_works"))
        assert problem["what"] in ended.err
    doctor = json.loads(cli("doctor").out)
    link = next(link for link in doctor["links"] if link["name"] == "records")
    assert not link["ok"]
    assert link["why"]


def test_a_journal_in_a_folder_that_cannot_be_made(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "file" / "journal.sqlite"))
    ended = cli("journal")
    assert ended.status == MISSING
    assert "journal" in ended.error["what"]


def test_a_rung_whose_file_is_broken_says_where(cli: Cli, mine: Callable[..., str]) -> None:
    path = Path(mine())
    path.write_text(path.read_text().replace("problem.batch", "problem.batch_size"))
    for command in (("compile",), ("forecast",), ("run", "--on", "cpu")):
        ended = cli(*command, str(path))
        assert ended.status == WRONG
        assert "batch_size" in ended.error["why"]
        assert str(path) in ended.error["why"]  # the file and the line of the reader's own code
    path.write_text("def broken(:\n")
    assert "SyntaxError" in cli("compile", str(path)).error["why"]


# ------------------------------------------------------------------ typed wrongly


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("run", "r77"), "r77"),
        (("run", "r03", "--knob", "unrol=4"), "unrol"),
        (("run", "r03", "--knob", "unroll=5"), "unroll=5"),
        (("forecast", "r03", "--gpu", "h2000"), "h2000"),
        (("run", "r03", "--workload", "8;32;8"), "8;32;8"),
        (("run", "r03", "--workload", "8,32,7,64,128"), "32 query heads over 7"),
        (("run", "r03", "--workload", "8,32,8,0,128"), "kv_len"),
        (("run", "r03", "--workload", "1,1,1,16,96"), "r03_one_warp cannot run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_unknown_names_and_bad_values(cli: Cli, command: tuple[str, ...], words: str) -> None:
    ended = cli(*command)
    assert ended.status == USAGE
    assert words in ended.error["what"]


def kinds_of_error() -> list[type[LabError]]:
    """Every kind of error of labtools: each module that names one is imported."""
    root = Path(labtools.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if re.search(
            r"^class \w+\(\w*(Error|Failed|Missing|Unavailable)\)", path.read_text(), re.M
        ):
            parts = path.relative_to(root.parent).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))
    found: list[type[LabError]] = []
    waiting: list[type[LabError]] = [LabError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.startswith("labtools")]


def test_every_kind_of_error_is_the_same_in_another_process() -> None:
    """Its kind decides the exit status, and its fields are what a caller looks at."""
    from labtools.cli.outcome import _judge
    from labtools.measure.channel import Step
    from labtools.measure.worker import ChildResult, WorkerDied
    from labtools.record.expressions import MissingName
    from labtools.toolchain import CompileError, CompilerMissing

    child = ChildResult(("ncu",), -11, "", "last line", 1.5, False, 60.0)
    made = {
        WorkerDied: WorkerDied(child, Step("running", 2.0, "r03"), True),
        MissingName: MissingName("dram_throughput_pct"),
        CompileError: CompileError("a", "b", "c", file="d", line=5, excerpt="e", log="f"),
    }
    kinds = kinds_of_error()
    assert {WorkerDied, CompileError, CompilerMissing, KernelError} <= set(kinds)
    assert len(kinds) > 12
    for kind in kinds:
        error = made.get(kind) or kind("what", "why", "still")
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert copy.args == error.args
        assert vars(copy) == vars(error)
        assert str(copy) == str(error)
        assert _judge(copy)[0] == _judge(error)[0]


def test_no_thread_is_left_by_these_tests() -> None:
    """A reader thread that waits on a child for ever would keep a notebook from ending."""
    waiting = [
        t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()
    ]
    assert waiting == []
