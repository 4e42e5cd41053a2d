"""What a record may not say, and whether a file of records is the project's own.

A list of hashes, which `tools.write_manifest` writes, binds the project's files. A record from
elsewhere is unsigned: it is read as far as it agrees with itself, and is shown as what it is.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from labtools.problem import LabError

from .folders import shipped_records_dir
from .schema import Record, slug_of_gpu
from .statistics import median_problems

MANIFEST = "manifest.json"
"""The list, beside the files that it binds."""
CLOCKS_DIFFER = timedelta(days=1)
_LOOSEST, _LOOSEST_OF_FOUR_BITS = 0.1, 0.3
"""Of any record: that of a library which computes in eight bits, or keeps K and V in four."""
LEAST_ERROR = {"float16": 1e-5, "bfloat16": 8e-5}
"""Rounding an output to its type leaves ten times this at least."""


def loosest_check(kv_bits: int) -> float:
    """The largest relative error that a record may allow a kernel that keeps an element of what it
    streams in so many bits."""
    return _LOOSEST if kv_bits >= 8 else _LOOSEST_OF_FOUR_BITS


def contradictions(record: Record) -> list[str]:
    """What in a record cannot be true beside the rest of it, in sentences; empty when all agrees.

    A record that contradicts itself is not used.
    """
    found = median_problems(record)
    if not record.comparison.ok:
        found.append("its kernel was wrong, and a wrong kernel has no time")
    error, allowed = record.comparison.worst_error, record.comparison.tolerance
    if error is not None and not (allowed is not None and 0 <= error <= allowed):
        found.append(f"its kernel is off by {error:g}, where {allowed or 0:g} is allowed")
    most = loosest_check(record.kv_bits)
    if allowed is not None and allowed > most:
        found.append(f"it was held against {allowed:g}, and at most {most:g} is allowed")
    made = record.provenance
    if slug_of_gpu(made.gpu).replace("-", "") != made.gpu_slug.replace("-", ""):
        found.append(f"its GPU is {made.gpu!r}, and it is filed under {made.gpu_slug!r}")
    if record.limits is not None and record.limits.arch != made.arch:
        found.append(f"its GPU is an {made.arch}, and it was laid out for an {record.limits.arch}")
    if (record.kind == "rung") != (":" not in record.candidate):
        found.append(f"{record.candidate} is no {record.kind}")
    return found


def doubts(record: Record) -> list[str]:
    """What in an unsigned record can hardly be true, in sentences. It is shown all the same."""
    if record.signed:
        return []
    found = []
    date = record.provenance.date
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    if date > datetime.now(UTC) + CLOCKS_DIFFER:
        found.append(f"it is dated {date:%Y-%m-%d}, which is still to come")
    error = record.comparison.worst_error
    if (
        error is not None
        and error < LEAST_ERROR.get(record.problem.dtype, 0.0)
        and record.kind == "rung"
    ):
        found.append(f"its error of {error:g} is less than rounding its output leaves")
    best = record.limits.dram_gb_per_s if record.limits else None
    cold = record.problem.cache_state == "cold"
    if best and cold and record.gb_per_s > best:
        found.append(f"it reads {record.gb_per_s:,.0f} GB/s, and the memory gives {best:,.0f}")
    return found


# ---------------------------------------------------------------------------------- whose files


def hash_file(data: bytes) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def read_manifest(folder: Path | None = None) -> Mapping[str, str]:
    """The hashes of the project's files of records, by path below their folder."""
    path = (folder or shipped_records_dir()) / MANIFEST
    try:
        return _read_manifest(path, path.stat().st_mtime_ns)
    except (OSError, ValueError) as error:
        what = "The list of the shipped records cannot be read."
        still = "every record is read and is shown as unsigned; git checkout brings the list back"
        raise LabError(what, f"{path}: {error}", still) from error


@functools.lru_cache(maxsize=4)
def _read_manifest(path: Path, _changed_ns: int) -> Mapping[str, str]:
    found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict) or not all(isinstance(held, str) for held in found.values()):
        raise ValueError("it is no list of files and hashes")
    return found


def is_signed(path: Path, data: bytes) -> bool:
    """Whether these are the bytes of one of the project's own files, at its own place."""
    folder = shipped_records_dir().resolve()
    try:
        name = path.resolve().relative_to(folder).as_posix()
        return read_manifest().get(name) == hash_file(data)
    except (LabError, ValueError, OSError):
        return False


def shipped_problems(changed: Mapping[str, bool]) -> list[LabError]:
    """What is not as the project ships it, of the files that are there, each signed or not."""
    try:
        wanted = read_manifest()
    except LabError as error:
        return [error]
    folder = shipped_records_dir()
    named = "the project's list of files names it"
    still = "what other files hold; git checkout brings it back"
    gone = [folder / name for name in sorted(wanted) if not (folder / name).is_file()]
    found = [LabError(f"The shipped file {path} is missing.", named, still) for path in gone]
    still = "its records are shown as unsigned; git checkout brings a shipped file back, "
    still += "and make record binds what was measured anew"
    for name in sorted(name for name, signed in changed.items() if not signed):
        why = "its bytes are others" if name in wanted else "the list does not name it"
        what = f"The file {folder / name} is not one that the project ships."
        found.append(LabError(what, why, still))
    return found
