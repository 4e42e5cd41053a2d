"""The questions to ask of a kernel before it runs, answered from its machine code.

Each answer is a few labelled facts and one sentence. What cannot be computed is left to the
reader: `READER_FIELDS` names those questions, and a view keeps their answers in the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labtools.problem import Launch, Problem, Rung, operation_of, timed_launches
from labtools.problem.rung import say_knobs
from labtools.record import RecordStore, best_read_gb_per_s
from labtools.toolchain.cubin import Resources
from labtools.toolchain.listings import MachineCode, machine_code
from labtools.toolchain.operands import GLOBAL_LOADS
from labtools.toolchain.sass import Loop, Sass

from .forecasting import forecast, what_if
from .machine import machine_of
from .residency import Occupancy, achieved_occupancy, occupancy, waves
from .result import ChainLink, Forecast, LaunchForecast
from .sheets import Gpu, load_gpu
from .streams import SECTOR_BYTES
from .version import model_name

READER_FIELDS = (
    ("change", "What will you change?"),
    ("expect", "How much faster or slower do you expect it to get, and why?"),
    ("refute", "Which result would show that your reason is wrong?"),
    ("surprise", "Which line above did you not expect?"),
)
"""Name and question of the fields that only the reader can fill in."""

TOP_LINKS = 6
_WIDEST_LOAD = 16
_WARP = 32


@dataclass(frozen=True)
class Fact:
    """One number or word of an answer."""

    name: str  # what it is, unit included
    value: float | int | str  # a number or a text
    word: str  # ``computed``, ``forecast`` or ``recorded``
    note: str = ""  # what to know about it, or empty


@dataclass(frozen=True)
class Item:
    """One question with its answer."""

    id: str  # fixed name
    question: str  # in words
    says: str  # the answer in a sentence
    word: str  # provenance of the sentence
    facts: tuple[Fact, ...] = ()  # what it rests on
    # columns, rows: a table where one number a line is not enough; rows have one value a column
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[float | int | str, ...], ...] = ()


@dataclass(frozen=True)
class Checklist:
    """A filled checklist."""

    rung_id: str  # the kernel
    workload: Problem  # what it computes
    gpu: Gpu  # the sheet
    knobs: Mapping[str, int]  # every knob with its value
    items: tuple[Item, ...]  # the questions in order
    forecast: Forecast  # what the answers rest on

    def item(self, name: str) -> Item:
        """The item with an id.

        Raises:
            KeyError: there is none.
        """
        for one in self.items:
            if one.id == name:
                return one
        raise KeyError(name)

    @property
    def key(self) -> str:
        """A fixed name for the journal: kernel, knobs, workload and GPU."""
        knobs = say_knobs(sorted(self.knobs.items()), ",")
        return f"checklist {self.rung_id} {knobs} {self.workload.key()} {self.gpu.name}"


@dataclass(frozen=True)
class CodeFacts:
    """What a kernel's listing says by itself; nothing is simulated."""

    launch: Launch  # the launch that reads most, by the loads in its loop
    # sass, resources: its code
    sass: Sass
    resources: Resources
    loop: Loop | None  # its widest-reading innermost loop, or None where it has no loop
    # (file, first line, last line) of the loop's source, or None
    lines: tuple[str, int, int] | None
    # (bytes a lane, how many) of the loop's loads from global memory, wide ones first
    widths: tuple[tuple[int, int], ...]
    bytes_in_flight: int  # most bytes one warp has asked for and not yet touched
    occupancy: Occupancy  # blocks that fit an SM


