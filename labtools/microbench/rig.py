"""What the measuring functions of the microbenchmarks share: kernels, buffers, launches, times.

Runs in the measuring child alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from labtools.measure.gpu.device import LiveDevice
from labtools.problem import LabError
from labtools.toolchain.sass import read_sass

REPEATS = 5
ZERO_BYTES_WANTED = 6 * 2**30
LINE = 128

T = TypeVar("T")
Sample = dict[str, Any]
"""``what``: the settings; ``unit``; ``values``: one a repeat, and whatever else was noted."""


class Rig:
    """One GPU, the compiled kernels of a benchmark by the text of their definitions, with their
    registers, and a large buffer of zeros."""

    def __init__(self, device: LiveDevice) -> None:
        self.device = device
        properties = device.cp.cuda.runtime.getDeviceProperties(device.ordinal)
        self.threads_per_sm = int(properties["maxThreadsPerMultiProcessor"])
        self.registers_per_sm = int(properties["regsPerMultiprocessor"])
        self.cubins: Mapping[str, str] = {}
        self.registers: Mapping[str, int] = {}
        self.settings: Mapping[str, Any] = {}
        self._zeros: Any = None
        self._cursor = 0
        self._flush: Any = None
        self._scratch: dict[str, Any] = {}

    @property
    def num_sms(self) -> int:
        """Streaming multiprocessors."""
        return self.device.num_sms

    def kernel(self, entry: str, defines: str = "", smem_bytes: int = 0) -> Any:
        """A kernel of this benchmark, with so many bytes of dynamic shared memory."""
        return self.device.kernel(self.cubins[defines], entry, smem_bytes)

    def stall_cycles(self, entry: str, defines: str = "") -> int | None:
        """Sum of the stall counts of a kernel's only innermost loop, each at least 1.

        None where the machine code cannot be read here (there is no nvdisasm).
        """
        try:
            image = Path(self.cubins[defines]).read_bytes()
            sass = read_sass(image, entry)
        except (LabError, OSError):
            return None
        return sum(max(1, one.control.stall) for one in sass.innermost_loops[0].instructions)

    def some_sms(self, count: int = REPEATS) -> list[int]:
        """Numbers of SMs spread over the chip."""
        return [int(i) for i in np.linspace(0, self.num_sms - 1, count).round()]

    def scratch(self, name: str, bytes_: int) -> Any:
        """A buffer of at least so many bytes, kept between launches."""
        kept = self._scratch.get(name)
        if kept is None or kept.nbytes < bytes_:
            self._scratch.pop(name, None)
            kept = self._scratch[name] = self.device.empty((max(256, bytes_),), np.uint8)
        return kept

    @property
    def zeros(self) -> Any:
        """Zeros, as many as fit well: 6 GiB or a quarter of what is free."""
        if self._zeros is None:
            free = self.device.free_bytes()
            size = min(ZERO_BYTES_WANTED, free // 4) // 2**28 * 2**28
            self._zeros = self.device.empty((size or 2**27,), np.uint8)
            self.device.set_bytes(self._zeros, 0)
        return self._zeros

    def drop_zeros(self) -> None:
        """Give the zeros back."""
        self._zeros = None
        self._scratch.clear()
        self.device.release()

    def cold_zeros(self, bytes_: int) -> np.uint64:
        """Address of zeros that were not read for a long while, with the L2 full of others."""
        whole = self.zeros
        bytes_ = min(-(-bytes_ // 2**21) * 2**21, whole.nbytes)
        if self._cursor + bytes_ > whole.nbytes:
            self._cursor = 0
        address = whole.data.ptr + self._cursor
        self._cursor += bytes_
        self.flush()
        return np.uint64(address)

    def flush(self) -> None:
        """Fill the L2 with lines that nobody wants, by reading, so that none must be written."""
        if self._flush is None:
            size = max(4 * self.device.l2_bytes, 2**28)
            self._flush = self.device.empty((size,), np.uint8)
            self.device.set_bytes(self._flush, 0)
        self.touch(np.uint64(self._flush.data.ptr), self._flush.nbytes)

    def touch(self, address: np.uint64, bytes_: int) -> None:
        """Let all SMs read every line of a buffer."""
        sink = self.scratch("touch", 256)
        kernel = self.device.kernel(self.cubins["touch"], "touch")
        kernel((4 * self.num_sms,), (512,), (address, sink, np.uint64(bytes_ // LINE)))

    @property
    def places(self) -> dict[str, list[int]]:
        """Where rows are walked: by one warp on some SMs in turn, or on every SM at once (-1)."""
        return {"one": self.some_sms(), "every SM": [-1] * REPEATS}

    def read_times(self, out: Any, shape: Sequence[int]) -> np.ndarray:
        """Wait, and copy 64-bit numbers back."""
        count = int(np.prod(shape))
        host = self.device.download(out[: 8 * count])
        return host.view(np.int64).reshape(tuple(shape)).astype(np.float64)

    def capture(self, launches: Callable[[], None]) -> Callable[[], None]:
        """The replay of a CUDA graph of some launches. They run once before: a kernel may be loaded
        at its first launch, which is not allowed while a stream is being captured."""
        stream = self.device.stream
        launches()
        self.device.synchronize()
        stream.begin_capture()
        try:
            launches()
        finally:
            graph = stream.end_capture()
        return partial(graph.launch, stream)

    def time_us(
        self, play: Callable[[], None], repeats: int = REPEATS, warm: int = 1, batch: int = 1
    ) -> list[float]:
        """Microseconds of ``batch`` replays between two events, once a repeat."""
        cuda = self.device.cp.cuda
        for _ in range(warm):
            play()
        pairs = []
        for _ in range(repeats):
            start, end = cuda.Event(), cuda.Event()
            start.record(self.device.stream)
            for _ in range(batch):
                play()
            end.record(self.device.stream)
            pairs.append((start, end))
        self.device.synchronize()
        return [cuda.get_elapsed_time(start, end) * 1e3 for start, end in pairs]


def sample(what: Mapping[str, Any], unit: str, values: Sequence[float], **more: Any) -> Sample:
    """One line of a record."""
    rounded = [round(float(value), 4) for value in values]
    return {"what": dict(what), "unit": unit, "values": rounded, **more}


def repeated(measure: Callable[..., T], *given: Any) -> list[T]:
    """What a measurement gives, repeat by repeat, after one that does not count."""
    return [measure(*given) for _ in range(REPEATS + 1)][1:]
