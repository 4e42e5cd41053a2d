"""File locks, kept out of the folders that they guard."""

from __future__ import annotations

import hashlib
from pathlib import Path

from filelock import FileLock

from labtools.problem import LabError
from labtools.toolchain.cache import cache_dir, own_folder, temporary_folder


def lock_folder() -> Path:
    """A folder of this user alone for lock files; they may not litter a repository.

    Raises:
        LabError: there is none to be had.
    """
    folder = temporary_folder("locks")
    if own_folder(folder):
        return folder
    # Whoever took our name in the temporary folder is not to decide what is written.
    other = cache_dir("locks")
    if other is None:
        raise LabError(
            "There is no place for a lock.",
            f"{folder} cannot be made or belongs to another user, and there is no cache folder",
            "everything that writes no records; let TMPDIR name a folder of your own",
        )
    return other


def file_lock(path: Path) -> FileLock:
    """The lock that guards one file, for every process of this user on this machine.

    Raises:
        LabError: there is no place for it.
    """
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    return FileLock(str(lock_folder() / f"{name}.lock"))
