"""The check of a kernel that a reader writes, stage by stage, with hints and the solution."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from labtools.measure import check_rung, run_on_cpu
from labtools.measure.case import CheckCase, checked_limits
from labtools.predict import DEFAULT_GPU, Gpu, forecast, load_gpu
from labtools.problem import LabError, Rung
from labtools.record.prediction import JournalError
from labtools.toolchain import compile_rung, kernel_hashes
from labtools.toolchain.errors import CompileError

from .exercises import Exercise, load_exercise
from .magic import PAGE, cell_rung
from .reader import reader_present
from .scores import CAPSTONE, Stage, keep_progress
from .tables import BOX, Shown, badge

ORDER_FAULTS = ("race", "barrier", "collective", "async_copy", "order_dependent", "hang")
"""Faults that depend on who comes first, not on how long a sequence is."""
MOST_TIMES = 1.5
"""The time of `CAPSTONE` by the forecast, at most, in times of r08's."""


def stages_of(exercise: Exercise, source: str) -> Iterator[Stage]:
    """The stages of a source, in order, up to the first that fails.

    It compiles; one row is right; any length, and every kind of value, is right; no order of the
    warps changes anything; its time on the default GPU by the forecast, as a ratio to the rung's,
    whose time a page may still ask for.
    """
    return _until_one_fails(_stages(exercise.rung_of(source), exercise))


def _until_one_fails(stages: Iterator[Stage]) -> Iterator[Stage]:
    for stage in stages:
        yield stage
        if not stage.ok:
            return


def _stages(rung: Rung, exercise: Exercise, most: float | None = None) -> Iterator[Stage]:
    """`stages_of` of a kernel that stands in the place of the exercise's rung, and may take
    ``most`` times as long."""
    problem = exercise.problem
    try:
        compile_rung(rung, problem, checked_limits())
        compiled = Stage("it compiles", True, "for an NVIDIA GPU and for your CPU")
        one = run_on_cpu(rung, exercise.least)
    except CompileError as error:
        yield Stage("it compiles", False, str(error))
        return
    yield compiled
    yield _stage("one row is right", [one], orders=False)
    report = check_rung(rung, problem, exercise.knobs, on="cpu", quick=True)
    count = f"right so far, in {sum(case.ok for case in report.cases)} of {report.planned} cases"
    lengths = _stage("any length is right", report.cases, orders=False, said=count)
    tried = "every order of the warps tried"
    races = _stage("no race", [one, *report.cases], orders=True, said=tried)
    if lengths.ok and races.ok and not report.ok:  # of all cases together, such as a bias
        lengths = Stage(lengths.name, False, report.summary.splitlines()[0])
    yield lengths
    yield races
    gpu, fast = load_gpu(DEFAULT_GPU), most is None
    try:
        ratio = _ratio_by_forecast(rung, exercise, gpu)
        said = (
            f"at {exercise.large} on an {gpu.title} {ratio:.2f} times as long as "
            f"{exercise.rung.id} of the guide"
        )
        if most is not None:
            fast, said = ratio <= most, f"{said}; {most:g} times is what is asked for"
    except LabError as error:  # it is right all the same
        said = f"there is no forecast of it: {error.what}"
    yield Stage("how fast", fast, said, "forecast")


def _ratio_by_forecast(rung: Rung, exercise: Exercise, gpu: Gpu) -> float:
    """How many times as long a kernel takes as the exercise's rung; the same code as long."""
    both, large = (rung, exercise.rung), exercise.large
    if rung.launches(large, gpu.limits) == exercise.rung.launches(large, gpu.limits):
        codes = {kernel_hashes(one, large, gpu.limits).sass_hash for one in both}
        if len(codes) == 1 and None not in codes:
            return 1.0
    mine, ours = (forecast(one, large, gpu) for one in both)
    return mine.time_us / ours.time_us


def _stage(
    name: str, cases: Sequence[CheckCase], orders: bool, said: str = "compared with float64"
) -> Stage:
    """A stage that fails by faults of one of the two kinds, by any that ended a run before there
    were numbers, and by wrong numbers."""
    for case in cases:
        ended = case.comparison is None
        wrong = [str(one) for one in case.faults if ended or (one.kind in ORDER_FAULTS) is orders]
        if not wrong and not orders and case.comparison and not case.comparison.ok:
            wrong = [str(case.comparison)]
        if wrong:
            return Stage(name, False, f"{case.workload}: {wrong[0]}")
    return Stage(name, True, said)


def try_kernel(name: str) -> None:
    """Show the stages of the page's ``%%cuda`` cell of that name as they are played, up to the
    first that fails; below, folded, hints and the solution."""
    from IPython.display import display

    exercise, source = load_exercise(name), PAGE.kernel(name).source
    if source.strip() == exercise.start.strip():
        said = "Nothing is written yet."
        display(Shown(f'<div style="{BOX}">{said}</div>', said))
    else:
        _play(name, stages_of(exercise, source))
    display(show_help(exercise, editor=True))


def try_capstone(launch: Callable[..., Any]) -> None:
    """`try_kernel` for the page's ``%%cuda`` cell `CAPSTONE` with a launch of the reader's, both in
    the place of r08's, and with its hints."""
    from IPython.display import display

    _play(CAPSTONE, capstone_stages(launch))
    display(show_help(load_exercise("my_r08")))


def capstone_stages(launch: Callable[..., Any]) -> Iterator[Stage]:
    """The stages of `try_capstone`, of which the last fails beyond `MOST_TIMES`."""
    exercise = dataclasses.replace(load_exercise("my_r08"), knobs={})
    rung = cell_rung(CAPSTONE, exercise.rung, launch)
    return _until_one_fails(_stages(rung, exercise, MOST_TIMES))


def _play(name: str, stages: Iterator[Stage]) -> None:
    """Show stages as they are played, and keep in a reader's journal how far they came."""
    from IPython.display import display

    played: list[Stage] = []
    shown = display(show_stages(played), display_id=True)
    for stage in stages:
        played.append(stage)
        shown.update(show_stages(played))
    if reader_present():
        with suppress(JournalError):
            keep_progress(name, played)


def show_stages(stages: Sequence[Stage]) -> Shown:
    """A line for each stage."""
    rows, text = [], []
    for stage in stages:
        mark = "\u2713" if stage.ok else "\u2717"
        said = "<br>".join(html.escape(line) for line in stage.said.splitlines())
        rows.append(
            f"<div><b>{mark} {html.escape(stage.name)}</b>: {said} {badge(stage.word)}</div>"
        )
        text.append(f"{mark} {stage.name}: {stage.said} [{stage.word}]")
    return Shown(f'<div class="lt-stages" style="{BOX}">{"".join(rows)}</div>', "\n".join(text))


def show_help(exercise: Exercise, editor: bool = False) -> Shown:
    """Hints that open one by one, and the solution, all folded; above them the place where the site
    puts an editor."""
    start = html.escape(exercise.start, quote=True).replace("\n", "&#10;")
    place = f'<div class="lt-write" data-write="{exercise.name}" data-start="{start}"></div>'
    parts = [place] if editor else []
    parts += [
        f'<details class="lt-hint"><summary>Hint {number}</summary>'
        f"<p>{html.escape(hint)}</p></details>"
        for number, hint in enumerate(exercise.hints, 1)
    ]
    parts.append(
        '<details class="lt-hint lt-solution"><summary>The solution</summary>'
        f'<pre tabindex="0">{html.escape(exercise.body)}</pre></details>'
    )
    return Shown("".join(parts), "")
