"""What the GPU says of itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

# Numbers of CUdevice_attribute in cuda.h; cudaDeviceAttr uses the same ones.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "smem_per_block_bytes": 8,
    "warp_size": 10,
    "registers_per_block": 12,
    "sm_count": 16,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "smem_per_sm_bytes": 81,
    "registers_per_sm": 82,
    "smem_per_block_optin_bytes": 97,
    "max_blocks_per_sm": 106,
    "smem_reserved_per_block_bytes": 111,
}
_CLOCK_KHZ, _MEMORY_CLOCK_KHZ, _BUS_WIDTH_BITS, _MAJOR, _MINOR = 13, 36, 37, 75, 76


@dataclass(frozen=True)
class DeviceInfo:
    """A GPU's own answers."""

    name: str  # for example ``NVIDIA H200``
    compute_capability: tuple[int, int]  # (major, minor)
    sm_count: int  # streaming multiprocessors
    warp_size: int  # threads a warp
    max_threads_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_block: int  # of 32 bits
    registers_per_sm: int
    smem_per_block_bytes: int  # shared memory a block without opting in
    smem_per_block_optin_bytes: int  # shared memory a block after opting in
    smem_per_sm_bytes: int  # shared memory an SM
    smem_reserved_per_block_bytes: int  # what the driver keeps of it for each block
    l2_bytes: int  # L2 cache
    memory_bytes: int  # device memory
    sm_clock_mhz: float | None  # highest SM clock, or None
    memory_clock_mhz: float | None  # highest memory clock, or None
    bus_width_bits: int | None  # width of the memory bus, or None
    cuda_version: str  # newest CUDA the driver serves, for example ``13.0``
    driver_version: str | None  # for example ``580.95.05``, or None

    @property
    def arch(self) -> str:
        """Architecture to compile for, for example ``sm_90``."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def max_warps_per_sm(self) -> int:
        """Resident warps an SM."""
        return self.max_threads_per_sm // self.warp_size

    @property
    def dram_gb_per_s(self) -> float | None:
        """Peak memory rate in GB/s (10^9): two transfers a clock over the bus width."""
        if not self.memory_clock_mhz or not self.bus_width_bits:
            return None
        return 2 * self.memory_clock_mhz * 1e6 * self.bus_width_bits / 8 / 1e9


@lru_cache(maxsize=8)
def device_query(ordinal: int = 0) -> DeviceInfo | None:
    """Ask the GPU, through cuda-bindings or CuPy; None where there is no usable GPU.

    `cuda_status` says why there is none. No CUDA context is made.
    """
    for ask in (_ask_bindings, _ask_cupy):
        try:
            return ask(ordinal)
        except Exception:  # no driver, no GPU or no such package: each has its own type
            continue
    return None


def call_driver(function: Callable[..., Any], *args: Any) -> Any:
    """What a function of the driver gives besides its status. Raises RuntimeError: it failed."""
    result, *values = function(*args)
    if int(result) != 0:
        raise RuntimeError(f"{function.__name__} returned {result}")
    return values[0] if values else None


def _ask_bindings(ordinal: int) -> DeviceInfo:
    from cuda.bindings import driver

    call_driver(driver.cuInit, 0)
    device = call_driver(driver.cuDeviceGet, ordinal)

    def attribute(number: int) -> int:
        asked = driver.CUdevice_attribute(number)
        return int(call_driver(driver.cuDeviceGetAttribute, asked, device))

    name = call_driver(driver.cuDeviceGetName, 128, device)
    memory_bytes = int(call_driver(driver.cuDeviceTotalMem, device))
    version = int(call_driver(driver.cuDriverGetVersion))
    return describe_device(name.split(b"\0")[0].decode(), memory_bytes, version, attribute, ordinal)


def _ask_cupy(ordinal: int) -> DeviceInfo:
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(ordinal)

    def attribute(number: int) -> int:
        return int(runtime.deviceGetAttribute(number, ordinal))

    name, memory_bytes = properties["name"], int(properties["totalGlobalMem"])
    name = name.decode() if isinstance(name, bytes) else str(name)
    return describe_device(name, memory_bytes, int(runtime.driverGetVersion()), attribute, ordinal)


def describe_device(
    name: str, memory_bytes: int, cuda_version: int, attribute: Callable[[int], int], ordinal: int
) -> DeviceInfo:
    """Build a `DeviceInfo` from a function that answers attribute numbers."""

    def optional(number: int) -> int | None:
        try:
            return attribute(number) or None
        except Exception:  # a clock that this driver no longer reports
            return None

    clock, memory_clock = optional(_CLOCK_KHZ), optional(_MEMORY_CLOCK_KHZ)
    return DeviceInfo(
        name=name,
        compute_capability=(attribute(_MAJOR), attribute(_MINOR)),
        memory_bytes=memory_bytes,
        sm_clock_mhz=clock / 1000 if clock else None,
        memory_clock_mhz=memory_clock / 1000 if memory_clock else None,
        bus_width_bits=optional(_BUS_WIDTH_BITS),
        cuda_version=f"{cuda_version // 1000}.{cuda_version % 1000 // 10}",
        driver_version=query_driver_version(ordinal),
        **{field: attribute(number) for field, number in _ATTRIBUTES.items()},
    )


def query_driver_version(ordinal: int = 0) -> str | None:
    """The display driver's version from nvidia-smi, or None."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, f"--id={ordinal}", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
