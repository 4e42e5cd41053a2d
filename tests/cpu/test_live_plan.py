"""The arithmetic of timing, CUDA's errors in words, and the lock of a GPU."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from devices import LIMITS
from hypothesis import given
from hypothesis import strategies as st

from labtools.measure.case import Fault
from labtools.measure.channel import Channel, read
from labtools.measure.gpu import plan, queue
from labtools.measure.gpu.check import APART_VISITS, AskedParts, Case, GpuRun, expect_on_device
from labtools.measure.gpu.clocks import ClockWatch
from labtools.measure.gpu.faults import cuda_fault
from labtools.measure.gpu.job import Job, workspaces_of
from labtools.measure.gpu.provenance import describe_command, hash_folders, merge_clocks
from labtools.measure.gpu.queue import GpuLock, gpu_locks_dir, hold_gpu, share_this_gpu
from labtools.problem import (
    HEADLINE,
    SCHEMES,
    Comparison,
    LabError,
    Launch,
    Workload,
    Workspace,
    element_dtype,
    load_rung,
    operation_of,
    parse_problem,
)
from labtools.record import Clocks, Reading

L2 = 60 * 2**20
FREE = 140 * 2**30
HEADS, DIMS = st.sampled_from([1, 8, 32]), st.sampled_from([64, 128])
SHAPES = st.builds(Workload, st.integers(1, 64), st.just(32), HEADS, st.integers(1, 8192), DIMS)


@given(SHAPES)
def test_cold_buffers_are_past_the_l2_or_said_not_to_be(workload):
    rotation = plan.plan_rotation(workload, L2, FREE)
    assert rotation.total_bytes == rotation.sets * workload.set_bytes
    assert rotation.cold == (rotation.total_bytes >= plan.COLD_LEAST * L2)
    assert rotation.sets >= 2
    warm = plan.plan_rotation(workload.replace(cache_state="warm"), L2, FREE)
    assert (warm.sets, warm.cold) == (1, False)


def test_rotation_of_known_shapes():
    assert HEADLINE.set_bytes >= HEADLINE.minimal_bytes
    assert plan.plan_rotation(HEADLINE, L2, FREE).cold
    big = HEADLINE.replace(batch=64)
    assert plan.plan_rotation(big, L2, FREE).sets == 2
    # With memory for one set alone there is one set, and no claim to be cold for a small one.
    small = Workload(1, 32, 8, 512, 128)
    tight = plan.plan_rotation(small, L2, 3 * small.set_bytes)
    assert (tight.sets, tight.cold) == (1, False)


@given(st.floats(0.5, 1e6), st.integers(1, 2048))
def test_launches_are_whole_turns_and_long_enough(launch_us, sets):
    launches = plan.plan_launches(launch_us, sets)
    assert launches % sets == 0
    assert sets <= launches <= max(plan.MOST_LAUNCHES, sets)
    full = plan.MOST_LAUNCHES // sets * sets
    assert launches * launch_us >= plan.SAMPLE_US * 0.999 or launches == full


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_candidate_gets_its_rounds(rounds, wanted):
    own = min(wanted, rounds)
    assert sum(plan.takes_part(i, own, rounds) for i in range(rounds)) == own


def test_long_candidates_get_fewer_rounds_but_some():
    assert plan.plan_rounds(2000.0, 10, 0.6) == 10
    assert plan.plan_rounds(100_000.0, 10, 0.6) == 6
    assert plan.plan_rounds(1e6, 10, 0.6) == 5
    assert plan.plan_rounds(1e6, 3, 0.6) == 3


def test_sampled_pairs_hold_the_first_and_the_last():
    rng = np.random.default_rng(0)
    pairs = HEADLINE.sample_parts(6, rng)
    assert len(set(pairs)) == 6
    assert (0, 0) in pairs
    assert (7, 31) in pairs
    assert Workload(1, 1, 1, 5, 64).sample_parts(6, rng) == [(0, 0)]
    assert HEADLINE.replace(kv_len=131072).parts_affordable() == 2
    assert HEADLINE.parts_affordable() == 8


def test_what_calls_take_follows_from_the_plan():
    planned = partial(plan.planned_us, sets=2, rounds=10, budget_s=0.6, sample_us=plan.SAMPLE_US)
    few = 2 * (10 + plan.SAMPLES_BESIDE)
    assert planned(5000.0, is_rung=False) == pytest.approx(few * 5000.0)
    # A long call takes part in fewer rounds, and a rung is called in its checks besides.
    seldom = 2 * (plan.LEAST_ROUNDS + plan.SAMPLES_BESIDE)
    assert planned(2e5, is_rung=False) == pytest.approx(seldom * 2e5)
    more = 2 * plan.SAMPLES_ALTERED + 2 * plan.LONGEST_CUT
    assert planned(2e5, is_rung=True) == pytest.approx((seldom + more) * 2e5)
    # What is fast is called until a sample is full.
    assert planned(10.0, is_rung=False) >= 10 * plan.SAMPLE_US


# ------------------------------------------------------------------------- CUDA's words


class FakeError(RuntimeError):
    """An error of CuPy: CUDA's code, and a text."""

    def __init__(self, status, text="something else"):
        self.status = status
        super().__init__(text)


