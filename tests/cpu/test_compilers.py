"""nvcc and Triton beside NVRTC: who compiles what, what the launch is, and what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_fake import use_fake_gpu

from labtools.measure.check import check_rung
from labtools.measure.gpu.job import make_job, rung_candidate
from labtools.measure.gpu.runner import run_on_gpu
from labtools.notebook.book.triton_kernel.lines import draw_lines
from labtools.predict import forecast, load_gpu
from labtools.predict.launched import forecast_asked, forecast_launch
from labtools.problem import LabError, load_rung, operation_of
from labtools.problem.launched import read_launches
from labtools.problem.rung import argument_bytes
from labtools.record.staleness import _named_source
from labtools.toolchain import nvcc, triton_code
from labtools.toolchain.compiler import compile_rung, kernel_hashes
from labtools.toolchain.cubin import parameter_bytes
from labtools.toolchain.host_launch import host_launches, launch_of
from labtools.toolchain.listings import machine_code
from labtools.toolchain.ptx import ptx_parameter_bytes
from labtools.toolchain.tools import find_tool
from labtools.toolchain.triton_code import (
    portable_answer,
    stored_answers,
    triton_parameters,
    triton_version,
)

H200 = load_gpu("h200")
TRITON = Path(__file__).parents[1] / "triton" / "rows_softmax.py"
LINES = {
    word: next(at for at, line in enumerate(TRITON.read_text().splitlines(), 1) if word in line)
    for word in ("offsets = tl.arange", "tl.load(x_ptr", "tl.store(place")
}
needs_nvcc = pytest.mark.skipif(find_tool("nvcc") is None, reason="nvcc is not here")
needs_triton = pytest.mark.skipif(not triton_version(), reason="Triton is not here")


# ---- nvcc ----

WHOLE = """#include <cstdio>
#include <map>
#include <string>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(call) \\
  do { if ((call) != cudaSuccess) { std::printf("failed\\n"); return 1; } } while (0)
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
constexpr int WIDTH = 256;

template <typename T, int VEC>
__global__ void scale(const T* __restrict__ x, T* __restrict__ out, T by, int n) {
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  for (int i = first; i < first + VEC && i < n; ++i) out[i] = by * x[i];
}

