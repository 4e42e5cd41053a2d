"""File locks, kept out of the folders that they guard."""

from __future__ import annotations

import getpass
import hashlib
import tempfile
from pathlib import Path

from filelock import FileLock


def lock_folder() -> Path:
    """A folder of this user for lock files; they may not litter a repository."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = "user"
    folder = Path(tempfile.gettempdir()) / f"labtools-locks-{user}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def file_lock(path: Path) -> FileLock:
    """The lock that guards one file, for every process of this user on this machine."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    return FileLock(str(lock_folder() / f"{name}.lock"))
