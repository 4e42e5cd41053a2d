"""No tracked file names a machine's folders or a package registry's host."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Written in pieces, so that this file does not find itself.
HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "registry.npm" + "js.org", "deb.debian" + ".org")
HOSTS += ("download.pytorch" + ".org", "conda" + ".anaconda.org")
PATHS = ("work/main", "work/shared", "tmp/dev", "opt/wheels", "opt/pypi", "root/.")
FORBIDDEN = re.compile(
    "|".join([*map(re.escape, HOSTS), *(rf"(?<![\w.}}])/{re.escape(path)}" for path in PATHS)])
)
# Files of other trades than text.
BINARY = {".png", ".gz", ".xz", ".zst", ".jsonl.gz", ".woff2", ".ico"}


def tracked_files() -> list[Path]:
    """What git tracks, or would: untracked files that are not ignored count too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in done.stdout.split("\0") if name]
    return [file for file in files if file.is_file() and file.suffix not in BINARY]


def find_words(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if match := FORBIDDEN.search(line):
            yield number, match[0]


def test_no_host_and_no_machine_path() -> None:
    found = []
    for file in tracked_files():
        text = file.read_text(encoding="utf-8", errors="replace")
        found += [f"{file.relative_to(ROOT)}:{n}: {word}" for n, word in find_words(text)]
    assert found == []


@pytest.mark.parametrize(
    "line", ["--index-url https://" + HOSTS[0] + "/simple", "cd /" + PATHS[0], "/" + PATHS[3]]
)
def test_such_a_line_is_found(line: str) -> None:
    assert next(find_words(f"first\n{line}\n"))[0] == 2


@pytest.mark.parametrize("line", ["a copy in work/main.md", "see labtools/work", "pypi in general"])
def test_plain_words_are_not(line: str) -> None:
    assert list(find_words(line)) == []


def test_nothing_made_is_tracked() -> None:
    made = (".venv", "work", "_build")
    assert [f for f in tracked_files() if f.relative_to(ROOT).parts[0] in made] == []
