"""The questions to ask of a kernel before it runs, answered from its machine code.

Each answer is a few labelled facts and one sentence. What cannot be computed is left to the reader.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from labtools.predict.forecasting import forecast, what_if
from labtools.predict.residency import Occupancy, achieved_occupancy, occupancy, waves
from labtools.predict.result import ChainLink, Forecast, LaunchForecast, model_name
from labtools.predict.sheets import Gpu, load_gpu
from labtools.predict.streams import SECTOR_BYTES
from labtools.problem import Launch, Problem, Rung, operation_of, timed_launches
from labtools.problem.rung import say_knobs
from labtools.record import RecordStore, best_read_gb_per_s
from labtools.toolchain.cubin import Resources
from labtools.toolchain.listings import MachineCode, machine_code
from labtools.toolchain.operands import GLOBAL_LOADS
from labtools.toolchain.sass import Loop, Sass

from ...terms import TERMS

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
READER_FIELDS: tuple[tuple[str, str], ...] = tuple(_WORDS["reader"].items())
"""Name and question of the fields that only the reader can fill in."""
_TOP_LINKS = 6
_WIDEST_LOAD = 16
_WARP = 32


@dataclass(frozen=True)
class Fact:
    """One number or word of an answer."""

    word: str  # ``computed``, ``forecast`` or ``recorded``
    name: str  # what it is, unit included
    value: float | int | str
    note: str = ""


_computed, _forecast = partial(Fact, "computed"), partial(Fact, "forecast")


@dataclass(frozen=True)
class Item:
    """One question with its answer."""

    id: str
    question: str
    says: str  # the answer in a sentence
    word: str  # provenance of the sentence
    facts: Sequence[Fact] = ()  # what it rests on
    columns: tuple[str, ...] = ()  # of a table, where one number a line is not enough
    rows: tuple[tuple[float | int | str, ...], ...] = ()


def _item(name: str, *answer: Any, **table: Any) -> Item:
    return Item(name, _WORDS["questions"][name], *answer, **table)


@dataclass(frozen=True)
class Checklist:
    """A filled checklist."""

    rung_id: str
    workload: Problem
    gpu: Gpu
    knobs: Mapping[str, int]  # every knob with its value
    items: tuple[Item, ...]  # the questions in order
    forecast: Forecast  # what the answers rest on

    def item(self, name: str) -> Item:
        """The item with an id; raises KeyError where there is none."""
        return {item.id: item for item in self.items}[name]

    @property
    def key(self) -> str:
        """A fixed name for the journal: kernel, knobs, workload and GPU."""
        knobs = say_knobs(sorted(self.knobs.items()), ",")
        return f"checklist {self.rung_id} {knobs} {self.workload.key()} {self.gpu.name}"


@dataclass(frozen=True)
class CodeFacts:
    """What a kernel's listing says by itself; nothing is simulated."""

    launch: Launch  # the launch that reads most, by the loads in its loop
    sass: Sass
    resources: Resources
    loop: Loop | None  # its widest-reading innermost loop
    widths: tuple[tuple[int, int], ...]  # (bytes per lane, loads in the loop), wide ones first
    occupancy: Occupancy  # blocks that fit an SM

    @property
    def bytes_in_flight(self) -> int:
        """The most bytes that one warp has asked for in the loop and not yet touched."""
        return self.loop.bytes_in_flight if self.loop else 0


