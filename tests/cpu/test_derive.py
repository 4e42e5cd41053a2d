"""What holds of every derivation: whole steps, slopes that fall, the command, what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from labtools.cli import main
from labtools.cli.given import RungAsked, read_knobs
from labtools.cli.outcome import plain
from labtools.cli.running import _candidate
from labtools.derive import DERIVABLE, derive
from labtools.derive.attention import attention_slope
from labtools.derive.decode.facts import ENOUGH_SLOTS, SLACK
from labtools.derive.engine import FLOOR_STEPS, TiledDesign
from labtools.derive.gemm.traffic import least_traffic
from labtools.derive.gemm.work import read_work
from labtools.derive.parts import ALIKE, NOT_TOLD_APART, Sheet
from labtools.derive.registry import derived_knobs
from labtools.predict import gpu_or_default, load_gpu
from labtools.problem import LabError, load_rung, parse_problem
from labtools.problem.decode.block_plan import near_us
from labtools.problem.prefill import Prefill

WORKLOADS = {
    "decode": ("8,32,8,1024,128", "3,12,4,777,64", "2,64,4,300,128"),
    "prefill": (
        *("prefill:4,8,8,512,64", "prefill:1,8,2,1000,128/q77/causal"),
        *("prefill:4,32,32,4096,128/causal", "prefill:2,4,4,33,64/bf16"),
    ),
    "gemm": ("gemm:512,384,256", "gemm:16,4096,4096"),
    "conv": ("conv:4,28,28,64,64,3,3,1",),
    "moe": ("moe:512,8,2,1024,1024",),
    "rows": ("rows:8192,4096", "rows:3,97", "rows:64,40000/bf16"),
    "add_norm": ("add_norm:8192,4096", "add_norm:7,99"),
}
NEARER = ("rows", "add_norm")
CASES = [(op, text) for op, texts in WORKLOADS.items() for text in texts]


def check_steps(steps: Any, rejecting: bool = False) -> None:
    """Every step says where its numbers come from and what speaks against its alternatives."""
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    for step in steps:
        assert step.question and step.formula and step.decision and step.breaks
        assert step.inputs and step.results, step.name
        assert all(math.isfinite(one.value) for one in (*step.inputs, *step.results))
        assert all(one.source for one in step.inputs), step.name
        assert all(one.why and math.isfinite(one.value) for one in step.rejected), step.name
        assert step.rejected or not rejecting, step.name


@pytest.mark.parametrize("gpu", ["h200", "l4", "rtx4090"])
@pytest.mark.parametrize(("op", "text"), CASES)
def test_a_design_is_whole_and_its_kernel_can_be_launched(op: str, text: str, gpu: str) -> None:
    design, sheet = derive(text, gpu, op=op, quick=True), load_gpu(gpu)
    check_steps(design.steps, isinstance(design, TiledDesign))
    assert design.stops.startswith("Analysis stops here")
    assert design.title and design.summary and json.dumps(plain(design))
    assert design.step(design.steps[0].name).answer.value < design.time_us
    assert design.calibrated is (gpu == "h200")
    assert all(proof.holds for proof in getattr(design, "alignment", ()))
    if getattr(design, "hopper", None) is not None:
        check_steps(design.hopper.steps, True)
    if design.specified is not None:
        (kernel, knobs), problem = design.specified, parse_problem(text)
        rung = load_rung(kernel)
        if rung.supports(problem) is not None:  # r09 is written for groups of at most 8
            return
        launch = rung.launches(problem, sheet.limits, knobs)[-1]
        cost = getattr(design, "cost", design)
        assert launch.smem_bytes <= sheet.smem_per_block_bytes
        if kernel != "g02_hopper":  # whose blocks stay and take tile after tile
            assert launch.num_blocks == cost.blocks
            assert launch.smem_bytes == getattr(cost, "smem_bytes", launch.smem_bytes)
            assert launch.num_threads == getattr(cost, "threads", launch.num_threads)


@pytest.mark.parametrize("gpu", ["h200", "l4"])
@pytest.mark.parametrize(("op", "text"), CASES)
def test_what_the_model_does_not_tell_apart_is_a_tie(op: str, text: str, gpu: str) -> None:
    """By its time in the products and in prefill; in decode whatever keeps up with memory."""
    design = derive(text, gpu, op=op, quick=True)
    ring, within = getattr(design, "hopper", None), ALIKE if op not in NEARER else NOT_TOLD_APART
    for whole in (design, ring) if ring else (design,):
        for step in whole.steps:
            times = [one for one in step.rejected if one.unit == "us"]
            if step.name in FLOOR_STEPS:
                assert not any(one.tie for one in step.rejected), step.name
            else:
                assert all(one.tie is (one.value < within * whole.time_us) for one in times)
            others = {one for one in step.rejected if one.unit != "us" and one.tie}
            assert op == "decode" or not others, step.name
    if op == "decode":
        cores = design.step("arithmetic").rejected[0]
        assert cores.tie is (cores.value < ENOUGH_SLOTS) is ("above half" not in cores.why)
        fast = [one for one in design.step("warps").rejected if one.unit == "times the rate"]
        assert all(one.tie is (one.value >= SLACK) for one in fast)
        share = design.step("stages").result("share of the ceiling")
        for one in design.step("stages").rejected:
            if one.unit == "of the ceiling":
                assert one.tie is (share <= NOT_TOLD_APART * one.value)
        for one in design.step("division").rejected:
            assert one.tie is (one.value < near_us(design.step("division").answer.value))


@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("gpu", ["h200", "l4", "a10", "rtx4090"])
def test_no_step_of_decode_contradicts_another(gpu: str, bits: int) -> None:
    """The step of the warps names what the launch has of them, where that is another number."""
    for text in (*WORKLOADS["decode"][::2], "64,32,8,4096,128"):
        try:
            design = derive(text, gpu, bits, quick=True)
        except LabError:
            continue
        here, step = design.warps * design.blocks_per_sm, design.step("warps")
        assert step.answer.value == design.warps_per_sm
        assert (f"the launch has {here} " in step.decision) is (here != design.warps_per_sm)
        if here > design.warps_per_sm:  # then those are a tie, or too many for rings of two tiles
            for one in step.rejected:
                if one.choice == f"{here} warps":
                    assert one.tie or one.unit == "bytes"


@pytest.mark.parametrize("gpu", ["h200", "l4", "rtx4090"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g01_ring", "gemm:16,4096,4096"),
        ("g02_hopper", "gemm:16,4096,4096"),
        ("p02_corrected", "prefill:4,8,8,512,64"),
        ("p03_hopper", "prefill:4,8,8,512,64"),
    ],
)
def test_without_knobs_a_kernel_is_launched_as_its_own_derivation_says(
    name: str, text: str, gpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rung, problem, sheet = load_rung(name), parse_problem(text), load_gpu(gpu)
    usual = rung.resolve_knobs()
    knobs = read_knobs(rung, None, problem, gpu)
    said = f"{name}: knobs derived for {problem} on {sheet.title}\n"
    if name.endswith("hopper") and gpu != "h200":  # another architecture: the rung's own
        assert knobs == usual and not capsys.readouterr().err
        return
    assert knobs != usual and capsys.readouterr().err == said
    design = derive(text, gpu, quick=True)
    if name in (design.kernel, design.specified[0]):
        own = design.knobs if name == design.kernel else design.specified[1]
        assert knobs == {**usual, **own}
    assert rung.launches(problem, sheet.limits, knobs)[-1].smem_bytes <= sheet.smem_per_block_bytes
    (one, *_) = (knob for knob in rung.knobs if knobs[knob.name] != max(knob.choices))
    chosen = read_knobs(rung, [f"{one.name}={max(one.choices)}"], problem, gpu)
    assert chosen == {**knobs, one.name: max(one.choices)}
    assert read_knobs(rung, None) == usual == rung.resolve_knobs()  # as records and pages have it
    capsys.readouterr()
    read_knobs(rung, [f"{one}={value}" for one, value in usual.items()], problem, gpu)
    assert not capsys.readouterr().err
    asked = RungAsked(name, text, None).read(derived=True, gpu_name=gpu)
    assert (asked[2], _candidate(rung, None, problem).knobs) == (knobs, _knobs_here(rung, problem))


def _knobs_here(rung: Any, problem: Any) -> dict[str, int]:
    """The knobs that are derived for this machine, or the rung's own."""
    return derived_knobs(rung, problem, gpu_or_default()) or rung.resolve_knobs()


