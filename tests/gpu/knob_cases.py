"""What tests on a GPU share: knobs to try, runs that must be right, the sanitizer's verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from labtools.measure import GpuRun, SanitizerReport, sanitize_rung
from labtools.measure.profiler.sanitize import find_sanitizer
from labtools.predict import limits_of
from labtools.problem import LabError, Problem, Rung
from labtools.toolchain import device_query

SEED = 20261121
MOST_COMBINATIONS = 64
MOST_VALUES = 9


def knob_choices(rung: Rung) -> list[dict[str, int]]:
    """All combinations of knobs; of many each value by itself, and some drawn combinations."""
    if math.prod(len(knob.choices) for knob in rung.knobs) <= MOST_COMBINATIONS:
        return rung.knob_combinations()
    chosen = []
    for knob in rung.knobs:
        places = np.linspace(0, len(knob.choices) - 1, min(len(knob.choices), MOST_VALUES))
        chosen += [{knob.name: knob.choices[int(place)]} for place in places]
    rng = np.random.default_rng(SEED)
    for _ in range(MOST_VALUES):
        chosen.append({knob.name: int(rng.choice(knob.choices)) for knob in rung.knobs})
    return chosen


def fits(rung: Rung, case: Problem, knobs: dict[str, int]) -> bool:
    """Whether this GPU's blocks have the shared memory that the launches ask for."""
    device = device_query()
    assert device is not None
    most = device.smem_per_block_optin_bytes
    try:
        launches = rung.launches(case, limits_of(device), knobs)
    except LabError:  # a rung that lays its blocks out by itself says so
        return False
    return all(launch.smem_bytes <= most for launch in launches)


def hold_right(runs: Sequence[GpuRun], asked: Sequence[object]) -> None:
    """Every run that was asked for was made, and is right."""
    wrong = [f"{one}: {run}" for one, run in zip(asked, runs, strict=False) if not run.ok]
    assert not wrong, "\n".join(wrong[:5])
    assert len(runs) == len(asked)


def sanitized(
    rung: Rung, problem: Problem, knobs: dict[str, int] | None = None, *tools: str, **options: float
) -> list[SanitizerReport]:
    """What the tools say; the test is skipped where they are missing or refuse this GPU."""
    try:
        find_sanitizer()
    except LabError as error:
        pytest.skip(error.what)
    reports = sanitize_rung(rung, problem, knobs, tools=tools, **options)
    for report in reports:
        if report.verdict == "not run" and "not supported" in report.reason:
            pytest.skip(report.reason)
    return reports
