"""Measure the grid of a kernel family on this machine's GPU, and write it as one table.

Each phase goes on in the same folder where it was stopped; ``models`` needs no GPU and may run
beside ``time``. ``renew`` alone lets today's model forecast the points of a recorded grid again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labtools.measure.gpu.job import require_device
from labtools.optimize.family import load_family
from labtools.optimize.grid import grid_path, read_grid, write_grid
from labtools.predict import limits_of, load_gpu, model_name
from labtools.problem import LabError
from labtools.record import slug_of_gpu
from labtools.toolchain.progress import ProgressLine

from .make_grid import describe_grid, make_grid, renew_forecasts
from .measure_grid import (
    BEST,
    POINTS_A_BATCH,
    Clock,
    GridFolder,
    Timer,
    make_plan,
    make_points,
)

PHASES = ("codes", "models", "time", "best", "table")
RENEW = "renew"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run some phases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", help="id of the family, or the path of its .toml")
    parser.add_argument("--out", type=Path, required=True, help="folder of the measurements")
    parser.add_argument("--phase", choices=(*PHASES, RENEW), nargs="+", default=list(PHASES))
    parser.add_argument("--gpu", default="", help="its data sheet, to compile where there is none")
    parser.add_argument("--anchors", default="", help="rungs and baselines of every batch: r03,r09")
    parser.add_argument("--limit", type=int, help="so many points, drawn, for a try-out")
    parser.add_argument("--batch", type=int, default=POINTS_A_BATCH, help="points of a batch")
    parser.add_argument("--best", type=int, default=BEST, help="points of the full protocol")
    parser.add_argument("--deadline-s", type=float, help="begin nothing new after so many seconds")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile")
    parser.add_argument("--table", type=Path, help="file of the grid; by default the shipped one")
    chosen = parser.parse_args(arguments)
    try:
        return _run(chosen)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


def _run(chosen: argparse.Namespace) -> int:
    folder = GridFolder(chosen.out)
    with ProgressLine() as progress:
        clock = Clock(chosen.deadline_s, progress)
        if RENEW in chosen.phase:
            return _renew(chosen, folder, clock)
        if {"codes", "models", "time", "best"} & set(chosen.phase):
            _measure(chosen, folder, clock)
    if "table" in chosen.phase:
        grid = make_grid(folder)
        path = chosen.table or grid_path(grid.plan.rung, grid.plan.gpu)
        write_grid(path, grid)
        print(f"{path}: {path.stat().st_size} bytes")
        print(describe_grid(grid))
    return 0


def _renew(chosen: argparse.Namespace, folder: GridFolder, clock: Clock) -> int:
    """Forecast the points of a grid again."""
    path = chosen.table or grid_path(chosen.family, chosen.gpu)
    grid = read_grid(path)
    folder.settle(replace(grid.plan, model=model_name()))
    limits, processes = load_gpu(chosen.gpu).limits, chosen.processes or 1
    models = make_points(folder, limits, "models", processes=processes, clock=clock)
    print(_say_made("forecast", len(grid), [one.problem for one in models.values()], clock))
    renewed = renew_forecasts(grid, models, model_name())
    write_grid(path, renewed)
    same = sum(
        before == now
        for one, other in zip(grid.at, renewed.at, strict=True)
        for before, now in zip(one.forecast_us, other.forecast_us, strict=True)
    )
    print(f"{path}: {same} of {len(grid) * len(grid.at)} forecasts are the same")
    return 0


def _measure(chosen: argparse.Namespace, folder: GridFolder, clock: Clock) -> None:
    timing = bool({"time", "best"} & set(chosen.phase))
    device = None if chosen.gpu and not timing else require_device()
    limits = limits_of(device) if device else load_gpu(chosen.gpu).limits
    gpu = slug_of_gpu(device.name) if device else chosen.gpu
    anchors = tuple(filter(None, chosen.anchors.split(",")))
    plan = make_plan(
        load_family(chosen.family),
        gpu,
        name=chosen.family,
        anchors=anchors,
        limit=chosen.limit,
        batch=chosen.batch,
    )
    folder.settle(plan)
    if device is not None and timing:
        folder.begin_on(device)
    codes, processes = folder.codes(), chosen.processes or 1
    if "codes" in chosen.phase:
        codes = make_points(folder, limits, "codes", processes=processes, clock=clock)
        print(_say_made("compiled", len(plan), [one.problem for one in codes.values()], clock))
    if "models" in chosen.phase:
        models = make_points(folder, limits, "models", processes=processes, clock=clock)
        print(_say_made("forecast", len(plan), [one.problem for one in models.values()], clock))
    if "time" in chosen.phase:
        timer = Timer(folder, limits, clock, codes)
        timer.time_all()
        done = len(folder.batches())
        print(f"{done} of {plan.batches * len(plan.workloads)} batches, {clock.spent_s:.0f} s")
    if "best" in chosen.phase:
        Timer(folder, limits, clock, codes).time_best(chosen.best)
        print(f"the best points: {clock.spent_s:.0f} s")


def _say_made(done: str, points: int, problems: Sequence[str], clock: Clock) -> str:
    failed = [problem for problem in problems if problem]
    text = f"{len(problems)} of {points} points {done}, {len(failed)} could not be, "
    return "\n".join([f"{text}{clock.spent_s:.0f} s", *list(dict.fromkeys(failed))[:8]])


if __name__ == "__main__":
    raise SystemExit(main())