@pytest.mark.parametrize(
    ("name", "text", "gpu"),
    [
        ("r09_inverted", "8,32,8,1024,128", "h200"),  # its launch follows a rule already
        ("g00_tiled", "gemm:64,64,64", "h200"),
        ("g01_ring", "gemm:64,64,64", "t4"),  # no asynchronous copies
        ("g02_hopper", "gemm:64,64,100", "h200"),  # rows that the copy engine does not take
        ("p02_corrected", "gemm:64,64,64", "h200"),
        ("p03_hopper", "prefill:2,4,4,33,96", "h200"),
    ],
)
def test_where_nothing_is_derived_a_kernel_has_its_own_knobs(
    name: str, text: str, gpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rung, problem = load_rung(name), parse_problem(text)
    assert derived_knobs(rung, problem, load_gpu(gpu)) is None
    assert read_knobs(rung, None, problem, gpu) == rung.resolve_knobs()
    assert not capsys.readouterr().err


def test_every_operation_that_can_be_derived_is_tried_here() -> None:
    assert list(WORKLOADS) == list(DERIVABLE)


def test_a_sheet_wants_a_number_for_each_row(tmp_path: Any) -> None:
    path = tmp_path / "steps.toml"
    path.write_text(
        "[s]\nquestion='?'\nformula='{each}'\ndecision='{a} of {b}'\nbreaks=''\n"
        "inputs=[['a','',''],['b of {each}','','']]\nresults=[['b','','']]\n"
        "[s.rejected]\nx=[['no {a}','us','{b:.1f}']]\n"
    )
    step = Sheet(path).step("s", [1, {"c": 2, "d": None}], [3], [4], "x", {"each": "f"})
    assert [one.name for one in step.inputs] == ["a", "b of c"]
    assert (step.formula, step.decision) == ("f", "1 of 3")
    assert (step.rejected[0].choice, step.rejected[0].why) == ("no 1", "3.0")
    for inputs, results in (([1], [3]), ([1, {}, 2], [3])):
        with pytest.raises(ValueError):
            Sheet(path).step("s", inputs, results, [4], "x")


@pytest.mark.parametrize("op", ["gemm", "conv", "prefill"])
def test_the_slope_falls_to_every_byte_once(op: str) -> None:
    if op == "prefill":
        work: Any = Prefill.parse("prefill:1,8,2,512,64/causal")
        slope: Any = attention_slope
    else:
        work, slope = read_work(op, {"gemm": "gemm:64,48,80"}.get(op, "conv:1,8,8,8,8,3,3,1")), None
    points = (slope or least_traffic)(work, [1 << n for n in range(8, 22)])
    known = [one.traffic_bytes for one in points if one.traffic_bytes is not None]
    assert known == sorted(known, reverse=True)
    assert known[0] > known[-1] == work.minimal_bytes
    assert (slope or least_traffic)(work, [1])[0].traffic_bytes is None


@pytest.mark.parametrize(("op", "text"), CASES[::2])
def test_the_command_says_what_is_derived(
    op: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", "--op", op, "-w", text, "--gpu", "h200", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    design = derive(text, "h200", op=op)
    assert said["origin"] == "computed" and said["time_us"] == design.time_us
    assert [step["name"] for step in said["steps"]] == [step.name for step in design.steps]
    told = [one["tie"] for step in said["steps"] for one in step["rejected"]]
    assert told == [one.tie for step in design.steps for one in step.rejected]
    assert main(["derive", "--op", op, "-w", text, "--gpu", "l4", "--verbose"]) == 0
    shown = capsys.readouterr().out
    assert "uncalibrated" in shown and "[computed]" in shown
    for step in derive(text, "l4", op=op).steps:
        assert step.question in shown
        assert all(f"{one.word} {one.choice}: " in shown for one in step.rejected)
    assert main(["derive", "--op", op, "-w", text, "--gpu", "l4"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 60
    assert all(step.decision in short for step in derive(text, "l4", op=op).steps)


def test_the_command_holds_the_rung_of_decode_against_the_derivation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["derive", "--gpu", "h200", "-w", "1,32,8,4096,128", "--json"]) == 0
    rung = json.loads(capsys.readouterr().out)["rung"]
    assert rung["id"] == "r09_inverted" and rung["same"] is True
    assert rung["launched"] == rung["derived"]


PREFILL = "prefill:4,8,8,512,64"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--op", "sort"), "no derivation of 'sort'"),
        (("--op", "gemm", "-w", "8,32,8,4096,128"), "three whole numbers"),
        (("--op", "conv", "-w", "conv:1,2,2,8,8,3,3,1"), "larger than an image"),
        (("--op", "moe", "-w", "moe:8,4,5,64,64"), "at most each expert once"),
        (("--op", "moe", "-w", "moe:8,4"), "takes whole numbers"),
        (("--op", "gemm", "--gpu", "t4"), "no asynchronous copies"),
        (("--gpu", "t4"), "no asynchronous copies"),
        (("--op", "gemm", "--target", "1.5"), "is no share"),
        (("-w", PREFILL, "--target", "0"), "is no share"),
        (("--op", "gemm", "--bits", "8"), "16 bits"),
        (("-w", PREFILL, "--bits", "8"), "16 bits"),
        (("--bits", "5"), "5 bits"),
        (("--op", "decode", "--target", "0.5"), "no target"),
        (("--op", "prefill", "-w", "8,32,8,4096,128"), "is no prefill workload"),
        (("--op", "prefill", "-w", "prefill:1,8,8,64,96"), "head_dim is 96"),
        (("-w", PREFILL, "--gpu", "t4"), "no asynchronous copies"),
        (("-w", "8,32,8,4096,72"), "fits no matrix product"),
        (("-w", "8,32,8,4096,80"), "can be swizzled"),
        (("-w", "8,32,8,4096,96"), "can be swizzled"),
        (("-w", "8,32,8,4096,64", "--bits", "4"), "32 bytes are not known"),
        (("--gpu", "h300"), "h300"),
        (("--gpu", "b200"), "clock"),  # no document states it
    ],
)
def test_what_cannot_be_derived_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["derive", *words]) == 2
    assert said in capsys.readouterr().err
