"""The command lines of ``commands.toml`` whose ``--json`` is a golden, and the files they name."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any

from labtools.problem import Workload

_CASES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
GUESSES = "# with guesses"
"""Behind a command line: the journal holds `GUESSED`."""
GUESSED: list[dict[str, Any]] = _CASES["guesses"]


def _file(shape: list[int], lengths: list[int], **more: Any) -> str:
    """The long form of a decode workload, as a file holds it."""
    make: Any = Workload
    return json.dumps(make(*shape, tuple(lengths), **more).to_dict())


FILES: dict[str, str] = _CASES["files"] | {
    name: _file(**fields) for name, fields in _CASES["workloads"].items()
}


@dataclass(frozen=True)
class Command:
    """One command line."""

    text: str  # what follows ``labtools``
    needs: frozenset[str] = frozenset()  # what the answer depends on besides the project
    seconds: float = 0.1  # that it takes, about; a sample is drawn with them in mind
    whole: bool = False  # long lists are kept as they are


def commands() -> dict[str, Command]:
    """Every case by its text."""
    words = {name: text.split() for name, text in _CASES["words"].items()}
    knobs = [(rung, knob) for rung, text in _CASES["knobs"].items() for knob in text.split()]
    words["knob"] = [f"{rung} -k {knob}" for rung, knob in knobs]
    words["knob_on_h200"] = [f"{rung} --gpu h200 -k {knob}" for rung, knob in knobs]
    found = {}
    for group in _CASES["commands"]:
        needs = frozenset(group.get("needs", ()))
        for text in _expanded(group["lines"], words):
            said = f"{text} --json"
            command = Command(said, needs, group.get("seconds", 0.1), group.get("whole", False))
            found[said] = command
    for text in _expanded(_CASES["guessed"]["lines"], words):
        said = f"{text} --json {GUESSES}"
        found[said] = Command(said)
    return found


def _expanded(lines: str, words: dict[str, list[str]]) -> Iterator[str]:
    """Every line with every choice of the words that stand in braces."""
    for line in lines.removesuffix("\n").split("\n"):
        names = [name for _, name, _, _ in Formatter().parse(line.strip()) if name]
        for chosen in product(*(words[name] for name in names)):
            yield line.strip().format(**dict(zip(names, chosen, strict=True)))
