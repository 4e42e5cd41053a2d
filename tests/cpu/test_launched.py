"""Any kernel by its launch alone: the same forecast as that of a rung, and what is refused."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import re
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labtools.predict import forecast, load_gpu
from labtools.predict.launched import forecast_asked, forecast_launch, signatures
from labtools.problem import KernelError, LabError, Rung, Workload, load_rung, operation_of
from labtools.problem.launched import (
    AskedKernel,
    AskedLaunch,
    LaunchArgument,
    read_arguments,
    read_launches,
    sizes_of,
)
from labtools.toolchain import CompileError, find_cxx_compiler, nvcc
from labtools.toolchain.compiler import compile_cubin, compile_rung
from labtools.toolchain.cubin import parameter_bytes, read_entries
from labtools.toolchain.options import COMMON_OPTIONS, CUPY_ADDED_OPTIONS, all_include_dirs
from labtools.toolchain.sources import device_part

H200 = load_gpu("h200")
SOFTMAX = """
template <typename T, int VEC>
__global__ void softmax(const T* __restrict__ x, T* out, int n) {
  __shared__ float part[8];
  float most = -1e30f;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    most = fmaxf(most, (float)x[size_t(blockIdx.x) * n + i]);
  for (int by = 16; by; by >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, by));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
  __syncthreads();
  for (int w = 0; w < 8; ++w) most = fmaxf(most, part[w]);
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[size_t(blockIdx.x) * n + i] = (T)(expf((float)x[size_t(blockIdx.x) * n + i] - most));
}
"""
GATHER = """
extern "C" __global__ void gather(const float* table, const int* rows, float* out, int width) {
  for (int c = threadIdx.x; c < width; c += blockDim.x)
    out[size_t(blockIdx.x) * width + c] = table[size_t(rows[blockIdx.x]) * width + c];
}
"""
ARGS = ("x=f32[4096,n]", "out=f32[4096,n]:out", "n=i32:1024")


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    return write(tmp_path / "softmax.cu", SOFTMAX)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def as_launches(rung: Rung, problem: Any, folder: Path) -> AskedKernel:
    """What a rung launches, told without the rung."""
    contents, launches = problem.traced_contents(), rung.launches(problem, H200.limits)
    texts, numbers, asked = [], [], []
    for name, one in problem.buffers.items():
        said = ",".join(map(str, one.shape))
        text = f"{name}={one.dtype}[{said}]" + ":out" * (name in problem.outputs)
        if name in contents:
            np.save(folder / f"{name}.npy", contents[name])
            text += f"@{folder / name}.npy"
        texts.append(text)
    for launch in launches:
        names = []
        for place, arg in enumerate(launch.args):
            if isinstance(arg, str):
                names.append(arg)
                continue
            names.append(f"{launch.entry}_{place}")
            numbers.append(f"{names[-1]}={arg.dtype}:{arg!s}")
        sizes = (",".join(map(str, of)) for of in (launch.grid, launch.block))
        asked.append(AskedLaunch(launch.entry, *sizes, str(launch.smem_bytes), tuple(names)))
    spaces = {one.name: one for launch in launches for one in launch.workspace}
    workspace = tuple(LaunchArgument(one.name, one.dtype, one.shape) for one in spaces.values())
    defines = tuple(rung.defines(problem, H200.limits).items())
    given = read_arguments([*texts, *numbers])
    return AskedKernel(rung.source, tuple(asked), given, workspace, defines)


@pytest.mark.parametrize("name", ["r03", "r04", "r05", "row_sum"])
def test_a_launch_alone_has_the_forecast_of_its_rung(name: str, tmp_path: Path) -> None:
    rung = load_rung(name)
    problem = operation_of(rung).headline
    if rung.operation == "decode":
        problem = Workload(3, 8, 2, 700, 128, seq_lens=(700, 33, 350))
    wanted = forecast(rung, problem, H200)
    asked = as_launches(rung, problem, tmp_path)
    found = forecast_asked(asked, H200)
    assert found.time_us == pytest.approx(wanted.time_us, rel=1e-9)
    assert (found.bound, found.in_flight_bytes) == (wanted.bound, wanted.in_flight_bytes)
    assert [one.entry for one in found.launches] == [one.entry for one in wanted.launches]


def test_machine_code_has_the_forecast_of_its_source(softmax: Path) -> None:
    entry = "softmax<float, 4>"
    cubin = compile_cubin(SOFTMAX, "sm_90", name=str(softmax), entries=[entry])
    path = softmax.with_suffix(".cubin")
    path.write_bytes(cubin.image)
    launch = ("cdiv(4096, 1)", 256, ARGS)
    of_source = forecast_launch(softmax, entry, *launch)
    for named in ("softmax", cubin.symbol_of(entry)):
        assert forecast_launch(path, named, *launch).time_us == of_source.time_us
    assert of_source.floor.bytes == 2 * 4 * 4096 * 1024
    with pytest.raises(LabError, match="does not run on sm_80"):
        forecast_launch(path, "softmax", *launch, gpu="a100-80gb")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_a_file_says_what_the_assembler_said(arch: str) -> None:
    rung, seen = load_rung("r04"), 0
    cubin = compile_rung(rung, Workload(2, 8, 2, 300, 128), H200.limits, arch=arch)
    read = read_entries(cubin.image, arch, None)
    for entry, told in cubin.entries.items():
        found = read[cubin.symbol_of(entry)]
        for field in ("registers", "shared_bytes", "local_bytes", "max_threads"):
            assert getattr(found, field) == getattr(told, field), (entry, field)
            seen += getattr(told, field) or 0
    assert seen
    (launch, *_) = rung.launches(Workload(2, 8, 2, 300, 128), H200.limits)
    sizes = [8 if isinstance(one, str) else one.nbytes for one in launch.args]
    assert parameter_bytes(cubin.image, cubin.symbol_of(launch.entry)) == sizes


def test_what_integers_hold_decides_and_without_it_there_is_no_band(tmp_path: Path) -> None:
    path = write(tmp_path / "gather.cu", GATHER)

    def of(rows: str, table: str = ":part") -> Any:
        args = [f"table=f32[50000,n]{table}", f"rows=i32[8192]{rows}", "out=f32[8192,n]:out"]
        return forecast_launch(path, "gather", 8192, 128, [*args, "n=i32:1024"])

    unknown, drawn = of(""), of("=uniform:0,50000")
    assert unknown.band_us is None and "rows" in unknown.doubts[0]
    # Of a launch without an operation nobody measured how far its forecast is off.
    assert drawn.band_us is None and [one[:6] for one in drawn.doubts] == ["nobody"]
    np.save(tmp_path / "same.npy", np.zeros(8192, np.int32))
    one_row = of(f"@{tmp_path / 'same.npy'}")
    assert one_row.time_us < drawn.time_us
    assert one_row.launches[0].dram_bytes < drawn.launches[0].dram_bytes / 1.8
    assert drawn.floor.bytes == 4 * 8192 * 1025
    assert any("the trace does not see" in one for one in of("=arange", "").doubts)


STRUCT = """
namespace ours {
struct Params { float* out; const float* x; int rows; alignas(16) float by[3]; };
template <int VEC> __global__ void scale(const Params p, int n) {
  for (int i = threadIdx.x; i < n * VEC; i += blockDim.x)
    if (int(blockIdx.x) < p.rows)
      p.out[size_t(blockIdx.x) * n * VEC + i] = p.by[1] * p.x[size_t(blockIdx.x) * n * VEC + i];
}
template __global__ void scale<4>(Params, int);
}  // namespace ours
extern "C" __global__ void plain(float* out, const float* x, int rows, float by, int n) {
  for (int i = threadIdx.x; i < n * 4; i += blockDim.x)
    if (int(blockIdx.x) < rows)
      out[size_t(blockIdx.x) * n * 4 + i] = by * x[size_t(blockIdx.x) * n * 4 + i];
}
"""
TENSORS = ["x=f32[512,n*4]", "out=f32[512,n*4]:out"]


def test_a_structure_by_value_is_told_by_its_members(tmp_path: Path) -> None:
    source = write(tmp_path / "scale.cu", STRUCT)
    given = [*TENSORS, "p=struct(out,x,i32:512,12,f32:1,f32:2,f32:3)", "n=i32:1024"]
    found = forecast_launch(source, "ours::scale<4>", 512, 256, given)
    members = [*TENSORS[::-1], "rows=i32:512", "by=f32:2", "n=i32:1024"]
    wanted = forecast_launch(source, "plain", 512, 256, members)
    assert found.time_us == pytest.approx(wanted.time_us, rel=0.03)
    assert found.launches[0].dram_bytes == pytest.approx(wanted.launches[0].dram_bytes, rel=0.01)
    for told in ("out,x,i32:5", "out,x,i32:5,12,f32:1,f32:2,f32:3,16", "56", "f32:1,out"):
        wrong = [*TENSORS, f"p=struct({told})", "n=i32:1024"]
        with pytest.raises(LabError, match="takes 48, 4 bytes"):
            forecast_launch(source, "ours::scale<4>", 512, 256, wrong)
    nested = [*TENSORS, "by=struct(f32:1,f32:2,f32:3)", "p=struct(out,x,i32:5,by,4)", "n=i32:9"]
    _, problem = AskedKernel(source, (AskedLaunch("a", "1", "1"),), read_arguments(nested)).rung()
    assert [str(one) for one in problem.arguments][3] == "p=struct(out,x,i32:5,by,4)"
    for told in ("p=struct(q)", "p=struct()", "p=struct(n)", "p=struct(i8:300)", "p=struct(0)"):
        with pytest.raises(LabError, match="This launch cannot be read"):
            read_arguments([*TENSORS, told, "n=4"])


def packed(images: list[tuple[int, int, bytes, int, int]]) -> bytes:
    """A fat binary as nvcc lays it out: of each image its kind, architecture, bytes, mark of what
    packed it, and size when it is unpacked."""
    body = b""
    for kind, arch, data, mark, size in images:
        padded = data + bytes(-len(data) % 8)
        body += struct.pack("<HHIQ", kind, 0x101, 64, len(padded))
        body += struct.pack("<6I", len(data) if mark else 0, 0, 0x10008, arch, 0, 0)
        body += struct.pack("<3Q", 0x11 | mark, 0, size) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def shared_object(path: Path, data: bytes) -> Path:
    """A shared object that carries a fat binary."""
    held, source = path.with_suffix(".fat"), path.with_suffix(".s")
    held.write_bytes(data)
    source.write_text(f'.section .nv_fatbin, "a"\n.balign 8\n.incbin "{held}"\n')
    command = [str(find_cxx_compiler()), "-shared", "-nostdlib", "-o", str(path), str(source)]
    subprocess.run(command, check=True)
    return path


def ptx_of(source: str, arch: str, *entries: str) -> str:
    """What NVRTC makes before it assembles."""
    name, folders = "kernel.cu", all_include_dirs()
    options = [f"-arch={arch.replace('sm', 'compute')}", *COMMON_OPTIONS, *CUPY_ADDED_OPTIONS]
    options += [f"-I{one}" for one in folders]
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    for entry in entries:
        nvrtc.nvrtcAddNameExpression(program, entry.encode())
    nvrtc.nvrtcCompileProgram(program, len(options), [one.encode() for one in options])
    _, size = nvrtc.nvrtcGetPTXSize(program)
    made = b" " * size
    nvrtc.nvrtcGetPTX(program, made)
    return made.rstrip(b"\0").decode()


def test_ptx_has_the_forecast_of_its_source(cli: Any, softmax: Path) -> None:
    entry = "softmax<float, 4>"
    path = write(softmax.with_suffix(".ptx"), ptx_of(SOFTMAX, "sm_80", entry))
    launch = ("cdiv(4096, 1)", 256, ARGS)
    of_source = forecast_launch(softmax, entry, *launch)
    assert forecast_launch(path, entry, *launch).time_us == pytest.approx(
        of_source.time_us, rel=0.02
    )
    assert list(signatures(path).values()) == ["_Z7softmaxIfLi4EEvPKT_PS0_i of 8, 8, 4 bytes"]
    with pytest.raises(LabError, match="is for sm_80 and does not run on sm_75"):
        forecast_launch(path, entry, *launch, gpu="t4")
    line = path.read_text().partition("mov.u32")[0].count("\n") + 1
    path.write_text(path.read_text().replace("mov.u32", "muv.u32", 1))
    with pytest.raises(CompileError, match="muv") as wrong:
        forecast_launch(path, entry, *launch)
    assert wrong.value.line == line
    for text in ("", ".target sm_80", "\0" * 99, ".target sm_80\n.entry f(", "x" * 10**6):
        path.write_text(text)
        status, out, said = cli("forecast", str(path), "--entry=f", "--grid=1", "--block=1", *GIVEN)
        assert status in (1, 2, 3) and not out and "mistake" not in said, said


GIVEN = [f"--arg={one}" for one in ARGS]


@pytest.mark.parametrize("how", ["plain", "lz4", "zstd"])
def test_a_shared_object_carries_machine_code_and_ptx(
    cli: Any, softmax: Path, tmp_path: Path, how: str
) -> None:
    entry, launch = "softmax<float, 4>", (4096, 256, ARGS)
    images = []
    for arch in (80, 90):
        data = compile_cubin(SOFTMAX, f"sm_{arch}", entries=[entry]).image
        images.append((2, arch, *pressed(how, data)))
    images.append((1, 120, *pressed(how, ptx_of(SOFTMAX, "sm_120", entry).encode())))
    stub = (2, 90, compile_cubin(GATHER, "sm_90").image, 0, 0)
    path = shared_object(tmp_path / "lib.so", packed([stub]) + bytes(8) + packed(images))
    made = forecast_launch(path, entry, *launch)
    assert made.time_us == forecast_launch(softmax, entry, *launch).time_us
    assert made.launches[0].entry == entry
    for gpu in ("a100-80gb", "rtx5090"):
        assert forecast_launch(path, "softmax", *launch, gpu=gpu).time_us > made.time_us
    with pytest.raises(LabError, match="is for sm_90, sm_80, sm_120 and does not run on sm_75"):
        forecast_launch(path, entry, *launch, gpu="t4")
    with pytest.raises(LabError, match="has no kernel called softmax<double, 4>") as none:
        forecast_launch(path, "softmax<double, 4>", *launch)
    assert "softmax<float,4>" in none.value.why
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    section = whole.index(b"\x50\xed\x55\xba")
    for length in (0, 50, section + 100, len(whole) // 2):
        path.write_bytes(whole[:length])
        status, out, said = cli(
            "forecast", str(path), "--entry=softmax", "--grid=4", "--block=4", *GIVEN
        )
        assert status in (2, 3) and not out and "mistake" not in said, said
    for _ in range(10):
        torn = np.frombuffer(whole, np.uint8).copy()
        torn[rng.integers(section, section + 3000, 20)] = rng.integers(0, 256, 20)
        path.write_bytes(torn.tobytes())
        status, _, said = cli(
            "forecast", str(path), "--entry=softmax", "--grid=4", "--block=4", *GIVEN
        )
        assert "mistake" not in said, said


def pressed(how: str, data: bytes) -> tuple[bytes, int, int]:
    """Data as they are or compressed, with the mark of that and their size."""
    library = ctypes.CDLL(ctypes.util.find_library(how)) if how != "plain" else None
    made = ctypes.create_string_buffer(2 * len(data) + 64)
    if library is None:
        return data, 0, 0
    if how == "lz4":
        count = library.LZ4_compress_default(data, made, len(data), len(made))
        return made.raw[:count], 0x2000, len(data)
    library.ZSTD_compress.restype = ctypes.c_size_t
    sizes = [ctypes.c_size_t(one) for one in (len(made), len(data))]
    count = library.ZSTD_compress(made, sizes[0], data, sizes[1], 3)
    return made.raw[:count], 0x8000, len(data)


SPILLS = """
extern "C" __global__ void __launch_bounds__(256, 8) spills(const float* x, float* out, int n) {
  float a[64];
#pragma unroll
  for (int i = 0; i < 64; i++) a[i] = x[threadIdx.x + i * n];
#pragma unroll
  for (int j = 0; j < 8; j++)
#pragma unroll
    for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i * 7 + j) % 64] + x[i + j * n];
