"""The summary of a loop as tables and as text: the result, the migration of the bottleneck, each
round, the classes, the frontier. `page` shows the same as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labtools.problem.rung import say_knobs
from labtools.problem.text import how_many

from . import attribution
from .gaps import say_gap
from .method import METHOD_AXES
from .state import STEPS, LoopState, RoundKept, methods_by_class, say_wrong_picks
from .telling import NOT_KNOWN, RoundTold, say_us, tell_rounds

MOST_FRONTIER_ROWS = 20  # of the frontier, fastest first; the others are in ``state.json``


@dataclass(frozen=True)
class SummaryTable:
    """A part of the summary."""

    title: str  # of it
    columns: tuple[str, ...]  # names of them
    rows: tuple[tuple[str, ...], ...]  # cells
    note: str = ""  # said below it; also in the place of no rows


def summarise(state: LoopState) -> tuple[SummaryTable, ...]:
    """The parts of a loop's summary."""
    pairs = _pairs(state)
    return (
        _result(state),
        _migration(state),
        _rounds(state),
        _attributions(state),
        *([pairs] if pairs.rows else []),
        _classes(state),
        _frontier(state),
    )


def summary_text(state: LoopState) -> str:
    """The summary as Markdown."""
    parts = [f"# {title_of(state)}", *map(_table_text, summarise(state))]
    return "\n\n".join(parts) + "\n"


def best_so_far(state: LoopState) -> tuple[float | None, ...]:
    """The fastest time after each run, microseconds; None until one was timed."""
    best: float | None = None
    found = []
    for run in state.timed:
        if run.time_us is not None and (best is None or run.time_us < best):
            best = run.time_us
        found.append(best)
    return tuple(found)


def title_of(state: LoopState) -> str:
    """The family's kernel, the workload and the GPU."""
    return f"{state.kernel} for {state.workload} on {state.gpu}"


def _result(state: LoopState) -> SummaryTable:
    knobs = state.knobs.get(state.point, {})
    forecast = state.forecast_hits
    rows = (
        ("champion", state.point),
        ("its knobs", say_knobs(knobs) or NOT_KNOWN),
        ("its time, us", say_us(state.time_us)),
        ("times are", state.on),
        ("SOL score", str(state.sol or NOT_KNOWN)),
        *([("forecast", str(forecast))] if forecast is not None else []),
        ("rounds", str(state.rounds)),
        ("runs", str(state.runs)),
        ("seed", str(state.seed)),
        ("rule of apportionment", state.rule),
        ("stopped", state.stopped or _say_open(state)),
    )
    note = "".join(f"In {one}. " for one in state.say_stopped()).strip()
    return SummaryTable("Result", ("what", "value"), rows, note)


def _say_open(state: LoopState) -> str:
    """Where a loop stands that may go on."""
    following = state.next_steps[0]
    if following != STEPS[0] or not state.rounds:
        return f"no; {following} comes next"
    done = f"{how_many(state.rounds, 'round')} and {how_many(state.runs, 'run')}"
    return f"a run's limit of rounds or runs ends it after {done}; another run goes on"


def _migration(state: LoopState) -> SummaryTable:
    rows = []
    for entry in state.roofline_history:
        gaps, budget = entry.gaps, entry.budget
        slots = "/".join(str(budget.of(axis)) for axis in METHOD_AXES) if budget else ""
        bound = "near the peak" if gaps.near_peak else gaps.bound or "unclear"
        named = (say_gap(gaps.of(axis)) for axis in METHOD_AXES)
        rows.append((str(entry.round), *named, bound, slots or NOT_KNOWN, gaps.origin))
    columns = ("round", *(f"{axis} gap" for axis in METHOD_AXES), "bound", "budget", "from")
    note = f"The budget is {'/'.join(METHOD_AXES)}." if rows else "No round has begun."
    return SummaryTable("Migration of the bottleneck", columns, tuple(rows), note)


