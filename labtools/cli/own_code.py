"""Limits on the Python of a rung, while a command loads it and asks it for its launches."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

LIMIT_S = 6.0
LIMIT_BYTES = 2**30


class DidNotEnd(BaseException):
    """It took too long. Nothing that catches ordinary errors catches this."""


@contextlib.contextmanager
def own_code() -> Iterator[None]:
    """Inside, Python that somebody wrote may take a few seconds and a GiB of memory more.

    Raises:
        DidNotEnd: it took longer.
        MemoryError: it took more.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    import resource

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise DidNotEnd(f"it did not end within {LIMIT_S:g} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        with contextlib.suppress(OSError, ValueError):  # a system without /proc
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + LIMIT_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
