"""The append-only log of a loop: lines of JSON that are on the disk before they count, chained by
hashes.

Each line holds an event, the hash of the line before it and its own. So a changed line, a lost one
and one that a killed process left half written are told from each other: a half line leaves the
chain whole, because nothing that was acknowledged is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import Timeout
from pydantic import ValidationError

from labtools.measure.channel import adapter_of
from labtools.problem import LabError
from labtools.record.locks import file_lock
from labtools.record.whole import append_lines

NO_BODY = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What reading a part of unknown JSON may raise, deeply nested or infinite as it may be."""
LOG_VERSION = 1
"""Of a line's shape and of the events that it may hold."""
FIRST_PREVIOUS = ""
"""What the first line names as the hash before it."""


@dataclass(frozen=True)
class LogLine:
    """One acknowledged event.

    Args:
        n: its number, from 0.
        at: when it was written, UTC, ISO 8601.
        kind: of the event, by which its type is found.
        event: of that type.
        hash: of everything in the line and of the line before it.
    """

    n: int
    at: str
    kind: str
    event: Any
    hash: str


@dataclass(frozen=True)
class LogRead:
    """What a log held.

    Args:
        lines: those that can be read, in order.
        notices: what is wrong with the others, in words.
        whole: nothing that was ever acknowledged is known to be missing.
    """

    lines: tuple[LogLine, ...]
    notices: tuple[str, ...]
    whole: bool

    @property
    def last_hash(self) -> str:
        """Of the last line that can be read."""
        return self.lines[-1].hash if self.lines else FIRST_PREVIOUS


class _Unreadable(Exception):
    """A line that is none, or is not what its hash says."""


class EventLog:
    """A log on disk.

    Args:
        path: of the file; its folder is there.
        kinds: the type of each kind of event, a dataclass or a schema.
    """

    def __init__(self, path: Path, kinds: Mapping[str, type]) -> None:
        self.path = path
        self._kinds = dict(kinds)
        self._names = {kind: name for name, kind in kinds.items()}
        self._last: LogLine | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the log's lock: one process at a time decides what comes next.

        Raises:
            LabError: another process holds it.
        """
        lock = file_lock(self.path)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise LabError(
                f"Another process is working in {self.path.parent}.",
                "one step at a time writes the log of a loop",
                f"{say_command('status', self.path.parent)}, which only reads; the step again when "
                "the other has ended",
            ) from error
        try:
            yield
        finally:
            lock.release()

    def append(self, event: Any) -> LogLine:
        """Add an event. When this returns, it is on the disk: it is acknowledged.

        The log was read before, or is new, and its lock is held.

        Raises:
            LabError: it could not be written; the log is as it was.
        """
        kind = self._names[type(event)]
        number = self._last.n + 1 if self._last else 0
        previous = self._last.hash if self._last else FIRST_PREVIOUS
        plain = adapter_of(type(event)).dump_python(event, mode="json")
        body = {
            **{"version": LOG_VERSION, "n": number},
            **{"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "kind": kind},
            **{"event": plain, "previous": previous},
        }
        try:
            line = LogLine(number, body["at"], kind, event, _hash(body))
        except ValueError as error:
            raise LabError(
                f"This {kind} cannot be kept.",
                f"{error}: a number that is not finite was not measured",
                "the same with None in its place",
            ) from error
        text = json.dumps({**body, "hash": line.hash})
        try:
            append_lines(self.path, [text])
        except OSError as error:
            raise LabError(
                f"{self.path} cannot be written.",
                error.strerror or str(error),
                "the same where there is room: all that was acknowledged is in the log",
            ) from error
        self._last = line
        return line

    def read(self) -> LogRead:
        """Every line that can be read, and what is wrong with the others.

        Raises:
            LabError: there is no log, it cannot be read, or a newer labtools wrote it.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise LabError(
                f"{self.path.parent} holds no loop.",
                f"there is no {self.path.name}",
                f"{say_command('init', self.path.parent)} makes one",
            ) from None
        except OSError as error:
            raise LabError(
                f"{self.path} cannot be read.", error.strerror or str(error), "another folder"
            ) from error
        found = _Chain(self.path.name, ended=data.endswith(b"\n"))
        for number, piece in enumerate(data.split(b"\n"), start=1):
            if not piece.strip():
                continue
            try:
                line, previous = self._parse(piece)
            except _Unreadable:
                found.add_unreadable(number)
            else:
                found.add(number, line, previous)
        read = found.close()
        self._last = read.lines[-1] if read.lines else None
        return read

    def _parse(self, piece: bytes) -> tuple[LogLine, str]:
        """A line and the hash that it names before its own."""
        try:
            body = json.loads(piece)
            said = body.pop("hash")
            intact = _hash(body) == said
            version, kind = int(body["version"]), str(body["kind"])
            number, at, previous = int(body["n"]), str(body["at"]), str(body["previous"])
        except NO_BODY:
            raise _Unreadable from None
        if not intact:
            raise _Unreadable
        if version > LOG_VERSION or kind not in self._kinds:
            raise LabError(
                f"{self.path} was written by a newer labtools.",
                f"it holds version {version}, {kind!r}; this one knows version {LOG_VERSION} and "
                f"{', '.join(self._kinds)}",
                "that labtools; nothing was changed",
            )
        try:
            event = adapter_of(self._kinds[kind]).validate_python(body.get("event"))
        except (ValidationError, LabError):
            raise _Unreadable from None
        return LogLine(number, at, kind, event, said), previous


