"""Loops in machine code: counted, sketched, and the loads that overlap."""

from __future__ import annotations

import pytest
from devices import LIMITS
from sass_code import code_of

from labtools.problem import HEADLINE, LabError, load_rung
from labtools.toolchain import compile_rung
from labtools.toolchain.sass import Loop, loads_in_flight, read_sass

LINES = (
    "S2R R0, SR_TID.X",
    ".L_x_1:",
    "LDG.E.64.CONSTANT R4, desc[UR4][R2.64]",
    "LDG.E.U16 R6, desc[UR4][R2.64+0x100]",
    "FFMA R8, R5, R5, R8",
    "SHFL.BFLY PT, R9, R8, 0x10, 0x1f",
    "BAR.SYNC.DEFER_BLOCKING 0x0",
    "FADD R8, R6, R9",
    "ISETP.NE.AND P0, PT, R1, RZ, PT",
    "@P0 BRA `(.L_x_1)",
    "EXIT",
    ".L_x_2:",
    "BRA `(.L_x_2)",
    "BRA `(.L_x_1)",
)


def only_loop(*lines: str) -> Loop:
    (loop,) = code_of(*lines).innermost_loops
    return loop


def replaced(old: str, *new: str) -> tuple[str, ...]:
    """`LINES` with others in place of one."""
    place = LINES.index(old)
    return (*LINES[:place], *new, *LINES[place + 1 :])


def test_one_loop_is_found() -> None:
    loop = only_loop(*LINES)
    assert len(loop.instructions) == 8
    assert loop.counts() == {"LDG": 2, "SHFL": 1, "BAR": 1, "LDS": 0, "MUFU": 0}
    assert loop.count("LDG.E.64") == 1
    assert loop.count("LD") == 0
    assert loop.count("LD|BAR") == 1
    assert loop.sketch() == "L2 s |"


def test_loads_overlap_until_one_is_used() -> None:
    loop = only_loop(*LINES)
    assert [load.access_bytes for load in loop.loads_in_flight] == [8, 2]
    assert loop.bytes_in_flight == 32 * 10


@pytest.mark.parametrize("between", ["FADD R8, R5, R8", "MOV R5, R1"])
def test_a_use_or_a_new_content_between_two_loads_parts_them(between: str) -> None:
    second = "LDG.E.U16 R6, desc[UR4][R2.64+0x100]"
    assert len(only_loop(*replaced(second, between, second)).loads_in_flight) == 1
    assert code_of("EXIT").innermost_loops == ()


def test_copies_count_until_their_group_is_waited_for() -> None:
    copy = "LDGSTS.E.BYPASS.128 [R4], desc[UR4][R2.64]"
    ring = (".L_x_1:", copy, "LDGDEPBAR", "DEPBAR.LE SB0, 0x2", "@P0 BRA `(.L_x_1)", "EXIT")
    loop = only_loop(*ring)
    assert loop.bytes_in_flight == 32 * 3 * 16  # two groups that may be open, and the new one
    assert loop.loads_in_flight == ()
    assert loads_in_flight(loop.instructions, "LDGSTS", copies=False) != ()


def test_a_commit_of_copies_is_not_a_load() -> None:
    loop = only_loop(*replaced("FADD R8, R6, R9", "LDGDEPBAR"))
    assert [load.access_bytes for load in loop.loads_in_flight] == [8, 2]
    # s03 reads global memory by copies to shared memory alone: no register waits.
    rung = load_rung("s03")
    try:
        cubin = compile_rung(rung, HEADLINE, LIMITS, {}, "sm_90")
        loops = read_sass(cubin, "decode_s03").innermost_loops
    except LabError as error:
        pytest.skip(error.what)
    assert any(loop.count("LDGSTS") for loop in loops)
    assert all(bool(loop.loads_in_flight) == bool(loop.count("LDG")) for loop in loops)
    assert all(bool(loop.bytes_in_flight) == bool(loop.count("LDG|LDGSTS")) for loop in loops)
