"""The kernels of every operation but decode on a real GPU: right, clean, and broken as written."""

from __future__ import annotations

import pytest
from knob_cases import SEED, fits, hold_right, knob_choices, sanitized

from labtools.measure.gpu.runner import run_jobs_on_gpu
from labtools.measure.profiler.sanitize import TOOLS
from labtools.problem import (
    DEFAULT_OPERATION,
    Rung,
    list_rungs,
    list_studies,
    load_rung,
    operation_of,
    operations,
)
from labtools.toolchain import device_query

DRAWN = 100
RUNGS = tuple(
    rung.id
    for name in operations()
    if name != DEFAULT_OPERATION
    for rung in (*list_rungs(name), *list_studies(name))
)
BROKEN = tuple(name for name in RUNGS if load_rung(name).as_written())


def loaded(name: str) -> Rung:
    """The rung, if this GPU has what it needs."""
    rung, device = load_rung(name), device_query()
    if device is None or not rung.runs_on(device.arch):
        pytest.skip(f"{name} needs {rung.min_arch}")
    return rung


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_is_right_on_drawn_problems(name: str) -> None:
    rung = loaded(name)
    cases = operation_of(rung.operation).draw_problems(DRAWN, SEED, rung.supports)
    hold_right(run_jobs_on_gpu([(rung, one, None) for one in cases]), cases)


@pytest.mark.parametrize("name", RUNGS)
def test_every_value_of_every_knob_is_right(name: str) -> None:
    rung = loaded(name)
    cases = operation_of(rung.operation).draw_problems(2, SEED, rung.supports)
    repaired = [knobs for knobs in knob_choices(rung) if not rung.broken(knobs)]
    jobs = [(rung, case, knobs) for knobs in repaired for case in cases if fits(rung, case, knobs)]
    assert len({str(knobs) for _, _, knobs in jobs}) >= min(3, len(repaired))
    hold_right(run_jobs_on_gpu(jobs), [knobs for _, _, knobs in jobs])


@pytest.mark.parametrize("name", RUNGS)
def test_the_sanitizer_finds_nothing(name: str) -> None:
    rung = loaded(name)
    operation = operation_of(rung.operation)
    watched = operation.watched
    if rung.supports(watched) is not None:
        (watched,) = operation.draw_problems(1, SEED, rung.supports)
    for report in sanitized(rung, watched, None, *TOOLS):
        assert report.verdict == "clean", (report.tool, report.errors, report.reason)


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_as_written_is_flagged(name: str) -> None:
    rung = loaded(name)
    watched = operation_of(rung.operation).watched
    (report,) = sanitized(rung, watched, rung.as_written(), "memcheck")
    assert report.verdict == "errors", report.reason
    assert any(error.kind == "misaligned" for error in report.errors)
