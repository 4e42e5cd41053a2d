"""What the ladder's pages show together: where it stands, a row of each loop, rows in time, and the
confound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labtools.predict import DEFAULT_GPU, load_gpu, sheet_floor_us
from labtools.predict.result import waits_for_memory
from labtools.problem import (
    HEADLINE,
    PER_ROW_INT4,
    PER_ROW_INT8,
    SCHEMES,
    Problem,
    Workload,
    list_rungs,
    load_rung,
    make_outlier_inputs,
    quantise_tensor,
)
from labtools.record import (
    Record,
    RecordStore,
    Tried,
    Variant,
    as_variant,
    describe_records,
    fair_peers,
    freshness,
    measured_together,
    pair,
    say_timed,
)
from labtools.record.headline import at_default_knobs
from labtools.toolchain.listings import machine_code
from labtools.toolchain.sass import SKETCH_LETTERS, Loop

from .figures import (
    GREYS,
    LINES,
    MARKERS,
    Axes,
    draw_arrow,
    draw_box,
    draw_picture,
    draw_sketch,
    line_look,
)
from .ratios import read_ratio, say_ratio
from .records import NO_RECORD, GpuRecords, forecast_of
from .tables import Shown, make_note, say_time

BEHIND, HERE, BAND = "#1f5a94", "#d96f00", "#fbe8cf"
"""Colours of the rungs so far and of the page's own, which in grey differ by their marks."""
PARENT_AT: dict[str, Tried] = {"r01_online_softmax": ("r01", {"prefetch_v": 1})}
"""The knobs at which a rung's child is compared with it, where they are not its defaults."""


def plot_ladder(
    page: str = "",
    *,
    after: bool = False,
    numbers: bool = True,
    workload: Problem = HEADLINE,
    store: RecordStore | None = None,
) -> Shown:
    """Where a rung's page stands: the times so far beside the fastest fair library and the floor of
    each cache, and what the last step gave. All times are of one campaign.

    The page's own rung is a question mark, and ``after`` the answer it is drawn. Without a page
    every rung is; without ``numbers`` their times stand nowhere but on the axis.
    """
    every = (store or RecordStore()).query(DEFAULT_GPU, workload=workload, latest=False)
    together = measured_together(at_default_knobs(every))
    found = {record.candidate: record for record in together if record.kind == "rung"}
    if not found:
        return make_note(NO_RECORD.format(what="the ladder", workload=workload))
    own = load_rung(page).id if page else ""
    names = [rung.id for rung in list_rungs()]
    shown = [n for n in names if n in found and (not own or n < own or (after and n == own))]
    library = next(iter(fair_peers(together)), None)
    used = [found[name] for name in shown] + ([library] if library else [])
    floors = {
        name: floor
        for name, record in found.items()
        if (name in shown or name == own)
        and (floor := sheet_floor_us(record.read_bytes, record.provenance.gpu_slug))
    }
    step = _say_step(shown[-1], every, workload) if own and shown else ""

    def paint(axes: Axes) -> None:
        axes.set_xscale("log")
        axes.set_xlim(5, 2e5)  # right of the times stand two columns
        axes.set_ylim(len(names) - 0.4, -1.3)
        axes.set_xticks([10, 100, 1000], ["10", "100", "1000 us"])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), [_short(name) for name in names])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
        for x, text in ((0.83, "us"), (1.0, "x floor")) if numbers else ():
            axes.text(x, -0.9, text, ha="right", fontsize=9, **place)
        for row, (name, label) in enumerate(zip(names, axes.get_yticklabels(), strict=True)):
            here = name == own
            if here:
                axes.axhspan(row - 0.5, row + 0.5, color=BAND, zorder=0)
                label.set_fontweight("bold")
            label.set_color(GREYS[0] if here or name in shown else GREYS[2])
            if name in floors:
                axes.plot([floors[name]] * 2, [row - 0.5, row + 0.5], color="black", linewidth=2)
            if name not in shown:
                if here:
                    axes.text(0.83, row, "?", ha="right", fontweight="bold", **place)
                continue
            time, colour = found[name].median_us, HERE if here else BEHIND
            start = floors.get(name, time)
            axes.plot([start, time], [row, row], color=colour, linewidth=3 if here else 1.5)
            axes.plot(time, row, "D" if here else "o", color=colour, markersize=7 if here else 6)
            cells = [(0.83, say_time(time)), (1.0, f"{time / start:.1f}")]
            for x, text in cells[: 1 + (name in floors)] if numbers else ():
                weight = "bold" if here else "normal"
                axes.text(x, row, text, ha="right", fontsize=9, fontweight=weight, **place)
        at: dict[str, Any] = {"y": -0.9, "fontsize": 9, "va": "center"}
        if floors:
            floor = max(floors.values())
            axes.text(x=floor * 0.93, s=f"floor {floor:.1f}", ha="right", **at)
        if library:
            axes.axvline(library.median_us, color=GREYS[1], linestyle="--", linewidth=1.2)
            text = f"{library.name} {library.median_us:.1f}"
            axes.text(x=library.median_us * 1.08, s=text, color="#555555", **at)

    told = [
        f"{_short(name)} {say_time(found[name].median_us)} us"
        + (f" ({found[name].median_us / floors[name]:.1f}x its floor)" if name in floors else "")
        for name in shown
    ]
    if not numbers:
        by_time = sorted(shown, key=lambda name: -found[name].median_us)
        told = [f"rungs from the slowest to the fastest: {', '.join(map(_short, by_time))}"]
    told += [f"{_short(own)}, this page, is still a question"] if own and own not in shown else []
    told += [f"{library.name}, the fastest library, {library.median_us:.1f} us"] if library else []
    told += [f"floor {max(floors.values()):.1f} us"] if floors else []
    title = f"Last step: {step}" if step else "The ladder so far" if own else "The ladder"
    caption = (
        f"{workload.short()}; {describe_records(used)}; logarithmic. Floor (black): the cache "
    )
    caption += "read at the data sheet's rate"
    other = [one for one in used if say_timed(one) != say_timed(used[0])]
    for timed in dict.fromkeys(map(say_timed, other)):
        who = ", ".join(_short(one.candidate) for one in other if say_timed(one) == timed)
        caption += f"; {who}: {timed}"
    if own in shown and not (state := freshness(found[own])).fresh:
        caption += f"; the record of {_short(own)} is stale: {state.reason}"
    alt = f"{'; '.join(told)}."
    return draw_picture(paint, alt, f"{caption}.", "recorded", size=(4.9, 3.6), title=title)


