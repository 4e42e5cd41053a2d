"""Run a command as a child that cannot hurt, outlive or hang its parent, and call functions in it.

A `Child` and all that it starts are one process group, killed as a whole at its end, at its time
limit, and, by a supervisor that holds a pipe from it, when the parent dies in whatever way. A
`Worker` is a child that runs our own code; a profiler or sanitizer may stand between the two.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from labtools.problem import LabError
from labtools.problem.isolated import isolated_files
from labtools.toolchain.progress import Progress, silent

from .channel import Channel, Refusal, Reporter, Step, Told, name_of, read, signature_of
from .child import LEAVE_AT_ONCE, OPERATIONS, PRELOAD
from .resident import WORKER_BYTES, most_of_machine

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Item = TypeVar("Item")

NOTEBOOK_ALIVE = (
    "the kernel ran in a process of its own, so this notebook is alive and nothing is lost"
)
_TOOL_LINES = ("=========", "==PROF==")
KEPT_BYTES = 8 * 1024 * 1024  # of each output stream: its beginning and its end, half each

# The supervisor is plain text given to `python -c`, not a module: starting it must not import
# labtools (60 ms and more), and it must work with the isolated interpreter flags -I -S.
# fd 0 is the lifeline. Its first bytes are nothing; end of file means that the parent has gone.
_SUPERVISOR = (
    Path(__file__).with_name("resident.py").read_text("utf-8")
    + r"""
import _thread, signal, sys, time
status_fd = int(sys.argv[1])
seconds, memory, resident = map(int, sys.argv[2].split(","))
def end(text):
    try:
        os.write(status_fd, text.encode())
    except OSError:
        pass
    os.killpg(0, signal.SIGKILL)
def watch():
    while os.read(0, 4096):
        pass
    end("orphaned")
def weigh():
    while largest_resident(child) <= resident:
        time.sleep(0.25)
    end("large %d" % resident)
def be_the_child():
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores some of them
        signal.signal(number, signal.SIG_DFL)
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execve(sys.argv[3], sys.argv[3:], os.environ)
if seconds or memory:
    import resource
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.set_inheritable(status_fd, False)
child = os.fork()  # subprocess does the same and takes longer to import than all else here
if not child:
    try:
        be_the_child()
    except (OSError, ValueError) as error:  # no such program; no such limit
        number = getattr(error, "errno", 0) or 0
        end("error %d %s" % (number, getattr(error, "strerror", "") or error))
_thread.start_new_thread(watch, ())
if resident:
    _thread.start_new_thread(weigh, ())
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
end("exit %d" % code)
"""
)


@dataclass(frozen=True)
class ChildResult:
    """What became of a child: never raises by itself, so that each caller can diagnose."""

    command: tuple[str, ...]
    # exit status; minus the signal number when a signal ended it; None when we killed it
    returncode: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    time_limit_s: float
    too_large_bytes: int = 0  # the limit on its memory, where it was stopped for that

    @property
    def ok(self) -> bool:
        """It ended by itself with status 0."""
        return self.returncode == 0 and not self.timed_out

    @property
    def signal_name(self) -> str | None:
        """Name of the signal that ended the child, e.g. ``SIGSEGV``; None when none did."""
        if self.returncode is None or self.returncode >= 0:
            return None
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def ending(self) -> str:
        """One phrase: how it ended."""
        if self.timed_out:
            return f"was stopped at its time limit of {self.time_limit_s:g} s"
        if self.too_large_bytes:
            return f"was stopped at its limit of {self.too_large_bytes / 2**30:.1f} GiB of memory"
        if self.signal_name:
            return f"was ended by {self.signal_name}"
        return f"ended with status {self.returncode}"

    @property
    def last_words(self) -> str:
        """The last line on its stderr, as the end of a sentence; empty when there was none."""
        lines = [line.strip() for line in self.stderr.splitlines()]
        # Lines of a tool that watched it say nothing about why it ended.
        said = [line for line in lines if line and not line.startswith(_TOOL_LINES)]
        return f"; it said: {said[-1][:300]}" if said else ""


def hang_message(seconds: float) -> str:
    """What to say of a kernel that did not end."""
    return (
        f"the kernel did not end within {seconds:g} s and was killed: a loop without an end, or a "
        "barrier that some threads never reach"
    )


class ChildFailed(LabError):
    """What a call in a child raised, in the child's own words."""


