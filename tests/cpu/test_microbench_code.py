"""The machine code of the microbenchmarks: what is measured is really there."""

from __future__ import annotations

import dataclasses

import pytest
from devices import some_of
from sass_code import code_of

from labtools.microbench.code import CodeCheck, chain_depth, check_code, check_machine_code
from labtools.microbench.plan import PIPES, find_benchmarks, list_benchmarks
from labtools.problem import LabError, kernels_dir
from labtools.toolchain import Cubin, compile_cubin

SOURCES = kernels_dir() / "microbench"
GROUPS = (
    *("pipe", "chase", "rows", "async", "barrier", "phase", "product", "branch", "code"),
    *("bandwidth", "launch"),
)


@pytest.mark.parametrize("group", some_of(GROUPS, 2))
def test_on_sm_90_every_loop_holds_what_it_measures(group: str) -> None:
    for benchmark in find_benchmarks([group]):
        assert check_machine_code(benchmark, "sm_90") == []


@pytest.mark.parametrize("arch", some_of(["sm_75", "sm_80", "sm_89", "sm_120"], 1))
def test_on_other_architectures_too(arch: str) -> None:
    there = [one for one in list_benchmarks() if one.runs_on(arch) and one.name != "code.size"]
    for benchmark in some_of(there, 8):
        assert check_machine_code(benchmark, arch) == []


@pytest.mark.parametrize(
    ("name", "arch"),
    [("pipe.imma", "sm_75"), ("product.shared", "sm_80"), ("product.shared", "sm_120")],
)
def test_an_architecture_without_the_instruction_is_named(name: str, arch: str) -> None:
    (benchmark,) = find_benchmarks([name])
    assert benchmark.runs_on("sm_90") and not benchmark.runs_on(arch)
    assert f"{arch} has no such instruction" in check_machine_code(benchmark, arch)[0]


# What is changed in a source, and what is then wrong with its machine code.
CHANGES = {
    "a wait that is left out": (
        "product.shared",
        ("wait_for_products<0>();\n      hold(sums);", ""),
        "0 WARPGROUP.DEPBAR",
    ),
    # 1 / (1 / x) is x: the assembler leaves no instruction, and so no loop.
    "a reciprocal that is folded": (
        "pipe.rcp_fadd",
        (
            "rcp.approx.ftz.f32 f, f; add.ftz.f32 f, f, p;",
            "rcp.approx.ftz.f32 f, f; rcp.approx.ftz.f32 f, f;",
        ),
        "there is no loop to time",
    ),
    # Nobody wants the other three words, so the assembler loads one.
    "a load that is narrowed": (
        "pipe.lds128",
        ("ld.volatile.shared.v4.u32 {%0, d, e, f}, [%0];", "ld.shared.v4.u32 {%0, d, e, f}, [%0];"),
        "0 LDS.128",
    ),
    # The count is right, but no shuffle needs the one before.
    "a chain that is broken": (
        "pipe.shfl",
        (
            '"shfl.sync.bfly.b32 %0, %0, 16, 0x1f, 0xffffffff;" : "+r"(v)',
            '"{.reg .u32 t; shfl.sync.bfly.b32 t, %1, 16, 0x1f, 0xffffffff; xor.b32 %0, %0, t;}"'
            ' : "+r"(v) : "r"(g.a + lane_id())',
        ),
        "a chain of",
    ),
    "loads one after the other": (
        "bandwidth.l2",
        ("load(here + j * 32 * BYTES);", "load(here + (j ? words[j - 1] : 0) + j * 32 * BYTES);"),
        "in flight together",
    ),
}


def source_of(change: str) -> str:
    (benchmark,) = find_benchmarks([CHANGES[change][0]])
    return benchmark.source


@pytest.mark.parametrize("source", sorted({source_of(change) for change in CHANGES}))
def test_machine_code_that_is_something_else_is_refused(source: str) -> None:
    """All changes of one source in one compilation: each is in a kernel of its own."""
    mine = [CHANGES[change] for change in CHANGES if source_of(change) == source]
    text = (SOURCES / source).read_text()
    for _, (old, new), _ in mine:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    cubins: dict[str, Cubin] = {}
    for name, _, said in mine:
        (benchmark,) = find_benchmarks([name])
        target = benchmark.target or "sm_90"
        if target not in cubins:
            cubins[target] = compile_cubin(text, target, name=source)
        problems = check_machine_code(benchmark, "sm_90", {0: cubins[target]})
        assert any(said in problem for problem in problems), problems


def test_a_loop_moved_out_of_the_clock_and_too_many_other_instructions_are_refused() -> None:
    check = CodeCheck("k", {"FFMA": 2}, chained=("FFMA",), depth=2)
    body = (
        ".L_x_0:",
        "FFMA R0, R0, R1, R2",
        "FFMA R0, R0, R1, R2",
        "IADD3 R4, R4, 0x1, RZ",
        "@!P0 BRA `(.L_x_0)",
    )
    clock = ("CS2R R8, SR_CLOCKLO",)
    assert check_code(code_of(*clock, *body, *clock), check) == []
    (said,) = check_code(code_of(*clock, *body, *clock), dataclasses.replace(check, others=0))
    assert "other instructions" in said
    assert check_code(code_of(*body, *clock, *clock), check) == ["there is no loop to time"]
    assert check_code(code_of(*clock, *body), check) == ["the clock is not read twice"]


def depth_of(texts: list[str], opcodes: tuple[str, ...]) -> int:
    return chain_depth(code_of(*texts).instructions, opcodes)


def test_the_depth_of_a_chain_follows_registers() -> None:
    assert depth_of(["FADD R0, R0, R1", "FADD R0, R0, R1"], ("FADD",)) == 2
    assert depth_of(["FADD R0, R0, R1", "FADD R2, R2, R1"], ("FADD",)) == 1
    through_a_move = ["FADD R0, R0, R1", "MOV R5, R0", "FADD R0, R5, R1"]
    assert depth_of(through_a_move, ("FADD",)) == 2
    overwritten = ["FADD R0, R0, R1", "MOV R0, R7", "FADD R0, R0, R1"]
    assert depth_of(overwritten, ("FADD",)) == 1
    pair = ["LDG.E.64 R4, desc[UR4][R2.64]", "MOV R2, R9", "LDG.E.64 R6, desc[UR4][R4.64]"]
    assert depth_of(pair, ("LDG",)) == 2
    predicate = ["ISETP.GE.U32.AND P0, PT, R0, R1, PT", "SEL R0, R2, R0, !P0"]
    assert depth_of(predicate * 2, ("ISETP", "SEL")) == 4
    shared = ["STS [R1], R0", "LDS R0, [R1]"]
    assert depth_of(shared * 3, ("STS", "LDS")) == 6


def test_names_are_found_or_refused() -> None:
    assert [one.name for one in find_benchmarks(["pipe.ffma"])] == ["pipe.ffma"]
    assert len(find_benchmarks(["pipe"])) == len(PIPES) + 1
    assert next(one.name for one in find_benchmarks(["rows.*", "clock"])) == "clock"
    with pytest.raises(LabError, match="no microbenchmark called nonsense"):
        find_benchmarks(["nonsense"])
