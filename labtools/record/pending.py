"""Shipped rungs that nobody has measured yet: one list, which pages show and a test reads."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from labtools.problem import LabError, Rung, kernels_dir, load_rung

from .schema import Record
from .staleness import CodeNow, freshness


@dataclass(frozen=True)
class Pending:
    """A rung whose record is still to be made."""

    rung: str  # its id
    since: datetime.date  # the day it was listed
    reason: str  # why there is none, in words

    def __str__(self) -> str:
        return f"{self.rung}: pending since {self.since:%Y-%m-%d}, {self.reason}"


def read_pending(path: Path | None = None) -> dict[str, Pending]:
    """The listed rungs by id; None reads the project's own list."""
    path = path or kernels_dir() / "pending.toml"
    found = {}
    for entry in tomllib.loads(path.read_text("utf-8")).get("pending", []):
        whole = set(entry) == {"rung", "since", "reason"}
        if not (whole and isinstance(entry["since"], datetime.date)):
            what = f"An entry of {path.name} is incomplete: {entry}."
            raise LabError(what, "each has a rung, a date and a reason", "complete it")
        found[load_rung(entry["rung"]).id] = Pending(**entry)
    return found


def unmeasured(rungs: Iterable[Rung], records: Iterable[Record]) -> list[str]:
    """Ids of the rungs without a fresh record on any GPU."""
    now, every = CodeNow(), list(records)
    return [
        rung.id
        for rung in rungs
        if not any(one.is_candidate(rung.id) and freshness(one, now).fresh for one in every)
    ]
