"""The runner as a browser has it says what the native one says, of wrong kernels and right ones."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from devices import some_of

from labtools.measure.cpu import run_on_cpu
from labtools.measure.cpu.build import build_kernels_for
from labtools.measure.cpu.module import ModuleTarget
from labtools.measure.cpu.runner import CpuRun
from labtools.notebook.exercises import exercise_files, load_exercise
from labtools.problem import Problem, Rung, operation_of
from labtools.toolchain import CompileError
from tests.wrong_kernels import mistaken
from tools.site_assets import COMPILER, fetch_compiler, find_node

TABLES = Path(__file__).parents[1] / "wrong_kernels"
KERNELS = [
    kernel
    for path in sorted(TABLES.glob("*.toml"))
    for kernel in tomllib.loads(path.read_text("utf-8"))["kernel"]
]


@pytest.fixture(scope="module")
def module() -> Iterator[ModuleTarget]:
    made = ModuleTarget(fetch_compiler(COMPILER), find_node())
    yield made
    made.close()


def run_both(
    module: ModuleTarget, rung: Rung, problem: Problem, knobs: Any = None, workers: Any = None
) -> tuple[CpuRun, CpuRun]:
    """The run of a program, and of a module."""
    how: dict[str, Any] = {"knobs": knobs, "time_limit_s": 2.0, "workers": workers}
    native = run_on_cpu(rung, problem, **how)
    with build_kernels_for(module):
        return native, run_on_cpu(rung, problem, **how)


def said_of(run: CpuRun) -> tuple[Any, ...]:
    """What must be the same: the verdict, and of the first fault its kind and its lines."""
    faults = [(one.kind, one.line) for one in run.faults[:1]]
    return run.ok, faults


DIFFERENT = {
    # g++ calls a function that clang makes a part of its caller, whose line is told then.
    "p03: no wait": "the line of the call, in place of the one within",
    # Of one struct clang copies 16 bytes where it is used, and g++ four times 4 where it is read.
    "my_tile: rows behind the end are read": "the line of the use, in place of the one of the read",
}
"""What the two tell otherwise, and how."""


def each(name: str, mistake: str, *values: Any) -> Any:
    """Parameters of a test, of which it must fail where the two are known to differ."""
    said = f"{name}: {mistake}"
    known = [pytest.mark.xfail(reason=DIFFERENT[said], strict=True)] if said in DIFFERENT else []
    return pytest.param(*values, id=said, marks=known)


WRONG = [
    each(name, mistake, name, mistake)
    for name in sorted(exercise_files())
    for mistake in load_exercise(name).mistakes
]


@pytest.mark.parametrize(("name", "mistake"), some_of(WRONG, 5))
def test_a_mistake_is_told_alike(module: ModuleTarget, name: str, mistake: str) -> None:
    exercise = load_exercise(name)
    made = exercise.mistakes[mistake]
    rung = exercise.rung_of(exercise.solution.replace(made.old, made.new))
    for problem in (exercise.least, exercise.problem):
        knobs = exercise.knobs if problem == exercise.problem else None
        native, browser = run_both(module, rung, problem, knobs)
        assert said_of(browser) == said_of(native), (str(native), str(browser))


@pytest.mark.parametrize("name", some_of(sorted(exercise_files()), 2))
def test_a_solution_is_right_in_both(module: ModuleTarget, name: str) -> None:
    exercise = load_exercise(name)
    battery = operation_of(exercise.problem).battery(exercise.problem, exercise.rung.supports)
    for problem in battery[:3]:
        for run in run_both(module, exercise.rung_of(exercise.solution), problem, exercise.knobs):
            assert run.ok, (str(run), run.faults)


def run_mistaken(
    module: ModuleTarget, kernel: dict[str, Any], texts: list[str]
) -> tuple[CpuRun, CpuRun]:
    """Of a kernel of a table with one of its mistakes, the run of a program, and of a module.

    One worker has the blocks in one order, so that of several faults the same is first.
    """
    return run_both(module, *mistaken(kernel, texts), kernel.get("knobs"), workers=1)


TABLE = [
    each(one["rung"].split("/")[-1], name, one, texts)
    for one in KERNELS
    for name, texts in one["mistakes"].items()
]


@pytest.mark.parametrize(("kernel", "texts"), some_of(TABLE, 2))
def test_a_mistake_of_the_table_is_told_alike(
    module: ModuleTarget, kernel: dict[str, Any], texts: list[str]
) -> None:
    native, browser = run_mistaken(module, kernel, texts)
    assert said_of(browser) == said_of(native), (str(native), str(browser))
    assert not native.ok or "battery" in kernel


TOLD = [
    pytest.param(one, one["mistakes"][name], told, id=name)
    for one in KERNELS
    for name, told in one.get("told", {}).items()
]


@pytest.mark.parametrize(("kernel", "texts", "told"), some_of(TOLD, 2))
def test_a_common_mistake_is_told_with_its_line(
    module: ModuleTarget, kernel: dict[str, Any], texts: list[str], told: list[str]
) -> None:
    for run in run_mistaken(module, kernel, texts):
        first = [f"{one.kind}: {one.source_line}" for one in run.faults[:1]]
        said = first[0] if first else str(run.comparison)
        assert all(part in said for part in told), str(run)


def test_an_endless_loop_a_division_by_zero_and_a_wild_address_are_told(
    module: ModuleTarget,
) -> None:
    rung = load_exercise("my_row_sum").rung
    problem = load_exercise("my_row_sum").problem
    first = rung.source_text.index("{", rung.source_text.index("__global__")) + 1
    for line, kind in (
        ("for (volatile int i = 0;; ++i);", "hang"),
        ("volatile int z = 0; z = 100 / z;", "crash"),
        ("int* p = nullptr; *(volatile int*)p = 1;", "out_of_bounds"),
    ):
        text = f"{rung.source_text[:first]} {line}{rung.source_text[first:]}"
        native, browser = run_both(module, rung.with_source(text), problem)
        assert said_of(browser)[1][0][0] == said_of(native)[1][0][0] == kind


def test_a_function_that_waits_and_is_no_part_of_its_kernel_is_refused(
    module: ModuleTarget,
) -> None:
    rung = load_exercise("my_row_sum").rung
    waits = "__device__ void wait(int n) { __syncthreads(); if (n) wait(n - 1); }\n"
    first = rung.source_text.index("{", rung.source_text.index("__global__")) + 1
    at = rung.source_text.rindex("\n", 0, rung.source_text.index("__global__")) + 1
    text = rung.source_text[:at] + waits + rung.source_text[at:first]
    text += " wait(gridDim.x);" + rung.source_text[first:]
    with build_kernels_for(module), pytest.raises(CompileError, match="recursion"):
        run_on_cpu(rung.with_source(text), load_exercise("my_row_sum").problem)
