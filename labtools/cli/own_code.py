"""Limits on the Python of a rung, whenever a command loads it or asks it for something."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from labtools.problem import Rung

LIMIT_S = 6.0
LIMIT_BYTES = 2**30
GRACE_S = 1.0
"""What does not heed the end of its time ends with the process so much later."""


class DidNotEnd(BaseException):
    """It took too long. Nothing that catches ordinary errors catches this."""


class StoppedItself(Exception):
    """It raised what a reader's Ctrl-C raises, and there was none."""


@contextlib.contextmanager
def own_code() -> Iterator[None]:
    """Inside, Python that somebody wrote may take a few seconds and a GiB of memory more.

    Raises:
        DidNotEnd: it took longer.
        MemoryError: it took more.
        StoppedItself: it raised KeyboardInterrupt.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    import resource

    from labtools.toolchain.apart import limit_memory

    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the next one ends the process
        raise DidNotEnd(f"it did not end within {LIMIT_S:g} s")

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if callable(handler := handlers[number]):
            handler(number, frame)

    handlers: dict[int, Any] = {signal.SIGALRM: signal.signal(signal.SIGALRM, stop)}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            handlers[number] = signal.signal(number, note)
    memory = limit_memory(LIMIT_BYTES)
    # A library that computes for long hears no signal; the system ends it.
    seconds = resource.getrlimit(resource.RLIMIT_CPU)
    used_s = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S, GRACE_S)
        with contextlib.suppress(ValueError, OSError):
            most = int(used_s + LIMIT_S + GRACE_S) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (most, seconds[1]))
        yield
    except KeyboardInterrupt as error:
        if asked:
            raise
        raise StoppedItself("it raised KeyboardInterrupt, and nobody had asked for that") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in handlers.items():
            signal.signal(one, handler)
        resource.setrlimit(resource.RLIMIT_CPU, seconds)
        resource.setrlimit(resource.RLIMIT_AS, memory)


def guard(rung: Rung) -> Rung:
    """The rung, each of whose functions runs in `own_code` from now on."""
    import dataclasses

    from labtools.problem.rung import OfOperation

    asked = rung.supports
    assert isinstance(asked, OfOperation)  # a rung sees to it
    return dataclasses.replace(
        rung,
        launch=_guarded(rung.launch),
        stores=rung.stores and _guarded(rung.stores),
        plan=rung.plan and _guarded(rung.plan),
        defines_extra=rung.defines_extra and _guarded(rung.defines_extra),
        supports=dataclasses.replace(asked, asked=_guarded(asked.asked)),
    )


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        with own_code():
            return function(*arguments)

    return call
