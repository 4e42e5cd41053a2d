"""What is given on the command line, turned into values. Every failure here is a usage error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from .outcome import typed

if TYPE_CHECKING:
    from labtools.optimize.family import Family
    from labtools.problem import Baseline, Problem, Rung

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
HEADLINE_TEXT = "8,32,8,4096,128"
SMALL_TEXT = "2,8,2,300,128"
"""What is taken of decode where no workload is typed; each operation has its own two."""

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, nothing else.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show all details.")]
RungArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUNG|PATH.py",
        help="A shipped rung (r03 or r03_one_warp), or the .py file of another, whose Python and "
        "machine code then run as you.",
        show_default=False,
    ),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="B,Hq,Hkv,S,D|NAME:...|FILE.json",
        help="Sequences, query heads, KV heads, cached tokens, head dim; behind them, as wanted, "
        "/bf16, /paged16 or /paged64, /warm. Other operations name themselves: rows:8192,4096. "
        f"Default: {HEADLINE_TEXT}, or what the rung's operation takes for usual.",
        show_default=False,
    ),
]
KnobOption = Annotated[
    list[str] | None,
    typer.Option("--knob", "-k", metavar="NAME=VALUE", help="A compile-time choice; repeatable."),
]


class _Once(TyperCommand):
    """A command that refuses an option given twice, of which click would take the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for one in order:
            if one.param_type_name == "option" and not one.multiple and order.count(one) > 1:
                ctx.fail(f"{one.opts[0]} is given twice")
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """Commands with one epilog, ``of_each``; an option that is not repeatable may stand once."""

    def __init__(self, of_each: str, **more: Any) -> None:
        super().__init__(**more)
        self._of_each = of_each

    def command(self, name: str | None = None, **more: Any) -> Any:
        """As typer has it."""
        return super().command(name, cls=_Once, epilog=self._of_each, **more)


def read_workload(text: str) -> Problem:
    """The workload that was typed, of any operation."""
    from labtools.problem import parse_problem

    with typed():
        return parse_problem(text)


def choose_workload(
    text: str | None, target: Rung | Baseline | None = None, *, small: bool = False
) -> Problem:
    """The workload that was typed, or the one that the target's operation takes for usual, in the
    first type and layout that the target takes; where it takes none of the usual size, of its
    battery.

    Args:
        text: what was typed, or None.
        target: decides the operation; None is decode.
        small: the one that the CPU and the sanitizers can take.
    """
    from labtools.problem import DEFAULT_OPERATION, Rung, operation_of

    if text is not None:
        return read_workload(text)
    operation = operation_of(DEFAULT_OPERATION if target is None else target.operation)
    chosen: Problem = operation.small if small else operation.headline
    if not isinstance(target, Rung):
        return chosen
    with typed():
        found = [one for one in operation.kinds(chosen) if not target.supports(one)]
        if not found and small:
            others = operation.battery(chosen, target.supports)[1:]
            alike = [one for one in others if one.visits <= chosen.visits]
            plain = {"distribution": chosen.distribution, "seed": chosen.seed}
            found = [max(alike, key=lambda one: one.visits).replace(**plain)] if alike else []
        return found[0] if found else chosen


def read_rung(name: str) -> Rung:
    """The rung that was named, whose source can be read."""
    from labtools.problem import load_rung

    with typed():
        rung = load_rung(name)
        assert rung.source_text is not None  # a source that is no text is refused here
        return rung


def read_family(name: str) -> Family:
    """The kernel family that was named, whose source can be read."""
    from labtools.optimize.family import load_family

    with typed():
        family = load_family(name)
        assert family.rung.source_text is not None
        return family


def read_target(name: str) -> Rung | Baseline:
    """The rung or the baseline that was named; ``baseline:sdpa`` and ``sdpa`` are the same."""
    from labtools.problem import list_baselines

    wanted = name.removeprefix("baseline:")
    for baseline in list_baselines(None):
        if baseline.id == wanted:
            return baseline
    return read_rung(name)


def named_knobs(rung: Rung, chosen: Sequence[str] | None) -> dict[str, int]:
    """The knobs that were typed, with their values."""
    from labtools.problem import LabError

    values: dict[str, int] = {}
    with typed():
        for text in chosen or ():
            name, equals, value = text.partition("=")
            if not equals or not _WHOLE.fullmatch(value.strip()):
                raise LabError(
                    f"{text!r} is not a knob.",
                    "a knob is NAME=VALUE with a whole number, for example unroll=4",
                    f"{rung.id} has the knobs "
                    + (", ".join(knob.name for knob in rung.knobs) or "none"),
                )
            if (name := name.strip()) in values:
                why = f"{values[name]} and {value.strip()}: nobody knows which is meant"
                raise LabError(f"The knob {name} is given twice.", why, "the same with one of them")
            values[name] = int(value)
        rung.resolve_knobs(values)
    return values


def read_knobs(rung: Rung, chosen: Sequence[str] | None) -> dict[str, int]:
    """Every knob of the rung, with the values that were typed."""
    return rung.resolve_knobs(named_knobs(rung, chosen))


@dataclass(frozen=True)
class RungAsked:
    """What was typed of a rung: its name, a workload, and knobs."""

    name: str
    workload: str | None
    knobs: Sequence[str] | None

    def read(self, *, small: bool = False) -> tuple[Rung, Problem, dict[str, int]]:
        """The rung, a workload that it can run, as `choose_workload` has it, and every knob."""
        rung = read_rung(self.name)
        workload = choose_workload(self.workload, rung, small=small)
        knobs = read_knobs(rung, self.knobs)
        check_supported(rung, workload, knobs)
        return rung, workload, knobs


def check_supported(
    target: Rung | Baseline, workload: Problem, knobs: Mapping[str, int] | None = None
) -> None:
    """Refuse a workload that the target cannot run, before anything is compiled.

    Also calls a rung's functions once, so that a mistake in them is told as one.
    """
    from labtools.problem import KernelError, LabError, Rung

    with typed():
        if reason := target.supports(workload):
            raise LabError(f"{target.id} cannot run {workload}.", reason, "choose another workload")
    if isinstance(target, Rung):
        from labtools.predict import DEFAULT_GPU, load_gpu

        try:
            limits = load_gpu(DEFAULT_GPU).limits
            target.launches(workload, limits, knobs)
            target.defines(workload, limits, knobs)
            target.scheme(workload, knobs)
        except LabError as error:
            raise KernelError(error.what, error.why, error.still_works) from error
