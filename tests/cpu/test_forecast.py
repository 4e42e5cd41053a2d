"""Forecasts: what must hold of any of them, and kernels whose time can be worked out by hand."""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from devices import LIMITS, needs_tools, some_of

from labtools.predict import CLASSES, Forecast, forecast, forecasting, list_gpus, load_gpu, what_if
from labtools.predict.machine import Machine, machine_of
from labtools.predict.trace import TraceError
from labtools.problem import LabError, Launch, Rung, Workload, list_rungs, list_studies, load_rung
from labtools.problem.paths import kernels_dir
from labtools.record.bound import counted_bound

BOUNDS = ("bandwidth", "pipe", "issue", "chain", "launch")
H200 = load_gpu("h200")
MACHINE = machine_of(H200)
LATENCY = MACHINE.variable
SHORT = Workload.parse("2,8,2,256,128")
KERNELS = [rung.id for rung in (*list_rungs(), *list_studies())]
INVERTED = ("s08", "r09", "r10", "r11")
"""Rungs whose block serves all query heads of a group, laid out by a rule."""
SWEEP = str(kernels_dir() / "microbench" / "read_sweep.py")


def cycles_of(made: Forecast) -> float:
    """Cycles of the launch itself, without what launching costs."""
    return made.main_launch.time_us * made.main_launch.clock_ghz * 1e3


# ------------------------------------------------------------------------- of every forecast


@pytest.mark.parametrize(
    "workload",
    [
        SHORT,
        SHORT.replace(cache_state="warm"),
        Workload.parse("3,8,8,130,128").replace(seq_lens=(130, 1, 64)),
        Workload.parse("160,4,1,64,64"),
    ],
    ids=["cold", "warm", "ragged", "many"],
)
@pytest.mark.parametrize("name", some_of(KERNELS, 4))
def test_a_forecast_is_whole(name: str, workload: Workload) -> None:
    if reason := load_rung(name).supports(workload):
        pytest.skip(reason)
    made = forecast(load_rung(name), workload, H200)
    assert (made.band_us is None) == bool(made.doubts)
    if made.band_us is not None:
        assert 0 < made.band_us[0] <= made.time_us <= made.band_us[1] < math.inf
    assert made.bound in BOUNDS and made.bound_reason
    assert made.calibrated and made.gpu == "h200" and made.code
    assert all(0 <= term < math.inf for term in made.terms_us.values())
    assert made.time_us > made.terms_us["launch"] + 0.9 * made.terms_us["chain"]
    for launch in made.launches:
        assert launch.time_us > 0
        assert 0 <= launch.issue_share <= 1.001
        assert 0 <= launch.l2_share <= 1.05 and 0 <= launch.dram_share <= 1.05
        assert 1 <= launch.resident_blocks <= launch.occupancy.blocks_per_sm
        assert sum(part.share for part in launch.stack) == pytest.approx(1)
        assert all(part.cycles > 0 for part in launch.stack)
        order = [part.share for part in launch.stack]
        assert order == sorted(order, reverse=True)
        assert launch.chain
        assert launch.chain[0].start == 0
        for one in launch.chain:
            assert one.start <= one.issue
            assert sum(one.cycles.values()) == pytest.approx(one.issue - one.start)
            assert one.cause in (*one.cycles, "issue")
        issues = [one.issue for one in launch.chain]
        assert issues == sorted(issues)
        assert sum(one.source is not None for one in launch.chain) > 0.5 * len(launch.chain)


@pytest.mark.parametrize("name", some_of(KERNELS, 6))
def test_the_stack_is_the_time_of_one_warp(name: str) -> None:
    # One block an SM at most: nothing waits for a place, so a warp's time is the kernel's.
    made = forecast(load_rung(name), Workload.parse("1,8,8,2048,128"), H200)
    stack = sum(part.cycles for part in made.main_launch.stack)
    assert stack == pytest.approx(cycles_of(made), rel=0.06)