def code_facts(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    code: MachineCode | None = None,
    main: LaunchForecast | None = None,
) -> CodeFacts:
    """Read the listing of a kernel's main launch, and of the loop that a simulation found in it.

    Without ``main`` they are the launch and the innermost loop that load most bytes. Raises
    CompileError: the source does not compile; LabError: the rung cannot run the workload, an
    unknown knob or GPU.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    code = code or machine_code(rung, workload, gpu.limits, rung.resolve_knobs(knobs))
    span = main.main_loop if main else None
    found = []
    for launch in timed_launches(rung.launches(workload, gpu.limits, knobs)):
        if main and main.entry != launch.entry:
            continue
        sass, resources = code.entries[launch.entry], code.resources[launch.entry]
        loops = [sass.loop_at(*span)] if span else sass.innermost_loops
        best = max(loops, key=lambda loop: sum(_load_widths(loop)), default=None)
        widths = tuple(sorted(Counter(_load_widths(best) if best else ()).items(), reverse=True))
        smem = resources.shared_bytes + launch.smem_bytes
        fits = occupancy(gpu, launch.num_threads, resources.registers, smem)
        found.append(CodeFacts(launch, sass, resources, best, widths, fits))
    return max(found, key=lambda facts: sum(width * count for width, count in facts.widths))


def _load_widths(loop: Loop) -> list[int]:
    """Bytes a lane of every load from global memory in one trip, copies to shared memory too."""
    return [one.access_bytes for one in loop.instructions if one.base in GLOBAL_LOADS]


def _source_lines(loop: Loop) -> str | None:
    """First and last line of the loop in the file that its closing branch comes from."""
    closing = loop.instructions[-1].source
    if closing is None:
        return None
    sources = [one.source for one in loop.instructions if one.source is not None]
    lines = [source.line for source in sources if source.file == closing.file]
    return f"{Path(closing.file).name}, {min(lines)} to {max(lines)}"


@dataclass(frozen=True)
class _Case:
    """What the questions are asked of."""

    rung: Rung
    workload: Problem
    gpu: Gpu
    knobs: Mapping[str, int]
    said: Forecast
    code: CodeFacts
    store: RecordStore

    @property
    def main(self) -> LaunchForecast:
        return self.said.main_launch


def checklist(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    *,
    store: RecordStore | None = None,
    experiments: bool = True,
) -> Checklist:
    """Fill in the checklist for one kernel, with or without what other forecasts say. No GPU is
    needed.

    Raises CompileError: the source does not compile; LabError: the rung cannot run the workload, an
    unknown knob or GPU, or the machine code does not say how often a loop runs.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    values = rung.resolve_knobs(knobs)
    code = machine_code(rung, workload, gpu.limits, values)
    said = forecast(rung, workload, gpu, values, code=code)
    facts = code_facts(rung, workload, gpu, values, code, said.main_launch)
    case = _Case(rung, workload, gpu, values, said, facts, store or RecordStore())
    asked = _WHERE + _HOW_LONG + (_EXPERIMENTS if experiments else ())
    return Checklist(rung.id, workload, gpu, values, tuple(ask(case) for ask in asked), said)


def _ask_bytes(case: _Case) -> Item:
    floor, gpu = case.said.floor, case.gpu
    least = operation_of(case.workload).minimal_name
    at_peak = f"floor at {floor.dram_gb_per_s:.0f} GB/s (us)"
    facts = [
        _computed("least bytes (MB)", floor.bytes / 1e6, least),
        _computed(at_peak, floor.time_us, gpu.title),
    ]
    best = best_read_gb_per_s(case.store.query(gpu=gpu.name))
    if best is not None:
        name = f"floor at the best rate of a plain read, {best:.0f} GB/s (us)"
        note = "the fastest cold read in the records of this GPU"
        facts.append(Fact("recorded", name, floor.bytes / best / 1e3, note))
    facts.append(_computed("operations (10^9)", floor.flops / 1e9))
    if floor.compute_us is not None and floor.compute_tflops is not None:
        name = f"time at {floor.compute_tflops:.0f} TFLOPS (us)"
        facts.append(_computed(name, floor.compute_us))
    longer = "bytes" if floor.bound == "bandwidth" else "operations"
    least_us = max(floor.time_us, floor.compute_us or 0.0)
    says = f"No kernel can beat {least_us:.3g} us here; the {longer} decide. {floor.note}".strip()
    return _item("bytes", says, "computed", facts)


def _ask_level(case: _Case) -> Item:
    main, state = case.main, case.workload.cache_state
    footprint, l2 = main.footprint_bytes, float(case.gpu.l2_bytes)
    again = main.l2_bytes / footprint if footprint else 0.0
    from_dram = main.dram_bytes / main.l2_bytes if main.l2_bytes else 0.0
    fits = "fit" if footprint <= l2 else "do not fit"
    level = "DRAM" if main.dram_bytes > 0.5 * footprint else "the L2"
    facts = (
        _computed("different bytes touched (MB)", footprint / 1e6, main.entry),
        _computed("L2 of the GPU (MB)", l2 / 1e6),
        _computed("cache at the start", state, "part of the workload"),
        _forecast("bytes asked of the L2 (MB)", main.l2_bytes / 1e6),
        _forecast("of these, from DRAM (MB)", main.dram_bytes / 1e6),
    )
    says = (
        f"The data {fits} the L2 and the cache is {state}: first reads come from {level}. Each "
        f"byte is asked for {again:.3g} times; {from_dram:.0%} of what is asked for comes from "
        "DRAM."
    )
    return _item("level", says, "forecast", facts)