class FakeAccelerator(RuntimeError):
    error_code = 716


class FakeMemory(MemoryError):
    pass


@pytest.fixture
def libraries(monkeypatch):
    """CuPy and torch as far as their errors go."""
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(CUDARuntimeError=FakeError),
        memory=SimpleNamespace(OutOfMemoryError=FakeMemory),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    torch = SimpleNamespace(AcceleratorError=FakeAccelerator)
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize(
    ("code", "text", "kind", "fatal"),
    [
        (716, "cudaErrorMisalignedAddress: misaligned address", "misaligned", True),
        (700, "an illegal memory access was encountered\nmore", "out_of_bounds", True),
        (2, "Out of memory allocating 1,024 bytes.", "out_of_memory", False),
        (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources", "launch", False),
        (1, "cudaErrorInvalidConfiguration: invalid configuration argument", "launch", False),
        (719, "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", "trap", True),
        (710, "cudaErrorIllegalInstruction: an illegal instruction was", "trap", True),
        (702, "cudaErrorLaunchTimeout: the launch timed out and was terminated", "hang", True),
        (46, "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy", "busy", False),
        (209, "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available", "launch", False),
        (500, "CUDA_ERROR_NOT_FOUND: named symbol not found", "launch", False),
        (999, "cudaErrorUnknown: unknown error", "cuda", True),
        (999, "", "cuda", True),
    ],
)
@pytest.mark.usefixtures("libraries")
def test_errors_are_told_apart_by_their_code_or_without_one_by_their_text(code, text, kind, fatal):
    """Torch's and its libraries' have a text alone; with a code, whatever the text says."""
    fault = cuda_fault(RuntimeError(f"CUDA error: {text}"))
    assert fault.message and (fault.kind, fault.fatal) == (kind, fatal)
    for said in (text, "something else", "a misaligned address, out of memory", ""):
        fault = cuda_fault(FakeError(code, said))
        assert fault.message and (fault.kind, fault.fatal) == (kind, fatal)


def test_codes_are_those_of_cuda():
    from labtools.measure.gpu.faults import _MEANINGS

    bindings = pytest.importorskip("cuda.bindings.runtime")
    known = {int(one) for one in bindings.cudaError_t}
    driver = pytest.importorskip("cuda.bindings.driver")
    known |= {int(one) for one in driver.CUresult}
    codes = [code for one in _MEANINGS for code in one.codes]
    assert set(codes) <= known
    assert len(codes) == len(set(codes))


def test_the_real_errors_of_cupy_carry_their_code():
    cupy = pytest.importorskip("cupy")
    error = cupy.cuda.runtime.CUDARuntimeError(716)
    assert error.status == 716
    assert cuda_fault(error).kind == "misaligned"
    assert "cudaErrorMisalignedAddress" in cuda_fault(error).message


@pytest.mark.usefixtures("libraries")
def test_only_cudas_errors_are_taken_for_cudas():
    class CUDARuntimeError(RuntimeError):
        """A stranger of the same name."""

    assert cuda_fault(FakeError(700))
    assert cuda_fault(FakeAccelerator("x")).kind == "misaligned"
    assert cuda_fault(FakeMemory("no room")).kind == "out_of_memory"
    assert cuda_fault(RuntimeError("CUDA error: misaligned address"))
    assert cuda_fault(CUDARuntimeError("x")) is None
    assert cuda_fault(MemoryError("out of memory")) is None
    assert cuda_fault(ValueError("shape")) is None
    assert cuda_fault(RuntimeError("no such backend")) is None


# ----------------------------------------------------------------------------- job files


def cross(value, of):
    """What arrives at the other end of a channel."""
    first, second = (Channel(end) for end in socket.socketpair())
    first.send("a kind", value, of)
    kind, plain = second.receive()
    first.close()
    assert kind == "a kind"
    with pytest.raises(EOFError):
        second.receive()
    return read(plain, of)


def test_jobs_cross_the_channel_as_they_are():
    for rung in (load_rung("r00"), load_rung("r03"), load_rung("r10")):
        workload = HEADLINE.replace(seq_lens=(4096, 17, 1, 4096, 4096, 4096, 4096, 5))
        knobs = rung.resolve_knobs()
        launches = tuple(rung.launches(workload, LIMITS, knobs))
        job = Job("one", "rung", launches=launches, scheme=rung.scheme(workload, knobs))
        case = Case(job, workload)
        arrived = cross(case, Case)
        assert arrived == case
        for was, now in zip(launches, arrived.job.launches, strict=True):
            assert [type(arg) for arg in was.args] == [type(arg) for arg in now.args]


SCALARS = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.floats(width=64, allow_nan=False).map(np.float64),
    st.floats(width=16, allow_nan=False).map(np.float16),
    st.booleans().map(np.bool_),
)


