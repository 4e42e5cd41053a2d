"""Every error that people will meet: provoked, and told as what, why and what still works.

Each case goes through the command line, where a person meets it, and looks at the exit status:
0 right, 1 the kernel is wrong, 2 the command line was wrong, 3 something needed is missing.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import importlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from devices import H200, LIMITS

import labtools
from labtools.cli import main
from labtools.measure.worker import child_environment
from labtools.problem import KernelError, LabError, load_rung
from labtools.toolchain import cuda_status
from labtools.toolchain.status import Findings, explain

RIGHT, WRONG, USAGE, MISSING = 0, 1, 2, 3

HAS_GPU = cuda_status().can_run_live
no_gpu = pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")


class Ended:
    """A command that has ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def error(self) -> dict[str, str]:
        """The three parts of the message, all of them there."""
        parts: dict[str, str] = json.loads(self.out)["error"]
        assert parts["what"], parts
        assert parts["why"], parts
        assert parts["still_works"], parts
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


RUNG_FILE = """
from pathlib import Path
import numpy as np
from labtools.problem import Launch, Rung

def launch(workload, limits, knobs):
    return [Launch("decode", (workload.num_qo_heads, workload.batch), (64,),
                   args=("q", "k", "v", "seq_lens", "out", np.int32(workload.num_kv_heads),
                         np.int32(workload.kv_len), np.float32(workload.sm_scale)))]

RUNG = Rung(id="mine", title="mine", source=Path(__file__).with_suffix(".cu"), idea="",
            limiter="", cost="", launch=launch)
"""

# A kernel that is right: 64 threads, the weights and their sum in shared memory. BODY is where a
# case breaks it.
RIGHT_KERNEL = """\
#include <cuda_fp16.h>

extern "C" __global__ void decode(
    const half* q,        // [B, Hq, D]
    const half* k,        // [B, Hkv, S, D]
    const half* v,        // [B, Hkv, S, D]
    const int* seq_lens,  // [B]
    half* out,            // [B, Hq, D]
    int num_kv_heads, int kv_len, float sm_scale) {
  __shared__ float weight_smem[64];
  const int head = blockIdx.x, sequence = blockIdx.y, t = threadIdx.x;
  const int group = gridDim.x / num_kv_heads;
  const long long row0 = (long long)(sequence * num_kv_heads + head / group) * kv_len;
  const half* my_q = q + (sequence * gridDim.x + head) * HEAD_DIM;
  float maximum = -3.0e38f, sum = 0.0f;
  float acc[HEAD_DIM / 64] = {};
  // FAULT
  for (int first = 0; first < seq_lens[sequence]; first += 64) {
    float score = -3.0e38f;
    if (first + t < seq_lens[sequence]) {
      score = 0.0f;
      for (int d = 0; d < HEAD_DIM; ++d)
        score += __half2float(my_q[d]) * __half2float(k[(row0 + first + t) * HEAD_DIM + d]);
      score *= sm_scale;
    }
    weight_smem[t] = score;
    __syncthreads();  // BARRIER
    float top = maximum;
    for (int i = 0; i < 64; ++i) top = fmaxf(top, weight_smem[i]);
    const float scale = __expf(maximum - top);
    sum *= scale;
    for (int j = 0; j < HEAD_DIM / 64; ++j) acc[j] *= scale;
    for (int i = 0; i < 64 && first + i < seq_lens[sequence]; ++i) {
      const float weight = __expf(weight_smem[i] - top);
      sum += weight;
      for (int j = 0; j < HEAD_DIM / 64; ++j)
        acc[j] += weight * __half2float(v[(row0 + first + i) * HEAD_DIM + 64 * j + t]);
    }
    maximum = top;
    __syncthreads();
  }
  for (int j = 0; j < HEAD_DIM / 64; ++j)
    out[(sequence * gridDim.x + head) * HEAD_DIM + 64 * j + t] = __float2half(acc[j] / sum);
}
"""

MISALIGNED = """
  const float4 four = *reinterpret_cast<const float4*>(my_q + 1);
  sum += 0.0f * four.x;"""
HANG = """
  volatile int waiting = 1;
  while (waiting) {}"""


@pytest.fixture
def write_rung(tmp_path: Path) -> Callable[[str], str]:
    """Write a rung of two files somewhere on disk; gives its path."""

    def write(source: str) -> str:
        folder = tmp_path / "own"
        folder.mkdir(exist_ok=True)
        (folder / "mine.py").write_text(RUNG_FILE)
        (folder / "mine.cu").write_text(source)
        return str(folder / "mine.py")

    return write


