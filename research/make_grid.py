"""A recorded grid made of the measurements of a campaign's folder, and told in a few lines."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labtools.measure.gpu.provenance import merge_clocks
from labtools.measure.gpu.timing import Timed
from labtools.optimize.family import Family, load_family
from labtools.optimize.grid import (
    GRID_SCHEMA,
    FullProtocol,
    Grid,
    GridAt,
    GridPlan,
    Times,
    digits,
    samples_of,
)
from labtools.predict import load_gpu
from labtools.problem import LabError, Limits, Problem
from labtools.problem.text import how_many
from labtools.record import Provenance, median_us, ratio_of_samples
from labtools.record.statistics import CONFIDENCE
from labtools.toolchain import find_compiler, kernel_hashes
from labtools.toolchain.options import COMMON_OPTIONS, CUPY_ADDED_OPTIONS

from .measure_grid import (
    AGAIN,
    GridFolder,
    KeptForecast,
    PointCode,
    PointModel,
    TimedBatch,
    names_of,
)


def make_grid(folder: GridFolder) -> Grid:
    """Put the measurements of a folder together."""
    plan = folder.plan()
    codes, models = folder.codes(), folder.models()
    for what, held in (("codes", codes), ("models", models)):
        missing = [number for number in range(len(plan)) if number not in held]
        if missing:
            raise LabError(
                f"{folder.folder} holds no whole grid.",
                f"{len(missing)} of {len(plan)} points are missing among its {what}",
                f"the phase {what} goes on where it was",
            )
    _refuse_other_codes(plan, codes, models)
    family = load_family(plan.family)
    names = names_of(plan, family)
    hashes = _different(one.hashes.sass_hash for code in codes.values() for one in code.at.values())
    batches = folder.batches()
    nvrtc = {one.hashes.nvrtc_version for code in codes.values() for one in code.at.values()}
    full = folder.batches("best")
    in_order = [models[number] for number in range(len(plan))]
    named = sorted({name for one in in_order for name in one.numbers})
    compiler = _only(nvrtc, "versions of NVRTC")
    provenance = _provenance(folder, [*batches.values(), *full.values()], compiler)
    patterns = {one.id: one.signature for one in family.methods if one.signature}
    return Grid(
        schema_version=GRID_SCHEMA,
        plan=plan,
        options=(*COMMON_OPTIONS, *CUPY_ADDED_OPTIONS),
        nvrtc_version=compiler,
        arch=provenance.arch,
        provenance=provenance,
        protocol=_only(set(_protocols(batches.values())), "ways of timing") or "",
        codes=tuple(hashes),
        registers=tuple(one.resources.registers if one.resources else None for one in in_order),
        spills=tuple(_spills(one) for one in in_order),
        entries=tuple(one.resources.entry if one.resources else None for one in in_order),
        patterns=patterns,
        signatures={
            method: tuple(one.signatures.get(method) for one in in_order) for method in patterns
        },
        numbers={name: tuple(one.numbers.get(name) for one in in_order) for name in named},
        problems={number: code.problem for number, code in codes.items() if code.problem},
        at=tuple(
            _make_at(plan, one, names, (codes, models), batches, hashes) for one in plan.workloads
        ),
        full=_make_full(names, full) if full else None,
    )


def _refuse_other_codes(
    plan: GridPlan, codes: Mapping[int, PointCode], models: Mapping[int, PointModel]
) -> None:
    """The models must be of the code that was timed, wherever they were made."""
    headline = str(plan.workloads[0])
    for number, code in codes.items():
        of_model = models[number].hashes
        if code.at and of_model and of_model.sass_hash != code.at[headline].hashes.sass_hash:
            raise LabError(
                f"The forecast of point {number} is of other machine code than was timed.",
                "the two were made by different compilers, or from different sources",
                "remove models.jsonl and take the phase models with the compiler of the codes",
            )


def _different(values: Iterable[str | None]) -> dict[str, int]:
    """Each different value with its number."""
    found: dict[str, int] = {}
    for value in values:
        found.setdefault(value or "", len(found))
    return found


def _only(values: Collection[str | None], what: str) -> str | None:
    if len(values) > 1:
        raise LabError(
            f"One grid holds several {what}.",
            f"{', '.join(map(str, values))}",
            "measure it anew in another folder",
        )
    return next(iter(values), None)


def _protocols(batches: Iterable[TimedBatch]) -> set[str]:
    answers = [answer for batch in batches for answer in batch.answers]
    timed = [(label, one) for answer in answers for label, one in answer.timed.items()]
    return {one.protocol for label, one in timed if not label.startswith("baseline:")}


def _provenance(folder: GridFolder, batches: Sequence[TimedBatch], nvrtc: str | None) -> Provenance:
    """Of the whole campaign: what was written down when it began, and all its clocks."""
    began = next(folder.read("provenance", Provenance), None)
    if began is None or not batches:
        raise LabError(
            f"{folder.folder} holds no times.", "nothing was timed yet", "the phase time does it"
        )
    clocks = merge_clocks([answer.clocks for one in batches for answer in one.answers])
    environment = next(one.environment for one in batches if one.environment)
    return began.model_copy(update={**environment, "clocks": clocks, "nvrtc": nvrtc})


def _spills(model: PointModel) -> int | None:
    found = model.resources
    return found.spill_store_bytes + found.spill_load_bytes if found else None


def _make_at(
    plan: GridPlan,
    workload: Problem,
    names: Sequence[str],
    made_before: tuple[Mapping[int, PointCode], Mapping[int, PointModel]],
    batches: Mapping[tuple[str, int], TimedBatch],
    hashes: Mapping[str, int],
) -> GridAt:
    """One workload's columns."""
    codes, models = made_before
    key, points = str(workload), range(len(plan))
    mine = {batch: one for (name, batch), one in batches.items() if name == key}
    timed = {
        (label, batch): one
        for batch, held in mine.items()
        for answer in held.answers
        for label, one in answer.timed.items()
    }
    first = {number: timed.get((names[number], plan.batch_of(number))) for number in points}
    known = set(names) | {name + AGAIN for name in names}
    anchors: dict[str, dict[int, Times]] = {}
    for (label, batch), one in sorted(timed.items()):
        if label not in known:
            anchors.setdefault(label, {})[batch] = one.samples.us
    of_set = next((one.samples for one in first.values() if one), None)
    return GridAt(
        workload=workload,
        samples=tuple(one.samples.us if one else () for one in first.values()),
        worst_error=tuple(map(_worst, first.values())),
        failures=_failures(plan, names, mine, first),
        **_forecast_columns([models[number].forecasts.get(key) for number in points]),
        code=tuple(
            hashes[codes[number].at[key].hashes.sass_hash or ""] if codes[number].at else -1
            for number in points
        ),
        again={
            one.point: found.samples.us
            for one in plan.pairs
            if (found := timed.get((names[one.point] + AGAIN, one.batch)))
        },
        anchors=anchors,
        launches=tuple(one.samples.launches_per_sample if one else 0 for one in first.values()),
        sets=of_set.rotated_sets if of_set else 1,
        set_bytes=of_set.rotated_bytes if of_set else 0,
    )


