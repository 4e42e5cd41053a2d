"""The SM model's numbers for a GPU: from its own microbenchmarks, or from the literature."""

from __future__ import annotations

from .machine import Machine
from .sheets import Gpu


def machine_of(gpu: Gpu) -> Machine:
    raise NotImplementedError


def measured_band(machine: Machine) -> tuple[float, float]:
    return (0.8, 1.25)
