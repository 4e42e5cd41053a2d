"""The GPU as a child takes it: held against everybody else, with CUDA started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from labtools.problem import LabError

from ..channel import Reporter
from .clocks import ClockWatch
from .device import LiveDevice
from .faults import cuda_fault
from .queue import hold_gpu

START_LIMIT_S = 120.0


@dataclass
class Session:
    """What a child keeps from one call to the next."""

    device: LiveDevice

    @cached_property
    def clocks(self) -> ClockWatch:
        """The clocks of the GPU, watched from now on."""
        watch = ClockWatch(self.device.pci_bus_id)
        watch.open()
        return watch


_sessions: list[Session] = []  # that of this process, once CUDA has been started


@contextmanager
def use_gpu(
    report: Reporter[Any], purpose: str, ordinal: int | None = None, with_torch: bool = False
) -> Iterator[Session]:
    """Hold one of this machine's GPUs, all of the same kind as the first, for one call.

    ``purpose`` is shown to those who wait. Without an ordinal it is the first that is free; a
    process stays with the GPU of its first call.

    Raises LabError: the GPU could not be used; in plain words.
    """
    try:
        gpus = _choices(_sessions[0].device.ordinal if _sessions else ordinal)
        with hold_gpu([bus for _, bus in gpus], purpose, report.progress) as index:
            if not _sessions:
                with report.step("starting CUDA", START_LIMIT_S):
                    _sessions.append(Session(LiveDevice(gpus[index][0], with_torch)))
            yield _sessions[0]
    except Exception as error:
        fault = cuda_fault(error)
        if fault is None:
            raise
        still = "compiling, forecasts, records and the CPU runner"
        raise LabError("The GPU could not be used.", fault.message, still) from error


def _choices(ordinal: int | None) -> list[tuple[int, str]]:
    import cupy

    runtime = cupy.cuda.runtime
    ordinals = [ordinal]
    if ordinal is None:
        names = [runtime.getDeviceProperties(i)["name"] for i in range(runtime.getDeviceCount())]
        ordinals = [i for i, name in enumerate(names) if name == names[0]]
    return [(i, str(runtime.deviceGetPCIBusId(i))) for i in ordinals if i is not None]
