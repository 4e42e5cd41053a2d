"""The commands and their options. What each one does stands in the modules beside this one.

Those modules, and all of labtools, are imported when a command runs: ``--help`` must be quick.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from .given import (
    HEADLINE_TEXT,
    SMALL_TEXT,
    ArgOption,
    BlockOption,
    Commands,
    DefineOption,
    EntryOption,
    GridOption,
    IncludeOption,
    JsonOption,
    KnobOption,
    RungArgument,
    RungAsked,
    SmemOption,
    VerboseOption,
    WorkloadOption,
    either_asked,
)
from .loop_app import KernelOption, LoopWorkloadOption, OnOption, loop_app
from .outcome import present

EPILOG = (
    "Exit status: 0 right; 1 the kernel is wrong or a check failed; 2 the command line was wrong; "
    "3 something needed is missing (a GPU, a tool, a permission); 4 a mistake in labtools itself; "
    "130 stopped."
)
TRUST = (
    "Trying a kernel executes its Python file and its machine code as you, with all that you may "
    "do; a process of its own is no sandbox."
)

app = Commands(
    help="Predict, check, measure and explain decode-attention kernels.",
    epilog=f"{TRUST} {EPILOG}",
    of_each=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from labtools import __version__

        typer.echo(f"labtools {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error happened; may stand anywhere.")
    ] = False,
) -> None:
    """Predict, check, measure and explain decode-attention kernels."""


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Say what is here, what is missing, why, and what still works."""
    from .doctor import examine

    present(examine, as_json)


