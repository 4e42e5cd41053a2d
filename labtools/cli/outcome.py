"""How a command ends: its data, its text and its exit status."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from labtools.problem import LabError
    from labtools.toolchain.progress import Progress


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


@contextlib.contextmanager
def typed() -> Any:
    """Inside, a LabError is about what was typed: an unknown rung, a bad workload.

    One about a kernel stays what it is.
    """
    from labtools.problem import KernelError, LabError

    try:
        yield
    except KernelError:
        raise
    except LabError as error:
        raise UsageProblem(error) from error


PIPE_COLUMNS = 160


@dataclass(frozen=True)
class Answer:
    """What a command found out: `plain` says what ``--json`` writes of it, and `show` prints it."""

    @property
    def status(self) -> Status:
        """Exit status."""
        return Status.RIGHT

    @property
    def asides(self) -> tuple[str, ...]:
        """What to say on stderr besides."""
        return ()

    def show(self, console: Console) -> None:
        """Print it."""
        raise NotImplementedError

    def show_all(self, console: Console) -> None:
        """Print it with all details, for ``--verbose``."""
        self.show(console)


def present(work: Callable[[Progress], Answer], as_json: bool, verbose: bool = False) -> None:
    """Do the work and write its answer to stdout; end the command with its status.

    While the work runs, everything that it or a library prints goes to stderr, so that stdout
    holds the answer and nothing else.
    """
    import typer

    from labtools.toolchain.progress import ProgressLine

    with contextlib.redirect_stdout(sys.stderr), ProgressLine() as progress:
        answer = work(progress)
    for note in answer.asides:
        print(note, file=sys.stderr)
    if sys.stdout.closed:
        say_unwritten("it was closed")
    try:
        if as_json:
            write_json(answer)
        else:
            # A pipe has no width of its own; 80 columns would fold tables that somebody may cut.
            width = None if sys.stdout.isatty() else PIPE_COLUMNS
            show = answer.show_all if verbose else answer.show
            show(_make_console(width))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`): the status is still the work's.
        drop_stdout()
    except OSError as error:
        say_unwritten(error.strerror or str(error))
    raise typer.Exit(int(answer.status))


def drop_stdout(status: Status = Status.RIGHT) -> Status:
    """What is still to be written to stdout goes nowhere, at the end of the process too."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


class _Stderr:
    """Stderr that may take nothing: the answer counts, and not what is said beside it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As a file's; characters that it cannot hold are replaced."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def close(self) -> None:
        """It stays open: what is still to be said is said here."""

    def flush(self) -> None:
        """As a file's."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def open_streams() -> bool:
    """See to it that there are places for what is said.

    Returns:
        Whether stdout was open. Where it was not, what is written goes nowhere.
    """
    for number in range(3):  # what is opened later must not take the place of one that is closed
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    there = sys.stdout is not None
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = cast(TextIO, _Stderr(sys.stderr))
    return there


def say_unwritten(why: str) -> NoReturn:
    """Say that the answer went nowhere. Raises LabError: always."""
    from labtools.problem import LabError

    drop_stdout()
    raise LabError(
        "The answer could not be written.", f"stdout: {why}", "the same with another place for it"
    )


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    headed: bool = True,
) -> None:
    """Print rows of text side by side, folded where they are too wide.

    Columns named in ``right`` stand flush right, those in ``whole`` are never folded.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=headed)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in whole)
    for row in rows:
        table.add_row(*row)
    console.print(table, soft_wrap=False)


def _make_console(width: int | None) -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process with status 1, which means wrong

    return PipeConsole(highlight=False, markup=False, soft_wrap=True, width=width)


def write_json(data: Any) -> None:
    """Strict JSON on stdout: a number that is not finite becomes null."""
    print(json.dumps(plain(data), indent=1, allow_nan=False))


def plain(value: Any) -> Any:
    """A value as JSON can hold it.

    What has a form of its own (`to_dict`) is that, another dataclass its fields but for private
    ones and those that its text leaves out (``repr=False``).
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if is_dataclass(value):
        shown = (part.name for part in fields(value) if part.repr and part.name[0] != "_")
        return {name: plain(getattr(value, name)) for name in shown}
    if hasattr(value, "item"):  # a numpy scalar
        return plain(value.item())
    return str(value)


def show_error(error: Exception, as_json: bool) -> Status:
    """Write one plain message to stderr (and, with ``--json``, its parts to stdout)."""
    status, told = _judge(error)
    print(str(told), file=sys.stderr, flush=True)
    if as_json:
        try:
            write_json({"error": told, "exit_status": int(status)})
            sys.stdout.flush()
        except (OSError, ValueError):  # there is no room, or it was closed
            drop_stdout()
    return status


def is_usage(error: Exception) -> bool:
    """Whether it is what typer says of a command line."""
    # typer carries its own copy of click, so its errors are known by what they can do.
    return hasattr(error, "format_message")


def _judge(error: Exception) -> tuple[Status, LabError]:
    """The exit status that an error ends with, and its message."""
    from labtools.problem import KernelError, LabError, as_lab_error
    from labtools.problem.errors import is_refusal
    from labtools.toolchain.apart import SettingRefused

    if is_usage(error):
        context = getattr(error, "ctx", None)
        named = context.command_path if context and context.parent else ""
        works = f"{named} --help lists what it takes"
        return Status.USAGE, LabError(
            "The command line is not understood.",
            cast(Any, error).format_message(),
            works if named else "labtools --help lists the commands",
        )
    if isinstance(error, SettingRefused):
        return Status.USAGE, error
    if isinstance(error, UsageProblem):
        return Status.USAGE, as_lab_error(error.error)
    if isinstance(error, KernelError):
        return Status.WRONG, error
    expected = isinstance(error, (LabError, MemoryError)) or is_refusal(error)
    return Status.MISSING if expected else Status.MISTAKE, as_lab_error(error)
