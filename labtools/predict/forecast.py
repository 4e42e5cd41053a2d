"""How long a kernel will take, from its machine code, before anything runs.

The trace says what every block executes and which addresses it reads; the SM model says how long
that takes with so many blocks resident; what all SMs ask of memory together says how long each
load waits. The grid then runs through the GPU block by block.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from labtools.problem import LabError, Launch, Rung, Workload, timed_launches
from labtools.problem.rung import PAGE_TABLE
from labtools.toolchain.cubin import Resources
from labtools.toolchain.listings import MachineCode, machine_code
from labtools.toolchain.sass import Instruction, Sass, SourceLine

from .calibration import machine_of, measured_band
from .machine import Machine
from .occupancy import Occupancy, occupancy
from .roofline import Floors, floors
from .sheets import Gpu, load_gpu
from .sm_model import Event, Pressure, SmRun, Where, simulate_sm
from .streams import (
    BlockStreams,
    LoopNode,
    Node,
    block_spans,
    block_streams,
    count_ops,
    first_of,
    union_bytes,
)
from .trace import (
    Buffers,
    Item,
    Repeat,
    Trace,
    lanes_of_block,
    lanes_of_blocks,
    make_buffers,
    run_trace,
)
from .version import model_name

MOST_BLOCKS = 8192
MOST_CLASSES = 5
COMPETING = 1.06
"""Blocks that take this many times as long together as alone compete for the SM."""
BANDWIDTH_SHARE = 0.75
ISSUE_SHARE = 0.75
ATOMICS = ("ATOM", "ATOMG", "RED", "REDG")
LAUNCH_TIMES = 3.0
"""A kernel that takes less than this many empty launches is bound by its launch."""
_SCALED = ("where", "_slow_scale", "_dram_ceiling", "_stretch", "cycles", "result")
"""What a launch's model derives from latencies."""
CLASSES = ("memory", "shared", "shuffle", "special", "convert", "tensor", "barrier", "branch")


@dataclass(frozen=True)
class Slice:
    """A part of the time: what the watched warp waited for.

    Attributes:
        name: ``memory: HBM``, ``memory: L2``, ``shuffle``, ``barrier``, ``fixed latency``, ...
        cycles: of the whole kernel, one warp from start to end.
        share: of the warp's cycles, 0..1.
    """

    name: str
    cycles: float
    share: float


@dataclass(frozen=True)
class Link:
    """One instruction of the main loop's last simulated trip, and what it waited for.

    Attributes:
        index, text: the instruction.
        source: its source line.
        start: cycle of the issue before it, counted from the trip's first issue.
        issue: cycle when it issued.
        cause: name of the longest part of the wait, as in `Slice`.
        cycles: of each cause.
        producer: position of the instruction whose result was waited for, or None.
    """

    index: int
    text: str
    source: SourceLine | None
    start: float
    issue: float
    cause: str
    cycles: Mapping[str, float]
    producer: int | None


@dataclass(frozen=True)
class LaunchForecast:
    """One launch of a forecast.

    Attributes:
        entry: kernel name.
        blocks, threads: of the launch.
        time_us: from the first block's start to the last one's end, launch overhead left out.
        occupancy: blocks and warps that fit on an SM.
        resident_blocks: blocks an SM really holds at the start.
        trips: (instructions a trip, trips, cycles a trip) of each loop of the first warp; of an
            inner loop the trips in one trip of the outer one.
        dram_bytes, l2_bytes: that the whole launch reads from memory and from the L2.
        footprint_bytes: different bytes that it touches.
        dram_share: share of the memory ceiling in use while the GPU is full, 0..1.
        l2_share: the same for the L2.
        issue_share: share of the issue slots of busy SMs in use, 0..1.
        in_flight_bytes: mean bytes asked for and not yet there, an SM.
        load_latency_cycles: mean latency of loads that miss the L1, load on memory included.
        stack: what the first warp waited for, largest first.
        chain: the main loop's instructions with their waits.
        main_loop: (first, last) instruction of the main loop, or None.
        true_chain_cycles: cycles a trip of the main loop if only true dependencies counted.
        notes: branches on data and what was assumed.
    """

    entry: str
    blocks: int
    threads: int
    time_us: float
    occupancy: Occupancy
    resident_blocks: int
    trips: tuple[tuple[int, int, float], ...]
    dram_bytes: float
    l2_bytes: float
    footprint_bytes: float
    dram_share: float
    l2_share: float
    issue_share: float
    in_flight_bytes: float
    load_latency_cycles: float
    stack: tuple[Slice, ...]
    chain: tuple[Link, ...] = field(repr=False)
    main_loop: tuple[int, int] | None
    true_chain_cycles: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Forecast:
    """A predicted time, with what it stands on.

    Attributes:
        time_us: the prediction.
        band_us: (lower, upper) end; as wide as the model's errors on kernels it was tried on.
        bound: ``bandwidth``, ``issue``, ``chain`` or ``launch``.
        bound_reason: one sentence.
        terms_us: what the time would be by each limit alone, and the launch overhead.
        model: name of the model with a hash of its code and numbers.
        calibrated: the latencies were measured on this GPU.
        gpu: short name.
        gb_per_s: bytes read from memory over the time, 10^9 a second.
        in_flight_bytes: mean bytes asked for and not yet there, an SM, in the longest launch.
        launches: details, in order.
        code: where the machine code came from.
        floor: the roofline floor of the workload.
        note: what to know about this forecast.
    """

    time_us: float
    band_us: tuple[float, float]
    bound: str
    bound_reason: str
    terms_us: Mapping[str, float]
    model: str
    calibrated: bool
    gpu: str
    gb_per_s: float
    in_flight_bytes: float
    launches: tuple[LaunchForecast, ...]
    code: str
    floor: Floors
    note: str

    @property
    def main_launch(self) -> LaunchForecast:
        """The launch that takes longest."""
        return max(self.launches, key=lambda launch: launch.time_us)

    @property
    def stack(self) -> tuple[Slice, ...]:
        """The chain stack of the longest launch."""
        return self.main_launch.stack


