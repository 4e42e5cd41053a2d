"""Time the layout that the rule chooses for r09, r10 and r11 beside those of a search.

    python -m research.search_layouts --out FOLDER                      the table, whole
    python -m research.search_layouts --out FOLDER --also r10:17,32,8,16384,128

Run on a GPU; `labtools.record.tile_search` reads the table, ``kernels/grids/layouts.<gpu>.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from labtools.measure.gpu.job import require_device
from labtools.predict import DEFAULT_GPU, limits_of
from labtools.problem import LabError, Limits, Workload, load_rung
from labtools.problem.decode.block_plan import divisions, plan_of
from labtools.record.tile_search import TileSearch, layout_search_path, text_hash
from research.compare_layouts import RING_RUNGS, LayoutBench, Wanted
from research.search_tiles import DRAWN_HEADS, search

LAYOUT_SEED = 36
DRAWN_COUNT = 40
MOST_LAYOUTS = 30
"""Of a problem, the rule's among them."""
BEST_DIVISIONS = 6
"""Divisions that the rule's own times put first; three of them with each number of warps."""
LEAST_BLOCKS = 0.4
"""Of the multiprocessors: the rest is drawn from layouts whose blocks are no fewer."""
CACHE_BYTES = (1e6, 4e8)
"""A drawn fp16 cache has between so many bytes."""
FEW_HEADS = ((8, 1), (4, 1), (16, 1))

AskedLayouts = tuple[str, Workload]
"""A rung and the problem that it is timed on."""


def drawn_problems_of_rings(
    count: int = DRAWN_COUNT, seed: int = LAYOUT_SEED
) -> list[AskedLayouts]:
    """Problems of head dimension 128, from a few pairs to many, each for one of the rungs in
    turn."""
    rng = np.random.default_rng([seed, 9])
    heads = (*DRAWN_HEADS, *FEW_HEADS)
    made: list[AskedLayouts] = []
    rungs = itertools.cycle(RING_RUNGS)
    while len(made) < count:
        batch = round(float(np.exp(rng.uniform(0, np.log(64)))))
        length = round(float(np.exp(rng.uniform(np.log(128), np.log(131072)))))
        one = Workload(batch, *heads[rng.integers(len(heads))], length, 128)
        if CACHE_BYTES[0] < one.kv_bytes < CACHE_BYTES[1]:
            made.append((next(rungs), one))
    return made


def _splits() -> tuple[int, ...]:
    """Numbers of pieces that the knob has."""
    return next(knob.choices for knob in load_rung("r09").knobs if knob.name == "split")


def _layouts(workload: Workload, limits: Limits) -> list[dict[str, int]]:
    """Every number of pieces that has a knob, in clusters of each size and blocks of each."""
    pairs = workload.batch * workload.num_kv_heads
    return [
        {"cluster": cluster, "split": split, "warps": warps}
        for cluster, split, warps in itertools.product((1, 2, 4, 8), _splits(), (0, 2, 4, 8))
        if split and split % cluster == 0
        if LEAST_BLOCKS * limits.num_sms <= pairs * split <= 4 * limits.num_sms or split == 1
    ]


def tried_layouts(
    rung: str, workload: Workload, limits: Limits, most: int = MOST_LAYOUTS
) -> list[Wanted]:
    """What is timed: the rule's choice, the divisions whose time it takes for the least, and
    others drawn by the problem; no two of them launch alike."""
    shipped = load_rung(rung)
    chosen = plan_of(shipped, workload, limits)
    ways = sorted(divisions(workload, limits, chosen.kernel), key=lambda way: way.time_us)
    first = [{"cluster": way.cluster, "split": way.pieces} for way in ways[:BEST_DIVISIONS]]
    warped = [{**one, "warps": warps} for one in first[:3] for warps in (2, 4, 8)]
    rng = np.random.default_rng([LAYOUT_SEED, workload.batch, workload.kv_len])
    every = _layouts(workload, limits)
    drawn = [every[number] for number in rng.permutation(len(every))]
    told = {"cluster": chosen.cluster, "split": chosen.pieces}
    told |= {"warps": chosen.warps, "stages": chosen.stages}
    same = told["split"] <= max(_splits()) and plan_of(shipped, workload, limits, told) == chosen
    plans, tried = [chosen], [(rung, told if same else {})]
    for knobs in (*first, *warped, *drawn):
        if len(tried) == most:
            break
        try:
            plan = plan_of(shipped, workload, limits, knobs)
        except LabError:
            continue  # it does not fit
        if plan not in plans:
            plans.append(plan)
            tried.append((rung, knobs))
    return tried


def _asked(text: str) -> AskedLayouts:
    rung, _, problem = text.partition(":")
    return rung, Workload.parse(problem)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    parser.add_argument("--seconds", type=float, default=420.0, help="no problem starts later")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=DRAWN_COUNT, help="problems that are drawn")
    parser.add_argument("--after", type=int, default=0, help="of these, not so many of the first")
    parser.add_argument("--layouts", type=int, default=MOST_LAYOUTS, help="of each, at most")
    parser.add_argument("--also", action="append", type=_asked, default=[], help="r10:PROBLEM")
    chosen = parser.parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    asked = [*chosen.also, *drawn_problems_of_rings(chosen.count)[chosen.after :]]
    try:
        device = require_device()
        limits = limits_of(device)
        tried = [(one, tried_layouts(rung, one, limits, chosen.layouts)) for rung, one in asked]
        with LayoutBench(limits, chosen.processes, chosen.rounds) as bench:
            found = search(bench, tried, until)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    table = TileSearch(
        gpu=device.name,
        driver=device.driver_version or "",
        date=datetime.now(UTC).date().isoformat(),
        seed=LAYOUT_SEED,
        sources={name: text_hash(name) for name in sorted({one.derived.kernel for one in found})},
        problems=found,
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / layout_search_path(DEFAULT_GPU).name
    path.write_text(json.dumps(dataclasses.asdict(table), indent=1) + "\n", "utf-8")
    if ratios := [one.ratio for one in found]:
        print(
            f"{len(ratios)} problems: the rule takes {median(ratios):.3f} x the best in the "
            f"median, {max(ratios):.3f} at most; written: {path}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
