"""The bench of a name, where every kind of bench is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labtools.predict import DEFAULT_GPU
from labtools.problem import LabError, Problem
from labtools.toolchain.progress import Progress, silent

from .bench import ForecastBench, RecordedBench, TimedOn, TimingBench
from .family import Family
from .grid import check_grid, grid_path, read_grid


def open_bench(
    family: Family,
    problem: Problem,
    on: TimedOn,
    *,
    progress: Progress = silent,
    points_known: bool = False,
) -> TimingBench:
    """The bench of a name: ``recorded``, ``forecast`` or ``gpu``.

    ``points_known``: the points of the family were held against the recorded grid before.
    """
    if reason := family.rung.supports(problem):
        raise LabError(f"{family.rung.id} cannot run {problem}.", reason, "choose another workload")
    makers: Mapping[TimedOn, Callable[[], TimingBench]] = {
        "recorded": lambda: _open_recorded(family, problem, progress, points_known),
        "forecast": lambda: ForecastBench(family, problem, progress=progress),
        "gpu": lambda: _open_live(family, problem, progress),
    }
    return makers[on]()


def _open_live(family: Family, problem: Problem, progress: Progress) -> TimingBench:
    from .live_bench import LiveBench  # what measures on a GPU takes long to import

    return LiveBench(family, problem, progress=progress)


def _open_recorded(
    family: Family, problem: Problem, progress: Progress, points_known: bool
) -> RecordedBench:
    path = grid_path(family.rung.id, DEFAULT_GPU)
    if not path.is_file():
        raise LabError(
            f"There is no recorded grid of {family.rung.id}.",
            f"it would be {path}",
            "--on forecast, and --on gpu where there is one",
        )
    grid = read_grid(path)
    found = check_grid(grid, family, points_known=points_known)
    if not found.fresh:
        raise LabError(
            f"The recorded grid of {family.rung.id} is of other code.",
            next(iter(found.changed.values())),
            "--on forecast, and --on gpu where there is one",
        )
    return RecordedBench(family, problem, grid, progress)
