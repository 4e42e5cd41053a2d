"""The microbenchmarks that time whole kernels: bandwidth and launches. They return raw samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from labtools.problem.limits import MIB

from .plan import LANE_BYTES
from .rig import REPEATS, Rig, Sample, sample

GIB = 2**30
WARPS = (1, 2, 4, 8, 16, 32, 64)
LOADS = (1, 2, 4, 8)
FOOTPRINTS_MIB = (4, 8, 16, 24, 32, 36, 40, 48, 56, 64, 80, 96, 128)
GRIDS = (1, 132, 1056, 4224, 16896, 67584)
THREADS = (32, 128, 256, 1024)
ASSUMED_LATENCY_S = 0.4e-6
"""Only to choose how much to read: a slow shape reads the buffer once, a fast one three parts."""


def _reader(
    bench: Rig,
    entry: str,
    address: int,
    bytes_: int,
    tile_bytes: int,
    blocks: int,
    threads: int,
    least_bytes: int = 0,
) -> tuple[Callable[[], None], int]:
    """A launch that reads a buffer once, or round and round; and the bytes that it reads."""
    warps = blocks * threads // 32
    tiles = bytes_ // tile_bytes
    steps = max(1, tiles // warps)
    if least_bytes:
        steps = max(steps, -(-least_bytes // (warps * tile_bytes)))
    sink = bench.scratch("sink", 256)
    counts = (np.uint32(tiles), np.uint32(warps % tiles), np.int32(steps))
    args = (np.uint64(address), sink, *counts)
    kernel = bench.kernel(entry)
    return lambda: kernel((blocks,), (threads,), args), steps * warps * tile_bytes


def _shape(bench: Rig, warps: int, entry: str) -> tuple[int, int] | None:
    """Blocks an SM and threads a block that make so many warps resident, or None."""
    blocks = max(1, warps // 32)
    threads = 32 * min(warps, 32)
    registers = -(-bench.registers[entry] // 8) * 8
    if blocks * threads > bench.threads_per_sm:
        return None
    if blocks * threads * registers > bench.registers_per_sm:
        return None
    return blocks, threads


def run_bandwidth(bench: Rig) -> list[Sample]:
    """By warps an SM, loads a thread and bytes a lane: 1 GiB once, or 16 and 32 MiB repeatedly."""
    level = str(bench.settings["level"])
    cache = "cg" if level == "l2" else "ca"
    sizes = (16 * MIB, 32 * MIB) if level == "l2" else (GIB,)
    samples = []
    zeros = bench.zeros
    for size, width, loads, warps in product(sizes, LANE_BYTES, LOADS, WARPS):
        entry = f"read_{cache}_{width}_{loads}"
        shape = _shape(bench, warps, entry)
        if shape is None:
            continue
        tile = 32 * width * loads
        blocks, threads = shape[0] * bench.num_sms, shape[1]
        expected = warps * tile * bench.num_sms / ASSUMED_LATENCY_S
        if level == "l2":
            least = int(min(expected, 6e12) * 1e-3)
            address = zeros.data.ptr
            launch, read = _reader(bench, entry, address, size, tile, blocks, threads, least)
            play = bench.capture(launch)
        else:
            play, read = _stream(bench, entry, size, tile, blocks, threads, expected > 1e12)
        what = {"test": "bandwidth", "level": level, "mib": size // MIB, "warps": warps}
        what |= {"loads": loads, "bytes_per_lane": width, "bytes": read}
        samples.append(sample(what, "us", bench.time_us(play)))
    return samples


def _stream(
    bench: Rig, entry: str, size: int, tile: int, blocks: int, threads: int, fast: bool
) -> tuple[Callable[[], None], int]:
    """A graph that reads parts of the zeros one after the other, each byte once."""
    zeros = bench.zeros
    size = min(size, zeros.nbytes)
    parts = min(3, zeros.nbytes // size) if fast else 1
    pairs = [
        _reader(bench, entry, zeros.data.ptr + part * size, size, tile, blocks, threads)
        for part in range(parts)
    ]

    def launch() -> None:
        for one, _ in pairs:
            one()

    return bench.capture(launch), sum(read for _, read in pairs)


def run_footprint(bench: Rig) -> list[Sample]:
    """All SMs read a buffer again and again, 16 bytes a lane, 4 loads, 32 warps."""
    samples = []
    zeros = bench.zeros
    entry, tile = "read_cg_16_4", 32 * 16 * 4
    shape = _shape(bench, 32, entry) or (1, 512)
    for mib in FOOTPRINTS_MIB:
        size = mib * MIB
        launch, read = _reader(
            bench, entry, zeros.data.ptr, size, tile, shape[0] * bench.num_sms, shape[1], 8 * size
        )
        us = bench.time_us(bench.capture(launch), warm=2)
        samples.append(sample({"test": "footprint", "mib": mib, "bytes": read}, "us", us))
    return samples


def run_one_sm(bench: Rig) -> list[Sample]:
    """One block alone on the chip, from the L2 and from DRAM."""
    samples = []
    zeros = bench.zeros
    for level, cache, size in (("l2", "cg", 8 * MIB), ("hbm", "ca", 64 * MIB)):
        for warps, loads in product((1, 4, 8, 16, 32), LOADS):
            entry, tile = f"read_{cache}_16_{loads}", 512 * loads
            shape = _shape(bench, warps, entry)
            if shape is None:
                continue
            values: list[float] = []
            read = 0
            for repeat in range(REPEATS + 1):
                address = zeros.data.ptr
                if level == "hbm":
                    address += repeat * size % (zeros.nbytes - size + 1)
                launch, read = _reader(bench, entry, address, size, tile, 1, shape[1])
                play = bench.capture(launch)
                if level == "hbm":
                    bench.flush()
                values += bench.time_us(play, 1, warm=level == "l2")
            what = {"test": "one_sm", "level": level, "warps": warps, "loads": loads}
            what |= {"bytes_per_lane": 16, "bytes": read}
            samples.append(sample(what, "us", values[1:]))
    return samples


def _nodes(bench: Rig, launch: Callable[[], None], nodes: int) -> list[float]:
    """Microseconds of a graph of so many equal steps."""

    def many() -> None:
        for _ in range(nodes):
            launch()

    return bench.time_us(bench.capture(many), warm=2)


def _both(bench: Rig, what: dict[str, Any], launch: Callable[[], None], many: int) -> list[Sample]:
    """A graph and one of half its length: the difference is free of the graph's own start."""
    return [
        sample({**what, "nodes": nodes}, "us", _nodes(bench, launch, nodes))
        for nodes in (many, many // 2)
    ]


def _how_many(grid: int) -> int:
    return 200 if grid <= 4224 else 60 if grid <= 16896 else 20


def run_launch_shape(bench: Rig) -> list[Sample]:
    """An empty kernel by grid and block."""
    samples = []
    empty = bench.kernel("empty")
    for grid, threads in product(GRIDS, THREADS):
        what = {"test": "launch", "kind": "empty", "grid": grid, "threads": threads}
        launch = partial(empty, (grid,), (threads,), ())
        samples += _both(bench, what, launch, _how_many(grid))
    return samples


def run_launch_kinds(bench: Rig) -> list[Sample]:
    """Small kernels that ask for shared memory or registers, that load once, that take turns."""
    samples = []
    sink, never = bench.scratch("sink", 4 * 1024 * 1024), np.int32(0)
    source = bench.zeros
    arguments: dict[str, tuple[Any, ...]] = {
        "shared_1_kb": (sink, never),
        "shared_48_kb": (sink, never),
        "registers_32": (sink, never),
        "registers_128": (sink, never),
        "parameters": (sink, np.int32(1), np.int32(2), np.int32(-5)),
        "one_load": (sink, source, np.uint32(12345)),
    }
    for grid, threads in product((1, 132, 1056, 4224), (128, 512)):
        what = {"test": "launch", "grid": grid, "threads": threads}
        for kind, args in arguments.items():
            launch = partial(bench.kernel(kind), (grid,), (threads,), args)
            samples += _both(bench, {**what, "kind": kind}, launch, 100)

        def turns(grid: int = grid, threads: int = threads) -> None:
            bench.kernel("empty")((grid,), (threads,), ())
            bench.kernel("empty_too")((grid,), (threads,), ())

        samples += _both(bench, {**what, "kind": "two_in_turn"}, turns, 100)
    return samples
