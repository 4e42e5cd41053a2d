"""How far a long piece of work is: one convention, and the one line that shows it."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, TextIO

SAY_EVERY_S = 5.0
"""Where no terminal redraws a line, a new one comes at most this often."""


class Progress(Protocol):
    """Called with a sentence, how much is done, and how much there is (0: nobody knows)."""

    def __call__(self, text: str, done: int = 0, total: int = 0, /) -> None: ...


def silent(text: str, done: int = 0, total: int = 0, /) -> None:
    """The `Progress` of whoever wants to hear nothing."""


def words_of(progress: Progress) -> Progress:
    """The sentences without the numbers, for work inside of work that counts by itself."""

    def say(text: str, done: int = 0, total: int = 0, /) -> None:
        progress(text)

    return say


def with_time_left(progress: Progress) -> Progress:
    """The same with the time that is left, as far as what is done tells; from the first call on."""
    began_s = time.monotonic()
    first: list[int] = []

    def say(text: str, done: int = 0, total: int = 0, /) -> None:
        if total:
            if not first:
                first.append(done)  # what was there already took no time
            made = done - first[0]
            if made > 0:
                left_s = (time.monotonic() - began_s) / made * (total - done)
                text += f", about {say_duration(left_s)} left"
        progress(text, done, total)

    return say


def say_duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class ProgressLine:
    """A `Progress` on stderr: on a terminal one line that moves, elsewhere a line now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._status: Any = None
        self._last = ""
        self._said_at = float("-inf")

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __call__(self, text: str, done: int = 0, total: int = 0, /) -> None:
        line = f"{text} ({done / total:.0%})" if total else text
        if not text or line == self._last:
            return
        stream = self._stream or sys.stderr
        if stream.isatty():
            self._last = line
            self._redraw(line, stream)
        elif time.monotonic() - self._said_at >= SAY_EVERY_S:
            # What came too early is not shown, so that it may be said again.
            self._last, self._said_at = line, time.monotonic()
            print(line, file=stream, flush=True)

    def _redraw(self, line: str, stream: TextIO) -> None:
        from rich.console import Console
        from rich.markup import escape

        if self._status is None:
            self._status = Console(file=stream).status(escape(line))
            self._status.start()
        else:
            self._status.update(escape(line))
