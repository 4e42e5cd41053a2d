"""Forecast the kernels of ``tests/public``, and record them on a GPU.

    python -m research.measure_public                 the forecasts, tests/public/forecasts.json
    python -m research.measure_public --out FOLDER    on a GPU: a record of each in FOLDER
    python -m research.measure_public --read FILE     adds such records to the table

The forecasts are committed before anything is measured, and what was said then is kept beside what
was measured. Later versions of the model were made with these measurements in sight.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from labtools.measure.campaign.plan import Group
from labtools.measure.campaign.recording import Effort, record_groups
from labtools.measure.gpu.job import Candidate, rung_candidate
from labtools.measure.gpu.measure import PROCESSES
from labtools.predict import forecast, model_name
from labtools.problem import Problem, Rung, kernels_dir, load_rung, operation_of
from labtools.record import read_records

PUBLIC_DIR = Path(__file__).parents[1] / "tests" / "public"
FORECASTS = PUBLIC_DIR / "forecasts.json"
GPU = "h200"


def measured_path(gpu: str) -> Path:
    """What was said and measured on a GPU of this short name."""
    return kernels_dir() / "grids" / f"public.{gpu}.json"


def rung_files() -> list[Path]:
    """The files of which each has one."""
    return sorted(one for one in PUBLIC_DIR.glob("*.py") if "\nRUNG = " in one.read_text())


def public_rungs() -> dict[str, Rung]:
    """The kernels by name, in order."""
    return {path.stem: load_rung(path) for path in rung_files()}


def timed_problem(rung: Rung) -> Problem:
    """What a kernel is timed on: the largest of its operation's sizes."""
    problem: Problem = operation_of(rung.operation).headline
    return problem


def write_forecasts(names: Sequence[str]) -> None:
    """Forecast the named kernels, or all, and keep what is said of the others."""
    known = json.loads(FORECASTS.read_text("utf-8")) if names and FORECASTS.exists() else {}
    for name, rung in public_rungs().items():
        if names and name not in names:
            continue
        made = forecast(rung, timed_problem(rung), GPU)
        known[name] = {
            "problem": str(timed_problem(rung)),
            "time_us": round(made.time_us, 4),
            "floor_us": round(made.floor.least_us, 4),
            "bound": made.bound,
            "model": model_name(),
        }
        print(f"{name:24} {made.time_us:10.2f} us  {made.bound}")
    FORECASTS.write_text(json.dumps(known, indent=1) + "\n")


def record_all(folder: Path, names: Sequence[str], effort: Effort) -> bool:
    """Check, time and profile the named kernels, or all, those of one problem together; whether
    each is right and has a time."""
    together: dict[str, dict[str, Candidate]] = {}
    problems: dict[str, Problem] = {}
    for name, rung in public_rungs().items():
        if not names or name in names:
            problem = timed_problem(rung)
            problems[problem.key()] = problem
            together.setdefault(problem.key(), {})[rung.id] = rung_candidate(rung)
    groups = [
        Group(problems[key], mine, ceiling=False, profile=mine) for key, mine in together.items()
    ]
    report = record_groups("public", groups, folder, effort)
    for one in report.records:
        print(f"{one.candidate:24} {one.median_us:10.2f} us")
    for label, why in report.failures.items():
        print(f"{label}: {why}")
    return report.ok


def add_measured(file: Path) -> None:
    """Add to `measured_path` of each record in a file what was said before, the median of each
    process in microseconds, and its hardware counters where there are any."""
    public_rungs()  # so that the problems are known
    records, _ = read_records(file)
    about, said = records[0].provenance, json.loads(FORECASTS.read_text("utf-8"))
    path = measured_path(about.gpu_slug)
    found: dict[str, Any] = {"gpu": about.gpu, "driver": about.driver, "kernels": {}}
    if path.exists():
        found = json.loads(path.read_text("utf-8"))
    for one in records:
        counters = one.counters.values if one.counters is not None else {}
        found["kernels"][one.name] = {
            "commit": one.provenance.commit,
            "said": {name: said[one.name][name] for name in ("time_us", "bound", "model")},
            "us": [round(median(process.us), 4) for process in one.samples.processes],
            "counters": {name: value for name, value in counters.items() if value},
        }
    found["kernels"] = dict(sorted(found["kernels"].items()))
    path.write_text(json.dumps(found, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and do one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="some of the kernels")
    parser.add_argument("--out", type=Path, help="folder of the records, on a GPU")
    parser.add_argument("--read", type=Path, help="file of records that the table gains")
    parser.add_argument("--no-profile", action="store_true", help="no hardware counters")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    chosen = parser.parse_args(arguments)
    if chosen.read:
        add_measured(chosen.read)
        return 0
    if chosen.out is None:
        write_forecasts(chosen.names)
        return 0
    effort = Effort(processes=chosen.processes, profile=not chosen.no_profile)
    return 0 if record_all(chosen.out, chosen.names, effort) else 1


if __name__ == "__main__":
    sys.exit(main())
