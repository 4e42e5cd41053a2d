"""What a round of the prediction game shows: its question, its hints, its score, the reasons."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from statistics import geometric_mean

from labtools.notebook.book.checklist.answers import CodeFacts, code_facts
from labtools.predict import (
    Forecast,
    Gpu,
    achieved_occupancy,
    forecast,
    load_gpu,
    model_name,
    waves,
)
from labtools.problem import load_rung
from labtools.problem.rung import say_knobs
from labtools.record.prediction import (
    JournalRow,
    ModelPrediction,
    Prediction,
    Reveal,
    Score,
    say_ratio,
)

from ...diff import show_diff
from ...ratios import Speedup, ratio_table
from ...static_page import static_result
from ...tables import BOX, Cell, Shown, Word, make_note, make_table, show_table
from .draw import LEVELS, Round, example_round, recorded_answer

_MOST_SLICES = 7


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
    columns = ("round", "level", "what changes", "what stays", "workload", "GPU")
    rows: list[list[Cell]] = []
    for one in rounds:
        rows.append(
            [one.id, f"{one.level}", say_change(one), _same_knobs(one), str(one.workload), one.gpu]
        )
    return make_table(columns, rows, "The rounds")


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
    caption = f"Workload {round_.workload}, cache {round_.workload.cache_state}"
    return head + make_table(("", "before", "after", ""), marked, caption)


def forecast_round(round_: Round, gpu: Gpu | str) -> tuple[Forecast, Forecast]:
    """The forecast of each side on a GPU."""
    before, after = (
        forecast(load_rung(side.rung), round_.workload, gpu, dict(side.knobs))
        for side in (round_.baseline, round_.candidate)
    )
    return before, after


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
        if not (isinstance(own, Score) and isinstance(shown, Reveal)):
            continue
        yours = row.prediction.words, _off(own)
        models = say_ratio(model.predicted_ratio), _off(model)
        hints, measured = ", ".join(row.hints) or "none", say_ratio(shown.measured_ratio)
        cells.append([shown.what, *yours, *models, hints, measured, Word(shown.source)])
    both = ("you said", "you", "the model said", "the model")
    caption = "Scoreboard: how far off, and was the direction right"
    table = make_table(("round", *both, "hints", "measured", "kind"), cells, caption)
    return table + make_note(_sum_up(rows), "computed")


def _sum_up(rows: Sequence[tuple[JournalRow, Score]]) -> str:
    pairs = [(row.score, model) for row, model in rows if isinstance(row.score, Score)]
    total = len(pairs)

    def said(scores: Sequence[Score]) -> str:
        right = sum(score.direction_right for score in scores)
        mean = geometric_mean([score.off_by for score in scores])
        return f"{mean:.2f}, direction right in {right} of {total}"

    closer = sum(own.off_by < model.off_by for own, model in pairs)
    return (
        f"After {total} round{'' if total == 1 else 's'}: you are off by a factor of "
        f"{said([own for own, _ in pairs])}; the model is off by "
        f"{said([model for _, model in pairs])}. You were closer in {closer}."
    )


def _off(score: Score) -> str:
    return f"{score.off_by:.2f}x off, direction {'right' if score.direction_right else 'wrong'}"


def show_outcome(
    round_: Round, said: Speedup | None, answer: Speedup | None, guess: Prediction | None = None
) -> Shown:
    """What the reader (where there is a guess), the model and the measurement say."""
    rows: list[tuple[str, Prediction | Speedup | None, str]] = [
        ("you", guess, ""),
        ("the model", said, "no answer"),
        ("measured", answer, "no record"),
    ]
    caption = f"{say_change(round_)}, {round_.workload}"
    return ratio_table(*say_sides(round_), rows[guess is None :], caption)


def explain_difference(round_: Round, before: Forecast, after: Forecast) -> Shown:
    """Where the model sees the time go on both sides, and what changed most."""
    first, second = say_sides(round_)
    slices = [
        {part.name: part.share * said.main_launch.time_us for part in said.main_launch.stack}
        for said in (before, after)
    ]
    names = sorted(
        slices[0].keys() | slices[1].keys(),
        key=lambda name: -max(part.get(name, 0.0) for part in slices),
    )[:_MOST_SLICES]
    rows: list[tuple[object, ...]] = [
        (f"{name} (us)", *(part.get(name, 0.0) for part in slices)) for name in names
    ]
    moved = max(names, key=lambda name: abs(slices[1].get(name, 0.0) - slices[0].get(name, 0.0)))
    old, new = slices[0].get(moved, 0.0), slices[1].get(moved, 0.0)
    why = (
        f"The model's reason: what changes most is {moved}, from {old:.4g} to {new:.4g} us. "
        f"{first} is bound by {before.bound}, {second} by {after.bound}."
    )
    issue = (100 * said.main_launch.issue_share for said in (before, after))
    rows.append(("bytes in flight per SM", before.in_flight_bytes, after.in_flight_bytes))
    rows.append(("issue slots in use (%)", *issue))
    columns = ("what a warp waits for", first, second)
    note = "The time of one warp of the longest launch, by what it waits for"
    return make_note(why, "forecast") + show_table(columns, rows, word="forecast", note=note)


def show_example(gpu: str = "h200") -> Shown:
    """A finished round, folded: the step from r02 to r03, which the book tells anyhow."""
    round_ = example_round(gpu)
    before, after = forecast_round(round_, gpu)
    times = before.time_us, after.time_us
    said = Speedup(times[0] / times[1], "forecast", model_name(), None, *times)
    table = show_outcome(round_, said, recorded_answer(round_))
    return static_result(table + explain_difference(round_, before, after))


def model_speedup(said: ModelPrediction | None) -> Speedup | None:
    if said is None:
        return None
    band = "no band"
    if said.band is not None:
        band = "band: {} to {}".format(*(say_ratio(end) for end in said.band))
    times = said.baseline_us, said.candidate_us
    return Speedup(said.ratio, "forecast", f"{said.model}; {band}", None, *times)


def _hint_code(round_: Round) -> Shown:
    if round_.baseline.rung != round_.candidate.rung:
        return show_diff(round_.candidate.rung, round_.baseline.rung)
    rung = load_rung(round_.baseline.rung)
    lines = [f"{knob.name}: {knob.doc}" for knob in rung.knobs if knob.name in round_.changed]
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
    found = _facts(round_)
    used = [facts.resources for facts in found]
    loops = [facts.loop for facts in found]
    loads = (", ".join(f"{n} of {w} bytes per lane" for w, n in f.widths) or "none" for f in found)
    sizes = (len(loop.instructions) if loop else "no loop" for loop in loops)
    rows: list[tuple[object, ...]] = [
        ("registers per thread", *(one.registers for one in used)),
        (
            "spilled bytes per thread",
            *(one.spill_load_bytes + one.spill_store_bytes for one in used),
        ),
        ("instructions of the loop that loads most", *sizes),
        ("its loads", *loads),
        ("most bytes in flight of a warp", *(facts.bytes_in_flight for facts in found)),
        ("sketch of a trip", *(loop.sketch() if loop else "" for loop in loops)),
    ]
    note = "L load, s shuffle, w and r shared memory, | barrier, e exponential"
    return show_table(("", *say_sides(round_)), rows, word="computed", note=note)


def _hint_residency(round_: Round) -> Shown:
    gpu = load_gpu(round_.gpu)
    found = _facts(round_)
    real = [achieved_occupancy(gpu, f.occupancy, f.launch.num_blocks) for f in found]
    rows: list[tuple[object, ...]] = [
        ("threads per block", *(f.launch.num_threads for f in found)),
        ("blocks in the grid", *(f.launch.num_blocks for f in found)),
        ("blocks that fit an SM", *(f.occupancy.blocks_per_sm for f in found)),
        ("limited by", *(f.occupancy.limiter.replace("_", " ") for f in found)),
        ("resident warps per SM", *(r.resident_warps_per_sm for r in real)),
        ("waves", *(waves(gpu, f.occupancy, f.launch.num_blocks).waves for f in found)),
    ]
    return show_table(("", *say_sides(round_)), rows, word="computed", note=gpu.title)


def _facts(round_: Round) -> list[CodeFacts]:
    """Of both sides."""
    return [
        code_facts(load_rung(side.rung), round_.workload, round_.gpu, dict(side.knobs))
        for side in (round_.baseline, round_.candidate)
    ]


HINTS: dict[str, tuple[str, Callable[[Round], Shown]]] = {
    "code": ("What changes in the code", _hint_code),
    "machine code": ("What the machine code says", _hint_machine_code),
    "residency": ("Who is on an SM", _hint_residency),
}
"""By its name in the journal the label of each hint, and what it shows."""
