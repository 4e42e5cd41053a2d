"""Compiling without a GPU: resources, line tables and the hash of the machine code."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import pytest
from devices import LIMITS, NVRTC, needs_compiler, needs_tools, some_of
from elftools.elf.elffile import ELFFile

from labtools.problem import HEADLINE, LabError, Workload, list_rungs, load_rung
from labtools.toolchain import (
    CompileError,
    Cubin,
    compile_cubin,
    compile_rung,
    disassemble,
    kernel_hashes,
)
from labtools.toolchain import compiler as compiler_module
from labtools.toolchain.cubin import parse_assembler_log, read_entries
from labtools.toolchain.listings import _stored_of
from labtools.toolchain.live import add_header_mark
from labtools.toolchain.options import live_options
from labtools.toolchain.sources import expand_includes, hash_source, normalise_source
from tools.write_listings import locked_nvrtc

pytestmark = needs_compiler

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

SOURCE = """\
#include <cuda_fp16.h>
#ifndef FACTOR
#define FACTOR 3
#endif
extern "C" __global__ void __launch_bounds__(128) scale(const half* in, float* out, int n) {
  __shared__ float row_smem[300];
  const int i = threadIdx.x;
  row_smem[i] = __half2float(in[i]) * FACTOR;
  __syncthreads();
  out[i] = row_smem[127 - i] + n;
}

extern "C" __global__ void look_up(float* out, int n) {
  extern __shared__ float dynamic_smem[];
  float table[64];
  for (int i = 0; i < 64; ++i) table[i] = out[i];
  dynamic_smem[threadIdx.x] = n;
  __syncthreads();
  for (int i = 0; i < n; ++i) out[i] = table[(i * 7) & 63] * dynamic_smem[i & 31];
}
"""


def read_registers(image: bytes) -> dict[str, int]:
    """Registers a thread by kernel, from the cubin's own attributes: another witness."""
    file = ELFFile(io.BytesIO(image))
    symbols = file.get_section_by_name(".symtab")
    data, at, found = file.get_section_by_name(".nv.info").data(), 0, {}
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        if form == 0x04:  # its value has a size
            if attribute == 0x2F:
                index, registers = struct.unpack_from("<II", data, at + 4)
                found[symbols.get_symbol(index).name] = registers
            at += size
        at += 4
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_resources_of_a_kernel(arch: str) -> None:
    cubin = compile_cubin(SOURCE, arch)
    scale, look_up = cubin.entries["scale"], cubin.entries["look_up"]
    assert set(cubin.entries) == {"scale", "look_up"}
    assert scale.shared_bytes == 1200  # 300 floats, without the driver's reserve
    assert look_up.shared_bytes == 0  # its shared memory is dynamic
    assert look_up.local_bytes == 256  # an indexed array of 64 floats lives in local memory
    assert scale.local_bytes == 0
    assert (scale.max_threads, look_up.max_threads) == (128, None)
    assert 8 <= scale.registers <= 32
    # The assembler's report and the file itself are two witnesses.
    assert read_registers(cubin.image) == {
        name: entry.registers for name, entry in cubin.entries.items()
    }


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_spills_are_counted(arch: str) -> None:
    terms = "\n".join(f"  float a{i} = in[{i} * n];" for i in range(80))
    total = " + ".join(f"a{i} * a{(i * 7 + 3) % 80}" for i in range(80))
    more = " + ".join(f"a{i} * a{(i * 11 + 5) % 80}" for i in range(80))
    text = (
        'extern "C" __global__ void __launch_bounds__(1024, 2) k(const float* in, float* o, int n)'
        f"{{\n{terms}\n  __syncthreads();\n  o[0] = {total};\n  __syncthreads();\n"
        f"  o[1] = {more};\n}}"
    )
    entry = compile_cubin(text, arch).entries["k"]
    assert entry.spill_store_bytes > 0
    assert entry.spill_load_bytes > 0
    assert entry.local_bytes > 0


