"""Kernels that a reader writes: the solution is right, the start is not, mistakes are told."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from labtools.measure import check_rung, run_on_cpu
from labtools.measure.case import Fault, checked_limits
from labtools.notebook import writing
from labtools.notebook.exercises import Exercise, exercise_files, load_exercise
from labtools.notebook.magic import run_cuda_cell
from labtools.notebook.scores import CAPSTONE
from labtools.notebook.writing import Stage, capstone_stages, show_help, stages_of
from labtools.problem import load_rung
from labtools.toolchain import CompileError, compile_rung
from tools.toc import toc_parts
from tools.write_in_page import checked_kernel

ROOT = Path(__file__).resolve().parents[2]

NAMES = sorted(exercise_files())
MISTAKES = [(name, mistake) for name in NAMES for mistake in load_exercise(name).mistakes]


def play(exercise: Exercise, source: str) -> list[Stage]:
    """The stages up to the first that fails."""
    return list(stages_of(exercise, source))


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_is_whole(name: str) -> None:
    exercise = load_exercise(name)
    assert len(exercise.hints) == 3 and len(exercise.mistakes) >= 3
    code = [line.strip() for line in exercise.body.splitlines()]
    code = [line for line in code if len(line) > 12 and not line.startswith("//")]
    assert len(code) >= 5
    for hint in exercise.hints:
        assert not any(line in hint for line in code), hint
    assert not any(line in exercise.start for line in code if exercise.body.count(line) == 1)
    shown = show_help(exercise).html
    assert shown.count("<details") == 4


def checked(exercise: Exercise, source: str) -> list[Stage]:
    """`play` of what the site shows beforehand, whose making and this test share one check."""
    stages = checked_kernel(exercise.name, source)["stages"]
    return [Stage(one["name"], one["ok"], one["said"]) for one in stages]


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_is_right_and_the_start_is_not(name: str) -> None:
    exercise = load_exercise(name)
    played = checked(exercise, exercise.solution)
    assert [stage.ok for stage in played] == [True] * 5, played[-1]
    *before, last = play(exercise, exercise.start)
    assert not last.ok and all(stage.ok for stage in before)


@pytest.mark.parametrize(("name", "mistake"), MISTAKES)
def test_a_typical_mistake_is_told(name: str, mistake: str) -> None:
    exercise = load_exercise(name)
    made = exercise.mistakes[mistake]
    assert exercise.body.count(made.old) == 1
    wrong = exercise.solution.replace(made.old, made.new)
    last = checked(exercise, wrong)[-1]
    assert not last.ok and last.name == made.stage, last
    assert made.told in last.said and made.at in last.said
    assert exercise.name in last.said or not made.at


PARTS = [name for name in NAMES if any(load_exercise(name).hidden)]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_compiled_with_the_rest_and_its_lines_are_the_cell_s(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exercise = load_exercise(name)
    run_cuda_cell(name, exercise.start)
    told = capsys.readouterr().out
    for launch in exercise.rung.launches(exercise.problem, checked_limits()):
        assert f"{launch.entry}: " in told
    number = exercise.start[: exercise.start.index(exercise.steps)].count("\n") + 1
    wrong = exercise.rung_of(exercise.start.replace(exercise.steps, "  no_such_word;\n"))
    for compile_it in (
        lambda: compile_rung(wrong, exercise.problem, checked_limits()),
        lambda: run_on_cpu(wrong, exercise.problem),
    ):
        with pytest.raises(CompileError) as refused:
            compile_it()
        assert refused.value.file == f"{name} (cell)" and refused.value.line == number
        assert "no_such_word;" in refused.value.excerpt
    unclosed = exercise.start.replace(exercise.steps, "  if (threadIdx.x) {\n")
    last = play(exercise, unclosed)[-1]
    told = [f"what stands below {name} (cell)"]
    if "template" in exercise.start and "closing brace" in last.said:
        told.append(f"{name} (cell) does not compile")
    assert not last.ok and last.said.startswith(tuple(told))


def test_no_stage_passes_what_a_run_or_the_verdict_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = load_exercise("my_r03")

    def biased(*given: Any, **how: Any) -> Any:
        return dataclasses.replace(check_rung(*given, **how), ok=False)

    def racing(*given: Any, **how: Any) -> Any:
        return dataclasses.replace(run_on_cpu(*given, **how), faults=[Fault("race", "two at once")])

    with monkeypatch.context() as changed:
        changed.setattr(writing, "check_rung", biased)
        assert play(exercise, exercise.solution)[-1].name == "any length is right"
    monkeypatch.setattr(writing, "run_on_cpu", racing)
    last = play(exercise, exercise.solution)[-1]
    assert (last.name, last.ok) == ("no race", False) and "two at once" in last.said


def test_every_part_of_the_walk_has_kernels_and_parts_of_them_to_write() -> None:
    walk = list(itertools.takewhile(lambda part: part[0] != "Labs", toc_parts()))
    asked = {
        title: re.findall(
            r'^try_kernel\("(\w+)"\)',
            "\n".join((ROOT / f"{page}.md").read_text() for page in pages),
            re.MULTILINE,
        )
        for title, pages in walk
    }
    assert sorted(itertools.chain(*asked.values())) == NAMES
    assert {title: len(names) for title, names in asked.items() if title and len(names) < 4} == {}
    above = [load_exercise(name).given[0] for name in NAMES]
    whole = [text for text in above if "__global__" in text and text.endswith(") {\n")]
    assert len(whole) >= 12 and len(above) - len(whole) >= 18


@pytest.mark.parametrize(("rung", "ok"), [("r08", True), ("r02", False)])
def test_from_an_empty_file_what_is_right_must_be_fast_too(rung: str, ok: bool) -> None:
    shipped = load_rung(rung)
    run_cuda_cell(CAPSTONE, shipped.source_text)
    played = list(capstone_stages(lambda problem, limits, knobs: shipped.launches(problem, limits)))
    assert [stage.ok for stage in played] == [True] * 4 + [ok], played
    assert "1.5 times is what is asked for" in played[-1].said
