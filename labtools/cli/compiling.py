"""``labtools compile``: what the compiler makes of a rung, for any architecture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .given import check_supported, read_knobs, read_rung, read_workload
from .outcome import Outcome, Progress, UsageProblem, typed

if TYPE_CHECKING:
    from rich.console import Console


def compile_for(
    name: str,
    arches: str,
    workload_text: str,
    chosen: Sequence[str] | None,
    with_sass: bool,
    progress: Progress,
) -> Outcome:
    """Compile a rung for each architecture; only the kernels that it launches are listed."""
    from labtools.problem import LabError
    from labtools.toolchain import CompileError, CompilerMissing, compile_rung, disassemble
    from labtools.toolchain.options import check_arch

    rung = read_rung(name)
    workload = read_workload(workload_text)
    knobs = read_knobs(rung, chosen)
    check_supported(rung, workload, knobs)
    with typed():
        wanted = [check_arch(arch.strip()) for arch in arches.split(",") if arch.strip()]
        if not wanted:
            raise LabError(
                "No architecture was given.", "--arch is empty", "--arch sm_90 is an H100 or H200"
            )
    rows: list[dict[str, Any]] = []
    listings: dict[str, str] = {}
    nvrtc = ""
    for arch in wanted:
        progress(f"compiling {rung.id} for {arch}")
        try:
            cubin = compile_rung(rung, workload, knobs, arch)
        except (CompileError, CompilerMissing):
            raise
        except LabError as error:  # this compiler does not know the architecture
            raise UsageProblem(error) from error
        nvrtc = cubin.nvrtc_version
        for launch in rung.launches(workload, knobs):
            resources = asdict(cubin.resources_of(launch.entry))
            rows.append(
                {
                    "arch": arch,
                    "entry": launch.entry,
                    **resources,
                    "grid": list(launch.grid),
                    "block": list(launch.block),
                    "dynamic_smem_bytes": launch.smem_bytes,
                }
            )
            if with_sass:
                listings[f"{arch} {launch.entry}"] = disassemble(cubin, launch.entry)
    data = {
        "rung": rung.id,
        "workload": workload.to_dict(),
        "knobs": knobs,
        "nvrtc_version": nvrtc,
        "origin": "computed",
        "kernels": rows,
    }
    if with_sass:
        data["sass"] = listings
    return Outcome(data, lambda console: _show(console, data))


def _show(console: Console, data: dict[str, Any]) -> None:
    from rich.table import Table

    knobs = " ".join(f"{key}={value}" for key, value in data["knobs"].items())
    console.print(
        f"{data['rung']}  {knobs}  computed by NVRTC {data['nvrtc_version']}", markup=False
    )
    table = Table(box=None, pad_edge=False)
    columns = ("arch", "kernel", "registers", "shared B", "spill stores B", "spill loads B")
    for column in (*columns, "stack B", "threads"):
        table.add_column(column, justify="left" if column in ("arch", "kernel") else "right")
    for row in data["kernels"]:
        threads = row["block"][0] * row["block"][1] * row["block"][2]
        shared = row["shared_bytes"] + row["dynamic_smem_bytes"]
        table.add_row(
            row["arch"],
            row["entry"],
            *map(
                str,
                (
                    row["registers"],
                    shared,
                    row["spill_store_bytes"],
                    row["spill_load_bytes"],
                    row["local_bytes"],
                    threads,
                ),
            ),
        )
    console.print(table, soft_wrap=False)
    for title, listing in data.get("sass", {}).items():
        console.print(f"\n{title}\n{listing}", markup=False)