@pytest.mark.parametrize("name", ["r00", "r01", "r02", "r03", "s01", "s03"])
def test_twice_the_rows_take_twice_as_long_on_the_chain(name: str) -> None:
    rung = load_rung(name)
    short, long, longest = (
        forecast(rung, Workload.parse(f"2,8,8,{rows},128"), H200) for rows in (2048, 4096, 8192)
    )
    assert short.bound == long.bound == longest.bound == "chain"
    assert short.time_us < long.time_us < longest.time_us
    assert cycles_of(longest) == pytest.approx(2 * cycles_of(long), rel=0.03)
    assert cycles_of(long) == pytest.approx(2 * cycles_of(short), rel=0.03)


@pytest.mark.parametrize("name", some_of(KERNELS, 4))
def test_a_warm_cache_and_less_work_are_not_slower(name: str) -> None:
    rung = load_rung(name)
    workload = Workload.parse("8,8,8,512,128")
    cold = forecast(rung, workload, H200)
    warm = forecast(rung, workload.replace(cache_state="warm"), H200)
    one = forecast(rung, workload.replace(batch=1), H200)
    assert warm.time_us <= cold.time_us * 1.001
    # A rung that lays its launch out by a rule does so anew for the smaller batch.
    assert one.time_us <= cold.time_us * (1.05 if name[:3] in INVERTED else 1.001)
    # What stays in the L2 is not read from memory.
    assert warm.launches[0].dram_bytes < 0.1 * cold.launches[0].dram_bytes


def test_what_was_followed_for_another_forecast_changes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm cache, slower memory, an edited text and a longer sequence."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rung, workload = load_rung("r03"), Workload.parse("2,8,2,300,128")
    edited = rung.with_source(rung.source_text.replace("-INFINITY", "-3e38f", 1))
    slower = dataclasses.replace(MACHINE, dram_rows=MACHINE.dram_rows.scaled(2.0))
    asked: list[tuple[Rung, Workload, Machine]] = [
        (rung, workload, MACHINE),
        (rung, workload.replace(cache_state="warm"), MACHINE),
        (rung, workload, slower),
        (edited, workload, MACHINE),
        (rung, workload.replace(kv_len=900), MACHINE),
    ]
    followed: list[str] = []
    blocks = forecasting.LaunchBlocks

    def follow(launch: Launch, *rest: Any) -> Any:
        followed.append(launch.entry)
        return blocks(launch, *rest)

    monkeypatch.setattr(forecasting, "LaunchBlocks", follow)
    forecasting._recent.clear()
    together = [forecast(one, shape, H200, machine=made) for one, shape, made in asked]
    assert len(followed) == 3 * len(together[0].launches)
    monkeypatch.setenv("LABTOOLS_CACHE_MIB", "0")
    for (one, shape, made), seen in zip(asked, together, strict=True):
        forecasting._recent.clear()
        alone = forecast(one, shape, H200, machine=made)
        assert (alone.time_us, alone.launches) == (seen.time_us, seen.launches)
    assert len({one.time_us for one in together}) >= 4
    assert gc.isenabled()


def test_pieces_are_joined_by_a_second_launch() -> None:
    workload = Workload.parse("1,8,2,4096,128")
    one = forecast(load_rung("s01"), workload, H200, {"split": 1})
    many = forecast(load_rung("s01"), workload, H200, {"split": 16})
    assert [launch.entry for launch in one.launches] == ["decode_s01"]
    assert [launch.entry for launch in many.launches] == ["decode_s01", "merge_pieces"]
    assert many.terms_us["launch"] > one.terms_us["launch"]
    assert many.time_us < one.time_us / 4
    # What the pieces wrote is in the L2.
    assert many.launches[1].dram_bytes < 0.2 * many.launches[1].l2_bytes


def test_what_is_prepared_is_not_timed_and_bytes_are_half_as_many() -> None:
    workload = Workload.parse("4,8,8,2048,128")
    rung = load_rung("s02")
    assert any(launch.prepare for launch in rung.launches(workload, LIMITS))
    quantised = forecast(rung, workload, H200, {"split": 1})
    half = forecast(load_rung("s01"), workload, H200, {"split": 1})
    assert [launch.entry for launch in quantised.launches] == ["decode_s02"]
    ratio = quantised.main_launch.dram_bytes / half.main_launch.dram_bytes
    assert 0.48 < ratio < 0.56  # the scales come on top