def _ask_residency(case: _Case) -> Item:
    gpu, launch, fits = case.gpu, case.code.launch, case.code.occupancy
    real = achieved_occupancy(gpu, fits, launch.num_blocks)
    grid = waves(gpu, fits, launch.num_blocks)
    if not grid.full_waves:
        full = f"{grid.waves:.0%}" if grid.waves >= 0.01 else f"{100 * grid.waves:.2g}%"
        tail = f"one wave, {full} full"
    elif grid.tail_blocks:
        tail = f"the last wave fills {grid.tail_fill:.0%} of the places"
    else:
        tail = "there is no tail"
    limiters = f"limited by {' and '.join(fits.limiters).replace('_', ' ')}"
    smem = case.code.resources.shared_bytes + launch.smem_bytes
    warps = real.resident_warps_per_sm
    rows = (
        _computed("threads per block", launch.num_threads),
        _computed("registers per thread", case.code.resources.registers),
        _computed("shared memory per block (bytes)", smem),
        _computed("blocks in the grid", launch.num_blocks),
        _computed("blocks that fit an SM", fits.blocks_per_sm, limiters),
        _computed("resident warps per SM", warps, f"of {gpu.max_warps_per_sm}"),
        _computed("theoretical occupancy (%)", 100 * fits.theoretical),
        _computed("achieved occupancy (%)", 100 * real.achieved),
        _computed("waves", grid.waves, tail),
    )
    busy = f"{real.busy_sms} of {gpu.sm_count} SMs have work"
    says = f"{busy}, {warps:.3g} warps each on average; {tail}."
    return _item("residency", says, "computed", rows)


def _ask_loop(case: _Case) -> Item:
    main, loop = case.main, case.code.loop
    if loop is None or not main.trips:
        says = "The kernel runs straight through: there is no loop."
        return _item("loop", says, "computed")
    size, trips, per_trip = _main_trips(main)
    sketch = "L load, s shuffle, w and r shared memory, | barrier, e exponential"
    lines = _source_lines(loop)
    rows = [
        *([_computed("source lines", lines)] if lines else ()),
        _computed("instructions in the loop", size),
        _computed("trips of one warp", trips, "from the machine code and the arguments"),
        _forecast("cycles per trip", per_trip),
        _computed("sketch of a trip", loop.sketch() or "none of these", sketch),
    ]
    says = f"One warp goes round {trips} times, {per_trip:.4g} cycles each."
    alone = main.true_chain_cycles
    if alone is not None:
        name = "cycles per trip by true dependencies alone"
        note = "what the values of one trip owe to the trip before, with no other delay"
        rows.append(_computed(name, alone, note))
    if alone and per_trip > 2 * alone:
        says += (
            " The recurrence is not what makes a trip long: alone it would take "
            f"{alone:.3g} cycles."
        )
    return _item("loop", says, "forecast", rows)


