"""Loops in a listing: counted, sketched, and the loads that overlap."""

from __future__ import annotations

import pytest

from labtools.problem import HEADLINE, LabError, load_rung
from labtools.toolchain import compile_rung, disassemble
from labtools.toolchain.loops import find_loops

LISTING = """
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDG.E.64.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.U16 R6, desc[UR4][R2.64+0x100] ;
        /*0030*/                   FFMA R8, R5, R5, R8 ;
        /*0040*/                   SHFL.BFLY PT, R9, R8, 0x10, 0x1f ;
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0060*/                   FADD R8, R6, R9 ;
        /*0070*/                   ISETP.NE.AND P0, PT, R1, RZ, PT ;
        /*0080*/               @P0 BRA `(.L_x_1) ;
        /*0090*/                   EXIT ;
.L_x_2:
        /*00a0*/                   BRA `(.L_x_2);
        /*00b0*/                   BRA `(.L_x_1) ;
"""


def test_one_loop_is_found() -> None:
    (loop,) = find_loops(LISTING)
    assert len(loop.instructions) == 8
    assert loop.counts() == {"LDG": 2, "SHFL": 1, "BAR": 1, "LDS": 0, "MUFU": 0}
    assert loop.count("LDG.E.64") == 1
    assert loop.count("LD") == 0
    assert loop.sketch() == "L2 s |"


def test_loads_overlap_until_one_is_used() -> None:
    (loop,) = find_loops(LISTING)
    assert [load.bytes_per_lane for load in loop.loads_in_flight] == [8, 2]
    assert loop.bytes_in_flight == 32 * 10


def test_a_use_between_two_loads_parts_them() -> None:
    moved = LISTING.replace("FFMA R8, R5, R5, R8", "NOP").replace(
        "LDG.E.U16 R6", "FADD R8, R5, R8 ;\n        /*0021*/   LDG.E.U16 R6"
    )
    (loop,) = find_loops(moved)
    assert len(loop.loads_in_flight) == 1


def test_nothing_without_a_loop() -> None:
    assert find_loops("        /*0000*/   EXIT ;") == []


@pytest.mark.parametrize(
    ("rung", "knobs", "barriers", "shuffles", "loads"),
    [
        ("r01", {"prefetch_v": 0}, 3, 10, 2),
        ("r02", {}, 1, 5, 2),
        ("r03", {}, 0, 5, 2),
    ],
)
def test_rows_of_the_ladder(
    rung: str, knobs: dict[str, int], barriers: int, shuffles: int, loads: int
) -> None:
    shipped = load_rung(rung)
    try:
        cubin = compile_rung(shipped, HEADLINE, {"unroll": 1, **knobs}, "sm_90")
        (entry,) = cubin.entries
        listing = disassemble(cubin, entry)
    except LabError as error:
        pytest.skip(error.what)
    loop = find_loops(listing)[0]
    assert (loop.count("BAR"), loop.count("SHFL"), loop.count("LDG")) == (barriers, shuffles, loads)


def test_a_commit_of_copies_is_not_a_load() -> None:
    copies = LISTING.replace("FADD R8, R6, R9", "LDGDEPBAR")
    (loop,) = find_loops(copies)
    assert [load.bytes_per_lane for load in loop.loads_in_flight] == [8, 2]
    # s03 reads global memory by copies to shared memory alone: no register waits.
    rung = load_rung("s03")
    try:
        cubin = compile_rung(rung, HEADLINE, {}, "sm_90")
        loops = find_loops(disassemble(cubin, "decode_s03"))
    except LabError as error:
        pytest.skip(error.what)
    assert any(loop.count("LDGSTS") for loop in loops)
    assert all(bool(loop.loads_in_flight) == bool(loop.count("LDG")) for loop in loops)