# ---------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize("name", some_of(KERNELS, 4))
@pytest.mark.parametrize(
    "workload",
    [
        Workload.parse("4,8,8,1024,128"),
        Workload.parse("4,16,2,1024,128"),
        Workload.parse("3,4,4,1024,128").replace(seq_lens=(1024, 256, 700)),
    ],
    ids=["plain", "shared heads", "ragged"],
)
def test_each_byte_of_the_cache_is_counted_once(name: str, workload: Workload) -> None:
    rung = load_rung(name)
    made = forecast(rung, workload, H200).launches[0]
    scheme = rung.scheme(workload)
    kv = workload.kv_bytes if scheme is None else scheme.kv_bytes(workload)
    if workload.seq_lens is not None:
        kv = kv if kv < 2 * 3 * 4 * 1024 * 128 * 2 else kv * sum(workload.seq_lens) / (3 * 1024)
    if name.startswith("s02"):
        kv *= 33 / 64  # a byte an element, and a scale a row and side
    q = workload.batch * workload.num_qo_heads * workload.head_dim * 2
    # r00 writes a score for each row and query head, and reads it again in its second pass.
    scores = sum(workload.lengths) * workload.num_qo_heads * 4 if name.startswith("r00") else 0
    if name[:3] in INVERTED:
        # Their first copies do not wait for a length: on so short pieces they bring what no
        # sequence has. Tiles of codes that share a group of scales each ask for it.
        padded = kv * workload.batch * workload.kv_len / sum(workload.lengths)
        assert 0.95 * kv < made.dram_bytes < 1.05 * (padded + 2 * q) + 4e5
        return
    assert made.footprint_bytes == pytest.approx(kv + q + scores, rel=0.04)
    assert made.dram_bytes == pytest.approx(kv + 2 * q, rel=0.12)
    group = workload.group_size
    if group > 1 and name[:3] not in ("s04", "s07"):  # their products take a group's heads at once
        assert made.l2_bytes > 0.9 * group * kv  # each query head asks for them


@pytest.mark.parametrize("blocks", [132, 1056, 16384])
def test_a_grid_that_strides_reads_everything_once(blocks: int) -> None:
    workload = Workload.parse("8,8,8,4096,128")
    made = forecast(load_rung(SWEEP), workload, H200, {"blocks": blocks})
    assert made.main_launch.footprint_bytes == pytest.approx(workload.kv_bytes, rel=0.03)
    assert made.main_launch.dram_bytes == pytest.approx(workload.kv_bytes, rel=0.05)


def test_loops_of_equal_counts_keep_their_own_cycles() -> None:
    made = forecast(load_rung("r00"), Workload.parse("1,8,8,4096,128"), H200).main_launch
    (_, first, slow), (_, second, quick) = made.trips
    assert first == second
    assert slow > 2 * quick > 0
    assert first * (slow + quick) == pytest.approx(made.time_us * MACHINE.clock_ghz * 1e3, rel=0.05)


# ------------------------------------------------------------------------- blocks and waves


def test_one_long_sequence_decides() -> None:
    rung = load_rung("r03")
    alone = forecast(rung, Workload.parse("1,8,8,4096,128"), H200)
    ragged = Workload.parse("16,8,8,4096,128").replace(seq_lens=(4096, *([64] * 15)))
    mixed = forecast(rung, ragged, H200)
    even = forecast(rung, Workload.parse("16,8,8,316,128"), H200)  # as many rows in all
    assert mixed.time_us == pytest.approx(alone.time_us, rel=0.1)
    assert mixed.time_us > 8 * even.time_us