def _short(name: str) -> str:
    return name.split("_")[0]


def _say_step(name: str, every: Sequence[Record], workload: Problem) -> str:
    """What a rung gave against its parent; nothing where the two were not timed alike."""
    parent = load_rung(name).parent
    if parent is None:
        return ""
    before = PARENT_AT.get(parent, parent)
    both = pair(every, before, name, workload)
    speedup = read_ratio(both, "recorded")
    if both is None or speedup is None or say_timed(both[0]) != say_timed(both[1]):
        return ""
    early = ", V early" if as_variant(before).knobs.get("prefetch_v") else ""
    ratio = say_ratio(speedup.value, speedup.interval)
    return f"{_short(name)} is {ratio} than {_short(parent)}{early}"


_LOOKS = {
    "L": ("#1f5a94", 1.5),
    "s": ("#f2b766", 0.9),
    "w": ("#bfe0c8", 0.8),
    "r": ("#bfe0c8", 0.8),
    "e": ("#eeeeee", 0.8),
    "|": ("black", 0.45),
}
"""Colour and width of a run of instructions, by the letter of a sketch."""


def draw_loops(
    *variants: tuple[str, Tried], rows: Sequence[str] = ("K", "V"), workload: Problem = HEADLINE
) -> Shown:
    """What a block does at one row of K and V, a strip a kernel and in it a lane a warp, from the
    machine code with one row in a trip of the loop; ``rows`` names its loads in their order.

    Between the first and the second of three barriers only the first warp works, which is how
    ``block_sum`` of ``block.cuh`` is written.
    """
    limits = load_gpu(DEFAULT_GPU).limits
    strips = []
    for title, tried in variants:
        one = as_variant(tried)
        rung = load_rung(one.candidate)
        knobs = {**one.knobs, "unroll": 1}
        (kernel,) = machine_code(rung, workload, limits, knobs).entries.values()
        (launch,) = rung.launches(workload, limits, knobs)
        strips.append((title, launch.num_threads // 32, kernel.innermost_loops))
    wide = max(sum(map(_loop_width, loops)) for _, _, loops in strips)
    high = sum(1.5 + warps * 0.8 for _, warps, _ in strips)

    def paint(axes: Axes) -> None:
        top = 0.0
        for title, warps, loops in strips:
            axes.text(0, top + 0.5, title, va="center", fontsize=10, fontweight="bold")
            top, left = top + 1.0, 0.0
            for number, loop in enumerate(loops):
                names = ["score", "V"] if number else list(rows)
                _paint_loop(axes, loop, names, (left, top), warps)
                left += _loop_width(loop)
            top += warps * 0.8 + 0.5
        left = 0.0
        for letter, text, room in (
            *(("L", "load", 2.0), ("s", "shuffles", 2.7)),
            *(("w", "shared memory", 4.0), ("|", "barrier", 2.1), ("e", "exp", 1.0)),
        ):
            draw_box(axes, (left, high), (0.35, 0.6), shade=_LOOKS[letter][0])
            axes.text(left + 0.5, high + 0.3, text, va="center", fontsize=9)
            left += (room + 0.35) * max(wide, 12.0) / 14.0

    told = "; ".join(
        f"{title}, {warps} warp{'s' if warps > 1 else ''} a block: "
        + ", then ".join(_say_loop(loop) for loop in loops)
        for title, warps, loops in strips
    )
    return draw_sketch(
        paint,
        f"The steps of one row of K and V, in program order. {told}.",
        "One row of K and V in program order, a lane for each warp of a block; w writes, r reads "
        "shared memory",
        extent=(max(wide, 12.0), high + 0.7),
        size=(4.9, 0.27 * (high + 0.7)),
        word="computed",
    )


def _runs(loop: Loop) -> list[tuple[str, int]]:
    return [(run[0], int(run[1:] or 1)) for run in loop.sketch(SKETCH_LETTERS).split()]


def _loop_width(loop: Loop) -> float:
    return sum(_LOOKS[letter][1] for letter, _ in _runs(loop)) + 0.8


def _say_loop(loop: Loop) -> str:
    names = {"L": "load", "s": "shuffle", "w": "shared write", "r": "shared read"}
    names |= {"|": "barrier", "e": "exponential"}
    return ", ".join(
        f"{count} {names[letter]}" + "s" * (count > 1) for letter, count in _runs(loop)
    )


def _paint_loop(
    axes: Axes, loop: Loop, names: list[str], corner: tuple[float, float], warps: int
) -> None:
    """One loop's strip: each run of like instructions a box in every warp that does it."""
    left, top = corner
    runs = _runs(loop)
    alone, seen = sum(letter == "|" for letter, _ in runs) == 3, 0
    for letter, count in runs:
        shade, width = _LOOKS[letter]
        if letter == "|":
            seen += 1
            draw_box(axes, (left + 0.12, top - 0.1), (0.18, warps * 0.8 + 0.1), shade=shade)
        else:
            text = {"L": " ".join(names[:count]), "s": str(count)}.get(letter, letter)
            if letter == "L":
                del names[:count]
            few = alone and seen == 1 and letter != "L"
            for warp in range(1 if few else warps):
                at = (left + 0.04, top + warp * 0.8)
                draw_box(axes, at, (width - 0.08, 0.68), text, shade=shade, fontsize=9)
        left += width


def draw_flights(
    *variants: tuple[str, Tried], workload: Workload = HEADLINE, cycles: int = 2600
) -> Shown:
    """When one warp asks for its rows, and when it works on them, a strip a kernel.

    A load's latency and a row's work are the forecast's. A ring of stages asks for a row a trip, a
    loop without one for all rows of a trip at once.
    """
    strips = []
    for title, tried in variants:
        one = as_variant(tried)
        rung = load_rung(one.candidate)
        launch = forecast_of(one, workload).main_launch
        parts = [part.cycles for part in launch.stack if not waits_for_memory(part.name)]
        work, latency = sum(parts) / workload.kv_len, launch.load_latency_cycles
        stages = rung.resolve_knobs(one.knobs).get("stages", 0)
        held = stages or _rows_at_once(one, workload)
        asked: list[float] = []
        begun: list[float] = []
        now = 0.0
        while now < cycles:
            if stages or len(begun) % held == 0:
                asked += [now] * (len(begun) + held - len(asked))
            begun.append(max(now, asked[len(begun)] + latency))
            now = begun[-1] + work
        done = sum(start + work <= cycles for start in begun)
        strips.append((title, held, latency, work, asked, begun, done))
    high = sum(2.1 + 0.3 * held for _, held, *_ in strips)

    def paint(axes: Axes) -> None:
        top = 0.0
        for title, held, latency, work, asked, begun, done in strips:
            told = f"{title}: {done} rows in {cycles} cycles"
            axes.text(0, top + 0.4, told, va="center", fontsize=10, fontweight="bold")
            for n, start in enumerate(asked):
                if start < cycles:
                    at, long = (start, top + 0.9 + 0.3 * (n % held)), min(latency, cycles - start)
                    draw_box(axes, at, (long, 0.3), shade=BEHIND)
            top += 1.0 + 0.3 * held
            for n, start in enumerate(begun):
                if start < cycles:
                    long = min(work, cycles - start)
                    text = str(n) if long == work else ""
                    draw_box(axes, (start, top), (long, 0.7), text, shade=BAND, fontsize=7)
            top += 1.1
        for left, shade, text in ((0, BEHIND, "row on its way"), (0.35, BAND, "work on row n")):
            draw_box(axes, (left * cycles, high), (0.03 * cycles, 0.6), shade=shade)
            axes.text((left + 0.04) * cycles, high + 0.3, text, va="center", fontsize=9)

    told = "; ".join(
        f"{title}: up to {held} rows on their way, {latency:.0f} cycles each, {work:.0f} cycles of "
        f"work a row, {done} rows done in {cycles} cycles"
        for title, held, latency, work, _, _, done in strips
    )
    return draw_sketch(
        paint,
        f"One warp's rows in time. {told}.",
        f"One warp from its first row on, with the forecast's latency and work; {workload}",
        extent=(cycles, high + 0.7),
        size=(4.9, 0.3 * (high + 0.7)),
        word="forecast",
    )


def _rows_at_once(one: Variant, workload: Workload) -> int:
    """Rows of K and V that a warp asks for before it waits, from the loads of its main loop."""
    limits = load_gpu(DEFAULT_GPU).limits
    rung = load_rung(one.candidate)
    entry = rung.launches(workload, limits, one.knobs)[0].entry
    loops = machine_code(rung, workload, limits, one.knobs).entries[entry].innermost_loops
    in_flight = max(loop.bytes_in_flight for loop in loops)  # the other ones take what is left over
    return in_flight // (2 * workload.head_dim * workload.element_bytes)


def draw_turns(
    *variants: tuple[str, Tried], workload: Workload = HEADLINE, shown: int = 64
) -> Shown:
    """Which rows at the start of a piece each warp of its block takes, a strip a kernel and in it a
    lane a warp; dark is what the block asks for before any warp waits."""
    strips = []
    for title, tried in variants:
        one = as_variant(tried)
        limits = load_gpu(DEFAULT_GPU).limits
        launch = load_rung(one.candidate).launches(workload, limits, one.knobs)[0]
        warps, pieces = launch.num_threads // 32, launch.grid[2]
        strips.append((title, pieces, warps, _rows_at_once(one, workload)))
    high = sum(1.6 + 0.9 * warps for _, _, warps, _ in strips)

    def paint(axes: Axes) -> None:
        top = 0.0
        for title, pieces, warps, rows in strips:
            told = f"{title}: {pieces} pieces of {-(-workload.kv_len // pieces)} rows"
            axes.text(0, top + 0.5, told, va="center", fontsize=10, fontweight="bold")
            top += 1.1
            for group, first in enumerate(range(0, shown, rows)):
                at = (first, top + 0.9 * (group % warps))
                shade = BEHIND if group < warps else BAND
                text = f"{first}-{first + rows - 1}" if rows > 4 else ""
                draw_box(axes, at, (rows, 0.8), text, shade=shade, fontsize=8)
            for warp in range(warps):
                axes.text(shown + 1, top + 0.9 * warp + 0.4, f"... warp {warp}", va="center")
            top += 0.9 * warps + 0.5

    told = "; ".join(
        f"{title}: {pieces} pieces, {warps} warp{'s' if warps > 1 else ''} a piece, {rows} rows a "
        f"warp at a time, {warps * rows} a block"
        for title, pieces, warps, rows in strips
    )
    return draw_sketch(
        paint,
        f"Which warp takes which rows of a piece. {told}.",
        f"The first {shown} rows of a piece, a lane for each warp of its block; dark: what the "
        "block asks for before it waits",
        extent=(shown * 1.2, high),
        size=(4.9, 0.3 * high),
        word="computed",
    )


def plot_confound(store: RecordStore, workload: Problem = HEADLINE) -> Shown:
    """Recorded times of r02 and r03 by unrolling, one line a block shape and launch bounds."""
    lines: dict[tuple[str, int], list[Record]] = {}
    for name in ("r02", "r03"):
        for record in store.query(DEFAULT_GPU, name, workload, kind="rung"):
            warps = record.launches[0].block[0] // 32 if record.launches else 0
            label = f"{name}, {warps} warp{'s' if warps > 1 else ''} a block"
            lines.setdefault((label, record.knobs["launch_bounds"]), []).append(record)
    if not lines:
        return make_note(NO_RECORD.format(what="r02 and r03", workload=workload))
    labels = sorted({label for label, _ in lines})

    def paint(axes: Axes) -> None:
        for (label, bounds), records in sorted(lines.items()):
            i = labels.index(label)
            look: dict[str, Any] = {"marker": MARKERS[i], "color": GREYS[min(i, 2)]}
            axes.plot(
                [record.knobs["unroll"] for record in records],
                [record.median_us for record in records],
                label=f"{label}{'' if bounds else ', no launch bounds'}",
                linestyle=LINES[0 if bounds else 1],
                markerfacecolor=look["color"] if bounds else "white",
                **look,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axes.set(xlabel="rows in one trip of the loop (unroll)", ylabel="us")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))

    told = []
    for (label, bounds), records in sorted(lines.items()):
        records.sort(key=lambda record: record.knobs["unroll"])
        times = (f"unroll {one.knobs['unroll']} {one.median_us:.0f}" for one in records)
        told.append(f"{label}{'' if bounds else ' without launch bounds'}: {', '.join(times)}")
    every = [record for line in lines.values() for record in line]
    alt = f"Times in microseconds by unrolling. {'; '.join(told)}."
    caption = f"Workload {workload}: {describe_records(every)}."
    return draw_picture(paint, alt, caption, "recorded", size=(8.6, 4.0))


def plot_unrolling(variants: Mapping[str, Tried], workloads: Mapping[str, Problem]) -> Shown:
    """Recorded times of kernels by rows a trip of the loop: a panel a workload, a line a kernel."""
    records, trips = GpuRecords(), (1, 4, 8)
    panels: dict[str, dict[str, list[Record]]] = {}
    for title, workload in workloads.items():
        for label, tried in variants.items():
            one = as_variant(tried)
            found = [
                records.find((one.candidate, {**one.knobs, "unroll": n}), workload) for n in trips
            ]
            if None in found:
                return make_note(NO_RECORD.format(what=label, workload=workload))
            panels.setdefault(title, {})[label] = [record for record in found if record]

    used = [record for lines in panels.values() for line in lines.values() for record in line]
    times = [record.median_us for record in used]
    reach = (0.9 * min(times), 1.1 * max(times))

    def paint(every: Sequence[Axes]) -> None:
        for axes, (title, lines) in zip(every, panels.items(), strict=True):
            for i, (label, line) in enumerate(lines.items()):
                look = line_look(i) | {"color": (*GREYS[:2], HERE, BEHIND)[i]}
                axes.plot(trips, [record.median_us for record in line], label=label, **look)
            axes.set(xscale="log", yscale="log", title=title)
            axes.minorticks_off()
            axes.set_xticks(trips, [str(n) for n in trips])
            ticks = [tick for tick in (100, 200, 300, 500, 1000, 2000, 5000) if tick < reach[1]]
            axes.set_yticks(ticks, [str(tick) for tick in ticks])
            axes.set_ylim(*reach)  # ticks may widen it
            axes.set_xlabel("rows a trip (unroll)")
        every[0].set_ylabel("us")
        every[-1].legend(fontsize=9)

    told = "; ".join(
        f"{title}: {label} "
        + ", ".join(
            f"{say_time(r.median_us)} at unroll {n}" for n, r in zip(trips, line, strict=True)
        )
        for title, lines in panels.items()
        for label, line in lines.items()
    )
    caption = f"{next(iter(workloads.values())).short()}; {describe_records(used)}; logarithmic."
    alt = f"Times in microseconds. {told}."
    return draw_picture(paint, alt, caption, "recorded", columns=len(panels), size=(4.9, 2.9))


_EVEN, _ODD = _LOOKS["w"][0], _LOOKS["s"][0]
"""Colours of even and odd dims."""


def draw_codes(bits: int) -> Shown:
    """A lane's share of a quantised row of K, of head_dim 128, from its bytes to its floats.

    The row is of the outlier inputs, with one scale, as the rungs of ``bits`` 8 and 4 keep it; the
    lane has its largest element.
    """
    inputs = make_outlier_inputs(Workload(1, 1, 1, 1, 128))
    scheme = SCHEMES[{8: PER_ROW_INT8, 4: PER_ROW_INT4}[bits]]
    kept = quantise_tensor(inputs.k, inputs.seq_lens, scheme.k)
    scale, row = float(kept.scale[0, 0, 0]), kept.codes.reshape(32, -1)
    lane = int(abs(inputs.k).argmax()) // 4
    share, middle = row[lane], 2 ** (bits - 1)
    word = int.from_bytes(share.tobytes(), "little")
    dims = range(4 * lane, 4 * lane + 4)
    stored = [word >> bits * i & (2 * middle - 1) for i in range(4)]
    codes, shades = [u - middle for u in stored], (_EVEN, _ODD, _EVEN, _ODD)
    was = inputs.k.reshape(32, 4)[lane]
    steps = [
        ("u in the bits\nof 2^23 + u", [f"0x{0x4B000000 + u:08x}" for u in stored]),
        (f"c: less\n2^23 + {middle}", [f"{c}" for c in codes]),
        (f"times scale\n{scale:.3f}", [f"{scale * c:.2f}" for c in codes]),
        ("was, in fp16", [f"{x:.2f}" for x in was]),
    ]
    left, wide, tall, gap = 3.6, 3.0, 0.9, 0.75
    apart = {0: 0, 2: 1, 1: 2, 3: 3}  # the even dims' nibbles, then the odd ones'

    def paint(axes: Axes) -> None:
        def name(top: float, text: str) -> None:
            axes.text(0, top + tall / 2, text, va="center", fontsize=9)

        def middle_of(column: int) -> float:
            return left + wide * (column + 0.5)

        name(0, f"row of K:\n{row.size} bytes")
        for n, text in enumerate(("lane 0", "...", f"lane {lane}", "...", "lane 31")):
            shade = GREYS[3] if n == 2 else "white"
            draw_box(axes, (left + 2.4 * n, 0), (2.4, tall), text, shade=shade)
        top = tall + gap
        for x, corner in ((left + 4.8, left), (left + 7.2, left + 4 * wide)):
            axes.plot([x, corner], [tall, top], color=GREYS[1], linewidth=0.8, linestyle=":")
        name(top, f"its {share.size} bytes,\ndim: code u")
        for i, dim in enumerate(dims):
            text = f"{dim}: 0x{stored[i]:0{bits // 4}x}"
            draw_box(axes, (left + wide * i, top), (wide, tall), text, shade=shades[i])
        for byte in range(share.size + 1):
            edge = [left + byte * 4 * wide / share.size] * 2
            axes.plot(edge, [top - 0.15, top + tall + 0.15], color="black", linewidth=2)
        column = {i: i for i in range(4)}
        if bits == 4:
            name(top + tall + gap, "mask; shift\nand mask")
            for i, to in apart.items():
                start = (middle_of(i), top + tall)
                draw_arrow(axes, start, (middle_of(to), top + tall + gap))
                spot = (left + wide * to, top + tall + gap)
                text = f"{dims[i]}: 0x{stored[i]:02x}"
                draw_box(axes, spot, (wide, tall), text, shade=shades[i])
            top, column = top + tall + gap, apart
        for number, (text, cells) in enumerate(steps):
            space = gap if number == 0 else 0.4
            for i, cell in enumerate(cells):
                spot = (left + wide * i, top + tall + space)
                if number == 0:
                    draw_arrow(axes, (middle_of(column[i]), top + tall), (middle_of(i), spot[1]))
                draw_box(axes, spot, (wide, tall), cell, shade="white" if number else shades[i])
            top += tall + space
            name(top, text)

    high = (7 if bits == 4 else 6) * tall + (3 if bits == 4 else 2) * gap + 1.2
    said = "; ".join(
        f"dim {dim}: stored {u}, code {c}, read back {scale * c:.2f}, was {x:.2f}"
        for dim, u, c, x in zip(dims, stored, codes, was, strict=True)
    )
    apart_said = (
        " The even nibbles are masked, the odd ones shifted and masked." if bits == 4 else ""
    )
    return draw_sketch(
        paint,
        f"A row of K is {row.size} bytes, {share.size} a lane. Lane {lane} loads 0x{word:x}."
        f"{apart_said} Each code is put into the last bits of 2^23. {said}.",
        f"INT{bits}: what lane {lane} loads of a row with outliers; low bits on the left, thick "
        "lines between bytes",
        extent=(left + 4 * wide, high),
        size=(4.9, 0.3 * high),
        word="computed",
    )
