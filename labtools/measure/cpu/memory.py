"""How much memory a check on the CPU may take, here and in the processes that run the kernel."""

from __future__ import annotations

import os

from labtools.problem import LabError, Problem

from ..resident import most_of_machine

GIB_VARIABLE = "LABTOOLS_CHECK_GIB"
USUAL_GIB = 2.0
HOST_BYTES_PER_BYTE = 8
"""Drawing inputs and the float64 oracle need about this many times the bytes of the inputs."""


def most_bytes() -> int:
    """What each process of a check may have in memory: ``LABTOOLS_CHECK_GIB``, 2 GiB without it."""
    given = os.environ.get(GIB_VARIABLE, "")
    try:
        gib = float(given) if given.strip() else USUAL_GIB
        wanted = int(gib * 2**30)
    except (ValueError, OverflowError):
        wanted = 0
    if wanted <= 0:
        raise LabError(
            f"{GIB_VARIABLE} is {given!r}.",
            "it is the memory that a check on the CPU may take, a number of GiB above 0",
            f"unset it, and {USUAL_GIB:g} GiB it is",
        )
    return most_of_machine(wanted)


def check_host_memory(workload: Problem, others: int = 0) -> None:
    """Refuse what would take more memory than a check may have, before anything is drawn.

    Args:
        workload: its inputs are drawn, and the oracle works on them in float64.
        others: bytes of all other buffers.

    Raises:
        LabError: it would.
    """
    drawn = sum(one.bytes for one in workload.inputs.values())
    # Of a buffer that a kernel writes there are the memory and a copy at least.
    needed, most = HOST_BYTES_PER_BYTE * drawn + 2 * others, most_bytes()
    if needed > most:
        raise too_large(
            f"{workload} needs too much memory to be checked on the CPU.",
            f"its inputs, the oracle and the kernel's buffers need about {needed / 2**30:.1f} GiB",
            most,
        )


def too_large(what: str, why: str, most: int) -> LabError:
    """The error of a check that wants more memory than it may have."""
    return LabError(
        what,
        f"{why}, and a check may take {most / 2**30:.1f} GiB of this machine",
        f"a smaller workload checks the same code; {GIB_VARIABLE}={2 * most / 2**30:.0f} allows "
        "more; forecasts and records need no memory",
    )
