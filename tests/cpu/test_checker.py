"""The checker rejects every wrong kernel, for the right reason, and accepts what it came from."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import psutil
import pytest
from devices import some_of

from labtools.cli.outcome import plain
from labtools.measure import cpu
from labtools.measure.case import CheckCase
from labtools.measure.check import DRAWN, CheckReport, check_rung
from labtools.predict import DEFAULT_GPU, load_gpu
from labtools.problem import Comparison, LabError, Workload, battery, load_rung, operation_of
from labtools.toolchain import CompileError
from tests.wrong_kernels import NUMBERS, WRONG_KERNELS, edit_source, make_wrong

SMALL = Workload(2, 8, 2, 48, 128)


def fault_kinds(report: CheckReport) -> set[str]:
    return {fault.kind for fault in report.faults}


@pytest.fixture(autouse=True)
def short_hangs(monkeypatch):
    """Nobody waits for the endless loop longer than needed."""
    from labtools.measure.cpu import runner

    monkeypatch.setattr(runner.run_on_cpu, "__kwdefaults__",
                        {**runner.run_on_cpu.__kwdefaults__, "time_limit_s": 2.0})  # fmt: skip


Event = tuple[str, int, int]


@pytest.fixture(scope="module")
def quick() -> tuple[CheckReport, list[Event]]:
    """A quick check of a right kernel, and the progress that it told."""
    events: list[Event] = []

    def note(*event: Any) -> None:
        events.append(event)

    return check_rung(load_rung("r03"), SMALL, quick=True, progress=note), events


@pytest.mark.parametrize("head_dim", some_of([64, 128], 1))
@pytest.mark.parametrize("name", WRONG_KERNELS)
def test_wrong_kernel_is_rejected_for_the_right_reason(name, head_dim):
    wrong = WRONG_KERNELS[name]
    report = check_rung(make_wrong(name), SMALL.replace(head_dim=head_dim))
    assert not report.ok
    assert wrong.says in report.summary, report.summary
    kinds = fault_kinds(report)
    if wrong.caught_as == (NUMBERS,):
        assert not kinds, report.summary
        assert any(case.comparison and not case.comparison.ok for case in report.cases)
    else:
        assert kinds & set(wrong.caught_as), report.summary
        assert kinds <= {*wrong.caught_as, "uninitialised", "order_dependent"}, report.summary
        assert all(fault.file and fault.line for fault in report.faults)
    if "hang" in kinds:  # told once
        assert len(report.cases) == 1


@pytest.mark.parametrize(
    "rung", some_of(sorted({wrong.parent for wrong in WRONG_KERNELS.values()}), 1)
)
def test_what_they_were_made_from_is_right(rung):
    right = load_rung(rung)
    report = check_rung(right, SMALL, right.resolve_knobs())
    assert report.ok, report.summary
    assert report.cases[0].workload.replace(seed=0) == SMALL
    assert len(report.cases) == report.planned == len(battery(SMALL, right.supports)) + DRAWN


def test_an_edit_that_no_longer_applies_is_an_error():
    for text, why in (("not in the source", "0 times"), ("score", "not once")):
        wrong = dataclasses.replace(WRONG_KERNELS["no_barrier"], edits=((text, ""),))
        with pytest.raises(ValueError, match=why):
            edit_source(wrong)


def test_a_case_is_drawn_twice(monkeypatch):
    seen = []
    true_run = cpu.run_on_cpu

    def listen(rung, workload, *args, **kw):
        seen.append(workload)
        return true_run(rung, workload, *args, **kw)

    monkeypatch.setattr(cpu, "run_on_cpu", listen)
    check_rung(load_rung("r03"), SMALL, quick=True)
    seeds = [workload.seed for workload in seen if workload.replace(seed=0) == SMALL]
    assert seeds == [0, SMALL.second_draw().seed]


def test_check_stops_when_enough_is_wrong():
    report = check_rung(make_wrong("does_nothing"), SMALL)
    assert 1 <= len(report.cases) < report.planned
    assert "more were not run" in report.summary


def test_a_check_on_the_cpu_counts_cases_and_says_what_it_leaves_open(quick):
    report, events = quick
    assert events[-1][1:] == (report.planned, report.planned)
    open_ones = "; ".join(report.not_checked)
    for word in ("2^31 elements", "thread's own array"):
        assert word in open_ones
    assert open_ones in report.summary


def count_builds(monkeypatch) -> list[str]:
    """The workloads for which a check compiles ahead of their turn."""
    built: list[str] = []
    build = cpu.build_for_cpu

    def note(rung, workload, knobs=None, limits=None):
        built.append(str(workload))
        return build(rung, workload, knobs, limits)

    monkeypatch.setattr(cpu, "build_for_cpu", note)
    return built


def test_a_right_kernel_is_compiled_ahead_of_its_later_cases(monkeypatch):
    built = count_builds(monkeypatch)
    rung, limits = load_rung("r09"), load_gpu(DEFAULT_GPU).limits
    shared = SMALL.replace(num_qo_heads=2, num_kv_heads=1)
    report = check_rung(rung, shared, quick=True)
    assert report.ok
    codes: dict[tuple[str, ...], str] = {}
    for case in report.cases[1:]:
        codes.setdefault(tuple(rung.defines(case.workload, limits).values()), str(case.workload))
    assert len(codes) < len(report.cases) - 1
    # The first one too, beside the compiler of the GPU; of the others each code once.
    assert built[0] == str(shared)
    assert sorted(built[1:]) == sorted(codes.values())


def test_a_kernel_wrong_from_the_first_case_on_is_compiled_for_no_other(monkeypatch):
    built = count_builds(monkeypatch)
    assert not check_rung(make_wrong("wrong_scale"), SMALL, quick=True).ok
    assert built == [str(SMALL)]


def define_six(monkeypatch, rung, battery) -> None:
    """These cases make up the battery, and ``SIX`` is defined for those with six heads."""
    true_defines = type(rung).defines

    def defines(self, workload, *rest):
        six = {"SIX": "1"} if workload.num_qo_heads == 6 else {}
        return {**true_defines(self, workload, *rest), **six}

    monkeypatch.setattr(type(operation_of(SMALL)), "battery", lambda *_: battery)
    monkeypatch.setattr(type(rung), "defines", defines)


def test_what_does_not_compile_for_a_later_case_is_told(monkeypatch):
    rung = load_rung("r03")
    rung = rung.with_source(rung.source_text + "\n#ifdef SIX\n#error not for six heads\n#endif\n")
    define_six(monkeypatch, rung, [SMALL, SMALL.replace(num_qo_heads=6)])
    with pytest.raises(CompileError, match="not for six heads"):
        check_rung(rung, SMALL)


def test_later_cases_side_by_side_end_with_the_first_that_hangs(monkeypatch):
    right, endless = load_rung("r03"), make_wrong("endless_loop")
    rung = right.with_source(
        f"#ifdef SIX\n{endless.source_text}\n#else\n{right.source_text}\n#endif\n"
    )
    six = SMALL.replace(num_qo_heads=6)
    battery = [SMALL, SMALL.replace(kv_len=70), six, six.replace(seed=7), SMALL.replace(kv_len=3)]
    define_six(monkeypatch, rung, battery)
    before = set(psutil.Process().children(recursive=True))
    report = check_rung(rung, SMALL)
    assert [case.workload for case in report.cases] == battery[:3]
    assert [case.ok for case in report.cases] == [True, True, False]
    assert fault_kinds(report) == {"hang"}
    assert set(psutil.Process().children(recursive=True)) <= before


def test_report_goes_through_json(quick):
    good = plain(quick[0])
    bad = plain(check_rung(make_wrong("misaligned_load"), SMALL, quick=True))
    for report in (good, bad):
        again = json.loads(json.dumps(report, allow_nan=False))
        assert again["ok"] == report["ok"]
        assert len(again["cases"]) == len(report["cases"])
    assert good["ok"] and not bad["ok"]
    fault = bad["cases"][0]["faults"][0]
    assert fault["kind"] == "misaligned" and fault["line"] > 0
    comparison = Comparison(False, np.inf, (0, 0), 1e-3, ["NaN"])
    report = CheckReport("r", "cpu", False, [CheckCase(SMALL, False, comparison)], 1)
    assert plain(report)["worst_error"] is None
    json.dumps(plain(report), allow_nan=False)


def test_large_workload_runs_every_block_and_samples_the_orders():
    large = Workload(1, 64, 8, 3200, 64)
    report = check_rung(load_rung("r03"), large, quick=True)
    assert report.ok, report.summary
    wrong = load_rung("r03")
    # Only the last head is wrong: a sample of the blocks alone could miss it.
    text = wrong.source_text.replace(
        "1.f / weight_sum);", "(head == 62 && kv_len == 3200 ? 2.f : 1.f) / weight_sum);"
    )
    assert not check_rung(wrong.with_source(text), large, quick=True).ok


def test_unsupported_workload_and_place_are_refused():
    with pytest.raises(LabError, match="cannot run"):
        check_rung(load_rung("r03"), SMALL.replace(head_dim=96))
    with pytest.raises(LabError, match="tpu"):
        check_rung(load_rung("r03"), SMALL, on="tpu")
