"""One decode step."""

from __future__ import annotations

from labtools.predict import DEFAULT_GPU, floors, load_gpu, sheet_floor_us
from labtools.problem import HEADLINE, list_baselines
from labtools.record import Record, RecordStore, describe_records, fair_peers, measured_together
from labtools.record.headline import at_default_knobs

from ...figures import (
    AMBER,
    BLUE,
    ORANGE,
    SHADES,
    Axes,
    draw_arrow,
    draw_box,
    draw_picture,
    draw_sketch,
)
from ...records import NO_RECORD, GpuRecords
from ...tables import Shown, make_note, say_time

START_KERNELS = (
    "r00_two_passes",
    "r03_one_warp",
    "r09_inverted",
    "r10_inverted_int8",
    "r11_inverted_int4",
)
"""The plainest kernel, the published one, and the three at the end."""
NEAR_FASTEST = 2.0
"""Times the fastest library: what is slower is no library that anybody would choose."""


def sdpa_against_floor() -> tuple[float, float] | None:
    """The floor and the recorded time of PyTorch's attention, in us, of the headline workload."""
    record = GpuRecords(DEFAULT_GPU).find("baseline:sdpa", HEADLINE)
    if record is None:
        return None
    return floors(HEADLINE, load_gpu(DEFAULT_GPU)).time_us, record.median_us


def plot_start(store: RecordStore | None = None) -> Shown:
    """Kernels of the guide beside the libraries, from the slowest to the fastest, each with the
    floor of its own cache; times of one campaign, us."""
    every = (store or RecordStore()).query(DEFAULT_GPU, workload=HEADLINE, latest=False)
    together = measured_together(at_default_knobs(every))
    peers = fair_peers(together)
    libraries = [one for one in peers if one.median_us <= NEAR_FASTEST * peers[0].median_us]
    used = [one for one in together if one.candidate in START_KERNELS] + libraries
    if not used:
        return make_note(NO_RECORD.format(what="the ladder", workload=HEADLINE))
    used.sort(key=lambda one: -one.median_us)
    titles = {one.id: one.title for one in list_baselines()}

    def look(record: Record) -> tuple[str, str]:
        """What it is called, and its colour."""
        if record in libraries:
            return titles[record.name], ORANGE
        name, bits = record.candidate.split("_")[0], record.kv_bits
        return (f"{name}, INT{bits} cache", SHADES[2]) if bits < 16 else (name, BLUE)

    def paint(axes: Axes) -> None:
        axes.set(xscale="log", xlim=(4, 12000), ylim=(len(used) - 0.4, -0.6))
        axes.set_xticks([10, 100, 1000], ["10", "100", "1000 us"])
        axes.minorticks_off()
        axes.grid(axis="y", visible=False)
        axes.set_yticks(range(len(used)), [look(one)[0] for one in used])
        axes.tick_params(axis="y", length=0)
        for row, one in enumerate(used):
            floor = sheet_floor_us(one.read_bytes, one.provenance.gpu_slug)
            axes.barh(row, one.median_us - 1, left=1, height=0.62, color=look(one)[1])
            axes.text(one.median_us * 1.1, row, say_time(one.median_us), va="center", fontsize=9)
            if floor:
                axes.plot([floor] * 2, [row - 0.42, row + 0.42], color="black", linewidth=2.5)

    told = "; ".join(f"{look(one)[0]} {say_time(one.median_us)} us" for one in used)
    return draw_picture(
        paint,
        f"Bars from the slowest to the fastest: {told}.",
        f"{HEADLINE.batch} sequences of {HEADLINE.kv_len:,} tokens; shorter is faster, "
        "logarithmic. Orange: libraries; blue: this guide's kernels; pale: with fewer bits; black: "
        f"the floor of each cache. {describe_records(used)}.",
        "recorded",
        size=(4.9, 3.4),
    )


def step_drawing() -> Shown:
    """One decode step: the newest token's query meets the keys and values that are kept."""
    tokens = ("The", "cat", "sat", "on", "the")

    def paint(axes: Axes) -> None:
        for n, token in enumerate(tokens):
            x, newest = 0.1 + 1.35 * n, n == len(tokens) - 1
            axes.text(x + 0.6, 0.3, token, ha="center", va="center", fontsize=11)
            draw_arrow(axes, (x + 0.6, 0.55), (x + 0.6, 0.95))
            key, value = ("#8fb8e0", "#86c49a") if newest else ("#d3e3f4", "#cfe9d6")
            draw_box(axes, (x, 1.0), (1.2, 0.6), "key", shade=key)
            draw_box(axes, (x, 1.7), (1.2, 0.6), "value", shade=value)
            # What the newest token asks meets every row.
            draw_arrow(axes, (6.1, 3.1), (x + 0.6, 2.4))
        axes.text(0.1, 3.25, "The KV cache is read\nwhole at every step.", va="center")
        draw_box(axes, (5.5, 3.1), (1.2, 0.6), "query", shade=AMBER)
        draw_arrow(axes, (5.4, 3.4), (4.75, 3.85))
        words = "weighted mean of the values;\nthe next token follows from it"
        axes.text(4.7, 4.2, words, ha="right", va="center", fontsize=9)

    return draw_sketch(
        paint,
        "Five tokens in a row, each with a key and a value in the KV cache. The newest token also "
        "has a query. It meets every key, and the output is a weighted mean of all values. The "
        "cache is read whole at every step.",
        "One step of decode attention, for one head",
        extent=(6.8, 4.6),
        size=(4.9, 3.3),
    )
