"""The entry point: parses, runs, and turns every ending into one message and an exit status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from .outcome import Status, drop_stdout, is_usage, open_streams, say_unwritten, show_error
from .watched import answer_watched, can_watch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``labtools``.

    Args:
        arguments: what follows the program's name; None takes the process's own.

    Returns:
        The exit status, one of `Status`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    there = open_streams() if arguments is None else True
    if arguments is None and can_watch():
        return answer_watched(
            lambda: _answer(given, there, "SIGINT"),
            lambda why, killed: _say_ended(why, killed, "--json" in given),
            _say_stopped,
        )
    return _answer(given, there)


def _answer(given: list[str], there: bool, *watched: str) -> int:
    """The exit status; everything has been said by then. ``watched`` are further signals."""
    # --debug may stand anywhere: it is what one adds after a command has failed.
    debug = "--debug" in given
    as_json = "--json" in given
    rest = [argument for argument in given if argument != "--debug"]
    _end_children_on_signals("SIGTERM", "SIGHUP", *watched)
    try:
        if not there:
            say_unwritten("it is closed")
        status = _run(rest)
        if not sys.stdout.closed:
            sys.stdout.flush()  # what --help and --version print
        # typer turns Ctrl-C into this status, without a word.
        return _say_stopped() if status == Status.INTERRUPTED else status
    except KeyboardInterrupt:
        return _say_stopped()
    except BrokenPipeError:
        return drop_stdout(Status.RIGHT)
    except SystemExit as error:
        # Where a pipe is closed, typer leaves in its own way.
        broken = isinstance(error.__context__, BrokenPipeError)
        return Status.RIGHT if broken or not isinstance(error.code, int) else error.code
    except Exception as error:
        if _is_abort(error):
            return _say_stopped()
        if debug and not is_usage(error):
            raise
        return show_error(error, as_json)


def _say_ended(why: str, killed: bool, as_json: bool) -> int:
    from labtools.problem import LabError

    what, works = "The command ended before it had answered.", "a smaller workload"
    because = "most likely the memory ran out" if killed else "a library that it called does so"
    return show_error(LabError(what, f"{why}: {because}", works), as_json)


def _say_stopped() -> int:
    print("Stopped. Nothing that was started is left running.", file=sys.stderr)
    return Status.INTERRUPTED


def _is_abort(error: Exception) -> bool:
    """Whether typer says that the reader has stopped the command."""
    import typer

    return isinstance(error, typer.Abort)


def _run(arguments: list[str]) -> int:
    import typer

    from .app import app

    command = typer.main.get_command(app)
    # click hands back the status of typer.Exit instead of raising it.
    status = command.main(arguments, prog_name="labtools", standalone_mode=False)
    return status if isinstance(status, int) else Status.RIGHT


def _end_children_on_signals(*names: str) -> None:
    """Let a polite end unwind the stack, so that what was started is ended too. Who asks again
    while that goes on is not heard."""
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if not heard:
            heard.append(number)
            raise KeyboardInterrupt

    for name in names:
        if hasattr(signal, name):
            try:
                signal.signal(getattr(signal, name), stop)
            except ValueError:
                return  # not the main thread: whoever called main() has the signals
