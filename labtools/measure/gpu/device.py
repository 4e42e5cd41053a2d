"""The GPU as a measuring child uses it: stream, buffers, kernels. Runs in the child alone."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labtools.problem import LabError, Launch, Problem, TensorMap, element_dtype
from labtools.problem.limits import MOST_FIXED_SMEM_BYTES

from .job import workspaces_of
from .plan import SLICE_ALIGNMENT
from .tensor_map import encode_tensor_map

RED_ZONE_BYTES = 64 * 1024
START_PLACES = 256
"""Multiples of ``SLICE_ALIGNMENT`` behind its first zone of which a checked buffer draws one."""
RED_BYTE = 0xFF
"""0xFFFF and 0xFFFFFFFF are NaN, so a read of a red zone poisons whatever uses it."""


_FILLS = {"float16": "fill_normal", "uint16": "fill_normal_bf16", "float32": "fill_normal_fp32"}
"""The entries that fill an array of a type, as it is held, with normal numbers."""


def device_dtype(name: str | np.dtype) -> np.dtype:
    """How a type is held in a device array: one that CuPy need not know, such as bfloat16, as its
    bits."""
    dtype = element_dtype(name) if isinstance(name, str) else np.dtype(name)
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype


def host_view(array: np.ndarray, dtype: str) -> np.ndarray:
    """What was downloaded, as the type of the workload."""
    return array.view(element_dtype(dtype))


@dataclass
class _Handle:
    owner: Any
    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.pointer)


class LiveDevice:
    """One GPU with one stream that CuPy and, if wanted, torch share.

    ``torch`` stays None where it has no CUDA.
    """

    def __init__(self, ordinal: int, with_torch: bool) -> None:
        # before CuPy, so that both use torch's libraries
        self.torch: Any = _import_torch() if with_torch else None
        import cupy

        self.cp: Any = cupy
        self.ordinal = ordinal
        cupy.cuda.Device(ordinal).use()
        if self.torch is not None:
            self.torch.cuda.set_device(ordinal)
            self.torch_stream = self.torch.cuda.Stream()
            self.torch.cuda.set_stream(self.torch_stream)
            handle = _Handle(self.torch_stream, int(self.torch_stream.cuda_stream))
            self.stream = cupy.cuda.Stream.from_external(handle)
        else:
            self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self._modules: dict[tuple[str, str], Any] = {}
        properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
        self.l2_bytes = int(properties["l2CacheSize"])
        self.num_sms = int(properties["multiProcessorCount"])
        self.pci_bus_id = str(cupy.cuda.runtime.deviceGetPCIBusId(ordinal))

    def synchronize(self) -> None:
        """Wait for the stream; raises what a kernel did wrong."""
        self.stream.synchronize()

    def free_bytes(self) -> int:
        """Free device memory, after giving back what the pools keep."""
        self.release()
        return int(self.cp.cuda.runtime.memGetInfo()[0])

    def release(self) -> None:
        """Give unused memory of the pools back to the driver."""
        self.cp.get_default_memory_pool().free_all_blocks()
        if self.torch is not None:
            self.torch.cuda.empty_cache()

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """An uninitialised array from CuPy's pool."""
        dtype = device_dtype(dtype)
        count = int(np.prod(shape))
        pointer = self.cp.cuda.alloc(max(1, count * dtype.itemsize))
        return self.cp.ndarray(tuple(shape), dtype, memptr=pointer)

    def upload(self, target: Any, host: np.ndarray) -> None:
        """Copy a host array to the device and wait for it."""
        host = np.ascontiguousarray(host)
        target.set(host.view(device_dtype(host.dtype)), stream=self.stream)
        self.synchronize()

    def download(self, source: Any) -> np.ndarray:
        """Copy a contiguous device array to the host; bfloat16 comes as its bits."""
        return np.asarray(source.get(stream=self.stream))

    def copy(self, source: Any, target: Any) -> None:
        """Copy one device array's memory to another's."""
        target.data.copy_from_device_async(source.data, target.nbytes, self.stream)

    def set_bytes(self, array: Any, value: int) -> None:
        """Fill an array's memory with one byte."""
        array.data.memset_async(value, array.nbytes, self.stream)

    def kernel(self, cubin: str, entry: str, smem_bytes: int = 0) -> Any:
        """A loaded kernel of a cubin file; large dynamic shared memory is allowed for it.

        Raises LabError: the file is gone.
        """
        key = (cubin, entry)
        if key not in self._modules:
            if not Path(cubin).is_file():
                why = f"{cubin} was deleted after it was written for this measurement"
                raise LabError(f"The compiled code of {entry} is gone.", why, "run it again")
            self._modules[key] = self.cp.RawModule(path=cubin).get_function(entry)
        kernel = self._modules[key]
        if smem_bytes + kernel.shared_size_bytes > MOST_FIXED_SMEM_BYTES:
            kernel.max_dynamic_shared_size_bytes = smem_bytes
        return kernel

    def fill_normal(
        self, cubin: str, target: Any, seed: int, *, heads: int = 1, lengths: Any = None
    ) -> None:
        """Fill an array of an even number of elements with standard normal numbers.

        Of an array ``[B, heads, rows, D]`` rows from ``lengths`` [B] on get NaN.
        """
        entry = _FILLS[target.dtype.name]
        pairs = target.size // 2
        ragged, rows = (0, 1) if lengths is None else (lengths.data.ptr, target.shape[-2])
        args = (target, *map(np.uint64, (ragged, pairs, seed % 2**64)))
        args += tuple(map(np.int32, (heads, rows, target.shape[-1])))
        blocks = max(1, min(16 * self.num_sms, -(-pairs // 256)))
        self.kernel(cubin, entry)((blocks,), (256,), args)

    def fingerprint(self, cubin: str, arrays: Iterable[Any], seed: int) -> int:
        """64 bits that follow from the seed and from every byte of some arrays."""
        total = self.empty((1,), np.uint64)
        self.set_bytes(total, 0)
        for number, one in enumerate(arrays):
            blocks = max(1, min(16 * self.num_sms, -(-one.nbytes // 1024)))
            args = (one, total, np.uint64(one.nbytes), np.uint64((seed + number) % 2**64))
            self.kernel(cubin, "fingerprint")((blocks,), (256,), args)
        return int(self.download(total)[0])

    def torch_view(self, array: Any) -> Any:
        """The same memory as a torch tensor; what is held as bits becomes bfloat16."""
        is_bits = array.dtype == np.uint16
        tensor = self.torch.from_dlpack(array.view(np.int16) if is_bits else array)
        if tensor.data_ptr() != array.data.ptr:
            raise RuntimeError("torch copied a buffer that it should share")
        return tensor.view(self.torch.bfloat16) if is_bits else tensor

    def torch_inputs(self, buffers: BufferSet) -> dict[str, Any]:
        """What a baseline gets: the inputs of one set by name, as torch tensors."""
        return {name: self.torch_view(one) for name, one in buffers.inputs.items()}

    def environment(self) -> dict[str, str | None]:
        """Versions of what is loaded here; None for what is not installed."""
        runtime = self.cp.cuda.runtime.runtimeGetVersion()
        info: dict[str, str | None] = {
            "cuda": f"{runtime // 1000}.{runtime % 1000 // 10}",
            "cupy": self.cp.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            **dict.fromkeys(("torch", "cudnn", "flashinfer", "xformers")),
            "flash_attention_3": _brought_by("flash_attn_interface"),
        }
        if self.torch is not None:
            info["torch"] = str(self.torch.__version__)
            version = self.torch.backends.cudnn.version()
            info["cudnn"] = None if version is None else str(version)
        for name, package in (("flashinfer", "flashinfer-python"), ("xformers", "xformers")):
            with suppress(importlib.metadata.PackageNotFoundError):
                info[name] = importlib.metadata.version(package)
        return info


@functools.cache
def _brought_by(module: str) -> str | None:
    """The package that a module is of and its version, such as ``flash-attn-3 3.0.0``; None where
    the module is not installed. All that is installed is read for it, so a process asks once."""
    if find_spec(module) is None:
        return None
    packages = sorted(set(importlib.metadata.packages_distributions().get(module, ())))
    named = (f"{package} {importlib.metadata.version(package)}" for package in packages)
    return ", ".join(named) or "of no package"


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


@dataclass
class BufferSet:
    """One set of the buffers of a problem, on the device: inputs and outputs by name."""

    arrays: dict[str, Any]  # by the names that launches use
    problem: Problem
    # copies of the in-out buffers, which no kernel writes; of a set that is used once none
    kept: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    @property
    def inputs(self) -> dict[str, Any]:
        """What a call is given, by name."""
        return {name: self.arrays[name] for name in self.problem.inputs}

    @property
    def given(self) -> dict[str, Any]:
        """The inputs as they were before any call."""
        return {**self.inputs, **self.kept}

    def restore(self, device: LiveDevice) -> None:
        """Give the in-out buffers the content that they had before any call."""
        for name, source in self.kept.items():
            device.copy(source, self.arrays[name])


def allocate_sets(device: LiveDevice, problem: Problem, count: int) -> list[BufferSet]:
    """``count`` sets, each buffer of each set at its own aligned place."""
    arenas: dict[str, list[Any]] = {}
    kept = {f"{name} as given": problem.outputs[name] for name in problem.in_out}
    for name, one in {**problem.buffers, **kept}.items():
        stride = -(-one.bytes // SLICE_ALIGNMENT) * SLICE_ALIGNMENT
        # No slack behind the last buffer: a memory checker must see a read past its end.
        arena = device.cp.cuda.alloc(max(1, stride * (count - 1) + one.bytes))
        arenas[name] = [
            device.cp.ndarray(one.shape, device_dtype(one.dtype), memptr=arena + i * stride)
            for i in range(count)
        ]
    sets = []
    for i in range(count):
        given = {name: arenas[f"{name} as given"][i] for name in problem.in_out}
        sets.append(BufferSet({name: arenas[name][i] for name in problem.buffers}, problem, given))
    return sets


class RedZoned:
    """A buffer between two zones of NaN, which must still be there afterwards."""

    def __init__(self, device: LiveDevice, shape: Sequence[int], dtype: Any) -> None:
        self.device = device
        dtype = device_dtype(dtype)
        self.size = int(np.prod(shape)) * dtype.itemsize
        padded = -(-self.size // SLICE_ALIGNMENT) * SLICE_ALIGNMENT
        # At a drawn place, so that no kernel knows a check by its addresses.
        self.start = RED_ZONE_BYTES + SLICE_ALIGNMENT * secrets.randbelow(START_PLACES)
        self.whole = device.empty((self.start + padded + RED_ZONE_BYTES,), np.uint8)
        device.set_bytes(self.whole, RED_BYTE)
        self.array = device.cp.ndarray(tuple(shape), dtype, memptr=self.whole.data + self.start)

    def damage(self) -> str | None:
        """What was overwritten outside the buffer; None when nothing was."""
        for name, start, stop in (
            ("before", 0, self.start),
            ("after", self.start + self.size, self.whole.size),
        ):
            zone = self.device.download(self.whole[start:stop])
            wrong = np.flatnonzero(zone != RED_BYTE)
            if len(wrong):
                first = int(wrong[0])
                distance = self.start - first if name == "before" else first
                return f"{len(wrong)} bytes {name} it, the first {distance} bytes {name} its edge"
        return None


class InCall(NamedTuple):
    """A scratch buffer that every call allocates anew."""

    name: str
    size_bytes: int


@dataclass
class Call:
    """The launches of a rung, bound to buffers."""

    device: LiveDevice  # runs them
    # kernel, grid, block, arguments and dynamic shared memory of each launch
    steps: Sequence[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[Any, ...], int]]
    # what is allocated before the first launch and freed after the last, by the plain calls of the
    # runtime that a first attempt takes: `cudaMalloc` and `cudaFree`, which waits for the device
    in_call: tuple[InCall, ...] = ()

    def __call__(self) -> None:
        if not self.in_call:
            for kernel, grid, block, args, smem_bytes in self.steps:
                kernel(grid, block, args, shared_mem=smem_bytes)
            return
        runtime = self.device.cp.cuda.runtime
        pointers: dict[InCall, int] = {}
        try:
            for one in self.in_call:
                pointers[one] = runtime.malloc(one.size_bytes)
            for kernel, grid, block, args, smem_bytes in self.steps:
                bound = tuple(
                    np.uint64(pointers[arg]) if isinstance(arg, InCall) else arg for arg in args
                )
                kernel(grid, block, bound, shared_mem=smem_bytes)
        finally:
            for pointer in pointers.values():
                runtime.free(pointer)


def bind_launches(
    device: LiveDevice, cubin: str, launches: Sequence[Launch], buffers: Mapping[str, Any]
) -> Call:
    """Load the kernels and put the buffers into their places.

    A buffer may be an `InCall`, which has no memory yet.
    """
    steps = []
    in_call: dict[InCall, None] = {}
    for launch in launches:
        kernel = device.kernel(cubin, launch.entry, launch.smem_bytes)
        args = tuple(_bound(arg, buffers) for arg in launch.args)
        steps.append((kernel, launch.grid, launch.block, args, launch.smem_bytes))
        in_call.update((arg, None) for arg in args if isinstance(arg, InCall))
    return Call(device, steps, tuple(in_call))


def _bound(arg: Any, buffers: Mapping[str, Any]) -> Any:
    if isinstance(arg, TensorMap):
        return encode_tensor_map(arg, buffers[arg.buffer].data.ptr)
    if isinstance(arg, np.void):  # a structure, which CuPy passes by value as an array
        return np.frombuffer(arg.tobytes(), f"V{arg.itemsize}")
    return buffers[arg] if isinstance(arg, str) else arg


def allocate_workspaces(
    device: LiveDevice,
    launches: Sequence[Launch],
    *,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Scratch buffers by name, filled with NaN: all of them, ``only`` some or ``without`` some."""
    arrays = {}
    for name, one in workspaces_of(launches).items():
        if name in without or (only is not None and name not in only):
            continue
        arrays[name] = device.empty(one.shape, one.dtype)
        device.set_bytes(arrays[name], RED_BYTE)
    return arrays
