"""One measurement a GPU at a time, over every process and user of this machine.

Two kernels on one GPU share its memory bandwidth, so a time taken beside another measurement is
wrong. Whoever measures holds the lock of the GPU; the others wait and say for whom.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from labtools.problem import LabError
from labtools.toolchain.progress import SAY_EVERY_S, Progress, silent

LOCKS_VARIABLE = "LABTOOLS_GPU_LOCKS"
LONGEST_WAIT_S = 3600.0
_POLL_S = 0.05


def gpu_locks_dir() -> Path:
    """The folder of the locks, one for all users of the machine."""
    given = os.environ.get(LOCKS_VARIABLE)
    folder = Path(given) if given else Path(tempfile.gettempdir()) / "labtools-gpu-locks"
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        # Not sticky: Linux forbids opening another user's file for creation in sticky folders.
        with suppress(PermissionError):
            folder.chmod(0o777)
    return folder


def _lock_of(gpu: str) -> FileLock:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", gpu)
    # Not a thread's own: the last thread that shares a hold gives it back, whoever took it.
    return FileLock(str(gpu_locks_dir() / f"{name}.lock"), mode=0o666, thread_local=False)


def _holder_file(lock: FileLock) -> Path:
    return Path(lock.lock_file).with_suffix(".holder")


def _read_holder(lock: FileLock) -> str:
    try:
        holder = json.loads(_holder_file(lock).read_text())
        return f"process {holder['pid']} ({holder['purpose']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


@contextmanager
def hold_gpu(
    gpus: Sequence[str],
    purpose: str,
    progress: Progress = silent,
    longest_wait_s: float = LONGEST_WAIT_S,
) -> Iterator[int]:
    """Hold one of several GPUs; yields its index in ``gpus``.

    The first that is free is taken. The lock goes with the process, also when it is killed.

    Args:
        gpus: a name a GPU that is the same for every process (its PCI address or UUID).
        purpose: what for, shown to those who wait.
        progress: hears of it when all are taken, and again every few seconds.
        longest_wait_s: give up after this long.

    Raises:
        LabError: every GPU stayed taken.
    """
    locks = [_lock_of(gpu) for gpu in gpus]
    started = time.monotonic()
    said = -SAY_EVERY_S
    while True:
        for index, lock in enumerate(locks):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                with suppress(OSError):
                    note = json.dumps({"pid": os.getpid(), "purpose": purpose})
                    _holder_file(lock).write_text(note)
                yield index
            finally:
                with suppress(OSError):
                    _holder_file(lock).unlink()
                lock.release()
            return
        waited = time.monotonic() - started
        if waited > longest_wait_s:
            raise LabError(
                "The GPU did not become free.",
                f"{_read_holder(locks[0])} has been measuring on it for over {waited:.0f} s",
                "try again later; recorded measurements and the CPU runner need no GPU",
            )
        if waited - said >= SAY_EVERY_S:
            said = waited
            progress(f"waiting for the GPU: {_read_holder(locks[0])} is measuring on it")
        time.sleep(_POLL_S)


class _Sharing:
    """Who in this process shares a hold on the GPU."""

    lock = threading.Lock()
    users = 0
    hold: ExitStack | None = None


@contextmanager
def hold_this_gpu(purpose: str, progress: Progress = silent) -> Iterator[None]:
    """Keep every other measurement off the GPU that a child will use, the first visible one.

    The parent holds it, so that waiting does not count against the child's time limit.
    """
    import cupy

    gpu = str(cupy.cuda.runtime.deviceGetPCIBusId(0))
    with hold_gpu([gpu], purpose, progress):
        yield


@contextmanager
def share_this_gpu(purpose: str, progress: Progress = silent) -> Iterator[None]:
    """`hold_this_gpu` for what takes no times: threads of this process may do it side by side."""
    with _Sharing.lock:
        if _Sharing.users == 0:
            stack = ExitStack()
            stack.enter_context(hold_this_gpu(purpose, progress))
            _Sharing.hold = stack
        _Sharing.users += 1
    try:
        yield
    finally:
        with _Sharing.lock:
            _Sharing.users -= 1
            if _Sharing.users == 0 and _Sharing.hold is not None:
                _Sharing.hold.close()
                _Sharing.hold = None