#pragma unroll
  for (int i = 0; i < 64; i++) out[threadIdx.x + i * n] = a[i];
}
"""


@pytest.mark.parametrize("suffix", [".cu", ".ptx", ".cubin"])
def test_compile_takes_a_launch_too(cli: Any, tmp_path: Path, suffix: str) -> None:
    cubin = compile_cubin(SPILLS, "sm_90")
    path = tmp_path / f"spills{suffix}"
    data = {".cu": SPILLS.encode(), ".ptx": ptx_of(SPILLS, "sm_90").encode(), ".cubin": cubin.image}
    path.write_bytes(data[suffix])
    args = ["--arg=x=f32[4096]", "--arg=out=f32[4096]:out", "--arg=n=i32:64"]
    status, out, said = cli("compile", str(path), "--grid=8", "--block=256", *args, "--json")
    assert status == 0, said
    (made,) = json.loads(out)["kernels"]
    told = cubin.resources_of("spills")
    for name in ("registers", "local_bytes", "spill_store_bytes", "spill_load_bytes"):
        assert made[name] == getattr(told, name) and made[name], name
    assert (made["grid"], made["block"]) == ([8, 1, 1], [256, 1, 1])


LAUNCHES = """
source = "two.cu"
[args]
rows = 64
n = "i32:2048"
x = "f32[rows,n]"
out = "f32[rows]:out"
[workspace]
sums = "f32[rows,cdiv(n,1024)]"
[defines]
PARTS = 2
[[launch]]
entry = "part"
grid = ["rows", "PLACE"]
block = 128
args = ["x", "sums", "n"]
[[launch]]
entry = "merge"
grid = "cdiv(rows,32)"
block = 32
args = ["sums", "out"]
"""
TWO = """
extern "C" __global__ void part(const float* x, float* sums, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x)
    sum += x[blockIdx.x * n + blockIdx.y * 1024 + i];
  for (int by = 16; by; by >>= 1) sum += __shfl_xor_sync(~0u, sum, by);
  if (threadIdx.x == 0) sums[blockIdx.x * PARTS + blockIdx.y] = sum;
}
extern "C" __global__ void merge(const float* sums, float* out) {
  const int row = blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < PARTS; ++i) sum += sums[row * PARTS + i];
  out[row] = sum;
}
"""


def test_several_launches_are_told_in_a_file(cli: Any, tmp_path: Path) -> None:
    write(tmp_path / "two.cu", TWO)
    text = LAUNCHES.replace("PLACE", "n // 1024")
    status, out, told = cli("forecast", str(write(tmp_path / "two.toml", text)), "--json")
    assert status == 0, told
    made = json.loads(out)
    assert [(one["entry"], one["blocks"]) for one in made["launches"]] == [
        ("part", 128),
        ("merge", 2),
    ]
    assert made["floor"]["bytes"] == 4 * (64 * 2048 + 64)
    rung, problem = read_launches(tmp_path / "two.toml").rung()
    assert rung.launches(problem, H200.limits)[1].workspace[0].shape == (64, 2)


def test_what_is_adopted_is_filled_in_and_forecast(cli: Any, softmax: Path) -> None:
    assert list(signatures(softmax).values()) == ["softmax(const T* __restrict__ x, T* out, int n)"]
    status, _, told = cli("adopt", str(softmax), "--entry", "softmax<float, 4>")
    assert status == 0, told
    written = softmax.with_suffix(".launch.toml")
    text = written.read_text()
    assert 'n = "i32:?"' in text and 'out = "f32[?]:out"' in text and 'x = "f32[?]"' in text
    status, _, told = cli("forecast", str(written))
    assert status == 2 and "?" in told
    for old, new in (("f32[?]", "f32[512,n]"), ("i32:?", "i32:256"), ('grid = "?"', "grid = 512")):
        text = text.replace(old, new)
    written.write_text(text.replace('block = "?"', "block = 256"))
    status, out, told = cli("forecast", str(written))
    assert status == 0 and "softmax<float, 4>" in out, told
    status, _, told = cli("adopt", str(softmax), "--entry", "softmax<float, 4>")
    assert status == 2 and "already" in told


ADOPTED = (
    ("softmax.cu", "softmax<half, 4>", {"x": "f16[?]", "out": "f16[?]:out", "n": "i32:?"}),
    ("softmax.cu", None, {"x": "TYPE[?]", "out": "TYPE[?]:out", "n": "i32:?"}),
    ("scale.cu", "scale<4>", {"p": "struct(?)", "n": "i32:?"}),
    ("softmax.ptx", "softmax<float, 4>", {"p0": "f32[?]", "p1": "f32[?]", "p2": "i32:?"}),
    ("lib.so", "ours::scale<4>", {"p0": "struct(48)", "p1": "i32:?"}),
    ("lib.cubin", "scale", {"p0": "struct(48)", "p1": "i32:?"}),
)


@pytest.mark.parametrize(("name", "entry", "args"), ADOPTED)
def test_of_any_file_what_it_says_of_its_parameters_is_adopted(
    cli: Any, tmp_path: Path, name: str, entry: str | None, args: dict[str, str]
) -> None:
    path = tmp_path / name
    image = b"" if name.endswith((".cu", ".ptx")) else compile_cubin(STRUCT, "sm_90").image
    if path.suffix == ".so":
        shared_object(path, packed([(2, 90, image, 0, 0)]))
    elif path.suffix == ".ptx":
        path.write_text(ptx_of(SOFTMAX, "sm_80", "softmax<float, 4>"))
    else:
        path.write_bytes(image or (STRUCT if name == "scale.cu" else SOFTMAX).encode())
    status, _, told = cli("adopt", str(path), *([f"--entry={entry}"] if entry else []))
    assert status == 0, told
    made = tomllib.loads(path.with_suffix(".launch.toml").read_text())
    assert made["args"] == args
    named = {"scale<4>": "ours::scale<4>", None: "softmax<?>"}.get(entry, entry)
    assert made["launch"] == [{"entry": named, "grid": "?", "block": "?", "smem": "0"}]
    assert cli("adopt", str(path), "--entry=none")[0] == 2


def test_headers_and_definitions_are_given(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    write(tmp_path / "own" / "tile.h", "constexpr int ROWS = TILE * 2;\n")
    source = write(
        tmp_path / "gather.cu", '#include "tile.h"\n' + GATHER.replace("width;", "ROWS;")
    )
    args = ["--arg=table=f32[9,4]:part", "--arg=r=i32[4]=arange", "--arg=o=f32[4,4]:out"]
    args += ["--arg=w=i32:4", "--grid=4", "--block=32"]
    folder = f"-I{tmp_path / 'own'}"
    status, _, told = cli("forecast", str(source), *args, folder, "-DTILE=2")
    assert status == 0, told
    assert cli("forecast", str(source), *args, folder)[0] == 1
    assert cli("forecast", str(source), *args, "-DTILE=2")[0] == 1
    status, _, told = cli("compile", str(source), *args, "-DTILE=2", "-I/nowhere")
    assert status == 2 and "/nowhere is no folder" in told
    told = write(tmp_path / "g.toml", IN_A_FILE)
    status, said, _ = cli("forecast", str(told))
    assert status == 0 and "GB/s, without table, of which a part is read" in said


IN_A_FILE = """
source = "gather.cu"
include = ["own"]
defines.TILE = 2
args = { table = "f32[9,4]:part", r = "i32[4]=arange", o = "f32[4,4]:out", w = "i32:4" }
launch = [{ entry = "gather", grid = 4, block = 32 }]
"""


MINE = """
compute_capability = "8.6"
sm_count = 82
dram_gb_per_s = 936
l2_kib = 6144
memory_gb = 24
boost_clock_mhz = 1695
fp16_tensor_tflops = 71
fp32_tflops = 35.6
"""


def test_a_gpu_is_told_in_a_file(cli: Any, softmax: Path, tmp_path: Path) -> None:
    launch = ("softmax<float, 4>", 4096, 256, ARGS)
    mine = write(tmp_path / "mine.toml", MINE)
    of_sheet = forecast_launch(softmax, *launch, gpu="rtx3090").time_us
    assert forecast_launch(softmax, *launch, gpu=str(mine)).time_us == of_sheet
    assert load_gpu(str(mine)).limits.smem_per_sm_bytes == load_gpu("rtx3090").smem_per_sm_bytes
    mine.write_text('like = "rtx3090"\ndram_gb_per_s = 468\n')
    assert forecast_launch(softmax, *launch, gpu=str(mine)).time_us > 1.5 * of_sheet
    other = 'like = "h200"\n'
    for text, told in (
        (MINE.replace("boost_clock_mhz = 1695", ""), "lacks boost_clock_mhz"),
        ("", "lacks compute_capability"),
        ("like = 5", "like is 5"),
        ("x" * 50, "cannot be read"),
        (MINE.replace("1695", "-3"), "boost_clock_mhz is -3"),
        (MINE.replace("8.6", "3.5"), "compute_capability is '3.5'"),
        (MINE.replace('"8.6"', "[8]"), "compute_capability is [8]"),
        (f"{other}sms = 3", "sms is 3"),
        (f"{other}sm_count = true", "sm_count is True"),
        (f"{other}dram_gb_per_s = nan", "dram_gb_per_s is nan"),
    ):
        mine.write_text(text)
        options = ["--entry=softmax<float, 4>", "--grid=4096", "--block=256", *GIVEN]
        status, out, said = cli("forecast", str(softmax), *options, f"--gpu={mine}")
        assert status == 2 and not out and told in said, said
    named = write(tmp_path / "h200.toml", other)
    for path in (named, tmp_path / "none.toml", tmp_path):
        with pytest.raises(LabError):
            load_gpu(f"{path}/.toml" if path is tmp_path else str(path))


REFUSED: list[tuple[list[str], str]] = [
    (["--grid", "4"], "--block, --arg"),
    (["--block", "4", "--arg", "x=f32[4]:out"], "--grid"),
    (["--grid", "4", "--block", "256", "--arg", "x=f32[4]:out"], "softmax(const T*"),
    (["--grid", "4", "--block", "256", "--arg", "x=f33[4]:out"], "f33"),
    (["--grid", "4", "--block", "256", "--arg", "x=f32[0]:out"], "size"),
    (["--grid", "4", "--block", "256", "--arg", "x=f32[__import__('os')]:out"], "sizes"),
    (["--grid", "4", "--block", "256", "--arg", "x=f32[9**9**9]:out"], "sizes"),
    (["--grid", "4", "--block", "256", "--arg", "x=f32[4]"], ":out"),
    (["--grid", "4", "--block", "256", "--arg", "x=f32[4]=arange:out"], "integers"),
    (["--grid", "4", "--block", "256", "--arg", "x=i32[4]@none.npy"], "none.npy"),
    (["--grid", "4", "--block", "256", "--arg", "x=i32[4]=uniform:4,4"], "uniform:LO,HI"),
    (["--grid", "4", "--block", "256", "--arg", "n=i8:300"], "127"),
    (["--grid", "0", "--block", "256", *ARGS], "sizes"),
    (["--grid", "4", "--block", "2048", *ARGS], "1024"),
    (["--grid", "4", "--block", "256", "--smem", "300000", *ARGS], "shared memory"),
    (["--grid", "4", "--block", "256", "-w", "1,1,1,1,64", *ARGS], "workload"),
    (["--grid", "4", "--block", "256", *ARGS, "n=i32:4"], "twice"),
    (["--grid", "4", "--block", "256", "--arg", "x=i8[4]=uniform:0,1000"], "-128 to 127"),
    (["--grid", "4", "--block", "256", "--arg", "x=u32[4]=uniform:-5,5"], "uint32 holds 0"),
    (["--grid", "4", "--block", "256", "--arg", "x=i8[4096]=arange"], "-128 to 127"),
    (["--grid", "4", "--block", "256", "--arg", "x=i32[4]@/dev/zero"], "no file"),
    (["--grid", "4", "--block", "256", "--arg", "x=object[4]:out"], "types are"),
    (["--grid", "2147483647", "--block", "256", *ARGS], "134217728"),
    (["--grid", "4", "--block", "256", "--smem", "1,2", *ARGS], "shared memory one"),
]


@pytest.mark.parametrize(("options", "told"), REFUSED)
def test_a_launch_that_does_not_fit_is_refused(
    cli: Any, softmax: Path, options: list[str], told: str
) -> None:
    given = [f"--arg={one}" if re.match(r"\w+=", one) else one for one in options if one != "--arg"]
    status, out, said = cli("forecast", str(softmax), "--entry", "softmax<float, 4>", *given)
    assert (status, out) == (2, "") and told in said, said


BAD_TOML = (
    LAUNCHES.replace('args = ["x", "sums", "n"]', "args = 5"),
    "a = " + "[" * 5000,
    "source = 5",
    LAUNCHES.replace("PLACE", "2").replace("two.cu", "none.cu"),
    LAUNCHES.replace("PLACE", "2").replace('["x", "sums", "n"]', '["x", "nobody"]'),
)


@pytest.mark.parametrize("text", BAD_TOML)
def test_a_file_of_another_form_is_refused(cli: Any, tmp_path: Path, text: str) -> None:
    write(tmp_path / "two.cu", TWO)
    status, out, said = cli("forecast", str(write(tmp_path / "two.toml", text)))
    assert status in (2, 3) and not out and "mistake" not in said, said


def test_damaged_machine_code_and_odd_sources_are_refused(cli: Any, softmax: Path) -> None:
    image = compile_cubin(SOFTMAX, "sm_90", entries=["softmax<float, 4>"]).image
    path, rng = softmax.with_name("bad.cubin"), np.random.default_rng(7)
    for length in (0, 20, 100, len(image) // 2):
        path.write_bytes(image[:length])
        status, _, said = cli("forecast", str(path), "--grid=4", "--block=4", "--arg=x=f32[4]:out")
        assert status in (2, 3) and "mistake" not in said, said
    for _ in range(20):
        torn = np.frombuffer(image, np.uint8).copy()
        torn[rng.integers(64, len(torn), 40)] = rng.integers(0, 256, 40)
        path.write_bytes(torn.tobytes())
        status, _, said = cli("adopt", str(path))
        assert "mistake" not in said, said
        path.with_suffix(".launch.toml").unlink(missing_ok=True)
    softmax.write_bytes(b"\xff\xfe__global__")
    for command in ("adopt", "forecast"):
        status, _, said = cli(command, str(softmax))
        assert status in (2, 3) and "mistake" not in said, said


def test_a_template_is_named_by_its_arguments(tmp_path: Path) -> None:
    kernels = """