def _forecast_columns(made: Sequence[KeptForecast | None]) -> dict[str, Any]:
    """What a model says of each point, as `GridAt` keeps it."""
    counters = sorted({name for one in made if one for name in one.counters})
    return {
        "forecast_us": tuple(one.time_us if one else None for one in made),
        "band_us": tuple(one.band_us if one else None for one in made),
        "bound": tuple(one.bound if one else None for one in made),
        "counters": {
            name: tuple(one.counters.get(name) if one else None for one in made)
            for name in counters
        },
    }


def renew_forecasts(grid: Grid, models: Mapping[int, PointModel], model: str) -> Grid:
    """A grid with the forecasts of another model; what was measured stays as it is."""
    for number in range(len(grid)):
        code = grid.at[0].code[number]
        timed = grid.codes[code] if code >= 0 else None
        made = models[number].hashes if number in models else None
        if (made.sass_hash if made else None) != timed:
            raise LabError(
                f"The forecast of point {number} is missing, or of other code than was timed.",
                "the two were made by different compilers, or from different sources",
                f"the phase models with NVRTC {grid.nvrtc_version}",
            )
    at = tuple(_renew_at(one, models) for one in grid.at)
    return replace(grid, plan=replace(grid.plan, model=model), at=at)


def _renew_at(at: GridAt, models: Mapping[int, PointModel]) -> GridAt:
    """One workload's columns with the forecasts of these models."""
    key = str(at.workload)
    made = [
        models[number].forecasts.get(key) if number in models else None
        for number in range(len(at.forecast_us))
    ]
    lost = [
        number
        for number, (before, after) in enumerate(zip(at.forecast_us, made, strict=True))
        if before is not None and after is None
    ]
    if lost:
        raise LabError(
            f"At {key} {how_many(len(lost), 'forecast')} would be lost, of point {lost[0]} first.",
            "a kernel that the model cannot follow has no forecast, and the grid has these",
            "the grid as it is",
        )
    return replace(at, **_forecast_columns(made))


