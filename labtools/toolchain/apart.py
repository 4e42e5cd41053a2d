"""Work in a process of its own, which cannot take this one's time, memory or life.

A compiler that is called as a library cannot be stopped. So it is called in a copy of this process,
which has everything loaded and is there at once; it does the one thing and ends. Work of many equal
parts is shared among such copies, one a core.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import pickle
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from labtools.problem import LabError
from labtools.problem.address_space import limit_memory

from .errors import CompileError

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""
BYTES_FOR_A_COPY = 2**30
"""Memory of the machine for each copy of one process side by side; it takes some hundred MB."""
_CONTAINER_BYTES = Path("/sys/fs/cgroup/memory.max")
_NUMBER_BYTES = 4
LIMIT_VARIABLE = "LABTOOLS_COMPILE_LIMIT_S"
OWN_LIMIT_S = 60.0
"""Seconds of processor time for a compiler that was not asked about somebody's own kernel."""

COMPILE_BYTES = 5 * 2**28
"""Memory that a compiler may take; the shipped kernels take a tenth of it."""
_TOO_MUCH = "is too much for the compiler"

T = TypeVar("T")
R = TypeVar("R")


class SettingRefused(LabError):
    """An environment variable holds what it cannot. Commands end with status 2."""


def read_setting(variable: str, usual: float, of: str) -> float:
    """The number above 0 of an environment variable, ``usual`` where it is not set; ``of`` names it
    in the message. Raises SettingRefused: it is none."""
    given = os.environ.get(variable, "").strip()
    try:
        value = float(given or usual)
    except ValueError:
        value = 0.0
    if 0 < value < math.inf:
        return value
    why, still = f"it is {of}, a number above 0", f"unset it, and {usual:g} it is"
    raise SettingRefused(f"{variable} is {given!r}.", why, still)


def allowed_s(limit_s: float) -> float:
    """Seconds of processor time for one compilation: these, or more where the reader says so.
    Raises SettingRefused: he says no number."""
    allowed = read_setting(LIMIT_VARIABLE, limit_s, "what a compilation may take, in seconds")
    return max(limit_s, min(allowed, 86400.0))


class Stopped(Exception):
    """The work was stopped, or ended its process; says why in a few words."""


_forking = threading.Lock()


def can_work_apart() -> bool:
    """Whether this system can copy a process and limit the copy."""
    return sys.platform == "linux"


def work_apart(work: Callable[[], bytes], *, limit_s: float, limit_bytes: int) -> bytes:
    """What work in a copy of this process returns; what it raises does not come back.

    ``limit_s`` are seconds of processor time, and four times as many by the clock; ``limit_bytes``
    is memory beside what this process has.

    Raises Stopped: it did not end in that time, ran out of memory, or ended its process.
    """
    libc = ctypes.CDLL(None)  # before the copy: it must load nothing
    parent = os.getpid()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Threads of this process are not in the copy, which takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        with _forking:  # filelock refuses a fork while another thread is at one
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


def each_apart(
    work: Callable[[T], R], items: Sequence[T], *, limit_s: float, limit_bytes: int
) -> list[R]:
    """The answer of each item, as ``[work(item) for item in items]`` gives it, but in less time.

    Copies of this process, one a core, take the items in turn. What a copy cannot do, or does not
    end, is done here afterwards: so an error is raised as if there were no copies. ``work`` may
    keep things on disk; what else it changes is lost with the copy.
    """
    copies = min(len(items), copies_at_once())
    if copies < 2 or not can_work_apart():
        return [work(item) for item in items]
    done: dict[int, R] = {}
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)  # what a pipe does not hold is done here
        with contextlib.suppress(BlockingIOError):
            for number in range(len(items)):
                os.write(writer, number.to_bytes(_NUMBER_BYTES, "little"))
        os.set_blocking(reader, False)

        def share() -> bytes:
            return pickle.dumps(_take_items(work, items, reader))

        def wait(_: int) -> dict[int, R]:
            try:
                answers = work_apart(share, limit_s=limit_s, limit_bytes=limit_bytes)
            except Stopped:
                return {}
            return pickle.loads(answers)  # type: ignore[no-any-return]

        with threads(copies) as pool:
            for answers in pool.map(wait, range(copies)):
                done |= answers
    finally:
        os.close(reader)
        os.close(writer)
    return [done[number] if number in done else work(item) for number, item in enumerate(items)]


def run_compiler(work: Callable[[], T], name: str, limit_s: float) -> T:
    """What a compiler gives, in a process of its own where there can be one; ``name`` is what
    messages call the source, ``limit_s`` is processor time.

    Raises CompileError: it was stopped.
    """
    if not can_work_apart():
        return work()
    try:
        data = work_apart(lambda: pickle.dumps(work()), limit_s=limit_s, limit_bytes=COMPILE_BYTES)
    except Stopped as error:
        raise stopped_compiling(name, str(error)) from None
    return pickle.loads(data)  # type: ignore[no-any-return]


def was_stopped(said: str) -> bool:
    """Whether a failure in words is that of a compilation that was stopped: it says nothing of the
    kernel, since a busy machine, or another limit, would have said otherwise."""
    return _TOO_MUCH in said


def stopped_compiling(name: str, why: str) -> CompileError:
    """What to say of a compilation that was stopped."""
    return CompileError(
        f"{name} {_TOO_MUCH}.",
        f"{why}: the kernel unrolls, instantiates or includes far too much",
        f"every other kernel is unaffected; {LIMIT_VARIABLE} allows more seconds",
        file=name,
    )


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads, which have ended at the end of the block; where it is left by an error, such
    as a reader's Ctrl-C, nobody waits for them."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def copies_at_once() -> int:
    """How many copies of this process may work side by side: one a core, if the memory allows."""
    return max(1, min(usable_cores(), installed_bytes() // BYTES_FOR_A_COPY))


def installed_bytes() -> int:
    """The memory of this machine or, in a container, what that may take; 4 GiB if none says."""
    known = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):  # the word "max" is no limit
        known.append(int(_CONTAINER_BYTES.read_text()))
    return min(known, default=4 * 2**30)


def _take_items(work: Callable[[T], R], items: Sequence[T], reader: int) -> dict[int, R]:
    """Do items until none is left; their numbers come out of a pipe that all copies read."""
    done: dict[int, R] = {}
    with contextlib.suppress(BlockingIOError):
        while number := os.read(reader, _NUMBER_BYTES):
            place = int.from_bytes(number, "little")
            try:
                done[place] = work(items[place])
            except Exception:  # it is done once more, where it can be raised
                continue
    return done


def _be_the_copy(
    work: Callable[[], bytes],
    writer: int,
    parent: int,
    libc: ctypes.CDLL,
    limit_s: float,
    limit_bytes: int,
) -> None:
    """Never returns."""
    global _forking
    _forking = threading.Lock()  # the copy's is held by nobody
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
