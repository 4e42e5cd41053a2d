"""Write ``labtools/predict/band.toml``: the bands of a GPU's families of kernels.

A band holds the middle `KEPT` of what is off on points of the family, drawn where there are many.
Points whose forecast the model made before they were measured have no part in it: of them it is
counted how many lie in the band.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from labtools.predict import forecast_each, load_gpu
from labtools.predict.bands import BANDS, FAMILIES, KEPT, SAID_BEFORE, Band, family_of
from labtools.problem import load_rung
from labtools.record import Record, freshness, read_records, shipped_records_dir
from labtools.toolchain.listings import machine_code

GPUS = ("h200",)
MOST_POINTS = 80
"""Of a family, drawn: each takes about a second."""
FRESH = "families"
"""Beginning of the name of a campaign of which no point was seen before."""


def write() -> None:
    """Forecast points of every family and write the bands."""
    lines = [f"# Written by make regen; do not edit. The middle {KEPT:.0%} of what is off."]
    for gpu in GPUS:
        for family, records in _by_family(gpu).items():
            band = _band(gpu, records)
            lines += ["", f"[{gpu}.{family}]", f"low = {band.low:.3f}", f"high = {band.high:.3f}"]
            lines += [f"{name} = {getattr(band, name)}" for name in ("fitted", "held", "fresh")]
    BANDS.write_text("\n".join(lines) + "\n", "utf-8")


def _by_family(gpu: str) -> dict[str, list[Record]]:
    """The newest record of each kernel, its knobs and problem, by family."""
    sheet = load_gpu(gpu)
    newest: dict[tuple[str, str, str], Record] = {}
    for path in sorted((shipped_records_dir() / gpu).glob("*.jsonl.gz")):
        for one in read_records(path)[0]:
            if one.kind != "rung" or one.problem.operation not in FAMILIES or not one.forecast:
                continue
            if freshness(one).fresh:  # of code as it stands
                newest[one.name, str(sorted(one.knobs.items())), one.problem.key()] = one
    found: dict[str, list[Record]] = {name: [] for name in FAMILIES}
    families: dict[tuple[str, str], str | None] = {}
    for (name, knobs, _), one in newest.items():
        if (name, knobs) not in families:
            rung = load_rung(name)
            launches = rung.launches(one.problem, sheet.limits, one.knobs)
            chosen = rung.resolve_knobs(one.knobs)
            code = machine_code(rung, one.problem, sheet.limits, chosen).entries.values()
            families[name, knobs] = family_of(one.problem, launches, code)
        if family := families[name, knobs]:
            found[family].append(one)
    return found


def _band(gpu: str, records: Sequence[Record]) -> Band:
    fresh: list[Record] = []
    seen: list[Record] = []
    for one in records:
        before = one.forecast if one.campaign.startswith(FRESH) else None
        (fresh if before and before.model in SAID_BEFORE else seen).append(one)
    drawn = Random(0).sample(seen, min(MOST_POINTS, len(seen)))
    made = forecast_each([(load_rung(r.name), r.problem, gpu, r.knobs) for r in drawn])
    off = [r.median_us / one.time_us for r, one in zip(drawn, made, strict=True) if not one.doubts]
    low, high = np.quantile(off, [(1 - KEPT) / 2, (1 + KEPT) / 2])
    of = [r.median_us / r.forecast.time_us for r in fresh if r.forecast]
    held = sum(low <= one <= high for one in of)
    return Band(float(low), float(high), len(off), held, len(of))