def _worst(timed: Timed | None) -> float | None:
    error = timed.comparison.worst_error if timed else None
    return None if error is None else digits(error, 3)


def _failures(
    plan: GridPlan,
    names: Sequence[str],
    batches: Mapping[int, TimedBatch],
    first: Mapping[int, Timed | None],
) -> dict[int, str]:
    """Why points that have code have no time; a batch that was not measured is a reason too."""
    found = {}
    for number, one in first.items():
        batch = batches.get(plan.batch_of(number))
        if one is None:
            missing = "it was not timed"
            found[number] = batch.failures.get(names[number], missing) if batch else missing
    return found


def _make_full(names: Sequence[str], held: Mapping[tuple[str, int], TimedBatch]) -> FullProtocol:
    (batch,) = held.values()
    numbers = {name: number for number, name in enumerate(names)}
    rows: dict[str, list[Times]] = {}
    for answer in batch.answers:
        for label, one in answer.timed.items():
            rows.setdefault(label, []).append(one.samples.us)
    whole = {
        label: tuple(found) for label, found in rows.items() if len(found) == len(batch.answers)
    }
    again = {label.removesuffix(AGAIN): one for label, one in whole.items() if AGAIN in label}
    return FullProtocol(
        samples={numbers[label]: one for label, one in whole.items() if label in numbers},
        again={numbers[label]: one for label, one in again.items()},
        anchors={
            label: one
            for label, one in whole.items()
            if label not in numbers and AGAIN not in label
        },
        failures={
            numbers[label]: text for label, text in batch.failures.items() if label in numbers
        },
    )


def describe_grid(grid: Grid) -> str:
    """What a campaign found, in a few lines: coverage, noise, drift, the best points."""
    plan, family = grid.plan, load_family(grid.plan.family)
    lines = [
        f"{len(grid)} points of {plan.rung} on {plan.gpu}, {len(grid.codes)} different codes, "
        f"{len(grid.problems)} without code, {plan.model}, NVRTC {grid.nvrtc_version}"
    ]
    start = grid.number(family.start)
    for at in grid.at:
        middles = {number: statistics.median(us) for number, us in enumerate(at.samples) if us}
        errors = [at_us / us for n, us in middles.items() if (at_us := at.forecast_us[n])]
        lines.append(
            f"{at.workload}: {len(middles)} timed, {len(at.failures)} without a time; "
            f"{len(errors)} have a time and a forecast"
        )
        lines += [f"  {text[:200]}" for text in list(dict.fromkeys(at.failures.values()))[:5]]
        lines += _say_noise(grid, at)
        lines += _say_fastest(grid, family, middles, 3)
        if start in middles:
            lines.append(f"  {middles[start]:.2f} us: the start")
        if errors:
            low, middle, high = np.percentile(errors, (5, 50, 95))
            lines.append(f"  forecast over measured: {middle:.2f} ({low:.2f} to {high:.2f})")
    if grid.full is not None:
        lines += _say_full(grid, grid.full, family)
    return "\n".join(lines)


