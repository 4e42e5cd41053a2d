"""A loop whose measurements are made up, for tests of its log, its state and its summary.

Every number follows from the round and the point, so a loop that was killed and goes on must end
with the same state.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labtools.optimize import events
from labtools.optimize.attribution import AA, Attribution
from labtools.optimize.budget import Budget
from labtools.optimize.family import Family
from labtools.optimize.gaps import Gaps
from labtools.optimize.loop import open_loop
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.pick import Considered, MethodChecks, Pick
from labtools.optimize.sass_check import SassVerdict
from labtools.optimize.state import LoopState
from labtools.problem import parse_problem
from labtools.record import ProcessSamples, Samples

START = "start"
METHODS = {
    1: ("memory.wide", "latency.async", "compute.mma"),
    2: ("latency.split", "memory.swizzle", "compute.exp2"),
    3: ("compute.lazy", "latency.stages", "memory.cache"),
}
Acknowledge = Callable[[str], None]


def samples_of_rows(rows: Iterable[Iterable[float]]) -> Samples:
    """The times of some processes, a row each, microseconds."""
    return Samples(
        processes=tuple(
            ProcessSamples(
                process=process,
                us=tuple(map(float, us)),
                launches_per_sample=1,
                rotated_sets=2,
                rotated_bytes=1,
            )
            for process, us in enumerate(rows)
        )
    )


def samples_of(time_us: float) -> Samples:
    """Five samples of one process around a time."""
    return samples_of_rows([[time_us * (1 + part / 1000) for part in (-2, -1, 0, 1, 2)]])


def noisy_samples(
    rng: np.random.Generator, time_us: float, processes: int, rounds: int, noise: float
) -> Samples:
    """A kernel timed in some processes, each a little off as a whole."""
    rows = []
    for _ in range(processes):
        own = np.exp(0.3 * noise * rng.standard_normal())
        rows.append(time_us * own * np.exp(noise * rng.standard_normal(rounds)))
    return samples_of_rows(rows)


def time_of(point: str, number: int) -> float:
    """Made up: later rounds are faster."""
    return 100.0 / number + zlib.crc32(point.encode()) % 100 / 10


def begin(**changes: Any) -> events.InitDone:
    """How the loop begins."""
    values: dict[str, Any] = {
        "family": "tunable",
        "family_hash": "f" * 8,
        "on": "recorded",
        "gpu": "h200",
        "workload": parse_problem("8,32,8,4096,128"),
        "seed": 3,
        "branches": 4,
        "rule": "largest-remainder",
        "start": START,
        "start_knobs": {"split": 1},
        "env": {},
    }
    return events.InitDone(**{**values, **changes})


def gaps_of(number: int) -> events.GapsDone:
    """Gaps and counters; in the first round one counter is missing."""
    gaps = Gaps(
        compute=0.9,
        memory=None if number == 1 else 0.6 - 0.1 * number,
        latency=0.5,
        origin="counters",
        bound="chain" if number < 3 else "bandwidth",
        values={"issue_slot_pct": 30.0},
        missing=("dram_throughput_pct",) if number == 1 else (),
    )
    counters: Mapping[str, float | None] = {
        "dram_throughput_pct": None if number == 1 else 40.0 + 10 * number,
        "issue_slot_pct": 30.0,
        "registers": 64.0 + number,
    }
    return events.GapsDone(number, START if number == 1 else f"r{number - 1}b2", gaps, counters)


def pick_of(number: int) -> events.PickDone:
    """The round's three methods, and one that did not pass."""
    checks = MethodChecks(not_taken=True, architecture=True, not_skipped=True, trigger=True)
    taken = tuple(
        Considered(method, method.partition(".")[0], 1, 0.5, checks, True, "its trigger fires")  # type: ignore[arg-type]
        for method in METHODS[number]
    )
    missing = replace(checks, trigger=None)
    left = Considered("memory.l2", "memory", 2, None, missing, False, "a counter is missing")
    forms = dict.fromkeys(METHODS[number], 0)
    return events.PickDone(number, Pick(METHODS[number], forms, (*taken, left), 0))


