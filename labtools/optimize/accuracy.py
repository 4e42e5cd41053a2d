"""How right the forecast is about a method: what it says of taking one out, against the recorded
grid of the same kernel on the same GPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labtools.problem import LabError
from labtools.record.statistics import CONFIDENCE

from .attribution import THRESHOLD
from .family import Family
from .grid import Grid, GridAt, changed_points, grid_path, read_grid

LARGE_EFFECT = 0.25
"""Relative effect of which a forecast should be able to tell: see `ForecastError.decided_large`."""


@dataclass(frozen=True)
class ForecastError:
    """The error of a forecast ratio of a point without one method to the point with it. Shares are
    over every such pair of the grid, each workload judged by the error at the others."""

    log_error: float  # all but 5 % of the pairs are within it, at the worst workload of the grid
    pairs: int  # pairs of points, over all workloads
    decided: float  # share of the pairs that get a verdict
    agreed: float | None  # share of these whose recorded effect is on that side; None without any
    decided_large: float | None  # the first, of those whose recorded effect exceeds `LARGE_EFFECT`

    def __str__(self) -> str:
        agreed = "" if self.agreed is None else f", {self.agreed:.1%} of these agree with it"
        large = "" if self.decided_large is None else f"{self.decided_large:.0%} of those with an "
        large += f"effect over {LARGE_EFFECT:.0%}" if large else ""
        return (
            f"forecast ratios are within a factor of {math.exp(self.log_error):.2f} of the "
            f"recorded grid in 95 % of {self.pairs} pairs; that decides {self.decided:.0%} of them"
            + agreed
            + (f", and {large}" if large else "")
        )


def forecast_error(family: Family, gpu: str) -> ForecastError | None:
    """The error by the recorded grid of a family on a GPU; None without one of this code."""
    path = grid_path(family.rung.id, gpu)
    if not path.is_file():
        return None
    try:
        grid = read_grid(path)
        fresh = not changed_points(grid, family, points_known=True)
    except LabError:
        return None
    return error_on(grid, family) if fresh else None


def error_on(grid: Grid, family: Family) -> ForecastError | None:
    """The error on a grid; None where no pair of it was both forecast and timed."""
    pairs = _pairs_of(grid, family)
    rows = [found for at in grid.at if len(found := _effects(at, pairs))]
    if not rows:
        return None
    errors = [
        float(np.quantile(np.abs(said - was), CONFIDENCE, method="higher"))
        for said, was in (row.T for row in rows)
    ]
    least, decided, right, large = math.log1p(THRESHOLD), [], [], []
    for place, row in enumerate(rows):
        said, was = row.T
        others = [one for at, one in enumerate(errors) if at != place]
        error = max(others or errors)
        above, below = said - error > least, said + error < least
        decided.append(above | below)
        right.append(np.where(was > least, above, below))
        large.append(np.abs(np.expm1(was)) > LARGE_EFFECT)
    has, hit, big = (np.concatenate(one) for one in (decided, right, large))
    return ForecastError(
        max(errors),
        len(has),
        float(has.mean()),
        float(hit[has].mean()) if has.any() else None,
        float(has[big].mean()) if big.any() else None,
    )


def _pairs_of(grid: Grid, family: Family) -> list[tuple[int, int]]:
    """Numbers of points, each with that of the point without one of its methods."""
    found = []
    for number in range(len(grid)):
        point = family.point(grid.plan.knobs_of(number))
        for name in family.methods_on(point):
            try:
                left = grid.number(family.remove(point, name))
            except LabError:  # it cannot be taken out alone
                continue
            if left is not None:
                found.append((number, left))
    return found


def _effects(at: GridAt, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Logarithm of each pair's ratio, forecast and recorded: [pairs with both, 2]."""
    times = [statistics.median(us) if us else math.nan for us in at.samples]
    logs = np.log(np.array([times, [us or math.nan for us in at.forecast_us]]))
    numbers = np.array(pairs, dtype=int).reshape(-1, 2)
    ratios = logs[::-1, numbers[:, 1]] - logs[::-1, numbers[:, 0]]
    return ratios.T[np.isfinite(ratios).all(axis=0)]
