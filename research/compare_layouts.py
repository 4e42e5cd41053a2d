"""Time the layouts of r09 to r11 against the rule's choice, and the three against one another.

``layouts`` shows where the rule in ``labtools/problem`` loses to another layout, ``drawn`` whether
a rung on a smaller cache is ever slower than r09. Run on a GPU; the samples are written as JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.measure.gpu.job import Candidate, make_job, require_device, rung_candidate
from labtools.measure.gpu.measure import open_pool, time_candidates
from labtools.measure.gpu.runner import LivePool
from labtools.predict import limits_of
from labtools.problem import LabError, Limits, Problem, Workload, draw_workloads, load_rung
from labtools.record import Record, paired_ratio

RING_RUNGS = ("r09", "r10", "r11")
LEAST_BYTES = 16_000_000
"""A drawn workload's fp16 cache has more, and fewer than `MOST_DRAWN_BYTES`."""
MOST_DRAWN_BYTES = 600_000_000
LONGEST = 500_000
SEED = 9
LAYOUT_BUDGET_S = 0.15
FEW_PAIRS = """
    1,8,1,16384  1,8,1,65536   1,8,1,250000  1,4,1,131072  1,1,1,500000
    2,8,1,65536  1,16,2,131072 3,8,1,65536   4,8,1,32768   1,16,4,16384 1,4,4,131072
    3,16,2,32768 1,32,8,8192   1,32,8,16384  1,32,8,32768  1,8,8,65536  1,64,8,32768
    2,32,8,4096  2,32,8,16384  4,16,4,32768  3,32,8,8192   4,32,8,4096  4,32,8,16384
    5,32,8,8192  10,32,8,8192  12,32,8,4096  1,8,1,131072  1,8,1,8192   2,8,1,16384
""".split()
"""Few pairs first: `layouts` takes them in turn until its time is over."""

Wanted = tuple[str, dict[str, int]]
"""A rung and the knobs of its layout; none where the rule chooses."""


@dataclass(frozen=True)
class TriedLayout:
    """One kernel on one workload: its record, or why there is none."""

    rung: str
    knobs: dict[str, int]
    record: Record | None
    failure: str = ""

    @property
    def named(self) -> str:
        """The layout in a few characters."""
        if not self.knobs:
            return "rule"
        return " ".join(f"{name[0]}{value}" for name, value in self.knobs.items())

    def plain(self) -> dict[str, Any]:
        """For JSON: samples of each process, microseconds."""
        samples = [list(one.us) for one in self.record.samples.processes] if self.record else []
        return {"rung": self.rung, "knobs": self.knobs, "samples": samples, "failure": self.failure}


def layouts_of(pairs: int, sms: int) -> list[dict[str, int]]:
    """The rule's choice and others: one cluster a pair, and all SMs in clusters of each size."""
    found: list[dict[str, int]] = [{}, {"cluster": 8, "split": 8}]
    for cluster, part in ((8, 0.91), (4, 0.91), (2, 1.0), (1, 1.0), (8, 0.5)):
        split = int(part * sms) // (cluster * pairs) * cluster
        found.append({"cluster": cluster, "split": split})
    return [one for number, one in enumerate(found) if not one or _usable(one, found[:number])]


def _usable(one: dict[str, int], before: Sequence[dict[str, int]]) -> bool:
    return one["split"] > 0 and one not in before


def promised_workloads(count: int, seed: int = SEED) -> list[Workload]:
    """Contiguous workloads of head dimension 128 that every rung supports, over 16 MB in fp16."""

    def refuses(workload: Workload) -> str | None:
        if workload.is_paged or workload.head_dim != 128:
            return "it is paged or has another head dimension"
        if not LEAST_BYTES < workload.kv_bytes < MOST_DRAWN_BYTES:
            return f"its cache has {workload.kv_bytes} bytes"
        reasons = (load_rung(rung).supports(workload) for rung in RING_RUNGS)
        return next((reason for reason in reasons if reason), None)

    most = MOST_DRAWN_BYTES // 4
    return draw_workloads(count, seed, refuses, longest=LONGEST, most_elements=most)