def measure(
    folder: LoopFolder, number: int, purpose: Any, points: list[str], said: Acknowledge
) -> None:
    """Time what the round did not time yet."""
    for point in folder.plan(purpose, points):
        taken = time_of(point, number)
        folder.keep(
            events.PointTimed(
                number, purpose, point, folder.next_call, samples_of(taken), knobs={"split": number}
            )
        )
        said(folder.lines[-1].hash)


def branch(folder: LoopFolder, number: int, said: Acknowledge) -> None:
    """Four branches, of which the fourth is wrong and the second made the fastest."""
    points = [f"r{number}b{k}" for k in (1, 2, 3, 4)]
    measure(folder, number, "branch", points, said)
    tried = []
    for k, point in enumerate(points, start=1):
        one = folder.measured(point, round=number, purpose="branch")
        assert one is not None
        failure = "wrong at row 3" if k == 4 else ""
        tried.append(events.BranchTried(k, point, one.time_us, 50.0, "forecast", failure))
    folder.keep(events.BranchDone(number, tuple(tried), points[1], {"too much shared memory": 7}))


def ablate(folder: LoopFolder, number: int, said: Acknowledge) -> None:
    """Three variants: one slower, one the same, one undecided."""
    champion = folder.state.current.champion
    assert champion is not None
    variants = {method: f"{champion}-{method}" for method in METHODS[number]}
    measure(folder, number, "ablation", list(variants.values()), said)
    base = time_of(champion, number)
    found = []
    for method, relative, decided in zip(
        METHODS[number], (0.3, 0.001, 0.02), ("above", "below", None), strict=True
    ):
        low, high = relative - 0.005, relative + 0.005
        told: Any = (variants[method], base * relative, relative, low, high, 0.02, decided)
        found.append(Attribution(method, *told))
    folder.keep(events.AblateDone(number, AA(0.004, 40, "made up"), tuple(found)))


def step(folder: LoopFolder, number: int, said: Acknowledge) -> None:
    """The one step that comes next."""
    (name,) = folder.state.next_steps
    methods = METHODS[number]
    if name == "gaps":
        folder.keep(gaps_of(number))
    elif name == "budget":
        folder.keep(
            events.BudgetDone(number, Budget(1, 1, 1, "largest-remainder", "by their gaps"))
        )
    elif name == "pick":
        folder.keep(pick_of(number))
    elif name == "branch":
        branch(folder, number, said)
    elif name == "ablate":
        ablate(folder, number, said)
    elif name == "check":
        verdicts = ("present", "absent", "no signature")
        found: Any = zip(methods, verdicts, strict=True)
        checked = [SassVerdict(*one, (("HMMA", 3),), "kernel", "") for one in found]
        folder.keep(events.CheckDone(number, tuple(checked)))
    else:
        classes: Any = dict(
            zip(methods, ("effective", "implementation_failed", "undecided"), strict=True)
        )
        champion = folder.state.current.champion
        assert champion is not None
        point = events.UpdateDone(
            number, classes, champion, time_of(champion, number), 0.1, "as wished"
        )
        folder.keep(point)
    said(folder.lines[-1].hash)


def play(path: Path, said: Acknowledge = lambda text: None, rounds: int = 3) -> None:
    """Begin a loop or go on with it, to its end."""
    if not LoopFolder.holds_loop(path):
        with LoopFolder.create(path, begin(), source_of) as folder:
            said(folder.lines[-1].hash)
    with LoopFolder.opened(path, source_of) as folder:
        while not folder.state.stopped and folder.state.round <= rounds:
            step(folder, folder.state.round, said)
        if not folder.state.stopped:
            folder.keep(events.FrontierScored({"r1b1": {"1,32,8,4096,128": 20.0}}))
            folder.keep(events.LoopStopped(rounds, "the rounds are over"))
            said(folder.lines[-1].hash)


def take(folder: Path, family: Family, step: str, *given: Any, **named: Any) -> LoopState:
    """A step of the loop of a folder."""
    with open_loop(folder, family) as opened:
        state: LoopState = getattr(opened, step)(*given, **named)
        return state


def source_of(point: str, state: LoopState) -> str:
    """The text of a point's kernel."""
    return f"// {point}\n"
