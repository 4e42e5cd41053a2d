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

    ``registers``, ``spilled`` and ``smem`` bytes are None with the reason as ``not_compiled``;
    ``time``, ``bound`` and ``calibrated`` with the reason as ``not_forecast``. A forecast below
    ``floor_us``, which no kernel can beat, is not believed.
    """
    rung, problem = load_rung(kernel), parse_problem(workload)
    compiled: dict[str, Any] = dict.fromkeys(("registers", "spilled", "smem"))
    made: dict[str, Any] = dict.fromkeys(("time", "bound", "calibrated"))
    try:
        compiled = _compiled(rung, problem, gpu, knobs)
    except LabError as error:
        compiled["not_compiled"] = _said(error)
    try:
        model = forecast(rung, problem, gpu, knobs)
        if model.time_us < BELIEVED * floor_us:
            made["not_forecast"] = (
                f"It would say {model.time_us:.3g} us, and no kernel can take less than "
                f"{floor_us:.3g}: the model does not understand this machine code yet."
            )
        else:
            made = {"time": round(model.time_us, 3), "bound": model.bound}
            made |= {"calibrated": model.calibrated, "not_forecast": ""}
    except LabError as error:
        made["not_forecast"] = _said(error)
    return {**compiled, **made}


def _compiled(rung: Rung, problem: Problem, gpu: Gpu, knobs: Mapping[str, int]) -> dict[str, Any]:
    launch = timed_launches(rung.launches(problem, gpu.limits, knobs))[-1]
    used = compile_rung(rung, problem, gpu.limits, knobs).resources_of(launch.entry)
    return {
        "registers": used.registers,
        "spilled": used.spill_store_bytes,
        "smem": used.shared_bytes + launch.smem_bytes,
        "threads": launch.num_threads,
        "blocks": launch.num_blocks,
        "not_compiled": "",
    }


def _said(error: LabError) -> str:
    """What happened and why, in two sentences."""
    what, why = error.what.strip(), error.why.strip()
    return f"{what} Why: {why}".strip()