def forecast(
    rung: Rung,
    workload: Workload,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    *,
    scale: Mapping[str, float] | None = None,
    code: MachineCode | None = None,
    machine: Machine | None = None,
) -> Forecast:
    """Predict the time of one call of a rung from its machine code. No GPU is needed.

    Args:
        rung: the kernel; it must support the workload.
        workload: what is computed, and the state of the cache.
        gpu: a sheet or its name.
        knobs: compile-time choices.
        scale: factors on latencies by class, for "what if": ``{"memory": 0.5}``; the classes are
            in `CLASSES`, and ``bandwidth`` scales the memory ceiling.
        code: the machine code, if it is at hand.
        machine: other latencies than those of the table, for an experiment.

    Raises:
        CompileError: the source does not compile.
        LabError: the rung cannot run the workload, an unknown knob or GPU, or the machine code
            does not say how often a loop runs.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    _check_classes(scale or {})
    launches = rung.launches(workload, knobs)
    code = code or machine_code(rung, workload, rung.resolve_knobs(knobs), gpu.arch)
    models = _models(launches, workload, gpu, code, machine or machine_of(gpu))
    return _predict(models, workload, gpu, code, scale or {})


def _models(
    launches: Sequence[Launch],
    workload: Workload,
    gpu: Gpu,
    code: MachineCode,
    machine: Machine,
) -> list[_LaunchModel]:
    """A model of each timed launch."""
    timed = timed_launches(launches)
    memory = _Memory(workload, launches, timed)
    missing = [launch.entry for launch in timed if launch.entry not in code.entries]
    if missing:
        raise LabError(
            f"There is no kernel {missing[0]!r} to forecast.",
            f"the launch names it; the source has {', '.join(sorted(code.entries)) or 'none'}",
            'name one of those in the launch, or declare the kernel extern "C"',
        )
    return [
        _LaunchModel(
            launch,
            code.entries[launch.entry],
            code.resources[launch.entry],
            gpu,
            machine,
            memory,
        )
        for launch in timed
    ]


def _check_classes(scale: Mapping[str, float]) -> None:
    unknown = set(scale) - {*CLASSES, "bandwidth", "l2", "dram"}
    if unknown:
        raise LabError(
            f"There is no latency class {sorted(unknown)[0]!r}.",
            f"the classes are {', '.join((*CLASSES, 'bandwidth'))}",
            "name one of them",
        )
    wrong = [name for name, factor in scale.items() if not 0 < factor < math.inf]
    if wrong:
        raise LabError(
            f"The factor on {wrong[0]} is {scale[wrong[0]]}.",
            "a latency can only be made a positive number of times as long",
            "name a factor such as 0.5",
        )


def _predict(
    models: Sequence[_LaunchModel],
    workload: Workload,
    gpu: Gpu,
    code: MachineCode,
    scale: Mapping[str, float],
) -> Forecast:
    """The forecast of some launches, with latencies scaled by class."""
    if scale:
        models = [model.scaled(scale) for model in models]
    machine = models[0].machine
    results = [model.result for model in models]
    overhead_us = machine.start_us + sum(machine.launch_us(result.blocks) for result in results)
    time_us = overhead_us + sum(result.time_us for result in results)
    empty_us = machine.launch_us(1)
    bound, reason = _find_bound(time_us, empty_us + machine.start_us, results, machine, gpu)
    low, high = measured_band(machine)
    read = sum(result.dram_bytes for result in results)
    notes = [note for result in results for note in result.notes]
    if workload.is_paged:
        notes.append("the pages are taken to lie in order, which changes no number of bytes")
    if not machine.calibrated:
        notes.insert(
            0,
            f"uncalibrated: the latencies of {gpu.title} were not measured by this project, so the "
            "band is wider",
        )
    return Forecast(
        time_us=time_us,
        band_us=(time_us * low, time_us * high),
        bound=bound,
        bound_reason=reason,
        terms_us=_terms(results, machine, overhead_us),
        model=model_name(),
        calibrated=machine.calibrated,
        gpu=gpu.name,
        gb_per_s=read / time_us / 1e3,
        in_flight_bytes=max(results, key=lambda result: result.time_us).in_flight_bytes,
        launches=tuple(results),
        code=code.origin,
        floor=floors(workload, gpu),
        note="; ".join(notes),
    )


def what_if(
    rung: Rung,
    workload: Workload,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    factor: float = 0.5,
    classes: Sequence[str] = (*CLASSES, "bandwidth"),
) -> dict[str, float]:
    """The time if every latency of one class were ``factor`` times as long, class by class.

    Args:
        rung, workload, gpu, knobs: as for `forecast`.
        factor: above 0; 0.5 halves the latency. For ``bandwidth`` the ceiling is divided by it.
        classes: some of `CLASSES`, and ``bandwidth``.

    Returns:
        Class to time, microseconds. A class that the kernel does not use leaves the time as it is.
        Where many warps compete, two simulations differ by some percent for no reason; a shorter
        latency that would seem to make the kernel slower is said to change nothing.

    Raises:
        CompileError, LabError: as for `forecast`; an unknown class, or a factor of 0 or less.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    _check_classes(dict.fromkeys(classes, factor))
    launches = rung.launches(workload, knobs)
    code = machine_code(rung, workload, rung.resolve_knobs(knobs), gpu.arch)
    models = _models(launches, workload, gpu, code, machine_of(gpu))
    base_us = _predict(models, workload, gpu, code, {}).time_us
    found = {}
    for name in classes:
        scale = {name: 1 / factor if name == "bandwidth" else factor}
        time_us = _predict(models, workload, gpu, code, scale).time_us
        found[name] = min(time_us, base_us) if factor <= 1 else max(time_us, base_us)
    return found


