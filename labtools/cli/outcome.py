"""How a command ends: its data, its text and its exit status."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Status(IntEnum):
    """Exit statuses; ``labtools --help`` lists them."""

    RIGHT = 0
    WRONG = 1
    USAGE = 2
    MISSING = 3
    MISTAKE = 4
    INTERRUPTED = 130


class UsageProblem(Exception):
    """Wraps an error about what was typed, so that it ends with status 2."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class WrongKernel(Exception):
    """Wraps an error that the kernel's author made, so that it ends with status 1."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def wrong_kernel(what: str, why: str, still_works: str) -> WrongKernel:
    """A message about the kernel or its launch function."""
    from labtools.problem import LabError

    return WrongKernel(LabError(what, why, still_works))


@contextlib.contextmanager
def typed() -> Any:
    """Inside, a LabError is about what was typed: an unknown rung, a bad workload."""
    from labtools.problem import LabError

    try:
        yield
    except LabError as error:
        raise UsageProblem(error) from error


PIPE_COLUMNS = 160


@dataclass(frozen=True)
class Outcome:
    """What a command found out.

    Args:
        data: for ``--json``.
        show: prints the same for a person.
        status: exit status.
    """

    data: dict[str, Any]
    show: Callable[[Console], None]
    status: Status = Status.RIGHT
    notes: tuple[str, ...] = field(default_factory=tuple)


def present(work: Callable[[Progress], Outcome], as_json: bool) -> None:
    """Do the work and write its outcome to stdout; end the command with its status.

    While the work runs, everything that it or a library prints goes to stderr, so that stdout
    holds the outcome and nothing else.
    """
    import typer

    with contextlib.redirect_stdout(sys.stderr), Progress() as progress:
        outcome = work(progress)
    for note in outcome.notes:
        print(note, file=sys.stderr)
    try:
        if as_json:
            write_json(outcome.data)
        else:
            # A pipe has no width of its own; 80 columns would fold tables that somebody may cut.
            width = None if sys.stdout.isatty() else PIPE_COLUMNS
            outcome.show(_make_console(width))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`): the status is still the work's.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(int(outcome.status))


def _make_console(width: int | None) -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with status 1, which means wrong

    return PipeConsole(highlight=False, soft_wrap=True, width=width)


def write_json(data: Any) -> None:
    """Strict JSON on stdout: a number that is not finite becomes null."""
    print(json.dumps(_plain(data), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item"):  # a numpy scalar
        return _plain(value.item())
    return str(value)


class Progress:
    """What is being done, on stderr: one redrawn line on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._status: Any = None
        self._last = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, *parts: object) -> None:
        """Say what is being done now."""
        text = " ".join(str(part) for part in parts if part not in (None, ""))
        if text == self._last or not text:
            return
        self._last = text
        if not sys.stderr.isatty():
            print(text, file=sys.stderr, flush=True)
        elif self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(_escape(text))
            self._status.start()
        else:
            self._status.update(_escape(text))


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def show_error(error: Exception, as_json: bool) -> int:
    """Write one plain message to stderr (and, with ``--json``, its parts to stdout)."""
    from labtools.problem import LabError

    status = Status.MISSING
    if isinstance(error, UsageProblem):
        status, error = Status.USAGE, error.error
    elif isinstance(error, WrongKernel):
        status, error = Status.WRONG, error.error
    elif _is_wrong_kernel(error):
        status = Status.WRONG
    # typer carries its own copy of click, so its errors are known by what they can do.
    if hasattr(error, "format_message"):
        status = Status.USAGE
        context = getattr(error, "ctx", None)
        parts = {
            "what": error.format_message(),
            "why": context.get_usage() if context else "the command line was not understood",
            "still_works": "labtools --help lists the commands, COMMAND --help the options of one",
        }
    elif isinstance(error, LabError):
        parts = {"what": error.what, "why": error.why, "still_works": error.still_works}
    elif isinstance(error, MemoryError):
        parts = {
            "what": "There is not enough memory.",
            "why": str(error) or "the system refused an allocation",
            "still_works": "a smaller workload; forecasts and records",
        }
    else:
        status = Status.MISTAKE
        parts = {
            "what": "This is a mistake in labtools.",
            "why": f"{type(error).__name__}: {error}",
            "still_works": "the other commands; add --debug to see where it happened",
        }
    print(str(LabError(**parts)), file=sys.stderr)
    if as_json:
        write_json({"error": parts, "exit_status": int(status)})
    return status


def _is_wrong_kernel(error: Exception) -> bool:
    """Errors that say something about the kernel itself rather than about this machine."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CompileError", "ChildTimeout", "KernelFault", "SyncError"})
