"""Asks, compares, and says what differs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from labtools.toolchain.progress import Progress, silent

from .cases import GoldenCase, every_case
from .changes import Change, find_change, say_value
from .values import ABSENT, Json, differences

Id = tuple[str, str]
"""Kind and key."""
MOST_SHOWN = 40
MOST_PATHS = 6


@dataclass
class GoldenVerdict:
    """What a comparison found."""

    compared: int = 0  # how many goldens
    # differences that are on no list: (kind, key, path, kept, now)
    unlisted: list[tuple[str, str, str, Json, Json]] = field(default_factory=list)
    # how many differences each entry of the list accounts for
    listed: Counter[int] = field(default_factory=Counter)
    # entries that fit no difference; only of a comparison of everything
    unused: list[Change] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Everything is as it was, or is listed."""
        return not self.unlisted and not self.unused

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        by_golden: dict[Id, list[str]] = {}
        for kind, key, path, before, now in self.unlisted:
            line = f"    {path or 'all of it'}: {_short(before)} -> {_short(now)}"
            by_golden.setdefault((kind, key), []).append(line)
        for (kind, key), lines in list(by_golden.items())[:MOST_SHOWN]:
            yield f"differs: {kind}: {key}"
            yield from lines[:MOST_PATHS]
            if len(lines) > MOST_PATHS:
                yield f"    and {len(lines) - MOST_PATHS} more"
        if len(by_golden) > MOST_SHOWN:
            yield f"and {len(by_golden) - MOST_SHOWN} more goldens differ"
        for change in self.unused:
            yield (
                f"tests/goldens/changes.toml lists what is no change any more: {change.kind}: "
                f"{change.key}: {change.path} ({change.reason})"
            )
        yield (
            f"{self.compared} goldens compared: {len(by_golden)} differ, "
            f"{sum(self.listed.values())} differences are listed as changes"
        )


def _short(value: Json) -> str:
    text = say_value(value)
    return text if len(text) <= 160 else f"{text[:150]} ... ({len(text)} characters)"


def compare(
    goldens: Mapping[Id, Json],
    answers: Iterable[tuple[Id, Json]],
    changes: Sequence[Change] = (),
    whole: bool = False,
) -> GoldenVerdict:
    """Compare answers with goldens.

    Args:
        goldens: what was kept, by kind and key.
        answers: what is said now.
        changes: what differs on purpose.
        whole: the answers are all there are, so that a golden without an answer is missing and an
            entry of ``changes`` that fits nothing is stale.
    """
    verdict = GoldenVerdict()
    seen = set()
    for (kind, key), now in answers:
        seen.add((kind, key))
        verdict.compared += 1
        before = goldens.get((kind, key), ABSENT)
        for path, was, is_now in differences(before, now):
            _enter(verdict, changes, kind, key, path, was, is_now)
    if whole:
        for kind, key in sorted(set(goldens) - seen):
            _enter(verdict, changes, kind, key, "", goldens[kind, key], ABSENT)
        verdict.unused = [one for n, one in enumerate(changes) if not verdict.listed[n]]
    return verdict


def _enter(
    verdict: GoldenVerdict,
    changes: Sequence[Change],
    kind: str,
    key: str,
    path: str,
    was: Json,
    now: Json,
) -> None:
    number = find_change(changes, kind, key, path, now)
    if number is None:
        verdict.unlisted.append((kind, key, path, was, now))
    else:
        verdict.listed[number] += 1


def _answer(case_id: Id) -> tuple[Id, Json]:
    return case_id, every_case()[case_id].answer()


def ask_all(
    cases: Sequence[GoldenCase], jobs: int = 1, progress: Progress = silent
) -> Iterator[tuple[Id, Json]]:
    """The answers of some cases, in several processes where wished."""
    # Cases of one record stand together, so that its code is compiled in one process only.
    ids = [(case.kind, case.key) for case in sorted(cases, key=lambda one: (one.kind, one.key))]

    def count(done: Iterable[tuple[Id, Json]]) -> Iterator[tuple[Id, Json]]:
        for number, one in enumerate(done, 1):
            yield one
            progress("asking for the goldens", number, len(ids))

    if jobs <= 1:
        yield from count(map(_answer, ids))
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from count(pool.map(_answer, ids, chunksize=8))


def default_jobs() -> int:
    """One process a processor that this one may use, four at most."""
    return min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
