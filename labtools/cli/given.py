"""What is given on the command line, turned into values. Every failure here is a usage error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .outcome import WrongKernel, typed, wrong_kernel

if TYPE_CHECKING:
    from labtools.problem import Baseline, Rung, Workload

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, nothing else.")]
RungArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUNG|PATH.py",
        help="A shipped rung (r03 or r03_one_warp), or the .py file of your own.",
        show_default=False,
    ),
]
WorkloadOption = Annotated[
    str,
    typer.Option(
        "--workload",
        "-w",
        metavar="B,Hq,Hkv,S,D|FILE.json",
        help="Sequences, query heads, KV heads, cached tokens, head dim; behind them, as wanted, "
        "/bf16, /paged16 or /paged64, /warm.",
    ),
]
KnobOption = Annotated[
    list[str] | None,
    typer.Option("--knob", "-k", metavar="NAME=VALUE", help="A compile-time choice; repeatable."),
]

HEADLINE_TEXT = "8,32,8,4096,128"
SMALL_TEXT = "2,8,2,300,128"
"""Small enough for the CPU runner and for racecheck; ragged ends show at 300."""


def read_workload(text: str) -> Workload:
    """The workload that was typed."""
    from labtools.problem import Workload

    with typed():
        return Workload.parse(text)


def read_rung(name: str) -> Rung:
    """The rung that was named."""
    from labtools.problem import load_rung

    with typed():
        return load_rung(name)


def read_target(name: str) -> Rung | Baseline:
    """The rung or the baseline that was named; ``baseline:sdpa`` and ``sdpa`` are the same."""
    from labtools.problem import list_baselines

    wanted = name.removeprefix("baseline:")
    for baseline in list_baselines():
        if baseline.id == wanted:
            return baseline
    return read_rung(name)


def read_knobs(rung: Rung, chosen: Sequence[str] | None) -> dict[str, int]:
    """Every knob of the rung, with the values that were typed."""
    from labtools.problem import LabError

    values: dict[str, int] = {}
    with typed():
        for text in chosen or ():
            name, equals, value = text.partition("=")
            if not equals or not value.strip().lstrip("-").isdigit():
                raise LabError(
                    f"{text!r} is not a knob.",
                    "a knob is NAME=VALUE with a whole number, for example unroll=4",
                    f"{rung.id} has the knobs "
                    + (", ".join(knob.name for knob in rung.knobs) or "none"),
                )
            values[name.strip()] = int(value)
        return rung.resolve_knobs(values)


def check_supported(
    target: Rung | Baseline, workload: Workload, knobs: Mapping[str, int] | None = None
) -> None:
    """Refuse a workload that the target cannot run, before anything is compiled.

    Also calls a rung's launch function once, so that a mistake in it is told as one.
    """
    from labtools.problem import LabError, Rung

    with typed():
        if reason := _call_own(target, target.supports, workload):
            raise LabError(f"{target.id} cannot run {workload}.", reason, "choose another workload")
    if isinstance(target, Rung):
        try:
            _call_own(target, target.launches, workload, knobs)
        except LabError as error:
            raise WrongKernel(error) from error


def _call_own(target: Rung | Baseline, function: Callable[..., Any], *arguments: Any) -> Any:
    from labtools.problem import LabError

    try:
        return function(*arguments)
    except LabError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f", {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
        raise wrong_kernel(
            f"The Python of {target.id} failed on {arguments[0]}.",
            f"{type(error).__name__}: {error}{where}",
            "correct the rung's .py file; every other rung is unaffected",
        ) from error
