"""What the kernels of the ladder do with a row: in program order, in time, by warp, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

from labtools.predict import DEFAULT_GPU, load_gpu
from labtools.predict.result import waits_for_memory
from labtools.problem import (
    HEADLINE,
    PER_ROW_INT4,
    PER_ROW_INT8,
    SCHEMES,
    Problem,
    Workload,
    load_rung,
    make_outlier_inputs,
    quantise_tensor,
)
from labtools.record import Tried, Variant, as_variant
from labtools.toolchain.listings import machine_code
from labtools.toolchain.sass import SKETCH_LETTERS, Loop

from ...figures import AMBER, BLUE, CREAM, GREEN, SHADES, Axes, draw_arrow, draw_box, draw_sketch
from ...records import forecast_of
from ...tables import Shown

_LOOKS = {
    "L": (BLUE, 1.5),
    "s": (AMBER, 0.9),
    "w": (GREEN, 0.8),
    "r": (GREEN, 0.8),
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
        "One row in program order, a line for each warp; w writes and r reads shared memory",
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
                    draw_box(axes, at, (long, 0.3), shade=BLUE)
            top += 1.0 + 0.3 * held
            for n, start in enumerate(begun):
                if start < cycles:
                    long = min(work, cycles - start)
                    text = str(n) if long == work else ""
                    draw_box(axes, (start, top), (long, 0.7), text, shade=CREAM, fontsize=7)
            top += 1.1
        for left, shade, text in ((0, BLUE, "row on its way"), (0.35, CREAM, "work on row n")):
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
                shade = BLUE if group < warps else CREAM
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
    codes, shades = [u - middle for u in stored], 2 * (GREEN, AMBER)
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
            shade = SHADES[3] if n == 2 else "white"
            draw_box(axes, (left + 2.4 * n, 0), (2.4, tall), text, shade=shade)
        top = tall + gap
        for x, corner in ((left + 4.8, left), (left + 7.2, left + 4 * wide)):
            axes.plot([x, corner], [tall, top], color=SHADES[1], linewidth=0.8, linestyle=":")
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