class LayoutBench:
    """Compiles ahead in all cores and times in a few processes that stay, with so many samples a
    kernel and process.
    """

    def __init__(self, limits: Limits, processes: int, rounds: int) -> None:
        self._limits, self._processes, self._rounds = limits, processes, rounds

    def __enter__(self) -> LayoutBench:
        self._pool: LivePool = open_pool(self._processes, ()).__enter__()
        self._compilers = ThreadPoolExecutor(os.cpu_count())
        return self

    def __exit__(self, *ended: Any) -> None:
        self._compilers.shutdown(cancel_futures=True)
        self._pool.__exit__(*ended)

    def compile(self, workload: Problem, wanted: Sequence[Wanted]) -> list[Any]:
        """Start compiling; `time` waits for what comes of it."""
        return [self._compilers.submit(self._compiled, workload, *one) for one in wanted]

    def _compiled(self, workload: Problem, rung: str, knobs: dict[str, int]) -> Candidate | str:
        """The candidate, whose machine code is kept from now on, or why it cannot be."""
        try:
            candidate = rung_candidate(rung, knobs)
            make_job(candidate, workload, self._limits)
        except LabError as error:
            return str(error)
        return candidate

    def time(
        self, workload: Problem, wanted: Sequence[Wanted], compiling: Sequence[Any]
    ) -> list[TriedLayout]:
        """Every kernel in the same processes."""
        answers = [one.result() for one in compiling]
        timing = time_candidates(
            [one for one in answers if isinstance(one, Candidate)],
            workload,
            processes=self._processes,
            rounds=self._rounds,
            budget_s=LAYOUT_BUDGET_S,
            ceiling=False,
            pool=self._pool,
        )
        found = []
        for (rung, knobs), answer in zip(wanted, answers, strict=True):
            known = isinstance(answer, Candidate)
            failure = timing.failures.get(answer.label, "") if known else answer
            record = None if failure else timing.find(answer.id, answer.knobs)
            found.append(TriedLayout(rung, knobs, record, failure))
        return found


def compare_layouts(
    bench: LayoutBench, sms: int, until: float, workloads: Sequence[Workload]
) -> list[Any]:
    """Time `layouts_of` every workload and print how the rule stands."""
    wanted = {
        one: [
            (rung, knobs)
            for rung in RING_RUNGS
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
        for rung in RING_RUNGS:
            mine = [one for one in timed if one.rung == rung]
            good = {one.named: one.record.median_us for one in mine if one.record}
            best = min(good, key=good.__getitem__, default=None)
            times = "  ".join(f"{named} {us:.2f}" for named, us in good.items())
            loss = f"{good['rule'] / good[best]:.2f} x the best" if best and "rule" in good else ""
            print(f"  {rung}: {times}   -> {best}, the rule {loss or 'no time'}", flush=True)
            for one in mine:
                if one.failure:
                    print(f"    {one.named}: {one.failure[:160]}")
    return told


def compare_drawn(bench: LayoutBench, until: float, workloads: Sequence[Workload]) -> list[Any]:
    """Time the rungs at the rule's layout and flag a smaller cache that is slower."""
    wanted: list[Wanted] = [(rung, {}) for rung in RING_RUNGS]
    compiling = [bench.compile(one, wanted) for one in workloads]
    told, slower, done = [], 0, 0
    print("workload: r09, r10, r11 in us; r10 and r11 over r09 with 95 % intervals")
    for workload, pending in zip(workloads, compiling, strict=True):
        if time.monotonic() > until:
            break
        timed = bench.time(workload, wanted, pending)
        row = _row(workload, timed)
        records = [one.record for one in timed if one.record]
        if len(records) < len(timed):
            print(f"{workload}: {[one.failure for one in timed if one.failure]}")
            told.append(row)
            continue
        ratios = [paired_ratio(one, records[0]) for one in records[1:]]
        flags = [
            f"{rung} SLOWER"
            for rung, ratio in zip(RING_RUNGS[1:], ratios, strict=True)
            if ratio.low > 1
        ]
        slower += len(flags)
        done += 1
        times = " ".join(f"{one.median_us:8.2f}" for one in records)
        said = "  ".join(f"{one.ratio:.3f} ({one.low:.3f}-{one.high:.3f})" for one in ratios)
        print(f"{workload!s:44} {times}   {said}   {' '.join(flags)}", flush=True)
        told.append({**row, "ratios": [(one.ratio, one.low, one.high) for one in ratios]})
    print(
        f"{done} of {len(workloads)} workloads; a smaller cache was slower than r09 {slower} times"
    )
    return told


def _row(workload: Workload, timed: Sequence[TriedLayout]) -> dict[str, Any]:
    return {"workload": workload.to_dict(), "timed": [one.plain() for one in timed]}


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
        print(
            f"{device.name}, driver {device.driver_version}, {device.sm_count} SMs, L2 of "
            f"{device.l2_bytes} bytes; clusters that fit, by size: {limits.clusters}",
            flush=True,
        )
        with LayoutBench(limits, processes, chosen.rounds) as bench:
            if chosen.what == "layouts":
                usual = [Workload.parse(f"{one},128") for one in FEW_PAIRS]
                told = compare_layouts(bench, device.sm_count, until, given or usual)
            else:
                told = compare_drawn(bench, until, given or promised_workloads(40))
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / f"{chosen.what}.json"
    asked = {"device": dataclasses.asdict(device), "limits": dataclasses.asdict(limits)}
    path.write_text(json.dumps({**asked, "rows": told}, indent=1) + "\n", "utf-8")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
