"""Floors: what no kernel can beat, from bytes and operations alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labtools.problem import LabError, Problem
from labtools.problem.storage import element_bytes
from labtools.toolchain.sass import Instruction, Sass

from .machine import unit_of
from .sheets import Gpu, load_gpu


@dataclass(frozen=True)
class Floors:
    """Lower bounds of a workload on a GPU."""

    # least traffic with memory: `Problem.minimal_bytes`, or of a call what it reads as it is stored
    bytes: int
    dram_gb_per_s: float  # the data sheet's memory rate, 10^9 bytes a second
    time_us: float  # ``bytes`` at that rate
    given_gb_per_s: float | None  # a rate given by the caller (the best one read that day), or None
    time_at_given_us: float | None  # ``bytes`` at the given rate, or None
    flops: int  # additions and multiplications: `Problem.flops`
    # the peak that ``compute_us`` uses, dense, or None when none is known
    compute_tflops: float | None
    compute_us: float | None  # ``flops`` at that peak, or None
    bound: Literal["bandwidth", "compute"]  # ``bandwidth`` or ``compute``, whichever takes longer
    fits_l2: bool  # the bytes fit the L2 cache
    # inputs that ``bytes`` leave out: a part of each is read, and nobody says how much
    left_out: tuple[str, ...]
    note: str  # what limits the meaning of these numbers, or an empty string

    @property
    def least_us(self) -> float:
        """What no call is faster than: of data that may stay in the L2 the operations alone say."""
        return max(0.0 if self.note else self.time_us, self.compute_us or 0.0)


def sheet_floor_us(read_bytes: float, gpu: Gpu | str) -> float | None:
    """Microseconds that bytes take at the data sheet's memory rate; None where none is known. No
    cold kernel that must read them is faster."""
    try:
        rate = (load_gpu(gpu) if isinstance(gpu, str) else gpu).dram_gb_per_s
    except LabError:
        return None
    return read_bytes / rate / 1e3 if rate else None


def floors(
    workload: Problem,
    gpu: Gpu | str,
    gb_per_s: float | None = None,
    call_bytes: float | None = None,
    code: Sequence[Sass] = (),
) -> Floors:
    """Least time that a workload can take, or a call that moves so many bytes; a measured
    ``gb_per_s`` (10^9 bytes) adds a tighter floor. With the machine ``code`` of all its launches,
    which tells whether they compute in less than float32, it is that of the kernel."""
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
    moved = workload.minimal_bytes if call_bytes is None else round(call_bytes)
    flops = workload.flops
    time_us = moved / (gpu.dram_gb_per_s * 1e9) * 1e6
    tflops = gpu.fp16_tensor_tflops or gpu.fp32_tflops
    if gpu.fp32_tflops and code and _is_in_fp32(workload, code):
        tflops = gpu.fp32_tflops
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
        left_out=workload.read_in_part,
        note=note,
    )


def _is_in_fp32(workload: Problem, code: Sequence[Sass]) -> bool:
    """Whether all that is no integer is float32 or wider and the code has no unit for anything
    faster. Without code that is not known: a tensor core takes float32 as TF32."""
    floats = [one.dtype for one in workload.buffers.values() if "int" not in one.dtype]
    if not floats or min(map(element_bytes, floats)) < 4:
        return False
    return not any(_is_packed(one) for sass in code for one in sass.instructions)


def _is_packed(one: Instruction) -> bool:
    """Whether it multiplies and adds more than two numbers a lane; a half2 that only makes a
    constant does not, as compilers use it."""
    if unit_of(one) == "fp16":
        return any(each.kind == "register" and each.name != "RZ" for each in one.operands[1:])
    return unit_of(one) == "tensor" or one.base == "IDP"