int main() {
  const int n = 1 << 20;
  std::map<std::string, std::vector<float>> host;
  host["x"].resize(n);
  float *x, *out;
  CHECK(cudaMalloc(&x, n * sizeof(float)));
  CHECK(cudaMalloc(&out, n * sizeof(float)));
  dim3 grid(CEIL_DIV(n, 4 * WIDTH));
  scale<float, 4><<<grid, WIDTH>>>(x, out, 2.f, n);
  CHECK(cudaDeviceSynchronize());
}
"""
GIVEN = ["x=f32[1048576]", "out=f32[1048576]:out", "by=f32:2", "n=i32:1048576"]
ARGS = [f"--arg={one}" for one in GIVEN]


def test_a_constant_launch_is_read_from_the_source() -> None:
    (found,) = host_launches(WHOLE)
    assert (found.entry, found.grid, found.block, found.smem) == (
        "scale<float, 4>",
        "1024",
        "256",
        "0",
    )
    assert WHOLE.splitlines()[found.line - 1].lstrip().startswith("scale<float, 4><<<")
    text = """
    int m = 4096; int w = 1; w = 2; size_t bytes = m * 2;
    dim3 block{32, 8}; dim3 grid = dim3(m / block.x, 3u, 2);
    ours::one<<<grid, block, 4 * 1024, stream>>>(x);
    two<64><<<w, 128>>>(x);   // three<<<1, 2>>>(x)
    four<<<dim3(7), {4, 5}, bytes>>>(x);
    four<<<dim3(8), {4, 5}, bytes>>>(x);
    five<<<blocks_for(m), 1 << 7, f(m)>>>(x);
    """
    assert [(one.entry, one.grid, one.block, one.smem) for one in host_launches(text)] == [
        ("ours::one", "", "32, 8", "4096"),
        ("two<64>", "", "128", "0"),
        ("four", "7", "4, 5", "8192"),
        ("four", "8", "4, 5", "8192"),
        ("five", "", "128", ""),
    ]
    assert launch_of(text, None) is None and launch_of(text, "four") is None
    assert launch_of(text, "one") is not None and launch_of("int main() {}", None) is None


@needs_nvcc
def test_a_whole_file_is_compiled_by_nvcc_and_launched_as_it_says(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "whole.cu"
    path.write_text(WHOLE)
    status, out, said = cli("compile", str(path), *ARGS)
    assert status == 0, said
    assert "by nvcc 1" in out and "launched as line 25" in out
    status, out, said = cli("forecast", str(path), *ARGS)
    assert status == 0 and "compiled here with nvcc" in out and "launched as line 25" in out
    told = forecast_launch(path, "scale<float, 4>", 1024, 256, GIVEN)
    assert f"{told.time_us:.2f} us" in out
    kernel = WHOLE[WHOLE.index("template") : WHOLE.index("int main")]
    plain = tmp_path / "plain.cu"
    plain.write_text(kernel)
    assert forecast_launch(plain, "scale<float, 4>", 1024, 256, GIVEN).time_us == pytest.approx(
        told.time_us, rel=0.05
    )
    lines = {link.source.line for link in told.launches[0].chain if link.source}
    first = WHOLE.splitlines().index("template <typename T, int VEC>") + 1
    assert lines and lines <= set(range(first, first + 6))
    status, out, said = cli("adopt", str(path))
    written = path.with_suffix(".launch.toml").read_text()
    assert status == 0 and 'grid = "1024"' in written and 'x = "f32[?]"' in written


@needs_nvcc
def test_what_nvcc_refuses_is_said_with_its_line(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "whole.cu"
    path.write_text(WHOLE.replace("by * x[i]", "by * y[i]"))
    status, out, said = cli("forecast", str(path), *ARGS)
    assert (status, out) == (1, "") and 'line 14: identifier "y" is undefined' in said
    assert "out[i] = by * y[i]" in said
    path.write_text(WHOLE)
    launch = ["--grid=4", "--block=4", *ARGS]
    for entry in ("shift", "scale<double, 4, 5>", "scale<nothing, 4>"):
        status, out, said = cli("forecast", str(path), f"--entry={entry}", *launch)
        assert not out and status in (1, 2) and entry in said and "mistake" not in said, said
    path.write_text(WHOLE.replace("<<<grid", "<<<of(n)"))
    status, out, said = cli("forecast", str(path), *ARGS)
    assert (status, out) == (2, "") and "--grid" in said and "<<<of(n), WIDTH>>>" in said


def test_without_nvcc_the_extra_is_named(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvcc, "find_tool", lambda name: None)
    path = tmp_path / "whole.cu"
    path.write_text(WHOLE.replace("T by, int n", "T by, std::string n"))
    status, out, said = cli("forecast", str(path), *ARGS)
    assert status in (1, 2) and not out and "make nvcc" in said and said.count("\n") < 8, said


@needs_nvcc
def test_a_whole_file_with_a_reference_is_made_ready_for_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "whole.cu").write_text(WHOLE)
    path = tmp_path / "scaled.py"
    path.write_text(
        "from labtools.problem import from_reference\n"
        'ARGUMENTS = {"x": "f32[N]", "out": "f32[N]:out", "by": "f32:2", "n": "i32:N"}\n'
        "OPERATION = from_reference(\n"
        '    "nvcc_scaled:N", ARGUMENTS, lambda x, by: by * x, sizes=[1000, 1 << 20]\n)\n'
        'RUNG = OPERATION.rung(__file__, source="whole.cu", entry="scale<float, 4>",\n'
        '                      grid="cdiv(N, 1024)", block=256)\n'
    )
    rung = load_rung(path)
    job = make_job(rung_candidate(rung), operation_of(rung).headline, H200.limits)
    (launch,) = job.launches
    assert launch.entry.startswith("_Z5scale") and launch.grid == (1024, 1, 1)
    assert rung.own_file == path and Path(job.cubin).is_file()
    hashes = kernel_hashes(rung, operation_of(rung).headline, H200.limits)
    assert hashes.nvrtc_version is not None and hashes.nvrtc_version.startswith("nvcc 1")


FOR_TORCH = """#include <torch/extension.h>
#include <c10/util/Exception.h>

