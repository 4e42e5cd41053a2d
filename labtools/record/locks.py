"""File locks, kept out of the folders that they guard."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from filelock import FileLock

from labtools.problem import LabError
from labtools.toolchain.cache import cache_dir, own_folder


def lock_folder() -> Path:
    """A folder of this user alone for lock files; they may not litter a repository."""
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    passing = Path(tempfile.gettempdir()) / f"labtools-locks{user}"
    folder = passing if own_folder(passing) else cache_dir("locks")
    if folder is None:
        why = f"{passing} cannot be made or belongs to another user, and there is no cache folder"
        still = "everything that writes no records; let TMPDIR name a folder of your own"
        raise LabError("There is no place for a lock.", why, still)
    return folder


def file_lock(path: Path) -> FileLock:
    """The lock that guards one file, for every process of this user on this machine."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    return FileLock(str(lock_folder() / f"{name}.lock"))
