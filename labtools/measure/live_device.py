"""The GPU as a measuring child uses it: stream, buffers, kernels. Runs in the child alone."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from labtools.problem import Inputs, Workload

from .live_job import scalar_from_json, workspaces_of
from .live_plan import SLICE_ALIGNMENT

RED_ZONE_BYTES = 64 * 1024
RED_BYTE = 0xFF
"""0xFFFF and 0xFFFFFFFF are NaN, so a read of a red zone poisons whatever uses it."""
STATIC_SMEM_LIMIT = 48 * 1024

_INPUTS = ("q", "k", "v", "seq_lens")


class _Handle:
    """A foreign stream in the form that CuPy asks for."""

    def __init__(self, owner: Any, pointer: int) -> None:
        self.owner = owner
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.pointer)


class LiveDevice:
    """One GPU with one stream that CuPy and, if wanted, torch share.

    Args:
        ordinal: which GPU.
        with_torch: import torch as well; ``torch`` stays None where it has no CUDA.
    """

    def __init__(self, ordinal: int, with_torch: bool) -> None:
        self.torch: Any = None
        if with_torch:
            self.torch = _import_torch()  # before CuPy, so that both use torch's libraries
        import cupy

        self.cp: Any = cupy
        self.ordinal = ordinal
        cupy.cuda.Device(ordinal).use()
        if self.torch is not None:
            self.torch.cuda.set_device(ordinal)
            torch_stream = self.torch.cuda.Stream()
            self.torch.cuda.set_stream(torch_stream)
            handle = _Handle(torch_stream, int(torch_stream.cuda_stream))
            self.torch_stream = torch_stream
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
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        pointer = self.cp.cuda.alloc(max(1, count * dtype.itemsize))
        return self.cp.ndarray(tuple(shape), dtype, memptr=pointer)

    def upload(self, target: Any, host: np.ndarray) -> None:
        """Copy a host array to the device and wait for it."""
        target.set(np.ascontiguousarray(host), stream=self.stream)
        self.synchronize()

    def download(self, source: Any) -> np.ndarray:
        """Copy a contiguous device array to the host."""
        return np.asarray(source.get(stream=self.stream))

    def set_bytes(self, array: Any, value: int) -> None:
        """Fill an array's memory with one byte."""
        array.data.memset_async(value, array.nbytes, self.stream)

    def kernel(self, cubin: str, entry: str, smem_bytes: int = 0) -> Any:
        """A loaded kernel of a cubin file; large dynamic shared memory is allowed for it."""
        key = (cubin, entry)
        if key not in self._modules:
            self._modules[key] = self.cp.RawModule(path=cubin).get_function(entry)
        kernel = self._modules[key]
        if smem_bytes > STATIC_SMEM_LIMIT:
            kernel.max_dynamic_shared_size_bytes = smem_bytes
        return kernel

    def fill_normal(
        self,
        cubin: str,
        target: Any,
        seed: int,
        *,
        heads: int = 1,
        seq_lens: Any = None,
    ) -> None:
        """Fill ``[B, heads, rows, D]`` (or ``[B, Hq, D]``) with standard normal fp16 numbers."""
        pairs = target.size // 2
        rows = target.shape[-2] if seq_lens is not None else 1
        lengths = np.uint64(0 if seq_lens is None else seq_lens.data.ptr)
        args = (
            target,
            lengths,
            np.uint64(pairs),
            np.uint64(seed % 2**64),
            np.int32(heads),
            np.int32(rows),
            np.int32(target.shape[-1]),
        )
        blocks = max(1, min(16 * self.num_sms, -(-pairs // 256)))
        self.kernel(cubin, "fill_normal")((blocks,), (256,), args)

    def torch_view(self, array: Any) -> Any:
        """The same memory as a torch tensor."""
        tensor = self.torch.from_dlpack(array)
        if tensor.data_ptr() != array.data.ptr:
            raise RuntimeError("torch copied a buffer that it should share")
        return tensor

    def environment(self) -> dict[str, Any]:
        """Versions of what is loaded here; None for what is not installed."""
        runtime = self.cp.cuda.runtime.runtimeGetVersion()
        info: dict[str, Any] = {
            "cuda": f"{runtime // 1000}.{runtime % 1000 // 10}",
            "cupy": self.cp.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "torch": None,
            "cudnn": None,
            "flashinfer": None,
        }
        if self.torch is not None:
            info["torch"] = str(self.torch.__version__)
            version = self.torch.backends.cudnn.version()
            info["cudnn"] = None if version is None else str(version)
        with suppress(importlib.metadata.PackageNotFoundError):
            info["flashinfer"] = importlib.metadata.version("flashinfer-python")
        return info


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


@dataclass
class BufferSet:
    """One set of the buffers of a problem, on the device."""

    q: Any
    k: Any
    v: Any
    seq_lens: Any
    out: Any

    def named(self) -> dict[str, Any]:
        """By the names that launches use."""
        return {
            "q": self.q,
            "k": self.k,
            "v": self.v,
            "seq_lens": self.seq_lens,
            "out": self.out,
        }


def buffer_shapes(workload: Workload) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every buffer of a problem."""
    kv = (workload.batch, workload.num_kv_heads, workload.kv_len, workload.head_dim)
    qo = (workload.batch, workload.num_qo_heads, workload.head_dim)
    return {
        "q": (qo, workload.dtype),
        "k": (kv, workload.dtype),
        "v": (kv, workload.dtype),
        "seq_lens": ((workload.batch,), "int32"),
        "out": (qo, workload.dtype),
    }


def allocate_sets(device: LiveDevice, workload: Workload, count: int) -> list[BufferSet]:
    """``count`` sets, each buffer of each set at its own aligned place."""
    arenas: dict[str, list[Any]] = {}
    for name, (shape, dtype) in buffer_shapes(workload).items():
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        stride = -(-size // SLICE_ALIGNMENT) * SLICE_ALIGNMENT
        # No slack behind the last buffer: a memory checker must see a read past its end.
        arena = device.cp.cuda.alloc(stride * (count - 1) + size)
        arenas[name] = [
            device.cp.ndarray(shape, np.dtype(dtype), memptr=arena + i * stride)
            for i in range(count)
        ]
    return [BufferSet(**{name: arenas[name][i] for name in arenas}) for i in range(count)]


class RedZoned:
    """A buffer between two zones of NaN, which must still be there afterwards."""

    def __init__(self, device: LiveDevice, shape: Sequence[int], dtype: Any) -> None:
        self.device = device
        dtype = np.dtype(dtype)
        self.size = int(np.prod(shape)) * dtype.itemsize
        padded = -(-self.size // SLICE_ALIGNMENT) * SLICE_ALIGNMENT
        self.whole = device.empty((RED_ZONE_BYTES + padded + RED_ZONE_BYTES,), np.uint8)
        device.set_bytes(self.whole, RED_BYTE)
        self.array = device.cp.ndarray(tuple(shape), dtype, memptr=self.whole.data + RED_ZONE_BYTES)

    def damage(self) -> str | None:
        """What was overwritten outside the buffer; None when nothing was."""
        for name, start, stop in (
            ("before", 0, RED_ZONE_BYTES),
            ("after", RED_ZONE_BYTES + self.size, self.whole.size),
        ):
            zone = self.device.download(self.whole[start:stop])
            wrong = np.flatnonzero(zone != RED_BYTE)
            if len(wrong):
                first = int(wrong[0])
                distance = RED_ZONE_BYTES - first if name == "before" else first
                return f"{len(wrong)} bytes {name} it, the first {distance} bytes {name} its edge"
        return None


@dataclass
class Call:
    """The launches of a rung, bound to buffers."""

    steps: list[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[Any, ...], int]]

    def __call__(self) -> None:
        for kernel, grid, block, args, smem_bytes in self.steps:
            kernel(grid, block, args, shared_mem=smem_bytes)


def bind_launches(
    device: LiveDevice,
    cubin: str,
    launches: Sequence[Mapping[str, Any]],
    buffers: Mapping[str, Any],
) -> Call:
    """Load the kernels and put the buffers into their places."""
    steps = []
    for launch in launches:
        kernel = device.kernel(cubin, launch["entry"], launch["smem_bytes"])
        args = tuple(
            buffers[arg] if isinstance(arg, str) else scalar_from_json(arg)
            for arg in launch["args"]
        )
        steps.append(
            (kernel, tuple(launch["grid"]), tuple(launch["block"]), args, launch["smem_bytes"])
        )
    return Call(steps)


def allocate_workspaces(
    device: LiveDevice,
    launches: Sequence[Mapping[str, Any]],
    *,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Scratch buffers by name, filled with NaN: all of them, ``only`` some or ``without`` some."""
    arrays = {}
    for name, one in workspaces_of(launches).items():
        if name in without or (only is not None and name not in only):
            continue
        arrays[name] = device.empty(one["shape"], one["dtype"])
        device.set_bytes(arrays[name], RED_BYTE)
    return arrays


def read_pair(
    device: LiveDevice, buffers: BufferSet, workload: Workload, pair: tuple[int, int]
) -> Inputs:
    """The inputs of one (sequence, query head), copied back, as a problem of its own."""
    sequence, head = pair
    length = int(workload.lengths[sequence])
    kv_head = head // workload.group_size
    small = Workload(1, 1, 1, length, workload.head_dim, dtype=workload.dtype)
    return Inputs(
        q=device.download(buffers.q[sequence, head]).reshape(1, 1, -1),
        k=device.download(buffers.k[sequence, kv_head, :length])[None, None],
        v=device.download(buffers.v[sequence, kv_head, :length])[None, None],
        seq_lens=np.array([length], np.int32),
        sm_scale=workload.sm_scale,
        workload=small,
    )
