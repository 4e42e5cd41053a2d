"""Records on disk: compressed JSON lines, one file a GPU and campaign plan."""

from __future__ import annotations

import gzip
import os
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from labtools.problem import LabError, Workload, kernels_dir, repository_root

from .locks import file_lock
from .schema import Record, slug_of_gpu

MOST_BYTES = 15 * 1024 * 1024
"""All shipped records together stay under this size."""

_ENDINGS = (".jsonl.gz", ".jsonl")


class DamagedRecordWarning(UserWarning):
    """A line or a file of records could not be read; the others were."""


def shipped_records_dir() -> Path:
    """Where the records of the repository are."""
    return kernels_dir() / "records"


def own_records_dir() -> Path:
    """Where a reader's own records go; git ignores it."""
    return repository_root() / "work" / "records"


class RecordStore:
    """Every record in some folders.

    Args:
        folders: searched with their sub-folders; None takes the shipped records and the
            reader's own. A folder that does not exist is empty.

    Attributes:
        problems: what could not be read, filled by `load` and `query`.
    """

    def __init__(self, folders: Sequence[Path | str] | None = None) -> None:
        if folders is None:
            folders = (shipped_records_dir(), own_records_dir())
        self.folders = tuple(Path(folder) for folder in folders)
        self.problems: list[LabError] = []

    def files(self) -> list[Path]:
        """The record files, sorted by path."""
        found: list[Path] = []
        for folder in self.folders:
            for path in sorted(folder.rglob("*")):
                if path.name.endswith(_ENDINGS) and not path.name.startswith("."):
                    found.append(path)
        return found

    def load(self) -> list[Record]:
        """Every record that can be read. A damaged line or file is warned about and left out."""
        self.problems = []
        records = []
        for path in self.files():
            found, problems = read_records(path)
            records += found
            self.problems += problems
        for problem in self.problems:
            warnings.warn(str(problem), DamagedRecordWarning, stacklevel=2)
        return records

    def query(
        self,
        gpu: str | None = None,
        rung: str | None = None,
        workload: Workload | str | Mapping[str, Any] | None = None,
        knobs: Mapping[str, int] | None = None,
        *,
        kind: str | None = None,
        experiment: str | None = "",
        latest: bool = True,
    ) -> list[Record]:
        """The records that fit, newest first.

        Args:
            gpu: slug (``h200``) or name (``NVIDIA H200``).
            rung: a candidate: ``r03_one_warp``, ``r03``, ``baseline:sdpa`` or ``sdpa``.
            workload: a Workload, its short form, or its fields.
            knobs: every knob named here must have this value; others may have any.
            kind: ``rung``, ``baseline`` or ``ceiling``.
            experiment: what was done to the candidate, as in a record; by default nothing, so
                that an experiment is not taken for the rung. None takes all.
            latest: keep only the newest of several records of the same thing. Of the shipped ones,
                a record that was timed beside baselines is kept before one that was not, because
                it can be compared.
        """
        key = _workload_key(workload)
        loaded = self.load()
        fitting = [
            record
            for record in loaded
            if (gpu is None or _gpu_fits(record, gpu))
            and (rung is None or record.is_candidate(rung))
            and (key is None or record.problem.key() == key)
            and (kind is None or record.kind == kind)
            and (experiment is None or record.experiment == experiment)
            and all(record.knobs.get(name) == value for name, value in (knobs or {}).items())
        ]
        fitting.sort(key=lambda record: record.provenance.date, reverse=True)
        if not latest:
            return fitting
        compared = {record.campaign for record in loaded if record.kind == "baseline"}
        shipped = str(shipped_records_dir())
        newest: dict[tuple[str, ...], Record] = {}
        alone: dict[tuple[str, ...], Record] = {}
        for record in fitting:
            ours = (record.file or "").startswith(shipped)
            kept = newest if record.campaign in compared or not ours else alone
            kept.setdefault(record.identity(), record)
        chosen = list({**alone, **newest}.values())
        return sorted(chosen, key=lambda record: record.provenance.date, reverse=True)

    def append(
        self, path: Path | str, records: Iterable[Record], *, supersede: bool = False
    ) -> Path:
        """`append_records`; a relative path is under the first folder."""
        target = Path(path)
        if not target.is_absolute():
            target = self.folders[0] / target
        return append_records(target, records, supersede=supersede)


