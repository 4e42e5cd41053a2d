"""``labtools derive``: from a GPU's limits to a decode kernel, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .forecasting import DEFAULT_GPU
from .given import read_workload
from .outcome import Outcome, Progress, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.predict.derivation import Design, Figure, Step
    from labtools.problem import Rung


def derive_kernel(
    workload_text: str, gpu_name: str | None, bits: int, progress: Progress
) -> Outcome:
    """The derivation for a workload on a GPU, and beside it the rung that follows from it."""
    from labtools.predict import gpu_of_device, load_gpu
    from labtools.predict.inversion import derive

    workload = read_workload(workload_text)
    with typed():
        gpu = (gpu_of_device() or load_gpu(DEFAULT_GPU)) if gpu_name is None else load_gpu(gpu_name)
        progress(f"deriving a kernel for {gpu.title}")
        design = derive(workload, gpu, bits)
    data: dict[str, Any] = {"origin": "computed", **design.to_dict()}
    data["rung"] = _rung_of(design)
    return Outcome(data, lambda console: _show(console, design, data["rung"]))


def _rung_of(design: Design) -> dict[str, Any] | None:
    """The shipped rung of these bits, its defaults, and whether they are the derived values."""
    from labtools.problem import list_rungs

    name = {16: "r09_inverted", 8: "r10_inverted_int8", 4: "r11_inverted_int4"}[design.bits]
    rung = next((one for one in list_rungs() if one.id == name), None)
    if rung is None:
        return None
    knobs = rung.resolve_knobs()
    derived = {"tile": design.tile_keys, "warps": design.warps, "stages": design.stages}
    derived = {key: value for key, value in derived.items() if key in knobs}
    supported = rung.supports(design.workload)
    grid = None
    if supported is None:
        grid = list(rung.launches(design.workload, _sms(design, rung))[-1].grid)
    return {
        "id": rung.id,
        "defaults": knobs,
        "derived": derived,
        "same": all(knobs.get(key) == value for key, value in derived.items()),
        "grid": grid,
        "cannot_run": supported,
    }


def _sms(design: Design, rung: Rung) -> dict[str, int]:
    """The knob that tells the rung how many SMs there are, where it has that number."""
    from labtools.predict import load_gpu

    count = load_gpu(design.gpu).sm_count
    return {k.name: count for k in rung.knobs if k.name == "sms" and count in k.choices}


def _number(figure: Figure) -> str:
    value = figure.value
    if float(value).is_integer():
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.3g}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{text} {figure.unit}".strip()


def _show(console: Console, design: Design, rung: dict[str, Any] | None) -> None:
    def line(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    line(f"{design.workload} with {design.bits} bits on {design.gpu}  [computed]")
    if not design.calibrated:
        line("uncalibrated: this GPU's latencies and rates were not measured by this project")
    for number, step in enumerate(design.steps, 1):
        line("")
        line(f"{number}. {step.question}")
        _show_step(line, step)
    line("")
    line(
        f"derived: {design.arithmetic}, tile of {design.tile_keys} keys, {design.warps} warps, "
        f"{design.stages} stages, {design.smem_bytes:,} bytes of shared memory, "
        f"{design.split} piece(s) of {design.piece_len} keys, {design.blocks} blocks, "
        f"{design.time_us:.2f} us  [computed]"
    )
    if rung is not None:
        agree = "the same" if rung["same"] else "not the same"
        knobs = " ".join(f"{key}={value}" for key, value in rung["defaults"].items())
        derived = " ".join(f"{key}={value}" for key, value in rung["derived"].items())
        line(f"{rung['id']} by default: {knobs}; derived {derived}: {agree}")


def _show_step(line: Any, step: Step) -> None:
    for figure in step.inputs:
        line(f"     {figure.name}: {_number(figure)}  ({figure.source})")
    line(f"   {step.formula}")
    for figure in step.results:
        line(f"   = {figure.name}: {_number(figure)}")
    line(f"   so: {step.decision}")
    for one in step.rejected:
        number = _number_of(one.value, one.unit)
        line(f"   not {one.choice}: {number}; {one.why}")
    line(f"   would change with: {step.breaks}")


def _number_of(value: float, unit: str) -> str:
    from labtools.predict.derivation import Figure

    return _number(Figure("", value, unit))