class ChildNotStarted(LabError):
    """The program is not there or could not be executed."""


class _BoundedText:
    """Collects a byte stream, keeping at most KEPT_BYTES: the beginning and the end."""

    def __init__(self) -> None:
        self.half = KEPT_BYTES // 2
        self.head = bytearray()
        self.tail = bytearray()
        self.dropped = 0

    def add(self, piece: bytes) -> None:
        room = self.half - len(self.head)
        if room > 0:
            self.head += piece[:room]
            piece = piece[room:]
        self.tail += piece
        extra = len(self.tail) - self.half
        if extra > 0:
            del self.tail[:extra]
            self.dropped += extra

    def text(self) -> str:
        middle = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return bytes(self.head + middle + self.tail).decode("utf-8", errors="replace")


def _drain(stream: IO[bytes], keep: _BoundedText) -> None:
    """Read a pipe to its end."""
    with stream, contextlib.suppress(OSError, ValueError):
        while piece := os.read(stream.fileno(), 65536):
            keep.add(piece)


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a Python child: as ours, and able to import this very labtools."""
    package_parent = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    paths = [package_parent, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    environment["PYTHONUNBUFFERED"] = "1"
    # A part of an answer is a small product, and its copies of the process take the other cores.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    environment.update(extra or {})
    return environment


class Child:
    """A command that runs as a child; ``wait`` or ``kill`` ends it.

    ``env`` is the whole environment; None takes `child_environment`. Each of its processes may take
    ``limit_cpu_s`` seconds of processor time, ``limit_bytes`` of address space, of which programs
    that speak to a GPU reserve far more than they use, and ``limit_resident_bytes`` of memory; 0 is
    any.

    Raises ChildNotStarted: the program is missing.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        limit_cpu_s: float = 0,
        limit_bytes: int = 0,
        limit_resident_bytes: int = 0,
    ) -> None:
        self._limits = f"{math.ceil(limit_cpu_s)},{limit_bytes},{limit_resident_bytes}"
        self.command = tuple(os.fspath(part) for part in command)
        self.result: ChildResult | None = None
        """What became of it, once it has ended."""
        self._started = time.monotonic()
        self._status, self._process = self._start(env)
        out, err = self._process.stdout, self._process.stderr
        assert out is not None and err is not None
        self._out, self._err = _BoundedText(), _BoundedText()
        self._readers = [
            threading.Thread(target=_drain, args=pipe, daemon=True)
            for pipe in ((out, self._out), (err, self._err))
        ]
        for reader in self._readers:
            reader.start()

    def _start(self, env: Mapping[str, str] | None) -> tuple[int, subprocess.Popen[bytes]]:
        """Start the supervisor; returns the pipe on which it says how the command ended."""
        name, *arguments = self.command
        program = shutil.which(name, path=(env or os.environ).get("PATH"))
        if program is None:
            raise _not_started(name, "no such program was found on the PATH")
        status_read, status_write = os.pipe()
        supervisor = [sys.executable, "-I", "-S", "-c", _SUPERVISOR]
        try:
            process = subprocess.Popen(
                [*supervisor, str(status_write), self._limits, program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env) if env is not None else child_environment(),
                pass_fds=(status_write,),
                start_new_session=True,
            )
        except BaseException:
            os.close(status_read)
            raise
        finally:
            os.close(status_write)
        return status_read, process

    def fileno(self) -> int:
        """Readable once the child has ended, for whoever waits on several things at once."""
        return self._status

    def wait(self, deadline: float, time_limit_s: float) -> ChildResult:
        """Wait for the end, at most until ``deadline`` on the monotonic clock; then kill.

        Afterwards nothing that the command started is alive, also when this call is left by
        KeyboardInterrupt. ``time_limit_s`` is what the result says its limit was.

        Raises ChildNotStarted: the program could not be executed.
        """
        timed_out = False
        try:
            if self.result is None:  # Popen.wait would look twenty times a second
                wait_for_any([self._status], timeout=max(0.0, deadline - time.monotonic()))
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            self.kill()
        return self._judge(timed_out, time_limit_s)

    def kill(self) -> None:
        """End the child and everything it has started."""
        # Until wait() has reaped the supervisor its group id is ours: this kills nothing else.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _judge(self, timed_out: bool, time_limit_s: float) -> ChildResult:
        if self.result is not None:
            return self.result
        assert self._process.stdin is not None
        self._process.stdin.close()
        seconds = time.monotonic() - self._started
        for reader in self._readers:
            # A grandchild that left the group could hold a pipe open: do not wait for ever.
            reader.join(timeout=5.0)
        with open(self._status, "rb", buffering=0) as status_pipe:
            os.set_blocking(self._status, False)
            status = (status_pipe.read(256) or b"").decode("utf-8", errors="replace")
        word, _, rest = status.partition(" ")
        if word == "error":
            raise _not_started(self.command[0], f"the system said: {rest.split(' ', 1)[1]}")
        code = int(rest) if word == "exit" else None
        # A child that ends in the last instant has ended by itself.
        timed_out = timed_out and code is None
        if code is None and not timed_out:
            code = self._process.returncode
        self.result = ChildResult(
            command=self.command,
            returncode=code,
            stdout=self._out.text(),
            stderr=self._err.text(),
            seconds=seconds,
            timed_out=timed_out,
            time_limit_s=float(time_limit_s),
            too_large_bytes=int(rest) if word == "large" else 0,
        )
        return self.result


