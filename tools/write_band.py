"""Write ``labtools/predict/band.toml``: the largest factor between forecast and measurement.

A new kernel is a harder case than the calibration points, so the worst is taken and no quantile.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labtools.predict import forecast, load_gpu
from labtools.problem import load_rung
from labtools.record import read_records, shipped_records_dir

GPU = "h200"
TARGET = Path(__file__).parents[1] / "labtools" / "predict" / "band.toml"


def write() -> None:
    """Forecast the calibration points and write the band."""
    records, _ = read_records(shipped_records_dir() / GPU / "points_calibration.jsonl.gz")
    gpu = load_gpu(GPU)
    ratios = []
    for record in records:
        if record.kind != "rung":
            continue
        made = forecast(load_rung(record.name), record.problem, gpu, record.knobs)
        ratios.append(record.median_us / made.time_us)
    worst = float(np.exp(np.abs(np.log(ratios)).max()))
    low, high = 1 / worst, worst
    TARGET.write_text(
        f"# Written by make regen; do not edit. The worst of {len(ratios)} calibration points.\n"
        f"low = {low:.3f}\nhigh = {high:.3f}\npoints = {len(ratios)}\n",
        "utf-8",
    )