template <typename scalar_t>
__global__ void gate_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    const float value = static_cast<float>(x[i]);
    out[i] = static_cast<scalar_t>(value / (1.f + expf(-value)));
  }
}

torch::Tensor gate(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto out = torch::empty_like(x);
  const int threads = 256;
  const int64_t n = x.numel();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "gate", [&] {
    gate_kernel<scalar_t><<<(n + threads - 1) / threads, threads>>>(
        x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
  });
  return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("gate", &gate); }
"""


@needs_nvcc
@pytest.mark.slow
@pytest.mark.long
def test_an_extension_of_torch_is_compiled_with_its_headers(tmp_path: Path) -> None:
    if not nvcc._torch_headers():
        pytest.skip("torch is not here")
    path = tmp_path / "gate.cu"
    path.write_text(FOR_TORCH)
    given = ["x=f16[1048576]", "out=f16[1048576]:out", "n=i64:1048576"]
    made = forecast_launch(path, "gate_kernel<c10::Half>", 4096, 256, given)
    assert made.code.startswith("compiled here with nvcc") and made.floor.bytes == 4 * 2**20


# ---- Triton ----

SOFTMAX = ["out_ptr=f16[64,n]:out", "x_ptr=f16[64,n]", "a=i32:1000", "b=i32:1000", "n=i32:1000"]
ATTENTION = [f"{name}=f16[4,1024,64]" for name in "qkv"]
ATTENTION += ["out=f16[4,1024,64]:out", "scale=f32:0.125", "length=i32:1024"]
SIZES = ["CAUSAL=True", "HEAD_DIM=64", "ROWS=64", "KEYS=64"]


def triton(command: str, entry: str, grid: str, args: list[str], constants: list[str]) -> list[str]:
    given = [*(f"--arg={one}" for one in args), *(f"-D{one}" for one in constants)]
    return [command, str(TRITON), f"--entry={entry}", f"--grid={grid}", *given]


@needs_triton
def test_kernels_of_triton_are_compiled_and_forecast(cli: Any) -> None:
    status, out, said = cli(
        *triton("compile", "softmax", "64", SOFTMAX, ["BLOCK=1024", "num_warps=8"])
    )
    assert status == 0 and "by Triton 3" in out and re.search(r"softmax +\d+ .* 256\n", out), said
    status, out, said = cli(*triton("forecast", "attention", "16,4", ATTENTION, SIZES))
    assert status == 0 and "compiled here with Triton" in out, said
    # Triton's own launcher is asked for nothing, and what its file does on a GPU is passed over.
    assert "raises" not in said


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A rung with a reference, whose kernel is Triton's."""
    for one in TRITON.parent.glob("*.py"):
        shutil.copy(one, tmp_path)
    path = tmp_path / "normalise.py"
    path.write_text(STRANGER)
    return path


STRANGER = """
import numpy as np
from labtools.problem import Knob, from_reference

def normalise(x):
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)

OPERATION = from_reference(
    "triton_rows:R,C",
    {"out": "f16[R,C]:out", "x": "f16[R,C]", "a": "i64:C", "b": "i32:C", "n": "i32:C"},
    normalise, sizes=[(64, 1000), (16, 1), (4096, 4096)], rows="R",
)
RUNG = OPERATION.rung(
    __file__, source="rows_softmax.py", entry="softmax", grid="R",
    knobs=(Knob("num_warps", (4, 8), 8, "warps of a block"),),
    defines_extra=lambda problem, limits, knobs: {"BLOCK": 1 << (problem.C - 1).bit_length()},
)
"""


