"""What a forecast says: a time with a band, the bound behind it, and the chain of waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labtools.toolchain.sass import SourceLine

from .residency import Occupancy
from .roofline import Floors

MEMORY_SLICE = "memory: "
"""What the names of waits for memory begin with; behind it comes where the data came from."""


def waits_for_memory(name: str) -> bool:
    """Whether a `Slice` of this name is a wait for DRAM, the L2, the L1 or a copy from them."""
    return name.startswith(MEMORY_SLICE)


@dataclass(frozen=True)
class Slice:
    """A part of the time: what the watched warp waited for.

    Attributes:
        name: ``memory: DRAM``, ``memory: L2``, ``shuffle``, ``barrier``, ``fixed latency``, ...
        cycles: of the whole kernel, one warp from start to end.
        share: of the warp's cycles, 0..1.
    """

    name: str
    cycles: float
    share: float


@dataclass(frozen=True)
class ChainLink:
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
        issue_share: share of the issue slots of busy SMs in use, 0..1, those of schedulers without
            a warp included; a profiler's ``issue_slot_pct`` leaves these out.
        tensor_share: share of the tensor cores' time that products of warpgroups take, 0..1.
        in_flight_bytes: mean bytes asked for and not yet there, an SM.
        load_latency_cycles: mean latency of loads that miss the L1, load on memory included.
        stack: what the first warp waited for, largest first.
        unit_waits: the parts of its contention that are for the SM's load/store unit, by the state
            in which a profiler counts them, see `explain.unit_waits`.
        chain: the main loop's instructions with their waits.
        main_loop: (first, last) instruction of the main loop, or None.
        true_chain_cycles: cycles a trip of the main loop if only true dependencies counted.
        notes: branches on data and what was assumed.
        doubts: those of them that may change the time by much.
        account_us: term to microseconds of a kernel whose warps have roles: the phases of a block
            (`explain.BLOCK_TERMS`), ``waves and tail`` (SMs that have no block left), ``memory's
            rate`` (more than the schedule, where memory or the L2 gives no more), ``atomics``.
            Together they are ``time_us``. Empty for other kernels.
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
    chain: tuple[ChainLink, ...] = field(repr=False)
    main_loop: tuple[int, int] | None
    true_chain_cycles: float | None
    notes: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    tensor_share: float = 0.0
    account_us: Mapping[str, float] = field(default_factory=dict, repr=False)
    unit_waits: Mapping[str, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Forecast:
    """A predicted time, with what it stands on.

    Attributes:
        time_us: the prediction.
        band_us: (lower, upper) end; as wide as the model's errors on kernels it was tried on. None
            where ``doubts`` says why the model does not know.
        bound: ``bandwidth``, ``issue``, ``chain`` or ``launch``.
        bound_reason: one sentence.
        terms_us: what the time would be by each limit alone, and the launch overhead.
        calibrated: the latencies were measured on this GPU.
        gpu: short name.
        gb_per_s: bytes read from memory over the time, 10^9 a second.
        in_flight_bytes: mean bytes asked for and not yet there, an SM, in the longest launch.
        launches: details, in order.
        code: where the machine code came from.
        floor: the roofline floor of the workload.
        note: what to know about this forecast.
        doubts: reasons why this kernel is none of those that the band stands on.
        counted: data decide trip counts; it was followed with the inputs, and blocks were run on
            the CPU.
    """

    time_us: float
    band_us: tuple[float, float] | None
    bound: str
    bound_reason: str
    terms_us: Mapping[str, float]
    calibrated: bool
    gpu: str
    gb_per_s: float
    in_flight_bytes: float
    launches: tuple[LaunchForecast, ...]
    code: str
    floor: Floors
    note: str
    doubts: tuple[str, ...] = ()
    counted: bool = False

    @property
    def main_launch(self) -> LaunchForecast:
        """The launch that takes longest."""
        return max(self.launches, key=lambda launch: launch.time_us)

    @property
    def account_us(self) -> dict[str, float]:
        """Term to microseconds, the launch's own cost first; together they are ``time_us``.

        Empty unless the warps of every launch have roles (`LaunchForecast.account_us`).
        """
        if not all(launch.account_us for launch in self.launches):
            return {}
        found = {"launch": self.terms_us["launch"]}
        for launch in self.launches:
            for name, time_us in launch.account_us.items():
                found[name] = found.get(name, 0.0) + time_us
        return found

    @property
    def stack(self) -> tuple[Slice, ...]:
        """The chain stack of the longest launch."""
        return self.main_launch.stack