def test_a_report_names_calls_and_kernels() -> None:
    """Spills of a called function count with its kernel; the stack is the kernel's total."""
    log = """
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for callee
    64 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 48 bytes cumulative stack size, 1200 bytes smem
ptxas info    : Compiling entry function 'unfinished' for 'sm_90'
"""
    found = parse_assembler_log(log)
    assert set(found) == {"k"}
    assert (found["k"].registers, found["k"].shared_bytes, found["k"].local_bytes) == (40, 1200, 48)
    assert (found["k"].spill_store_bytes, found["k"].spill_load_bytes) == (16, 28)


def test_a_silent_assembler_is_not_read_as_zero() -> None:
    cubin = compile_cubin(SOURCE, "sm_90")
    with pytest.raises(LabError, match="said nothing about"):
        read_entries(cubin.image, cubin.arch, "")
    with pytest.raises(LabError, match="not a cubin"):
        read_entries(b"\x00" * 400, "sm_90", cubin.log)


@pytest.mark.parametrize("arch", some_of(ARCHS, 1))
def test_every_shipped_rung_compiles_everywhere_in_time(arch: str) -> None:
    """And to the machine code of its stored listing, which a forecast reads instead."""
    rungs = list_rungs()
    assert rungs
    stored = compiled = 0
    for rung in rungs:
        for head_dim in (64, 128):
            workload = HEADLINE.replace(head_dim=head_dim)
            if not rung.runs_on(arch) or rung.supports(workload) is not None:
                continue
            before = os.times()
            cubin = compile_rung(rung, workload, LIMITS, arch=arch)
            # Of the processor, the compiler's own included: a busy machine makes it no longer.
            assert sum(os.times()[:4]) - sum(before[:4]) < 3  # 0.1 to 0.6 s
            compiled += 1
            for launch in rung.launches(workload, LIMITS):
                entry = cubin.resources_of(launch.entry)
                assert 0 < entry.registers <= 255
                assert entry.max_threads is None or entry.max_threads >= launch.num_threads
            listing = _stored_of(rung, rung.defines(workload, LIMITS), arch)
            if listing is not None and listing.nvrtc_version == cubin.nvrtc_version:
                assert listing.resources == cubin.entries
                stored += 1
    assert stored >= compiled / 2 or locked_nvrtc() != NVRTC


def test_both_ways_to_the_compiler_agree() -> None:
    pytest.importorskip("cupy")
    pytest.importorskip("cuda.core")
    for arch in ("sm_75", "sm_90", "sm_120"):
        first = compile_cubin(SOURCE, arch, {"FACTOR": "5"}, compiler="cuda-core")
        second = compile_cubin(SOURCE, arch, {"FACTOR": "5"}, compiler="cupy")
        assert first.nvrtc_version == second.nvrtc_version
        assert first.entries == second.entries
        with pytest.raises(CompileError) as failed:
            compile_cubin(SOURCE.replace("n;", "m;"), arch, compiler="cupy")
        assert failed.value.line == 10


def test_live_options_give_the_same_machine_code() -> None:
    """Compile with exactly what `compile_raw` hands to CuPy, plus what CuPy adds on its own."""
    nvrtc = pytest.importorskip("cupy.cuda", reason="needs CuPy").nvrtc
    from labtools.toolchain.options import all_include_dirs

    rung = load_rung("r03")
    defines = rung.defines(HEADLINE, LIMITS)
    folders = all_include_dirs(rung.include_dirs)
    text = add_header_mark(rung.source_text, rung.source_text, folders)
    added = ("-ftz=true", "-arch=sm_90", "--device-as-default-execution-space")
    options = (*live_options(defines, folders), *added, "--ptxas-options=-v")
    program = nvrtc.createProgram(text, "/tmp/somewhere/else.cu", (), ())
    nvrtc.compileProgram(program, options)
    image, log = nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    nvrtc.destroyProgram(program)
    ours = compile_rung(rung, HEADLINE, LIMITS, arch="sm_90", compiler="cupy")
    assert read_entries(bytes(image), "sm_90", log) == ours.entries


def test_header_mark_follows_the_headers(tmp_path: Path) -> None:
    (tmp_path / "step.cuh").write_text("#define STEP 1\n")
    source = '#include "step.cuh"\nint x;'
    first = add_header_mark(source, source, [tmp_path])
    (tmp_path / "step.cuh").write_text("#define STEP 2\n")
    assert add_header_mark(source, source, [tmp_path]) != first