def _not_started(program: str, why: str) -> ChildNotStarted:
    return ChildNotStarted(
        f"{program} could not be started.", why, "everything that does not need this program"
    )


def run_child(
    command: Sequence[str | os.PathLike[str]], *, time_limit_s: float, **options: Any
) -> ChildResult:
    """Run ``command`` to its end or to ``time_limit_s`` seconds; options and errors of `Child`."""
    deadline = time.monotonic() + time_limit_s
    return Child(command, **options).wait(deadline, time_limit_s)


class WorkerDied(LabError):
    """A worker ended before it had answered, in a step or between two (None).

    ``hung``: it ended itself because the step took too long.
    """

    def __init__(self, child: ChildResult, step: Step | None, hung: bool) -> None:
        self.child, self.step, self.hung = child, step, hung
        doing = step.name if step else "between two steps"
        if hung and step is not None:
            super().__init__(f"A step did not end: {doing}.", hang_message(step.limit_s))
        else:
            why = f"it {child.ending} while {doing}{child.last_words}"
            super().__init__("The measuring process ended early.", why)
        self.still_works = NOTEBOOK_ALIVE


CHILD_MODULE = "labtools.measure.child"


class Worker:
    """A child that answers calls of our own functions, one after the other.

    It may run under a command (``prefix``) and, where a profiler waits for that, end as programs
    do (``tidy``). ``preload`` are modules that it imports before its first call, if they are there.
    """

    def __init__(
        self,
        *,
        prefix: Sequence[str | os.PathLike[str]] = (),
        extra_env: Mapping[str, str] | None = None,
        tidy: bool = False,
        preload: Sequence[str] = (),
        progress: Progress = silent,
    ) -> None:
        self.step: Step | None = None
        """What it is doing, or did last."""
        self._progress = progress
        self._channel: Channel | None = None
        self._folder = _short_folder()
        address = os.path.join(self._folder, "channel")
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        options = [] if tidy else [LEAVE_AT_ONCE]
        options += [PRELOAD + name for name in preload]
        options += [f"{OPERATIONS}{path}" for path in isolated_files()]
        command = [*prefix, sys.executable, "-m", CHILD_MODULE, *options, address]
        try:
            self._door.bind(address)
            self._door.listen(1)
            most, env = most_of_machine(WORKER_BYTES), child_environment(extra_env)
            self._child = Child(command, env=env, limit_resident_bytes=most)
        except BaseException:
            self._close_door()
            raise

    @property
    def alive(self) -> bool:
        """It can be called again."""
        return self._child.result is None and not wait_for_any([self._child.fileno()], 0)

    def call(
        self,
        function: Callable[[Reporter[Item], Request], Reply],
        request: Request,
        *,
        time_limit_s: float,
        on_item: Callable[[Item], None] = lambda item: None,
    ) -> Reply:
        """Run a function, of a module that the child can import, in the child.

        The request crosses as JSON. Past the time limit the child is killed. ``on_item`` gets each
        item of the result as soon as it is there.

        Raises WorkerDied: the child ended first; ChildFailed: the function raised a `LabError`,
        told in its own words.
        """
        types = signature_of(function)
        deadline = time.monotonic() + time_limit_s
        try:
            channel = self._connect(deadline)
            channel.send(name_of(function), request, types.request)
            while True:
                if not wait_for_any([channel.fileno()], max(0.0, deadline - time.monotonic())):
                    raise EOFError
                kind, plain = channel.receive()
                if kind == "reply":
                    reply: Reply = read(plain, types.reply)
                    return reply
                self._hear(kind, plain, types.item, on_item)
        except (EOFError, ConnectionError) as error:
            raise self._explain_end(deadline, time_limit_s) from error
        except KeyboardInterrupt:
            self.stop()
            raise

    def _connect(self, deadline: float) -> Channel:
        if self._channel is None:
            left_s = max(0.0, deadline - time.monotonic())
            if self._door not in wait_for_any([self._door, self._child.fileno()], left_s):
                raise EOFError
            self._channel = Channel(self._door.accept()[0])
            self._close_door()
        return self._channel

    def _close_door(self) -> None:
        self._door.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _hear(self, kind: str, plain: Any, of: Any, on_item: Callable[[Any], None]) -> None:
        if kind == "step":
            self.step = read(plain, Step)
        elif kind == "progress":
            told: Told = read(plain, Told)
            # Whoever shows it may be broken; the work is not.
            with contextlib.suppress(Exception):
                self._progress(told.text, told.done, told.total)
        elif kind == "item":
            on_item(read(plain, of))
        elif kind == "refusal":
            refusal: Refusal = read(plain, Refusal)
            raise ChildFailed(refusal.what, refusal.why, refusal.still_works)

    def _explain_end(self, deadline: float, time_limit_s: float) -> WorkerDied:
        ended_at = time.monotonic()
        child = self._child.wait(deadline, time_limit_s)
        step = self.step if self.step is not None and self.step.running else None
        hung = step is not None and not child.timed_out and ended_at - step.at_s >= step.limit_s
        return WorkerDied(child, step, hung)

    def hang_up(self) -> None:
        """There are no more calls: a child that is in none ends by itself."""
        if self._channel is not None:
            self._channel.close()
        self._close_door()

    def finish(self, deadline: float, time_limit_s: float) -> ChildResult:
        """Hang up and let the child end by itself; arguments as for `Child.wait`."""
        self.hang_up()
        return self._child.wait(deadline, time_limit_s)

    def stop(self) -> None:
        """Hang up; a child that has not ended is killed."""
        self.finish(time.monotonic(), 0.0)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


