"""Time the layouts of r09 to r11 against the rule's choice, and the three against one another.

    python -m tools.compare_layouts layouts --out FOLDER     one row a workload and rung
    python -m tools.compare_layouts drawn --out FOLDER       40 drawn workloads, r09 beside r10, r11

Run on a GPU. ``layouts`` shows where the rule in ``labtools/problem`` loses to another layout, at
few pairs and at more. ``drawn`` shows whether a rung on a smaller cache is ever slower than r09, on
contiguous workloads whose fp16 cache is over 16 MB. Both check every kernel against the oracle, as
all timing does, and write their samples as JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labtools.measure.gpu.job import Job, make_job, require_device, rung_candidate
from labtools.measure.gpu.measure import make_group, open_pool, run_group
from labtools.predict import limits_of
from labtools.problem import LabError, Limits, Workload
from labtools.record.statistics import ratio_of_samples

RUNGS = ("r09", "r10", "r11")
LEAST_BYTES = 16_000_000
"""A drawn workload's fp16 cache has more."""
MOST_BYTES = 600_000_000
SEED = 9
WORKLOADS = (
    *("1,8,1,16384", "1,8,1,65536", "1,8,1,250000", "1,4,1,131072", "1,1,1,500000"),
    *("2,8,1,65536", "1,16,2,131072", "3,8,1,65536", "4,8,1,32768", "1,16,4,16384", "1,4,4,131072"),
    *("3,16,2,32768", "1,32,8,8192", "1,32,8,16384", "1,32,8,32768", "1,8,8,65536", "1,64,8,32768"),
    *("2,32,8,4096", "2,32,8,16384", "4,16,4,32768", "3,32,8,8192", "4,32,8,4096", "4,32,8,16384"),
    *("5,32,8,8192", "10,32,8,8192", "12,32,8,4096", "1,8,1,131072", "1,8,1,8192", "2,8,1,16384"),
)
"""Few pairs first: `layouts` takes them in turn until its time is over."""


@dataclass(frozen=True)
class TimedLayout:
    """One kernel on one workload: samples of each process, microseconds, or why there are none."""

    rung: str
    knobs: dict[str, int]
    samples: list[list[float]]
    failure: str = ""

    @property
    def us(self) -> float:
        """Median over processes of each process's median."""
        return float(np.median([np.median(one) for one in self.samples]))

    @property
    def named(self) -> str:
        """The layout in a few characters."""
        if not self.knobs:
            return "rule"
        return " ".join(f"{name[0]}{value}" for name, value in self.knobs.items())


def layouts_of(pairs: int, sms: int) -> list[dict[str, int]]:
    """The rule's choice and others: one cluster a pair, and all SMs in clusters of each size."""
    found: list[dict[str, int]] = [{}, {"cluster": 8, "split": 8}]
    for cluster, part in ((8, 0.91), (4, 0.91), (2, 1.0), (1, 1.0), (8, 0.5)):
        split = int(part * sms) // (cluster * pairs) * cluster
        found.append({"cluster": cluster, "split": split})
    return [one for number, one in enumerate(found) if not one or _usable(one, found[:number])]


def _usable(one: dict[str, int], before: Sequence[dict[str, int]]) -> bool:
    return one["split"] > 0 and one not in before


def draw(count: int, seed: int = SEED) -> Iterator[Workload]:
    """Contiguous workloads that r10 and r11 support, with an fp16 cache over 16 MB."""
    rng = np.random.default_rng(seed)
    while count:
        batch = int(rng.choice((1, 1, 2, 3, 4, 6, 8, 13, 16, 32)))
        heads, group = int(rng.choice((1, 1, 2, 4, 8, 16))), int(rng.integers(1, 9))
        kv_len = int(np.exp(rng.uniform(np.log(512), np.log(500_000))))
        dtype = str(rng.choice(("float16", "float16", "bfloat16")))
        workload = Workload(batch, heads * group, heads, kv_len, 128, dtype=dtype)
        if rng.random() < 0.2 and batch > 1:
            lengths = rng.integers(kv_len // 4, kv_len + 1, batch)
            workload = workload.replace(seq_lens=(kv_len, *(int(n) for n in lengths[1:])))
        if LEAST_BYTES < workload.kv_bytes < MOST_BYTES:
            count -= 1
            yield workload


class LayoutBench:
    """Compiles in all cores and times in a few processes that stay.

    Args:
        limits: of the GPU.
        processes: that measure.
        rounds: samples a kernel and process.
    """

    def __init__(self, limits: Limits, processes: int, rounds: int) -> None:
        self._limits, self._processes, self._rounds = limits, processes, rounds

    def __enter__(self) -> LayoutBench:
        self._pool = open_pool(self._processes, ()).__enter__()
        self._compilers = ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))
        return self

    def __exit__(self, *ended: Any) -> None:
        self._compilers.shutdown(cancel_futures=True)
        self._pool.__exit__(*ended)

    def compile(
        self, workload: Workload, wanted: Sequence[tuple[str, dict[str, int]]]
    ) -> list[Any]:
        """Start compiling; `time` waits for what comes of it."""
        ask = partial(_compiled, workload, self._limits)
        return [self._compilers.submit(ask, rung, knobs) for rung, knobs in wanted]

    def time(
        self, workload: Workload, wanted: Sequence[tuple[str, dict[str, int]]], compiling: list[Any]
    ) -> list[TimedLayout]:
        """The samples of every kernel."""
        answers = [one.result() for one in compiling]
        jobs = tuple(one for one in answers if isinstance(one, Job))
        group = make_group(
            *((), workload, self._limits, "comparing layouts"), rounds=self._rounds, budget_s=0.15
        )
        result = run_group(self._pool, replace(group.request, jobs=jobs), self._processes)
        found = []
        for (rung, knobs), answer in zip(wanted, answers, strict=True):
            label = answer.label if isinstance(answer, Job) else ""
            failure = result.failures.get(label, "") if label else answer
            samples = []
            if not failure:
                samples = [list(one.timed[label].samples.us) for one in result.answers]
            found.append(TimedLayout(rung, knobs, samples, failure))
        return found