# ------------------------------------------------------------------------------------ hashes


def code_hash(source: str, **options: object) -> str:
    return compile_cubin(source, "sm_90", **options).entries["scale"].code_hash  # type: ignore[arg-type]


TABLE = SOURCE.replace(
    "extern", "static __device__ float table[2] = {1.f, 2.f};\nextern", 1
).replace("+ n;", "+ table[n & 1];")
CALL = SOURCE.replace(
    "extern", "__device__ __noinline__ float twist(float x) { return x * 2.f; }\nextern", 1
).replace("+ n;", "+ twist(n);")
UNCHANGED = {
    "a comment": "// a comment\n/* and\nanother */\n" + SOURCE,
    "a comment at the end of a line": SOURCE.replace("threadIdx.x;", "threadIdx.x;  // lane"),
    "blank lines": SOURCE.replace("\n", "\n\n"),
    "another kernel": SOURCE.replace("* dynamic_smem[i & 31]", "- dynamic_smem[i & 15]"),
}
"""Other texts of `SOURCE` with the same machine code."""
CHANGED = {
    "an operator": (SOURCE, "row_smem[127 - i] + n", "row_smem[127 - i] - n"),
    "an index": (SOURCE, "127 - i", "126 - i"),
    "a constant": (SOURCE, "FACTOR 3", "FACTOR 7"),
    "a barrier": (SOURCE, "  __syncthreads();\n  out[i]", "  out[i]"),
    "shared memory": (SOURCE, "row_smem[300]", "row_smem[301]"),
    "a table in memory": (TABLE, "2.f}", "3.f}"),
    "a called function": (CALL, "x * 2.f", "x * 4.f"),
}
"""A source, and a part of it that makes other machine code when it is replaced."""


@pytest.mark.parametrize("case", UNCHANGED)
def test_code_hash_ignores(case: str) -> None:
    assert UNCHANGED[case] != SOURCE
    assert code_hash(UNCHANGED[case]) == code_hash(SOURCE)


@pytest.mark.parametrize("case", CHANGED)
def test_code_hash_sees(case: str) -> None:
    source, part, other = CHANGED[case]
    assert part in source
    assert code_hash(source.replace(part, other)) != code_hash(source)


def test_code_hash_ignores_names_and_paths(tmp_path: Path) -> None:
    assert code_hash(TABLE, name="a.cu") == code_hash(TABLE, name=str(tmp_path / "b c.cu"))


def test_code_hash_ignores_line_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    with_lines = compile_cubin(SOURCE, "sm_90", compiler="cupy")
    monkeypatch.setattr(compiler_module, "COMMON_OPTIONS", ("-std=c++17",))
    without = compile_cubin(SOURCE, "sm_90", compiler="cupy", name="plain.cu")
    assert len(without.image) < len(with_lines.image)
    assert without.entries == with_lines.entries


def test_kernel_hashes_tell_a_comment_from_a_change() -> None:
    rung = load_rung("r03")
    text = rung.source_text
    shipped = kernel_hashes(rung, HEADLINE, LIMITS)
    assert shipped.nvrtc_version == NVRTC
    commented = kernel_hashes(rung.with_source("// why\n" + text), HEADLINE, LIMITS)
    assert commented == shipped
    changed = kernel_hashes(rung.with_source(text.replace("fmaxf", "fminf", 1)), HEADLINE, LIMITS)
    assert changed.sass_hash != shipped.sass_hash
    assert changed.source_hash != shipped.source_hash
    knob = rung.knobs[0]
    other = next(value for value in knob.choices if value != knob.default)
    assert (
        kernel_hashes(rung, HEADLINE, LIMITS, {knob.name: other}).source_hash != shipped.source_hash
    )
    assert kernel_hashes(rung, HEADLINE, LIMITS, arch="sm_89").sass_hash != shipped.sass_hash
    assert kernel_hashes(rung, HEADLINE, LIMITS, arch="sm_89").source_hash == shipped.source_hash
    # The lengths are data, not code.
    assert kernel_hashes(rung, Workload(1, 8, 8, 31, 128), LIMITS) == shipped


