"""Text that somebody gave: half characters, endless words, and files that are none."""

from __future__ import annotations

import math
import os
import re
import stat
import sys
from pathlib import Path

MOST_BYTES = 16 * 2**20
"""Of a source, a header or a workload."""
LONGEST_WORD = 240
"""Characters of a word that a message shows whole."""
_LONG = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def mend_text(text: str) -> str:
    """The text in characters that UTF-8 can hold: half of a pair becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def counted_lines(source: str, name: str) -> list[str]:
    """The lines that compilers count under a name: from ``#line 1 "name"`` on, else all."""
    return (source.partition(f'#line 1 "{name}"\n')[2] or source).splitlines()


ONLY_IN = "LABTOOLS_ONLY_IN"
"""Of the environment: the folder whose files alone may be named, beside those of the system and of
this project."""


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path leads into a folder, by whatever links."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    except (OSError, ValueError):
        return False


def _may_be_read(path: Path) -> bool:
    """Whether a file may be named, see `ONLY_IN`."""
    folder = os.environ.get(ONLY_IN)
    places = (folder, Path(__file__).parents[2], sys.prefix, "/usr") if folder else ()
    return not places or any(lies_in(path, Path(one)) for one in places)


def read_given(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file that somebody named, without a byte-order mark.

    Raises:
        OSError: it cannot be read, or is no file: reading a pipe or a device may never end.
        ValueError: it is too large, or not text in UTF-8.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is no file")
    if not _may_be_read(path):
        raise OSError(f"{path} lies outside {os.environ[ONLY_IN]}")
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes // 2**20} MiB")
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def given_path(text: str) -> Path:
    """The path that was typed; a ``~`` of nobody is the name of a folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def is_file(path: Path) -> bool:
    """Whether there is such a file; False of a path that no system can hold."""
    try:
        return path.is_file() and _may_be_read(path)
    except (OSError, ValueError):
        return False


def shorten(text: str) -> str:
    """The text with the middle of endless words left out, for a message."""
    if len(text) <= LONGEST_WORD:
        return text
    return _LONG.sub(_cut, text)


def _cut(match: re.Match[str]) -> str:
    word, kept = match[0], LONGEST_WORD // 3
    return f"{word[:kept]}[... {len(word) - 2 * kept} characters ...]{word[-kept:]}"


def how_many(count: int, thing: str) -> str:
    """A number of things whose plural takes an ``s``: ``1 round``, ``2 rounds``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def three_digits(number: float) -> str:
    """A number to three significant digits, or whole: ``1.50`` beside ``1.47``, ``1986``."""
    if not math.isfinite(number):
        return str(number)
    digits = max(0, 2 - int(f"{number:.2e}".partition("e")[2])) if number else 0
    return f"{number:,.{digits}f}" if abs(number) >= 100_000 else f"{number:.{digits}f}"


def first_line(report: str) -> str:
    """The first line of a report, without the colon that it may end in; empty where it has none."""
    return next(iter(report.strip().splitlines()), "").rstrip(" :")
