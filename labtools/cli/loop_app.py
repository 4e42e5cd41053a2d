"""The options of ``labtools loop``. What each step does stands in `loop`, and is imported late."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .given import Commands, JsonOption
from .outcome import present

LOOP_EPILOG = (
    "A step out of order ends with status 2 and names the next one. Everything is kept in DIR: a "
    "step that was cut off goes on where it was. Exit status: as labtools --help says."
)
loop_app = Commands(
    help="Optimise a kernel family round by round: gaps, budget, pick, branch, ablate, check, "
    "update. Each step may be driven alone; run plays them all.",
    of_each=LOOP_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _option(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, show_default=False, **more)


Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The loop's folder.", show_default=False)
]
KernelOption = Annotated[
    str | None,
    _option(
        "A kernel family: a shipped one, or the .py file of another, whose Python and machine code "
        "then run as you, with the .cu and the .toml of the same name beside it; init takes a "
        "kernel without .toml too, of which you write the branches. Default: tunable.",
        "--kernel",
        metavar="FAMILY|PATH.py",
    ),
]
NamedOption = Annotated[
    str | None,
    _option(
        "The family of a loop that was not begun here: its Python runs as you, and the log alone "
        "does not have it loaded.",
        "--kernel",
        metavar="FAMILY|PATH.py",
    ),
]
LoopWorkloadOption = Annotated[
    str | None,
    _option(
        "Default: the family's headline.",
        "--workload",
        "-w",
        metavar="B,Hq,Hkv,S,D|NAME:...|FILE.json",
    ),
]
OnOption = Annotated[
    Literal["recorded", "forecast", "gpu"] | None,
    _option("Where times come from: the recorded grid, forecasts, or this GPU. Default: recorded."),
]
SeedOption = Annotated[int | None, _option("Of everything that is drawn. Default: 0.", min=0)]
BranchesOption = Annotated[int | None, _option("Candidates a round. Default: 4.", min=1)]
RuleOption = Annotated[str | None, _option("Of apportionment. Default: largest-remainder.")]
InputOption = Annotated[
    str | None,
    _option(
        "JSON with what you decide for this step; - reads stdin. Without it the policy decides.",
        "--input",
        metavar="FILE|-",
    ),
]


def _step(
    folder: Path, step: str, given: str | None, kernel: str | None, as_json: bool, **more: Any
) -> None:
    from .loop import do_step

    present(partial(do_step, folder, step, given, kernel=kernel, **more), as_json)


@loop_app.command("init")
def loop_init(
    folder: Folder,
    kernel: KernelOption = None,
    workload: LoopWorkloadOption = None,
    on: OnOption = None,
    seed: SeedOption = None,
    branches: BranchesOption = None,
    rule: RuleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a loop in a new folder."""
    from .loop import LoopAsked, begin_loop

    asked = LoopAsked(kernel, workload, on, seed, branches, rule)
    present(lambda progress: begin_loop(folder, asked), as_json)