@given(st.lists(SCALARS, max_size=4))
def test_scalars_cross_to_the_bit(scalars):
    launch = Launch("a", (1,), (32,), args=("q", *scalars))
    (arrived,) = cross(Job("one", "rung", launches=(launch,)), Job).launches
    assert arrived.args[0] == "q"
    for was, now in zip(scalars, arrived.args[1:], strict=True):
        assert (now.dtype, now.tobytes()) == (was.dtype, was.tobytes())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_runs_cross_with_their_output_and_without(dtype):
    bits = np.arange(24, dtype=np.uint16).reshape(1, 3, 8) + 0x7C00
    out = bits.view(element_dtype(dtype))
    comparison = Comparison(False, float("inf"), (0, 2), 1e-3, ["2 elements are NaN"])
    run = GpuRun(
        HEADLINE, False, comparison, [Fault("out_of_bounds", "a word")], outputs={"out": out}
    )
    arrived = cross(run, GpuRun)
    assert arrived.out.dtype == out.dtype
    assert arrived.out.tobytes() == out.tobytes()
    assert (arrived.faults, arrived.comparison) == (run.faults, comparison)
    assert cross(replace(run, outputs={}), GpuRun).out is None


def test_launches_that_disagree_about_a_workspace_are_refused():
    first, second = (
        Launch("a", (1,), (32,), args=("w",), workspace=(Workspace("w", (n,), "float32"),))
        for n in (1, 2)
    )
    assert list(workspaces_of([first, first])) == ["w"]
    with pytest.raises(LabError, match="disagree"):
        workspaces_of([first, second])


# ------------------------------------------------------------------- the lock of a GPU


@pytest.fixture
def locks(monkeypatch, tmp_path):
    monkeypatch.setenv("LABTOOLS_GPU_LOCKS", str(tmp_path / "locks"))
    return tmp_path


