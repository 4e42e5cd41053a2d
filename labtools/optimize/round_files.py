"""The files of a loop's folder that follow from its log: a folder a round, env.json, the audit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labtools.measure.channel import adapter_of

from .events import InitDone, PointTimed, Purpose
from .log import LogLine
from .state import LoopState, RoundKept, round_folder
from .telling import RoundTold, tell_rounds, tell_steps

AUDIT_NAME = "audit.md"
SOURCE_NAME = "kernel.cu"
START_NAME = "start.cu"  # the source of the point that the loop began from
SourceOf = Callable[[str, LoopState], str]  # the text of a point's kernel, by the point's key
TimedOf = Mapping[tuple[int, Purpose, str], PointTimed]
"""The last measurement of a point, by round, purpose and key."""


def files_of(
    state: LoopState,
    lines: Sequence[LogLine],
    source: SourceOf | None,
    rounds: Collection[int] | None = None,
) -> Iterator[tuple[str, str]]:
    """Name and text of every file, but for the log and ``state.json``; sources only where they are
    given, round folders of ``rounds`` alone where they are named."""
    init = next(line.event for line in lines if isinstance(line.event, InitDone))
    yield "env.json", _json({"on": state.on, "gpu": state.gpu, **init.env})
    if source is not None:
        yield START_NAME, source(init.start, state)
    steps = tell_steps(lines)
    yield AUDIT_NAME, "\n\n".join(["# What was decided, and why", *map(str, steps)]) + "\n"
    events = (line.event for line in lines if isinstance(line.event, PointTimed))
    timed = {
        (event.round, event.purpose, event.point): event for event in events if not event.workload
    }
    for told in tell_rounds(state, steps):
        if rounds is not None and told.kept.round not in rounds:
            continue
        folder = round_folder(told.kept.round)
        for name, held in _of_round(told.kept, timed):
            yield f"{folder}/{name}", _json(held)
        if source is not None:
            for place, point in _sources_of(told.kept):
                yield f"{folder}/{place}{SOURCE_NAME}", source(point, state)
            for name, text in diffs_without(state, told.kept).items():
                yield f"{folder}/ablations/{name}/without.diff", text + "\n"
        yield f"{folder}/analysis.md", _analysis(told)


def diffs_without(state: LoopState, kept: RoundKept) -> dict[str, str]:
    """What goes with each method of a round's written branches that another source is without."""
    branches = [state.sources[one.point] for one in kept.branches if one.point in state.sources]
    return {name: one.diff_without(name) for one in branches for name in one.without}


def kept_sources(folder: Path, state: LoopState) -> tuple[str, str] | None:
    """The sources of the start and of the champion as a loop's folder keeps them, as text alone;
    None where it does not keep both."""
    places = {
        point: f"{round_folder(kept.round)}/{place}{SOURCE_NAME}"
        for kept in state.history
        for place, point in _sources_of(kept)
    }
    names = START_NAME, places.get(state.point, START_NAME)
    try:
        start, champion = ((folder / name).read_text(errors="replace") for name in names)
    except OSError:
        return None
    return start, champion


def _of_round(kept: RoundKept, timed: TimedOf) -> Iterator[tuple[str, Any]]:
    """The name of each JSON file of a round, and what it holds."""
    if kept.gaps is not None:
        yield (
            "ncu_top.json",
            {
                "point": kept.start,
                "gaps": _plain(kept.gaps),
                "rising": kept.rising,
                "counters": dict(kept.counters),
            },
        )
    if kept.pick is not None:
        yield "methods.json", _plain(kept.pick)
    for tried in kept.branches:
        run = timed.get((kept.round, "branch", tried.point))
        yield f"branches/{tried.branch}/result.json", {**_plain(tried), "measured": _plain(run)}
    if kept.attribution is not None:
        names = ("champion", "time_us", "aa", "attribution", "pairs", "interactions", "untimed")
        yield "attribution.json", {name: _plain(getattr(kept, name)) for name in names}
    for found in (*(kept.attribution or ()), *kept.pairs):
        run = timed.get((kept.round, "ablation", found.without))
        yield f"ablations/{found.method}/result.json", {**_plain(found), "measured": _plain(run)}
    if kept.sass_check is not None:
        yield "sass_check.json", _plain(kept.sass_check)
    if kept.champion is not None:
        yield "champion.json", {"point": kept.champion, "time_us": kept.time_us}


def _sources_of(kept: RoundKept) -> Iterator[tuple[str, str]]:
    """The folder of each source that is kept of a round, and its point."""
    for tried in kept.branches:
        yield f"branches/{tried.branch}/", tried.point
    for found in (*(kept.attribution or ()), *kept.pairs):
        yield f"ablations/{found.method}/", found.without
    if kept.champion is not None:
        yield "", kept.champion


def _analysis(told: RoundTold) -> str:
    kept = told.kept
    said = [f"- {step.step}: {step.decided}" for step in told.steps]
    parts = [f"# Round {kept.round}", "\n".join(said)]
    if kept.acknowledged:
        again = [f"- {method}: {retry}" for method, retry in kept.acknowledged.items()]
        parts += ["## Tried again although the implementation failed", "\n".join(again)]
    if kept.analysis:
        parts += ["## In the words of who drives the loop", kept.analysis.strip()]
    if kept.abandoned:
        parts.append("The round was abandoned by a restart.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _plain(value: Any) -> Any:
    """What JSON holds of one of our types, or of a tuple of them."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    kind: Any = type(value)
    return None if value is None else adapter_of(kind).dump_python(value, mode="json")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