def code_facts(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    *,
    code: MachineCode | None = None,
    entry: str | None = None,
    span: tuple[int, int] | None = None,
) -> CodeFacts:
    """Read the listing of a kernel's main launch.

    Args:
        entry: name of the launch to look at; by default the one whose loop loads most bytes.
        span: (first, last) instruction of the loop, where a simulation has found it.

    Raises:
        CompileError: the source does not compile.
        LabError: the rung cannot run the workload, an unknown knob or GPU.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    code = code or machine_code(rung, workload, gpu.limits, rung.resolve_knobs(knobs))
    found = [
        _facts_of(launch, code.entries[launch.entry], code.resources[launch.entry], gpu, span)
        for launch in timed_launches(rung.launches(workload, gpu.limits, knobs))
        if entry in (None, launch.entry)
    ]
    return max(found, key=lambda one: sum(width * count for width, count in one.widths))


def _facts_of(
    launch: Launch, sass: Sass, resources: Resources, gpu: Gpu, span: tuple[int, int] | None
) -> CodeFacts:
    loops = [sass.loop_at(*span)] if span else sass.innermost_loops
    best = max(loops, key=lambda loop: sum(_load_widths(loop)), default=None)
    widths = Counter(_load_widths(best) if best else ())
    return CodeFacts(
        launch=launch,
        sass=sass,
        resources=resources,
        loop=best,
        lines=_source_lines(best) if best else None,
        widths=tuple(sorted(widths.items(), reverse=True)),
        bytes_in_flight=best.bytes_in_flight if best else 0,
        occupancy=occupancy(
            gpu,
            launch.num_threads,
            resources.registers,
            resources.shared_bytes + launch.smem_bytes,
        ),
    )


def _load_widths(loop: Loop) -> list[int]:
    """Bytes a lane of every load from global memory in one trip, copies to shared memory too."""
    return [one.access_bytes for one in loop.instructions if one.base in GLOBAL_LOADS]


def _source_lines(loop: Loop) -> tuple[str, int, int] | None:
    """Lines of the loop in the file that its closing branch comes from."""
    closing = loop.instructions[-1].source
    if closing is None:
        return None
    lines = [
        one.source.line
        for one in loop.instructions
        if one.source is not None and one.source.file == closing.file
    ]
    return Path(closing.file).name, min(lines), max(lines)


def checklist(
    rung: Rung,
    workload: Problem,
    gpu: Gpu | str,
    knobs: Mapping[str, int] | None = None,
    *,
    store: RecordStore | None = None,
    experiments: bool = True,
) -> Checklist:
    """Fill in the checklist for one kernel. No GPU is needed.

    Args:
        gpu: a sheet or its name.
        knobs: compile-time choices; the others have their defaults.

    Raises:
        CompileError: the source does not compile.
        LabError: the rung cannot run the workload, an unknown knob or GPU, or the machine code
            does not say how often a loop runs.
    """
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    values = rung.resolve_knobs(knobs)
    code = machine_code(rung, workload, gpu.limits, values)
    said = forecast(rung, workload, gpu, values, code=code)
    main = said.main_launch
    facts = code_facts(
        rung, workload, gpu, values, code=code, entry=main.entry, span=main.main_loop
    )
    items: tuple[Item, ...] = (
        _ask_bytes(workload, gpu, said, store or RecordStore()),
        _ask_level(workload, gpu, main),
        _ask_residency(gpu, facts),
        _ask_loop(facts, main),
        _ask_widths(facts),
        _ask_in_flight(gpu, facts, main),
        _ask_chain(main),
        _ask_stack(main),
        _ask_issue(main, facts),
        _ask_spills(gpu, facts),
        _ask_bound(said),
    )
    if experiments:
        items += (
            _ask_what_if(rung, workload, gpu, values, said),
            _ask_neighbours(rung, workload, gpu, values, said),
        )
    return Checklist(rung.id, workload, gpu, values, items, said)


def _ask_bytes(workload: Problem, gpu: Gpu, said: Forecast, store: RecordStore) -> Item:
    floor = said.floor
    facts = [
        Fact(
            *("least bytes (MB)", floor.bytes / 1e6, "computed"),
            operation_of(workload).minimal_name,
        ),
        Fact(f"floor at {floor.dram_gb_per_s:.0f} GB/s (us)", floor.time_us, "computed", gpu.title),
    ]
    best = best_read_gb_per_s(store.query(gpu=gpu.name))
    if best is not None:
        facts.append(
            Fact(
                f"floor at the best rate of a plain read, {best:.0f} GB/s (us)",
                floor.bytes / best / 1e3,
                "recorded",
                "the fastest cold read in the records of this GPU",
            )
        )
    facts.append(Fact("operations (10^9)", floor.flops / 1e9, "computed"))
    if floor.compute_us is not None and floor.compute_tflops is not None:
        facts.append(
            Fact(f"time at {floor.compute_tflops:.0f} TFLOPS (us)", floor.compute_us, "computed")
        )
    longer = "bytes" if floor.bound == "bandwidth" else "operations"
    least_us = max(floor.time_us, floor.compute_us or 0.0)
    says = f"No kernel can beat {least_us:.3g} us here; the {longer} decide. {floor.note}"
    return Item(
        "bytes",
        "What must move, and how long does that take?",
        says.strip(),
        "computed",
        tuple(facts),
    )


def _ask_level(workload: Problem, gpu: Gpu, main: LaunchForecast) -> Item:
    footprint, l2 = main.footprint_bytes, float(gpu.l2_bytes)
    again = main.l2_bytes / footprint if footprint else 0.0
    from_dram = main.dram_bytes / main.l2_bytes if main.l2_bytes else 0.0
    fits = "fit" if footprint <= l2 else "do not fit"
    level = "DRAM" if main.dram_bytes > 0.5 * footprint else "the L2"
    facts = (
        Fact("different bytes touched (MB)", footprint / 1e6, "computed", main.entry),
        Fact("L2 of the GPU (MB)", l2 / 1e6, "computed"),
        Fact("cache at the start", workload.cache_state, "computed", "part of the workload"),
        Fact("bytes asked of the L2 (MB)", main.l2_bytes / 1e6, "forecast"),
        Fact("of these, from DRAM (MB)", main.dram_bytes / 1e6, "forecast"),
    )
    says = (
        f"The data {fits} the L2 and the cache is {workload.cache_state}: first reads come from "
        f"{level}. Each byte is asked for {again:.3g} times; {from_dram:.0%} of what is asked for "
        "comes from DRAM."
    )
    return Item("level", "Which level of memory serves the loads?", says, "forecast", facts)


def _ask_residency(gpu: Gpu, facts: CodeFacts) -> Item:
    launch, fits = facts.launch, facts.occupancy
    real = achieved_occupancy(gpu, fits, launch.num_blocks)
    grid = waves(gpu, fits, launch.num_blocks)
    tail = (
        f"the last wave fills {grid.tail_fill:.0%} of the places"
        if grid.full_waves and grid.tail_blocks
        else "there is no tail"
        if grid.full_waves
        else f"one wave, {_percent(grid.waves)} full"
    )
    rows = (
        Fact("threads a block", launch.num_threads, "computed"),
        Fact("registers a thread", facts.resources.registers, "computed"),
        Fact(
            "shared memory a block (bytes)",
            facts.resources.shared_bytes + launch.smem_bytes,
            "computed",
        ),
        Fact("blocks in the grid", launch.num_blocks, "computed"),
        Fact(
            "blocks that fit an SM",
            fits.blocks_per_sm,
            "computed",
            f"limited by {' and '.join(fits.limiters).replace('_', ' ')}",
        ),
        Fact(
            "resident warps an SM",
            real.resident_warps_per_sm,
            "computed",
            f"of {gpu.max_warps_per_sm}",
        ),
        Fact("theoretical occupancy (%)", 100 * fits.theoretical, "computed"),
        Fact("achieved occupancy (%)", 100 * real.achieved, "computed"),
        Fact("waves", grid.waves, "computed", tail),
    )
    says = (
        f"{real.busy_sms} of {gpu.sm_count} SMs have work, {real.resident_warps_per_sm:.3g} warps "
        f"each on average; {tail}."
    )
    return Item("residency", "Who is on the SM?", says, "computed", rows)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.2g}%"


def _ask_loop(facts: CodeFacts, main: LaunchForecast) -> Item:
    question = "Where does it spend its time, and how often round?"
    if facts.loop is None or not main.trips:
        return Item(
            "loop", question, "The kernel runs straight through: there is no loop.", "computed"
        )
    size, trips, per_trip = _main_trips(main)
    rows = [
        Fact("instructions in the loop", size, "computed"),
        Fact("trips of one warp", trips, "computed", "from the machine code and the arguments"),
        Fact("cycles a trip", per_trip, "forecast"),
        Fact("sketch of a trip", facts.loop.sketch() or "none of these", "computed", _SKETCH_KEY),
    ]
    if facts.lines:
        name, first, last = facts.lines
        rows.insert(0, Fact("source lines", f"{name}, {first} to {last}", "computed"))
    if main.true_chain_cycles is not None:
        rows.append(
            Fact(
                "cycles a trip by true dependencies alone",
                main.true_chain_cycles,
                "computed",
                "what the values of one trip owe to the trip before, with no other delay",
            )
        )
    says = f"One warp goes round {trips} times, {per_trip:.4g} cycles each."
    if main.true_chain_cycles and per_trip > 2 * main.true_chain_cycles:
        says += (
            " The recurrence is not what makes a trip long: alone it would take "
            f"{main.true_chain_cycles:.3g} cycles."
        )
    return Item("loop", question, says, "forecast", tuple(rows))


def _main_trips(main: LaunchForecast) -> tuple[int, int, float]:
    """(instructions, trips, cycles a trip) of the loop that the chain shows."""
    whole = main.main_loop[1] - main.main_loop[0] + 1 if main.main_loop else 0
    for size, trips, _ in main.trips:
        if whole and size % whole == 0 and main.chain:  # several trips may be folded into one
            cycles = main.chain[-1].issue - main.chain[0].start
            return whole, trips * (size // whole), cycles
    return max(main.trips, key=lambda one: one[0] * one[1])


_SKETCH_KEY = "L load, s shuffle, w and r shared memory, | barrier, e exponential"


def _ask_widths(facts: CodeFacts) -> Item:
    question = "How wide are the loads?"
    if not facts.widths:
        return Item("widths", question, "The loop loads nothing from global memory.", "computed")
    rows = tuple(
        (count, width, _WARP * width, -(-_WARP * width // SECTOR_BYTES), _WARP * width * count)
        for width, count in facts.widths
    )
    total = sum(width * count for width, count in facts.widths)
    number = sum(count for _, count in facts.widths)
    at_best = -(-total // _WIDEST_LOAD)
    says = (
        f"A trip has {number} loads. With {_WIDEST_LOAD} bytes a lane it would need {at_best}."
        if at_best < number
        else f"A trip has {number} loads, as wide as they come."
    )
    says += " A load of n bytes needs an address that is a multiple of n in every lane."
    columns = ("loads a trip", "bytes a lane", "bytes a warp", "sectors, at best", "bytes a trip")
    return Item("widths", question, says, "computed", columns=columns, rows=rows)


def _ask_in_flight(gpu: Gpu, facts: CodeFacts, main: LaunchForecast) -> Item:
    clock = machine_of(gpu).clock_ghz
    warps = achieved_occupancy(gpu, facts.occupancy, facts.launch.num_blocks).resident_warps_per_sm
    at_most = warps * facts.bytes_in_flight
    latency_us = main.load_latency_cycles / clock / 1e3
    rows = [
        Fact(
            "most bytes in flight of a warp", facts.bytes_in_flight, "computed", "from the listing"
        ),
        Fact("the same an SM (kB)", at_most / 1e3, "computed", "times resident warps"),
        Fact("bytes in flight an SM, mean (kB)", main.in_flight_bytes / 1e3, "forecast"),
        Fact("latency of a load (cycles)", main.load_latency_cycles, "forecast"),
    ]
    if gpu.dram_gb_per_s is None:
        says = f"On average {main.in_flight_bytes / 1e3:.3g} kB are on their way to an SM."
        return Item("in_flight", _LITTLE, says, "forecast", tuple(rows))
    need = gpu.dram_gb_per_s * latency_us * 1e3 / gpu.sm_count
    share = main.in_flight_bytes / need if need else 0.0
    rows.append(
        Fact(
            "needed an SM for the memory's full rate (kB)",
            need / 1e3,
            "forecast",
            "rate x latency / SMs",
        )
    )
    says = (
        f"Little's law asks for {need / 1e3:.3g} kB in flight an SM; the kernel has "
        f"{main.in_flight_bytes / 1e3:.3g} kB, {share:.0%} of it."
    )
    return Item("in_flight", _LITTLE, says, "forecast", tuple(rows))


_LITTLE = "Are enough bytes in flight for the memory's full rate?"


def _ask_chain(main: LaunchForecast) -> Item:
    question = "Which links of the chain are the longest?"
    if not main.chain:
        return Item("chain", question, "The simulation saw no chain.", "forecast")
    whole = main.chain[-1].issue - main.chain[0].start
    longest = sorted(main.chain, key=lambda link: link.start - link.issue)[:TOP_LINKS]
    rows = tuple(
        (
            _where(link),
            link.text,
            _asked_by(link, main.chain),
            link.issue - link.start,
            link.cause,
            100 * (link.issue - link.start) / whole,
        )
        for link in longest
    )
    top = longest[0]
    says = (
        f"The longest wait of a trip is {top.issue - top.start:.4g} of {whole:.4g} cycles, for "
        f"{top.cause}, at {_where(top)}."
    )
    columns = (
        *("source line", "instruction that waits", "for the result of"),
        *("cycles", "cause", "% of the trip"),
    )
    return Item("chain", question, says, "forecast", columns=columns, rows=rows)


def _asked_by(link: ChainLink, chain: Sequence[ChainLink]) -> str:
    """Where the result that a link waits for was asked for."""
    for one in chain:
        if one.index == link.producer:
            return f"{one.text.split(' ')[0]} at {_where(one)}"
    return "-" if link.producer is None else "an earlier trip"


def _where(link: ChainLink) -> str:
    return f"{Path(link.source.file).name}:{link.source.line}" if link.source else "no line"


def _ask_stack(main: LaunchForecast) -> Item:
    rows = tuple(
        (one.name, one.cycles, 100 * one.share) for one in main.stack if one.share >= 0.005
    )
    top = main.stack[0] if main.stack else None
    says = (
        f"{top.share:.0%} of a warp's time goes to {top.name}." if top else "Nothing was simulated."
    )
    return Item(
        "stack",
        "What does a warp wait for, from start to end?",
        says,
        "forecast",
        columns=("what for", "cycles", "% of its time"),
        rows=rows,
    )


def _ask_issue(main: LaunchForecast, facts: CodeFacts) -> Item:
    rows = (
        Fact("issue port in use (%)", 100 * main.issue_share, "forecast", "of the busy SMs"),
        Fact(
            "memory ceiling in use (%)", 100 * main.dram_share, "forecast", "while the GPU is full"
        ),
        Fact("L2 ceiling in use (%)", 100 * main.l2_share, "forecast"),
    )
    busiest = max(rows, key=lambda fact: float(fact.value))
    name = busiest.name.removesuffix(" in use (%)")
    says = f"The busiest of the three is the {name}, at {float(busiest.value):.0f} %."
    return Item("issue", "How busy is the machine?", says, "forecast", rows)


def _ask_spills(gpu: Gpu, facts: CodeFacts) -> Item:
    used = facts.resources
    rows = (
        Fact(
            "registers a thread",
            used.registers,
            "computed",
            f"at most {gpu.max_registers_per_thread}",
        ),
        Fact("spilled stores (bytes)", used.spill_store_bytes, "computed"),
        Fact("spilled loads (bytes)", used.spill_load_bytes, "computed"),
        Fact("local memory a thread (bytes)", used.local_bytes, "computed"),
    )
    spilled = used.spill_store_bytes + used.spill_load_bytes
    says = (
        "Nothing is spilled."
        if not spilled
        else f"{spilled} bytes a thread are spilled: loads that nobody wrote."
    )
    return Item("spills", "Do the registers suffice?", says, "computed", rows)


def _ask_bound(said: Forecast) -> Item:
    names = {
        "bandwidth": "DRAM bytes at the ceiling",
        "l2_bandwidth": "L2 bytes at the ceiling",
        "issue": "issue slots",
        "chain": "the simulated chain, waits for memory included",
        "launch": "launch overhead",
    }
    band = "none" if said.band_us is None else "{:.4g} to {:.4g}".format(*said.band_us)
    why = "calibrated" if said.calibrated else "uncalibrated GPU"
    facts = [
        Fact("forecast (us)", said.time_us, "forecast", model_name()),
        Fact(
            "band (us)",
            band,
            "forecast",
            "; ".join(said.doubts) or why,
        ),
        Fact("times the floor", said.time_us / said.floor.time_us, "forecast"),
        Fact("read from DRAM (GB/s)", said.gb_per_s, "forecast"),
    ]
    facts += [
        Fact(f"alone: {names.get(name, name)} (us)", value, "forecast")
        for name, value in said.terms_us.items()
    ]
    return Item(
        "bound",
        "What binds it, and how long will it take?",
        f"{said.bound}: {said.bound_reason}.",
        "forecast",
        tuple(facts),
    )


def _ask_what_if(
    rung: Rung, workload: Problem, gpu: Gpu, knobs: Mapping[str, int], said: Forecast
) -> Item:
    times = what_if(rung, workload, gpu, knobs)
    ordered = sorted(times.items(), key=lambda pair: pair[1])
    rows = tuple(
        (_LINKS.get(name, name), time_us, said.time_us / time_us)
        for name, time_us in ordered
        if said.time_us / time_us > 1.001
    )
    best, best_us = ordered[0]
    gain = said.time_us / best_us
    says = (
        f"Halving {_LINKS.get(best, best)} buys most: {gain:.2f}x."
        if gain > 1.02
        else "No single class of latency, halved, buys more than a fiftieth."
    )
    if len(rows) < len(ordered):
        left = len(ordered) - len(rows)
        says += f" {left} more that were tried change nothing, and are not listed."
    return Item(
        "what_if",
        "Which link must get shorter?",
        says,
        "forecast",
        columns=("if this took half as long", "the time would be (us)", "times faster"),
        rows=rows,
    )


_LINKS = {
    "memory": "the latency of memory",
    "shared": "the latency of shared memory",
    "shuffle": "the latency of shuffles",
    "special": "the latency of exponentials",
    "convert": "the latency of conversions",
    "tensor": "the latency of the tensor cores",
    "barrier": "the barriers",
    "branch": "the branches",
    "bandwidth": "the time of a byte (twice the memory rate)",
}


def _ask_neighbours(
    rung: Rung, workload: Problem, gpu: Gpu, knobs: Mapping[str, int], said: Forecast
) -> Item:
    question = "Which knob points the right way, and how far?"
    rows: list[tuple[float | int | str, ...]] = []
    best: tuple[float, str] = (1.0, "")
    for name, old, new in _neighbours(rung, knobs):
        there = forecast(rung, workload, gpu, {**knobs, name: new}).time_us
        ratio = said.time_us / there
        way = "same" if 1 / 1.05 <= ratio <= 1.05 else "faster" if ratio > 1 else "slower"
        rows.append((name, old, new, there, way, max(ratio, 1 / ratio)))
        best = max(best, (ratio, f"{name} {old} to {new}"))
    if not rows:
        return Item("neighbours", question, "The kernel has no knobs.", "forecast")
    says = (
        f"The best single step is {best[1]}: {best[0]:.2f}x faster."
        if best[0] > 1.05
        else "No single step of a knob makes it more than a twentieth faster."
    )
    columns = ("knob", "from", "to", "forecast (us)", "direction", "by a factor of")
    return Item("neighbours", question, says, "forecast", columns=columns, rows=tuple(rows))


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
