"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o644) -> None:
    """Write a file beside its place and move it there: a reader never finds a part of it.

    Args:
        path: the file; its folder is there.
        data: all that it holds.
        durable: wait until the disk has it, before the old file goes.
        mode: its permissions.

    Raises:
        OSError: it could not be written; what stood there is untouched.
    """
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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
