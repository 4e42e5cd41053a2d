"""``python full_disk.py FOLDER N...``: work on a disk that is full after N writes.

It runs with ``full_disk.c`` loaded. Each line that it prints is something that was said to be kept
and was not, or was kept twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from loop_play import play
from record_samples import make_record

from labtools.optimize.loop_folder import LoopFolder
from labtools.problem import LabError
from labtools.record import RecordStore
from labtools.record.journal import Journal, JournalError
from labtools.record.store import append_records
from labtools.toolchain import cache

_SHIM = ctypes.CDLL(None)


@contextlib.contextmanager
def full_after(writes: int, folder: Path) -> Iterator[None]:
    """Inside, so many writes below the folder fit."""
    _SHIM.full_disk(str(folder).encode(), ctypes.c_long(writes))
    try:
        yield
    finally:
        _SHIM.full_disk(b"", ctypes.c_long(-1))


def journal(folder: Path, writes: int) -> Iterator[str]:
    """Guesses and notes; each is read again at once, by another, and when there is room."""
    path = folder / "journal.sqlite"
    mine = Journal(path, reader="x")
    said = [mine.commit(f"begun{i}", "p", "faster", 2.0).question_id for i in range(writes % 3)]
    noted: dict[str, str] = {}

    def lost(where: str, one: Journal) -> Iterator[str]:
        kept = [row.prediction.question_id for row in one.history()]
        if kept != said:
            yield f"{where}: {said} was said, {kept} is there"
        for question, text in noted.items():
            found = one.notes(question)
            if found is None or found.fields != {"why": text}:
                yield f"{where}: the note of {question}"

    with full_after(writes, folder):
        for i in range(6):
            with contextlib.suppress(JournalError):
                said.append(mine.commit(f"q{i}", "p", "same", 1, "why" * 300).question_id)
            with contextlib.suppress(JournalError):
                mine.write_notes(f"q{i}", "p", {"why": str(i)})
                noted[f"q{i}"] = str(i)
            yield from lost(f"after {i}", mine)
        yield from lost("another, full", Journal(path, reader="x"))
    for where, one in (("mine", mine), ("another", Journal(path, reader="x"))):
        yield from lost(where, one)
    lines = mine.lines.read_bytes().split(b"\n") if mine.lines.exists() else []
    yield from (f"twice: {line!r}" for line, n in Counter(lines).items() if line and n > 1)


def records(folder: Path, writes: int) -> Iterator[str]:
    """Records appended to a file, of which some take the place of older ones."""
    path = folder / "mine" / ("a.jsonl.gz" if writes % 2 else "a.jsonl")
    said = []
    for i in range(writes % 3):
        append_records(path, [make_record(f"begun{i}")])
        said.append(f"begun{i}")
    if writes % 5 == 0 and said:  # damage, which must not be lost either
        path.write_bytes(path.read_bytes() + b"{half a line")
    store = RecordStore([folder])
    with full_after(writes, folder):
        for i in range(8):
            with contextlib.suppress(LabError):
                append_records(path, [make_record(f"q{i % 4}")], supersede=True)
                said = [name for name in said if name != f"q{i % 4}"] + [f"q{i % 4}"]
            kept = [record.candidate for record in store.load()]
            if kept != said:
                yield f"after {i}: {said} was said, {kept} is there"
    append_records(path, [make_record("last")])
    kept = [record.candidate for record in store.load()]
    if kept != [*said, "last"]:
        yield f"with room: {said} was said, {kept} is there"
    left = {one.name for one in path.parent.iterdir()} - {path.name}
    if any(not name.endswith(".damaged") for name in left):
        yield f"left over: {sorted(left)}"


def cached(folder: Path, writes: int) -> Iterator[str]:
    """Values and files of the cache: each call gives what it should, kept or not."""
    for i in (0, 1, 2, 0, 1, 2, 3, 3):
        with full_after(writes, folder), warnings.catch_warnings():
            warnings.simplefilter("ignore", cache.CacheWarning)
            value = cache.kept("text", [i, writes], lambda i=i: f"{i}" * 1000)
            path = cache.in_folder("cubins", lambda at, i=i: put(at / f"{i}", i), "files")
        if value != f"{i}" * 1000 or path.read_bytes() != b"%d" % i * 100:
            yield f"{i}: {value[:20]}, {path}"


def loop(folder: Path, writes: int) -> Iterator[str]:
    """A loop of one round, which goes on once there is room."""
    said: list[str] = []
    with full_after(writes, folder), contextlib.suppress(LabError):
        play(folder / "loop", said.append, rounds=1)
    play(folder / "loop", said.append, rounds=1)
    found = LoopFolder.look(folder / "loop")
    kept = [line.hash for line in found.lines]
    if lost := set(said) - set(kept):
        yield f"{len(lost)} of {len(said)} events"
    yield from found.notices
    if found.state.rounds != 1 or found.state.runs != 7:
        yield f"{found.state.rounds} rounds, {found.state.runs} runs"


def put(path: Path, number: int) -> Path:
    from labtools.record.whole import write_whole

    write_whole(path, b"%d" % number * 100)
    return path


def main(folder: Path, points: list[int]) -> None:
    """Try every kind of work at every point."""
    works: tuple[Callable[[Path, int], Iterator[str]], ...] = (*(journal, records, cached, loop),)
    for writes in points:
        for work in works:
            at = folder / f"{work.__name__}{writes}"
            at.mkdir()
            if work is cached:
                import os

                os.environ["XDG_CACHE_HOME"] = str(at)
            try:
                for lost in work(at, writes):
                    print(f"{work.__name__} {writes}: {lost}")
            except Exception as error:
                print(f"{work.__name__} {writes}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), [int(n) for n in sys.argv[2:]])
