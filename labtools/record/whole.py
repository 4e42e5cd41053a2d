"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

_PART = ".part"
"""How a file ends that is being written. Its writer holds a lock on it, which ends with the
process."""


def write_whole(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o644) -> None:
    """Write a file beside its place and move it there: a reader never finds a part of it.

    What a killed process left beside it goes first.

    Args:
        path: the file; its folder is there.
        data: all that it holds.
        durable: wait until the disk has it, before the old file goes.
        mode: its permissions.

    Raises:
        OSError: it could not be written; what stood there is untouched.
    """
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
