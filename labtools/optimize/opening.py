"""The bench of a name, where every kind of bench is known."""

from __future__ import annotations

from labtools.predict import DEFAULT_GPU
from labtools.problem import LabError, Problem
from labtools.toolchain.progress import Progress, silent

from .bench import ForecastBench, RecordedBench, TimedOn, TimingBench
from .family import Family
from .grid import changed_points, grid_path, read_grid


def open_bench(
    family: Family,
    problem: Problem,
    on: TimedOn,
    *,
    progress: Progress = silent,
    points_known: bool = False,
) -> TimingBench:
    """The bench of a name; with ``points_known`` the points of the family were held against the
    recorded grid before."""
    if reason := family.rung.supports(problem):
        raise LabError(f"{family.rung.id} cannot run {problem}.", reason, "choose another workload")
    if on == "forecast":
        return ForecastBench(family, problem, progress=progress)
    if on == "gpu":
        from .live_bench import LiveBench  # what measures on a GPU takes long to import

        return LiveBench(family, problem, progress=progress)
    path = grid_path(family.rung.id, DEFAULT_GPU)
    others = "--on forecast, and --on gpu where there is one"
    if not path.is_file():
        what = f"There is no recorded grid of {family.rung.id}."
        raise LabError(what, f"it would be {path}", others)
    grid = read_grid(path)
    if changed := changed_points(grid, family, points_known=points_known):
        what = f"The recorded grid of {family.rung.id} is of other code."
        raise LabError(what, next(iter(changed.values())), others)
    return RecordedBench(family, problem, grid, progress)
