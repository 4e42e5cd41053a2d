"""What of an answer belongs to the machine and not to the project. This is the whole list.

A masked value is kept as ``<masked>``; that it is there is still compared.
"""

from __future__ import annotations

import fnmatch
import re
import sys
import tempfile
from pathlib import Path

from tools.install import ROOT

from .values import Json

MASKED = "<masked>"

RULES: tuple[tuple[str, str, str], ...] = (
    # command line, path in the answer, why
    ("doctor*", "data/python", "the machine's"),
    ("doctor*", "data/system", "the machine's"),
    ("doctor*", "data/executable", "the machine's"),
    ("doctor*", "data/can_*", "the machine's"),
    ("doctor*", "data/device", "the machine's"),
    ("doctor*", "data/missing", "the machine's"),
    ("doctor*", "data/links/*/ok", "the machine's"),
    ("doctor*", "data/links/*/found", "a path, a version or a size"),
    ("doctor*", "data/links/*/why", "the machine's"),
    ("doctor*", "data/links/*/still_works", "the machine's"),
    ("doctor*", "data/links/*/fix", "the machine's"),
    ("run * 64,64,64,1000000,128 *", "data/error/why", "how much memory is here"),
    ("reset no_such_page*", "data/error/why", "it lists every page, and pages are added"),
    ("run*", "data/worst_error", "the host's compiler chooses the order of additions"),
    ("run*", "data/summary", "it names the worst error"),
    ("run*", "data/cases/*/comparison/worst_error", "the host's compiler, as above"),
    ("run*", "data/cases/*/comparison/worst_index", "the host's compiler, as above"),
    ("*", "data/error/why:gpu", "why there is no GPU here"),
    ("*", "data/error/still_works:gpu", "what works instead depends on the machine"),
    ("sync*", "data/cells/*/line", "pages are written on"),
)
_FILES = re.compile(re.escape(tempfile.gettempdir()) + r"/labtools-goldens-\w+")
NO_GPU = "Nothing can run on a GPU here."


def mask(command: str, answer: Json) -> Json:
    """An answer without what belongs to the machine."""
    data = answer.get("data") if isinstance(answer, dict) else None
    error = data.get("error") if isinstance(data, dict) else None
    no_gpu = isinstance(error, dict) and error.get("what") == NO_GPU
    rules = []
    for pattern, path, _ in RULES:
        path, _, only = path.partition(":")
        if fnmatch.fnmatchcase(command, pattern) and (not only or no_gpu):
            rules.append(path.split("/"))
    return _masked(answer, [], rules)


def _masked(value: Json, path: list[str], rules: list[list[str]]) -> Json:
    if any(_fits(path, rule) for rule in rules):
        return MASKED
    if isinstance(value, dict):
        return {name: _masked(one, [*path, name], rules) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one, [*path, str(number)], rules) for number, one in enumerate(value)]
    if isinstance(value, str):
        return without_paths(value)
    return value


def _fits(path: list[str], rule: list[str]) -> bool:
    return len(path) == len(rule) and all(map(fnmatch.fnmatchcase, path, rule))


def without_paths(text: str) -> str:
    """A text in which folders of this machine have names that every machine shares."""
    text = _FILES.sub("<files>", text)
    for folder, name in (
        (str(ROOT), "<root>"),
        (sys.prefix, "<python>"),
        (str(Path(tempfile.gettempdir()).resolve()), "<tmp>"),
        (tempfile.gettempdir(), "<tmp>"),
    ):
        text = text.replace(folder, name)
    return text
