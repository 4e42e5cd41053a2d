"""The microbenchmarks that count cycles inside a kernel. They return raw samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from labtools.problem import LabError
from labtools.problem.limits import MIB

from .plan import CODE_KB, LANE_BYTES, PIPE_BY_NAME, STORE_BYTES, STORE_COUNTS, STORE_WARPS, Pipe
from .rig import LINE, REPEATS, Rig, Sample, repeated, sample

LATENCY_TRIPS = 64
INTERVAL_TRIPS = 32
L2_FOOTPRINTS_KIB = (
    128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 20480, 24576, 28672, 32768, 40960, 49152,
    57344, 65536,
)  # fmt: skip
CHASE_STEPS = 4096
PLACEMENT_ATTEMPTS = 5
WALK_STEPS = 256
WALK_WARM = 16
FAR_STRIDE = 65536
COPY_WIDTHS = (4, 8, 16)
APART_ROWS, APART_ROW = (1, 2, 4, 8, 16), 512
APART_BYTES = {"hbm": 2**30, "l2": 2**24, "one row": APART_ROW}
"""By level the bytes among which places are drawn, `APART_ROW` from one to the next."""
BULK_BYTES = (512, 2048, 8192)
MEETING_WARPS = (1, 2, 4, 8, 16, 32)
CODE_PASSES = 5


def run_clock(bench: Rig) -> Iterator[Sample]:
    """MHz of the SMs, by their own counter against the GPU's nanosecond timer."""
    grid = bench.num_sms
    out, sink = bench.scratch("out", 16 * grid), bench.scratch("sink", 4 * 128 * grid)
    mhz = []
    for _ in range(REPEATS):
        args = (out, sink, np.float32(0.5), np.int64(20_000_000))
        bench.kernel("clock_rate")((grid,), (128,), args)
        times = bench.read_times(out, (grid, 2))
        mhz.append(float(np.median(times[:, 0] / times[:, 1])) * 1e3)
    yield sample({"test": "clock"}, "MHz", mhz)