@needs_triton
def test_a_launch_of_triton_has_what_its_launcher_adds(stranger: Path) -> None:
    rung = load_rung(stranger)
    operation = operation_of(rung)
    problem = operation.headline
    (launch,) = rung.launches(problem, H200.limits)
    assert (launch.grid, launch.block) == ((4096, 1, 1), (256, 1, 1))
    # Triton passes an integer with as many bits as it needs, and two addresses of its own.
    kinds = [one if isinstance(one, str) else one.dtype.name for one in launch.args]
    assert kinds == ["out", "x", *["int32"] * 3, *["uint64"] * 2]
    cubin = compile_rung(rung, problem, H200.limits)
    symbol = cubin.symbol_of(launch.entry)
    sizes = [argument_bytes(one)[0] for one in launch.args]
    assert parameter_bytes(cubin.image, symbol) == sizes == ptx_parameter_bytes(cubin.ptx)[symbol]
    one_column = rung.launches(problem.replace(R=16, C=1), H200.limits)[0]
    assert [one for one in one_column.args if not isinstance(one, str)] == [0, 0]
    job = make_job(rung_candidate(rung, {"num_warps": 4}), problem, H200.limits)
    assert job.launches[0].num_threads == 128 and Path(job.cubin).read_bytes()[:4] == b"\x7fELF"
    found = forecast(rung, problem, H200)
    assert found.bound == "bandwidth" and found.time_us > found.floor.time_us
    code = machine_code(rung, problem, H200.limits).entries["softmax"]
    named = [one.source for one in code.instructions if one.source]
    lines = {one.line for one in named if one.file.endswith("rows_softmax.py")}
    assert {LINES["tl.load(x_ptr"], LINES["tl.store(place"]} <= lines
    report = check_rung(rung, operation.small, quick=True)
    assert report.ok and report.by_ptx, report.summary