@dataclass(frozen=True)
class Finished(Generic[Reply]):
    """What became of one call in a child of its own."""

    child: ChildResult  # how the child, or the tool that watched it, ended
    answered: bool = False  # the function returned
    reply: Reply | None = None
    died: WorkerDied | None = None  # why there was none, if the child did not say
    refused: ChildFailed | None = None  # why there was none, in the function's own words

    @property
    def failure(self) -> str:
        """Why there is no usable result, in a sentence."""
        if self.refused is not None:
            return " ".join(filter(None, (self.refused.what, self.refused.why)))
        if self.child.timed_out:
            return f"it {self.child.ending}; everything it had started was killed"
        return f"the process {self.child.ending}{self.child.last_words}"


def run_call(
    function: Callable[[Reporter[Item], Request], Reply],
    request: Request,
    *,
    time_limit_s: float,
    on_item: Callable[[Item], None] = lambda item: None,
    **options: Any,
) -> Finished[Reply]:
    """One `Worker.call` in a child of its own, which has ended afterwards; judges nothing.

    ``time_limit_s`` is for the child's whole life; the options are those of `Worker`.
    """
    deadline = time.monotonic() + time_limit_s
    with Worker(**options) as worker:
        reply, refused = None, None
        try:
            reply = worker.call(function, request, time_limit_s=time_limit_s, on_item=on_item)
        except ChildFailed as error:
            refused = error
        except WorkerDied as died:
            return Finished(died.child, died=died)
        child = worker.finish(deadline, time_limit_s)
        return Finished(child, refused is None, reply, refused=refused)


def _short_folder() -> str:
    """A folder for a socket, whose path must be shorter than about 100 characters."""
    folder = tempfile.mkdtemp(prefix="labtools-")
    if len(folder) > 80:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="labtools-", dir="/tmp")
    return folder
