"""A loop on disk: its folder, with the log and the files that follow from it.

The log is the truth. ``state.json`` and everything else in the folder follow from it and are
written anew whenever they are missing, damaged, of another version or behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from labtools.measure.channel import adapter_of
from labtools.problem import DEFAULT_OPERATION, LabError, operations
from labtools.problem.text import how_many
from labtools.record.whole import write_whole

from .events import (
    EVENT_KINDS,
    InitDone,
    LoopRestarted,
    LoopSetup,
    PlanMade,
    PointTimed,
    Purpose,
    kind_of,
)
from .family import load_family
from .log import FIRST_PREVIOUS, NO_BODY, EventLog, LogLine, LogRead, say_command
from .round_files import files_of
from .state import ROUND_PREFIX, STATE_VERSION, STEPS, LoopState, OutOfOrder, StateFold, check_step

LOG_NAME = "log.jsonl"
STATE_NAME = "state.json"


class LoopThere(LabError):
    """A folder that is to take a new loop holds one already."""


class LoopFolder:
    """A loop on disk: its log, and the files that follow from it.

    Made by `create`, `opened` or `look`. ``state`` is what the log says; ``notices`` say what was
    damaged and how it was mended; ``resumed`` says where it goes on.

    Args:
        path: of the folder.
        source: the text of a point's kernel, by the point's key; without it no sources are kept.
    """

    def __init__(self, path: Path, source: Callable[[str], str] | None = None) -> None:
        self.path = path
        self.source = source
        self.notices: tuple[str, ...] = ()
        self.resumed = ""
        self.log = EventLog(path / LOG_NAME, EVENT_KINDS)
        self._fold = StateFold()
        self._read = LogRead((), (), True)
        self._writing = False

    @classmethod
    @contextlib.contextmanager
    def create(
        cls, path: Path, init: InitDone, source: Callable[[str], str] | None = None
    ) -> Iterator[LoopFolder]:
        """A new loop in a folder that holds none; its lock is held until the end of the block.

        Raises:
            LoopThere: there is a loop already.
            LabError: there is what is left of one, another process works in the folder, or it
                cannot be written.
        """
        folder = cls(path, source)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(
                f"{path} cannot be made.", error.strerror or str(error), "another folder"
            ) from error
        with folder.log.held():
            if cls.holds_loop(path):
                raise LoopThere(
                    f"{path} holds a loop already.",
                    f"there is a {LOG_NAME}",
                    f"{say_command('status', path)} shows it; another folder for a new one",
                )
            _refuse_remains(path)
            folder._writing = True
            folder._append(init)
            folder.write_files()
            yield folder

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, source: Callable[[str], str] | None = None) -> Iterator[LoopFolder]:
        """A loop that goes on; its lock is held until the end of the block.

        What of the folder is missing, damaged or behind its log is written anew.

        Raises:
            LabError: there is none, another process works in it, or a newer labtools wrote its
                log.
        """
        folder = cls(path, source)
        if not folder.log.path.exists():
            folder._load()  # says so
        with folder.log.held():
            folder._load()
            folder._writing = True
            folder._mend_state()
            folder.write_files()
            yield folder

    @classmethod
    def look(cls, path: Path) -> LoopFolder:
        """A loop to read: nothing is written and no lock is taken.

        Raises:
            LabError: there is none, or a newer labtools wrote its log.
        """
        folder = cls(path)
        folder._load()
        folder.notices += tuple(filter(None, [folder._judge_state()[0]]))
        return folder

    @classmethod
    def holds_loop(cls, path: Path) -> bool:
        """Whether a loop began in a folder: its log has a whole line."""
        try:
            with open(path / LOG_NAME, "rb") as file:
                return file.readline().endswith(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise LabError(
                f"{path} cannot be read.", error.strerror or str(error), "another folder"
            ) from error

    @property
    def state(self) -> LoopState:
        """What the log says now."""
        return self._fold.finish(self._read, self.log.path)

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """Of the log, those that can be read."""
        return self._read.lines

    # -- steps -----------------------------------------------------------------------------

    def require(self, step: str) -> LoopState:
        """The state, if a step of a round may come now.

        Raises:
            OutOfOrder: it may not; names the one that may.
        """
        state = self.state
        if step in state.next_steps:
            return state
        if state.stopped:
            raise OutOfOrder(
                f"{step} cannot come now.",
                f"the loop has stopped: {state.stopped}",
                f"{say_command('restart', self.path, 'ENTRY')} goes on from an entry of the "
                "frontier; summary, status, diff and export read",
            )
        (legal,) = state.next_steps
        done = STEPS[: STEPS.index(legal)]
        since = f"after {done[-1]}" if done else "at its beginning"
        raise OutOfOrder(
            f"{step} cannot come now.",
            f"round {state.round} stands {since}; its next step is {legal}",
            say_command(legal, self.path),
        )

    def plan(self, purpose: Purpose, points: Sequence[str]) -> tuple[str, ...]:
        """Say which points are about to be timed.

        Returns:
            Those of them that this round did not time yet, for this purpose.
        """
        current, number = self.state.current, self.state.round
        here = current.round == number
        if set(points) - set(current.planned.get(purpose, ()) if here else ()):
            self.keep(PlanMade(number, purpose, tuple(points)))
        kept = current.kept.get(purpose, ()) if here else ()
        return tuple(point for point in dict.fromkeys(points) if point not in kept)

    def measured(
        self,
        point: str,
        *,
        round: int | None = None,
        purpose: Purpose | None = None,
        calls: Collection[int] = (),
    ) -> PointTimed | None:
        """The last measurement of a point at the loop's own workload, if there is one.

        Args:
            point: its key.
            round: of that round alone.
            purpose: for that purpose alone.
            calls: of these calls of the bench alone; none is of any.
        """
        for line in reversed(self.lines):
            one = line.event
            if (
                isinstance(one, PointTimed)
                and one.point == point
                and not one.workload
                and round in (None, one.round)
                and purpose in (None, one.purpose)
                and (not calls or one.call in calls)
            ):
                return one
        return None

    @property
    def next_line(self) -> int:
        """The number of the next line of the log."""
        return self.lines[-1].n + 1 if self.lines else 0

    @property
    def next_call(self) -> int:
        """A number for the bench's next call, which no measurement has yet."""
        calls = [line.event.call for line in self.lines if isinstance(line.event, PointTimed)]
        return max(calls, default=-1) + 1

    def keep(self, event: Any) -> LoopState:
        """Add what happened. When this returns, it is on the disk.

        Returns:
            The state from now on.

        Raises:
            OutOfOrder: the step may not come now.
            LabError: it contradicts the round, or cannot be written.
        """
        if not self._writing:
            raise LabError(
                "This loop was opened to be read.", "", "the same through LoopFolder.opened"
            )
        kind = kind_of(event)
        if kind in STEPS:
            state = self.require(kind)
            check_step(state, event)
        self._append(event)
        if kind not in ("plan", "timed"):  # what is only measured stands in the log
            now = self.state.current.round
            self.write_files({now - 1, now})  # a restart ends a round, too
        return self.state

    def restart(self, entry: int) -> LoopState:
        """Let the next round begin from an entry of the frontier; one under way is abandoned.

        Args:
            entry: its place in `LoopState.frontier`, from 0.

        Raises:
            LabError: there is no such entry.
        """
        state = self.state
        if not 0 <= entry < len(state.frontier):
            most = len(state.frontier) - 1
            raise LabError(
                f"The frontier has no entry {entry}.",
                f"its entries are 0 to {most}" if state.frontier else "it is empty",
                f"{say_command('status', self.path)} lists them"
                if state.frontier
                else say_command(*state.next_steps[:1] or ["status"], self.path),
            )
        chosen = state.frontier[entry]
        begun = bool(state.history) and state.current.round == state.round
        number = state.round + 1 if begun else state.round
        return self.keep(LoopRestarted(number, entry, chosen.point, chosen.time_us))

    # -- files -----------------------------------------------------------------------------

    def write_files(self, rounds: Collection[int] | None = None) -> None:
        """Write whatever follows from the log and does not stand there as it should.

        Args:
            rounds: of which the folders are looked at; None is all.

        Raises:
            LabError: something could not be written; the log has it all.
        """
        state = self.state
        wanted = dict(files_of(state, self.lines, self.source, rounds))
        wanted[STATE_NAME] = adapter_of(LoopState).dump_json(state, indent=1).decode() + "\n"
        for name, text in wanted.items():
            path, data = self.path / name, text.encode()
            try:
                if path.is_file() and path.read_bytes() == data:
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, data)
            except OSError as error:
                raise LabError(
                    f"{path} cannot be written.",
                    error.strerror or str(error),
                    f"everything is in {self.log.path}; the next step writes the file again",
                ) from error

    def _append(self, event: Any) -> None:
        line = self.log.append(event)
        self._fold.take(event)
        self._read = replace(self._read, lines=(*self._read.lines, line))

    def _load(self) -> None:
        if not self.holds_loop(self.path):
            _refuse_remains(self.path)
        _know_problem(self.log.path)
        self._read = self.log.read()
        self._fold = StateFold()
        for line in self._read.lines:
            self._fold.take(line.event)
        self.notices = self._read.notices
        self.resumed = self.state.say_resumed()

    def _judge_state(self) -> tuple[str, bool]:
        """What is wrong with ``state.json``, in words, and whether it should be set aside.

        One that is merely behind the log is what a killed process leaves: nothing is wrong.
        """
        path, state = self.path / STATE_NAME, self.state
        again = f"it is rebuilt from the {state.log_lines} lines of {LOG_NAME}"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return f"{STATE_NAME} was missing; {again}", False
        except OSError as error:
            return f"{STATE_NAME} cannot be read ({error.strerror}); {again}", True
        try:
            body = json.loads(data)
            version = int(body["schema_version"])
        except NO_BODY:
            return f"{STATE_NAME} was damaged; {again}", True
        if version != STATE_VERSION:
            word = "newer" if version > STATE_VERSION else "older"
            return f"{STATE_NAME} is of the {word} version {version}; {again}", True
        try:
            told = adapter_of(LoopState).validate_python(body)
        except (ValidationError, LabError):
            return f"{STATE_NAME} was damaged; {again}", True
        if told.log_hash == state.log_hash:
            if body == json.loads(adapter_of(LoopState).dump_json(state)):
                return "", False
            return f"{STATE_NAME} did not say what {LOG_NAME} says; {again}", True
        if told.log_hash in {line.hash for line in self.lines} | {FIRST_PREVIOUS}:
            return "", False
        if other := self._say_other(told):
            return f"{STATE_NAME} is of another loop, or was changed: {other}; {again}", True
        if not self._read.whole:  # the line that it followed from is among those that are lost
            return "", False
        lost = f"{LOG_NAME} has lost its end: {STATE_NAME} followed from {told.log_lines} lines"
        return f"{lost}; {again}", True

    def _say_other(self, told: LoopState) -> str:
        """Why a state whose last line is not in the log never followed from a longer one of this
        loop; empty where it may have."""
        state = self.state
        for one in fields(LoopSetup):
            if getattr(told, one.name) != getattr(state, one.name):
                return f"its {one.name} is not the loop's"
        if self._read.whole and told.log_lines <= state.log_lines:
            return f"it did not follow from line {told.log_lines} of {LOG_NAME}"
        if self._read.whole and told.timed[: state.runs] != state.timed:
            return f"it has other times than {LOG_NAME}"
        return ""

    def _mend_state(self) -> None:
        """Set a ``state.json`` aside that cannot be used, and say so."""
        notice, aside = self._judge_state()
        if not notice:
            return
        path = self.path / STATE_NAME
        if aside:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
            with contextlib.suppress(OSError):  # it is written over then
                path.rename(path.with_name(f"{STATE_NAME}.damaged-{stamp}"))
        self.notices += (notice,)


