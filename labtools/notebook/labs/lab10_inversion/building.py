"""Compiling and forecasting what a derivation specifies, in numbers and plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labtools.predict import Gpu, forecast
from labtools.problem import LabError, Problem, Rung, load_rung, parse_problem, timed_launches
from labtools.toolchain import compile_rung

BELIEVED = 0.95
"""A forecast below so much of the floor is not believed."""


def compile_and_forecast(
    kernel: str, knobs: Mapping[str, int], workload: str, gpu: Gpu, floor_us: float
) -> dict[str, Any]:
    """What the compiler and the forecast say of a kernel; neither needs a GPU.

    Args:
        knobs: those that differ from its defaults.
        floor_us: what no kernel can beat; a forecast below it is not believed.

    Returns:
        ``registers``, ``spilled`` and ``smem`` bytes, or None with the reason as ``not_compiled``;
        ``time``, ``bound`` and ``calibrated``, or None with the reason as ``not_forecast``.
    """
    rung, problem = load_rung(kernel), parse_problem(workload)
    return {
        **_compiled(rung, problem, gpu, knobs),
        **_forecast(rung, problem, gpu, knobs, floor_us),
    }


def _compiled(rung: Rung, problem: Problem, gpu: Gpu, knobs: Mapping[str, int]) -> dict[str, Any]:
    try:
        launch = timed_launches(rung.launches(problem, gpu.limits, knobs))[-1]
        used = compile_rung(rung, problem, gpu.limits, knobs).resources_of(launch.entry)
    except LabError as error:
        return {"registers": None, "spilled": None, "smem": None, "not_compiled": _said(error)}
    return {
        "registers": used.registers,
        "spilled": used.spill_store_bytes,
        "smem": used.shared_bytes + launch.smem_bytes,
        "threads": launch.num_threads,
        "blocks": launch.num_blocks,
        "not_compiled": "",
    }


def _forecast(
    rung: Rung, problem: Problem, gpu: Gpu, knobs: Mapping[str, int], floor_us: float
) -> dict[str, Any]:
    try:
        model = forecast(rung, problem, gpu, knobs)
    except LabError as error:
        return {"time": None, "bound": None, "calibrated": None, "not_forecast": _said(error)}
    if model.time_us < BELIEVED * floor_us:
        said = (
            f"It would say {model.time_us:.3g} us, and no kernel can take less than "
            f"{floor_us:.3g}: the model does not understand this machine code yet."
        )
        return {"time": None, "bound": None, "calibrated": None, "not_forecast": said}
    return {
        "time": round(model.time_us, 3),
        "bound": model.bound,
        "calibrated": model.calibrated,
        "not_forecast": "",
    }


def _said(error: LabError) -> str:
    """What happened and why, in two sentences."""
    what, why = error.what.strip(), error.why.strip()
    return f"{what} Why: {why}".strip()
