"""Processes of tests: which are alive, and what one has started."""

from __future__ import annotations

import time
from pathlib import Path


def is_alive(pid: int) -> bool:
    """A zombie that nobody has collected yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(*pids: int, within_s: float = 10.0) -> bool:
    """Whether they are all gone in time."""
    end = time.monotonic() + within_s
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


def descendants(pid: int) -> list[int]:
    """All that a process has started, and what these have."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in direct:
            found += [child, *descendants(child)]
    return found
