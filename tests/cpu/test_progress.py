"""The one way to show progress: a line that moves on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io

import pytest

from labtools.toolchain import progress as progress_module
from labtools.toolchain.progress import ProgressLine, with_time_left


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until the test moves it."""
    clock = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    return clock


def test_elsewhere_a_line_comes_every_few_seconds(now: list[float]) -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        for number in range(1000):
            now[0] += 0.02
            progress("comparing", number, 1000)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "comparing (0%)"
    assert len(lines) == 4  # twenty seconds
    assert all(line.startswith("comparing (") for line in lines)


def test_words_that_came_too_early_are_shown_when_they_are_said_again(now: list[float]) -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        progress("timing")
        for _ in range(3):
            progress("waiting for the GPU")
            now[0] += progress_module.SAY_EVERY_S
    assert stream.getvalue() == "timing\nwaiting for the GPU\n"


def test_the_same_words_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "SAY_EVERY_S", 0.0)
    stream = io.StringIO()
    with ProgressLine(stream) as progress:
        for text in ("one", "one", "", "two"):
            progress(text)
    assert stream.getvalue() == "one\ntwo\n"


def test_on_a_terminal_one_line_moves() -> None:
    stream = Terminal()
    with ProgressLine(stream) as progress:
        for number in range(50):
            progress("comparing [bold]", number, 50)
    drawn = stream.getvalue()
    assert "comparing [bold]" in drawn
    assert drawn.count("\n") <= 1  # the cursor's way to the end of the line
    assert drawn.endswith("\x1b[2K")  # and the line is gone afterwards


def test_the_time_left_follows_from_what_was_done(now: list[float]) -> None:
    said: list[str] = []
    progress = with_time_left(lambda text, done=0, total=0, /: said.append(text))
    progress("resuming")
    progress("timing", 10, 50)  # ten were there already
    now[0] += 20
    progress("timing", 20, 50)
    now[0] += 380
    progress("timing", 30, 50)
    progress("timing", 50, 50)
    assert said == [
        *("resuming", "timing", "timing, about 60 s left", "timing, about 7 min left"),
        "timing, about 0 s left",
    ]
