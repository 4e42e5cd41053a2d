"""The append-only log of a loop: lines of JSON that are on the disk before they count, chained by
hashes, so that a changed line, a lost one and one that a killed process left half written are told
from each other: a half line leaves the chain whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import Timeout
from pydantic import ValidationError

from labtools.measure.channel import adapter_of
from labtools.problem import LabError
from labtools.record.whole import append_lines, file_lock

NO_BODY = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What reading a part of unknown JSON may raise, deeply nested or infinite as it may be."""
LOG_VERSION = 1  # of a line's shape and of the events that it may hold
FIRST_PREVIOUS = ""  # what the first line names as the hash before it
MOST_NUMBERS = 5
"""Numbers of lines that a notice names; of more it names as many, and says how many there are."""


@dataclass(frozen=True)
class LogLine:
    """One acknowledged event."""

    n: int  # its number, from 0
    at: str  # when it was written, UTC, ISO 8601
    kind: str  # of the event, by which its type is found
    event: Any  # of that type
    hash: str  # of everything in the line and of the line before it


@dataclass(frozen=True)
class LogRead:
    """What a log held."""

    lines: tuple[LogLine, ...]  # those that can be read, in order
    notices: tuple[str, ...]  # what is wrong with the others, in words

    @property
    def last_hash(self) -> str:
        """Of the last line that can be read."""
        return self.lines[-1].hash if self.lines else FIRST_PREVIOUS


@contextlib.contextmanager
def disk(what: str, still_works: str) -> Iterator[None]:
    """Inside, what the disk refuses is told as a LabError."""
    try:
        yield
    except OSError as error:
        raise LabError(what, error.strerror or str(error), still_works) from error


class _Unreadable(Exception):
    """A line that is none, or is not what its hash says; with the version that it names, or 0."""

    def __init__(self, version: int = 0) -> None:
        super().__init__()
        self.version = version


class EventLog:
    """A log on disk; ``kinds`` are the types of its events."""

    def __init__(self, path: Path, kinds: Mapping[str, type]) -> None:
        self.path = path
        self._kinds = dict(kinds)
        self._names = {kind: name for name, kind in kinds.items()}
        self._last: LogLine | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the log's lock: one process at a time decides what comes next."""
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
        """Add an event to a log read before, its lock held; on return it is on the disk."""
        event_type: Any = type(event)
        kind = self._names[event_type]
        number = self._last.n + 1 if self._last else 0
        previous = self._last.hash if self._last else FIRST_PREVIOUS
        plain = adapter_of(event_type).dump_python(event, mode="json")
        body = {
            "version": LOG_VERSION,
            "n": number,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": kind,
            "event": plain,
            "previous": previous,
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
        still_works = "the same where there is room: all that was acknowledged is in the log"
        with disk(f"{self.path} cannot be written.", still_works):
            append_lines(self.path, [text])
        self._last = line
        return line

    def read(self) -> LogRead:
        """Every line that can be read, and what is wrong with the others."""
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
        lines, known = list[LogLine](), set[str]()
        twice, torn, damaged, after_a_gap = (list[int]() for _ in range(4))
        unreadable, last_version = list[int](), 0
        for number, piece in enumerate(data.split(b"\n"), start=1):
            if not piece.strip():
                continue
            try:
                line, previous = self._parse(piece)
            except _Unreadable as error:
                unreadable.append(number)
                last_version = error.version or last_version
                continue
            last_version = LOG_VERSION
            if line.hash in known:
                twice.append(number)
                continue
            known.add(line.hash)
            chained = previous == (lines[-1].hash if lines else FIRST_PREVIOUS)
            if unreadable:
                (torn if chained else damaged).extend(unreadable)
            elif not chained:
                after_a_gap.append(number)
            unreadable = []
            lines.append(line)
        if last_version > LOG_VERSION:  # whose hashes may be made otherwise: nothing is damaged
            raise self._newer(_say_version(last_version))
        # A killed process leaves the end of its line out, and that is the only one.
        ends_torn = len(unreadable) == 1 and not data.endswith(b"\n")
        (torn if ends_torn else damaged).extend(unreadable)
        self._last = lines[-1] if lines else None
        said = _say_wrong(len(lines), twice, torn, damaged, after_a_gap)
        notices = tuple(f"{self.path.name}: {text}" for text in said)
        return LogRead(tuple(lines), notices)

    def _parse(self, piece: bytes) -> tuple[LogLine, str]:
        """A line and the hash that it names before its own."""
        version = 0
        try:
            body = json.loads(piece)
            version, kind = int(body["version"]), str(body["kind"])
            said = body.pop("hash")
            intact = _hash(body) == said
            number, at, previous = int(body["n"]), str(body["at"]), str(body["previous"])
        except NO_BODY:
            raise _Unreadable(version) from None
        if not intact:
            raise _Unreadable(version)
        if version > LOG_VERSION:
            raise self._newer(_say_version(version))
        if kind not in self._kinds:
            raise self._newer(f"it holds the event {kind!r}, which this labtools does not know")
        try:
            event = adapter_of(self._kinds[kind]).validate_python(body.get("event"))
        except (ValidationError, LabError):
            raise _Unreadable from None
        return LogLine(number, at, kind, event, said), previous

    def _newer(self, why: str) -> LabError:
        return LabError(
            f"{self.path} was written by a newer labtools.",
            why,
            "that labtools; nothing was changed",
        )


def say_command(step: str, folder: Path, *arguments: object) -> str:
    """A command of a loop as it is typed. Behind ``--`` a folder may begin with a dash."""
    ended = ["--"] if str(folder).startswith("-") else []
    return shlex.join(["labtools", "loop", step, *ended, str(folder), *map(str, arguments)])


def _hash(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _say_version(version: int) -> str:
    return f"it is of version {version}, and this labtools knows up to version {LOG_VERSION}"


def _say_lines(numbers: Sequence[int]) -> str:
    """Lines by their numbers; where they are many, how many and the first few."""
    named = ", ".join(map(str, numbers[:MOST_NUMBERS]))
    if len(numbers) > MOST_NUMBERS:
        return f"{len(numbers)} lines ({named}, ...)"
    return f"line {named}" if len(numbers) == 1 else f"lines {named}"


def _say_wrong(count: int, *wrong: Sequence[int]) -> Iterator[str]:
    """What is wrong with some lines, of which ``count`` can be read: those that stand twice, are
    torn, damaged, or stand after a gap."""
    twice, torn, damaged, after_a_gap = wrong
    kept = f"the other {count} are kept" if count > 1 else "the other line is kept"
    if not count:
        kept = "no other line can be read"
    if twice:
        verb = "stands" if len(twice) == 1 else "stand"
        yield f"{_say_lines(twice)} {verb} there twice; one is read"
    if torn:
        verb = "is" if len(torn) == 1 else "are"
        why = "because a process ended there; nothing that was acknowledged is missing"
        yield f"{_say_lines(torn)} {verb} half written, {why}"
    if damaged:
        verb = "is" if len(damaged) == 1 else "are"
        yield f"{_say_lines(damaged)} {verb} damaged and what stood there is lost; {kept}"
    if after_a_gap:
        yield f"lines are missing before {_say_lines(after_a_gap)}; {kept}"