@app.command()
def run(
    rung: RungArgument,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="B,Hq,Hkv,S,D|NAME:...|FILE.json",
            help=f"Default: {HEADLINE_TEXT} on a GPU, {SMALL_TEXT} on the CPU, or what the rung's "
            "operation takes for usual.",
        ),
    ] = None,
    on: Annotated[
        Literal["cpu", "gpu"] | None,
        typer.Option(help="Where. Default: gpu when there is one, else cpu; it says which."),
    ] = None,
    knob: KnobOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer cases, and one timed process.")
    ] = False,
    all_: Annotated[
        bool,
        typer.Option("--all", help="The cases of every type and layout that the kernel supports."),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Draw the last cases as a check did that named this seed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a kernel against the oracle; on a GPU time it too."""
    from .running import run_named_rung

    asked = RungAsked(rung, workload, knob)
    present(partial(run_named_rung, asked, on, quick, seed, all_), as_json)


@app.command()
def forecast(
    rung: RungArgument,
    workload: WorkloadOption = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="A data sheet, as h200 or mine.toml. Default: this GPU, else h200."),
    ] = None,
    knob: KnobOption = None,
    entry: EntryOption = None,
    grid: GridOption = None,
    block: BlockOption = None,
    smem: SmemOption = "0",
    arg: ArgOption = None,
    define: DefineOption = None,
    include: IncludeOption = None,
    what_if: Annotated[
        float | None,
        typer.Option(
            help="Also say what each kind of latency this many times as long would do, e.g. 0.5."
        ),
    ] = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say how long it should take and what bounds it, from its machine code. Needs no GPU.

    Of any .cu, .ptx, .cubin, .so, .o or Triton .py its launch is enough: --entry to --include.
    """
    from .forecasting import forecast_rung

    launch = {"entry": entry, "grid": grid, "block": block, "smem": smem, "args": arg}
    asked = either_asked(rung, workload, knob, **launch, defines=define, include=include)
    present(partial(forecast_rung, asked, gpu, what_if), as_json, verbose)


@app.command()
def adopt(
    kernel: Annotated[
        str, typer.Argument(metavar="FILE.cu|.py|.ptx|.cubin|.so", help="The kernel's file.")
    ],
    entry: EntryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write down how a kernel of yours is launched, as a file to fill in."""
    from .adopting import adopt_kernel

    present(partial(adopt_kernel, kernel, entry), as_json)


@app.command()
def derive(
    workload: WorkloadOption = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="A data sheet, for example h200 or a100-80gb. Default: this GPU's."),
    ] = None,
    bits: Annotated[
        int, typer.Option(help="Of an element of K and V, of decode alone: 16, 8 or 4.")
    ] = 16,
    op: Annotated[
        str | None,
        typer.Option(
            help="What is computed: decode, prefill, gemm, conv, moe or rows. Default: as the "
            "workload says, else decode."
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Share of the bound that is aimed at, not of decode; 0.85 without it."),
    ] = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Derive a kernel from a GPU's limits: tile, warps, stages, layout, time."""
    from .deriving import derive_any

    present(partial(derive_any, op, workload, gpu, bits, target), as_json, verbose)


@app.command("compile")
def compile_(
    rung: RungArgument,
    arch: Annotated[
        str | None,
        typer.Option(
            help="One or more, with commas: sm_75,sm_80,sm_89,sm_90,sm_120. Default: the GPU's."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="A data sheet, as h200 or mine.toml. Default: this GPU, else h200."),
    ] = None,
    workload: WorkloadOption = None,
    knob: KnobOption = None,
    entry: EntryOption = None,
    grid: GridOption = None,
    block: BlockOption = None,
    smem: SmemOption = "0",
    arg: ArgOption = None,
    define: DefineOption = None,
    include: IncludeOption = None,
    sass: Annotated[bool, typer.Option("--sass", help="Show the machine code too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compile for any GPU and show registers, shared memory and spills. Needs no GPU.

    Of any .cu, .ptx, .cubin, .so, .o or Triton .py its launch is enough: --entry to --include.
    """
    from .compiling import compile_for

    launch = {"entry": entry, "grid": grid, "block": block, "smem": smem, "args": arg}
    asked = either_asked(rung, workload, knob, **launch, defines=define, include=include)
    present(partial(compile_for, asked, arch, gpu, sass), as_json)


@app.command()
def profile(
    rung: RungArgument,
    workload: WorkloadOption = None,
    knob: KnobOption = None,
    full: Annotated[bool, typer.Option("--full", help="Every counter, about 40 passes.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Keep the report for Nsight Compute's viewer.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds.")] = 300,
    as_json: JsonOption = False,
) -> None:
    """Nsight Compute counters of a rung or baseline. Needs a GPU and ncu."""
    from .profiling import profile_target

    asked = RungAsked(rung, workload, knob)
    present(partial(profile_target, asked, full, out, time_limit), as_json)


@app.command()
def sanitize(
    rung: RungArgument,
    workload: WorkloadOption = None,
    knob: KnobOption = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="memcheck, racecheck, synccheck or initcheck; repeatable. Default: all."),
    ] = None,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for one tool.")] = 300,
    as_json: JsonOption = False,
) -> None:
    """compute-sanitizer over a rung. Needs a GPU and the CUDA toolkit."""
    from .profiling import sanitize_target

    asked = RungAsked(rung, workload, knob)
    present(partial(sanitize_target, asked, tool, time_limit), as_json)


@app.command()
def bench(
    candidate: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUNG|BASELINE|PATH.py]...",
            help="Default: every rung that supports the workload, and every library. Rungs alone "
            "are timed beside the libraries.",
            show_default=False,
        ),
    ] = None,
    workload: WorkloadOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Ratios against this one, beside those against the fastest. Default: sdpa, or the "
            "first fair one of another operation."
        ),
    ] = None,
    knob: KnobOption = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Child processes; fewer than 5 give no verdict. Default: 5."),
    ] = None,
    peers: Annotated[
        Literal["usual", "all"],
        typer.Option(
            help="What no name asked for and takes over 5 ms a call: usual checks it alone, all "
            "times it too and says first about how long that takes."
        ),
    ] = "usual",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer processes and samples.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Time candidates side by side, interleaved in the same processes. Needs a GPU.

    Each is compared with the fastest fair library in these processes and with its floor: the bytes
    that it must read at the best rate that anything here read at.
    """
    from .running import bench_candidates

    asked = (candidate, workload, baseline, knob)
    present(partial(bench_candidates, *asked, processes, quick, peers == "all"), as_json)


@app.command()
def record(
    rung: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUNG|PATH.py]",
            help="One rung, kept under work/records. Without it: a whole plan.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        str,
        typer.Option(
            help="ladder, bench, peers, quick, findings, rows, prefill, prefill_peers, gemm, "
            "layouts, roles_test or points_...; kept under kernels/records."
        ),
    ] = "ladder",
    workload: WorkloadOption = None,
    knob: KnobOption = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="Timed in the same processes; repeatable. Default: sdpa, or the first fair one of "
            "another operation."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Another folder for the records.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer processes and samples.")] = False,
    profile: Annotated[bool, typer.Option(help="Hardware counters too.")] = True,
    sanitize: Annotated[bool, typer.Option(help="compute-sanitizer too.")] = True,
    stale: Annotated[
        bool,
        typer.Option(
            "--stale", help="Of a plan only the workloads whose shipped records are out of date."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check, time and keep the records, with full provenance. Needs a GPU."""
    from .running import chosen_effort, record_one, record_plan

    effort = chosen_effort(quick, profile, sanitize)
    if rung is None:
        present(partial(record_plan, plan, out, effort, stale), as_json)
    else:
        asked = RungAsked(rung, workload, knob)
        present(partial(record_one, asked, baseline, out, effort), as_json)


@app.command()
def microbench(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the record and the table.", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="A microbenchmark or a group of them, such as pipe; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure this GPU's latencies, rates and launches, for the forecast. Needs a GPU."""
    from .microbench import measure_gpu

    present(partial(measure_gpu, out, only), as_json)


app.add_typer(loop_app, name="loop")


@app.command()
def ablate(
    kernel: KernelOption = None,
    workload: LoopWorkloadOption = None,
    on: OnOption = None,
    knob: KnobOption = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="One to take out; repeatable. Default: all that are on."),
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Two methods out at once, too.")] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Taken as by loop; nothing is drawn.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Time a point of a kernel family with one method out at a time: what each is worth.

    The point is the family's start with the knobs that are named. Times are microseconds. An effect
    is a share of the point's own time, with a 95 % interval; a method counts where the whole of it
    lies above the threshold, and is undecided where it holds the threshold.
    """
    from .ablating import ablate_kernel
    from .loop import LoopAsked

    asked = LoopAsked(kernel, workload, on, seed)
    present(partial(ablate_kernel, asked, knob, method, pairs), as_json)


@app.command("mcp")
def mcp_(
    folder: Annotated[
        Path, typer.Argument(help="Whose files the tools may name. Default: this one.")
    ] = Path(),
    trusted: Annotated[
        bool,
        typer.Option(
            "--i-trust-this-folder",
            help="Kernels and references in it run as you; without it nothing starts.",
        ),
    ] = False,
) -> None:
    """Give an agent these commands as tools, by the Model Context Protocol.

    It speaks over stdin and stdout, and reads and writes files of one folder.
    An agent's host starts it: {"command": "labtools", "args": ["mcp", "--i-trust-this-folder"]}.
    """
    from .serving import serve_agent

    serve_agent(typer.main.get_command(app), folder, trusted)


@app.command()
def records(
    gpu: Annotated[str | None, typer.Option(metavar="SLUG", help="For example h200.")] = None,
    rung: Annotated[str | None, typer.Option(metavar="ID", help="A rung or a baseline.")] = None,
    workload: Annotated[
        str | None,
        typer.Option("--workload", "-w", metavar="B,Hq,Hkv,S,D|FILE.json", show_default=False),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Older records of the same thing too.")] = (
        False
    ),
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """What was measured: time, spread, samples, knobs, workload, source, date, stale or fresh."""
    from .recorded import list_records

    present(partial(list_records, gpu, rung, workload, all_), as_json, verbose)


@app.command()
def claims(
    id_: Annotated[str | None, typer.Option("--id", metavar="ID", help="One claim only.")] = None,
    verdict: Annotated[
        str | None, typer.Option(help='Those with this verdict, such as "refuted".')
    ] = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """What others published, each figure with our value and a verdict computed now."""
    from .claims import list_claims

    present(partial(list_claims, id_, verdict), as_json, verbose)


@app.command()
def journal(
    question: Annotated[str | None, typer.Option(metavar="ID", help="One question only.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Also write a page: kernels written, and how your guesses went.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Your predictions, and how they scored."""
    from .predictions import list_predictions

    present(lambda progress: list_predictions(question, page), as_json)


@app.command()
def reset(
    page: Annotated[str, typer.Argument(help="For example labs/lab01_occupancy, or its name.")],
    as_json: JsonOption = False,
) -> None:
    """Give a fresh copy of a page in work/; your old copy is kept beside it."""
    from .pages import reset_copy

    present(lambda progress: reset_copy(page), as_json)


@app.command()
def sync(
    check: Annotated[bool, typer.Option("--check", help="Compare only; write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the kernels' text into the pages; refuses a cell edited by hand."""
    from .pages import sync_pages

    present(lambda progress: sync_pages(check), as_json)
