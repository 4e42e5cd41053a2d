"""What a forecast says: a time with a band, the bound behind it, and the chain of waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labtools.record.bound import Bound
from labtools.toolchain.sass import SourceLine

from .residency import Occupancy
from .roofline import Floors

MODEL_VERSION = 7
"""The number of the model, raised by hand whenever a rule or a number of it moves any forecast. The
goldens keep it, and refuse a forecast that moved under an unchanged number."""
MEMORY_SLICE = "memory: "
"""What the names of waits for memory begin with; behind it comes where the data came from."""


def model_name() -> str:
    """For example ``chain model 2``; what a record says of its forecast."""
    return f"chain model {MODEL_VERSION}"


def waits_for_memory(name: str) -> bool:
    """Whether a `Slice` of this name is a wait for DRAM, the L2, the L1 or a copy from them."""
    return name.startswith(MEMORY_SLICE)


@dataclass(frozen=True)
class Slice:
    """A part of the time: what the watched warp waited for."""

    name: str  # ``memory: DRAM``, ``memory: L2``, ``shuffle``, ``barrier``, ``fixed latency``, ..
    cycles: float  # of the whole kernel, one warp from start to end
    share: float  # of the warp's cycles, 0..1


@dataclass(frozen=True)
class ChainLink:
    """One instruction of the main loop's last simulated trip, and what it waited for."""

    # index, text: the instruction
    index: int
    text: str
    source: SourceLine | None  # its source line
    start: float  # cycle of the issue before it, counted from the trip's first issue
    issue: float  # cycle when it issued
    cause: str  # name of the longest part of the wait, as in `Slice`
    cycles: Mapping[str, float]  # of each cause
    producer: int | None  # position of the instruction whose result was waited for, or None


@dataclass(frozen=True)
class LaunchForecast:
    """One launch of a forecast."""

    entry: str  # kernel name
    # blocks, threads: of the launch
    blocks: int
    threads: int
    time_us: float  # from the first block's start to the last one's end, launch overhead left out
    dispatch_us: float  # launch overhead: until as many blocks as fit have started
    clock_ghz: float  # of the SMs while it runs
    occupancy: Occupancy  # blocks and warps that fit on an SM
    resident_blocks: int  # blocks an SM really holds at the start
    # (instructions a trip, trips, cycles a trip) of each loop of the first warp; of an inner loop
    # the trips in one trip of the outer one
    trips: tuple[tuple[int, int, float], ...]
    # dram_bytes, l2_bytes: that the whole launch reads from memory and from the L2
    dram_bytes: float
    l2_bytes: float
    footprint_bytes: float  # different bytes that it touches
    dram_share: float  # share of the memory ceiling in use while the GPU is full, 0..1
    l2_share: float  # the same for the L2
    # share of the issue slots of busy SMs in use, 0..1, those of schedulers without a warp
    # included; a profiler's ``issue_slot_pct`` leaves these out
    issue_share: float
    in_flight_bytes: float  # mean bytes asked for and not yet there, an SM
    load_latency_cycles: float  # mean latency of loads that miss the L1, load on memory included
    stack: tuple[Slice, ...]  # what the first warp waited for, largest first
    # the main loop's instructions with their waits
    chain: tuple[ChainLink, ...] = field(repr=False)
    main_loop: tuple[int, int] | None  # (first, last) instruction of the main loop, or None
    # cycles a trip of the main loop if only true dependencies counted
    true_chain_cycles: float | None
    notes: tuple[str, ...]  # branches on data and what was assumed
    doubts: tuple[str, ...] = ()  # those of them that may change the time by much
    # share of its time in which each pipe of a busy SM works, 0..1, by the names in
    # `record.bound.FULL_UNITS`
    pipe_shares: Mapping[str, float] = field(default_factory=dict)
    # term to microseconds of a kernel whose warps have roles: the phases of a block
    # (`explain.BLOCK_TERMS`), ``waves and tail`` (SMs that have no block left), ``memory's rate``
    # (more than the schedule, where memory or the L2 gives no more), ``atomics``. Together they are
    # ``time_us``. Empty for other kernels.
    account_us: Mapping[str, float] = field(default_factory=dict, repr=False)
    # the parts of its contention that are for the SM's load/store unit, by the state in which a
    # profiler counts them, see `explain.unit_waits`
    unit_waits: Mapping[str, float] = field(default_factory=dict, repr=False)

    @property
    def busy(self) -> dict[str, float]:
        """Share of its peak of each unit that may be a bound (`record.bound.FULL_UNITS`)."""
        return {"l2": self.l2_share, "issue": self.issue_share, **self.pipe_shares}


@dataclass(frozen=True)
class Forecast:
    """A predicted time, with what it stands on."""

    time_us: float  # the prediction
    # (lower, upper) end; as wide as the model's errors on kernels of its family. None where
    # ``doubts`` says why that is not known.
    band_us: tuple[float, float] | None
    bound: Bound
    bound_reason: str  # one sentence
    # what the time would be by each limit alone, and the launch overhead
    terms_us: Mapping[str, float]
    calibrated: bool  # the latencies were measured on this GPU
    gpu: str  # short name
    gb_per_s: float  # bytes read from memory over the time, 10^9 a second
    in_flight_bytes: float  # mean bytes asked for and not yet there, an SM, in the longest launch
    launches: tuple[LaunchForecast, ...]  # details, in order
    code: str  # where the machine code came from
    floor: Floors  # the roofline floor of the workload
    note: str  # what to know about this forecast
    # of kernels, whose errors the band is as wide as (`bands.FAMILIES`); None for one of no family
    family: str | None = None
    doubts: tuple[str, ...] = ()  # reasons for which there is no band
    faults: tuple[str, ...] = ()  # those of ``doubts`` for which a GPU ends it with an error
    # data decide trip counts; it was followed with the inputs, and blocks were run on the CPU
    counted: bool = False

    @property
    def main_launch(self) -> LaunchForecast:
        """The launch that takes longest."""
        return max(self.launches, key=lambda launch: launch.time_us)

    @property
    def account_us(self) -> dict[str, float]:
        """Term to microseconds, the launch's own first; empty unless all warps have roles."""
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
