"""Kernels of the kinds that stand in public repositories: what the tools say of each, and that a
variant which is wrong is found."""

from __future__ import annotations

import ast
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_compilers import H200, needs_triton

from labtools.measure.check import check_rung
from labtools.measure.cpu import run_on_cpu
from labtools.predict import forecast, load_gpu
from labtools.problem import load_rung, operation_of
from labtools.record.bound import counted_bound
from research.measure_public import PUBLIC_DIR, measured_path, rung_files

FILES = rung_files()
MOST_LINES = 12
each_file = pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[needs_triton] * path.stem.startswith("triton"))
        for path in FILES
    ],
)


@each_file
def test_each_is_forecast_and_not_below_its_floor(path: Path) -> None:
    rung = load_rung(path)
    found = forecast(rung, operation_of(rung).headline, H200)
    assert found.time_us > found.floor.least_us > 0


@each_file
@pytest.mark.slow
def test_each_is_right(path: Path) -> None:
    rung = load_rung(path)
    report = check_rung(rung, operation_of(rung).small, quick=True)
    assert report.ok, report.summary


FORECASTS: dict[str, Any] = json.loads((PUBLIC_DIR / "forecasts.json").read_text("utf-8"))
MEASURED: dict[str, Any] = json.loads(measured_path("h200").read_text("utf-8"))["kernels"]
"""What was measured, each with what the model of that day had said before."""


def _off(said: dict[str, Any]) -> dict[str, float]:
    """The larger of what was said and what was measured over the smaller, by kernel."""
    ratios = {
        name: said[name]["time_us"] / statistics.median(row["us"]) for name, row in MEASURED.items()
    }
    return {name: max(one, 1 / one) for name, one in ratios.items()}


def test_what_was_said_before_is_near_to_what_was_measured() -> None:
    assert len(MEASURED) >= 43
    off = _off({name: row["said"] for name, row in MEASURED.items()})
    assert statistics.median(off.values()) <= 1.12
    assert {name for name, one in off.items() if one > 1.35} == {*FAR, ROPE}
    for name, row in MEASURED.items():
        if row["said"]["model"] == FORECASTS[name]["model"]:
            assert row["said"]["time_us"] == FORECASTS[name]["time_us"]


FAR = {"row_scan", "softmax1_naive", "softmax2_warp", "transpose1_naive"}
"""Of which the forecast was off by more than 1.35 when they were measured: each reads or writes
memory in small pieces that lie far apart, or scans. A later model was made with them in sight."""
ROPE = "rope"
"""It turns vectors in place and takes half as long again as is said; why is not known."""


def test_what_is_said_now_is_near_to_what_was_measured() -> None:
    off = _off(FORECASTS)
    assert statistics.median(off.values()) <= 1.12
    assert {name for name, one in off.items() if one > 1.35} == {ROPE}


def test_the_ladder_of_products_stands_in_its_order() -> None:
    ladder = [name for name in MEASURED if name.startswith("sgemm")]
    said = [MEASURED[name]["said"]["time_us"] for name in ladder]
    measured = [statistics.median(MEASURED[name]["us"]) for name in ladder]
    assert len(ladder) == 10
    places = [np.argsort(np.argsort(times)) for times in (said, measured)]
    assert np.corrcoef(*places)[0, 1] >= 0.92


def test_counters_show_the_bound_that_was_said() -> None:
    shown = {}
    for name, row in MEASURED.items():
        if not row["counters"]:
            continue
        counted = counted_bound(
            row["counters"],
            empty_launch_us=row["counters"]["empty_launch_us"],
            max_warps_per_sm=load_gpu("h200").max_warps_per_sm,
        )
        if counted.bound:
            shown[name] = counted.bound
    right = [name for name, bound in shown.items() if MEASURED[name]["said"]["bound"] == bound]
    assert len(shown) >= 15 and len(right) >= 0.85 * len(shown)


def longest_function(text: str) -> int:
    """Lines of its body."""
    made = [one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)]
    return max(((one.end_lineno or 0) - one.body[0].lineno + 1 for one in made), default=0)


def test_a_reference_is_short() -> None:
    assert longest_function("def f():\n    x = 1\n    return x") == 2
    assert len(FILES) >= 30
    lengths = {path.stem: longest_function(path.read_text()) for path in FILES}
    assert max(lengths.values()) <= MOST_LINES, lengths


BARRIER = "    __syncthreads();\n"
WRONG = {
    "sgemm03_shared": ("b_tile[k * BLOCK + tx];\n" + BARRIER, "b_tile[k * BLOCK + tx];\n", "race"),
    "sgemm10_warptiled": (
        "B += BK * N;\n" + BARRIER + "  }\n  for",
        "B += BK * N;\n  }\n  for",
        "race",
    ),
    "softmax3_block": ("  __syncthreads();\n\n  float sum", "\n  float sum", "race"),
    "softmax4_online": ("larger.sum + smaller.sum *", "larger.sum + larger.sum *", ""),
    "rms_norm_add": ("r[i] = z;", "r[i] = x[i];", ""),
    "layer_norm": ("if (row >= N) return;", "", "out_of_bounds"),
    "transpose2_tiled": ("  __syncthreads();\n", "", "race"),
    "reduction1_atomic": ("atomicAdd(out, sum)", "*out += sum", "race"),
    "reduction2_groups": ("    cg::sync(block);\n  }", "  }", "race"),
    "histogram": ("atomicAdd(&local[values[i]], 1)", "local[values[i]]++", "race"),
    "row_scan": (BARRIER + "  }\n}", "  }\n}", "race"),
    "paged_attention": (
        "i < seq_len; i += NUM_THREADS) {",
        "i < seq_len - 1; i += NUM_THREADS) {",
        "",
    ),
    "decode_attention": (
        "  __syncthreads();\n  if (threadIdx.x < H",
        "  if (threadIdx.x < H",
        "race",
    ),
    "flash_attention1": (BARRIER + "  }\n  rows.store", "  }\n  rows.store", "race"),
    "flash_attention2": (
        '1;");\n    __syncthreads();\n    rows',
        '2;");\n    __syncthreads();\n    rows',
        "async_copy",
    ),
    "gelu": ("v.w", "v.z", ""),
    "gemv3_split": ("atomicAdd(y + column, sum)", "y[column] += sum", "race"),
    "cross_entropy": ("= value;\n  __syncthreads();\n", "= value;\n", "race"),
    "conv1d": ("  __syncthreads();\n", "", "race"),
    "conv2d": ("row < height &&", "row <= height &&", ""),
    "bitonic_sort": ("low & size", "low & stride", ""),
    "aos_to_soa": ("  if (i >= n) return;\n", "", "out_of_bounds"),
    "embedding": ("place % T", "place / T", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_found(tmp_path: Path, name: str) -> None:
    old, new, kind = WRONG[name]
    rung: Any = load_rung(shutil.copytree(PUBLIC_DIR, tmp_path / "public") / f"{name}.py")
    text = rung.source.read_text()
    assert text.count(old) >= 1
    rung.source.write_text(text.replace(old, new))
    rung = load_rung(tmp_path / "public" / f"{name}.py")
    run = run_on_cpu(rung, operation_of(rung).small)
    assert not run.ok
    assert not kind or kind in {one.kind for one in run.faults}, run