def _say_noise(grid: Grid, at: GridAt) -> list[str]:
    said = []
    for apart in (False, True):
        pairs = [one for one in grid.identical(at.workload) if one[2] == apart]
        off = [abs(statistics.median(b) / statistics.median(a) - 1) for a, b, _ in pairs]
        if off:
            quantile = float(np.quantile(off, CONFIDENCE, method="higher"))
            said.append(
                f"  identical kernels in {'two batches' if apart else 'one batch'}: "
                f"{len(off)} pairs, median {np.median(off):.2%}, 95 % within {quantile:.2%}, "
                f"most {max(off):.2%}"
            )
    for name, rows in at.anchors.items():
        middles = [statistics.median(us) for us in rows.values()]
        said.append(
            f"  {name}: {statistics.median(middles):.2f} us in {len(middles)} batches, "
            f"{min(middles):.2f} to {max(middles):.2f}"
        )
    return said


def _say_fastest(grid: Grid, family: Family, middles: Mapping[int, float], count: int) -> list[str]:
    fastest = sorted(middles, key=lambda number: middles[number])[:count]
    return [f"  {middles[n]:.2f} us: {family.point(grid.plan.knobs_of(n)).key}" for n in fastest]


def _say_full(grid: Grid, full: FullProtocol, family: Family) -> list[str]:
    at = grid.at[0]
    middles = {number: median_us(samples_of(rows, at)) for number, rows in full.samples.items()}
    best = full.samples[min(middles, key=lambda number: middles[number])] if middles else ()
    lines = [f"full protocol: {len(middles)} points, {len(full.failures)} refused"]
    lines += [f"  {text[:200]}" for text in dict.fromkeys(full.failures.values())]
    lines += _say_fastest(grid, family, middles, 5)
    for name, rows in full.anchors.items():
        lines.append(f"  {name}: {median_us(samples_of(rows, at)):.2f} us")
        if best and not name.startswith("ceiling"):
            mine, theirs = (list(map(np.asarray, samples)) for samples in (best, rows))
            ratio, low, high = ratio_of_samples(mine, theirs)
            lines.append(f"    the best over it: {ratio:.3f} ({low:.3f} to {high:.3f})")
    return lines


# -------------------------------------------------------------------- does the code still fit


def draw_points(grid: Grid, count: int, seed: int = 0) -> list[int]:
    """Some points that have code, drawn without replacement."""
    having = [number for number, code in enumerate(grid.at[0].code) if code >= 0]
    drawn = np.random.default_rng(seed).permutation(len(having))[:count]
    return sorted(having[place] for place in drawn)


def changed_codes(grid: Grid, family: Family, numbers: Iterable[int]) -> dict[int, str]:
    """Of some points, compiled again, those whose machine code is another now, by their number, and
    why. Raises CompilerMissing: there is no compiler; LabError: it is another than the grid's."""
    here = find_compiler("live").version
    if here != grid.nvrtc_version:
        raise LabError(
            "The codes of the grid cannot be compared here.",
            f"they were made by NVRTC {grid.nvrtc_version}, and here is {here}",
            "the text is compared without a compiler",
        )
    limits = load_gpu(grid.plan.gpu).limits
    whys = {number: _recompile(grid, family, number, limits) for number in numbers}
    return {number: why for number, why in whys.items() if why}


def _recompile(grid: Grid, family: Family, number: int, limits: Limits) -> str:
    """Why a point's code is another now; empty where it is the same."""
    for at in grid.at:
        known = grid.codes[at.code[number]] if at.code[number] >= 0 else None
        try:
            knobs = grid.plan.knobs_of(number)
            now = kernel_hashes(family.rung, at.workload, limits, knobs, compiler="live").sass_hash
        except LabError as error:
            return f"it has no code now: {error}" if known else ""
        if known is None:
            return "it has code now"
        if now != known:
            return f"its machine code on {at.workload} is another"
    return ""
