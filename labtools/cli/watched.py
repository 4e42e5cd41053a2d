"""The command in a process of its own, so that every ending has a message and a documented status.

A library that a command calls may end its process: by a fault, or by taking all memory. Whoever
started it waits here for a word that it has answered.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import time
from collections.abc import Callable

_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPING_S = 1.0
"""What is stopped may clean up so long."""
_BY_THE_KERNEL = 128
"""``si_code`` of a signal that a terminal sends, to every process of its group."""


def can_watch() -> bool:
    """Whether this system can copy a process and say who sent a signal."""
    return sys.platform == "linux"


def answer_watched(
    work: Callable[[], int], explain: Callable[[str, bool], int], say_stopped: Callable[[], int]
) -> int:
    """Do work in a copy of this process.

    Args:
        work: returns the exit status, after its last word.
        explain: called where it ended without that, with how, and whether the system killed it;
            returns the exit status.
        say_stopped: called where it was stopped and ended without that; returns the exit status.

    Returns:
        The exit status.
    """
    signals = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    parent = os.getpid()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(int(signal.SIGKILL) + 128)
        status = work()
        os.write(writer, b"answered")
        return status
    os.close(writer)
    try:
        ended, stopped = _wait(child, signals)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    answered = os.read(reader, 16)
    os.close(reader)
    code = os.waitstatus_to_exitcode(ended)
    if stopped and (code < 0 or not answered):
        return say_stopped()
    if answered:
        return code
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return explain(f"it was ended by {name}", -code == signal.SIGKILL)
    return explain(f"it was ended from within, with status {code}", False)


def _wait(child: int, signals: set[signal.Signals]) -> tuple[int, bool]:
    """How it ended, and whether somebody had stopped it. What is sent to this process alone is
    passed on; what has not ended `STOPPING_S` later is killed, and all that it started with it."""
    deadline = math.inf
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status, deadline < math.inf
        if deadline < math.inf:
            told = signal.sigtimedwait(signals, max(0.0, deadline - time.monotonic()))
        else:
            told = signal.sigwaitinfo(signals)
        if told is None:
            os.kill(child, signal.SIGKILL)
            deadline += STOPPING_S  # it ends at once
        elif told.si_signo != signal.SIGCHLD:
            deadline = min(deadline, time.monotonic() + STOPPING_S)
            if told.si_code != _BY_THE_KERNEL:
                os.kill(child, told.si_signo)
