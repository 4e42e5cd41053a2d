"""Kernels that are wrong in one way each: the check on the GPU and the sanitizer reject them."""

from __future__ import annotations

import pytest
from knob_cases import sanitized

from labtools.measure import check_rung
from labtools.measure.gpu.runner import run_on_gpu
from labtools.problem import Workload
from tests.wrong_kernels import WRONG_KERNELS, make_wrong

SHAPE = Workload(2, 8, 2, 65, 128)
SURE = [name for name, wrong in WRONG_KERNELS.items() if wrong.sure_on_gpu]
WATCHED = [name for name, wrong in WRONG_KERNELS.items() if wrong.sanitizer]


@pytest.mark.parametrize("name", SURE)
def test_the_check_rejects(name: str) -> None:
    rung = make_wrong(name)
    if "hang" in WRONG_KERNELS[name].caught_as:
        run = run_on_gpu(rung, SHAPE, time_limit_s=3.0)
        assert not run.ok
        assert run.faults[0].kind == "hang"
        return
    report = check_rung(rung, SHAPE, on="gpu")
    assert not report.ok
    assert report.cases
    assert any(not case.ok for case in report.cases)


@pytest.mark.parametrize("name", WATCHED)
def test_the_sanitizer_rejects(name: str) -> None:
    tool = WRONG_KERNELS[name].sanitizer
    assert tool is not None
    (report,) = sanitized(make_wrong(name), SHAPE, None, tool, time_limit_s=90)
    # A deadlock that the tool sits in until the limit is no verdict of the tool, and not clean.
    assert report.verdict != "clean"
    if report.verdict == "errors":
        assert report.error_count > 0
