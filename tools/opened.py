"""Which files of the repository a process opens: what a page was made from.

Imported by the kernels of pages, so it imports nothing that Python has not loaded anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

_LOOKED_AT = ("open", "os.listdir", "os.scandir")


def watch_opened(root: str, log: str) -> Callable[[], None]:
    """Write down which files and folders Python opens in this process and its copies.

    Absolute paths that begin with ``root`` are added to the file ``log``, one a line. Returns what
    ends the watch.
    """
    seen: set[str] = set()
    watching = True

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching or event not in _LOOKED_AT or not isinstance(arguments[0], (str, bytes)):
            return
        name = os.fsdecode(arguments[0])
        if event == "open" and arguments[1] is None and not os.path.isabs(name):
            return  # relative to an open folder: so a tree elsewhere is removed
        path = os.path.abspath(name)
        if path.startswith(root) and path not in seen:
            seen.add(path)
            handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, path.encode() + b"\n")
            os.close(handle)

    def end() -> None:
        nonlocal watching
        watching = False

    sys.addaudithook(look)  # it stays for good
    return end