def test_kernel_hashes_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    rung = load_rung("r03")
    with_compiler = kernel_hashes(rung, HEADLINE, LIMITS)

    def fail(name: str) -> str:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(compiler_module, "_nvrtc_version", fail)
    found = kernel_hashes(rung, HEADLINE, LIMITS)
    assert found.sass_hash is None
    assert found.nvrtc_version is None
    assert found.source_hash == with_compiler.source_hash


def test_kernel_hashes_refuse_a_missing_kernel() -> None:
    rung = load_rung("r03")
    renamed = rung.with_source(rung.source_text.replace("decode_r03", "decode_r33"))
    with pytest.raises(LabError, match="no kernel called decode_r03"):
        kernel_hashes(renamed, HEADLINE, LIMITS)
    mangled = rung.with_source(rung.source_text.replace('extern "C" ', ""))
    assert kernel_hashes(mangled, HEADLINE, LIMITS).sass_hash


MEANINGS = [
    (True, "a = b+c; // sum", "a=b + c ;"),
    (True, "f( x , y )", "f(x,y)"),
    (True, "int  a ;\n\n\nint b;", "int a;int b;"),
    (True, 's = "a // b";  // c', 's="a // b";'),
    (True, "#pragma   unroll  4\nfor (;;) ;", "#pragma unroll 4\nfor(;;);"),
    (True, "#define A \\\n  1", "#define A 1"),
    (True, "x = '\"'; /* \" */ y = 1;", "x='\"';y=1;"),
    (False, "a + +b", "a ++b"),
    (False, "a - -b", "a--b"),
    (False, "x > > y", "x >> y"),
    (False, "int a b", "int ab"),
    (False, '"a  b"', '"a b"'),
    (False, "#define F (x)", "#define F(x)"),
    (False, "// a", "a"),
    (False, "1 . x", "1.x"),
]


@pytest.mark.parametrize(("same", "first", "second"), MEANINGS)
def test_normalised_sources_are_equal_where_they_mean_the_same(
    same: bool, first: str, second: str
) -> None:
    assert (normalise_source(first) == normalise_source(second)) is same


def test_source_hash_reads_own_headers_once(tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text('#pragma once\n#include "b.cuh"\nint a;\n')
    (tmp_path / "b.cuh").write_text('#include "a.cuh"\nint b;\n')
    text = '#include "a.cuh"\n#include "b.cuh"\n#include <cuda_fp16.h>\nint c;\n'
    expanded = normalise_source(expand_includes(text, [tmp_path]))
    assert expanded == "int b;int a;\n#include <cuda_fp16.h>\nint c;"
    first = hash_source(text, {"A": "1", "B": "2"}, [tmp_path])
    assert first == hash_source(text, {"B": "2", "A": "1"}, [tmp_path])
    assert first != hash_source(text, {"A": "1", "B": "3"}, [tmp_path])
    (tmp_path / "b.cuh").write_text("int b;  // the same\n")
    assert first == hash_source(text, {"A": "1", "B": "2"}, [tmp_path])
    (tmp_path / "b.cuh").write_text("int bb;\n")
    assert first != hash_source(text, {"A": "1", "B": "2"}, [tmp_path])


# ------------------------------------------------------------------------------ disassembly


@needs_tools
def test_disassembly_shows_one_kernel() -> None:
    cubin = compile_cubin(SOURCE, "sm_90")
    both, one = disassemble(cubin), disassemble(cubin, "scale")
    assert "BAR.SYNC" in one
    assert ".text.look_up" in both
    assert ".text.look_up" not in one
    assert disassemble(cubin.image, "scale") == one
    with pytest.raises(LabError, match="its kernels are: "):
        disassemble(cubin, "nothing")
    with pytest.raises(LabError, match="refused"):
        disassemble(b"\x7fELF not a cubin")


def test_disassembly_without_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labtools.toolchain.sass.find_tool", lambda name: None)
    with pytest.raises(LabError, match="nvdisasm is missing"):
        disassemble(Cubin(b"", "sm_90", "", "13.0", {}))
