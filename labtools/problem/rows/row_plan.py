"""How many threads share a row: a launch asks this, and the derivation does too."""

from __future__ import annotations

from collections.abc import Sequence

from ..limits import COPY_BYTES, MOST_THREADS
from .rows import Rows

MOST_HELD = 4
"""Pieces of 16 bytes of a row that a thread holds: it asks for all of them before it needs one."""
THREAD_CHOICES = (32, 64, 128, 256, 512, MOST_THREADS)


def pieces_of_thread(problem: Rows, threads: int) -> int:
    """Pieces of 16 bytes of a row that a thread takes, rounded up."""
    return -(-problem.columns * problem.element_bytes // (COPY_BYTES * threads))


def row_threads(problem: Rows, choices: Sequence[int] = THREAD_CHOICES) -> int:
    """Threads of the block that has a row: the fewest that hold all of it, or else the most, since
    fewer of them join sooner."""
    enough = (one for one in sorted(choices) if pieces_of_thread(problem, one) <= MOST_HELD)
    return next(enough, max(choices))