def run_beside(bench: Rig) -> Iterator[Sample]:
    """An L2 hit in cycles and the SM's MHz, on every SM, while a warp beside it multiplies matrices
    or does sums."""
    grid, lines, apart = bench.num_sms, 8 * MIB // LINE, 8 * MIB // LINE // bench.num_sms * LINE
    cells, order = bench.scratch("chain", lines * LINE), np.random.default_rng(3).permutation(lines)
    host = np.zeros((lines, LINE // 8), np.uint64)
    host[order, 0] = cells.data.ptr + LINE * np.roll(order, -1).astype(np.uint64)
    bench.device.upload(cells[: lines * LINE], host.view(np.uint8).reshape(-1))
    bench.touch(np.uint64(cells.data.ptr), lines * LINE)
    out, sink = bench.scratch("out", 16 * grid), bench.scratch("sink", 4 * 32 * grid)
    for beside in ("products", "sums"):
        times = []
        for _ in range(REPEATS):
            args = (np.uint64(cells.data.ptr), np.int32(apart), np.int32(64), np.int32(CHASE_STEPS))
            bench.kernel(f"beside_{beside}")((grid,), (64,), (out, sink, *args))
            times.append(bench.read_times(out, (grid, 2)))
        hits = [float(np.median(one[:, 0])) / CHASE_STEPS for one in times]
        mhz = [float(np.median(one[:, 0] / one[:, 1])) * 1e3 for one in times]
        yield sample({"test": "hit", "beside": beside}, "cycles", hits)
        yield sample({"test": "clock", "beside": beside}, "MHz", mhz)


def run_pipe(bench: Rig) -> Iterator[Sample]:
    """Cycles of a chain, and of several chains by warps, for two lengths of the body."""
    pipe = PIPE_BY_NAME[str(bench.settings["pipe"])]
    memory = _cells(bench, pipe)
    for body in pipe.latency:
        what = {"test": "latency", "body": body, "trips": LATENCY_TRIPS}
        given = (bench, f"lat_{pipe.name}_{body}", memory, 1, 1, LATENCY_TRIPS)
        yield sample(what, "cycles", [_run_pipe(*given) for _ in range(REPEATS)])
    # one sub-partition of the SM, or all four
    for every, warps, body in product((4, 1), (1, 2, 4, 8), pipe.interval):
        what = {"test": "interval", "body": body, "trips": INTERVAL_TRIPS, "warps": warps}
        given = (bench, f"thr_{pipe.name}_{body}", memory, 4 * warps, every, INTERVAL_TRIPS)
        values = [_run_pipe(*given) for _ in range(REPEATS)]
        yield sample({**what, "sub_partitions": 4 // every}, "cycles", values)


def _cells(bench: Rig, pipe: Pipe) -> np.uint64:
    """Cells in global memory that hold their own addresses, side by side as wide as a lane's."""
    words = max(1, pipe.width // 4)
    cells = bench.scratch("cells", 8192)
    first = cells.data.ptr
    if pipe.width == 4:
        host = (first + 4 * np.arange(2048, dtype=np.uint64)).astype(np.uint32)
    else:
        host = np.repeat(first + 4 * words * np.arange(2048 // words, dtype=np.uint64), words // 2)
        if not pipe.width:
            host = np.zeros(1024, np.uint64)
    raw = host.view(np.uint8)
    bench.device.upload(cells[: len(raw)], raw)
    return np.uint64(first)


def _run_pipe(
    bench: Rig, entry: str, memory: np.uint64, warps: int, every: int, trips: int
) -> float:
    """Cycles from the first working warp's start to the last one's end."""
    out, sink = bench.scratch("out", 16 * warps), bench.scratch("sink", 4 * 1024)
    bits, floats = (np.uint32(0x3C013C03), np.uint32(0x3210)), (np.float32(1.25), np.float32(-0.5))
    args = (out, memory, sink, *bits, *floats, np.int32(trips), np.int32(every))
    bench.kernel(entry)((1,), (32 * warps,), args)
    times = bench.read_times(out, (warps, 2))[::every]
    return float(times[:, 1].max() - times[:, 0].min())


def run_special(bench: Rig) -> Iterator[Sample]:
    """Cycles of a loop with and without a special register."""

    def once(reads: int) -> float:
        out, sink = bench.scratch("out", 16), bench.scratch("sink", 4 * 32)
        args = (out, sink, np.uint32(77), np.int32(1024))
        bench.kernel(f"special_{reads}")((1,), (32,), args)
        times = bench.read_times(out, (1, 2))
        return float(times[0, 1] - times[0, 0])

    for reads in (0, 1):
        what = {"test": "special", "reads": reads, "trips": 1024}
        yield sample(what, "cycles", repeated(once, reads))


def _chase(bench: Rig, entry: str, start: int, sm: int, warm: int, steps: int) -> float:
    """Cycles a step of one thread's chase on a chosen SM."""
    out = bench.scratch("out", 24)
    args = (out, np.uint64(start), np.int32(sm), np.int32(warm), np.int32(steps))
    for _ in range(PLACEMENT_ATTEMPTS):
        bench.device.set_bytes(out, 0)
        bench.kernel(entry)((bench.num_sms,), (32,), args)
        times = bench.read_times(out, (3,))
        if times[1] > 0:
            return float(times[1] - times[0]) / steps
    raise _not_placed(sm)


def _not_placed(sm: int) -> LabError:
    return LabError(
        f"No block ran on SM {sm}.",
        f"the GPU placed the blocks elsewhere, {PLACEMENT_ATTEMPTS} times",
        "the other microbenchmarks",
    )


def _lay_chain(bench: Rig, address: int, order: np.ndarray) -> None:
    table = bench.scratch("order", 4 * len(order))
    bench.device.upload(table[: 4 * len(order)], order.astype(np.int32).view(np.uint8))
    grid = -(-len(order) // 256)
    args = (np.uint64(address), table, np.int32(len(order)))
    bench.kernel("lay_chain")((grid,), (256,), args)


def run_chase_l1(bench: Rig) -> Iterator[Sample]:
    """A chain through 4 to 128 KiB that was walked before."""
    rng = np.random.default_rng(1)
    for kib in (4, 16, 32, 64, 128):
        lines = kib * 1024 // LINE
        cells = bench.scratch("chain", kib * 1024)
        _lay_chain(bench, cells.data.ptr, rng.permutation(lines))
        given = (bench, "chase_ca", cells.data.ptr)
        values = [_chase(*given, sm, 2 * lines, 2048) for sm in bench.some_sms()]
        yield sample({"test": "chase", "kib": kib, "cache": "ca"}, "cycles", values)


def run_chase_slices(bench: Rig) -> Iterator[Sample]:
    """One line after another, each chased on its own: how the L2's parts differ in distance."""
    lines = 64
    cells = bench.scratch("chain", MIB)
    places = np.linspace(0, MIB // LINE - 1, lines).astype(int)
    zero = np.zeros(1, np.int64)
    for place in places:
        _lay_chain(bench, cells.data.ptr + LINE * int(place), zero)
    starts = [cells.data.ptr + LINE * int(place) for place in places]
    for sm in bench.some_sms(3):
        values = [_chase(bench, "chase_cg", start, sm, 32, 128) for start in starts]
        yield sample({"test": "slices", "sm": sm}, "cycles", values)


def run_chase_l2(bench: Rig) -> Iterator[Sample]:
    """By footprint: after all SMs have read it, and after this SM alone has walked it."""
    rng = np.random.default_rng(2)
    for kib in L2_FOOTPRINTS_KIB:
        lines = kib * 1024 // LINE
        cells = bench.scratch("chain", kib * 1024)
        address = np.uint64(cells.data.ptr)
        _lay_chain(bench, cells.data.ptr, rng.permutation(lines))
        for _ in range(3):
            bench.touch(address, kib * 1024)
        starts = rng.integers(0, lines, REPEATS)
        values = [
            _chase(bench, "chase_cg", cells.data.ptr + LINE * int(start), sm, 64, CHASE_STEPS)
            for sm, start in zip(bench.some_sms(), starts, strict=True)
        ]
        what = {"test": "chase", "kib": kib, "cache": "cg"}
        yield sample({**what, "warmed": "by all"}, "cycles", values)
        given = (bench, "chase_cg", cells.data.ptr)
        values = [_chase(*given, sm, lines, CHASE_STEPS) for sm in bench.some_sms(3)]
        yield sample({**what, "warmed": "by itself"}, "cycles", values)


def run_chase_hbm(bench: Rig) -> Iterator[Sample]:
    """Random lines of 128 MiB to 16 GiB, none of them read before."""
    bench.drop_zeros()
    free = bench.device.free_bytes()
    for bits in range(20, 28):
        size = LINE << bits
        if size > free * 0.8:
            break
        cells = bench.device.empty((size,), np.uint8)
        grid = 8 * bench.num_sms
        bench.kernel("lay_scattered")((grid,), (256,), (cells, np.int32(bits)))
        values = []
        rng = np.random.default_rng(bits)
        for sm in bench.some_sms():
            bench.flush()
            start = cells.data.ptr + LINE * int(rng.integers(0, 1 << bits))
            values.append(_chase(bench, "chase_ca", start, sm, 64, CHASE_STEPS))
        yield sample({"test": "chase", "mib": size // MIB}, "cycles", values)
        del cells
        bench.device.release()


def walk(
    bench: Rig,
    entry: str,
    level: str,
    row_bytes: int,
    stride: int,
    sm: int,
    *more: np.uint32,
    smem_bytes: int = 0,
    mapped: Callable[[np.uint64, int], Any] | None = None,
) -> tuple[float, float]:
    """Cycles a step, which reads ``row_bytes``, ``stride`` bytes from the one before, of one warp
    on an SM, or with -1 on every SM: the middle and the slowest. ``mapped`` is what the kernel
    gets for the address and the bytes of what is read; None is the address."""
    grid = bench.num_sms
    everywhere = sm < 0
    steps, warm, wrap = WALK_STEPS, WALK_WARM, 0xFFFFFFFF
    if level == "hbm":
        reach = (steps + warm) * stride + row_bytes
        block_bytes = -(-reach // 4096) * 4096 if everywhere else 0
        size = block_bytes * grid if everywhere else reach
        address = bench.cold_zeros(size)
        room = bench.zeros.nbytes
        if block_bytes * grid > room:  # a small GPU: the blocks' rows lie in one another's gaps
            block_bytes = 4096
    else:
        # Each block goes round a part of its own: 8 MiB together, or what an L1 holds.
        part = 65536 if level == "l2" else 8192
        wrap, block_bytes = part - 1, part + 16384
        warm = 2 * part // stride + WALK_WARM
        address = np.uint64(bench.zeros.data.ptr)
        size = block_bytes * grid
        if level == "l2":
            for _ in range(2):
                bench.touch(address, size)
    read = mapped(address, size) if mapped else address
    sizes = (np.uint64(block_bytes), np.uint32(stride), np.uint32(wrap))
    counts = (np.int32(-(-warm // 8) * 8), np.int32(steps), np.int32(sm))
    args = (read, *sizes, *counts, *more)
    return _steps_of_a_warp(bench, entry, args, sm, level == "hbm", smem_bytes)


def _steps_of_a_warp(
    bench: Rig, entry: str, args: tuple[Any, ...], sm: int, flush: bool, smem_bytes: int = 0
) -> tuple[float, float]:
    """Cycles of one of `WALK_STEPS` steps of one warp on an SM, or with -1 on every SM: the middle
    and the slowest."""
    grid = bench.num_sms
    out = bench.scratch("out", 24 * grid)
    for _ in range(PLACEMENT_ATTEMPTS):
        bench.device.set_bytes(out, 0)
        kernel = bench.kernel(entry, smem_bytes=smem_bytes)
        kernel((grid,), (32,), (out, *args), shared_mem=smem_bytes)
        times = bench.read_times(out, (grid, 3))
        times = times[times[:, 1] > 0]
        # One warp on each SM, or one on the wanted SM alone.
        if len(times) == (grid if sm < 0 else 1) == len(np.unique(times[:, 2])):
            break
        if flush:  # what was just read is in the L2
            bench.flush()
    if len(times) == 0:
        raise _not_placed(sm)
    cycles = (times[:, 1] - times[:, 0]) / WALK_STEPS
    return float(np.median(cycles)), float(cycles.max())


def run_rows(bench: Rig) -> Iterator[Sample]:
    """Dependent rows by level, width, loads a step and distance; one warp, and one an SM."""
    level = str(bench.settings["level"])
    cache = "cg" if level == "l2" else "ca"
    for width, loads in product(LANE_BYTES, (1, 2, 4)):
        row = 32 * width * loads
        strides = {"contiguous": row} | ({"far": FAR_STRIDE} if level == "hbm" else {})
        for distance, warps in product(strides, bench.places):
            what = {"test": "rows", "level": level, "bytes_per_lane": width, "loads": loads}
            entry = f"walk_{cache}_{width}_{loads}"
            pairs = [
                walk(bench, entry, level, row, strides[distance], sm) for sm in bench.places[warps]
            ]
            middle, slowest = zip(*pairs, strict=True)
            what |= {"distance": distance, "warps": warps}
            worst = [round(cycles, 2) for cycles in slowest]
            yield sample(what, "cycles", middle, slowest=worst)


def run_copy(bench: Rig) -> Iterator[Sample]:
    """cp.async: one copy and a wait, sixteen and a wait, and the wait alone."""
    cases = [(4, 0), *product(COPY_WIDTHS, (1, 16))]
    for level, (width, copies), warps in product(("hbm", "l2"), cases, bench.places):
        row, entry = 32 * width * max(1, copies), f"copy_{width}_{copies}"
        middle = [walk(bench, entry, level, row, row, sm)[0] for sm in bench.places[warps]]
        what = {"test": "copy", "level": level, "bytes_per_lane": width, "copies": copies}
        yield sample({**what, "warps": warps}, "cycles", middle)


def run_apart(bench: Rig) -> Iterator[Sample]:
    """cp.async of several rows at drawn places of memory or of the L2, and a wait for all of them,
    on every SM; the same with all of one row, on one SM."""
    for level, width, rows in product(APART_BYTES, COPY_WIDTHS, APART_ROWS):
        bytes_, cycles = APART_BYTES[level], []
        # All SMs would ask one slice of the L2 for the one row.
        for sm in bench.places["one" if level == "one row" else "every SM"]:
            address = np.uint64(bench.zeros.data.ptr)
            if level == "hbm":
                address = bench.cold_zeros(bytes_)
            else:
                bench.touch(address, bytes_)
            last_row = np.uint32(bytes_ // APART_ROW - 1)
            args = (address, last_row, np.int32(WALK_WARM), np.int32(WALK_STEPS), np.int32(sm))
            entry = f"apart_{width}_{rows}"
            cycles.append(_steps_of_a_warp(bench, entry, args, sm, level == "hbm")[0])
        what = {"test": "apart", "level": level, "bytes_per_lane": width, "rows": rows}
        yield sample(what, "cycles", cycles)


def run_bulk(bench: Rig) -> Iterator[Sample]:
    """cp.async.bulk by size."""
    for level, size, warps in product(("hbm", "l2"), BULK_BYTES, bench.places):
        given = np.uint32(size)
        middle = [
            walk(bench, "bulk", level, size, size, sm, given)[0] for sm in bench.places[warps]
        ]
        what = {"test": "bulk", "level": level, "bytes": size, "warps": warps}
        yield sample(what, "cycles", middle)


def _meet(bench: Rig, entry: str, warps: int, resident: int, late: int, trips: int) -> float:
    """Cycles from the first warp's start to the last one's end, the middle block."""
    grid = bench.num_sms * resident
    out = bench.scratch("out", 24 * grid * warps)
    sink = bench.scratch("sink", 4 * 32 * grid * warps)
    args = (out, sink, np.float32(0.5), np.float32(1.5), np.int32(trips), np.int32(late))
    bench.kernel(entry)((grid,), (32 * warps,), args)
    times = bench.read_times(out, (grid, warps, 3))
    return float(np.median(times[:, :, 1].max(axis=1) - times[:, :, 0].min(axis=1)))


def run_meet(bench: Rig) -> Iterator[Sample]:
    """Barriers that all warps reach together, one and two blocks an SM."""
    trips = 64
    for resident, warps, barriers in product((1, 2), MEETING_WARPS, (8, 16)):
        if 32 * warps * resident <= bench.threads_per_sm:
            values = repeated(_meet, bench, f"meet_{barriers}_0", warps, resident, -1, trips)
            what = {"test": "meet", "warps": warps, "blocks": resident, "body": barriers}
            yield sample({**what, "trips": trips}, "cycles", values)


def run_skew(bench: Rig) -> Iterator[Sample]:
    """Barriers to which the first warp comes late by 16 or 64 dependent multiplications."""
    trips = 32
    for warps, extra, barriers in product((1, 2, 4, 8), (0, 16, 64), (8, 16)):
        values = repeated(_meet, bench, f"meet_{barriers}_{extra}", warps, 1, 0, trips)
        what = {"test": "skew", "warps": warps, "extra": extra, "body": barriers, "trips": trips}
        yield sample(what, "cycles", values)


def _run_block(bench: Rig, entry: str, warps: int, *more: np.generic) -> float:
    out, sink = bench.scratch("out", 24 * warps), bench.scratch("sink", 128 * warps)
    args = (out, sink, np.float32(0.5), np.float32(1.5), *more)
    bench.kernel(entry)((1,), (32 * warps,), args)
    times = bench.read_times(out, (warps, 3))
    return float(times[:, 1].max() - times[:, 0].min())


def run_turns(bench: Rig) -> Iterator[Sample]:
    """Loops of 4 to 128 multiplications, for 1, 4 and 16 warps an SM."""
    trips = 256
    for warps, body in product((1, 4, 16), (4, 8, 16, 64, 128)):
        what = {"test": "turn", "body": body, "warps": warps, "trips": trips}
        what["stall_cycles"] = bench.stall_cycles(f"turn_{body}")
        given = (bench, f"turn_{body}", warps, np.int32(trips))
        yield sample(what, "cycles", [_run_block(*given) for _ in range(REPEATS)])


def run_skip(bench: Rig) -> Iterator[Sample]:
    """Instructions whose predicate is false in every lane, for 1 and 16 warps an SM."""
    trips = 256
    for warps, body in product((1, 16), (32, 64)):
        what = {"test": "skip", "body": body, "warps": warps, "trips": trips}
        given = (bench, f"skip_{body}", warps, np.int32(trips), np.int32(0))
        yield sample(what, "cycles", [_run_block(*given) for _ in range(REPEATS)])


def run_code_size(bench: Rig) -> Iterator[Sample]:
    """Passes through straight-line code; before each launch other code fills the caches."""
    for size, sms, warps in product(CODE_KB, ("one", "every SM"), (1, 4)):
        other, grid = 256 if size != 256 else 192, 1 if sms == "one" else bench.num_sms

        def once(size: int = size, other: int = other, grid: int = grid, warps: int = warps) -> Any:
            _straight(bench, other, bench.num_sms, 1, 1)
            times = _straight(bench, size, grid, warps, CODE_PASSES)
            return np.median(times[..., 1].max(axis=1) - times[..., 0].min(axis=1), axis=0)

        runs = repeated(once)
        for index in range(CODE_PASSES):
            what = {"test": "code", "kib": size, "warps": warps, "sms": sms, "pass": index}
            yield sample(what, "cycles", [run[index] for run in runs])


def _straight(bench: Rig, size: int, grid: int, warps: int, passes: int) -> np.ndarray:
    """[grid, warps, passes, 2] begin and end of each pass."""
    out = bench.scratch("out", 16 * grid * warps * passes)
    sink = bench.scratch("sink", 128 * grid * warps)
    args = (out, sink, np.float32(0.5), np.float32(1.5), np.int32(passes))
    bench.kernel("straight", f"CODE_KB={size}")((grid,), (32 * warps,), args)
    return bench.read_times(out, (grid, warps, passes, 2))


def run_stores(bench: Rig) -> Iterator[Sample]:
    """Cycles in which the warps of an SM store pieces of rows until these can be seen.

    All SMs do; of each launch it is the median over them.
    """
    warps = STORE_WARPS * bench.num_sms
    out = bench.scratch("out", 16 * warps)
    room = bench.scratch("room", warps * max(STORE_COUNTS) * 128)

    def once(entry: str) -> float:
        bench.kernel(entry)((bench.num_sms,), (32 * STORE_WARPS,), (out, room))
        times = bench.read_times(out, (bench.num_sms, STORE_WARPS, 2))
        return float(np.median(times[:, :, 1].max(axis=1) - times[:, :, 0].min(axis=1)))

    for size, count in product(STORE_BYTES, STORE_COUNTS):
        what = {"test": "stores", "bytes": size, "body": count, "trips": STORE_WARPS}
        yield sample(what, "cycles", repeated(once, f"stores_{size}_{count}"))