def _compiled(workload: Workload, limits: Limits, rung: str, knobs: dict[str, int]) -> Job | str:
    """The job of one kernel, or why it cannot be."""
    try:
        return make_job(rung_candidate(rung, knobs), workload, limits)
    except LabError as error:
        return str(error)


def compare_layouts(
    bench: LayoutBench, sms: int, until: float, workloads: Sequence[Workload]
) -> list[Any]:
    """Time `layouts_of` every workload and print how the rule stands."""
    wanted = {
        one: [
            (rung, knobs)
            for rung in RUNGS
            for knobs in layouts_of(one.batch * one.num_kv_heads, sms)
        ]
        for one in workloads
    }
    compiling = {one: bench.compile(one, wanted[one]) for one in workloads}
    told = []
    for workload in workloads:
        if time.monotonic() > until:
            print(f"{workload.short()} and what follows it: no time was left")
            break
        timed = bench.time(workload, wanted[workload], compiling[workload])
        told.append(_row(workload, timed))
        print(f"{workload.short()}  fp16 {workload.kv_bytes / 1e6:.1f} MB")
        for rung in RUNGS:
            mine = [one for one in timed if one.rung == rung]
            good = [one for one in mine if not one.failure]
            best = min(good, key=lambda one: one.us, default=None)
            times = "  ".join(f"{one.named} {one.us:.2f}" for one in good)
            rule = next((one for one in good if not one.knobs), None)
            loss = f"{rule.us / best.us:.2f} x the best" if rule and best else "no time"
            print(f"  {rung}: {times}   -> {best and best.named}, the rule {loss}", flush=True)
            for one in mine:
                if one.failure:
                    print(f"    {one.named}: {one.failure[:160]}")
    return told


def compare_drawn(bench: LayoutBench, until: float, workloads: Sequence[Workload]) -> list[Any]:
    """Time the rungs at the rule's layout and flag a smaller cache that is slower."""
    wanted: list[tuple[str, dict[str, int]]] = [(rung, {}) for rung in RUNGS]
    compiling = [bench.compile(one, wanted) for one in workloads]
    told, slower, done = [], 0, 0
    print("workload: r09, r10, r11 in us; r10 and r11 over r09 with 95 % intervals")
    for workload, pending in zip(workloads, compiling, strict=True):
        if time.monotonic() > until:
            break
        timed = bench.time(workload, wanted, pending)
        row = _row(workload, timed)
        if any(one.failure for one in timed):
            print(f"{workload}: {[one.failure for one in timed if one.failure]}")
            told.append(row)
            continue
        base = [np.asarray(one) for one in timed[0].samples]
        ratios = [
            ratio_of_samples([np.asarray(part) for part in one.samples], base) for one in timed[1:]
        ]
        flags = [
            f"{one.rung} SLOWER"
            for one, (_, low, _) in zip(timed[1:], ratios, strict=True)
            if low > 1
        ]
        slower += len(flags)
        done += 1
        times = " ".join(f"{one.us:8.2f}" for one in timed)
        said = "  ".join(f"{ratio:.3f} ({low:.3f}-{high:.3f})" for ratio, low, high in ratios)
        print(f"{workload!s:44} {times}   {said}   {' '.join(flags)}", flush=True)
        told.append({**row, "ratios": ratios})
    print(
        f"{done} of {len(workloads)} workloads; a smaller cache was slower than r09 {slower} times"
    )
    return told


def _row(workload: Workload, timed: Sequence[TimedLayout]) -> dict[str, Any]:
    return {"workload": workload.to_dict(), "timed": [dataclasses.asdict(one) for one in timed]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("layouts", "drawn"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON file")
    parser.add_argument("--seconds", type=float, default=280.0, help="no workload starts later")
    parser.add_argument("--processes", type=int, default=0, help="2 for layouts, 5 for drawn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workload", action="append", help="instead of those of the tool")
    chosen = parser.parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    try:
        device = require_device()
        given = [Workload.parse(one) for one in chosen.workload or ()]
        processes = chosen.processes or (2 if chosen.what == "layouts" else 5)
        limits = limits_of(device)
        print(f"{device.name}, driver {device.driver_version}, {device.sm_count} SMs")
        print(
            f"L2 of {device.l2_bytes} bytes; clusters that fit, by size: {limits.clusters}",
            flush=True,
        )
        with LayoutBench(limits, processes, chosen.rounds) as bench:
            if chosen.what == "layouts":
                usual = [Workload.parse(f"{one},128") for one in WORKLOADS]
                told = compare_layouts(bench, device.sm_count, until, given or usual)
            else:
                told = compare_drawn(bench, until, given or list(draw(40)))
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / f"{chosen.what}.json"
    whole = {
        "device": dataclasses.asdict(device),
        "limits": dataclasses.asdict(limits),
        "rows": told,
    }
    path.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
