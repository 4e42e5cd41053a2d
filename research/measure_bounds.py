"""Time the kernels of ``tests/bounds`` as they are and changed, and read their counters.

    python -m research.measure_bounds --out FOLDER

Run on a GPU; the table that it writes, ``bounds.json``, is ``tests/bounds/<gpu>.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from labtools.measure.gpu.job import require_device, store_cubin
from labtools.measure.profiler.counters import COUNTERS, metrics_to_request
from labtools.measure.profiler.ncu import find_ncu, ncu_command, read_report
from labtools.predict import limits_of
from labtools.problem.launched import (
    AskedKernel,
    AskedLaunch,
    LaunchArgument,
    read_arguments,
    sizes_of,
)
from labtools.problem.storage import element_dtype
from labtools.toolchain import compile_rung

BOUNDS_DIR = Path(__file__).parents[1] / "tests" / "bounds"
SAMPLES = 7
COLD_BYTES = 200_000_000
"""Buffers of several calls together have at least so many, past every L2, or there are
`MOST_ROTATED` of them."""
MOST_ROTATED = 16
EMPTY = "empty"


@dataclass(frozen=True)
class HeldKernel:
    """A kernel of ``bounds.toml`` with what holds it."""

    name: str
    bound: str
    unit: str  # of a pipe
    entry: str
    grid: str
    block: str
    args: tuple[str, ...]
    change: str  # how it is shown

    @property
    def arguments(self) -> tuple[LaunchArgument, ...]:
        return read_arguments(self.args)

    def asked(self, defines: Mapping[str, str] | None = None) -> AskedKernel:
        """What a forecast is asked of."""
        launch = AskedLaunch(self.entry, self.grid, self.block)
        given = tuple((defines or {}).items())
        return AskedKernel(BOUNDS_DIR / "bounds.cu", (launch,), self.arguments, defines=given)


def held_kernels() -> list[HeldKernel]:
    """The kernels of ``bounds.toml``."""
    table = tomllib.loads((BOUNDS_DIR / "bounds.toml").read_text("utf-8"))
    rows = (dict(zip(table["columns"], row, strict=True)) for row in table["kernels"])
    return [HeldKernel(**{**row, "args": tuple(row["args"])}) for row in rows]


class BoundsBench:
    """Launches kernels of both forms of ``bounds.cu`` with arguments of random numbers."""

    def __init__(self) -> None:
        import cupy

        self.cp = cupy
        self.device = require_device()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        first = held_kernels()[0]
        self.modules = []
        for twice in "01":
            rung, problem = first.asked({"TWICE": twice}).rung()
            path = store_cubin(compile_rung(rung, problem, limits_of(self.device)))
            self.modules.append(cupy.RawModule(path=str(path)))

    def bind(self, one: HeldKernel, values: Mapping[str, int], times: int) -> list[tuple[Any, ...]]:
        """Sets of arguments, with other ``values`` of numbers and buffers of ``times`` the size."""
        size = times * sum(
            int(np.prod(arg.shape)) * element_dtype(arg.dtype).itemsize
            for arg in one.arguments
            if arg.shape is not None
        )
        return [
            tuple(self._argument(arg, values, times) for arg in one.arguments)
            for _ in range(min(MOST_ROTATED, max(1, -(-COLD_BYTES // max(1, size)))))
        ]

    def _argument(self, arg: LaunchArgument, values: Mapping[str, int], times: int) -> Any:
        dtype = element_dtype(arg.dtype)
        if arg.shape is None:
            return dtype.type(values.get(arg.name, arg.value))
        held = arg.contents()
        if held is not None:
            return self.cp.asarray(held)
        count = times * int(np.prod(arg.shape))
        if arg.role == "out" or dtype.kind != "f":
            return self.cp.zeros(count, dtype)
        return self.cp.random.standard_normal(count, dtype=np.float32).astype(dtype)

    def time(
        self, entry: str, grid: Sequence[int], block: Sequence[int], sets: Sequence[Any], form: int
    ) -> list[float]:
        """Microseconds of a launch, of each of `SAMPLES` replays of a graph of many."""
        kernel = self.modules[form].get_function(entry)
        events = [self.cp.cuda.Event() for _ in range(2)]

        def play(times: int) -> None:
            for number in range(times):
                kernel(tuple(grid), tuple(block), sets[number % len(sets)])

        play(2 * len(sets))
        self.stream.synchronize()
        events[0].record(self.stream)
        play(len(sets))
        events[1].record(self.stream)
        events[1].synchronize()
        one_ms = self.cp.cuda.get_elapsed_time(*events) / len(sets)
        times = len(sets) * max(1, min(50, round(8 / one_ms / len(sets))))
        self.stream.begin_capture()
        play(times)
        graph = self.stream.end_capture()
        found = []
        for number in range(SAMPLES + 1):
            events[0].record(self.stream)
            graph.launch(self.stream)
            events[1].record(self.stream)
            events[1].synchronize()
            if number:
                found.append(1e3 * self.cp.cuda.get_elapsed_time(*events) / times)
        return found

    def time_kernel(self, one: HeldKernel) -> dict[str, list[float]]:
        """Its times as it is and changed."""
        grid, block = sizes_of(one.grid, {}), sizes_of(one.block, {})
        kind, _, value = one.change.partition("=")
        found = {"us": self.time(one.entry, grid, block, self.bind(one, {}, 1), 0)}
        more = int(value) if kind == "more" else 1
        values = {"mask": int(value)} if kind == "resident" else {}
        if more > 1:
            wide = {arg.name: arg.value for arg in one.arguments if arg.name == "width"}
            values = {name: more * int(number) for name, number in wide.items()}
        sets = self.bind(one, values, more)
        changed = (more * grid[0], *grid[1:])
        form = int(kind in ("twice", "short"))
        found["changed_us"] = self.time(one.entry, changed, block, sets, form)
        sets.clear()
        self.cp.get_default_memory_pool().free_all_blocks()
        return found

    def launch_watched(self) -> None:
        """Each kernel once, between a profiler's start and its stop."""
        profiler = self.cp.cuda.profiler
        for one in held_kernels():
            args = self.bind(one, {}, 1)[0]
            kernel = self.modules[0].get_function(one.entry)
            shape = sizes_of(one.grid, {}), sizes_of(one.block, {})
            kernel(*shape, args)
            self.stream.synchronize()
            profiler.start()
            kernel(*shape, args)
            self.stream.synchronize()
            profiler.stop()
            del args
            self.cp.get_default_memory_pool().free_all_blocks()
        profiler.start()
        self.modules[0].get_function(EMPTY)((1,), (32,), ())
        self.stream.synchronize()
        profiler.stop()