# ------------------------------------------------------------------------------ where data are


class _Memory:
    """Buffers of a call: their contents, and which are read from memory."""

    def __init__(
        self, workload: Workload, launches: Sequence[Launch], timed: Sequence[Launch]
    ) -> None:
        lengths = workload.seq_lens or (workload.kv_len,) * workload.batch
        self.warm = workload.cache_state == "warm"
        contents = {"seq_lens": np.asarray(lengths, np.int32)}
        if workload.is_paged:
            contents[PAGE_TABLE] = _pages_in_order(workload)
        self.buffers: Buffers = make_buffers(timed, contents, _sizes(workload, launches))
        prepared = {
            arg
            for launch in launches
            if launch.prepare
            for arg in launch.args
            if isinstance(arg, str)
        }
        scratch = {one.name for launch in timed for one in launch.workspace} - prepared
        self.workspaces = {
            number for number, name in enumerate(self.buffers.names) if name in scratch
        }
        self.scratch = self.workspaces | {
            number for number, name in enumerate(self.buffers.names) if name == "out"
        }
        self.total_bytes = sum(
            size
            for number, size in enumerate(
                self.buffers.bytes.get(name, 0) for name in self.buffers.names
            )
            if number not in self.scratch
        )


def _sizes(workload: Workload, launches: Sequence[Launch]) -> dict[str, int]:
    element = workload.element_bytes
    q = workload.batch * workload.num_qo_heads * workload.head_dim * element
    kv = int(np.prod(workload.kv_shape)) * element
    sizes = {"q": q, "out": q, "k": kv, "v": kv, "seq_lens": 4 * workload.batch}
    if workload.is_paged:
        sizes[PAGE_TABLE] = 4 * workload.batch * workload.max_pages
    for launch in launches:
        sizes.update({one.name: one.bytes for one in launch.workspace})
    return sizes


