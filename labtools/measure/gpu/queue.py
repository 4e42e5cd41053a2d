"""One measurement a GPU at a time, over every process and user: two would share its bandwidth.

The locks of all users, plain files that say who holds them, lie in one sticky folder, where
everybody can write and nobody removes another's.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from labtools.problem import LabError
from labtools.toolchain.progress import SAY_EVERY_S, Progress, silent

LOCKS_VARIABLE = "LABTOOLS_GPU_LOCKS"
OTHER_FOLDER = (
    f"remove it, or let {LOCKS_VARIABLE} name another folder, the same for all who measure"
)
LONGEST_WAIT_S = 3600.0
_POLL_S = 0.05
_NOTE_BYTES = 1024


def gpu_locks_dir() -> Path:
    """The folder of the locks, one for all users of the machine.

    Raises LabError: it is there and is not safe to use.
    """
    given = os.environ.get(LOCKS_VARIABLE)
    folder = Path(given) if given else Path(tempfile.gettempdir()) / "labtools-gpu-locks"
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    found = folder.stat() if given else folder.lstat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    if stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_ISVTX and mine:
        folder.chmod(0o1777)
    elif not stat.S_ISDIR(found.st_mode) or not found.st_mode & stat.S_ISVTX:
        why = f"{folder} is a link, or a folder of another user in which anybody can remove files"
        raise LabError("The folder of the GPUs' locks is not safe.", why, OTHER_FOLDER)
    return folder


class GpuLock:
    """The lock of one GPU, in a file; it goes with the process, also when it is killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, purpose: str) -> bool:
        """Take it, if nobody has it. Raises LabError: there is something else in its place."""
        import fcntl

        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        note = json.dumps({"pid": os.getpid(), "purpose": purpose[:200]}).encode()[:_NOTE_BYTES]
        with suppress(OSError):  # a full disk
            os.ftruncate(file, 0)
            os.pwrite(file, note, 0)
        self._file = file
        return True

    def release(self) -> None:
        """Give it back."""
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def holder(self) -> str:
        """Who has it, in words."""
        try:
            file = self._open()
            try:
                found = json.loads(os.pread(file, _NOTE_BYTES, 0))
            finally:
                os.close(file)
            purpose = "".join(one for one in str(found["purpose"])[:200] if one.isprintable())
            return f"process {int(found['pid'])} ({purpose})"
        except (LabError, OSError, ValueError, KeyError, TypeError):
            return "another process"

    def _open(self) -> int:
        # An open that may make a file is refused on another user's file in a sticky folder, so the
        # two are apart.
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            try:
                file = os.open(self.path, flags)
            except FileNotFoundError:
                try:
                    file = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                    os.fchmod(file, 0o666)  # whatever the umask
                except FileExistsError:  # somebody was faster
                    file = os.open(self.path, flags)
        except OSError as error:
            raise self._refusal(error.strerror or str(error)) from error
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(file)
            raise self._refusal("it is no plain file of its own")
        return file

    def _refusal(self, why: str) -> LabError:
        what = "The lock of the GPU cannot be used."
        return LabError(what, f"{self.path}: {why}", OTHER_FOLDER)


def _lock_of(gpu: str) -> GpuLock:
    return GpuLock(gpu_locks_dir() / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', gpu)}.lock")


@contextmanager
def hold_gpu(
    gpus: Sequence[str],
    purpose: str,
    progress: Progress = silent,
    longest_wait_s: float = LONGEST_WAIT_S,
) -> Iterator[int]:
    """Hold the first of several GPUs that is free; yields its index in ``gpus``.

    A GPU's name is the same for every process, such as its PCI address; ``purpose`` is shown to
    those who wait.

    Raises LabError: every GPU stayed taken, or their locks cannot be trusted.
    """
    locks = [_lock_of(gpu) for gpu in gpus]
    started = time.monotonic()
    said = -SAY_EVERY_S
    while True:
        for index, lock in enumerate(locks):
            if not lock.acquire(purpose):
                continue
            try:
                yield index
            finally:
                lock.release()
            return
        waited = time.monotonic() - started
        if waited > longest_wait_s:
            raise LabError(
                "The GPU did not become free.",
                f"{locks[0].holder()} has been measuring on it for over {waited:.0f} s",
                "try again later; recorded measurements and the CPU runner need no GPU",
            )
        if waited - said >= SAY_EVERY_S:
            said = waited
            progress(f"waiting for the GPU: {locks[0].holder()} is measuring on it")
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