def _main_trips(main: LaunchForecast) -> tuple[int, int, float]:
    """(instructions, trips, cycles per trip) of the loop that the chain shows."""
    whole = main.main_loop[1] - main.main_loop[0] + 1 if main.main_loop else 0
    for size, trips, _ in main.trips:
        if whole and size % whole == 0 and main.chain:  # several trips may be folded into one
            cycles = main.chain[-1].issue - main.chain[0].start
            return whole, trips * (size // whole), cycles
    return max(main.trips, key=lambda loop: loop[0] * loop[1])


def _ask_widths(case: _Case) -> Item:
    widths = case.code.widths
    if not widths:
        return _item("widths", "The loop loads nothing from global memory.", "computed")
    rows = tuple(
        (count, width, _WARP * width, -(-_WARP * width // SECTOR_BYTES), _WARP * width * count)
        for width, count in widths
    )
    number = sum(count for _, count in widths)
    at_best = -(-sum(width * count for width, count in widths) // _WIDEST_LOAD)
    says = (
        f"A trip has {number} loads. With {_WIDEST_LOAD} bytes per lane it would need {at_best}."
        if at_best < number
        else f"A trip has {number} loads, as wide as they come."
    )
    says += " A load of n bytes needs an address that is a multiple of n in every lane."
    columns = (
        "loads per trip",
        "bytes per lane",
        "bytes per warp",
        "sectors, at best",
        "bytes per trip",
    )
    return _item("widths", says, "computed", columns=columns, rows=rows)


def _ask_in_flight(case: _Case) -> Item:
    gpu, main, code = case.gpu, case.main, case.code
    warps = achieved_occupancy(gpu, code.occupancy, code.launch.num_blocks).resident_warps_per_sm
    latency_us = main.load_latency_cycles / main.clock_ghz / 1e3
    of_a_warp, mean = code.bytes_in_flight, main.in_flight_bytes
    rows = [
        _computed("most bytes in flight of a warp", of_a_warp, "from the listing"),
        _computed("the same an SM (kB)", warps * of_a_warp / 1e3, "times resident warps"),
        _forecast("bytes in flight per SM, mean (kB)", mean / 1e3),
        _forecast("latency of a load (cycles)", main.load_latency_cycles),
    ]
    says = f"On average {mean / 1e3:.3g} kB are on their way to an SM."
    if gpu.dram_gb_per_s is not None:
        need = gpu.dram_gb_per_s * latency_us * 1e3 / gpu.sm_count
        name = "needed an SM for the memory's full rate (kB)"
        rows.append(_forecast(name, need / 1e3, "rate x latency / SMs"))
        says = (
            f"Little's law asks for {need / 1e3:.3g} kB in flight per SM; the kernel has "
            f"{mean / 1e3:.3g} kB, {mean / need if need else 0.0:.0%} of it."
        )
    return _item("in_flight", says, "forecast", rows)


def _ask_chain(case: _Case) -> Item:
    chain = case.main.chain
    if not chain:
        return _item("chain", "The simulation saw no chain.", "forecast")
    whole = chain[-1].issue - chain[0].start
    longest = sorted(chain, key=lambda link: link.start - link.issue)[:_TOP_LINKS]
    rows = []
    for link in longest:
        cycles = link.issue - link.start
        producer, share = _producer_of(link, chain), 100 * cycles / whole
        rows.append((_where(link), link.text, producer, cycles, link.cause, share))
    top = longest[0]
    says = (
        f"The longest wait of a trip is {top.issue - top.start:.4g} of {whole:.4g} cycles, for "
        f"{top.cause}, at {_where(top)}."
    )
    which = ("source line", "instruction that waits", "for the result of")
    columns = (*which, "cycles", "cause", "% of the trip")
    return _item("chain", says, "forecast", columns=columns, rows=tuple(rows))


def _producer_of(link: ChainLink, chain: Sequence[ChainLink]) -> str:
    """Where the result that a link waits for was asked for."""
    for other in chain:
        if other.index == link.producer:
            return f"{other.text.split(' ')[0]} at {_where(other)}"
    return "-" if link.producer is None else "an earlier trip"


def _where(link: ChainLink) -> str:
    return f"{Path(link.source.file).name}:{link.source.line}" if link.source else "no line"


def _ask_stack(case: _Case) -> Item:
    stack, says = case.main.stack, "Nothing was simulated."
    if stack:
        says = f"{stack[0].share:.0%} of a warp's time goes to {stack[0].name}."
    rows = tuple(
        (wait.name, wait.cycles, 100 * wait.share) for wait in stack if wait.share >= 0.005
    )
    columns = ("what for", "cycles", "% of its time")
    return _item("stack", says, "forecast", columns=columns, rows=rows)


def _ask_issue(case: _Case) -> Item:
    shares = {
        "issue port": (case.main.issue_share, "of the busy SMs"),
        "memory ceiling": (case.main.dram_share, "while the GPU is full"),
        "L2 ceiling": (case.main.l2_share, ""),
    }
    rows = [
        _forecast(f"{name} in use (%)", 100 * share, note) for name, (share, note) in shares.items()
    ]
    busiest = max(shares, key=lambda name: shares[name][0])
    says = f"The busiest of the three is the {busiest}, at {100 * shares[busiest][0]:.0f} %."
    return _item("issue", says, "forecast", rows)


def _ask_spills(case: _Case) -> Item:
    used = case.code.resources
    most = f"at most {case.gpu.max_registers_per_thread}"
    rows = (
        _computed("registers per thread", used.registers, most),
        _computed("spilled stores (bytes)", used.spill_store_bytes),
        _computed("spilled loads (bytes)", used.spill_load_bytes),
        _computed("local memory a thread (bytes)", used.local_bytes),
    )
    spilled = used.spill_store_bytes + used.spill_load_bytes
    says = f"{spilled} bytes per thread are spilled: loads that nobody wrote."
    says = says if spilled else "Nothing is spilled."
    return _item("spills", says, "computed", rows)


def _ask_bound(case: _Case) -> Item:
    said = case.said
    band = "none" if said.band_us is None else "{:.4g} to {:.4g}".format(*said.band_us)
    why = "calibrated" if said.calibrated else "uncalibrated GPU"
    facts = [
        _forecast("forecast (us)", said.time_us, model_name()),
        _forecast("band (us)", band, "; ".join(said.doubts) or why),
        _forecast("times the floor", said.time_us / said.floor.time_us),
        _forecast("read from DRAM (GB/s)", said.gb_per_s),
    ]
    facts += [
        _forecast(f"alone: {TERMS[name].alone} (us)", us) for name, us in said.terms_us.items()
    ]
    return _item("bound", f"{said.bound}: {said.bound_reason}.", "forecast", facts)


def _ask_what_if(case: _Case) -> Item:
    times, now_us = what_if(case.rung, case.workload, case.gpu, case.knobs), case.said.time_us
    ordered = [
        (_WORDS["halved"].get(name, name), time_us, now_us / time_us)
        for name, time_us in sorted(times.items(), key=lambda pair: pair[1])
    ]
    rows = tuple(row for row in ordered if row[2] > 1.001)
    best, _, gain = ordered[0]
    says = (
        f"Halving {best} buys most: {gain:.2f}x."
        if gain > 1.02
        else "No single class of latency, halved, buys more than a fiftieth."
    )
    if left := len(ordered) - len(rows):
        says += f" {left} more that were tried change nothing, and are not listed."
    columns = ("if this took half as long", "the time would be (us)", "times faster")
    return _item("what_if", says, "forecast", columns=columns, rows=rows)


def _ask_neighbours(case: _Case) -> Item:
    rows: list[tuple[float | int | str, ...]] = []
    best: tuple[float, str] = (1.0, "")
    for name, old, new in _neighbours(case.rung, case.knobs):
        knobs = {**case.knobs, name: new}
        there = forecast(case.rung, case.workload, case.gpu, knobs).time_us
        ratio = case.said.time_us / there
        way = "same" if 1 / 1.05 <= ratio <= 1.05 else "faster" if ratio > 1 else "slower"
        rows.append((name, old, new, there, way, max(ratio, 1 / ratio)))
        best = max(best, (ratio, f"{name} {old} to {new}"))
    if not rows:
        return _item("neighbours", "The kernel has no knobs.", "forecast")
    says = (
        f"The best single step is {best[1]}: {best[0]:.2f}x faster."
        if best[0] > 1.05
        else "No single step of a knob makes it more than a twentieth faster."
    )
    columns = ("knob", "from", "to", "forecast (us)", "direction", "by a factor of")
    return _item("neighbours", says, "forecast", columns=columns, rows=tuple(rows))


def _neighbours(rung: Rung, knobs: Mapping[str, int]) -> Sequence[tuple[str, int, int]]:
    """(knob, value, next value) for the choices next to each knob's value."""
    found = []
    for knob in rung.knobs:
        choices = sorted(knob.choices)
        place = choices.index(knobs[knob.name])
        for other in (place - 1, place + 1):
            if 0 <= other < len(choices):
                found.append((knob.name, choices[place], choices[other]))
    return found


_WHERE = (_ask_bytes, _ask_level, _ask_residency, _ask_loop, _ask_widths, _ask_in_flight)
_HOW_LONG = (_ask_chain, _ask_stack, _ask_issue, _ask_spills, _ask_bound)
_EXPERIMENTS = (_ask_what_if, _ask_neighbours)
