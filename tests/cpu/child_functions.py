"""Functions that tests call in a child."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from labtools.measure.channel import Reporter
from labtools.problem import LabError


@dataclass(frozen=True)
class Sum:
    """What is to be added, and how to end on the way."""

    numbers: tuple[float, ...]
    ending: str = ""
    limit_s: float = 30.0


def add(report: Reporter[float], request: Sum) -> Sum:
    """The running sums as items; each number is a step."""
    total = 0.0
    for index, number in enumerate(request.numbers):
        report.progress(f"adding {number}", index, len(request.numbers))
        with report.step(f"adding {number}", request.limit_s, str(index)):
            if number < 0:
                _end(request.ending)
            total += number
        report.item(total)
    return Sum((total,), str(os.getpid()))


def _end(ending: str) -> None:
    if ending == "crash":
        os.abort()
    if ending == "fill":
        held = b"x" * 2**29
        time.sleep(len(held))
    if ending == "hang":
        time.sleep(600)
    if ending == "raise":
        raise ZeroDivisionError("a mistake")
    raise LabError("It was refused.", ending, "adding")


def refuse(report: Reporter[None], what: str) -> None:
    """A message in three parts."""
    raise LabError(what, "b", "c")
