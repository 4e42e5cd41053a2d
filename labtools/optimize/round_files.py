"""The files of a loop's folder that follow from its log: a folder a round, env.json, the audit."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from labtools.measure.channel import adapter_of

from .audit import audit
from .events import BranchTried, InitDone, PointTimed, Purpose
from .log import LogLine
from .state import LoopState, RoundKept, round_folder

AUDIT_NAME = "audit.md"
SOURCE_NAME = "kernel.cu"
SourceOf = Callable[[str], str]
"""The text of a point's kernel, by the point's key."""


def files_of(
    state: LoopState,
    lines: Sequence[LogLine],
    source: SourceOf | None,
    rounds: Collection[int] | None = None,
) -> Iterator[tuple[str, str]]:
    """Name and text of every file, but for the log and ``state.json``.

    Args:
        state: that the log says.
        lines: of the log.
        source: of a point; None writes no sources.
        rounds: whose folders are meant; None is all.
    """
    init = next(line.event for line in lines if isinstance(line.event, InitDone))
    yield "env.json", _json({"on": state.on, "gpu": state.gpu, **init.env})
    entries = audit(lines)
    yield AUDIT_NAME, "\n\n".join(["# What was decided, and why", *map(str, entries)]) + "\n"
    timed = _last_timed(lines)
    for kept in state.history:
        if rounds is not None and kept.round not in rounds:
            continue
        folder = round_folder(kept.round)
        yield from ((f"{folder}/{name}", text) for name, text in _of_round(kept, timed, source))
        said = [
            f"- {entry.step}: {entry.decided}" for entry in entries if entry.round == kept.round
        ]
        yield f"{folder}/analysis.md", _analysis(kept, said)


def _of_round(
    kept: RoundKept, timed: dict[tuple[int, Purpose, str], PointTimed], source: SourceOf | None
) -> Iterator[tuple[str, str]]:
    if kept.gaps is not None:
        yield (
            "ncu_top.json",
            _json(
                {
                    "point": kept.start,
                    "gaps": _plain(kept.gaps),
                    "rising": kept.rising,
                    "counters": dict(kept.counters),
                }
            ),
        )
    if kept.pick is not None:
        yield "methods.json", _json(_plain(kept.pick))
    for one in kept.branches:
        place, run = f"branches/{one.branch}", timed.get((kept.round, "branch", one.point))
        yield f"{place}/result.json", _json(_result(one, run))
        yield from _source(place, one.point, source)
    if kept.attribution is not None:
        whole = {
            **{"champion": kept.champion, "time_us": kept.time_us, "aa": _plain(kept.aa)},
            **{"attribution": _plain(kept.attribution), "pairs": _plain(kept.pairs)},
            **{"interactions": _plain(kept.interactions), "untimed": dict(kept.untimed)},
        }
        yield "attribution.json", _json(whole)
    for found in (*(kept.attribution or ()), *kept.pairs):
        place, run = f"ablations/{found.method}", timed.get((kept.round, "ablation", found.without))
        yield f"{place}/result.json", _json({**_plain(found), "measured": _plain(run)})
        yield from _source(place, found.without, source)
    if kept.sass_check is not None:
        yield "sass_check.json", _json(_plain(kept.sass_check))
    if kept.champion is not None:
        yield "champion.json", _json({"point": kept.champion, "time_us": kept.time_us})
        yield from _source("", kept.champion, source)


def _source(place: str, point: str, source: SourceOf | None) -> Iterator[tuple[str, str]]:
    if source is not None:
        yield f"{place}/{SOURCE_NAME}".lstrip("/"), source(point)


def _result(one: BranchTried, run: PointTimed | None) -> dict[str, Any]:
    return {**_plain(one), "measured": _plain(run)}


def _last_timed(lines: Sequence[LogLine]) -> dict[tuple[int, Purpose, str], PointTimed]:
    """The last measurement of each point, by round and by what it was for."""
    events = (line.event for line in lines if isinstance(line.event, PointTimed))
    return {(one.round, one.purpose, one.point): one for one in events if not one.workload}


def _analysis(kept: RoundKept, said: Sequence[str]) -> str:
    parts = [f"# Round {kept.round}", "\n".join(said)]
    if kept.acknowledged:
        again = [f"- {method}: {why}" for method, why in kept.acknowledged.items()]
        parts += ["## Tried again although the implementation failed", "\n".join(again)]
    if kept.analysis:
        parts += ["## In the words of who drives the loop", kept.analysis.strip()]
    if kept.abandoned:
        parts.append("The round was abandoned by a restart.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _plain(value: Any) -> Any:
    """What JSON holds of one of our types, or of a tuple of them."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if value is None else adapter_of(type(value)).dump_python(value, mode="json")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
