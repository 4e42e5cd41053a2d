"""Stored listings: in step with the kernels, small, and enough where there is no compiler."""

from __future__ import annotations

import gzip
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from devices import LIMITS, NVRTC, needs_locked, needs_tools

from labtools.problem import LabError, Rung, Workload, load_rung
from labtools.toolchain import (
    CompileError,
    CompilerMissing,
    Cubin,
    compile_cubin,
    compile_rung,
    compiler,
    listings,
)
from labtools.toolchain.cache import content_key
from labtools.toolchain.compiler import codes_path, kernel_hashes
from labtools.toolchain.listings import (
    MachineCode,
    StoredListing,
    compact_lines,
    expand_lines,
    listings_dir,
    machine_code,
    make_stored,
    portable_listing,
    portable_name,
    read_stored,
    source_text_of,
    stored_path,
    text_hash_of,
    write_stored,
)
from labtools.toolchain.sass import SourceLine, parse_listings
from labtools.toolchain.sources import hash_source
from labtools.toolchain.triton_code import stored_answers_path
from tools.write_listings import (
    ARCHS,
    gpus_of,
    kernels,
    locked_nvrtc,
    plan_of_arch,
    workloads_of,
    write_all,
)

WORKLOAD = Workload.parse("8,32,8,4096,128")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise CompilerMissing("There is no CUDA compiler here.", "nothing is installed", "pages")

    monkeypatch.setattr(compiler, "compile_cubin", missing)
    listings._codes.clear()


@pytest.fixture(autouse=True)
def fresh() -> None:
    listings._codes.clear()


# --------------------------------------------------------------------------------- in step


def first_archs(rung: Rung, *more: str) -> list[str]:
    """The records' architecture, the oldest that has what a rung needs, and others that do."""
    archs = ("sm_90", rung.min_arch.removesuffix("a"), *more)
    return [arch for arch in dict.fromkeys(archs) if rung.runs_on(arch)]


def stale(rung: Rung, in_ladder: bool, arch: str) -> list[str]:
    """What is wrong with the stored listings of a rung."""
    plan = plan_of_arch(rung, arch, in_ladder)
    path = stored_path(rung.id, arch)
    if not plan:
        return [f"{path.name} is not planned"] if path.is_file() else []
    if not path.is_file():
        return [f"{arch}/{path.name} is missing"]
    found = {one.source_hash: one for one in read_stored(path)}
    problems = []
    for workload, limits, knobs in plan:
        defines = rung.defines(workload, limits, knobs)
        one = found.pop(hash_source(rung.source_text, defines, rung.include_dirs), None)
        if one is None:
            problems.append(f"{arch}/{rung.id} with {defines} is not stored")
        elif one.text_hash != text_hash_of(rung):
            problems.append(f"{arch}/{rung.id} with {defines} has another text: lines moved")
        elif one.defines != defines or one.nvrtc_version != locked_nvrtc():
            problems.append(f"{arch}/{rung.id} with {defines} was made otherwise")
    return problems + [
        f"{arch}/{rung.id} holds {one.defines}, not planned" for one in found.values()
    ]


def test_stored_listings_are_those_of_the_present_sources() -> None:
    problems = [
        problem
        for rung, in_ladder in kernels()
        for arch in ARCHS
        for problem in stale(rung, in_ladder, arch)
    ]
    assert problems == [], "run make regen"


def test_a_changed_source_is_found_stale() -> None:
    rung = load_rung("r03")
    other = rung.with_source(rung.source_text.replace("weight_sum * rescale", "weight_sum"))
    assert any("not stored" in problem for problem in stale(other, True, "sm_90"))
    moved = rung.with_source("// a comment\n" + rung.source_text)
    assert any("lines moved" in problem for problem in stale(moved, True, "sm_90"))


def test_stored_listings_are_small_and_name_no_machine() -> None:
    paths = list(listings_dir().glob("*/*"))
    files = {path for path in listings_dir().iterdir() if path.is_file()}
    assert files == {codes_path(), stored_answers_path()}
    assert codes_path().stat().st_size < 100_000
    assert all(path.name.endswith(".json.gz") for path in paths)
    each = sum(path.stat().st_size for path in paths) / len(list(kernels()))
    assert each < 200_000, "bytes of a kernel, on all architectures"
    for path in paths:
        text = gzip.decompress(path.read_bytes()).decode()
        assert '"//## File \\"/' not in text, path


@needs_locked
@pytest.mark.parametrize("arch", ["sm_90", "sm_75"])
@pytest.mark.parametrize("rung_id", ["r00", "r03"])
def test_the_pinned_compiler_makes_the_stored_listing(rung_id: str, arch: str) -> None:
    rung = load_rung(rung_id)
    made = make_stored(rung, WORKLOAD, gpus_of(arch)[0], rung.resolve_knobs())
    assert made in read_stored(stored_path(rung.id, arch))