_ROUND = re.compile(rf"{ROUND_PREFIX}[1-9][0-9]*")


def _is_state(path: Path) -> bool:
    """Whether a file is a loop's state, of whatever version."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, *NO_BODY):
        return False
    return isinstance(body, dict) and {"schema_version", "log_hash"} <= body.keys()


def _refuse_remains(path: Path) -> None:
    """Refuse a folder whose log is gone, and which has files that followed from it."""
    try:
        names = os.listdir(path)
    except OSError:
        return  # nothing is there, or whoever wants to read or write says why it cannot
    rounds = sum(bool(_ROUND.fullmatch(one)) for one in names)
    there = [STATE_NAME] if _is_state(path / STATE_NAME) else []
    if rounds:
        there.append(f"the files of {how_many(rounds, 'round')}")
    if not there:
        return
    lost = f"{LOG_NAME} has no whole line" if LOG_NAME in names else f"there is no {LOG_NAME}"
    raise LabError(
        f"{path} holds what is left of a loop.",
        f"{lost}, and {' and '.join(there)} followed from it",
        "what is there, to be read; the loop once its log is there again; another folder for a new "
        "loop",
    )


def family_lost(folder: Path, family: str, because: LabError) -> LabError:
    """What is said of a loop whose family cannot be loaded.

    Args:
        folder: of the loop.
        family: as the loop names it.
        because: what loading it said.
    """
    path = Path(family)
    if not path.is_absolute() or path.with_suffix(".py").is_file():
        return LabError(
            f"The loop in {folder} works on a family that cannot be loaded.",
            because.clause,
            "the same once the family is what it was",
        )
    source, data = path.with_suffix(".cu").name, path.with_suffix(".toml").name
    return LabError(
        f"The loop in {folder} has lost its family, {path.stem}.",
        f"the loop expects it at {path.with_suffix('.py')}, and there is no such file",
        f"the same once the three files of the family, {path.with_suffix('.py').name}, {source} "
        f"and {data}, are in {path.parent} again",
    )


def _know_problem(log: Path) -> None:
    """Load the family of a log whose workload is of no operation that is known: the family's Python
    brings it, and without it the log's first line could not be read.
    """
    try:
        with open(log, "rb") as file:
            event = json.loads(file.readline())["event"]
        operation = event["workload"].get("operation", DEFAULT_OPERATION)
        family = str(event["family"])
    except (OSError, *NO_BODY):
        return  # reading the log says what is wrong with it
    if operation not in operations():
        try:
            load_family(family)
        except LabError as error:
            raise family_lost(log.parent, family, error) from error
