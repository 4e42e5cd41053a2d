"""Every question of the goldens by kind and key, and how it is answered."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from labtools.problem.rung import say_knobs

from . import ask
from .commands import Command, answer, commands
from .store import GOLDEN_KINDS
from .values import Json, as_kept, digest

DRAWN_SHARES = {"json": 22, "forecast": 10, "hash": 14, "median": 14}
"""How 60 drawn goldens are spread; another number is spread alike."""
MOST_SECONDS = 24.0
"""What 60 drawn goldens may take together, by what is known of them."""


@dataclass(frozen=True)
class GoldenCase:
    """One question."""

    kind: str  # one of `GOLDEN_KINDS`
    key: str  # names it within its kind; does not change when the code does
    needs: frozenset[str]  # as in `Command`
    seconds: float  # that it takes, about
    subject: Any  # the command, or the record

    def answer(self) -> Json:
        """What the project says now, in the form that is kept."""
        if isinstance(self.subject, Command):
            return as_kept(answer(self.subject), self.subject.whole)
        if self.kind == "forecast":
            return as_kept(ask.forecast_answer(self.subject), whole=True)
        if self.kind == "hash":
            return {**ask.hashes_of(self.subject), **ask.freshness_of(self.subject)}
        return as_kept(ask.times_of(self.subject))


@lru_cache(maxsize=1)
def every_case() -> dict[tuple[str, str], GoldenCase]:
    """All cases by kind and key."""
    found: dict[tuple[str, str], GoldenCase] = {}

    def add(kind: str, key: str, needs: Iterable[str], seconds: float, subject: Any) -> None:
        found.setdefault((kind, key), GoldenCase(kind, key, frozenset(needs), seconds, subject))

    for command in commands():
        add("json", command.text, command.needs, command.seconds, command)
    for held in ask.held_records():
        point = point_key(held.raw)
        if held.raw["kind"] == "rung":
            gpu = held.raw["provenance"]["gpu_slug"]
            add("forecast", f"{gpu} {point}", {"compiler"}, 0.8, held)
        add("hash", record_key(held), {"compiler"}, 0.3, held)
        add("median", record_key(held), (), 0.0, held)
    return found


def point_key(raw: dict[str, Any]) -> str:
    """Candidate, knobs and workload of a record's line.

    What a launch is laid out for is no part of it: older lines have the number of SMs as a knob.
    """
    chosen = sorted((name, value) for name, value in raw["knobs"].items() if name != "sms")
    knobs = say_knobs(chosen, ",")
    return " ".join(filter(None, (raw["candidate"], knobs, workload_key(raw["workload"]))))


def workload_key(raw: dict[str, Any]) -> str:
    """A workload's shape, and what of it is not usual."""
    shape, usual = ask.usual_workload()
    words = [",".join(str(raw[name]) for name in shape)]
    for name, value in sorted(raw.items()):
        if name not in shape and value != usual.get(name):
            text = digest(value) if isinstance(value, list) else value
            words.append(f"{name}={text}")
    return " ".join(words)


def record_key(held: ask.Held) -> str:
    """A record: its file, its point, what was done besides, and the campaign."""
    words = (held.file, point_key(held.raw), held.raw.get("experiment"), held.raw["campaign"])
    return " ".join(filter(None, words))


def missing_here() -> dict[str, str]:
    """What answers depend on and this machine has not, each with a sentence."""
    found = {}
    here, pinned = ask.nvrtc_version(), ask.goldens_nvrtc()
    if here != pinned:
        found["compiler"] = (
            f"machine code is compared with NVRTC {pinned}, here is {here or 'none'}"
        )
    if not ask.has_host_compiler():
        found["host"] = "there is no C++ compiler to run kernels on the CPU"
    if ask.has_gpu():
        found["no gpu"] = "some answers are those of a machine without a GPU, and here is one"
    if ask.has_own_records():
        found["no own records"] = "work/records holds records, which the command line lists too"
    return found


def possible(kinds: Iterable[str] = GOLDEN_KINDS) -> tuple[list[GoldenCase], dict[str, int]]:
    """The cases that this machine can answer, and how many it cannot, by reason."""
    missing = missing_here()
    wanted = set(kinds)
    chosen, left_out = [], dict.fromkeys(missing.values(), 0)
    for case in every_case().values():
        if case.kind not in wanted:
            continue
        lacking = sorted(case.needs & set(missing))
        if lacking:
            left_out[missing[lacking[0]]] += 1
        else:
            chosen.append(case)
    return chosen, {why: count for why, count in left_out.items() if count}


def draw(cases: Iterable[GoldenCase], count: int, seed: int) -> list[GoldenCase]:
    """Some of the cases, of every kind, that do not take too long together.

    Those that take long are drawn too, but few at a time.
    """
    chance = random.Random(seed)
    by_kind: dict[str, list[GoldenCase]] = {}
    for case in sorted(cases, key=lambda one: (one.kind, one.key)):
        by_kind.setdefault(case.kind, []).append(case)
    whole = sum(DRAWN_SHARES[kind] for kind in by_kind)
    chosen: list[GoldenCase] = []
    left_s = MOST_SECONDS * count / sum(DRAWN_SHARES.values())
    for number, (kind, some) in enumerate(by_kind.items(), 1):
        left = count - len(chosen)
        share = (
            left if number == len(by_kind) else min(left, round(count * DRAWN_SHARES[kind] / whole))
        )
        chance.shuffle(some)
        taken: list[GoldenCase] = []
        for case in some:
            # What is still to be drawn takes a tenth of a second each, at least.
            spare_s = left_s - 0.1 * (share - len(taken))
            if len(taken) < share and case.seconds <= max(spare_s, 0.1):
                taken.append(case)
                left_s -= case.seconds
        chosen += taken
    return chosen
