"""The rule of bounds on kernels of which an intervention has shown what holds them.

``tests/bounds/bounds.toml`` says what holds each and what was changed; ``research.measure_bounds``
measured it.
"""

from __future__ import annotations

import json
import statistics
from functools import cache
from typing import Any

import pytest

from labtools.predict.launched import forecast_asked
from labtools.predict.sheets import load_gpu
from labtools.record.bound import FULL_UNITS, busiest_unit, counted_bound
from research.measure_bounds import BOUNDS_DIR, HeldKernel, held_kernels

KERNELS = {one.name: one for one in held_kernels()}
LEAST_RIGHT = 36 / 40


@cache
def _measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BOUNDS_DIR / "h200.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_the_change_shows_what_holds_the_kernel(name: str) -> None:
    one, row = KERNELS[name], _measured()["kernels"][name]
    before, after = (statistics.median(row[key]) for key in ("us", "changed_us"))
    empty = statistics.median(_measured()["empty_us"])
    ratio = after / before
    match one.change.partition("=")[0]:
        case "resident":
            assert ratio < 0.7
        case "twice":
            assert ratio > 1.5 or _is_full(one, row["counters"])
        case "more":
            assert 0.85 < ratio < 1.15
        case "short":
            assert before < 3 * empty and ratio < 1.15


def _is_full(one: HeldKernel, counters: dict[str, float]) -> bool:
    """Whether its pipe is at 70 % of its peak and memory under 50 %."""
    pipe = counters[FULL_UNITS["pipe"][one.unit].counter]
    return pipe >= 70 and counters["dram_throughput_pct"] < 50


def test_counters_name_the_bound() -> None:
    gpu = load_gpu("h200")
    wrong = {}
    for name, one in KERNELS.items():
        found = counted_bound(
            _measured()["kernels"][name]["counters"],
            empty_launch_us=_measured()["profiled_empty_us"],
            max_warps_per_sm=gpu.max_warps_per_sm,
        )
        assert not (one.bound == "pipe" and found.bound == "chain"), name
        if found.bound != one.bound:
            wrong[name] = (found.bound, found.reason)
        elif one.bound == "pipe":
            assert busiest_unit("pipe", found.shares) in _same(one.unit), name
    assert len(KERNELS) - len(wrong) >= LEAST_RIGHT * len(KERNELS), wrong


def _same(unit: str) -> tuple[str, ...]:
    """The pipes that do the work of one: a half multiply-add takes the tensor cores' too."""
    return (unit, "imad", "tensor") if unit == "fma" else (unit,)


@pytest.mark.parametrize("name", KERNELS)
def test_a_forecast_names_the_bound(name: str) -> None:
    one = KERNELS[name]
    made = forecast_asked(one.asked())
    assert made.bound == one.bound, made.bound_reason
    if one.unit and name not in OF_TWO_PIPES:
        assert busiest_unit("pipe", made.main_launch.pipe_shares) == one.unit


OF_TWO_PIPES = ("product_tile",)
"""Its multiply-adds and its reads of shared memory stand near to each other, and the forecast takes
the other for the busier one."""
