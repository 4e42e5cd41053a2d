"""Work in a process of its own, which cannot take this one's time, memory or life.

A compiler that is called as a library cannot be stopped. So it is called in a copy of this process,
which has everything loaded and is there at once; it does the one thing and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""


class Stopped(Exception):
    """The work was stopped, or ended its process; says why in a few words."""


def can_work_apart() -> bool:
    """Whether this system can copy a process and limit the copy."""
    return sys.platform == "linux"


def limit_memory(more_bytes: int) -> tuple[int, int]:
    """Let this process take so much address space beside what it has, and no more.

    Returns:
        The limits that it had, for ``resource.setrlimit``; a system without /proc keeps them.
    """
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + more_bytes
        if all(limit == resource.RLIM_INFINITY or most < limit for limit in before):
            resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    return before


def work_apart(work: Callable[[], bytes], *, limit_s: float, limit_bytes: int) -> bytes:
    """Do work in a copy of this process.

    Args:
        work: what it returns comes back; what it raises does not, so it must say that itself.
        limit_s: seconds of processor time, and four times as many by the clock.
        limit_bytes: how much memory it may take, beside what this process has.

    Raises:
        Stopped: it did not end in that time, ran out of memory, or ended its process.
    """
    libc = ctypes.CDLL(None)  # before the copy: it must load nothing
    parent = os.getpid()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Threads of this process are not in the copy, which takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _be_the_copy(work, writer, parent, libc, limit_s, limit_bytes)
    os.close(writer)
    deadline = time.monotonic() + 4 * limit_s
    pieces, late = [], False
    try:
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([reader], [], [], left_s)[0]:
                late = True
                break
            piece = os.read(reader, 1 << 20)
            if not piece:
                break
            pieces.append(piece)
    finally:
        os.close(reader)
        # Its last piece is its end of the pipe: it lives only if it is late.
        if late or sys.exc_info()[0] is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
        raise Stopped(f"it did not end within {limit_s:g} s of processor time")
    answer = b"".join(pieces)
    if status or answer[:1] != b"+":
        raise Stopped(f"it ran out of memory, of which it may take {limit_bytes / 2**30:.1f} GiB")
    return answer[1:]


def _be_the_copy(
    work: Callable[[], bytes],
    writer: int,
    parent: int,
    libc: ctypes.CDLL,
    limit_s: float,
    limit_bytes: int,
) -> None:
    """Never returns."""
    try:
        import faulthandler
        import resource

        faulthandler.disable()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):  # what the compiler cries out when it has no memory
            os.dup2(nothing, stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        seconds = max(1, int(limit_s + 0.999))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        limit_memory(limit_bytes)
        left = memoryview(b"+" + work())
        while left:
            left = left[os.write(writer, left) :]
        os._exit(0)
    except BaseException:
        os._exit(1)