template <typename T, unsigned N> __global__ void scale(T* x) { x[threadIdx.x] *= N; }
template __global__ void scale<float, 256>(float*);
template __global__ void scale<unsigned short, 3>(unsigned short*);
"""
    path = tmp_path / "scale.cubin"
    path.write_bytes(compile_cubin(kernels, "sm_90").image)
    for entry, dtype in (("scale<float,256>", "f32"), ("scale<uint16_t, 3u>", "u16")):
        made = forecast_launch(path, entry, 1, 32, [f"x={dtype}[32]:inout"])
        assert made.launches[0].entry == entry
    for entry in ("scale", "scale<double, 256>", "scale<float, 25>"):
        with pytest.raises(LabError, match="scale<float,256>"):
            forecast_launch(path, entry, 1, 32, ["x=f32[32]:inout"])


OF_HOST = """#pragma once
#include <torch/extension.h>
#define BIND(name, type)                        \\
  const auto bound_##name = torch::name(type);  \\
  std::cout << bound_##name
namespace ours {
template <const int WIDTH>
struct alignas(16) Pack {
  float at[WIDTH];
  __device__ float sum() const { return at[0] + at[1]; }
};
static std::vector<float> made(const char* name) { return {1.f, name[0] == '}' ? 2.f : 3.f}; }
__constant__ float by = 2.f;
using Two = Pack<2>;
extern "C" __global__ void scale(const Two* x, float* out) {
  out[threadIdx.x] = by * x[threadIdx.x].sum();  // }
}
}  // namespace ours
BIND(half, torch::kHalf)
void check(cudaError_t error, const char* file) {
  if (error != cudaSuccess) { printf("%s {\\n", file); }
}
torch::Tensor other;
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &check); }
"""


def test_of_a_file_with_host_code_the_rest_is_taken_without_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = device_part(OF_HOST)
    assert part.count("\n") == OF_HOST.count("\n")
    for kept in ("struct alignas(16) Pack", "using Two", "__constant__", "out[threadIdx.x] = by"):
        assert kept in part
    assert "namespace two = ours;" in device_part("namespace two = ours;\nint main() {}\n")
    for gone in ("made(", "kHalf)", "cudaError_t", "Tensor other", "PYBIND11_MODULE"):
        assert gone not in part
    monkeypatch.setattr(nvcc, "find_tool", lambda name: None)
    launch = ("scale", 1, 32, ["x=f32[32,2]", "out=f32[32]:out"])
    assert forecast_launch(write(tmp_path / "torch.cu", OF_HOST), *launch).time_us > 0
    for_host = "struct Model {\n  std::vector<int> layers;\n  void load();\n};\n"
    for_host += '#include "fmt/format.h"\nusing nowhere::json;\nModel& load(json& j);\n'
    write(tmp_path / "own.h", OF_HOST.partition("extern")[0] + "}\n" + for_host)
    rest = "namespace ours {\nextern" + OF_HOST.partition("extern")[2]
    path = write(tmp_path / "two.cu", f'#include "own.h"\n{rest}')
    assert forecast_launch(path, *launch).time_us > 0


def test_sizes_are_computed_of_numbers_and_nothing_else() -> None:
    assert sizes_of("cdiv(n, 8) * 2, max(n, 3), n % 7 + 1", {"n": 17}) == (6, 17, 4)
    for text in ("", "n", "-1", "1.5", "n()", "[1]", "1,,2", "1 if 1 else 2", "True"):
        with pytest.raises(LabError):
            sizes_of(text, {})


HOST = (
    "#include <vector>\n#include <iostream>\n"
    + SOFTMAX
    + """