def _broken(fault: str) -> str:
    source = RIGHT_KERNEL.replace("  // FAULT", fault.strip("\n"))
    assert source != RIGHT_KERNEL
    return source


# ------------------------------------------------------------------ nothing to run on


@no_gpu
@pytest.mark.parametrize(
    "command",
    [
        ("run", "r03", "--on", "gpu"),
        ("profile", "r03"),
        ("profile", "sdpa"),
        ("sanitize", "r03"),
        ("bench", "r03"),
        ("record", "r03"),
    ],
    ids=lambda command: " ".join(command),
)
def test_no_gpu(cli: Cli, command: tuple[str, ...]) -> None:
    ended = cli(*command)
    assert ended.status == MISSING
    assert "GPU" in ended.error["what"]
    assert "without a GPU" in ended.error["still_works"]


OLD_DRIVER = dataclasses.replace(H200, cuda_version="12.4", driver_version="550.90.07")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Findings(), "libcuda.so.1"),
        (Findings(driver_library=True, cu_init=100), "finds no GPU"),
        (Findings(driver_library=True, cu_init=803), "different versions"),
        (
            Findings(
                driver_library=True,
                cu_init=0,
                driver_cuda=(12, 4),
                device=OLD_DRIVER,
                cupy_version="14.2.0",
                cupy_cuda_major=13,
            ),
            "cupy-cuda12x",
        ),
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
    from labtools.measure.profiler import profile

    program = tmp_path / "ncu"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "if '--version' in sys.argv: print('Version 2025.3.1.0 (build 1)'); sys.exit(0)\n"
        "print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA '\n"
        "      'GPU Performance Counters on the target device 0.')\n"
        "sys.exit(1)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("LABTOOLS_NCU", str(program))
    monkeypatch.setattr(profile, "require_device", lambda: H200)
    monkeypatch.setattr(profile, "hold_this_gpu", lambda *_: warnings.catch_warnings())
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


def test_a_right_kernel_from_anywhere_on_disk_is_right(
    cli: Cli, write_rung: Callable[[str], str]
) -> None:
    """The broken kernels below differ from this one by their fault alone."""
    ended = cli("run", write_rung(RIGHT_KERNEL), *SMALL)
    assert ended.status == RIGHT, ended.err
    assert json.loads(ended.out)["ok"] is True


@pytest.mark.parametrize(
    "command", [("compile",), ("run", *SMALL)], ids=["for a GPU", "for the CPU"]
)
def test_a_kernel_that_does_not_compile_shows_the_line(
    cli: Cli, write_rung: Callable[[str], str], command: tuple[str, ...]
) -> None:
    source = RIGHT_KERNEL.replace("maximum = top;", "maximum = tip;")
    line = source[: source.index("tip")].count("\n") + 1
    name, *options = command
    ended = cli(name, write_rung(source), *options)
    assert ended.status == WRONG
    what = json.loads(ended.out)["error"]["what"]
    assert f"line {line}" in what
    assert "maximum = tip;" in what


def test_a_misaligned_access_names_its_line(cli: Cli, write_rung: Callable[[str], str]) -> None:
    source = _broken(MISALIGNED)
    ended = cli("run", write_rung(source), *SMALL)
    assert ended.status == WRONG
    (fault,) = [one for one in _faults(ended) if one["kind"] == "misaligned"]
    assert fault["file"].endswith("mine.cu")
    assert fault["line"] == source[: source.index("float4*")].count("\n") + 1


def test_an_access_out_of_bounds_names_buffer_and_line(
    cli: Cli, write_rung: Callable[[str], str]
) -> None:
    """One row too many of k, which for the last KV head lies past the end of the buffer."""
    source = RIGHT_KERNEL.replace(
        "if (first + t < seq_lens[sequence])", "if (first + t <= seq_lens[sequence])"
    )
    assert source != RIGHT_KERNEL
    ended = cli("run", write_rung(source), *SMALL)
    assert ended.status == WRONG
    fault = next(one for one in _faults(ended) if one["kind"] == "out_of_bounds")
    assert "`k`" in fault["message"]
    assert fault["file"].endswith("mine.cu")
    # The compiler may give the load the line of its loop.
    line = source[: source.index("k[(row0")].count("\n") + 1
    assert line - 1 <= fault["line"] <= line