def say_command(step: str, folder: Path, *arguments: object) -> str:
    """A command of a loop as it is typed. Behind ``--`` a folder may begin with a dash.

    Args:
        step: or another subcommand.
        folder: of the loop.
        arguments: behind it.
    """
    ended = ["--"] if str(folder).startswith("-") else []
    return shlex.join(["labtools", "loop", step, *ended, str(folder), *map(str, arguments)])


def _hash(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class _Chain:
    """Lines in the order of a file, and where their chain is broken.

    Args:
        name: of the file, for a message.
        ended: the file ends with the end of a line.
    """

    def __init__(self, name: str, ended: bool) -> None:
        self._name = name
        self._ended = ended
        self._lines: list[LogLine] = []
        self._known: set[str] = set()
        self._unreadable: list[int] = []
        self._notices: list[str] = []
        self._whole = True

    def add_unreadable(self, number: int) -> None:
        """A line of the file that holds no event."""
        self._unreadable.append(number)

    def add(self, number: int, line: LogLine, previous: str) -> None:
        """A line that is what its hash says."""
        before = self._lines[-1].hash if self._lines else FIRST_PREVIOUS
        if line.hash in self._known:
            self._notices.append(f"{self._name}: line {number} stands there twice; one is read")
            return
        self._known.add(line.hash)
        if self._unreadable:
            self._judge_unreadable(chained=previous == before)
        elif previous != before:
            self._whole = False
            self._notices.append(
                f"{self._name}: lines are missing before line {number}; the others are kept"
            )
        self._lines.append(line)

    def close(self) -> LogRead:
        """What was found, once there are no more lines."""
        if self._unreadable:
            # A killed process leaves the end of its line out, and that is the only one.
            torn = not self._ended and len(self._unreadable) == 1
            self._judge_unreadable(chained=torn)
        kept = len(self._lines)
        notices = tuple(
            notice.replace("the others are kept", f"the other {kept} are kept")
            for notice in self._notices
        )
        return LogRead(tuple(self._lines), notices, self._whole)

    def _judge_unreadable(self, chained: bool) -> None:
        where = ", ".join(map(str, self._unreadable))
        word = "line" if len(self._unreadable) == 1 else "lines"
        verb = "is" if len(self._unreadable) == 1 else "are"
        if chained:
            self._notices.append(
                f"{self._name}: {word} {where} {verb} half written, because a process ended there; "
                "nothing that was acknowledged is missing"
            )
        else:
            self._whole = False
            self._notices.append(
                f"{self._name}: {word} {where} {verb} damaged and what stood there is lost; "
                "the others are kept"
            )
        self._unreadable = []
