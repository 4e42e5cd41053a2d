"""Machine code as pages show it: nothing lost, control bits in words, loads and their first use."""

from __future__ import annotations

import html
import re

import pytest

from labtools.notebook.book.reading_sass.opcodes import WORDS, seen_distances, show_opcodes
from labtools.notebook.book.reading_sass.sass_view import (
    explain_control,
    load_spans,
    main_loop,
    read_sources,
    show_sass,
)
from labtools.predict.latencies import load_latencies
from labtools.problem import LabError, load_rung
from labtools.toolchain.sass import Control, Sass, parse_listing

NO_BARRIER = 7


def bits(stall: int = 1, write: int = NO_BARRIER, read: int = NO_BARRIER, wait: int = 0) -> int:
    """The upper half of an encoding that holds these control bits."""
    return (stall | 1 << 4 | write << 5 | read << 8 | wait << 11) << 41


def listing(*instructions: tuple[str, int], label_at: int = 0) -> Sass:
    """A kernel from (text, upper half) pairs; ``.L_x_0`` stands before one of them."""
    lines = ["\t.target\tsm_90", '\t.section\t.text.k,"ax"']
    for number, (text, high) in enumerate(instructions):
        if number == label_at:
            lines.append(".L_x_0:")
        lines.append(f'\t//## File "/some/where/k.cu", line {number + 1}')
        lines.append(f"        /*{16 * number:04x}*/    {text} ;  /* 0x{0:016x} */")
        lines.append(f"                                   /* 0x{high:016x} */")
    return parse_listing("\n".join(lines), "k")


K = ("LDG.E.64 R2, desc[UR4][R8.64]", bits(write=0))
V = ("LDG.E.64 R4, desc[UR4][R8.64+0x100]", bits(write=1))
USE_K, USE_V = ("FADD R6, R6, R2", bits(4, wait=1)), ("FADD R6, R6, R4", bits(4, wait=2))
END = (("@P0 BRA `(.L_x_0)", bits(5)), ("EXIT", bits(5)))
LATE_USE = listing(K, V, USE_K, USE_V, ("FMUL R7, R6, R6", bits(2)), *END)
EARLY_USE = listing(K, USE_K, V, USE_V, *END)
WIDE = ("LDG.E.128 R2, desc[UR4][R8.64]", bits(write=0))
NEXT_TRIP = listing(USE_K, WIDE, ("FMUL R6, R6, R6", bits(4)), *END)


@pytest.mark.parametrize(
    ("code", "spans", "most"),
    [
        (LATE_USE, [(0, 2), (1, 3)], 32 * 16),
        (EARLY_USE, [(0, 1), (2, 3)], 32 * 8),
        (NEXT_TRIP, [(1, 4)], 32 * 16),
    ],
    ids=["late use", "early use", "used in the next trip"],
)
def test_loads_count_from_issue_to_first_use(
    code: Sass, spans: list[tuple[int, int]], most: int
) -> None:
    loop = main_loop(code)
    assert [(span.issue, span.first_use) for span in load_spans(code, loop)] == spans
    assert loop.bytes_in_flight == most


@pytest.mark.parametrize(
    ("control", "said", "not_said"),
    [
        (Control(4, False, 2, 0, (), 0), ["scoreboard 2 until its result", "4 cycles"], "waits"),
        (
            Control(1, True, None, None, (0, 3), 0),
            ["0 and 3 are free", "1 cycle ", "first"],
            "takes",
        ),
        (Control(0, False, None, 5, (1,), 0), ["scoreboard 1 is free", "no stall"], "result"),
    ],
)
def test_control_bits_in_words(control: Control, said: list[str], not_said: str) -> None:
    text = explain_control(control)
    assert all(word in text for word in said) and not_said not in text, text


def test_a_listing_shows_every_instruction_with_its_bits_and_line() -> None:
    shown = show_sass(LATE_USE, sources={"k.cu": ["first <line>", "second"]}, words=True)
    rows = re.findall(r"<tr class.*?</tr>", shown.html)
    assert len(rows) == len(LATE_USE.executable)
    for one, row in zip(LATE_USE.executable, rows, strict=True):
        assert one.opcode in html.unescape(row) and f"{one.address:04x}" in row
    assert "first &lt;line&gt;" in shown.html and "<line>" not in shown.html
    assert all(word in shown.text for word in ("k.cu:7", "0 result", WORDS["LDG"], "[computed]"))
    # A branch names an address, not the compiler's label.
    assert "BRA 0000" in shown.text and "`(" not in shown.text
    assert "overflow:auto" in shown.html and 'tabindex="0"' in shown.html


def test_a_listing_can_be_cut_and_noted() -> None:
    loop = main_loop(LATE_USE)
    assert show_sass(LATE_USE, loop).text.count("\n") == loop.last - loop.first + 3
    only = show_sass(LATE_USE, loop, only=("LDG",)).text
    assert "FADD" not in only and "2 of 6 instructions" in only
    with pytest.raises(LabError, match="no instructions"):
        show_sass(LATE_USE, (3, 900))


def test_distances_are_the_least_and_leave_scoreboards_out() -> None:
    code = listing(
        *(("FMUL R6, R6, R6", bits(6)), ("FADD R7, R6, R6", bits(5)), ("FMUL R8, R7, R7", bits(1))),
        *(("FADD R9, R7, R7", bits(3)), ("FADD R10, R8, R9", bits(1))),
        *(("MUFU.EX2 R11, R10", bits(2, write=0)), ("FADD R12, R11, R11", bits(wait=1))),
        ("EXIT", bits()),
        label_at=7,
    )
    # FMUL: 6 to the first FADD, and 1 + 3 from the second FMUL. FADD: 5, 3 and 1.
    assert seen_distances([code]) == {"FMUL": 4, "FADD": 1}


def test_opcodes_say_where_their_cycles_come_from() -> None:
    table = load_latencies("h200")
    shown = show_opcodes([LATE_USE], [main_loop(LATE_USE)], table)
    rows = {line.split()[0]: line for line in shown.text.splitlines()[2:]}
    assert set(rows) == {"LDG", "FADD", "FMUL", "BRA"}
    assert f"{table.latency('hbm_row.256'):.0f} (HBM)" in rows["LDG"]
    assert "recorded: by a microbenchmark" in rows["FADD"]
    assert "load/store" in rows["LDG"]
    assert "from the listings alone" in rows["BRA"]
    # Of another GPU nothing here was measured, and it says so.
    other = show_opcodes([LATE_USE], [main_loop(LATE_USE)], load_latencies("rtx4090"))
    assert "recorded" not in other.text and "claimed" in other.text


def test_source_lines_of_a_rung_and_its_headers() -> None:
    rung = load_rung("r03")
    sources = read_sources(rung)
    assert sources["r03_one_warp.cu"] == rung.source_text.splitlines()
    assert any("shfl" in line for line in sources["warp.cuh"])
    edited = rung.with_source("// mine\n" + rung.source_text)
    assert read_sources(edited)["r03_one_warp.cu"][0] == "// mine"


def test_a_loop_without_loads_is_refused() -> None:
    with pytest.raises(LabError, match="loads"):
        main_loop(listing(("FMUL R6, R6, R6", bits()), *END))
