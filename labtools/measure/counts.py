"""Who a forecast asks for trip counts; the CPU runner is loaded when it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from labtools.predict.counts import TripCounts
from labtools.problem import Limits, Problem, Rung


def trip_counts_of(
    rung: Rung, workload: Problem, knobs: Mapping[str, int] | None, limits: Limits
) -> Callable[[], TripCounts]:
    """What `labtools.predict.forecast` takes as ``counts``; arguments as for `run_on_cpu`."""

    def ask() -> TripCounts:
        from .cpu import CpuTripCounts

        return CpuTripCounts(rung, workload, knobs, limits)

    return ask
