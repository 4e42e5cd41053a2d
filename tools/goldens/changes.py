"""What differs from the goldens on purpose: ``tests/goldens/changes.toml``.

    [[change]]
    kind = "json"                            # json, forecast, hash or median
    key = "forecast r03 --gpu h200 --json"   # the golden's key: a command line, a record
    path = "data/bound"                      # where in the answer; "" is all of it
    now = '"chain"'                          # what is said there now, as JSON; nothing: it is gone
    reason = "one sentence"

An entry names one golden, one place in it and one value, and allows that alone. A change of many
goldens is written instead: ``--write`` with ``--match``. What is written leaves the list, and a
change that no difference fits any more is an error: the list says what is, not what was.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from labtools.problem import LabError

from .store import FOLDER, GOLDEN_KINDS
from .values import ABSENT, Json, differences

CHANGES = "changes.toml"
_ENTRY = re.compile(r"^\[\[change\]\]", re.MULTILINE)
_ANY_TABLE = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
"""The first line that is neither empty nor a remark."""
_LONGEST_PLAIN = 10
"""Letters of a reason that says nothing."""


@dataclass(frozen=True)
class Change:
    """One entry of the list.

    Raises:
        ValueError: it is no single change: a kind that is none, no reason, or ``now`` no JSON.
    """

    kind: str
    key: str
    path: str
    now: str
    reason: str

    def __post_init__(self) -> None:
        if self.kind not in GOLDEN_KINDS:
            raise ValueError(f"its kind is {self.kind!r}; kinds are {', '.join(GOLDEN_KINDS)}")
        if len(self.reason) < _LONGEST_PLAIN:
            raise ValueError(f"its reason is {self.reason!r}; a reason is a sentence")
        if "*" in self.key + self.path:
            raise ValueError(f"{self.key!r}, {self.path!r}: an entry names one place in one golden")
        _ = self.value

    @cached_property
    def value(self) -> Json:
        """What is said now, as `now` writes it."""
        return ABSENT if self.now == repr(ABSENT) else json.loads(self.now)

    def fits(self, kind: str, key: str, path: str, now: Json) -> bool:
        """Whether a difference is this change."""
        here = (self.kind, self.key, self.path) == (kind, key, path)
        return here and not any(differences(self.value, now))


def say_value(value: Json) -> str:
    """A value of an answer as ``now`` of an entry writes it."""
    return repr(ABSENT) if value is ABSENT else json.dumps(value, ensure_ascii=False)


def read_changes(path: Path = FOLDER / CHANGES) -> tuple[Change, ...]:
    """The list.

    Raises:
        LabError: it is no TOML, or an entry lacks a field, has one too many or is no single change.
    """
    try:
        text = path.read_text("utf-8") if path.is_file() else ""
        entries = tomllib.loads(text)
        changes = tuple(Change(**entry) for entry in entries.pop("change", []))
        if entries:
            raise ValueError(f"it holds {', '.join(entries)}; a list of changes holds change alone")
        if len(changes) != len(_ENTRY.findall(text)):
            raise ValueError("an entry begins with [[change]] at the beginning of a line")
        return changes
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise LabError(
            f"{path.name} cannot be read.",
            str(error),
            "an entry has kind, key, path, now as JSON, and reason, and names one difference; "
            'many at once are written: make goldens ARGS="--write --match PATTERN"',
        ) from error


def begin_anew(path: Path) -> None:
    """Leave nothing of the list but what it says above its first entry, however that is written."""
    if path.is_file():
        head = _ANY_TABLE.split(path.read_text("utf-8"), maxsplit=1)[0]
        path.write_text(head.rstrip() + "\n", "utf-8")


def take_out(path: Path, written: Callable[[Change], bool]) -> None:
    """Take the entries out that the goldens hold now."""
    changes = read_changes(path)
    text = path.read_text("utf-8")
    starts = [found.start() for found in _ENTRY.finditer(text)] + [len(text)]
    kept = [
        text[start:end]
        for change, start, end in zip(changes, starts, starts[1:], strict=False)
        if not written(change)
    ]
    path.write_text((text[: starts[0]] + "".join(kept)).rstrip() + "\n", "utf-8")


def find_change(changes: Sequence[Change], kind: str, key: str, path: str, now: Json) -> int | None:
    """The number of the entry that a difference fits, or None."""
    fitting = (n for n, one in enumerate(changes) if one.fits(kind, key, path, now))
    return next(fitting, None)