# ------------------------------------------------------------------------------- machine code


@needs_tools
def test_machine_code_is_compiled_here() -> None:
    rung = load_rung("s02")
    rung = rung.with_source(rung.source_text + "// not what is stored\n")
    began = time.perf_counter()
    code = machine_code(rung, WORKLOAD, LIMITS, {"split": 2})
    took = time.perf_counter() - began
    assert code.origin == f"compiled here with NVRTC {NVRTC}"
    assert (
        set(code.entries)
        == set(code.resources)
        == {*("decode_s02", "quantise_cache", "merge_pieces")}
    )
    assert not code.stored and 0 < code.compile_s <= took < 20
    assert code.source_hash == kernel_hashes(rung, WORKLOAD, LIMITS, {"split": 2}).source_hash
    began = time.perf_counter()
    assert machine_code(rung, WORKLOAD, LIMITS, {"split": 2}) is code
    assert time.perf_counter() - began < 0.1


@needs_tools
def test_an_added_comment_moves_the_lines() -> None:
    rung = load_rung("r03")
    first = machine_code(rung, WORKLOAD, LIMITS).entries["decode_r03"].instructions[0].source
    moved = rung.with_source("// one more line\n" + rung.source_text)
    second = machine_code(moved, WORKLOAD, LIMITS).entries["decode_r03"].instructions[0].source
    assert first is not None and second is not None and second.line == first.line + 1


@needs_tools
def test_a_source_that_does_not_compile_is_no_case_for_a_stored_listing() -> None:
    rung = load_rung("r03")
    with pytest.raises(CompileError):
        machine_code(
            rung.with_source(rung.source_text.replace("score_max = score", "x", 1) + "}"),
            WORKLOAD,
            LIMITS,
        )


# --------------------------------------------------------------------------- without a compiler


def same(a: MachineCode, b: MachineCode) -> bool:
    # By content: a NaN is not equal to itself, and equal sets may be printed in two orders.
    return content_key(a.entries) == content_key(b.entries)


