"""Machine code as typed instructions, on the stored listings and on fabricated lines."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from devices import LIMITS, needs_tools, some_of
from sass_code import HIGH, code_of, listing_of

from labtools.problem import LabError, Workload, load_rung
from labtools.toolchain import (
    Cubin,
    compile_cubin,
    compile_rung,
    disassemble,
)
from labtools.toolchain.listings import StoredListing, listings_dir, read_stored, stored_path
from labtools.toolchain.sass import (
    LISTING_OPTIONS,
    Instruction,
    Operand,
    Sass,
    _read_text,
    parse_listing,
    parse_listings,
)
from tools.write_listings import ARCHS, kernels

TABLES = tomllib.loads(Path(__file__).with_name("sass_tables.toml").read_text("utf-8"))
LADDER = [rung.id for rung, in_ladder in kernels() if in_ladder]


def one(text: str, high: int = HIGH) -> Instruction:
    return parse_listing(listing_of(text, high=high)).instructions[0]


def stored(arch: str, rung_id: str) -> list[StoredListing]:
    return read_stored(stored_path(rung_id, arch))


# ------------------------------------------------------------------------- stored listings


ALL_OF_LADDER = [(arch, rung_id) for arch in ARCHS for rung_id in LADDER]


@pytest.mark.parametrize(("arch", "rung_id"), some_of(ALL_OF_LADDER, 9), ids=str)
def test_stored_listings_of_the_ladder(arch: str, rung_id: str) -> None:
    if not load_rung(rung_id).runs_on(arch):
        assert not stored_path(rung_id, arch).exists()
        return
    for listing in stored(arch, rung_id):
        for name, sass in parse_listings(listing.listing).items():
            check_code(sass, load_rung(rung_id).target(arch), listing, name)


def test_stored_listings_of_studies() -> None:
    paths = list(listings_dir().glob("*/s*.json.gz"))
    assert paths
    for path in paths:
        for listing in read_stored(path)[:3]:
            for name, sass in parse_listings(listing.listing).items():
                check_code(sass, path.parent.name, listing, name)


SHARED = ("merge_pieces", "quantise_cache", "quantise_k", "quantise_v", "reset_counters")
"""Kernels of shared headers: preparations and merges."""


def check_code(sass: Sass, arch: str, listing: StoredListing, name: str) -> None:
    assert sass.arch == arch and sass.entry == name
    code = sass.executable
    assert code[-1].base in ("EXIT", "BRA", "RET") and len(code) > (5 if name in SHARED else 20)
    assert all(a.address + 16 == b.address for a, b in zip(code, code[1:], strict=False))
    sources = {line.source.file for line in code if line.source}
    assert sources and not any(file.startswith("/") for file in sources)
    assert any(file.endswith((".cu", ".cuh") if name in SHARED else ".cu") for file in sources)
    for instruction in code:
        if instruction.base in ("BRA", "BSSY") and "`(" in instruction.text:
            assert instruction.target in sass.index_of_address, instruction.text
        assert 0 <= instruction.control.stall <= 15
    assert sass.loops or name in SHARED
    # What the compiler allocated is enough for what is live by our count, and not far above it.
    most = max(sum(name[0] == "R" for name in names) for names in sass.live_names)
    allocated = listing.resources[name].registers
    # A warp that starts copies may hand registers on to the warps that compute.
    moved = [line.text.split()[-1] for line in code if line.base == "USETMAXREG"]
    allocated = max(allocated, *(int(count, 16) for count in moved)) if moved else allocated
    assert most <= allocated
    named = {register for line in code for register in line.defines if register[0] == "R"}
    assert max(int(register[1:]) for register in named) < allocated


def test_a_scoreboard_that_is_waited_for_was_set() -> None:
    """Every instruction that waits stands where an earlier or later one sets that scoreboard."""
    for rung_id in LADDER:
        for sass in parse_listings(stored("sm_90", rung_id)[0].listing).values():
            held = {line.control.write_barrier for line in sass.executable}
            held |= {line.control.read_barrier for line in sass.executable}
            waited = {number for line in sass.executable for number in line.control.wait}
            assert waited and waited <= held


# ------------------------------------------------------- registers, against nvdisasm's own marks

_FILES = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}
# Not compared: nvdisasm marks more at calls and branches than they name.
_NOT_COMPARED = ("CALL", "RET", "WARPSYNC", "BRA", "EXIT")
_GLOBAL = ("LDG", "STG", "LD", "ST", "RED", "ATOM", "ATOMG", "LDGSTS")


def live_range_marks(listing: str) -> dict[int, tuple[set[str], set[str], set[str]]]:
    """Registers written, read and only kept at each address, from the columns of ``-plr``."""
    lines = listing.splitlines()
    columns: list[tuple[str, int, int]] = []
    found: dict[int, tuple[set[str], set[str], set[str]]] = {}
    for number, line in enumerate(lines):
        if "// |" not in line:
            continue
        base = line.index("// |")
        if re.search(r"\|\s+GPR\s+\|", line):
            bars = [mark.start() for mark in re.finditer(r"\|", line)]
            columns = [
                (file + label[0], label.start() - base, label.end() - base)
                for first, last in zip(bars, bars[1:], strict=False)
                if (file := _FILES.get(line[first + 1 : last].strip()))
                for label in re.finditer(r"\d+", lines[number + 1][:last])
                if label.start() > first
            ]
            continue
        code = re.match(r"\s*/\*([0-9a-f]{4,})\*/", line)
        if code:
            marks = [(name, line[base:][first:last].strip()) for name, first, last in columns]
            found[int(code[1], 16)] = (
                {name for name, mark in marks if mark in ("^", "x")},
                {name for name, mark in marks if mark in ("v", "x")},
                {name for name, mark in marks if mark == ":"},
            )
    return found


def differences(cubin: Cubin) -> Iterator[tuple[str, set[str], set[str]]]:
    """(instruction, results that differ, reads that differ)."""
    for entry, sass in parse_listings(disassemble(cubin, None, LISTING_OPTIONS)).items():
        marks = live_range_marks(disassemble(cubin, entry, ("-c", "-plr")))
        assert len(marks) >= len(sass.executable)
        for line in sass.executable:
            if line.base in _NOT_COMPARED:
                continue
            written, read, kept = marks[line.address]
            writes, reads = line.defines ^ written, line.uses ^ read
            if line.base == "P2R":  # of the predicates that its mask names, not all are marked
                reads -= kept
            if cubin.arch in ("sm_80", "sm_86", "sm_89") and line.base in _GLOBAL:
                # the descriptor's pair is not printed
                reads = {name for name in reads if not (name[:2] == "UR" and name in read)}
            if writes or reads:
                yield line.text, set(writes), set(reads)


WIDE_OPERATIONS = """
extern "C" __global__ void k(double* x, long long* y, float* f, unsigned long long* u, int n) {
  const int i = threadIdx.x;
  double s = 0;
  for (int j = 0; j < n; j++) {
    s += x[i + j] * (double)y[j] + (double)f[j] + (double)n;
    y[j] = (long long)s;
    f[j] = (float)s;
    u[j] = (unsigned long long)f[j] + max(u[j], (unsigned long long)n);
    y[j] = min(y[j], (long long)n);
    n += (int)x[j];
    f[j] += (float)u[j];
    f[j] = rintf(f[j]) + (float)rint(x[j]);
    y[j] = (y[j] ^ u[j]) & ~u[j + 1];
    y[j] = y[j] > 3 ? y[j] : u[j];
    atomicAdd(u + j, (unsigned long long)n);
    atomicAdd(x + j, 1.0);
    y[j + 2] = atomicCAS(u, 3ull, 4ull);
    u[j + 4] = __ballot_sync(~0u, x[j] > 2) + __match_any_sync(~0u, n) + y[j] / (n | 1);
  }
}
"""


@needs_tools
@pytest.mark.parametrize("arch", some_of(ARCHS, 1, ["sm_90"]))
def test_registers_against_the_disassembler(arch: str) -> None:
    workload = Workload.parse("8,32,8,4096,128")
    cubins = [compile_cubin(WIDE_OPERATIONS, arch)]
    for rung_id in some_of(("r00", "r03", "s02", "s03"), 2):
        cubins.append(compile_rung(load_rung(rung_id), workload, LIMITS, {}, arch))
    assert [found for cubin in cubins for found in differences(cubin)] == []


@needs_tools
def test_the_comparison_sees_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labtools.toolchain.sass._read_text", _read_text.__wrapped__)  # not kept
    monkeypatch.setattr("labtools.toolchain.operands._width", lambda *_: 1)
    assert list(differences(compile_cubin(WIDE_OPERATIONS, "sm_90")))


# ------------------------------------------------------------------------------- control bits


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        # r03 on sm_90: LDC R1 0x000fe20000000800: stall 1, yields off, no scoreboards
        (0x000FE20000000800, (1, False, None, None, (), 0)),
        (0x000E2E0000002600, (7, False, 0, None, (), 0)),  # S2R sets scoreboard 0
        (0x001FCA00078E0202, (5, True, None, None, (0,), 0)),  # IMAD.WIDE waits for it
        (0x000E640000001000, (2, False, 1, None, (), 0)),  # MUFU.RCP sets scoreboard 1
        (0x002FE20000000000, (1, False, None, None, (1,), 0)),
        (0x0000A2000C1E9900, (1, False, 2, 0, (), 0)),  # LDG sets 2, and 0 for its operands
        (0x084FE40000000000, (2, False, None, None, (2,), 2)),
    ],
)
def test_control_bits(high: int, expected: tuple[object, ...]) -> None:
    assert dataclasses.astuple(one("NOP", high).control) == expected


# ------------------------------------------------------------------------------------ operands


def operand(text: str, place: int = 1) -> Operand:
    return one(f"MOV R0, {text}").operands[place]


def test_operands() -> None:
    constant = operand("c[0x0][0x210]")
    assert (constant.kind, constant.bank, constant.offset) == ("constant", 0, 0x210)
    assert operand("-c[0x3][R4+0x10]").parts == (("R4", ()),)
    assert operand("-c[0x3][R4+0x10]").negated
    half = operand("R5.H0_H0")
    assert (half.name, half.suffixes) == ("R5", ("H0_H0",))
    magnitude = operand("|R3|")
    assert magnitude.absolute and magnitude.name == "R3" and not magnitude.negated
    assert operand("-|R3|").negated and operand("-|R3|").absolute
    assert operand("~R7").inverted
    assert operand("R7.reuse").name == "R7"
    negated = operand("!P0")
    assert negated.kind == "predicate" and negated.inverted and negated.name == "P0"
    assert operand("UPT").name == "UPT" and operand("UPT").kind == "predicate"
    assert operand("0x3f800000").value == 0x3F800000 and operand("-0x8").value == -8
    assert operand("1.5").value == 1.5 and operand("+INF").value == float("inf")
    assert operand("-5").value == -5
    assert operand("SR_TID.X").kind == "special" and operand("SR_TID.X").name == "SR_TID.X"
    assert operand("SRZ").kind == "special"


def test_memory_operands() -> None:
    load = one("LDG.E.64.CONSTANT R8, desc[UR4][R2.64+0x10]")
    memory = load.operands[1]
    assert (memory.kind, memory.name, memory.offset) == ("memory", "UR4", 0x10)
    assert memory.parts == (("R2", ("64",)),)
    assert load.defines == {"R8", "R9"} and load.uses == {"R2", "R3", "UR4", "UR5"}
    assert load.base == "LDG" and load.modifiers == ("E", "64", "CONSTANT")
    behind = one("LDS.128 R4, [R9.X16+UR5+-0x20]")
    assert behind.operands[1].offset == -0x20
    assert behind.defines == {"R4", "R5", "R6", "R7"} and behind.uses == {"R9", "UR5"}
    store = one("@!P3 STG.E.64 desc[UR4][R2.64], R6")
    assert store.defines == set() and store.uses == set("R2 R3 R6 R7 UR4 UR5 P3".split())
    assert store.predicate == "P3" and store.predicate_negated
    assert one("LDG.E R8, [R2]").uses == {"R2", "R3"}  # before sm_80 a pair does not say so
    assert one("LDS R8, [R2]").uses == {"R2"}


@pytest.mark.parametrize(("text", "defines", "uses"), TABLES["registers"])
def test_registers_written_and_read(text: str, defines: str, uses: str) -> None:
    found = one(text)
    assert found.defines == set(defines.split()), text
    assert found.uses == set(uses.split()), text


# --------------------------------------------------------------------------------- loops, liveness


def test_loops_and_the_slow_path_behind_the_end() -> None:
    sass = code_of(*TABLES["loops"])
    spans = [(loop.first, loop.last, loop.depth, loop.parent) for loop in sass.loops]
    assert spans == [(1, 8, 1, None), (2, 4, 2, 0)]
    assert [(loop.first, loop.last) for loop in sass.innermost_loops] == [(2, 4)]
    assert [line.base for line in sass.loops[1].instructions] == ["IADD3", "ISETP", "BRA"]
    assert len(sass.executable) == 12  # without the endless branch and the padding
    # R0 lives through the inner loop, R1 does not live through the outer one's end.
    assert sass.live_names[2] == {"R0", "R1"}
    assert sass.live_names[1] == {"R0"}
    assert sass.live_names[0] == set()


def test_loops_of_the_ladder() -> None:
    count = Counter()
    for rung_id in LADDER:
        listing = stored("sm_90", rung_id)[0]
        entries = parse_listings(listing.listing)
        if load_rung(rung_id).operation != "decode":
            continue
        (decode,) = [name for name in entries if name.startswith("decode")]
        sass = entries[decode]
        loads = [loop for loop in sass.innermost_loops if loop.count("LDG|LDGSTS")]
        count[rung_id] = len(loads)
        if load_rung(rung_id).min_arch == "sm_75":  # the others have a loop of copies before
            assert all(loop.depth == 1 for loop in loads)
    # two passes have loops of their own; the others have one loop, and what unrolling leaves over
    assert count["r00_two_passes"] >= 2
    assert all(1 <= found <= 5 for found in count.values()), count


# ------------------------------------------------------------------------------ bad listings


def test_a_file_of_cuda_12_names_its_architecture_otherwise() -> None:
    (path, *_) = sorted(listings_dir().glob("sm_90/r0*.json.gz"))
    listing = read_stored(path)[0].listing
    flags = '.headerflags\t@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"'
    other = re.sub(r"\.target.*", flags, listing)
    assert other != listing and parse_listings(other) == parse_listings(listing)


def test_malformed_listings_are_refused() -> None:
    good = listing_of("MOV R0, 0x1", "EXIT")
    assert len(parse_listing(good).instructions) == 2
    with pytest.raises(LabError, match="no kernel called other"):
        parse_listing(good, "other")
    with pytest.raises(LabError, match="architecture"):
        parse_listing("")
    with pytest.raises(LabError, match="architecture"):
        parse_listing(good.replace(".target", ".aim"))
    with pytest.raises(LabError, match="no kernel"):
        parse_listings("\t.target sm_90\n")
    lines = good.splitlines()
    with pytest.raises(LabError, match="without its encoding"):
        parse_listing("\n".join(lines[:-1]))
    with pytest.raises(LabError, match="no encoded instructions"):
        parse_listing("\n".join(lines[:2]))
    plain = re.sub(r"/\* 0x[0-9a-f]{16} \*/", "", good)
    with pytest.raises(LabError, match="no encoded instructions"):
        parse_listings(plain)


def test_a_listing_of_two_kernels() -> None:
    first = listing_of("EXIT")
    second = first.replace(".text.k", ".text.other").replace("\t.target sm_90\n", "")
    both = first + "\n" + second
    assert list(parse_listings(both)) == ["k", "other"]
    with pytest.raises(LabError, match="k, other"):
        parse_listing(both)
