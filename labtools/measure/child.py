"""Run a command as a child that cannot hurt, outlive or hang its parent.

A kernel may fault, hang or kill the CUDA context of its process, and a profiler may do the same.
So none of them runs inside the notebook. Every live measurement goes through ``run_child``:

* the child and everything it starts form one process group, which is killed as a whole at the
  end, at the time limit, and when the parent is interrupted;
* a tiny supervisor holds one end of a pipe whose other end only the parent holds, so the group
  dies even when the parent itself is killed with SIGKILL;
* output is captured with a bound, so a child that prints for ever fills no memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from labtools.problem import LabError

KEPT_BYTES = 8 * 1024 * 1024
"""Most bytes of each output stream that are kept: the first and the last half of this."""

# The supervisor is plain text given to `python -c`, not a module: starting it must not import
# labtools (60 ms and more), and it must work with the isolated interpreter flags -I -S.
# fd 0 is the lifeline. Its first bytes are nothing; end of file means that the parent has gone.
_SUPERVISOR = r"""
import os, signal, subprocess, sys, threading
status_fd = int(sys.argv[1])
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
signal.signal(signal.SIGINT, signal.SIG_IGN)
def reset():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, preexec_fn=reset)
except OSError as error:
    end("error %d %s" % (error.errno or 0, error.strerror))
threading.Thread(target=watch, daemon=True).start()
code = child.wait()
end("exit %d" % code)
"""


@dataclass(frozen=True)
class ChildResult:
    """What became of a child: never raises by itself, so that each caller can diagnose."""

    command: tuple[str, ...]
    returncode: int | None
    """Exit status; minus the signal number when a signal ended it; None when we killed it."""
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    time_limit_s: float

    @property
    def ok(self) -> bool:
        """True when the child ended by itself with status 0."""
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
        if self.signal_name:
            return f"was ended by {self.signal_name}"
        return f"ended with status {self.returncode}"


class ChildTimeout(LabError):
    """A child ran past its time limit and was killed with everything it had started."""


class ChildFailed(LabError):
    """A child ended badly: a status that is not 0, a signal, or no result."""


class ChildNotStarted(LabError):
    """The program is not there or could not be executed."""


class _BoundedText:
    """Collects a byte stream, keeping at most KEPT_BYTES: the beginning and the end."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.half = limit // 2
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


def _drain(stream: IO[bytes], keep: _BoundedText, on_line: Callable[[str], None] | None) -> None:
    """Read a pipe to its end. A callback that raises loses its line, never the output."""
    pending = b""
    with stream, contextlib.suppress(OSError, ValueError):
        while piece := os.read(stream.fileno(), 65536):
            keep.add(piece)
            if on_line is None:
                continue
            *lines, pending = (pending + piece).split(b"\n")
            pending = pending[-65536:]
            for line in lines:
                with contextlib.suppress(Exception):
                    on_line(line.decode("utf-8", errors="replace"))


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a Python child: as ours, and able to import this very labtools."""
    package_parent = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    paths = [package_parent, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    environment["PYTHONUNBUFFERED"] = "1"
    environment.update(extra or {})
    return environment


def run_child(
    command: Sequence[str | os.PathLike[str]],
    *,
    time_limit_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    on_stdout_line: Callable[[str], None] | None = None,
    on_stderr_line: Callable[[str], None] | None = None,
) -> ChildResult:
    """Run ``command`` to its end or to ``time_limit_s`` seconds, and return what happened.

    ``env`` is the whole environment (default: ``child_environment()``). The callbacks get each
    line without its newline, from a reader thread. Afterwards nothing that the command started
    is alive, whatever happened, also when this call is left by KeyboardInterrupt.

    Raises ChildNotStarted when the program is missing or cannot be executed.
    """
    arguments = tuple(os.fspath(part) for part in command)
    program = shutil.which(arguments[0], path=(env or os.environ).get("PATH"))
    if program is None:
        raise ChildNotStarted(
            what=f"{arguments[0]} could not be started.",
            why="no such program was found on the PATH",
            still_works="everything that does not need this program",
        )
    program = os.path.abspath(program)  # so that cwd does not change what a relative name means
    status_read, status_write = os.pipe()
    started = time.monotonic()
    supervisor = [sys.executable, "-I", "-S", "-c", _SUPERVISOR]
    try:
        process = subprocess.Popen(
            [*supervisor, str(status_write), program, *arguments[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env) if env is not None else child_environment(),
            cwd=cwd,
            pass_fds=(status_write,),
            start_new_session=True,
        )
    except BaseException:
        os.close(status_read)
        raise
    finally:
        os.close(status_write)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = _BoundedText(), _BoundedText()
    readers = [
        threading.Thread(target=_drain, args=(process.stdout, out, on_stdout_line), daemon=True),
        threading.Thread(target=_drain, args=(process.stderr, err, on_stderr_line), daemon=True),
    ]
    timed_out = False
    try:
        for reader in readers:
            reader.start()
        try:
            process.wait(timeout=max(0.0, time_limit_s))
        except subprocess.TimeoutExpired:
            timed_out = True
    finally:
        # Until wait() has reaped the supervisor its group id is ours: this kills nothing else.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdin.close()
        seconds = time.monotonic() - started
        for reader in readers:
            # A grandchild that left the group could hold a pipe open: do not wait for ever.
            if reader.is_alive():
                reader.join(timeout=5.0)
        with open(status_read, "rb", buffering=0) as status_pipe:
            os.set_blocking(status_read, False)
            status = (status_pipe.read(256) or b"").decode("utf-8", errors="replace")
    if status.startswith("error "):
        raise ChildNotStarted(
            what=f"{arguments[0]} could not be started.",
            why=f"the system said: {status.split(' ', 2)[2]}",
            still_works="everything that does not need this program",
        )
    code = int(status.split()[1]) if status.startswith("exit ") else None
    # A child that ends in the last instant has ended by itself.
    timed_out = timed_out and code is None
    if code is None and not timed_out:
        code = process.returncode
    return ChildResult(
        arguments, code, out.text(), err.text(), seconds, timed_out, float(time_limit_s)
    )


PROGRESS_MARK = "labtools-progress "
"""A line on a Python child's stderr that starts so carries one JSON progress event."""


