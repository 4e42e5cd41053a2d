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
    """The shipped rung of these bits, its launch, and whether that is the derived one."""
    from labtools.problem import list_rungs

    name = {16: "r09_inverted", 8: "r10_inverted_int8", 4: "r11_inverted_int4"}[design.bits]
    rung = next((one for one in list_rungs() if one.id == name), None)
    if rung is None:
        return None
    knobs = rung.resolve_knobs() | _sms(design, rung)
    derived = {
        "blocks": design.blocks,
        "threads": 32 * design.warps,
        "smem_bytes": design.smem_bytes,
        "cluster": design.cluster,
    }
    data: dict[str, Any] = {"id": rung.id, "knobs": knobs, "derived": derived, "launched": None}
    data["cannot_run"] = rung.supports(design.workload)
    if data["cannot_run"] is None:
        launch = rung.launches(design.workload, knobs)[-1]
        data["launched"] = {
            "blocks": launch.num_blocks,
            "threads": launch.num_threads,
            "smem_bytes": launch.smem_bytes,
            "cluster": _cluster_of(design, rung, knobs),
        }
    data["same"] = data["launched"] == derived
    return data


def _cluster_of(design: Design, rung: Rung, knobs: dict[str, int]) -> int:
    """Blocks of a cluster of the launch; GPUs before sm_90 have none."""
    from labtools.predict import load_gpu

    if load_gpu(design.gpu).compute_capability < (9, 0):
        return 1
    return int(rung.defines(design.workload, knobs).get("CLUSTER", "1"))


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
        f"derived: {design.arithmetic}, tile of {design.tile_keys} keys, "
        f"{design.warps_per_sm} warps an SM, {design.stages} stages, {design.blocks} blocks of "
        f"{design.warps} warps in clusters of {design.cluster}, {design.smem_bytes:,} bytes of "
        f"shared memory a block, {design.time_us:.2f} us  [computed]"
    )
    if rung is None:
        return
    if rung["launched"] is None:
        line(f"{rung['id']} cannot run this: {rung['cannot_run']}")
        return
    made = rung["launched"]
    line(
        f"{rung['id']} launches {made['blocks']} blocks of {made['threads'] // 32} warps in "
        f"clusters of {made['cluster']} with {made['smem_bytes']:,} bytes: "
        + ("the same" if rung["same"] else "not the same")
    )


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
