"""What a round of the prediction game shows: its question, its hints, its score, the reasons."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from labtools.notebook.book.checklist.answers import CodeFacts, code_facts
from labtools.predict import Forecast, achieved_occupancy, forecast, load_gpu, model_name, waves
from labtools.problem import load_rung
from labtools.problem.rung import say_knobs
from labtools.record.prediction import JournalRow, ModelPrediction, Prediction, Score

from ...diff import show_diff
from ...ratios import Speedup, ratio_table, say_prediction, say_ratio
from ...static_page import static_result
from ...tables import BOX, Cell, Shown, Word, make_note, make_table, show_table
from .draw import LEVELS, Round, Side, example_round, knob_docs, recorded_answer

_MOST_SLICES = 7


# ------------------------------------------------------------------------------- in words


def say_change(round_: Round) -> str:
    """``r03_one_warp, unroll 1 to 8`` or ``from r02_one_barrier to r03_one_warp``."""
    changed = dict(round_.changed)
    kernels = changed.pop("kernel", None)
    words = [f"{name} {before} to {after}" for name, (before, after) in changed.items()]
    if kernels:
        words.insert(0, f"from {kernels[0]} to {kernels[1]}")
        return ", ".join(words)
    return f"{round_.baseline.rung}, {', '.join(words)}"


def say_sides(round_: Round) -> tuple[str, str]:
    """Short names of both sides: what differs."""
    if "kernel" in round_.changed:
        return round_.baseline.rung.split("_")[0], round_.candidate.rung.split("_")[0]
    both = [(f"{n} {before}", f"{n} {after}") for n, (before, after) in round_.changed.items()]
    return ", ".join(first for first, _ in both), ", ".join(second for _, second in both)


def show_rounds(rounds: Sequence[Round]) -> Shown:
    """Rounds as a table of questions, with the names that `find_rounds` takes."""
    rows = [
        (
            round_.id,
            round_.level,
            say_change(round_),
            _same_knobs(round_),
            str(round_.workload),
            round_.gpu,
        )
        for round_ in rounds
    ]
    return make_table(
        ("round", "level", "what changes", "what stays", "workload", "GPU"),
        [[str(cell) for cell in row] for row in rows],
        "The rounds",
    )


def _same_knobs(round_: Round) -> str:
    before, after = dict(round_.baseline.knobs), dict(round_.candidate.knobs)
    stays = {n: v for n, v in {**before, **after}.items() if n not in round_.changed}
    return say_knobs(sorted(stays.items()))


def show_question(round_: Round, place: int, total: int) -> Shown:
    names = sorted({*dict(round_.baseline.knobs), *dict(round_.candidate.knobs)})
    before, after = dict(round_.baseline.knobs), dict(round_.candidate.knobs)
    rows: list[tuple[str, ...]] = [("kernel", round_.baseline.rung, round_.candidate.rung)]
    rows += [(name, str(before.get(name, "-")), str(after.get(name, "-"))) for name in names]
    marked: list[list[Cell]] = [[*row, "changes" if row[1] != row[2] else ""] for row in rows]
    title = f"Round {place + 1} of {total}, level {round_.level}: {LEVELS[round_.level]}"
    head = Shown(f"<p><strong>{html.escape(title)}</strong></p>", title)
    table = make_table(
        ("", "before", "after", ""),
        marked,
        f"Workload {round_.workload}, cache {round_.workload.cache_state}",
    )
    return head + table


# ------------------------------------------------------------------------------- scoring


def ratio_band(before: Forecast, after: Forecast) -> tuple[float, float] | None:
    """Low and high end of the ratio of two forecasts, if their errors are independent.

    None where one of the two has no band.

    The bands are factors, so their logarithms add in squares. Errors of one model on two versions
    of one kernel mostly share their sign, which makes the true band narrower.
    """
    if before.band_us is None or after.band_us is None:
        return None
    ratio = before.time_us / after.time_us
    first = [abs(math.log(end / before.time_us)) for end in before.band_us]
    second = [abs(math.log(end / after.time_us)) for end in after.band_us]
    down, up = math.hypot(first[0], second[1]), math.hypot(first[1], second[0])
    return ratio * math.exp(-down), ratio * math.exp(up)


def show_scores(rows: Sequence[tuple[JournalRow, Score]]) -> Shown:
    """The running score: one line a round, and the sums."""
    if not rows:
        return make_note("The scoreboard fills as rounds are revealed.")
    cells: list[list[Cell]] = []
    for row, model in rows:
        own, shown = row.score, row.reveal
        if own is None or shown is None:
            continue
        cells.append(
            [
                shown.what,
                say_prediction(row.prediction),
                _off(own),
                say_ratio(model.predicted_ratio),
                _off(model),
                ", ".join(row.hints) or "none",
                say_ratio(shown.measured_ratio),
                Word(shown.source),
            ]
        )
    table = make_table(
        ("round", "you said", "you", "the model said", "the model", "hints", "measured", "kind"),
        cells,
        "Scoreboard: how far off, and was the direction right",
    )
    return table + make_note(_sum_up(rows), "computed")


def _sum_up(rows: Sequence[tuple[JournalRow, Score]]) -> str:
    pairs = [(row.score, model) for row, model in rows if row.score is not None]
    total = len(pairs)
    yours = [own for own, _ in pairs]
    models = [model for _, model in pairs]
    right, models_right = (sum(score.direction_right for score in some) for some in (yours, models))
    closer = sum(own.off_by < model.off_by for own, model in pairs)
    return (
        f"After {total} round{'' if total == 1 else 's'}: you are off by a factor of "
        f"{_mean_off(yours):.2f}, direction right in {right} of {total}; the model is off by "
        f"{_mean_off(models):.2f}, direction right in {models_right} of {total}. You were closer "
        f"in {closer}."
    )


def _mean_off(scores: Sequence[Score]) -> float:
    product = 1.0
    for score in scores:
        product *= score.off_by ** (1 / len(scores))
    return product


def _off(score: Score) -> str:
    return f"{score.off_by:.2f}x off, direction {'right' if score.direction_right else 'wrong'}"


def explain_difference(before: Forecast, after: Forecast, first: str, second: str) -> Shown:
    """Where the model sees the time go on both sides, and what changed most."""
    slices = [
        {part.name: part.share * said.main_launch.time_us for part in said.main_launch.stack}
        for said in (before, after)
    ]
    names = sorted(
        slices[0].keys() | slices[1].keys(),
        key=lambda name: -max(part.get(name, 0.0) for part in slices),
    )[:_MOST_SLICES]
    rows = [(f"{name} (us)", *(part.get(name, 0.0) for part in slices)) for name in names]
    moved = max(names, key=lambda name: abs(slices[1].get(name, 0.0) - slices[0].get(name, 0.0)))
    old, new = slices[0].get(moved, 0.0), slices[1].get(moved, 0.0)
    why = (
        f"The model's reason: what changes most is {moved}, from {old:.4g} to {new:.4g} us. "
        f"{first} is bound by {before.bound}, {second} by {after.bound}."
    )
    table = show_table(
        ("what a warp waits for", first, second),
        [
            *rows,
            ("bytes in flight an SM", before.in_flight_bytes, after.in_flight_bytes),
            ("issue slots in use (%)", *(100 * f.main_launch.issue_share for f in (before, after))),
        ],
        word="forecast",
        note="The time of one warp of the longest launch, by what it waits for",
    )
    return make_note(why, "forecast") + table


def show_example(gpu: str = "h200") -> Shown:
    """A finished round, folded: the step from r02 to r03, which the book tells anyhow."""
    round_ = example_round(gpu)
    before, after = (
        forecast(load_rung(side.rung), round_.workload, gpu, dict(side.knobs))
        for side in (round_.baseline, round_.candidate)
    )
    said = Speedup(
        before.time_us / after.time_us,
        "forecast",
        model_name(),
        baseline_us=before.time_us,
        candidate_us=after.time_us,
    )
    first, second = say_sides(round_)
    rows: list[tuple[str, Prediction | Speedup | None, str]] = [
        ("the model", said, ""),
        ("measured", recorded_answer(round_), "no record yet"),
    ]
    table = ratio_table(first, second, rows, f"{say_change(round_)}, {round_.workload}")
    return static_result(table + explain_difference(before, after, first, second))


def model_speedup(said: ModelPrediction | None) -> Speedup | None:
    if said is None:
        return None
    band = "no band"
    if said.band is not None:
        band = "band: {} to {}".format(*(say_ratio(end) for end in said.band))
    return Speedup(
        said.ratio,
        "forecast",
        f"{said.model}; {band}",
        baseline_us=said.baseline_us,
        candidate_us=said.candidate_us,
    )


# ------------------------------------------------------------------------------- hints


def _hint_code(round_: Round) -> Shown:
    if round_.baseline.rung != round_.candidate.rung:
        return show_diff(round_.candidate.rung, round_.baseline.rung)
    rung = load_rung(round_.baseline.rung)
    lines = [f"{name}: {doc}" for name, doc in knob_docs(round_)]
    lines += [
        f"compiled with -D{name.upper()}={before}, then -D{name.upper()}={after}"
        for name, (before, after) in round_.changed.items()
    ]
    markup = (
        '<details open><summary style="cursor:pointer">The kernel</summary>'
        '<pre style="overflow:auto;max-height:24em;white-space:pre;line-height:1.35;'
        'font-size:0.85em" tabindex="0" role="region" '
        f'aria-label="source of {rung.id}">{html.escape(rung.source_text)}</pre></details>'
    )
    text = "\n".join(lines)
    head = "<br>".join(html.escape(line) for line in lines)
    return Shown(f'<div style="{BOX}">{head}</div>{markup}', f"{text}\n{rung.source_text}")


def _hint_machine_code(round_: Round) -> Shown:
    found = [_facts(round_, side) for side in (round_.baseline, round_.candidate)]
    rows: list[tuple[object, ...]] = [
        ("registers a thread", *(f.resources.registers for f in found)),
        (
            "spilled bytes a thread",
            *(f.resources.spill_load_bytes + f.resources.spill_store_bytes for f in found),
        ),
        (
            "instructions of the loop that loads most",
            *(len(f.loop.instructions) if f.loop else "no loop" for f in found),
        ),
        (
            "its loads",
            *(", ".join(f"{n} of {w} bytes a lane" for w, n in f.widths) or "none" for f in found),
        ),
        ("most bytes in flight of a warp", *(f.bytes_in_flight for f in found)),
        ("sketch of a trip", *(f.loop.sketch() if f.loop else "" for f in found)),
    ]
    return show_table(
        ("", *say_sides(round_)),
        rows,
        word="computed",
        note="L load, s shuffle, w and r shared memory, | barrier, e exponential",
    )


def _hint_residency(round_: Round) -> Shown:
    gpu = load_gpu(round_.gpu)
    found = [_facts(round_, side) for side in (round_.baseline, round_.candidate)]
    real = [achieved_occupancy(gpu, f.occupancy, f.launch.num_blocks) for f in found]
    rows: list[tuple[object, ...]] = [
        ("threads a block", *(f.launch.num_threads for f in found)),
        ("blocks in the grid", *(f.launch.num_blocks for f in found)),
        ("blocks that fit an SM", *(f.occupancy.blocks_per_sm for f in found)),
        ("limited by", *(f.occupancy.limiter.replace("_", " ") for f in found)),
        ("resident warps an SM", *(r.resident_warps_per_sm for r in real)),
        ("waves", *(waves(gpu, f.occupancy, f.launch.num_blocks).waves for f in found)),
    ]
    return show_table(("", *say_sides(round_)), rows, word="computed", note=gpu.title)


def _facts(round_: Round, side: Side) -> CodeFacts:
    return code_facts(load_rung(side.rung), round_.workload, round_.gpu, dict(side.knobs))


HINTS = {
    "code": "What changes in the code",
    "machine code": "What the machine code says",
    "residency": "Who is on an SM",
}
"""Name in the journal and label of each hint."""

MAKE_HINT: dict[str, Callable[[Round], Shown]] = {
    "code": _hint_code,
    "machine code": _hint_machine_code,
    "residency": _hint_residency,
}