@needs_triton
def test_a_kernel_of_triton_is_checked_as_a_gpu_would_be_given_it(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_fake_gpu(monkeypatch, tmp_path)
    rung = load_rung(stranger)
    run = run_on_gpu(rung, operation_of(rung).small.replace(R=64, C=1000))
    assert run.ok, str(run)


@needs_triton
def test_what_triton_keeps_in_memory_is_a_workspace(cli: Any, tmp_path: Path) -> None:
    toml = tmp_path / "copied.toml"
    toml.write_text(
        f'source = "{TRITON}"\n[args]\nrows = "1024"\nout = "f16[rows,rows]:out"\n'
        'x = "f16[rows,rows]"\nr = "i32:1024"\nc = "i32:1024"\n[defines]\nTILE = 64\n'
        '[[launch]]\nentry = "copied_by_descriptor"\ngrid = "rows // 64, rows // 64"\n'
    )
    rung, problem = read_launches(toml).rung()
    (launch,) = rung.launches(problem, H200.limits)
    (space,) = launch.workspace
    assert launch.args[-2] == space.name and launch.args[-1] == np.uint64(0)
    assert space.bytes == 256 * 256 and launch.smem_bytes > 64 * 64 * 2
    status, out, _ = cli("compile", str(toml))
    assert status == 0 and str(launch.smem_bytes) in out
    toml.write_text(toml.read_text().replace("TILE = 64", 'TILE = "?"'))
    status, out, said = cli("compile", str(toml))
    assert status == 2 and not out and "TILE has a ?" in said


@needs_triton
def test_several_kernels_of_triton_are_put_together(cli: Any, tmp_path: Path) -> None:
    toml = tmp_path / "two.toml"
    toml.write_text(
        f'source = "{TRITON}"\n[args]\nq = "f16[4,1024,64]"\nk = "f16[4,1024,64]"\n'
        'v = "f16[4,1024,64]"\nout = "f16[4,1024,64]:out"\nscale = "f32:0.125"\n'
        'length = "i32:1024"\ns = "i32:64"\n[workspace]\nmade = "f16[4096,64]"\n'
        "[defines]\nCAUSAL = true\nHEAD_DIM = 64\nROWS = 64\nKEYS = 64\nBLOCK = 64\n"
        '[[launch]]\nentry = "softmax"\ngrid = 4096\nargs = ["made", "q", "s", "s", "s"]\n'
        '[[launch]]\nentry = "attention"\ngrid = [16, 4]\n'
        'args = ["made", "k", "v", "out", "scale", "length"]\n'
    )
    made = forecast_asked(read_launches(toml))
    assert [one.entry for one in made.launches] == ["softmax", "attention"]
    rung, problem = read_launches(toml).rung()
    cubin = compile_rung(rung, problem, H200.limits)
    for launch in rung.launches(problem, H200.limits):
        sizes = [argument_bytes(one)[0] for one in launch.args]
        assert parameter_bytes(cubin.image, cubin.symbol_of(launch.entry)) == sizes
    text = toml.read_text()
    toml.write_text(text.replace('"attention"\ngrid', '"softmax"\ngrid'))
    status, out, said = cli("compile", str(toml))
    assert not out and status in (1, 2) and "takes 5 arguments" in said


TWO_PASSES = """
import numpy as np
from labtools.problem import from_reference

def twice(x):
    for _ in range(2):
        x = np.exp(x - x.max(1, keepdims=True))
        x = x / x.sum(1, keepdims=True)
    return x

OPERATION = from_reference(
    "triton_twice:R,C",
    {"out": "f32[R,C]:out", "x": "f32[R,C]", "n": "i32:C"}, twice, sizes=[(5, 48)], rows="R",
)
RUNG = OPERATION.rung(
    __file__, source="rows_softmax.py", workspace={"made": "f32[R,C]"},
    defines_extra=lambda problem, limits, knobs: {"BLOCK": 1 << (problem.C - 1).bit_length()},
    launches=[
        {"entry": "softmax", "grid": "R", "args": ["made", "x", "n", "n", "n"]},
        {
            "entry": "softmax<num_warps=2, by=1.0>", "grid": "R",
            "args": ["out", "made", "n", "n", "n"],
        },
    ],
)
"""


@needs_triton
def test_a_launch_may_have_constants_of_its_own(stranger: Path) -> None:
    path = stranger.with_name("twice.py")
    path.write_text(TWO_PASSES)
    rung = load_rung(path)
    problem = operation_of(rung).headline
    first, second = rung.launches(problem, H200.limits)
    assert (first.num_threads, second.num_threads) == (128, 64)
    cubin = compile_rung(rung, problem, H200.limits)
    assert cubin.symbol_of(first.entry) == "softmax" != cubin.symbol_of(second.entry)
    assert {first.entry, second.entry} <= {*machine_code(rung, problem, H200.limits).entries}
    assert len(forecast(rung, problem, H200).launches) == 2
    report = check_rung(rung, problem, quick=True)
    assert report.ok and report.by_ptx, report.summary
    for given, told in (("softmax<2>", "names no kernel"), ("softmax<BLOCK=48>", "power of 2")):
        path.write_text(TWO_PASSES.replace("softmax<num_warps=2, by=1.0>", given))
        with pytest.raises(LabError, match=told):
            load_rung(path).launches(problem, H200.limits)
    other = TWO_PASSES.replace("<num_warps=2, by=1.0>", "").replace('n", "n"]}', 'n", "R"]}', 1)
    path.write_text(other)
    with pytest.raises(LabError, match="launches two kernels as softmax"):
        compile_rung(load_rung(path), problem.replace(C=4096), H200.limits)


@needs_triton
def test_the_identity_of_a_kernel_of_triton_is_its_code(stranger: Path) -> None:
    def hashes() -> Any:
        rung = load_rung(stranger)
        return kernel_hashes(rung, operation_of(rung).small, H200.limits)

    source = stranger.with_name("rows_softmax.py")
    assert load_rung(stranger).own_file == stranger and _named_source(stranger) == source
    before, text = hashes(), source.read_text()
    assert before.nvrtc_version.startswith("Triton ")
    source.write_text(text.replace("    place = out_ptr", "    # where\n    place = out_ptr"))
    commented = hashes()
    assert commented.sass_hash == before.sass_hash and commented.source_hash != before.source_hash
    beside = stranger.with_name("row_scale.py")
    beside.write_text(beside.read_text().replace("x * by", "x * by + 1"))
    assert hashes().sass_hash != before.sass_hash


REFUSED = [
    ("softmax", "64", SOFTMAX, [], "does not say what BLOCK is"),
    ("softmax", "64", SOFTMAX, ["BLOK=1024"], "no parameter BLOK"),
    (
        "softmax",
        "64",
        SOFTMAX,
        ["BLOCK=1000"],
        f"line {LINES['offsets = tl.arange']}: arange's range must be a power of 2",
    ),
    ("softmax", "64", SOFTMAX, ["BLOCK=1024", "num_warps=3"], "num_warps must be a power of 2"),
    ("softmax", "64", SOFTMAX, ["BLOCK=1024", "num_stages=x"], "num_stages is 'x'"),
    ("softmax", "64", SOFTMAX[:-1], ["BLOCK=1024"], "takes 5 arguments"),
    (
        "softmax",
        "64",
        [SOFTMAX[1], SOFTMAX[0], *SOFTMAX[2:]],
        ["BLOCK=1024"],
        "x_ptr is given in the",
    ),
    ("attention", "16,4", ATTENTION, ["CAUSAL=True"], "HEAD_DIM, ROWS, KEYS are"),
    ("nothing", "64", SOFTMAX, ["BLOCK=1024"], "its kernels are attention"),
    ("not_a_kernel", "64", SOFTMAX, ["BLOCK=1024"], "not marked @triton.jit"),
]


@needs_triton
@pytest.mark.parametrize(("entry", "grid", "args", "constants", "told"), REFUSED)
def test_a_launch_that_does_not_fit_triton_is_refused(
    cli: Any, entry: str, grid: str, args: list[str], constants: list[str], told: str
) -> None:
    args = [one.replace("64,n]", "64,1000]") for one in args]
    status, out, said = cli(*triton("forecast", entry, grid, args, constants))
    assert not out and status in (1, 2) and told in said and "mistake" not in said, said


@needs_triton
def test_a_file_that_raises_is_told_with_its_line(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    launch = ["--entry=copy", "--grid=4", "--arg=x=f32[64]:out"]
    for text, told in (
        ("import triton\n1 / 0\n@triton.jit\ndef copy(x): nothing_there\n", "line 4: "),
        ("import no_such_package\n@no_such_package.jit\ndef copy(x): pass\n", "line 3: its Python"),
        ("def copy(x:\n", "line 1: it is no Python"),
        ("raise SystemExit(0)\ncopy = 5\n", "copy is no kernel"),
        ("import os\nos._exit(1)\ncopy = 5\n", "Triton did not compile"),
        ("", "it has no kernel called copy"),
    ):
        path.write_text(text)
        status, out, said = cli("forecast", str(path), *launch)
        assert not out and status in (1, 2) and told in said and "mistake" not in said, said


def test_without_triton_the_extra_is_named(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_code, "triton_version", lambda: "")
    args = [one.replace("64,n]", "64,1000]") for one in SOFTMAX]
    status, out, said = cli(*triton("forecast", "softmax", "64", args, ["BLOCK=1024"]))
    assert not out and status == 3 and "make triton" in said
    for option in ("--block=4", "--smem=4", "-I."):
        told = [*triton("forecast", "softmax", "64", args, []), option]
        status, out, said = cli(*told)
        assert (status, out) == (2, "") and "num_warps" in said


def page_files(folder: Path) -> Path:
    """The files that the page about a Triton kernel writes, in a folder; its rung."""
    page = Path(__file__).parents[2] / "book" / "triton_kernel.md"
    for name, text in re.findall(r"^%%writefile (\S+)\n(.*?)^```$", page.read_text(), re.S | re.M):
        (folder / name).write_text(text)
    return folder / "rows.py"


def test_the_kernel_of_the_page_is_read_without_triton(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_code, "triton_version", lambda: "")
    rung = load_rung(page_files(tmp_path))
    problem = operation_of(rung).headline
    for columns, knobs, loads in (
        (4096, {}, "8 LDG"),
        (4094, {}, "32 LDG"),
        (4096, {"num_warps": 16}, "2 LDG"),
    ):
        code = machine_code(rung, problem.replace(columns=columns), H200.limits, knobs)
        assert code.origin.startswith("assembled here from stored PTX of Triton 3"), code.origin
        drawn = draw_lines(code, "softmax", rung)
        assert f"{loads};" in drawn.text and "value = tl.load" in drawn.text
        assert not code.resources["softmax"].spill_store_bytes
    status, out, said = cli("forecast", str(rung.own_file))
    assert status == 0 and "bound: chain" in out, said
    rung.source.write_text(rung.source_text.replace("- tl.max", "- 1 * tl.max"))
    status, out, said = cli("forecast", str(rung.own_file))
    assert not out and status == 3 and "make triton" in said and "pages' own kernels" in said


def test_stored_ptx_is_of_the_locked_triton_and_names_no_machine() -> None:
    lock = Path(__file__).parents[2] / "requirements-triton.lock"
    for told in stored_answers():
        assert f"triton=={told['version']} " in lock.read_text(), "python -m tools.write_triton"
        files = re.findall(r'\.file\s+\d+ "([^"]*)"', told["ptx"])
        assert files == ["source.py", "triton/language/standard.py"]
        spelt = bytes(int(one) for one in re.findall(r"^\.b8 (\d+)", told["ptx"], re.M))
        assert b"/" not in spelt.replace(b"triton/language/", b"")


@needs_triton
def test_triton_still_makes_the_stored_ptx(tmp_path: Path) -> None:
    text = page_files(tmp_path).with_name("softmax.py").read_text()
    found = [one for one in stored_answers() if one["asked"]["text"] == text]
    assert found, "the page's kernel has changed: python -m tools.write_triton"
    one = found[0]
    assert portable_answer(one["asked"]) == one
    other = {**one["asked"], "text": text.replace("- tl.max", "- 2 * tl.max")}
    assert portable_answer(other)["ptx"] != one["ptx"]


def test_adopt_reads_the_parameters_of_triton(cli: Any, tmp_path: Path) -> None:
    path = Path(shutil.copy(TRITON, tmp_path))
    shutil.copy(TRITON.with_name("row_scale.py"), tmp_path)
    kinds = triton_parameters(path.read_text(), "attention")
    assert [name for name, kind in kinds.items() if kind == "in"] == ["q_ptr", "k_ptr", "v_ptr"]
    assert kinds["out_ptr"] == "out" and kinds["length"] == "number" and kinds["KEYS"] == "constant"
    status, _, said = cli("adopt", str(path))
    assert status == 2 and "attention" in said
    if triton_version():
        status, _, said = cli("forecast", str(path))
        assert status == 2 and f"labtools adopt {path}" in said, said
    status, _, said = cli("adopt", str(path), "--entry", "softmax")
    written = path.with_suffix(".launch.toml")
    assert status == 0 and 'out_ptr = "TYPE[?]:out"' in written.read_text(), said
    text = written.read_text().replace("TYPE[?]", "f32[64,1000]").replace("i32:?", "i32:1000")
    text = text.replace('BLOCK = "?"', "BLOCK = 1024").replace('by = "?"\n', "")
    written.write_text(text.replace('grid = "?"', "grid = 64"))
    if triton_version():
        made = forecast_asked(read_launches(written))
        assert made.launches[0].threads == 128
