"""A GPU in name only, for tests of the microbenchmarks' Python: kernels write made-up cycles."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

WITH_SM = (
    *("walk", "copy", "bulk", "meet", "turn", "skip", "chase"),
    *("product", "start", "phase", "named", "boxes"),
)
"""Beginnings of the kernels that write begin, end and SM; the others write begin and end."""
_addresses = itertools.count(0x7F00_0000_0000, 2**35)


class FakeArray:
    """Device memory: real where it is small, an address alone where it is large."""

    def __init__(self, size: int) -> None:
        self.nbytes = size
        self.data = SimpleNamespace(ptr=next(_addresses))
        self.host = np.zeros(min(size, 2**24), np.uint8)

    def __getitem__(self, part: slice) -> FakeArray:
        view = FakeArray.__new__(FakeArray)
        view.host = self.host[part]
        view.nbytes = len(view.host)
        view.data = self.data
        return view


class FakeEvent:
    clock = 0.0

    def record(self, stream: Any) -> None:
        FakeEvent.clock += 0.1
        self.at = FakeEvent.clock


class FakeDevice:
    """What Rig asks of a LiveDevice. A kernel's cycles grow with the numbers that it is given."""

    ordinal = 0
    num_sms = 4
    arguments: dict[str, set[tuple[int, ...]]] = {}  # noqa: RUF012 - shared by the whole run
    l2_bytes = 2**20

    def __init__(self) -> None:
        runtime = SimpleNamespace(
            getDeviceProperties=lambda ordinal: {
                "maxThreadsPerMultiProcessor": 2048,
                "regsPerMultiprocessor": 65536,
            }
        )
        cuda = SimpleNamespace(
            runtime=runtime, Event=FakeEvent, get_elapsed_time=lambda start, end: end.at - start.at
        )
        self.cp = SimpleNamespace(cuda=cuda)
        self.stream = SimpleNamespace(
            begin_capture=lambda: None,
            end_capture=lambda: SimpleNamespace(launch=lambda stream: None),
        )
        self.calls: list[tuple[str, str, tuple[int, ...], tuple[int, ...]]] = []

    def free_bytes(self) -> int:
        return 2**31

    def release(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def empty(self, shape: tuple[int, ...], dtype: Any) -> FakeArray:
        return FakeArray(int(np.prod(shape)) * np.dtype(dtype).itemsize)

    def set_bytes(self, array: FakeArray, value: int) -> None:
        array.host[:] = value

    def upload(self, target: FakeArray, host: np.ndarray) -> None:
        assert target.nbytes == host.nbytes
        target.host[:] = host.view(np.uint8)

    def download(self, source: FakeArray) -> np.ndarray:
        return source.host.copy()

    def kernel(self, cubin: str, entry: str, smem_bytes: int = 0) -> Any:
        def call(
            grid: tuple[int, ...],
            block: tuple[int, ...],
            args: tuple[Any, ...],
            shared_mem: int = 0,
        ) -> None:
            assert shared_mem == smem_bytes
            self.calls.append((cubin, entry, grid, block))
            assert all(isinstance(arg, (FakeArray, np.generic)) for arg in args)
            assert grid[0] >= 1 and 1 <= block[0] <= 1024
            sizes = tuple(8 if isinstance(arg, FakeArray) else arg.nbytes for arg in args)
            self.arguments.setdefault(entry, set()).add(sizes)
            if args and isinstance(args[0], FakeArray) and entry != "touch" and "read" not in entry:
                self._write(entry, args)

        return call

    def _write(self, entry: str, args: tuple[Any, ...]) -> None:
        out = args[0].host[: len(args[0].host) // 8 * 8].view(np.int64)
        numbers = [int(part) for part in entry.split("_") if part.isdigit()]
        body = numbers[0] if numbers else 1
        work = max([int(a) for a in args[1:] if isinstance(a, np.int32) and a > 0], default=1)
        if entry in ("clock_rate", "product_clock"):
            out[0::2], out[1::2] = 2_000_000, 1_000_000
            return
        width = 2
        if entry.startswith(WITH_SM):
            width = 3
        count = len(out) // width * width
        rows = out[:count].reshape(-1, width)
        rows[:, 0] = 1000
        rows[:, 1] = 1000 + 50 + 4 * body * work
        if width == 3:
            rows[:, 2] = np.arange(len(rows))  # each on an SM of its own
        # The SM that walks and copies are told to run on; -1 is every SM.
        if entry.startswith(("walk", "copy", "bulk", "boxes")) and int(args[7]) >= 0:
            rows[1:] = 0