def test_a_race_is_named(cli: Cli, write_rung: Callable[[str], str]) -> None:
    source = RIGHT_KERNEL.replace("__syncthreads();  // BARRIER", "")
    ended = cli("run", write_rung(source), *SMALL)
    assert ended.status == WRONG
    assert {one["kind"] for one in _faults(ended)} & {"race", "order_dependent"}


def test_a_hang_ends_and_is_named(
    cli: Cli, write_rung: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from labtools.measure import cpu

    limited = functools.partial(cpu.run_on_cpu, time_limit_s=2.0)
    monkeypatch.setattr(cpu, "run_on_cpu", limited)
    started = time.monotonic()
    ended = cli("run", write_rung(_broken(HANG)), *SMALL)
    assert ended.status == WRONG
    assert "hang" in {one["kind"] for one in _faults(ended)}
    assert time.monotonic() - started < 60


def test_a_wrong_result_ends_with_status_1(cli: Cli, write_rung: Callable[[str], str]) -> None:
    source = RIGHT_KERNEL.replace("acc[j] / sum", "acc[j]")
    ended = cli("run", write_rung(source), *SMALL)
    assert ended.status == WRONG


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("cudaErrorMisalignedAddress: misaligned address", "misaligned"),
        ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", "out_of_bounds"),
        ("Out of memory allocating 68,719,476,736 bytes", "out_of_memory"),
        ("cudaErrorLaunchTimeout: the launch timed out and was terminated", "hang"),
    ],
)
def test_what_cuda_says_is_told_in_words(said: str, kind: str) -> None:
    from labtools.measure.gpu.faults import cuda_fault

    fault = cuda_fault(RuntimeError(f"CUDA error: {said}"))
    assert fault is not None
    assert fault.kind == kind
    assert len(fault.message) > len(said) + 20


def test_out_of_memory_is_told_before_the_machine_is_in_trouble(cli: Cli) -> None:
    ended = cli("run", "r03", "--on", "cpu", "--workload", "512,64,64,131072,128")
    assert ended.status == MISSING
    assert "memory" in ended.error["what"] + ended.error["why"]


# ------------------------------------------------------------------ two at once, and killed


