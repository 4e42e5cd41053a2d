"""Decide which torch and which CuPy this machine gets. Standard library only.

All but ``find_driver`` are pure functions of what was asked and what is here.
"""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass

TORCH_CHOICES = "auto, cpu, cuda, none, or the name of a PyTorch build such as cu126"


@dataclass(frozen=True)
class Driver:
    """An NVIDIA driver with at least one GPU behind it."""

    cuda_major: int
    cuda_minor: int
    gpu_name: str

    def __str__(self) -> str:
        return f"{self.gpu_name}, driver for CUDA {self.cuda_major}.{self.cuda_minor}"


@dataclass(frozen=True)
class BuildChoice:
    """What to install, and the sentence that says why.

    ``kind`` is ``none``; ``cpu`` (PyTorch's CPU build, Linux); ``pypi`` (what the Python package
    index has: the CUDA build on Linux, a CPU build elsewhere); a PyTorch build name such as
    ``cu126``; or, for CuPy, ``cuda12`` and ``cuda13``.
    """

    kind: str
    why: str


def find_driver() -> Driver | None:
    """Ask the NVIDIA driver's own library; ``None`` without a driver or without a GPU."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        cuda = ctypes.CDLL(name)
    except OSError:
        return None
    version, count, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    label = ctypes.create_string_buffer(256)
    # A library without a working GPU behind it answers with an error here.
    if cuda.cuInit(0) != 0 or cuda.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None
    if cuda.cuDeviceGet(ctypes.byref(device), 0) == 0:
        cuda.cuDeviceGetName(label, len(label), device)
    gpu_name = label.value.decode(errors="replace") or "NVIDIA GPU"
    return Driver(version.value // 1000, version.value % 1000 // 10, gpu_name)


def choose_torch(request: str, driver: Driver | None, platform: str = sys.platform) -> BuildChoice:
    """Which torch build to install for a value of ``TORCH``, on a ``sys.platform``.

    Raises ValueError: it is not one of ``TORCH_CHOICES``.
    """
    if request == "none":
        return BuildChoice(
            "none", "none, as asked. Cells that need torch say so and the rest works."
        )
    if re.fullmatch(r"cu\d{3}", request):
        return BuildChoice(request, f"PyTorch's {request} build, as asked. Several GB.")
    if request not in ("auto", "cpu", "cuda"):
        raise ValueError(f"TORCH={request} is not a choice. Choices: {TORCH_CHOICES}.")
    if platform != "linux":
        if request == "cuda" and platform == "win32":
            return BuildChoice("cu130", "PyTorch's CUDA 13.0 build, as asked. Several GB.")
        return BuildChoice("pypi", "the build of the Python package index, which is small here.")
    if request == "cuda":
        return BuildChoice("pypi", "the CUDA build, as asked. About 5 GB on disk.")
    if request == "cpu":
        return BuildChoice("cpu", "the CPU build, as asked. About 0.8 GB on disk.")
    if driver is None:
        return BuildChoice(
            "cpu", "the CPU build (about 0.8 GB on disk), because there is no GPU here."
        )
    if driver.cuda_major < 13:
        return BuildChoice(
            "cpu",
            f"the CPU build, because the CUDA build needs a driver for CUDA 13 and here is "
            f"{driver}. For live baselines, take a build for your driver: make lab TORCH=cu126.",
        )
    return BuildChoice("pypi", f"the CUDA build (about 5 GB on disk), because here is {driver}.")


def choose_cupy(driver: Driver | None, platform: str = sys.platform) -> BuildChoice:
    """Which CuPy to install: the one for the CUDA major version of the driver."""
    if driver is None:
        return BuildChoice("none", "none, because there is no NVIDIA GPU here.")
    if platform == "darwin":
        return BuildChoice("none", "none, because there is no CuPy for macOS.")
    if driver.cuda_major < 12:
        return BuildChoice(
            "none", f"none: CuPy needs a driver for CUDA 12 or newer, here is {driver}."
        )
    # A driver runs everything built for its own major version or an older one.
    kind = "cuda12" if driver.cuda_major == 12 else "cuda13"
    return BuildChoice(kind, f"cupy-{kind}x, because here is {driver}.")
