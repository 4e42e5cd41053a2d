"""How much memory a process has, and how much a child may take.

The supervisor of a child runs this file's text too, so it imports nothing that takes time.
"""

from __future__ import annotations

import os

WORKER_BYTES = 16 * 2**30  # of a process that measures on a GPU; it takes a few GiB
PART_OF_MACHINE = 0.8


def largest_resident(process: int) -> int:
    """Bytes in memory of the largest of a process and what it has started; 0 once it is gone."""
    largest, waiting = 0, [process]
    while waiting:
        one = waiting.pop()
        try:
            with open(f"/proc/{one}/statm") as file:
                pages = int(file.read().split()[1])
            largest = max(largest, pages * os.sysconf("SC_PAGE_SIZE"))
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as file:
                    waiting += map(int, file.read().split())
        except (OSError, ValueError, IndexError):
            continue
    return largest


def machine_bytes() -> int:
    """Memory of this machine; more than any has, where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 2**62


def most_of_machine(wanted: int) -> int:
    """So many bytes, but no more than a process may have of this machine."""
    return min(wanted, int(PART_OF_MACHINE * machine_bytes()))