def append_records(path: Path, records: Iterable[Record], *, supersede: bool = False) -> Path:
    """Add records to a file so that a reader or a crash never sees half of them.

    The file is written anew beside the old one and renamed over it, under a lock. What could not
    be read in the old file is kept in a copy named ``.damaged``.

    Args:
        path: ends in ``.jsonl.gz`` or ``.jsonl``; folders are made.
        records: what to add.
        supersede: drop older records of the same GPU, candidate, knobs and workload.

    Raises:
        LabError: the file cannot be written.
    """
    if not path.name.endswith(_ENDINGS):
        raise LabError(
            f"{path.name} is no name for a file of records.",
            f"it must end in {' or '.join(_ENDINGS)}",
            "choose another name",
        )
    added = list(records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path):
            old, problems = read_records(path) if path.exists() else ([], [])
            if problems:
                damaged = path.with_name(f".{path.name}.damaged")
                damaged.write_bytes(path.read_bytes())
                warnings.warn(
                    f"{path} was damaged; what it held is kept in {damaged}. {problems[0].what}",
                    DamagedRecordWarning,
                    stacklevel=2,
                )
            if supersede:
                gone = {record.identity() for record in added}
                old = [record for record in old if record.identity() not in gone]
            _write_whole(path, [*old, *added])
    except OSError as error:
        raise LabError(
            f"The records could not be written to {path}.",
            error.strerror or str(error),
            "give another folder with --out",
        ) from error
    return path


def _write_whole(path: Path, records: list[Record]) -> None:
    text = "".join(record.model_dump_json() + "\n" for record in records)
    data = text.encode()
    if path.name.endswith(".gz"):
        data = gzip.compress(data, 9, mtime=0)  # equal records give an equal file
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_records(path: Path) -> tuple[list[Record], list[LabError]]:
    """The records of one file, and what of it could not be read."""
    problems: list[LabError] = []
    breaks_off = False
    try:
        data = path.read_bytes()
    except OSError as error:
        return [], [_damage(path, None, error.strerror or str(error))]
    if path.name.endswith(".gz"):
        data, complaint = _inflate(data)
        breaks_off = bool(complaint)
        if complaint:
            problems.append(_damage(path, None, complaint))
    records: list[Record] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if breaks_off and number == len(lines):
            continue  # the file breaks off in this line, which was reported already
        try:
            record = Record.model_validate_json(line)
        except (ValidationError, UnicodeDecodeError) as error:
            problems.append(_damage(path, number, _first_complaint(error)))
        else:
            records.append(record.model_copy(update={"file": str(path)}))
    return records, problems


def _inflate(data: bytes) -> tuple[bytes, str]:
    """Everything up to the first damage, and what the damage is (empty: none)."""
    pieces: list[bytes] = []
    while data:
        inflater = zlib.decompressobj(wbits=31)
        try:
            # Small steps: what stands before the damage must come out before it is met.
            for start in range(0, len(data), 512):
                pieces.append(inflater.decompress(data[start : start + 512]))
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
    return LabError(
        f"{place} could not be read as records.",
        why,
        "every other record is kept; a shipped file comes back with git checkout",
    )


def _first_complaint(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return str(error)


def _workload_key(workload: Workload | str | Mapping[str, Any] | None) -> str | None:
    if workload is None:
        return None
    if isinstance(workload, str):
        workload = Workload.parse(workload)
    elif not isinstance(workload, Workload):
        workload = Workload.from_dict(dict(workload))
    return workload.key()


def _gpu_fits(record: Record, gpu: str) -> bool:
    # ``rtx4090``, ``rtx-4090`` and ``NVIDIA GeForce RTX 4090`` are one GPU; ``a100`` is any A100.
    slug, wanted = record.provenance.gpu_slug, slug_of_gpu(gpu)
    return slug.replace("-", "") == wanted.replace("-", "") or slug.startswith(f"{wanted}-")


def total_bytes(folder: Path | None = None) -> int:
    """Size of the shipped record files together."""
    files: Iterator[Path] = (folder or shipped_records_dir()).rglob("*")
    return sum(path.stat().st_size for path in files if path.name.endswith(_ENDINGS))