def _pages_in_order(workload: Workload) -> np.ndarray:
    """A page table int32 [B, max_pages] whose pages lie one after another.

    A real cache has them in any order. A page is a run of memory either way, as long as a block
    reads at a time, so the order changes which bytes are read and not how many, or in what pieces.
    """
    used = -(-workload.lengths // workload.page_size)
    first = np.r_[0, np.cumsum(used)[:-1]]
    place = np.arange(workload.max_pages)
    table = np.where(place < used[:, None], first[:, None] + place, workload.num_pages)
    return table.astype(np.int32)


# --------------------------------------------------------------------------------- one launch


@dataclass(frozen=True)
class _Class:
    """Blocks that execute equally much."""

    block: int
    members: int
    streams: BlockStreams
    trace: Trace


class _LaunchModel:
    def __init__(
        self,
        launch: Launch,
        sass: Sass,
        resources: Resources,
        gpu: Gpu,
        machine: Machine,
        memory: _Memory,
    ) -> None:
        self.launch, self.sass, self.gpu, self.machine = launch, sass, gpu, machine
        self.memory = memory
        self.scale: Mapping[str, float] = {}
        self.plain = self
        self.resident = occupancy(
            gpu,
            launch.num_threads,
            resources.registers,
            resources.shared_bytes + launch.smem_bytes,
        )
        if self.resident.blocks_per_sm < 1:
            raise LabError(
                f"{launch.entry} cannot launch on {gpu.title}.",
                self.resident.cannot_run or "no block fits on an SM",
                "another block shape or less shared memory",
            )
        self.sms = machine.sm_count
        shared = self.resident.smem_per_block_bytes * self.resident.blocks_per_sm
        self.l1_bytes = max(16 * 1024.0, machine.l1_bytes - shared)
        self._runs: dict[tuple[int, int, int], tuple[SmRun, Pressure]] = {}

    def scaled(self, scale: Mapping[str, float]) -> _LaunchModel:
        """The same launch with latencies scaled by class; what it executes is not traced anew."""
        one = _LaunchModel.__new__(_LaunchModel)
        kept = (self.classes, self.work_of_block, self.footprint, self._atomics_us)
        assert all(part is not None for part in kept)  # so that they are known before the copy
        one.__dict__.update(
            {name: value for name, value in self.__dict__.items() if name not in _SCALED}
        )
        one.scale, one.plain, one._runs = scale, self, {}
        rate = scale.get("bandwidth", 1.0)
        one.machine = dataclasses.replace(
            self.machine,
            dram_bytes_per_cycle=self.machine.dram_bytes_per_cycle * rate,
            l2_bytes_per_cycle=self.machine.l2_bytes_per_cycle * rate,
        )
        return one

    # ------------------------------------------------------------------------ blocks and data

    @cached_property
    def _profile(self) -> Trace:
        """Thread 0 of each block (of the first `MOST_BLOCKS` of a larger grid)."""
        blocks = np.arange(min(self.launch.num_blocks, MOST_BLOCKS))
        lanes = lanes_of_blocks(self.launch, self.memory.buffers, self.sass.arch, blocks)
        return run_trace(self.sass, lanes, self.memory.buffers)

    @cached_property
    def class_of_block(self) -> np.ndarray:
        """[blocks] position in `classes`, in launch order."""
        executed = self._profile.executed()
        levels = np.unique(executed)
        if len(levels) > MOST_CLASSES:
            edges = np.quantile(executed, np.linspace(0, 1, MOST_CLASSES + 1)[1:-1])
            number = np.searchsorted(np.unique(edges), executed, side="right")
        else:
            number = np.searchsorted(levels, executed)
        _, number = np.unique(number, return_inverse=True)
        number = number.reshape(-1)
        total = self.launch.num_blocks
        return number if len(number) == total else np.resize(number, total)

    @cached_property
    def work_of_block(self) -> np.ndarray:
        """[blocks] instructions of a block over those of its class's representative."""
        executed = self._profile.executed().astype(float)
        number = self.class_of_block[: len(executed)]
        chosen = np.array([executed[one.block] for one in self.classes])
        work = executed / np.maximum(1.0, chosen[number])
        return (
            work if len(work) == self.launch.num_blocks else np.resize(work, self.launch.num_blocks)
        )

    @cached_property
    def classes(self) -> list[_Class]:
        """A representative block for each class, with its streams."""
        executed = self._profile.executed()
        number = self.class_of_block[: len(executed)]
        found = []
        for level in range(int(number.max()) + 1):
            members = np.flatnonzero(number == level)
            middle = members[np.argsort(executed[members], kind="stable")[len(members) // 2]]
            lanes = lanes_of_block(self.launch, self.memory.buffers, self.sass.arch, int(middle))
            trace = run_trace(self.sass, lanes, self.memory.buffers)
            found.append(
                _Class(
                    int(middle),
                    int((self.class_of_block == level).sum()),
                    block_streams(trace, self.memory.buffers),
                    trace,
                )
            )
        return found

    @cached_property
    def footprint(self) -> dict[int, tuple[float, float]]:
        """By buffer: (different bytes of the grid, sum of the blocks' bytes)."""
        spans = block_spans(self._profile, self.memory.buffers)
        whole = self.classes[self.main_class]
        one = block_spans(whole.trace, self.memory.buffers)
        scale = self.launch.num_blocks / self._profile.lanes.count
        found = {}
        for buffer, (low, high) in one.items():
            full = float(high.max() - low[high > 0].min()) if (high > 0).any() else 0.0
            if buffer not in spans:
                found[buffer] = (full * self.launch.num_blocks, full * self.launch.num_blocks)
                continue
            first, end = spans[buffer]
            # Thread 0 sees the first bytes of its rows; the block as a whole reads on to the end.
            mine = spans[buffer][1][whole.block] - spans[buffer][0][whole.block]
            extra = max(0.0, full - float(mine))
            end = np.where(end > 0, end + int(extra), end)
            size = self.memory.buffers.bytes.get(self.memory.buffers.names[buffer])
            # A block need not read all that lies between its first and its last byte.
            total = sum(
                _new_bytes(other.streams.warps, buffer) * float(worth)
                for other, worth in zip(self.classes, self._blocks_worth, strict=True)
            )
            union = min(union_bytes(first, end) * scale, total)
            found[buffer] = (min(union, float(size)) if size else union, total)
        return found

    @cached_property
    def where(self) -> Where:
        """Which loads go to memory, and how many bytes each brings."""
        machine = self.machine
        different = sum(union for union, _ in self.footprint.values())
        from_dram: dict[int, float] = {}
        share: dict[int, float] = {}
        warm_miss = machine.l2_miss(max(different, self.memory.total_bytes))
        for buffer, (union, total) in self.footprint.items():
            share[buffer] = min(1.0, union / total) if total else 1.0
            if buffer in self.memory.scratch:
                from_dram[buffer] = 0.0  # written by this call, so it is in the L2
            else:
                from_dram[buffer] = warm_miss if self.memory.warm else 1.0
        on_sm = self.start_blocks
        l2_bytes = next(
            (x for x, y in zip(machine.l2_miss.x, machine.l2_miss.y, strict=True) if y > 0.5),
            float(self.gpu.l2_bytes),
        )
        return Where(
            from_dram,
            share,
            self.l1_bytes,
            l2_bytes,
            min(self.launch.num_blocks, on_sm * self.sms),
            on_sm,
            frozenset(self.memory.workspaces),
        )

    @property
    def start_blocks(self) -> int:
        """Blocks that the fullest SM holds at first."""
        return min(self.resident.blocks_per_sm, -(-self.launch.num_blocks // self.sms))

    # ---------------------------------------------------------------------------- simulation

    def run_at(self, number: int, on_sm: int, active: int) -> tuple[SmRun, Pressure]:
        """A class simulated with so many blocks an SM and on the whole GPU."""
        key = (number, on_sm, active)
        if key not in self._runs:
            self._runs[key] = self._solve(self.classes[number].streams, on_sm, active)
        return self._runs[key]

    def _solve(self, streams: BlockStreams, on_sm: int, active: int) -> tuple[SmRun, Pressure]:
        """Find the wait that memory adds at the rate that this wait allows.

        More wait means less traffic, and less traffic means less wait, so there is one answer; it
        is found by bisection on the wait.
        """
        trips = 6 if on_sm * len(streams.warps) <= 16 else 4
        sms = active / on_sm

        def run(pressure: Pressure, watch: bool = False) -> SmRun:
            return simulate_sm(
                streams,
                on_sm,
                self.machine,
                self.where,
                pressure,
                trips,
                watch,
                dict(self.scale),
            )

        def wanted(result: SmRun) -> Pressure:
            return Pressure(
                self.machine.dram_queue(self._rate(result.dram_bytes, result, sms, True)),
                self.machine.l2_queue(self._rate(result.l2_bytes, result, sms, False)),
            )

        result = run(Pressure())
        need = wanted(result)
        if max(need.dram, need.l2) < 3.0:
            return self._slowest(streams, on_sm, need, trips), need
        memory_bound = need.dram >= need.l2
        low, high, now = 0.0, math.inf, Pressure()
        guess = self._first_guess(result, sms, memory_bound)
        for _ in range(9):
            now = (
                Pressure(guess, need.l2 if need.l2 < guess else 0.0)
                if memory_bound
                else (Pressure(min(need.dram, guess), guess))
            )
            result = run(now)
            need = wanted(result)
            target = need.dram if memory_bound else need.l2
            if target > guess:
                low = guess
            else:
                high = guess
            if abs(target - guess) < 0.02 * (guess + 300.0):
                break
            guess = (low + high) / 2 if math.isfinite(high) else max(2 * guess, 50.0)
        return self._slowest(streams, on_sm, now, trips), now

    def _slowest(self, streams: BlockStreams, on_sm: int, pressure: Pressure, trips: int) -> SmRun:
        """The SM that is farthest from memory: it ends last, so its time is the kernel's."""
        slow = self._slow_pressure(pressure)
        return simulate_sm(
            streams, on_sm, self.machine, self.where, slow, trips, True, self._slow_scale
        )

    @cached_property
    def _slow_scale(self) -> dict[str, float]:
        """Factors on latencies for the slowest of the SMs that are busy.

        All SMs busy meet the slowest one; a single block meets the middle one, on average.
        """
        busy = min(self.launch.num_blocks, self.sms)
        part = math.log(busy) / math.log(self.sms) if self.sms > 1 else 1.0
        base = self.scale.get("memory", 1.0)
        return {
            **self.scale,
            "dram": self.scale.get("dram", base) * (1 + (self.machine.slow_dram - 1) * part),
            "l2": self.scale.get("l2", base) * (1 + (self.machine.slow_l2 - 1) * part),
        }

    def _slow_pressure(self, pressure: Pressure) -> Pressure:
        base = self.scale.get("memory", 1.0)
        return Pressure(
            pressure.dram * self._slow_scale["dram"] / self.scale.get("dram", base),
            pressure.l2 * self._slow_scale["l2"] / self.scale.get("l2", base),
        )

    @cached_property
    def _dram_ceiling(self) -> float:
        """Bytes a cycle that memory gives to this kernel's pattern of reads."""
        chunk = max((_chunk_bytes(stream_of.streams) for stream_of in self.classes), default=0.0)
        return self.machine.dram_bytes_per_cycle * self.machine.chunk_share(chunk)

    def _rate(self, read: float, result: SmRun, sms: float, dram: bool) -> float:
        """Share of a ceiling that all SMs together use."""
        machine = self.machine
        ceiling = self._dram_ceiling if dram else machine.l2_bytes_per_cycle
        return read * sms / max(1.0, result.cycles) / ceiling

    def _first_guess(self, result: SmRun, sms: float, memory_bound: bool) -> float:
        """The wait at which the traffic would be just below the ceiling, from one run without."""
        read = result.dram_bytes if memory_bound else result.l2_bytes
        share = self._rate(read, result, sms, memory_bound)
        return max(20.0, result.load_latency * max(0.0, share - 0.9) + 20.0)

    # ---------------------------------------------------------------------------- the grid

    def _duration(self, number: int, active: int) -> float:
        """Cycles of a block of a class while so many blocks run on the whole GPU.

        Simulated where the GPU is full, at a third of that, and with one block an SM; in between
        it is interpolated. Classes run the same code, so only the one with most work is simulated
        at each; the others are as many times shorter as they are on an empty SM.
        """
        full = self.start_blocks
        most = self.main_class
        alone = self.run_at(number, 1, min(self.sms, self.launch.num_blocks))[0].cycles
        if active <= self.sms:
            return alone
        anchors = sorted({1, max(1, round(full / 3)), full})
        blocks = [min(one * self.sms, self.launch.num_blocks) for one in anchors]
        cycles = [
            self.run_at(most, one, count)[0].cycles
            for one, count in zip(anchors, blocks, strict=True)
        ]
        return alone * float(np.interp(active, blocks, cycles)) / cycles[0]

    @cached_property
    def main_class(self) -> int:
        """The class whose blocks execute most, all together."""
        return max(
            range(len(self.classes)),
            key=lambda number: (
                self._blocks_worth[number] * sum(self.classes[number].streams.issued)
            ),
        )

    @cached_property
    def _blocks_worth(self) -> np.ndarray:
        """[classes] work of a class's blocks over that of its representative."""
        return np.bincount(
            self.class_of_block, weights=self.work_of_block, minlength=len(self.classes)
        )

    @cached_property
    def cycles(self) -> float:
        """Makespan of the grid: blocks start in order where a place is free.

        Each block goes through its work at a rate that depends on how many run beside it.
        """
        classes, work = self.class_of_block, self.work_of_block
        slots = self.resident.blocks_per_sm * self.sms
        total = len(classes)
        if len(self.classes) == 1 and float(work.max() - work.min()) < 1e-9:
            return self._uniform_cycles(total, slots)
        clock, done, started = 0.0, 0, 0
        progress = [0.0] * len(self.classes)
        heaps: list[list[float]] = [[] for _ in self.classes]
        active = 0
        while done < total:
            while started < total and active < slots:
                number = int(classes[started])
                heapq.heappush(heaps[number], progress[number] + float(work[started]))
                started += 1
                active += 1
            rates = [
                1.0 / self._duration(number, active) if heaps[number] else 0.0
                for number in range(len(heaps))
            ]
            step = min(
                (heap[0] - progress[number]) / rates[number]
                for number, heap in enumerate(heaps)
                if heap
            )
            clock += step
            for number, rate in enumerate(rates):
                progress[number] += rate * step
            for number, heap in enumerate(heaps):
                while heap and heap[0] <= progress[number] + 1e-9:
                    heapq.heappop(heap)
                    done += 1
                    active -= 1
        return clock

    def _uniform_cycles(self, total: int, slots: int) -> float:
        """Equal blocks come and go together: full waves, then the rest.

        Where warps compete for issue slots they do not advance together; what that costs is a
        property of the schedule, so it is taken from the model whose latencies are not scaled.
        """
        on_sm = self.start_blocks
        run, _ = self.run_at(0, on_sm, min(total, on_sm * self.sms))
        stretch = self.plain._stretch
        if stretch is not None:
            return run.cycles * stretch
        full, rest = divmod(total, slots)
        cycles = full * run.cycles if full else 0.0
        if rest:
            cycles += self.run_at(0, -(-rest // self.sms), rest)[0].cycles
        return cycles

    @cached_property
    def _stretch(self) -> float | None:
        """Cycles of all blocks over those of one wave that advances together.

        None where blocks do not compete: together they take as long as one alone. Where they do,
        some blocks end early, the last ones run alone, and a block that waited starts meanwhile.
        So the SM is simulated with all the blocks that pass through it.
        """
        total, on_sm = self.launch.num_blocks, self.start_blocks
        run, pressure = self.run_at(0, on_sm, min(total, on_sm * self.sms))
        streams = self.classes[0].streams
        pressure = self._slow_pressure(pressure)
        alone = simulate_sm(
            streams, 1, self.machine, self.where, pressure, 6, False, self._slow_scale
        ).cycles
        if run.cycles <= COMPETING * alone:
            return None
        through = -(-total // self.sms)
        return self._competing_cycles(streams, on_sm, through, pressure) / run.cycles

    def _competing_cycles(
        self, streams: BlockStreams, on_sm: int, through: int, pressure: Pressure
    ) -> float:
        """Cycles until so many blocks have passed through an SM whose warps compete.

        Simulated twice with loops cut short, and drawn on in a straight line over the number of
        instructions. Beyond three waves each further one costs what the third did.
        """

        def passing(blocks: int) -> float:
            runs = [
                simulate_sm(
                    streams,
                    min(on_sm, blocks),
                    self.machine,
                    self.where,
                    pressure,
                    trips,
                    False,
                    self._slow_scale,
                    total=blocks,
                    fair=False,
                )
                for trips in (4, 9)
            ]
            issued = [self._cut_instructions(streams, trips) for trips in (4, 9)]
            whole = float(sum(streams.issued))
            if issued[1] == issued[0]:
                return runs[1].cycles
            slope = (runs[1].cycles - runs[0].cycles) / (issued[1] - issued[0])
            return runs[1].cycles + (whole - issued[1]) * slope

        if through <= 3 * on_sm:
            return passing(through)
        rest = through % on_sm
        third = passing(3 * on_sm)
        more = third - passing(2 * on_sm)
        return passing(2 * on_sm + rest) + (through // on_sm - 2) * more

    @staticmethod
    def _cut_instructions(streams: BlockStreams, trips: int) -> float:
        """Instructions of a block whose loops are cut to so many trips."""
        return float(sum(_count_cut(stream, trips) for stream in streams.warps))

    # ---------------------------------------------------------------------------- the result

    @cached_property
    def result(self) -> LaunchForecast:
        """Everything about this launch."""
        machine = self.machine
        number = self.main_class
        on_sm = self.start_blocks
        active = min(self.launch.num_blocks, on_sm * self.sms)
        makespan = self.cycles
        run, _ = self.run_at(number, on_sm, active)
        sms = active / on_sm
        per_block = [(one, self._any_run(place)) for place, one in enumerate(self.classes)]
        dram = sum(one.members * r.dram_bytes / b for one, (r, b) in per_block)
        l2 = sum(one.members * r.l2_bytes / b for one, (r, b) in per_block)
        # No schedule brings more than the memory and the L2 can give.
        cycles = max(makespan, dram / self._dram_ceiling, l2 / machine.l2_bytes_per_cycle)
        streams = self.classes[number].streams
        slots = machine.sub_partitions * max(1.0, run.cycles)
        main = _main_loop(self.sass, run.events)
        busy_us = cycles / machine.clock_ghz / 1e3
        # While atomic operations queue up, nothing else is done.
        working = busy_us / (busy_us + self._atomics_us)
        return LaunchForecast(
            entry=self.launch.entry,
            blocks=self.launch.num_blocks,
            threads=self.launch.num_threads,
            time_us=busy_us + self._atomics_us,
            occupancy=self.resident,
            resident_blocks=on_sm,
            trips=_trips(streams, run),
            dram_bytes=dram,
            l2_bytes=l2,
            footprint_bytes=sum(union for union, _ in self.footprint.values()),
            dram_share=self._rate(run.dram_bytes, run, sms, True),
            l2_share=self._rate(run.l2_bytes, run, sms, False) * working,
            issue_share=run.issued / slots * working,
            in_flight_bytes=run.in_flight_bytes,
            load_latency_cycles=run.load_latency,
            stack=_stack(self.sass, run.events, machine),
            chain=_links(self.sass, run.events, machine, main),
            main_loop=main,
            true_chain_cycles=(true_chain(self.sass, main, machine) if main is not None else None),
            notes=tuple(dict.fromkeys((*self._profile.notes, *self.classes[number].trace.notes))),
        )

    @cached_property
    def _atomics_us(self) -> float:
        """Time of atomic operations on one address, which the L2 does one after another."""
        places: dict[int, set[int]] = {}

        def walk(items: Sequence[Item]) -> None:
            for item in items:
                if isinstance(item, Repeat):
                    walk(item.body)
                    continue
                atomic = self.sass.instructions[item.index].base in ATOMICS
                if atomic and item.address is not None and item.executing.any():
                    places.setdefault(item.index, set()).update(
                        item.address[item.executing][:64].tolist()
                    )

        walk(self._profile.items)
        shared = {index for index, addresses in places.items() if len(addresses) == 1}
        if not shared or self.launch.num_blocks == 1:
            return 0.0
        each = sum(
            one.members * _count_atomics(stream, shared)
            for one in self.classes
            for stream in one.streams.warps
        )
        return each * self.machine.atomic_ns / 1e3

    def _any_run(self, number: int) -> tuple[SmRun, int]:
        keys = [key for key in self._runs if key[0] == number]
        key = max(keys, key=lambda key: (key[1], key[2]))
        return self._runs[key][0], key[1]


# ------------------------------------------------------------------------------ what it says


def _new_bytes(warps: Sequence[Sequence[Node]], buffer: int) -> float:
    """Bytes of a buffer that the warps of a block bring to the L1."""

    def walk(nodes: Sequence[Node]) -> float:
        total = 0.0
        for node in nodes:
            if isinstance(node, LoopNode):
                total += node.count * walk(node.body)
                continue
            request = node.request
            if request is None or request.buffer != buffer:
                continue
            if request.kind in ("load", "async"):
                total += 32 * request.new_sectors
        return total

    return sum(walk(stream) for stream in warps)


def _count_atomics(nodes: Sequence[Node], indices: set[int]) -> int:
    total = 0
    for node in nodes:
        if isinstance(node, LoopNode):
            total += node.count * _count_atomics(node.body, indices)
        elif node.on and node.index in indices:
            total += 1
    return total


def _chunk_bytes(streams: BlockStreams) -> float:
    """Bytes of one buffer that a block brings in a trip of its busiest loop, side by side."""
    best, chunk = 0.0, 0.0

    def loops(nodes: Sequence[Node]) -> list[LoopNode]:
        return [node for node in nodes if isinstance(node, LoopNode)]

    by_place: dict[int, dict[int, float]] = {}
    work: dict[int, float] = {}
    for stream in streams.warps:
        for place, loop in enumerate(loops(stream)):
            sizes = by_place.setdefault(place, {})
            for node in loop.body:
                if isinstance(node, LoopNode) or node.request is None:
                    continue
                if node.request.kind in ("load", "async"):
                    buffer = node.request.buffer
                    sizes[buffer] = sizes.get(buffer, 0.0) + 32 * node.request.new_sectors
            work[place] = work.get(place, 0.0) + loop.count * sum(sizes.values())
    for place, sizes in by_place.items():
        if sizes and work[place] > best:
            best, chunk = work[place], max(sizes.values())
    if not best:  # no loop: what the block reads at all
        chunk = max(streams.buffer_bytes.values(), default=0.0)
    return chunk


def _count_cut(nodes: Sequence[Node], trips: int) -> int:
    return sum(
        min(node.count, trips) * _count_cut(node.body, trips) if isinstance(node, LoopNode) else 1
        for node in nodes
    )


def _find_bound(
    time_us: float,
    empty_us: float,
    results: Sequence[LaunchForecast],
    machine: Machine,
    gpu: Gpu,
) -> tuple[str, str]:
    """The bound, by the same rules as hardware counters are read by."""
    main = max(results, key=lambda result: result.time_us)
    if time_us < LAUNCH_TIMES * empty_us:
        return "launch", (
            f"the whole call takes less than {LAUNCH_TIMES:g} times an empty launch"
            f" ({empty_us:.2f} us)"
        )
    peak = (gpu.dram_gb_per_s or 0.0) or machine.dram_bytes_per_cycle * machine.clock_ghz
    of_peak = main.dram_bytes / main.time_us / 1e3 / peak if main.time_us else 0.0
    if of_peak >= BANDWIDTH_SHARE:
        return "bandwidth", f"{of_peak:.0%} of the memory's peak rate is in use"
    if main.l2_share >= 0.85:
        return "bandwidth", f"{main.l2_share:.0%} of the L2's ceiling is in use"
    if main.issue_share >= ISSUE_SHARE:
        return "issue", f"{main.issue_share:.0%} of the issue slots are in use"
    top = main.stack[0] if main.stack else None
    waited = f"a warp waits longest for {top.name} ({top.share:.0%})" if top else "it waits"
    return "chain", (
        f"memory is used at {of_peak:.0%} of its peak and the issue slots at "
        f"{main.issue_share:.0%}; {waited}"
    )


def _terms(
    results: Sequence[LaunchForecast], machine: Machine, overhead_us: float
) -> dict[str, float]:
    """What each limit alone would take, microseconds."""
    rate = machine.dram_bytes_per_cycle * machine.clock_ghz * 1e3
    l2 = machine.l2_bytes_per_cycle * machine.clock_ghz * 1e3
    issue = sum(result.issue_share * result.time_us for result in results)
    return {
        "bandwidth": sum(result.dram_bytes for result in results) / rate,
        "l2_bandwidth": sum(result.l2_bytes for result in results) / l2,
        "issue": issue,
        "chain": sum(result.time_us for result in results),
        "launch": overhead_us,
    }


def _causes(event: Event, sass: Sass, machine: Machine) -> dict[str, float]:
    """What one issue waited for, in cycles; together they are the time since the issue before."""
    found: dict[str, float] = {}

    def add(name: str, cycles: float) -> None:
        if cycles > 1e-9:
            found[name] = found.get(name, 0.0) + cycles

    gap = event.issued - event.before
    barrier = min(event.barrier, gap)
    fetch = min(event.fetch, gap - barrier)
    stall = max(0.0, event.ready - event.before - barrier - fetch)
    add("barrier", barrier)
    add("branch and fetch", fetch)
    add("issue", min(1.0, stall))
    add("fixed latency", stall - min(1.0, stall))
    wait = max(0.0, event.waited - event.ready)
    if wait:
        add(_wait_name(event, sass, machine), wait)
    add("contention", gap - barrier - fetch - stall - wait)
    return found


def _wait_name(event: Event, sass: Sass, machine: Machine) -> str:
    if event.producer is None:
        return "memory: async copy"
    producer = sass.instructions[event.producer]
    kind = machine.latency_class(producer)
    if event.level == "read":
        return "operand read"
    if producer.base in ("LDL", "STL"):
        return "local memory"
    if kind == "memory":
        return {"dram": "memory: HBM", "l2": "memory: L2", "l1": "memory: L1"}.get(
            event.level, "memory: async copy"
        )
    return {
        "shared": "shared memory",
        "special": "special function",
        "convert": "conversion",
        "special_register": "special register",
        "fixed": "other latency",
    }.get(kind, kind)


def _stack(sass: Sass, events: Sequence[Event], machine: Machine) -> tuple[Slice, ...]:
    totals: dict[str, float] = {}
    for event in events:
        for name, cycles in _causes(event, sass, machine).items():
            totals[name] = totals.get(name, 0.0) + cycles * event.weight
    whole = sum(totals.values()) or 1.0
    return tuple(
        Slice(name, cycles, cycles / whole)
        for name, cycles in sorted(totals.items(), key=lambda item: -item[1])
    )


def _main_loop(sass: Sass, events: Sequence[Event]) -> tuple[int, int] | None:
    """The loop in which the watched warp spends most of its time, loops inside it left out."""
    spent = []
    for number, loop in enumerate(sass.loops):
        inner = [one for one in sass.loops if one.parent == number]
        cycles = sum(
            (event.issued - event.before) * event.weight
            for event in events
            if loop.first <= event.index <= loop.last
            and not any(one.first <= event.index <= one.last for one in inner)
        )
        spent.append((cycles, (loop.first, loop.last)))
    best = max(spent, default=(0.0, None))
    return best[1] if best[0] > 0 else None


def _links(
    sass: Sass, events: Sequence[Event], machine: Machine, main: tuple[int, int] | None
) -> tuple[Link, ...]:
    """The last simulated trip of the main loop (or the whole kernel without one)."""
    chosen = list(events)
    if main is not None:
        starts = [place for place, event in enumerate(events) if event.index == main[0]]
        # A trip that is followed by another one is a whole one. The last of the usual length: the
        # last trips of a pipeline start no copies.
        begin = starts[-2] if len(starts) > 1 else starts[-1] if starts else 0
        end = starts[-1] if len(starts) > 1 else len(events)
        sizes = [second - first for first, second in itertools.pairwise(starts)]
        if sizes:
            usual = max(sizes, key=lambda size: (sizes.count(size), size))
            place = max(number for number, size in enumerate(sizes) if size == usual)
            begin, end = starts[place], starts[place + 1]
        heaviest = max(
            range(len(starts)), key=lambda place: events[starts[place]].weight, default=None
        )
        if heaviest is not None and events[starts[heaviest]].weight > 1:
            begin = starts[heaviest]
            end = next(
                (
                    place
                    for place in range(begin + 1, len(events))
                    if events[place].index == main[0]
                    or not main[0] <= events[place].index <= main[1]
                ),
                len(events),
            )
        chosen = list(events[begin:end])
    if not chosen:
        return ()
    zero = chosen[0].before
    found = []
    for event in chosen:
        one = sass.instructions[event.index]
        causes = _causes(event, sass, machine)
        found.append(
            Link(
                event.index,
                one.text,
                one.source,
                event.before - zero,
                event.issued - zero,
                max(causes, key=lambda name: causes[name], default="issue"),
                causes,
                event.producer,
            )
        )
    return tuple(found)


def _trips(streams: BlockStreams, run: SmRun) -> tuple[tuple[int, int, float], ...]:
    """Loops of the first warp; trips that the trace walked through singly are counted in."""
    cycles = {(first, count): slope for first, count, slope in run.slopes}
    found: dict[int, tuple[int, int, float]] = {}
    within: dict[int, float] = {}

    def walk(nodes: Sequence[Node], entered: float) -> None:
        for node in nodes:
            if not isinstance(node, LoopNode):
                continue
            first = first_of(node)
            times = _executions(streams.warps[0], first) / _executions(node.body, first)
            if entered > within.get(first, 0.0):  # a loop in a trip that was walked through: no
                within[first] = entered
                slope = cycles.get((first, node.count), 0.0)
                found[first] = (count_ops(node.body), round(times / entered), slope)
            walk(node.body, times)

    walk(streams.warps[0], 1.0)
    return tuple(found.values())


def _executions(nodes: Sequence[Node], index: int) -> int:
    """How often a warp issues one instruction."""
    return sum(
        node.count * _executions(node.body, index)
        if isinstance(node, LoopNode)
        else node.index == index
        for node in nodes
    )


def true_chain(sass: Sass, loop: tuple[int, int], machine: Machine) -> float:
    """Cycles a trip of a loop if nothing but true register dependencies delayed it.

    The longest path through the loop unrolled 32 times, its slope over the second half: the
    least that perfect software pipelining with renamed registers could reach. Loads count as L1
    hits of their own latency only where a later trip depends on them, which is rare; that is why
    this bound says so little about a GPU, whose warps issue in order.
    """
    body = sass.instructions[loop[0] : loop[1] + 1]
    trips = 32
    finish: dict[str, float] = {}
    ends = []
    for _ in range(trips):
        latest = 0.0
        for one in body:
            start = max((finish.get(name, 0.0) for name in one.uses), default=0.0)
            done = start + _true_latency(one, machine)
            for name in one.defines:
                finish[name] = max(done, finish.get(name, 0.0)) if one.predicate else done
            latest = max(latest, done if one.defines else start)
        ends.append(latest)
    return (ends[-1] - ends[trips // 2 - 1]) / (trips - trips // 2)


def _true_latency(one: Instruction, machine: Machine) -> float:
    if one.base in ("LDG", "LD"):
        return machine.dram_rows(256)
    if one.control.write_barrier is not None:
        return machine.latency(one, None)
    return 4.0
