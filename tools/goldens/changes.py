"""What differs from the goldens on purpose: ``tests/goldens/changes.toml``.

    [[change]]
    kind = "json"                  # json, forecast, hash or median; * is any
    key = "forecast *"             # the golden's key, with * and ?
    path = "data/model"            # where in the answer, with * and ?
    now = "chain model 1, *"       # what is said now, with * and ?; left out: anything
    reason = "the model's name is a hash of its forecasts and no longer of its files"

A change that no difference fits any more is an error too: the list says what is, not what was.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from .store import FOLDER, GOLDEN_KINDS
from .values import ABSENT

CHANGES = FOLDER / "changes.toml"


@dataclass(frozen=True)
class Change:
    """One entry of the list."""

    kind: str
    key: str
    path: str
    reason: str
    now: str | None = None

    def fits(self, kind: str, key: str, path: str, now: Any) -> bool:
        """Whether a difference is this change."""
        return (
            self.kind in ("*", kind)
            and _like(key, self.key)
            and _like(path, self.path)
            and (self.now is None or _like("" if now is ABSENT else str(now), self.now))
        )


def _like(text: str, pattern: str) -> bool:
    # Brackets are part of keys and texts here, so they stand for themselves.
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def read_changes(path: Path = CHANGES) -> tuple[Change, ...]:
    """The list.

    Raises:
        LabError: it is no TOML, or an entry lacks a field or has one too many.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
        entries = data.get("change", [])
        changes = tuple(Change(**entry) for entry in entries)
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise LabError(
            f"{path.name} cannot be read.",
            str(error),
            "an entry has kind, key, path and reason, and now if wanted",
        ) from error
    for change in changes:
        if change.kind not in ("*", *GOLDEN_KINDS) or len(change.reason) < 10:
            raise LabError(
                f"{path.name} has an entry that says too little.",
                f"its kind is {change.kind!r} and its reason {change.reason!r}",
                f"kinds are {', '.join(GOLDEN_KINDS)} and *; a reason is a sentence",
            )
    return changes


def find_change(changes: Sequence[Change], kind: str, key: str, path: str, now: Any) -> int | None:
    """The number of the first entry that a difference fits, or None."""
    fitting = (n for n, one in enumerate(changes) if one.fits(kind, key, path, now))
    return next(fitting, None)
