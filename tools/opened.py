"""Which files of the repository a process opens: what a page was made from.

Imported by the kernels of pages, so it imports nothing that Python has not loaded anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

_LOOKED_AT = ("open", "os.listdir", "os.scandir")


class _Watch:
    """What begins with ``root`` is added to the file ``log``."""

    def __init__(self, root: str, log: str) -> None:
        self.root, self.log = root, log
        self.seen: set[str] = set()


_watch: _Watch | None = None
_hooked = False
"""A hook stays for good, and Python calls it very often: so there is one, in copies too."""


def watch_opened(root: str, log: str) -> Callable[[], None]:
    """Write down which files and folders Python opens in this process and its copies.

    Absolute paths that begin with ``root`` are added to the file ``log``, one a line. Returns what
    ends the watch; another one ends it too.
    """
    global _watch, _hooked
    _watch = mine = _Watch(root, log)
    if not _hooked:
        sys.addaudithook(_look)
        _hooked = True

    def end() -> None:
        global _watch
        if _watch is mine:
            _watch = None

    return end


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _LOOKED_AT or _watch is None or not isinstance(arguments[0], (str, bytes)):
        return
    name = os.fsdecode(arguments[0])
    if event == "open" and arguments[1] is None and not os.path.isabs(name):
        return  # relative to an open folder: so a tree elsewhere is removed
    path, watch = os.path.abspath(name), _watch
    if path.startswith(watch.root) and path not in watch.seen:
        watch.seen.add(path)
        handle = os.open(watch.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, path.encode() + b"\n")
        os.close(handle)
