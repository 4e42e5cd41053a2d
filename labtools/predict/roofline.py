"""Floors: what no kernel can beat, from bytes and operations alone. The forecast of a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from labtools.problem import LabError, Problem, Rung

from .sheets import Gpu, load_gpu

Bound = Literal["bandwidth", "compute"]


@dataclass(frozen=True)
class Floors:
    """Lower bounds of a workload on a GPU.

    Attributes:
        bytes: least traffic with memory: `Problem.minimal_bytes`.
        dram_gb_per_s: the data sheet's memory rate, 10^9 bytes a second.
        time_us: ``bytes`` at that rate.
        given_gb_per_s: a rate given by the caller (the best one read that day), or None.
        time_at_given_us: ``bytes`` at the given rate, or None.
        flops: additions and multiplications: `Problem.flops`.
        compute_tflops: the peak that ``compute_us`` uses, dense, or None when none is known.
        compute_us: ``flops`` at that peak, or None.
        bound: ``bandwidth`` or ``compute``, whichever takes longer.
        fits_l2: the bytes fit the L2 cache.
        note: what limits the meaning of these numbers, or an empty string.
    """

    bytes: int
    dram_gb_per_s: float
    time_us: float
    given_gb_per_s: float | None
    time_at_given_us: float | None
    flops: int
    compute_tflops: float | None
    compute_us: float | None
    bound: Bound
    fits_l2: bool
    note: str


@dataclass(frozen=True)
class RooflineForecast:
    """The time that a roofline predicts: bytes or operations at their peak, whatever the kernel.

    Attributes:
        time_us: the prediction.
        band_us: (lower end, upper end); the upper end is None while the model sets none.
        bound: what the time comes from.
        model: which model made it.
        note: what the model leaves out.
        gpu: name of the GPU.
    """

    time_us: float
    band_us: tuple[float, float | None]
    bound: Bound
    model: str
    note: str
    gpu: str


FLOOR_MODEL = "roofline floor"
FLOOR_NOTE = (
    "A lower bound from bytes and operations alone: no kernel can be faster, and this one may be "
    "many times slower. It does not look at the kernel."
)


def floors(workload: Problem, gpu: Gpu | str, gb_per_s: float | None = None) -> Floors:
    """Least time that a workload can take.

    Args:
        workload: what is computed; ragged lengths count as they are.
        gpu: a sheet or its name.
        gb_per_s: a measured read rate, 10^9 bytes a second, for a second and tighter floor.

    Raises:
        LabError: the GPU's memory rate is unknown, or the given rate is not positive.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    if gb_per_s is not None and not gb_per_s > 0:
        raise LabError(
            f"A read rate of {gb_per_s} GB/s gives no floor.", "it must be positive", "leave it out"
        )
    if gpu.dram_gb_per_s is None:
        raise LabError(
            f"The memory rate of {gpu.title} is not known here.",
            "there is no data sheet for it and the driver does not report its memory clock",
            "occupancy, waves, and every measurement on the GPU itself",
        )
    moved, flops = workload.minimal_bytes, workload.flops
    time_us = moved / (gpu.dram_gb_per_s * 1e9) * 1e6
    tflops = gpu.fp16_tensor_tflops or gpu.fp32_tflops
    compute_us = flops / (tflops * 1e12) * 1e6 if tflops else None
    fits = moved <= gpu.l2_bytes
    note = ""
    if fits and workload.cache_state == "warm":
        note = (
            f"The data fit the L2 of {gpu.title} and the workload is warm, so memory need not be "
            "read at all: the floor by memory rate does not hold."
        )
    return Floors(
        bytes=moved,
        dram_gb_per_s=gpu.dram_gb_per_s,
        time_us=time_us,
        given_gb_per_s=gb_per_s,
        time_at_given_us=moved / (gb_per_s * 1e9) * 1e6 if gb_per_s else None,
        flops=flops,
        compute_tflops=tflops,
        compute_us=compute_us,
        bound="compute" if compute_us is not None and compute_us > time_us else "bandwidth",
        fits_l2=fits,
        note=note,
    )


def roofline_forecast(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    gb_per_s: float | None = None,
) -> RooflineForecast:
    """The floor as a forecast, to be compared with; `labtools.predict.forecast` reads the kernel.

    Args:
        rung: the kernel; it must support the workload.
        workload: what is computed.
        gpu: a sheet or its name.
        knobs: compile-time choices; they are checked, but a floor does not depend on them.
        gb_per_s: a measured read rate, 10^9 bytes a second, in place of the data sheet's.

    Raises:
        LabError: the rung cannot run the workload, an unknown knob or GPU.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    rung.launches(workload, gpu.limits, knobs)
    floor = floors(workload, gpu, gb_per_s)
    compute_us = floor.compute_us or 0.0
    memory_us = floor.time_us if floor.time_at_given_us is None else floor.time_at_given_us
    lowest = max(floor.time_us, compute_us)
    warm_in_l2 = bool(floor.note)
    return RooflineForecast(
        time_us=max(memory_us, compute_us),
        band_us=(compute_us if warm_in_l2 else min(lowest, max(memory_us, compute_us)), None),
        bound="compute" if compute_us > memory_us else "bandwidth",
        model=FLOOR_MODEL,
        note=f"{FLOOR_NOTE} {floor.note}".strip(),
        gpu=gpu.name,
    )
