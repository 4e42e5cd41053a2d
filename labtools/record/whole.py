"""Files that are whole or not there, and the locks that guard them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock

from labtools.problem import LabError
from labtools.toolchain.cache import cache_dir, own_folder

_PART = ".part"
"""How a file ends that is being written. Its writer holds a lock on it, which ends with the
process."""


def write_whole(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o644) -> None:
    """Write a file beside its place and move it there: a reader never finds a part of it.

    A link stays, and what it names is written. What a killed process left beside it goes first.
    ``durable`` waits until the disk has it.

    Raises OSError: it could not be written, or is a device, a folder or a pipe; what stood there
    is untouched.
    """
    path = Path(os.path.realpath(path))
    if (path.exists() and not path.is_file()) or path.is_symlink():
        raise OSError(errno.EINVAL, "it is no file", str(path))
    for left in path.parent.glob(f".*{_PART}"):
        remove_left_over(left)
    handle, beside = _begin(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
            os.chmod(beside, mode)
            os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    if durable:
        with contextlib.suppress(OSError):  # it stands there, whatever the disk says of its name
            sync_folder(path.parent)


def is_left_over(path: Path) -> bool:
    """Whether a file is called as one that is being written, or whose writer was killed."""
    return path.name.startswith(".") and path.name.endswith(_PART)


def remove_left_over(path: Path) -> None:
    """Remove a file that `is_left_over`, unless its writer is alive."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR)
        try:
            if lock_now(handle) is True:
                path.unlink()
        finally:
            os.close(handle)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Add lines, without their ends, to a file and wait until they are on disk.

    What could not be written whole is undone. A last line without its end, which a process left
    that died in mid-line, is left alone: a new line begins behind it.

    Raises OSError: they could not be written.
    """
    text = "".join(line + "\n" for line in lines).encode()
    with open(path, "ab+", buffering=0) as file:
        before = file.tell()
        if not before:
            sync_folder(path.parent)  # it may be new
        if before and not _ends_with_newline(file):
            text = b"\n" + text
        try:
            left = memoryview(text)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    last: bytes = file.read(1)
    return last == b"\n"


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable too, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _begin(path: Path) -> tuple[int, str]:
    """A new file beside another, with its lock. Between the two somebody may take it for left
    over; then there is another."""
    while True:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_PART)
        if lock_now(handle) is not False and os.fstat(handle).st_nlink:
            return handle, beside
        os.close(handle)
        Path(beside).unlink(missing_ok=True)


def lock_now(handle: int) -> bool | None:
    """Take the lock of an open file: False where another process has it, None where the system or
    the disk knows none."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


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
    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:24]
    return FileLock(str(lock_folder() / f"{name}.lock"))