int main() {
  std::vector<float> rows(4);
  softmax<float, 4><<<4, 256>>>(nullptr, nullptr, 4);
  softmax<float, 8><<<4, 256>>>(nullptr, nullptr, 4);
}
"""
)
AS_NVCC = """#!{python}
import sys
import tomllib
from pathlib import Path
from labtools.toolchain.compiler import compile_cubin
made, source = Path(sys.argv[-2]), Path(Path(sys.argv[-1]).read_text().split('"')[1])
lines = source.read_text().partition("int main")[0].splitlines()
text = "\\n".join("" if "#include" in line else line for line in lines)
if "no_such_word" in text:
    sys.exit(f"{{source}}(3): error: identifier \\"no_such_word\\" is undefined")
entries = ["softmax<float, 4>", "softmax<float, 8>"]
made.write_bytes(compile_cubin(text, "sm_90", entries=entries).image)
"""


def test_a_file_with_host_code_is_compiled_by_nvcc_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, launch = write(tmp_path / "host.cu", HOST), ("softmax<float, 8>", 4096, 256, ARGS)
    monkeypatch.setattr(nvcc, "find_tool", lambda name: None)
    source.write_text(HOST.replace("most = -1e30f", "most = no_such_word"))
    with pytest.raises(CompileError, match="where nvcc is found"):
        forecast_launch(source, *launch)
    source.write_text(HOST)
    tool = write(tmp_path / "nvcc", AS_NVCC.format(python=sys.executable))
    tool.chmod(0o755)
    monkeypatch.setattr(nvcc, "find_tool", lambda name: tool)
    made = forecast_launch(source, *launch)
    plain = write(tmp_path / "plain.cu", SOFTMAX)
    assert made.time_us == pytest.approx(forecast_launch(plain, *launch).time_us)
    source.write_text(HOST.replace("most = -1e30f", "most = no_such_word"))
    with pytest.raises(CompileError) as wrong:
        forecast_launch(source, *launch)
    assert wrong.value.line is not None and wrong.value.file == str(source)
    for said, told in (
        (f"{source}:3:10: fatal error: own.h: No such file", "line 3: own.h"),
        ("ALL_OF(2): error: no instance of it", "has no kernel called softmax<float, 8>"),
    ):
        says = f"print({said!r}.replace('ALL_OF', sys.argv[-1]))\nsys.exit(1)\n"
        tool.write_text(f"#!{sys.executable}\nimport sys\n{says}")
        with pytest.raises(KernelError) as other:
            forecast_launch(source, *launch)
        assert told in str(other.value)


def test_headers_that_are_not_here_are_not_missed(softmax: Path) -> None:
    launch = ("softmax<float, 4>", 4096, 256, ARGS)
    plain = forecast_launch(softmax, *launch)
    softmax.write_text("#pragma once\n#include <cublas_v2.h>\n# include <iostream>\n" + SOFTMAX)
    assert forecast_launch(softmax, *launch).time_us == pytest.approx(plain.time_us)
    softmax.write_text('#include "mine.h"\n' + SOFTMAX)
    with pytest.raises(CompileError, match=r"mine\.h"):
        forecast_launch(softmax, *launch)