HOLDER = """
import sys, time
from labtools.measure.gpu.queue import hold_gpu
with hold_gpu(["gpu-0"], "a long measurement"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_measurement_takes_another_gpu_or_waits_and_says_for_whom(locks):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with hold_gpu(["gpu-0", "gpu-1"], "mine") as index:
        assert index == 1
    with (
        pytest.raises(LabError, match="did not become free") as caught,
        hold_gpu(["gpu-0"], "mine", longest_wait_s=0.2),
    ):
        pass
    assert "a long measurement" in caught.value.why
    said: list[str] = []

    def on_wait(text: str, done: int = 0, total: int = 0) -> None:
        said.append(text)
        holder.send_signal(signal.SIGKILL)  # a killed holder gives the GPU back

    with hold_gpu(["gpu-0"], "mine", on_wait, longest_wait_s=30) as index:
        assert index == 0
    assert len(said) == 1
    assert f"process {holder.pid} (a long measurement)" in said[0]
    holder.wait()


def test_a_shared_hold_ends_with_its_last_thread(locks, monkeypatch):
    runtime = SimpleNamespace(deviceGetPCIBusId=lambda ordinal: "gpu-0")
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    kept = []  # a lock that nobody refers to any more may be given back for that alone

    def lock_of(gpu: str, make: Callable[[str], GpuLock] = queue._lock_of) -> GpuLock:
        kept.append(make(gpu))
        return kept[-1]

    monkeypatch.setattr(queue, "_lock_of", lock_of)
    first_leaves, second_in = threading.Event(), threading.Event()

    def stay(purpose: str, told: threading.Event, wait_for: threading.Event) -> None:
        with share_this_gpu(purpose):
            told.set()
            assert wait_for.wait(30)

    first_in = threading.Event()
    first = threading.Thread(target=stay, args=("first", first_in, second_in))
    first.start()
    assert first_in.wait(30)
    second = threading.Thread(target=stay, args=("second", second_in, first_leaves))
    second.start()
    first.join(30)
    with (
        pytest.raises(LabError, match="did not become free"),
        hold_gpu(["gpu-0"], "too early", longest_wait_s=0.1),
    ):
        pass
    first_leaves.set()
    second.join(30)
    assert not first.is_alive() and not second.is_alive()
    with hold_gpu(["gpu-0"], "mine", longest_wait_s=0.5) as index:
        assert index == 0


def test_every_user_may_lock(locks):
    assert gpu_locks_dir().stat().st_mode & 0o7777 == 0o1777
    with hold_gpu(["0000:18:00.0"], "mine"):
        (lock,) = gpu_locks_dir().glob("*.lock")
        assert lock.stat().st_mode & 0o666 == 0o666


def test_nothing_is_written_through_a_lock_that_is_a_link(locks, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    made = {
        "symbolic": lambda place: place.symlink_to(precious),
        "hard": lambda place: place.hardlink_to(precious),
        "pipe": os.mkfifo,
        "folder": os.mkdir,
    }
    for kind, make in made.items():
        make(gpu_locks_dir() / f"{kind}.lock")
        with pytest.raises(LabError, match="cannot be used"), hold_gpu([kind], "mine"):
            pass
    (gpu_locks_dir() / "gpu-0.holder").symlink_to(precious)
    with hold_gpu(["gpu-0"], "mine"):
        pass
    assert precious.read_text() == "mine"


def test_a_folder_of_locks_that_is_not_safe_is_refused(monkeypatch, tmp_path):
    monkeypatch.delenv("LABTOOLS_GPU_LOCKS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, precious = tmp_path / "labtools-gpu-locks", tmp_path / "precious"
    precious.mkdir(mode=0o755)
    folder.symlink_to(precious)
    with pytest.raises(LabError, match="not safe"):
        gpu_locks_dir()
    assert precious.stat().st_mode & 0o7777 == 0o755
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)  # as earlier versions left it
    assert gpu_locks_dir().stat().st_mode & 0o7777 == 0o1777
    folder.chmod(0o777)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(LabError, match="not safe"):
        gpu_locks_dir()


# --------------------------------------------------------------------------- provenance


def test_clocks_are_merged_over_processes_and_missing_is_missing():
    one = Clocks(source="NVML", sm_mhz=Reading(low=1900, median=1950, high=1980))
    two = Clocks(source="NVML", sm_mhz=Reading(low=1800, median=1960, high=1970))
    merged = merge_clocks([one, two])
    assert (merged.sm_mhz.low, merged.sm_mhz.high) == (1800, 1980)
    assert merged.memory_mhz is None
    assert merge_clocks([Clocks(source=None), None]) is None


def test_a_clock_watch_keeps_readings_while_it_watches(monkeypatch):
    watch = ClockWatch("0000:ff:ff.0")
    monkeypatch.setattr(watch, "_open_nvml", lambda: None)
    watch.open()
    watch.start()
    assert watch.stop() == Clocks(), "without a source it reads nothing"
    monkeypatch.setattr(watch, "_open_nvml", lambda: lambda: [1980.0, None, 40.0])
    watch.open()
    time.sleep(0.1)
    watch.start()
    time.sleep(0.3)
    readings = watch.stop()
    watch.close()
    assert readings.sm_mhz == Reading(low=1980.0, median=1980.0, high=1980.0)
    assert readings.memory_mhz is None


def test_commands_lose_this_machines_folders():
    assert describe_command(["/a/b/labtools", "record", "--out", "/tmp/x/out"]) == (
        "labtools record --out out"
    )
    assert describe_command(["/a/labtools/__main__.py", "record"]) == "labtools record"
    assert describe_command(["labtools", "run", "--out=/a/b"]) == "labtools run --out=b"
    assert describe_command(["/x/ipykernel_launcher.py", "-f", "/y"]) == "a notebook"
    assert describe_command(["labtools", "run", "--workload", "1,2,2,4,64"]).endswith("1,2,2,4,64")


def test_the_tree_hash_moves_with_the_code(tmp_path):
    (tmp_path / "a.cu").write_text("one")
    (tmp_path / "note.txt").write_text("x")
    before = hash_folders([tmp_path])
    (tmp_path / "note.txt").write_text("y")
    assert hash_folders([tmp_path]) == before
    (tmp_path / "a.cu").write_text("two")
    assert hash_folders([tmp_path]) != before


@pytest.mark.parametrize("kv_len", [3, APART_VISITS // 4])
def test_the_oracle_says_of_a_part_on_the_device_what_it_says_of_all(kv_len):
    """Whether copies of this process share the parts, which they do of long ones, or not."""
    problem, scheme = parse_problem(f"1,2,1,{kv_len},64"), SCHEMES["int4_kc256a_vrowa"]
    operation = operation_of(problem)
    inputs = operation.draw(problem)
    device = SimpleNamespace(download=np.copy)
    buffers = SimpleNamespace(problem=problem, given=inputs.buffers())
    key = buffers.given["k"][0, 0, 1]

    @contextmanager
    def changed():
        key[:] *= 2
        yield
        key[:] /= 2

    parts = list(np.ndindex(*problem.part_shape))
    asked = AskedParts(buffers, parts[:1]), AskedParts(buffers, parts, (nullcontext(), changed()))
    (first,), found = expect_on_device(device, asked, [None, scheme])
    for keeps, expected in first.items():
        for name, array in expected.items():
            np.testing.assert_array_equal(array[parts[0]], found[0][keeps][name][parts[0]])
            assert np.isnan(array[parts[-1]]).all()
    for one, answers in enumerate(found):
        key[:] *= 1 + one
        for keeps, expected in answers.items():
            for name, array in operation.expect(inputs, keeps).items():
                np.testing.assert_allclose(expected[name], array, rtol=1e-9, atol=1e-12)
    assert not np.array_equal(found[0][None]["out"], found[1][None]["out"])
