"""How much memory a check on the CPU may take, here and in the processes that run the kernel."""

from __future__ import annotations

from labtools.problem import LabError, Problem
from labtools.toolchain.apart import read_setting

from ..resident import machine_bytes, most_of_machine

GIB_VARIABLE = "LABTOOLS_CHECK_GIB"
USUAL_GIB = 3.0
HOST_BYTES_PER_BYTE = 8  # of the inputs: what drawing them and the float64 oracle need


def most_bytes() -> int:
    """What each process of a check may have in memory beside the inputs.

    ``LABTOOLS_CHECK_GIB``, 3 GiB without it; the inputs may take what the machine has.
    """
    gib = read_setting(GIB_VARIABLE, USUAL_GIB, "what a check on the CPU may take, in GiB")
    return most_of_machine(int(min(gib, 2.0**30) * 2**30))


def check_host_memory(workload: Problem, others: int = 0) -> None:
    """Refuse what would take more memory than there is, before anything is drawn.

    ``others`` are the bytes of the buffers that are no inputs.

    Raises LabError: the inputs do not fit the machine, or the other buffers what a check may have.
    """
    needed = HOST_BYTES_PER_BYTE * sum(one.bytes for one in workload.inputs.values())
    there = most_of_machine(machine_bytes())
    if needed > there:
        raise LabError(
            f"{workload} does not fit the memory of this machine.",
            f"its inputs and the oracle need about {needed / 2**30:.1f} GiB and a process may take "
            f"{there / 2**30:.1f} GiB here",
            "a smaller workload checks the same code; forecasts and records need no memory",
        )
    # Of a buffer that a kernel writes there are the memory and a copy at least.
    if 2 * others > most_bytes():
        raise too_large(
            f"The kernel's buffers on {workload} are too large to be checked on the CPU.",
            f"with the copies that are compared they need about {2 * others / 2**30:.1f} GiB",
            most_bytes(),
        )


def too_large(what: str, why: str, most: int) -> LabError:
    """The error of a check that wants more memory than it may have."""
    return LabError(
        what,
        f"{why}, and beside the inputs a check may take {most / 2**30:.1f} GiB of this machine",
        f"a smaller workload checks the same code; {GIB_VARIABLE}={2 * most / 2**30:.0f} allows "
        "more; forecasts and records need no memory",
    )
