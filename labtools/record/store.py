"""Records on disk: compressed JSON lines, one file a GPU and campaign plan."""

from __future__ import annotations

import gzip
import os
import time
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from labtools.problem import LabError, Problem
from labtools.problem.errors import Notice
from labtools.toolchain.cache import Recent
from labtools.toolchain.garbage import no_collection

from .folders import own_records_dir, shipped_records_dir
from .query import select
from .schema import Record
from .trust import contradictions, hash_file, is_signed, shipped_problems
from .whole import file_lock, is_left_over, remove_left_over, write_whole

_MOST_BYTES = 256 * 2**20
"""Of a file, inflated; all shipped ones together take a twentieth of it."""
_MOST_TOLD = 100
"""Damaged lines of a file that are told one by one."""
_ENDINGS = (".jsonl.gz", ".jsonl")


class DamagedRecordWarning(Notice):
    """A line or a file of records could not be read; the others were."""


class RecordStore:
    """Every record in some folders; None takes the shipped records and the reader's own. `load`
    fills ``problems``: what could not be read, or is not as the project ships it."""

    def __init__(self, folders: Sequence[Path | str] | None = None) -> None:
        if folders is None:
            folders = (shipped_records_dir(), own_records_dir())
        self.folders = tuple(Path(folder) for folder in folders)
        self.problems: list[LabError] = []

    def files(self) -> list[Path]:
        """The record files, sorted by path. What killed writers left beside them goes."""
        found: list[Path] = []
        for folder in self.folders:
            for path in sorted(folder.rglob("*")):
                if is_left_over(path):
                    remove_left_over(path)
                elif path.name.endswith(_ENDINGS) and not path.name.startswith("."):
                    found.append(path)
        return found

    def load(self) -> list[Record]:
        """Every record that can be read. A damaged line or file is warned about and left out."""
        self.problems = []
        records: list[Record] = []
        shipped = shipped_records_dir()
        ours = shipped in self.folders
        changed: dict[str, bool] = {}
        for path in self.files():
            held = _read(path)
            records += held.records
            self.problems += held.problems
            if ours and path.is_relative_to(shipped):
                changed[path.relative_to(shipped).as_posix()] = held.signed
        if ours:
            self.problems += shipped_problems(changed)
        for problem in self.problems:
            warnings.warn(str(problem), DamagedRecordWarning, stacklevel=2)
        return records

    def query(
        self,
        gpu: str | None = None,
        rung: str | None = None,
        workload: Problem | str | Mapping[str, Any] | None = None,
        knobs: Mapping[str, int] | None = None,
        *,
        latest: bool = True,
        **fits: Any,
    ) -> list[Record]:
        """The records that fit, newest first: `select` over all that the folders hold."""
        fits |= {"gpu": gpu, "candidate": rung, "workload": workload, "knobs": knobs}
        return select(self.load(), latest=latest, **fits)

    def append(
        self, path: Path | str, records: Iterable[Record], *, supersede: bool = False
    ) -> Path:
        """`append_records`; a relative path is under the first folder."""
        return append_records(self.folders[0] / path, records, supersede=supersede)


def append_records(path: Path, records: Iterable[Record], *, supersede: bool = False) -> Path:
    """Add records to a file so that a reader or a crash never sees half of them.

    The file, ``.jsonl.gz`` or ``.jsonl``, is written anew under a lock; what could not be read in
    it is kept in a copy named ``.damaged``. ``supersede`` drops older records of the same GPU,
    candidate, knobs and workload.
    """
    if not path.name.endswith(_ENDINGS):
        why = f"it must end in {' or '.join(_ENDINGS)}"
        raise LabError(f"{path.name} is no name for a file of records.", why, "choose another name")
    added = list(records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path):
            old, problems = read_records(path) if path.exists() else ([], [])
            if problems:
                said = f"{path} was damaged; what it held is kept in {_set_aside(path)}."
                warnings.warn(f"{said} {problems[0].what}", DamagedRecordWarning, stacklevel=2)
            if supersede:
                gone = {record.identity() for record in added}
                old = [record for record in old if record.identity() not in gone]
            data = "".join(record.model_dump_json() + "\n" for record in [*old, *added]).encode()
            if path.name.endswith(".gz"):
                data = gzip.compress(data, 9, mtime=0)  # equal records give an equal file
            write_whole(path, data, durable=True)
    except OSError as error:
        what, why = f"The records could not be written to {path}.", error.strerror or str(error)
        raise LabError(what, why, "give another folder with --out") from error
    return path