def read_counters(folder: Path) -> list[Mapping[str, float | None]]:
    """The chosen counters of each kernel, then of an empty one, by this file run under ncu."""
    ncu, report = find_ncu(), folder / "bounds.ncu-rep"
    known = subprocess.run(
        [ncu.path, "--query-metrics", "--chips", "gh100"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {line.split()[0] for line in known.splitlines() if "__" in line}
    without = [
        metric
        for metric in metrics_to_request(COUNTERS)
        if not (metric.partition(".")[0] in names or "sass" in metric or "launch__" in metric)
    ]
    command = ncu_command(ncu, report, counters="chosen", warm=False, without=without)
    command += [sys.executable, "-m", "research.measure_bounds", "--watched", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    found = [kernel.values for kernel in read_report(ncu, report)]
    report.unlink()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    parser.add_argument("--watched", action="store_true", help="launch each once, under a profiler")
    chosen = parser.parse_args(arguments)
    bench = BoundsBench()
    if chosen.watched:
        bench.launch_watched()
        return 0
    chosen.out.mkdir(parents=True, exist_ok=True)
    empty = bench.time(EMPTY, (1,), (32,), [()], 0)
    rows: dict[str, dict[str, Any]] = {
        one.name: {**bench.time_kernel(one)} for one in held_kernels()
    }
    *counters, nothing = read_counters(chosen.out)
    for one, values in zip(held_kernels(), counters, strict=True):
        kept = {name: value for name, value in values.items() if value is not None}
        rows[one.name] = {**rows[one.name], "counters": kept}
        before, after = (float(np.median(rows[one.name][key])) for key in ("us", "changed_us"))
        print(f"{one.name:20} {before:9.2f} us, changed {after / before:.2f}  {one.change}")
    about = {"gpu": bench.device.name, "driver": bench.device.driver_version or ""}
    about["date"] = datetime.now(UTC).date().isoformat()
    path = chosen.out / "bounds.json"
    empties = {"empty_us": empty, "profiled_empty_us": nothing["duration_us"]}
    path.write_text(json.dumps({**about, **empties, "kernels": rows}, indent=1) + "\n")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