@needs_tools
def test_a_block_more_than_a_wave_costs_more(tmp_path: Path) -> None:
    body = ONE + repeat(50, 100, "x = fmaf(x, b, a);") + STORE
    rung = hand_made(tmp_path, "waves", body)

    def launched(blocks: int) -> Forecast:
        def shape(workload: Workload, limits: object, knobs: object) -> list[Launch]:
            return [Launch("kernel", (blocks,), (32,), 100_000, args=("k", "out"))]

        return forecast(rung.with_launch(shape), CALL, H200)

    slots = 2 * H200.sm_count
    half, full, more, twice = (launched(n) for n in (slots // 2, slots, slots + 1, 2 * slots))
    assert full.main_launch.occupancy.blocks_per_sm == 2
    assert half.time_us == pytest.approx(full.time_us, rel=0.02)
    assert more.time_us > 1.8 * full.time_us
    assert more.time_us == pytest.approx(twice.time_us, rel=0.05)


# ---------------------------------------------------------------------------------- what if


@pytest.mark.parametrize(
    ("name", "text", "knobs"),
    [
        ("r03", "4,8,8,1024,128", {}),
        ("r02", "50,8,8,128,128", {"dims_per_thread": 4}),
        ("s05", "8,32,8,128,128", {"split": 4}),
    ],
)
def test_a_shorter_latency_is_not_slower(name: str, text: str, knobs: dict[str, int]) -> None:
    workload = Workload.parse(text)
    base = forecast(load_rung(name), workload, H200, knobs).time_us
    shorter = what_if(load_rung(name), workload, H200, knobs)
    longer = what_if(load_rung(name), workload, H200, knobs, factor=2.0)
    assert set(shorter) == {*CLASSES, "bandwidth"}
    assert all(time_us <= base + 1e-9 for time_us in shorter.values())
    assert all(time_us >= base - 1e-9 for time_us in longer.values())


def test_what_if_names_the_link_that_counts() -> None:
    workload = Workload.parse("1,8,8,4096,128")
    base = forecast(load_rung("r03"), workload, H200).time_us
    found = what_if(load_rung("r03"), workload, H200)
    assert min(found, key=lambda name: found[name]) == "memory"
    assert found["memory"] < 0.75 * base
    assert found["barrier"] == pytest.approx(base)  # it has none
    assert 0.7 * base < found["shuffle"] < 0.99 * base
    alone = forecast(load_rung("r03"), workload, H200, scale={"memory": 0.5})
    assert alone.time_us == pytest.approx(found["memory"])


# --------------------------------------------------------------------------------- refusals


def test_what_cannot_be_forecast_is_refused() -> None:
    r03 = load_rung("r03")
    with pytest.raises(LabError, match="no latency class 'sugar'"):
        forecast(r03, SHORT, H200, scale={"sugar": 0.5})
    with pytest.raises(LabError, match="no latency class"):
        what_if(r03, SHORT, H200, classes=("memory", "sugar"))
    with pytest.raises(LabError, match="factor"):
        what_if(r03, SHORT, H200, factor=0.0)
    with pytest.raises(LabError, match="a999"):
        forecast(r03, SHORT, "a999")
    with pytest.raises(LabError, match="head_dim"):
        forecast(r03, SHORT.replace(head_dim=96), H200)
    with pytest.raises(LabError, match="sugar"):
        forecast(r03, SHORT, H200, {"sugar": 1})
    with pytest.raises(LabError, match="unroll"):
        forecast(r03, SHORT, H200, {"unroll": 3})


@needs_tools
def test_a_launch_that_names_no_kernel_is_refused(tmp_path: Path) -> None:
    rung = hand_made(tmp_path, "plain", PLAIN)
    wrong = rung.with_launch(lambda workload, limits, knobs: [Launch("other", (1,), (32,))])
    with pytest.raises(LabError, match="no kernel called other"):
        forecast(wrong, SHORT, H200)


def test_gpus_that_were_not_measured_say_so() -> None:
    own = forecast(load_rung("r03"), SHORT, H200)
    width = own.band_us[1] / own.band_us[0]
    for name in list_gpus():
        gpu = load_gpu(name)
        if gpu.boost_clock_mhz is None or gpu.name == "h200":
            continue
        made = forecast(load_rung("r03"), SHORT, gpu)
        assert not made.calibrated
        assert "uncalibrated" in made.note and gpu.title in made.note
        assert made.band_us[1] / made.band_us[0] > width
    assert "uncalibrated" not in own.note


# ---------------------------------------------------------------- what a forecast does not know


LOOPS = {
    "int": ("for (int i = 0; i < 700; i++) x += k[i * 64];", 700),
    "float": ("for (float f = 0.f; f < 700.f; f += 1.f) x += k[(int)f * 64];", 700),
    "half steps": ("for (float f = 0.f; f < 350.f; f += 0.5f) x += k[(int)f * 64];", 700),
    "a sum": (
        "float f = 0.f; while (f < 0.7f) { f += 0.001f; x += k[threadIdx.x + (int)f]; }",
        700,
    ),
    "on data": ("for (int i = 0; k[i * 64] < 3.f; i++) x += k[i * 64];", None),
    "left on data": ("for (int i = 0; i < 700; i++) { x += k[i * 64]; if (x > 9.f) break; }", None),
    "returns on data": (
        "for (int i = 0; i < 700; i++) { x += k[i * 64]; if (x > 9.f) return; }",
        None,
    ),
    "as many as data say": ("int n = (int)k[5]; for (int i = 0; i < n; i++) x += k[i * 64];", None),
    "two ways": (
        "if (x > 0.5f) for (int i = 0; i < 700; i++) x += k[i * 64]; else x *= 2.f;",
        None,
    ),
}


@needs_tools
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_counted_or_there_is_no_band(name: str, tmp_path: Path) -> None:
    body, trips = LOOPS[name]
    once = "#pragma unroll 1\n" if body.startswith("for") else ""
    made = predicted(tmp_path, f"float x = k[threadIdx.x];\n{once}{body}\n" + STORE)
    if trips is None:
        assert made.band_us is None
        assert any("depends on data" in doubt for doubt in made.doubts)
    else:
        assert made.band_us is not None and not made.doubts
        counted = [count for _, count, _ in made.main_launch.trips]
        assert counted and max(counted) == pytest.approx(trips, abs=1)


def test_a_kernel_with_tensor_cores_runs_at_their_clock() -> None:
    made = {
        name: forecast(load_rung(name), Workload.parse("1,8,8,512,128"), H200)
        for name in ("r08", "r09")
    }
    assert made["r08"].main_launch.clock_ghz == MACHINE.clock_ghz
    assert made["r09"].main_launch.clock_ghz == MACHINE.tensor_clock_ghz


@pytest.mark.parametrize("workload", ["1,32,8,4096,128", "8,32,8,1024,128", "2,32,8,8192,128"])
def test_nothing_hides_the_first_bytes_of_memory_nor_what_follows_on_the_last(
    workload: str,
) -> None:
    launch = forecast(load_rung("r09"), Workload.parse(workload), H200).main_launch
    rate = MACHINE.dram_bytes_per_cycle * MACHINE.clock_ghz * 1e3
    ends_us = launch.time_us - launch.dram_bytes / rate
    assert MACHINE.dram_async(512) < ends_us * 1e3 * MACHINE.clock_ghz < 8 * MACHINE.dram_async(512)


@needs_tools
def test_a_time_below_the_floor_has_no_band(tmp_path: Path) -> None:
    """A kernel that reads a row of an input of many gigabytes."""
    rung = hand_made(tmp_path, "idle", ONE + STORE)
    made = forecast(rung, Workload.parse("64,32,8,65536,128"), H200)
    assert made.main_launch.time_us < made.floor.time_us == made.time_us
    assert made.band_us is None
    assert any("does not see all that is read" in doubt for doubt in made.doubts)


def test_what_does_not_fit_the_memory_has_no_band() -> None:
    made = forecast(load_rung("r03"), Workload.parse("256,32,8,1000000,128"), H200)
    assert made.band_us is None
    assert any("1,049 GB" in doubt and "141 GB" in doubt for doubt in made.doubts)


def test_a_gpu_takes_the_latencies_of_a_measured_one_of_its_architecture() -> None:
    """A chain of waits takes as many cycles on both; memory's rate is the sheet's."""
    workload = Workload.parse("8,32,8,512,128")
    own, made = (forecast(load_rung("r03"), workload, gpu) for gpu in ("h200", "h100"))
    assert made.time_us == pytest.approx(own.time_us, rel=0.03)
    assert "measured on NVIDIA H200" in made.note and "same architecture" in made.note
    older = forecast(load_rung("r03"), workload, "rtx4090")
    assert "published by others" in older.note and "same architecture" not in older.note


# ------------------------------------------------------------------------------------ speed


@needs_tools
@pytest.mark.parametrize("name", ["r03", "s05", "s00"])
def test_from_source_to_forecast(name: str) -> None:
    rung = load_rung(name)
    text = rung.source_text + f"\n// {time.time_ns()}: compiled anew\n"
    fresh = rung.with_source(text)
    began, before = time.perf_counter(), sum(os.times()[:4])
    made = forecast(fresh, Workload.parse("8,32,8,2048,128"), H200)
    took_s, waited_s = sum(os.times()[:4]) - before, time.perf_counter() - began
    print(f"{name}: {took_s:.2f} s of a core from source to forecast")
    assert made.code.startswith("compiled here")
    # The core's time depends less on what else is done here. The clock shows a wait for something.
    assert took_s < 3.0
    assert waited_s < 20.0


ALONE = """
import socket, sys
def refuse(*args, **kwargs):
    raise RuntimeError("a forecast opened a socket")
socket.socket.connect = refuse
from labtools.problem import Workload, load_rung
from labtools.predict import forecast
made = forecast(load_rung("r03"), Workload.parse("2,8,2,256,128"), "h200")
assert made.time_us > 0
loaded = {name.partition(".")[0] for name in sys.modules}
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
print(sorted(loaded & {"cupy", "torch"}), "libcuda.so" in maps)
"""


def test_a_forecast_needs_no_gpu_library_no_network_and_no_driver() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=root, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "[] False"


# ------------------------------------------------------------------------ kernels never seen

HEAD = 'extern "C" __global__ void kernel(const float* __restrict__ k, float* __restrict__ out) {\n'
LOOP = "#pragma unroll 1\n"
FLAT = "#pragma unroll\n"
PLAIN = "out[threadIdx.x + blockIdx.x * 128] = k[threadIdx.x + blockIdx.x * 128] * 2.f;"
CALL = Workload.parse("4,8,8,4096,128")


def hand_made(
    folder: Path,
    name: str,
    body: str,
    grid: tuple[int, ...] = (1,),
    block: tuple[int, ...] = (32,),
    head: str = HEAD,
) -> Rung:
    """A kernel of one launch that reads ``k`` and writes ``out``."""
    source = folder / f"{name}.cu"
    source.write_text(f"{head}{body}\n}}\n")
    shape, threads = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
    return Rung(
        id=name,
        title=name,
        source=source,
        idea="to be forecast",
        limiter="by hand",
        cost="none",
        knobs=(),
        supports=lambda workload: None,
        launch=lambda workload, limits, knobs: [
            Launch("kernel", shape, threads, args=("k", "out"))
        ],
    )


def predicted(folder: Path, body: str, *shape: tuple[int, ...], head: str = HEAD) -> Forecast:
    made = forecast(hand_made(folder, "unseen", body, *shape, head=head), CALL, H200)
    assert 0 < made.time_us < math.inf and made.bound in BOUNDS
    assert all(sum(part.share for part in one.stack) == pytest.approx(1) for one in made.launches)
    return made


def repeat(trips: int, unrolled: int, statement: str) -> str:
    return (
        f"{LOOP}for (int i = 0; i < {trips}; i++) {{\n"
        f"{FLAT}for (int j = 0; j < {unrolled}; j++) {{ {statement} }}\n}}\n"
    )


ONE = "float a = k[threadIdx.x], b = a + 1.f, x = a;\n"
STORE = "out[threadIdx.x] = x;"


@needs_tools
def test_a_chain_of_multiplications_takes_four_cycles_each(tmp_path: Path) -> None:
    made = predicted(tmp_path, ONE + repeat(50, 100, "x = fmaf(x, b, a);") + STORE)
    assert cycles_of(made) == pytest.approx(50 * 100 * 4, rel=0.1)
    assert made.bound == "chain"
    assert made.main_launch.true_chain_cycles == pytest.approx(400, rel=0.01)
    assert made.stack[0].name == "fixed latency"


PRODUCT = (
    'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},'
    '{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])'
    ' : "r"(u[0]), "r"(u[32]), "r"(u[64]), "r"(u[96]), "r"(u[128]), "r"(u[160]));'
)
REGS = "const unsigned* u = (const unsigned*)k + threadIdx.x; float c[4] = {0, 0, 0, 0};\n"
SUM = "out[threadIdx.x] = c[0] + c[1] + c[2] + c[3];"
FILL = (
    "__shared__ int t[1024];\n"
    "for (int i = threadIdx.x; i < 1024; i += 32) t[i] = (i * 7) & 1023;\n"
    "__syncwarp(); int x = threadIdx.x;\n"
)
SHUFFLE = "x = __shfl_xor_sync(~0u, x, 1) + 1.f;"


@needs_tools
@pytest.mark.parametrize(
    ("body", "by_hand", "off", "name"),
    [
        (ONE + repeat(100, 20, SHUFFLE) + STORE, 2000 * (LATENCY["shfl"] + 4), 0.15, "shuffle"),
        # and the address
        (
            FILL + repeat(200, 10, "x = t[x];") + STORE,
            2000 * (LATENCY["shared_32"] + 4),
            0.12,
            "shared memory",
        ),
        (REGS + repeat(100, 8, PRODUCT) + SUM, 800 * LATENCY["hmma"], 0.25, "fixed latency"),
    ],
    ids=["shuffles", "shared", "products"],
)
def test_a_chain_takes_the_latency_of_its_links(
    body: str, by_hand: float, off: float, name: str, tmp_path: Path
) -> None:
    made = predicted(tmp_path, body)
    assert cycles_of(made) == pytest.approx(by_hand, rel=off)
    assert made.bound == "chain" and made.stack[0].name == name


@needs_tools
def test_many_loads_a_thread_reach_the_memory_s_rate(tmp_path: Path) -> None:
    body = (
        "const float* p = k + blockIdx.x * blockDim.x + threadIdx.x; float s = 0, v[64];\n"
        f"{FLAT}for (int j = 0; j < 64; j++) v[j] = p[j * 262144];\n"
        f"{FLAT}for (int j = 0; j < 64; j++) s += v[j];\nout[threadIdx.x] = s;"
    )
    made = predicted(tmp_path, body, (1024,), (256,))
    # Blocks overlap: 64 pieces of 1 MiB, one after another, each byte from memory once.
    assert made.main_launch.footprint_bytes <= made.main_launch.dram_bytes <= 64 * (1 << 20) * 1.05
    assert made.bound == "bandwidth"
    assert made.main_launch.time_us >= made.main_launch.dram_bytes / 4.8e6


@needs_tools
def test_independent_multiplications_fill_the_issue_slots(tmp_path: Path) -> None:
    body = (
        "float a = k[threadIdx.x], b = a + 1.f, x[8];\n"
        f"{FLAT}for (int j = 0; j < 8; j++) x[j] = a + j;\n"
        + repeat(200, 64, "x[j & 7] = fmaf(x[j & 7], b, a);")
        + "float s = 0;\n"
        + f"{FLAT}for (int j = 0; j < 8; j++) s += x[j];\nout[threadIdx.x] = s;"
    )
    made = predicted(tmp_path, body, (264,), (512,))
    # 32 warps per SM are 8 per sub-partition, and each issues 64 instructions per trip and 3 more
    assert cycles_of(made) == pytest.approx(200 * 8 * 67, rel=0.05)
    assert made.bound == "pipe" and made.main_launch.pipe_shares["fma"] > 0.9


@needs_tools
def test_a_forecast_is_judged_by_the_rule_that_counters_are_judged_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = ONE + repeat(50, 100, "x = fmaf(x, b, a);") + STORE
    made = predicted(tmp_path, body)
    share = made.main_launch.issue_share
    assert made.bound == "chain" and share > 0
    monkeypatch.setenv("LABTOOLS_CACHE_MIB", "0")  # so that it is made anew
    monkeypatch.setattr("labtools.record.bound.FULL_SHARES", {"issue": share})
    counters = {"issue_slot_pct": 100 * share, "dram_throughput_pct": 0.0}
    assert counted_bound(counters, 100.0, 2.0).bound == "issue"
    assert predicted(tmp_path, body).bound == "issue"


@needs_tools
def test_a_kernel_without_a_loop_is_bound_by_its_launch(tmp_path: Path) -> None:
    made = predicted(tmp_path, PLAIN, (100,), (128,))
    assert made.bound == "launch"
    assert made.main_launch.trips == () and made.main_launch.main_loop is None
    assert made.main_launch.chain and made.main_launch.true_chain_cycles is None
    far = MACHINE.dram_rows(128)
    assert far < cycles_of(made) < 1.6 * far
    assert made.main_launch.footprint_bytes == pytest.approx(100 * 128 * 4, rel=0.01)


@needs_tools
def test_blocks_that_leave_early_read_nothing(tmp_path: Path) -> None:
    loop = "for (int i = 0; i < 256; i++) s += k[(place * 256 + i) * 128 + threadIdx.x];"
    rest = (
        "float s = 0; int place = blockIdx.x >> 1;\n"
        f"#pragma unroll 4\n{loop}\nout[threadIdx.x] = s;"
    )
    whole = predicted(tmp_path, rest, (264,), (128,))
    for parity in (0, 1):
        half = predicted(
            tmp_path, f"if ((blockIdx.x & 1) == {parity}) return;\n{rest}", (264,), (128,)
        )
        launch = half.main_launch
        assert launch.footprint_bytes == pytest.approx(132 * 256 * 128 * 4, rel=0.02)
        assert launch.dram_bytes == pytest.approx(132 * 256 * 128 * 4, rel=0.05)
        assert launch.stack[0].name == "memory: DRAM"
        assert launch.trips[0][1] == 64
        assert 64 * MACHINE.dram_rows(128) < cycles_of(half) < 1.1 * cycles_of(whole)


@needs_tools
def test_atomics_on_one_address_queue_up(tmp_path: Path) -> None:
    few, many = (
        predicted(tmp_path, "atomicAdd(out, k[threadIdx.x]);", (blocks,), (32,))
        for blocks in (132, 132 * 64)
    )
    added = many.main_launch.time_us - few.main_launch.time_us
    assert added >= 132 * 63 * MACHINE.atomic_ns / 1e3


@needs_tools
def test_spilled_registers_are_waited_for(tmp_path: Path) -> None:
    body = (
        f"float v[64];\n{FLAT}for (int j = 0; j < 64; j++) v[j] = k[j * 32 + threadIdx.x];\n"
        + repeat(32, 64, "v[j] = fmaf(v[j], v[(j + 7) & 63], 1.f);")
        + f"float s = 0;\n{FLAT}for (int j = 0; j < 64; j++) s += v[j];\nout[threadIdx.x] = s;"
    )
    roomy = predicted(tmp_path, body, (1,), (512,))
    bounds = HEAD.replace("void", "void __launch_bounds__(512, 4)")
    tight = predicted(tmp_path, body, (1,), (512,), head=bounds)
    assert "local memory" in {part.name for part in tight.stack}
    assert "local memory" not in {part.name for part in roomy.stack}
    assert tight.time_us > 1.1 * roomy.time_us


@needs_tools
def test_a_loop_that_never_ends_is_refused(tmp_path: Path) -> None:
    body = "volatile float* v = out;\nwhile (true) v[threadIdx.x] = k[threadIdx.x];"
    with pytest.raises(TraceError):
        predicted(tmp_path, body)


@needs_tools
def test_a_block_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    rung = hand_made(tmp_path, "large", PLAIN)
    large = rung.with_launch(
        lambda workload, limits, knobs: [Launch("kernel", (1,), (32,), 300_000, args=("k", "out"))]
    )
    with pytest.raises(LabError, match="cannot launch"):
        forecast(large, CALL, H200)
