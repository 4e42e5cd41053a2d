"""What the watched warp of a simulation waited for: its stack, its main loop's chain, its loops."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from labtools.record.bound import CHAIN_REASONS, SHORT_REASON
from labtools.toolchain.sass import Instruction, Sass

from .machine import Machine, unit_of
from .result import ChainLink, LaunchForecast, Slice
from .sm_model import Event, SmRun
from .streams import BlockStreams, LoopNode, Node, count_ops, each_op, first_of

REASON_OF_SLICE = {
    "memory: DRAM": "long_scoreboard",
    "memory: L2": "long_scoreboard",
    "memory: L1": "long_scoreboard",
    "memory: async copy": "long_scoreboard",
    "local memory": "long_scoreboard",
    "barrier": "barrier",
    "fixed latency": "wait",
    "shuffle": "short_scoreboard",
    "shared memory": "short_scoreboard",
    "special function": "short_scoreboard",
    "conversion": "short_scoreboard",
    "contention": "not_selected",
    "issue": "selected",
}
"""Slices of a warp's time by the state in which a profiler counts them; others fit none of its
states alone."""
COPY_WAIT = "memory: bulk copy"
"""The slice of what a warp waits for copies by a tensor map."""
BLOCK_TERMS = (
    "prologue",
    "first copies",
    "products",
    "later copies",
    "between products",
    "epilogue",
)
"""Phases of a block whose warps have roles (`account_block`)."""


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
    if sass.instructions[event.index].base == "WARPGROUP":
        return "tensor"
    if event.producer is None:
        return "memory: async copy"
    producer = sass.instructions[event.producer]
    kind = machine.latency_class(producer)
    if event.level == "read":
        return "operand read"
    if producer.base == "SYNCS" and event.level:
        return {"copy": COPY_WAIT, "warp": "other warps"}.get(event.level, "mbarrier")
    if producer.base in ("LDL", "STL"):
        return "local memory"
    if kind == "memory":
        levels = {"dram": "memory: DRAM", "l2": "memory: L2", "l1": "memory: L1"}
        return levels.get(event.level, "memory: async copy")
    return {
        "shared": "shared memory",
        "special": "special function",
        "convert": "conversion",
        "special_register": "special register",
        "fixed": "other latency",
    }.get(kind, kind)


def stack_time(sass: Sass, events: Sequence[Event], machine: Machine) -> tuple[Slice, ...]:
    """What the watched warp waited for, largest first; the shares add up to 1."""
    totals: dict[str, float] = {}
    for event in events:
        for name, cycles in _causes(event, sass, machine).items():
            totals[name] = totals.get(name, 0.0) + cycles * event.weight
    whole = sum(totals.values()) or 1.0
    ordered = sorted(totals.items(), key=lambda item: -item[1])
    return tuple(Slice(name, cycles, cycles / whole) for name, cycles in ordered)


def unit_waits(sass: Sass, events: Sequence[Event], machine: Machine) -> dict[str, float]:
    """Of the watched warp's contention what was for the SM's load/store unit, as share of its time,
    by the state in which a profiler counts it: on an NVIDIA H200 waits for shared memory stand at
    the short scoreboard, those for global memory at the long one."""
    waits = {"short_scoreboard": 0.0, "long_scoreboard": 0.0}
    whole = 0.0
    for event in events:
        whole += (event.issued - event.before) * event.weight
        kind = machine.latency_class(sass.instructions[event.index])
        state = "long_scoreboard" if kind == "memory" else "short_scoreboard"
        waits[state] += event.unit * event.weight
    return {state: cycles / (whole or 1.0) for state, cycles in waits.items()}


def profiler_states(launch: LaunchForecast, schedulers: int) -> dict[str, float]:
    """Shares of the watched warp's time, 0..1, by the states in which a profiler counts them; a
    wait that nobody met is a zero. Contention is "not selected" as far as the other warps of the
    ``schedulers`` that have warps issue. What is more was for the load/store unit, or for what
    stood before it there, and counts as `unit_waits` does. Where that unit never kept the warp from
    shared memory or a shuffle, it stood before other pipes, which fits no state."""
    shares: dict[str, float] = dict.fromkeys(REASON_OF_SLICE.values(), 0.0)
    for one in launch.stack:
        if reason := REASON_OF_SLICE.get(one.name):
            shares[reason] += one.share
    contention = shares["not_selected"] - sum(launch.unit_waits.values())
    warps = launch.resident_blocks * launch.occupancy.warps_per_block
    busy = launch.issue_share * schedulers / min(schedulers, max(1, warps))
    shares["not_selected"] = min(max(0.0, contention), max(0.0, busy - shares["selected"]))
    for reason, share in launch.unit_waits.items():
        shares[reason] += share
    if launch.unit_waits.get("short_scoreboard"):
        shares["short_scoreboard"] += max(0.0, contention - shares["not_selected"])
    return shares


def chain_share(stack: Sequence[Slice]) -> float:
    """Share of a warp's time in what counts as a chain, 0..1, by its stack alone: accesses to
    global memory that the load/store unit kept waiting are in contention there."""
    reasons = (*CHAIN_REASONS, SHORT_REASON)
    return sum(one.share for one in stack if REASON_OF_SLICE.get(one.name) in reasons)


PIPE_OF_UNIT = {
    "fp32": "fma",
    "fp16": "fma",
    "imad": "imad",
    "alu": "alu",
    "xu": "xu",
    "fp64": "fp64",
    "tensor": "tensor",
}
"""The pipe of `record.bound.FULL_UNITS` by the unit of a sub-partition that it is here."""


def pipe_shares(
    streams: BlockStreams, run: SmRun, blocks: int, machine: Machine, working: float
) -> dict[str, float]:
    """Share of its time in which each pipe of an SM works, 0..1, while ``blocks`` share it: its
    cycles for all instructions over those that the SM takes; ``working`` is a factor on each."""
    parts, sass = machine.sub_partitions, streams.sass
    spent = dict.fromkeys(("lsu", *PIPE_OF_UNIT.values()), 0.0)
    equal = Counter(map(id, streams.warps))
    for stream in {id(one): one for one in streams.warps}.values():
        for op, times in each_op(stream):
            if not op.on:
                continue
            one = sass.instructions[op.index]
            unit, count = unit_of(one), times * equal[id(stream)]
            if unit in PIPE_OF_UNIT:
                spent[PIPE_OF_UNIT[unit]] += count * machine.interval(unit, one, sass) / parts
            spent["lsu"] += count * machine.shared_interval(one, op.request)
    whole = max(1.0, run.cycles) / blocks
    found = {name: working * min(1.0, cycles / whole) for name, cycles in spent.items()}
    # Products of warpgroups are queued in the simulation; the pipe that starts them is not theirs.
    found["tensor"] = max(found["tensor"], run.tensor_share * working)
    return found


def find_main_loop(sass: Sass, events: Sequence[Event]) -> tuple[int, int] | None:
    """The loop in which the watched warp spends most of its time, loops inside it left out."""
    at: dict[int, float] = {}  # by position in the kernel
    for event in events:
        cycles = (event.issued - event.before) * event.weight
        at[event.index] = at.get(event.index, 0.0) + cycles
    spent = []
    for number, loop in enumerate(sass.loops):
        inner = [one for one in sass.loops if one.parent == number]
        cycles = sum(
            here
            for index, here in at.items()
            if loop.first <= index <= loop.last
            and not any(one.first <= index <= one.last for one in inner)
        )
        spent.append((cycles, (loop.first, loop.last)))
    best = max(spent, default=(0.0, None))
    return best[1] if best[0] > 0 else None


def follow_chain(
    sass: Sass, events: Sequence[Event], machine: Machine, main: tuple[int, int] | None
) -> tuple[ChainLink, ...]:
    """The last simulated trip of the main loop (or the whole kernel without one)."""
    chosen = list(events)
    if main is not None:
        starts = [place for place, event in enumerate(events) if event.index == main[0]]
        # A trip that is followed by another one is a whole one. The last of the usual length: the
        # last trips of a pipeline start no copies.
        begin, end = starts[-1] if starts else 0, len(events)
        sizes = [second - first for first, second in itertools.pairwise(starts)]
        if sizes:
            usual = max(sizes, key=lambda size: (sizes.count(size), size))
            place = max(number for number, size in enumerate(sizes) if size == usual)
            begin, end = starts[place], starts[place + 1]
        heaviest = max(starts, key=lambda place: events[place].weight, default=0)
        if starts and events[heaviest].weight > 1:
            begin, end = heaviest, heaviest + 1
            while end < len(events) and main[0] < events[end].index <= main[1]:
                end += 1
        chosen = list(events[begin:end])
    if not chosen:
        return ()
    zero = chosen[0].before
    found = []
    for event in chosen:
        one, causes = sass.instructions[event.index], _causes(event, sass, machine)
        cause = max(causes, key=lambda name: causes[name], default="issue")
        start, issue = event.before - zero, event.issued - zero
        text = event.index, one.text, one.source
        found.append(ChainLink(*text, start, issue, cause, causes, event.producer))
    return tuple(found)


def account_block(sass: Sass, run: SmRun, machine: Machine) -> dict[str, float]:
    """Cycles of an SM's blocks by `BLOCK_TERMS`, where warps have roles: together ``run.cycles``.
    The watched warp waits for the first copies, and the rest up to its first product is the
    prologue. To the end of its last product the tensor cores are busy, or it waited for copies, or
    did what stands between. Empty where no product or no copy by a tensor map is waited for."""
    spent = [(event.issued - event.before) * event.weight for event in run.events]
    copied = [
        _causes(event, sass, machine).get(COPY_WAIT, 0.0) * event.weight for event in run.events
    ]
    bases = [sass.instructions[event.index].base for event in run.events]
    waits = [place for place, cycles in enumerate(copied) if cycles]
    products = [place for place, base in enumerate(bases) if base == "HGMMA"]
    if not waits or not products:
        return {}
    begin = products[0] + 1
    ends = (place for place in range(products[-1], len(bases)) if bases[place] == "WARPGROUP")
    end = next((place + 1 for place in ends if spent[place] > 1.0), products[-1] + 1)
    first_copies = sum(copied[:begin])
    middle = sum(spent[begin:end])
    busy = min(middle, run.tensor_share * run.cycles)
    later_copies = min(sum(copied[begin:end]), middle - busy)
    found = {
        "prologue": sum(spent[:begin]) - first_copies,
        "first copies": first_copies,
        "products": busy,
        "later copies": later_copies,
        "between products": middle - busy - later_copies,
    }
    return {**found, "epilogue": run.cycles - sum(found.values())}


def list_loops(streams: BlockStreams, run: SmRun) -> tuple[tuple[int, int, float], ...]:
    """Loops of the watched warp; trips that the trace walked through singly are counted in."""
    cycles = {(first, count): slope for first, count, slope in run.slopes}
    found: dict[int, tuple[int, int, float]] = {}
    within: dict[int, float] = {}
    watched = streams.warps[run.watched]

    def walk(nodes: Sequence[Node], entered: float) -> None:
        for node in nodes:
            if not isinstance(node, LoopNode):
                continue
            first = first_of(node)
            times = _executions(watched, first) / _executions(node.body, first)
            if entered > within.get(first, 0.0):  # a loop in a trip that was walked through: no
                within[first] = entered
                slope = cycles.get((first, node.count), 0.0)
                found[first] = (count_ops(node.body), round(times / entered), slope)
            walk(node.body, times)

    walk(watched, 1.0)
    return tuple(found.values())


def _executions(nodes: Sequence[Node], index: int) -> int:
    """How often a warp issues one instruction."""
    return sum(times for op, times in each_op(nodes) if op.index == index)


def true_chain(sass: Sass, loop: tuple[int, int], machine: Machine) -> float:
    """Cycles a trip of a loop if only true register dependencies delayed it: the longest path
    through the loop unrolled 32 times, its slope over the second half, as if software pipelining
    were perfect. Loads count as L1 hits, and only where a later trip depends on them, which is
    rare: so this bound says little about a GPU, whose warps issue in order."""
    code = sass.instructions[loop[0] : loop[1] + 1]
    body = [
        (one.uses, one.defines, bool(one.predicate), _true_latency(one, machine)) for one in code
    ]
    trips = 32
    finish: dict[str, float] = {}
    ends = []
    for _ in range(trips):
        latest = 0.0
        for uses, defines, guarded, latency in body:
            start = 0.0
            for name in uses:
                start = max(start, finish.get(name, 0.0))
            done = start + latency
            for name in defines:
                finish[name] = max(done, finish.get(name, 0.0)) if guarded else done
            latest = max(latest, done if defines else start)
        ends.append(latest)
    return (ends[-1] - ends[trips // 2 - 1]) / (trips - trips // 2)


def _true_latency(one: Instruction, machine: Machine) -> float:
    if one.base in ("LDG", "LD"):
        return machine.dram_rows(256)
    if one.control.write_barrier is not None:
        return machine.latency(one, None)
    return 4.0
