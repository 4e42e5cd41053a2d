"""A loop on disk: its folder, with the log, which alone is judged, and the files that follow from
it and are written again wherever they differ."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labtools.measure.channel import adapter_of
from labtools.problem import LabError
from labtools.problem.text import how_many
from labtools.record.fields import is_id
from labtools.record.whole import write_whole
from labtools.toolchain.cache import cache_dir, content_key

from .events import EVENT_KINDS, InitDone, LoopRestarted, PlanMade, PointTimed, Purpose, kind_of
from .log import NO_BODY, EventLog, LogLine, LogRead, disk, say_command
from .round_files import SourceOf, files_of
from .state import ROUND_PREFIX, STEPS, LoopState, OutOfOrder, StateFold, check_step

LOG_NAME = "log.jsonl"
STATE_NAME = "state.json"


class LoopThere(LabError):
    """A folder that is to take a new loop holds one already."""


class LoopFolder:
    """A loop on disk, made by `create`, `opened` or `look`. ``resumed`` says where it goes on.
    Without ``source``, the text of a kernel by its point's key, no sources are kept."""

    def __init__(self, path: Path, source: SourceOf | None = None) -> None:
        self.path = path
        self.source = source
        self.resumed = ""
        self.log = EventLog(path / LOG_NAME, EVENT_KINDS)
        self._fold = StateFold()
        self._read = LogRead((), ())
        self._writing = False

    @classmethod
    @contextlib.contextmanager
    def create(
        cls, path: Path, init: InitDone, source: SourceOf | None = None
    ) -> Iterator[LoopFolder]:
        """A new loop in a folder that holds none; its lock is held until the end of the block.
        Raises LoopThere: there is a loop already."""
        folder = cls(path, source)
        with disk(f"{path} cannot be made.", "another folder"):
            path.mkdir(parents=True, exist_ok=True)
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
            folder.take_over()
            folder.write_files()
            yield folder

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, source: SourceOf | None = None) -> Iterator[LoopFolder]:
        """A loop that goes on; its lock is held until the end of the block."""
        folder = cls(path, source)
        if not folder.log.path.exists():
            folder._load()  # says so
        with folder.log.held():
            folder._load()
            folder._writing = True
            folder.write_files()
            yield folder

    @classmethod
    def look(cls, path: Path) -> LoopFolder:
        """A loop to read: nothing is written and no lock is taken."""
        folder = cls(path)
        folder._load()
        return folder

    @classmethod
    def holds_loop(cls, path: Path) -> bool:
        """Whether a loop began in a folder: its log has a whole line."""
        with (
            disk(f"{path} cannot be read.", "another folder"),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            open(path / LOG_NAME, "rb") as file,
        ):
            return file.readline().endswith(b"\n")
        return False

    @property
    def state(self) -> LoopState:
        """What the log says now."""
        return self._fold.finish(self._read, self.log.path)

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """Of the log, those that can be read."""
        return self._read.lines

    @property
    def notices(self) -> tuple[str, ...]:
        """What of the log is damaged, in words."""
        return self._read.notices

    # -- trust -----------------------------------------------------------------------------

    @property
    def is_ours(self) -> bool:
        """Whether what the log names as its family may be loaded, and so run: a shipped one, or one
        that this user had named himself (`take_over`)."""
        return is_id(self.state.family) or any(mark.is_file() for mark in self._marks())

    def take_over(self) -> None:
        """Whoever calls this names the family of the log himself: later steps may load it.
        Where no mark can be kept, they ask again."""
        for mark in self._marks():
            with contextlib.suppress(OSError):
                mark.touch()

    def _marks(self) -> Iterator[Path]:
        """A file in this user's own folder, by the log's first line and the family's name."""
        folder = cache_dir("loops")
        if folder is not None and self.lines:
            yield folder / content_key(self.lines[0].hash, self.state.family)

    # -- steps -----------------------------------------------------------------------------

    def require(self, step: str) -> LoopState:
        """The state, if a step may come now. Raises OutOfOrder, naming the one that may."""
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
        legal = state.next_steps[0]
        done = STEPS[: STEPS.index(legal)]
        since = f"after {done[-1]}" if done else "at its beginning"
        raise OutOfOrder(
            f"{step} cannot come now.",
            f"round {state.round} stands {since}; its next step is {legal}",
            say_command(legal, self.path),
        )

    def plan(self, purpose: Purpose, points: Sequence[str]) -> tuple[str, ...]:
        """Say which points will be timed; gives those not yet timed this round for this purpose."""
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
        """The last measurement of a point, by its key, at the loop's own workload: of any round,
        purpose or call of the bench where none is named."""
        for line in reversed(self.lines):
            timed = line.event
            if (
                isinstance(timed, PointTimed)
                and timed.point == point
                and not timed.workload
                and round in (None, timed.round)
                and purpose in (None, timed.purpose)
                and (not calls or timed.call in calls)
            ):
                return timed
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
        """Add what happened, and give the state from now on. When this returns, it is on the disk.
        Raises OutOfOrder: the step may not come now."""
        if not self._writing:
            raise LabError(
                "This loop was opened to be read.", "", "the same through LoopFolder.opened"
            )
        kind = kind_of(event)
        if kind in STEPS:
            check_step(self.require(kind), event)
        self._append(event)
        if kind not in ("plan", "timed"):  # what is only measured stands in the log
            now = self.state.current.round
            self.write_files({now - 1, now})  # a restart ends a round, too
        return self.state

    def restart(self, entry: int) -> LoopState:
        """Begin the next round from a frontier entry, from 0; one under way is abandoned."""
        state = self.state
        if not 0 <= entry < len(state.frontier):
            why = f"its entries are 0 to {len(state.frontier) - 1}"
            following = f"{say_command('status', self.path)} lists them"
            if not state.frontier:
                why = "it is empty"
                following = say_command(*state.next_steps[:1] or ["status"], self.path)
            raise LabError(f"The frontier has no entry {entry}.", why, following)
        chosen = state.frontier[entry]
        begun = bool(state.history) and state.current.round == state.round
        number = state.round + 1 if begun else state.round
        return self.keep(LoopRestarted(number, entry, chosen.point, chosen.time_us))

    # -- files -----------------------------------------------------------------------------

    def write_files(self, rounds: Collection[int] | None = None) -> None:
        """Write what follows from the log and stands there otherwise, of some rounds or all."""
        state = self.state
        wanted = dict(files_of(state, self.lines, self.source, rounds))
        wanted[STATE_NAME] = adapter_of(LoopState).dump_json(state, indent=1).decode() + "\n"
        again = f"everything is in {self.log.path}; the next step writes the file again"
        for name, text in wanted.items():
            path, data = self.path / name, text.encode()
            # A log may hold any name, and a folder that was unpacked any link.
            if not (name.isprintable() and _is_within(path, self.path)):
                raise LabError(
                    f"{name!r} is no file of this loop.",
                    f"it lies outside {self.path}",
                    "status, summary and diff, which only read",
                )
            with disk(f"{path} cannot be written.", again):
                if not path.is_file() or path.read_bytes() != data:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(path, data)

    def _append(self, event: Any) -> None:
        line = self.log.append(event)
        self._fold.take(event)
        self._read = replace(self._read, lines=(*self._read.lines, line))

    def _load(self) -> None:
        if not self.holds_loop(self.path):
            _refuse_remains(self.path)
        self._read = self.log.read()
        self._fold = StateFold()
        for line in self._read.lines:
            self._fold.take(line.event)
        self.resumed = self.state.say_resumed()


_ROUND = re.compile(rf"{ROUND_PREFIX}[1-9][0-9]*")


def _refuse_remains(path: Path) -> None:
    """Refuse a folder whose log is gone, and which has files that followed from it."""
    try:
        names = os.listdir(path)
    except OSError:
        return  # nothing is there, or whoever wants to read or write says why it cannot
    rounds = sum(bool(_ROUND.fullmatch(name)) for name in names)
    there = [f"the files of {how_many(rounds, 'round')}"] if rounds else []
    with contextlib.suppress(OSError, *NO_BODY):
        if "log_hash" in json.loads((path / STATE_NAME).read_bytes()):
            there.insert(0, STATE_NAME)
    if there:
        lost = "has no whole line" if LOG_NAME in names else "is gone"
        raise LabError(
            f"{path} holds what is left of a loop.",
            f"{LOG_NAME} {lost}, and {' and '.join(there)} followed from it",
            "the loop once its log is there again; another folder for a new loop",
        )


def family_lost(folder: Path, family: str, because: LabError) -> LabError:
    """What is said of a loop whose family, as the loop names it, cannot be loaded."""
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


def _is_within(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