def run_python_child(
    module: str,
    request: Mapping[str, Any],
    *,
    time_limit_s: float,
    prefix: Sequence[str | os.PathLike[str]] = (),
    extra_env: Mapping[str, str] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[ChildResult, Any]:
    """Run ``python -m module REQUEST.json RESULT.json`` as a child and read back its result.

    ``request`` must be JSON. ``prefix`` is a command to run it under (``ncu ...``). The result is
    None when the child wrote none: the caller then reads the ChildResult for the reason.
    The module calls ``serve(handler)`` at its end.
    """

    def on_line(line: str) -> None:
        if on_progress is not None and line.startswith(PROGRESS_MARK):
            on_progress(json.loads(line[len(PROGRESS_MARK) :]))

    with tempfile.TemporaryDirectory(prefix="labtools-child-") as folder:
        request_path, result_path = Path(folder, "request.json"), Path(folder, "result.json")
        request_path.write_text(json.dumps(request), encoding="utf-8")
        command = [*prefix, sys.executable, "-m", module, request_path, result_path]
        environment = child_environment(extra_env)
        child = run_child(
            command, time_limit_s=time_limit_s, env=environment, on_stderr_line=on_line
        )
        try:
            result = json.loads(result_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            result = None
    return child, result


def serve(handler: Callable[[Any], Any]) -> None:
    """The child's side of ``run_python_child``: read the request, run, write the result whole."""
    request_path, result_path = Path(sys.argv[1]), Path(sys.argv[2])
    result = handler(json.loads(request_path.read_text(encoding="utf-8")))
    partial = result_path.with_suffix(".part")
    partial.write_text(json.dumps(result), encoding="utf-8")
    os.replace(partial, result_path)


def report_progress(**event: Any) -> None:
    """In a child: tell the parent how far it is."""
    print(PROGRESS_MARK + json.dumps(event), file=sys.stderr, flush=True)


def serve_lab(handler: Callable[[Any], Any]) -> None:
    """`serve`, with a LabError handed to the parent instead of a traceback; ends with status 3."""
    failed = False

    def guarded(request: Any) -> Any:
        nonlocal failed
        try:
            return handler(request)
        except LabError as error:
            failed = True
            return {"error": lab_error_to_dict(error)}

    serve(guarded)
    if failed:
        sys.exit(3)


def lab_error_to_dict(error: LabError) -> dict[str, str]:
    """The three parts of a message, as JSON."""
    return {"what": error.what, "why": error.why, "still_works": error.still_works}


def child_lab_error(result: Any) -> LabError | None:
    """The LabError that a `serve_lab` child returned, or None."""
    if isinstance(result, dict) and isinstance(error := result.get("error"), dict):
        return ChildFailed(error["what"], error["why"], error["still_works"])
    return None