@loop_app.command("gaps")
def loop_gaps(
    folder: Folder,
    given: InputOption = None,
    kernel: NamedOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far the champion is from the peaks, on three axes.

    Input: {"counters": {"dram_throughput_pct": 41.5, ...}}, by stable names.
    """
    _step(folder, "gaps", given, kernel, as_json)


@loop_app.command("budget")
def loop_budget(
    folder: Folder,
    rule: RuleOption = None,
    kernel: NamedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Method slots an axis."""
    _step(folder, "budget", None, kernel, as_json, rule=rule)


@loop_app.command("pick")
def loop_pick(
    folder: Folder,
    given: InputOption = None,
    kernel: NamedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the round's methods.

    Input: {"methods": ["memory.wide_accesses"], "acknowledged": {"METHOD": {"form": 2, "reason":
    "..."}}}. A method that the compiler dropped needs what is different: the number of a form, or a
    "knob" with its "value", which the branches then have.
    """
    _step(folder, "pick", given, kernel, as_json)


@loop_app.command("branch")
def loop_branch(
    folder: Folder,
    given: InputOption = None,
    source: Annotated[
        str | None,
        _option("A branch that you wrote: CUDA C++ for the loop's problem.", metavar="FILE.cu"),
    ] = None,
    launch: Annotated[
        str | None,
        _option(
            "Its launches where they differ, as labtools forecast takes them: [[launch]] with "
            "entry, grid, block, smem and args, [workspace], [defines].",
            metavar="FILE.toml",
        ),
    ] = None,
    method: Annotated[
        list[str] | None, _option("A method that the source claims; once for each.")
    ] = None,
    without: Annotated[
        list[str] | None,
        _option(
            "The source without a method that has no guard #if METHOD_x in it; a .toml also says "
            "its launches.",
            metavar="METHOD=FILE",
        ),
    ] = None,
    describe: Annotated[
        list[str] | None,
        _option(
            "A method that the catalogue lacks, by its machine code: 'more LDG; !BAR', or by what "
            "proves it: 'blocks > blocks_without'.",
            metavar="METHOD=SIGNATURE",
        ),
    ] = None,
    kernel: NamedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run candidates; the fastest right one is the champion.

    Without input they are sizes of the picked methods and, unless you chose these, the forecast's
    best of all points. Input: {"branches": [{"warps": 4, "split": 8}, ...]}, the knobs of each;
    those left out are as at the point that the round began from, with the round's methods on. A
    branch without one of them is refused, and so is one that would switch another method on or off.

    A branch may be source: {"branches": [{"source": "v2.cu", "methods": ["memory.vectorize"],
    "without": {"memory.vectorize": "v2_plain.cu"}, "launch": "v2.toml", "describe": {}}, ...]}, or
    one by --source. Steps before it that were not taken are taken by the policy, and more may
    follow until the round is ablated.
    """
    from .loop import written_branch

    more: dict[str, Any] = {}
    if source is not None or launch or method or without or describe:
        more["branches"] = written_branch(given, source, launch, method, without, describe)
    _step(folder, "branch", given, kernel, as_json, **more)


@loop_app.command("ablate")
def loop_ablate(
    folder: Folder,
    pairs: Annotated[bool, typer.Option("--pairs", help="Two methods out at once, too.")] = False,
    kernel: NamedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time the champion with one method out at a time."""
    _step(folder, "ablate", None, kernel, as_json, pairs=pairs)


@loop_app.command("check")
def loop_check(folder: Folder, kernel: NamedOption = None, as_json: JsonOption = False) -> None:
    """Look for each method in the champion's machine code."""
    _step(folder, "check", None, kernel, as_json)


@loop_app.command("update")
def loop_update(
    folder: Folder,
    given: InputOption = None,
    kernel: NamedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Class each method and end the round; refused without attribution and SASS check.

    Input: {"analysis": "what was learnt, in words"}.
    """
    _step(folder, "update", given, kernel, as_json)


@loop_app.command("run")
def loop_run(
    folder: Folder,
    kernel: KernelOption = None,
    workload: LoopWorkloadOption = None,
    on: OnOption = None,
    seed: SeedOption = None,
    branches: BranchesOption = None,
    rule: RuleOption = None,
    max_rounds: Annotated[
        int, typer.Option(min=1, help="Rounds at most, since the last restart.")
    ] = 6,
    max_runs: Annotated[
        int | None, typer.Option(min=1, help="Runs at most; begins no round beyond them.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play the automatic policy to its end.

    Where DIR holds a loop, it goes on with that; options that are named must be as it began.
    """
    from .loop import LoopAsked, run_loop

    asked = LoopAsked(kernel, workload, on, seed, branches, rule)
    present(partial(run_loop, folder, asked, max_rounds, max_runs), as_json)


@loop_app.command("status")
def loop_status(folder: Folder, as_json: JsonOption = False) -> None:
    """Where the loop stands: the whole state. Writes nothing."""
    from .loop import show_status

    present(lambda progress: show_status(folder), as_json)


@loop_app.command("summary")
def loop_summary(
    folder: Folder,
    page: Annotated[
        Path | None,
        typer.Option("--html", help="Also write one HTML file with plots.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What was found: bottlenecks, rounds, attributions, classes, frontier."""
    from .loop import summarise_loop

    present(lambda progress: summarise_loop(folder, page), as_json)


@loop_app.command("diff")
def loop_diff(
    folder: Folder,
    first: Annotated[int | None, typer.Argument(help="A round. Default: the last but one.")] = None,
    second: Annotated[int | None, typer.Argument(help="A later one. Default: the last.")] = None,
    as_json: JsonOption = False,
) -> None:
    """What changed between two rounds' counters, in words."""
    from .loop import diff_rounds

    present(lambda progress: diff_rounds(folder, first, second), as_json)


@loop_app.command("restart")
def loop_restart(
    folder: Folder,
    entry: Annotated[int, typer.Argument(min=0, help="Of the frontier; status lists them.")],
    as_json: JsonOption = False,
) -> None:
    """Let the next round begin from an entry of the frontier."""
    from .loop import restart_loop

    present(lambda progress: restart_loop(folder, entry), as_json)


@loop_app.command("export")
def loop_export(
    folder: Folder,
    target: Annotated[Path, typer.Argument(help="A folder for what is written.")],
    kernel: NamedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the champion as a rung of your own, and runs and grid for Kernel Tuner."""
    from .loop import export_loop

    present(lambda progress: export_loop(folder, target, kernel), as_json)