@needs_locked
@pytest.mark.parametrize("rung_id", ["r00", "r01", "r02", "r03", "s02", "s05"])
def test_a_stored_listing_is_what_would_be_compiled(
    rung_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung = load_rung(rung_id)
    cubin = compile_rung(rung, WORKLOAD, LIMITS)
    here = parse_listings(portable_listing(cubin, rung))
    listings._codes.clear()
    monkeypatch.setattr(listings, "disassembler", _no_disassembler)
    there = machine_code(rung, WORKLOAD, LIMITS)
    assert there.stored and there.origin == f"stored listing, NVRTC {locked_nvrtc()}"
    assert content_key(here) == content_key(there.entries)
    assert cubin.entries == there.resources


@needs_locked
def test_the_compiler_is_asked_where_no_stored_listing_says_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def count(source: str, *arguments: Any, **named: Any) -> Cubin:
        asked.append(source)
        return compile_cubin(source, *arguments, **named)

    monkeypatch.setattr(compiler, "compile_cubin", count)
    rung = load_rung("r03")
    found = listings._stored_of(rung, rung.defines(WORKLOAD, LIMITS), "sm_90")
    assert found is not None
    stored = _code_anew(rung)
    assert not asked and stored.stored
    assert not _code_anew(rung.with_source(rung.source_text + "\n// longer")).stored
    assert len(asked) == 1  # lines of another text
    older = replace(found, nvrtc_version="12.0")
    monkeypatch.setattr(listings, "_stored_of", lambda *_: older)
    compiled = _code_anew(rung)
    assert len(asked) == 2 and not compiled.stored
    assert same(stored, compiled)


@needs_locked
def test_a_damaged_file_of_listings_costs_a_compilation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rung = load_rung("r03")
    (tmp_path / "sm_90").mkdir()
    (tmp_path / "sm_90" / f"{rung.id}.json.gz").write_bytes(b"no listing")
    monkeypatch.setattr(listings, "listings_dir", lambda: tmp_path)
    assert not _code_anew(rung).stored


def _code_anew(rung: Rung) -> MachineCode:
    listings._codes.clear()
    code = machine_code(rung, WORKLOAD, LIMITS)
    assert code.entries["decode_r03"].instructions
    return code


def _no_disassembler(*_: object) -> str:
    raise LabError("The machine code cannot be shown as text here.", "nvdisasm is missing", "all")


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_stored_listing_serves() -> None:
    for rung, in_ladder in kernels():
        for arch in first_archs(rung, "sm_120") if in_ladder else ("sm_90",):
            for limits in gpus_of(arch) if in_ladder else (LIMITS,):
                problem, _ = workloads_of(rung)
                code = machine_code(rung, problem, limits)
                assert code.stored and code.arch == arch
                launched = {launch.entry for launch in rung.launches(problem, limits)}
                assert launched <= set(code.entries)


@pytest.mark.usefixtures("no_compiler")
def test_an_added_comment_keeps_the_listing_but_not_its_lines() -> None:
    rung = load_rung("r03")
    code = machine_code(rung.with_source("// one more line\n" + rung.source_text), WORKLOAD, LIMITS)
    assert code.stored
    assert all(one.source is None for one in code.entries["decode_r03"].instructions)


@pytest.mark.usefixtures("no_compiler")
def test_what_is_not_stored_says_what_is() -> None:
    rung = load_rung("r03")
    with pytest.raises(LabError) as error:
        machine_code(rung, WORKLOAD, LIMITS, {"unroll": 2}, "sm_80")
    assert "unroll 2" in error.value.what and "nothing is installed" in error.value.why
    assert "unroll 4" in error.value.still_works
    with pytest.raises(LabError, match="sm_80") as error:
        machine_code(load_rung("s01"), WORKLOAD, LIMITS, {}, "sm_80")
    assert "on sm_90" in error.value.still_works
    edited = rung.with_source(rung.source_text.replace("weight_sum * rescale", "weight_sum"))
    with pytest.raises(LabError) as error:
        machine_code(edited, WORKLOAD, LIMITS)
    assert "another source" in error.value.why and "unedited" in error.value.still_works


def test_a_damaged_file_is_an_error_in_plain_words(tmp_path: Path) -> None:
    for content in (b"no gzip", gzip.compress(b"no json"), gzip.compress(b'{"lines": []}')):
        path = tmp_path / "r.json.gz"
        path.write_bytes(content)
        with pytest.raises(LabError, match="cannot be read"):
            read_stored(path)
        path.unlink()


# --------------------------------------------------------------------------------------- files


def test_writing_and_reading(tmp_path: Path) -> None:
    stored = read_stored(stored_path("r03_one_warp", "sm_90"))[:3]
    path = tmp_path / "sm_90" / "r.json.gz"
    assert write_stored(path, "sm_90", stored)
    assert not write_stored(path, "sm_90", stored)
    assert read_stored(path) == stored
    assert compact_lines(expand_lines(stored[0].lines)) == list(stored[0].lines)
    other = StoredListing("h", "t", "1.0", {}, {}, ())
    with pytest.raises(LabError, match="one file"):
        write_stored(path, "sm_90", [*stored, other])


def test_an_address_that_is_left_out_can_be_restored() -> None:
    listing = read_stored(stored_path("r03_one_warp", "sm_90"))[0].listing
    with pytest.raises(LabError, match="without its addresses"):
        compact_lines(listing.replace("/*0010*/", "/*0018*/"))


def test_source_lines_have_their_text() -> None:
    for rung, in_ladder in kernels():
        for arch in first_archs(rung) if in_ladder else ("sm_90",):
            stored = read_stored(stored_path(rung.id, arch))[0]
            for sass in parse_listings(stored.listing).values():
                lines = {one.source for one in sass.instructions if one.source}
                own = {line for line in lines if not line.file.startswith("cuda/")}
                assert own and all(source_text_of(line, rung) is not None for line in own)
    rung = load_rung("r03")
    text = rung.source_text.splitlines()
    assert source_text_of(SourceLine("kernels/decode/r03_one_warp.cu", 3), rung) == text[2]
    assert source_text_of(SourceLine(str(rung.source), 3), rung) == text[2]
    cell = rung.with_source("// new\n" + rung.source_text)
    assert source_text_of(SourceLine("r03_one_warp (cell)", 1), cell) == "// new"
    assert source_text_of(SourceLine("kernels/include/nothing.cuh", 1), rung) is None
    assert source_text_of(SourceLine("kernels/decode/r03_one_warp.cu", 9999), rung) is None
    assert source_text_of(None, rung) is None


def test_names_of_files_hold_everywhere(tmp_path: Path) -> None:
    rung = load_rung("r03")
    assert portable_name(str(rung.source), rung) == "kernels/decode/r03_one_warp.cu"
    beside = rung.source.parent / ".." / "include" / "row.cuh"
    assert portable_name(str(beside), rung) == "kernels/include/row.cuh"
    assert portable_name(str(tmp_path / "mine.cu"), rung) == (tmp_path / "mine.cu").as_posix()
    cell = rung.with_source(rung.source_text)
    assert portable_name(str(tmp_path / "r03_one_warp (cell)"), cell) == "r03_one_warp (cell)"


def test_listings_are_written_with_the_pinned_compiler_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tools.write_listings.find_compiler", lambda: _Other())
    with pytest.raises(LabError, match="make regen"):
        write_all()


class _Other:
    version = "1.0"

    def __str__(self) -> str:
        return "NVRTC 1.0"