def _set_aside(path: Path) -> Path:
    """A copy of a damaged file, beside it; what an earlier copy held is not lost."""
    data = path.read_bytes()
    copy = path.with_name(f".{path.name}.damaged")
    if copy.exists() and copy.read_bytes() != data:
        copy = path.with_name(f".{path.name}.{hash_file(data)[:12]}.damaged")
    write_whole(copy, data, durable=True)
    return copy


def read_records(path: Path) -> tuple[list[Record], list[LabError]]:
    """The records of one file, and what of it could not be read. A file is read once in a process,
    and again when it changed."""
    held = _read(path)
    return list(held.records), list(held.problems)


def _read(path: Path) -> _Contents:
    try:
        if not path.is_file():  # reading a device or a pipe may never end
            raise OSError("it is no file")
        with path.open("rb") as file:
            mark = _MARK(os.fstat(file.fileno()))
            kept = _files.get(str(path))
            if kept is None or kept.mark != mark:
                began_ns = time.time_ns()
                data = file.read(_MOST_BYTES)
                signed = is_signed(path, data)
                with no_collection():  # records hold no circles
                    kept = _Contents(mark, *_parse_records(path, data, signed), signed)
                if began_ns - max(mark[:2]) > _SETTLED_NS:
                    _files.put(str(path), kept)
    except OSError as error:
        problem = _damage(path, None, error.strerror or str(error))
        return _Contents((), [], [problem], False)
    return kept


@dataclass(frozen=True)
class _Contents:
    """What a file held when it had this mark."""

    mark: tuple[int, ...]  # what changes when a file does
    records: list[Record]
    problems: list[LabError]
    signed: bool


_SETTLED_NS = 100_000_000
"""A file that changed less long ago may change again within one tick of its clock."""
_files: Recent[_Contents] = Recent(256)
_MARK = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_dev", "st_ino")


def _parse_records(path: Path, data: bytes, signed: bool) -> tuple[list[Record], list[LabError]]:
    """The records of a file's bytes; what others than the project's own say is computed again."""
    data, complaint = _inflate(data) if path.name.endswith(".gz") else (data, "")
    problems = [_damage(path, None, complaint)] if complaint else []
    lines = data.split(b"\n")
    if complaint:
        lines.pop()  # the file breaks off in this line
    records: list[Record] = []
    damaged: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = Record.model_validate_json(line)
            why = "" if signed else "; ".join(contradictions(record))
        except Exception as error:  # a line may hold anything, and each kind fails in its own way
            why = _first_complaint(error)
        if why:
            damaged.append((number, why))
        else:
            records.append(record.model_copy(update={"file": str(path), "signed": signed}))
    problems += [_damage(path, number, why) for number, why in damaged[:_MOST_TOLD]]
    if more := len(damaged[_MOST_TOLD:]):
        problems.append(_damage(path, None, f"{more} more of its lines are damaged"))
    return records, problems


def _inflate(data: bytes) -> tuple[bytes, str]:
    """Everything up to the first damage, and what the damage is (empty: none)."""
    pieces: list[bytes] = []
    size = 0
    while data:
        inflater = zlib.decompressobj(wbits=31)
        try:
            # Small steps: what stands before the damage must come out before it is met.
            for start in range(0, len(data), 512):
                pieces.append(inflater.decompress(data[start : start + 512]))
                size += len(pieces[-1])
                if size > _MOST_BYTES:
                    return b"".join(pieces), f"it holds more than {_MOST_BYTES // 2**20} MiB"
                if inflater.eof:
                    data = inflater.unused_data + data[start + 512 :]
                    break
            else:
                return b"".join(pieces), "the compressed file breaks off"
        except zlib.error as error:
            return b"".join(pieces), f"the compression is damaged ({error})"
    return b"".join(pieces), ""


def _damage(path: Path, line: int | None, why: str) -> LabError:
    place = f"Line {line} of {path}" if line is not None else f"The file {path}"
    still = "every other record is kept; a shipped file comes back with git checkout"
    return LabError(f"{place} could not be read as records.", why, still)


def _first_complaint(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return f"{type(error).__name__}: {error}" if not isinstance(error, LabError) else error.what