def _rounds(state: LoopState) -> SummaryTable:
    rows = tuple(tuple(told.row.values()) for told in tell_rounds(state))
    return SummaryTable("Rounds", tuple(RoundTold(RoundKept(0), ()).row), rows)


def _attributions(state: LoopState) -> SummaryTable:
    rows = []
    for kept, one in attributed(state):
        class_ = (kept.classes or {}).get(one.method, NOT_KNOWN)
        checked = {
            found.method: "; ".join([str(found), *found.switched])
            for found in kept.sass_check or ()
        }
        rows.append(
            (
                str(kept.round),
                one.method,
                *attribution.say_effect(one),
                f"{one.threshold:.1%}",
                checked.get(one.method, NOT_KNOWN),
                class_,
            )
        )
    columns = (
        "round",
        "method",
        "without it, us",
        "relative",
        "95 % interval",
        "threshold",
        "in the machine code",
        "class",
    )
    note = (
        "Each is the time without one method less the champion's. They are not summed: methods "
        "that only work together each show the whole effect."
    )
    said = dict.fromkeys(kept.aa.model for kept in state.history if kept.aa and kept.aa.model)
    note += "".join(f" Times are forecasts: {text}." for text in said)
    for kept in state.history:
        note += "".join(
            f" Round {kept.round}, {text}." for text in attribution.say_untimed(kept.untimed)
        )
    return SummaryTable("Attribution", columns, tuple(rows), note)


def _pairs(state: LoopState) -> SummaryTable:
    rows = tuple(
        (str(kept.round), *(cell or NOT_KNOWN for cell in row))
        for kept in state.history
        for row in attribution.say_pairs(kept.pairs, kept.interactions)
    )
    note = "Two methods out at once. They interact where that is not the product of each alone."
    return SummaryTable("Pairs", ("round", *attribution.PAIR_COLUMNS), rows, note)


def attributed(state: LoopState) -> Iterator[tuple[RoundKept, attribution.Attribution]]:
    """Every attribution with its round, oldest first."""
    for kept in state.history:
        for one in kept.attribution or ():
            yield kept, one


def _classes(state: LoopState) -> SummaryTable:
    rows = [
        (name.replace("_", " "), ", ".join(methods) or "none")
        for name, methods in methods_by_class(state)
    ]
    if wrong := "; ".join(say_wrong_picks(state)):
        rows.append(("no right branch", wrong))
    return SummaryTable("Classes", ("class", "methods"), tuple(rows))


def _frontier(state: LoopState) -> SummaryTable:
    others = tuple(dict.fromkeys(name for one in state.frontier for name in one.others_us))
    fastest = sorted(enumerate(state.frontier), key=lambda item: item[1].time_us)
    rows = tuple(
        (
            str(number),
            str(one.iteration),
            str(one.branch),
            one.point,
            say_us(one.time_us),
            *(say_us(one.others_us.get(name)) for name in others),
        )
        for number, one in fastest[:MOST_FRONTIER_ROWS]
    )
    left = len(fastest) - len(rows)
    note = (
        "Right candidates that the next round did not begin from, and champions that a restart or "
        "the loop's end left; a restart takes an entry's number"
    )
    note += f". Slower ones, {left} in number, are in state.json." if left else "."
    columns = ("entry", "round", "branch", "point", f"us at {state.workload}")
    return SummaryTable("Frontier", (*columns, *(f"us at {name}" for name in others)), rows, note)


def _table_text(table: SummaryTable) -> str:
    lines = [f"## {table.title}", ""]
    if table.rows:
        cells = [table.columns, ("---",) * len(table.columns), *table.rows]
        lines += ["| " + " | ".join(_cell_text(cell) for cell in row) + " |" for row in cells]
    else:
        lines.append("None.")
    return "\n".join([*lines, "", table.note] if table.note else lines)


def _cell_text(cell: str) -> str:
    return cell.replace("|", r"\|").replace("\n", " ")