def _start(code: str, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=child_environment(extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOLD = """
    import time
    from labtools.measure.gpu.queue import hold_gpu
    with hold_gpu(["gpu-0"], "timing r03 in another notebook"):
        print("held", flush=True)
        time.sleep(600)
"""


def test_two_notebooks_on_one_gpu_wait_for_each_other() -> None:
    from labtools.measure.gpu.queue import hold_gpu

    other = _start(HOLD)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        said: list[str] = []
        with (
            pytest.raises(LabError) as caught,
            hold_gpu(["gpu-0"], "this notebook", said.append, longest_wait_s=0.3),
        ):
            raise AssertionError("two measurements at once")
        assert "timing r03 in another notebook" in caught.value.why
        assert str(other.pid) in caught.value.why
        assert caught.value.still_works
        assert said
        # Killed in mid-run, it gives the GPU back.
        other.kill()
        other.wait()
        with hold_gpu(["gpu-0"], "this notebook", longest_wait_s=20):
            pass
    finally:
        other.kill()
        other.wait()


def test_two_notebooks_write_one_journal() -> None:
    from labtools.record.journal import Journal

    code = """
        from labtools.record.journal import Journal
        journal = Journal(reader="a")
        for i in range(5):
            journal.commit("q%d-%d" % (NUMBER, i), "page", "faster", 2.0)
    """
    writers = [_start(textwrap.dedent(code).replace("NUMBER", str(n))) for n in range(2)]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
    assert len(Journal(reader="a").history()) == 10


def _descendants(pid: int) -> set[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def _alive(pids: set[int]) -> set[int]:
    living = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            living.add(pid)
    return living


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_or_killed_leaves_nothing_behind(
    write_rung: Callable[[str], str], cli: Cli, ending: signal.Signals
) -> None:
    path = write_rung(_broken(HANG))
    command = [sys.executable, "-m", "labtools", "run", path, *SMALL, "--json"]
    running = subprocess.Popen(
        command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell that runs the tests in the background has them, and so this, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        # It has started its kernel when a descendant has used a moment of processor time.
        end = time.monotonic() + 60
        while not (busy := _busy(_descendants(running.pid))) and time.monotonic() < end:
            time.sleep(0.05)
        assert busy, "the kernel was never started"
        started = _descendants(running.pid)
        running.send_signal(ending)
        _, err = running.communicate(timeout=30)
        end = time.monotonic() + 10
        while _alive(started) and time.monotonic() < end:
            time.sleep(0.05)
        assert _alive(started) == set()
        if ending != signal.SIGKILL:
            assert running.returncode == 130, err
            assert "Stopped" in err
            assert "Traceback" not in err
    finally:
        running.kill()
        running.wait()
    # What was killed leaves nothing that a later run trips over.
    assert cli("run", write_rung(RIGHT_KERNEL), *SMALL).status == RIGHT


def _busy(pids: set[int]) -> set[int]:
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


def _record_json() -> dict[str, Any]:
    from pydantic import TypeAdapter

    from labtools.problem import Workload
    from labtools.record.fields import KeptLaunchField

    rung, workload = load_rung("r03"), Workload.parse("1,2,1,64,64")
    return {
        "candidate": rung.id,
        "kind": "rung",
        "knobs": rung.resolve_knobs(),
        "workload": workload.to_dict(),
        "launches": TypeAdapter(tuple[KeptLaunchField, ...]).dump_python(
            tuple(rung.launches(workload, LIMITS)), mode="json"
        ),
        "hashes": {"source_hash": "0" * 64},
        "protocol": "graph-1",
        "comparison": {"ok": True, "worst_error": 1e-4, "tolerance": 1e-3, "cases": 1},
        "samples": {
            "processes": [
                {
                    "process": number,
                    "us": [10.0, 11.0, 12.0],
                    "launches_per_sample": 10,
                    "rotated_sets": 4,
                    "rotated_bytes": 1000,
                }
                for number in range(5)
            ]
        },
        "median_us": 11.0,
        "campaign": "test",
        "provenance": {
            "gpu": "NVIDIA H200",
            "gpu_slug": "h200",
            "arch": "sm_90",
            "date": "2026-11-21T12:00:00Z",
            "tree_hash": "0" * 40,
            "command": "labtools record",
        },
    }


def test_a_damaged_record_costs_only_itself(cli: Cli, records_folder: Path) -> None:
    good = json.dumps(_record_json()).encode() + b"\n"
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
        assert problem["what"]
        assert problem["why"]
        assert problem["still_works"]
        assert problem["what"] in ended.err
    doctor = json.loads(cli("doctor").out)
    link = next(link for link in doctor["links"] if link["name"] == "records")
    assert not link["ok"]
    assert link["why"]


@pytest.mark.parametrize("damage", [b"", b"not a database at all" * 200, b"SQLite format 3\0"])
def test_a_damaged_journal_loses_nothing(cli: Cli, damage: bytes) -> None:
    from labtools.record.journal import Journal

    journal = Journal()
    journal.commit("q1", "page", "faster", 2.0)
    journal.reveal("q1", 2.2, "recorded")
    journal.commit("q2", "page", "slower", 0.5)
    assert journal.database is not None
    journal.database.write_bytes(damage)
    ended = cli("journal")
    assert ended.status == RIGHT
    data = json.loads(ended.out)
    assert [row["prediction"]["question_id"] for row in data["predictions"]] == ["q1", "q2"]
    assert data["predictions"][0]["score"]["direction_right"] is True
    if damage:
        assert data["notices"]
        assert data["notices"][0] in ended.err


def test_a_journal_in_a_folder_that_cannot_be_made(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "file" / "journal.sqlite"))
    ended = cli("journal")
    assert ended.status == MISSING
    assert "journal" in ended.error["what"]


def test_a_rung_whose_file_is_broken_says_where(cli: Cli, write_rung: Callable[[str], str]) -> None:
    path = Path(write_rung(RIGHT_KERNEL))
    path.write_text(RUNG_FILE.replace("workload.batch", "workload.batch_size"))
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


def test_a_message_keeps_its_parts_from_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a child process found out reaches the reader whole."""
    import child_functions

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))

    from labtools.measure.worker import ChildFailed, run_call

    finished = run_call(child_functions.refuse, "a", time_limit_s=60)
    error = finished.refused
    assert isinstance(error, ChildFailed)
    assert (error.what, error.why, error.still_works) == ("a", "b", "c")
    assert not finished.answered


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
