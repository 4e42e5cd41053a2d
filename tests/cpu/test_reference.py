"""An operation told by its arguments and a reference: kernels of many kinds are judged by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from live_fake import use_fake_gpu

from labtools.measure import CheckReport, check_rung
from labtools.measure.campaign.recording import Effort, record_rung
from labtools.measure.cpu import run_on_cpu
from labtools.measure.gpu.runner import run_on_gpu
from labtools.predict import floors
from labtools.problem import (
    LabError,
    element_dtype,
    list_baselines,
    load_baseline,
    load_rung,
    operation_of,
    parse_problem,
)
from labtools.problem.compare import Comparison, merge_comparisons, merge_outputs
from labtools.problem.isolated import OtherValues
from labtools.record import RecordStore, freshness, median_problems
from research.measure_public import PUBLIC_DIR

HEAD = "import numpy as np\nfrom labtools.problem import from_reference\n"
SOFTMAX = """
def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
OPERATION = from_reference(
    "softmax_rows:R,C", {"x": "f32[R,C]", "out": "f32[R,C]:out", "columns": "i32:C"},
    reference=softmax, sizes=[(5, 300), (8192, 4096)], rows="R")
RUNG = OPERATION.rung(__file__, entry="softmax<256>", grid="R", block=256)
"""
BLOCK_SUM = """
__device__ float block_of(float v, float* red, bool most) {
  for (int d = 16; d > 0; d /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, v, d);
    v = most ? fmaxf(v, other) : v + other;
  }
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = v;
  __syncthreads();
  v = red[0];
  for (int w = 1; w < blockDim.x / 32; ++w) v = most ? fmaxf(v, red[w]) : v + red[w];
  __syncthreads();  // red is free again
  return v;
}
"""
SOFTMAX_CU = f"""{BLOCK_SUM}
template <int threads>
__global__ void softmax(const float* x, float* out, int columns) {{
  __shared__ float red[threads / 32];
  const float* row = x + (size_t)blockIdx.x * columns;
  float most = -INFINITY, sum = 0;
  for (int c = threadIdx.x; c < columns; c += threads) most = fmaxf(most, row[c]);
  most = block_of(most, red, true);
  for (int c = threadIdx.x; c < columns; c += threads) sum += expf(row[c] - most);
  sum = block_of(sum, red, false);
  for (int c = threadIdx.x; c < columns; c += threads)
    out[(size_t)blockIdx.x * columns + c] = expf(row[c] - most) / sum;
}}
"""
RMS_NORM = """
OPERATION = from_reference(
    "rms:R,C",
    {"x": "bf16[R,C]", "weight": "bf16[C]", "out": "bf16[R,C]:out", "columns": "i32:C",
     "epsilon": "f32:1e-5"},
    lambda x, weight, epsilon: x / np.sqrt((x * x).mean(1, keepdims=True) + epsilon) * weight,
    sizes=[(3, 200), (8192, 4096)], rows="R")
RUNG = OPERATION.rung(__file__, entry="rms", grid="R", block=128)
"""
RMS_NORM_CU = f"""#include <cuda_bf16.h>
{BLOCK_SUM}
extern "C" __global__ void rms(const __nv_bfloat16* x, const __nv_bfloat16* weight,
                               __nv_bfloat16* out, int columns, float epsilon) {{
  __shared__ float red[4];
  const size_t first = (size_t)blockIdx.x * columns;
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 128) {{
    const float v = __bfloat162float(x[first + c]);
    sum += v * v;
  }}
  const float scale = rsqrtf(block_of(sum, red, false) / columns + epsilon);
  for (int c = threadIdx.x; c < columns; c += 128)
    out[first + c] = __float2bfloat16(__bfloat162float(x[first + c]) * scale *
                                      __bfloat162float(weight[c]));
}}
"""
TRANSPOSE = """
OPERATION = from_reference(
    "flip:R,C", {"x": "f16[R,C]", "out": "f16[C,R]:out", "rows": "i32:R", "columns": "i32:C"},
    lambda x: x.T, sizes=[(33, 70), (4096, 4096)])
RUNG = OPERATION.rung(__file__, entry="flip", grid="cdiv(C, 32), cdiv(R, 32)", block="32, 8")
"""
TRANSPOSE_CU = """#include <cuda_fp16.h>
extern "C" __global__ void flip(const half* x, half* out, int rows, int columns) {
  __shared__ half tile[32][33];
  const int c = blockIdx.x * 32, r = blockIdx.y * 32;
  for (int i = threadIdx.y; i < 32; i += 8)
    if (r + i < rows && c + threadIdx.x < columns)
      tile[i][threadIdx.x] = x[(size_t)(r + i) * columns + c + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8)
    if (c + i < columns && r + threadIdx.x < rows)
      out[(size_t)(c + i) * rows + r + threadIdx.x] = tile[threadIdx.x][i];
}
"""
REDUCTION = """
OPERATION = from_reference(
    "total:N", {"x": "f32[N]", "out": "f32[1]:out", "n": "i32:N"}, lambda x: x.sum(),
    sizes=[1000, 0, 1 << 24])
RUNG = OPERATION.rung(
    __file__, workspace={"partial": "f32[64]"}, launches=[
        {"entry": "sum", "grid": 64, "block": 128, "args": ["x", "partial", "n"]},
        {"entry": "sum", "grid": 1, "block": 128, "args": ["partial", "out", "blocks"]}])
""".replace('"n": "i32:N"}', '"n": "i32:N", "blocks": "i32:64"}')
REDUCTION_CU = f"""{BLOCK_SUM}
extern "C" __global__ void sum(const float* x, float* out, int n) {{
  __shared__ float red[4];
  float v = 0;
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
  v = block_of(v, red, false);
  if (threadIdx.x == 0) out[blockIdx.x] = v;
}}
"""
HISTOGRAM = """
OPERATION = from_reference(
    "bins:N", {"x": "i32[N]=uniform:0,64", "out": "i32[64]:out", "n": "i32:N"},
    lambda x: np.bincount(x, minlength=64), sizes=[1000, 1 << 24])
RUNG = OPERATION.rung(
    __file__, launches=[
        {"entry": "clear", "grid": 1, "block": 64, "args": ["out"]},
        {"entry": "count", "grid": "cdiv(N, 256)", "block": 256, "args": ["x", "out", "n"]}])
"""
HISTOGRAM_CU = """
extern "C" __global__ void clear(int* out) { out[threadIdx.x] = 0; }
extern "C" __global__ void count(const int* x, int* out, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) atomicAdd(&out[x[i]], 1);
}
"""
SCAN = """
OPERATION = from_reference(
    "sums:R,C", {"x": "i32[R,C]=uniform:-9,10", "out": "i32[R,C]:out", "columns": "i32:C"},
    lambda x: x.cumsum(axis=1), sizes=[(3, 300), (4096, 4096)], rows="R")
RUNG = OPERATION.rung(__file__, entry="scan", grid="R", block=128)
"""
SCAN_CU = """
extern "C" __global__ void scan(const int* x, int* out, int columns) {
  __shared__ int held[2][128];
  const size_t first = (size_t)blockIdx.x * columns;
  int before = 0;
  for (int c = 0; c < columns; c += 128) {
    const int mine = c + threadIdx.x, t = threadIdx.x;
    int now = 0;
    held[0][t] = mine < columns ? x[first + mine] : 0;
    __syncthreads();
    for (int d = 1; d < 128; d *= 2, now = 1 - now) {
      held[1 - now][t] = held[now][t] + (t >= d ? held[now][t - d] : 0);
      __syncthreads();
    }
    if (mine < columns) out[first + mine] = before + held[now][t];
    before += held[now][127];
    __syncthreads();
  }
}
"""
SGEMM = """
OPERATION = from_reference(
    "sgemm_abc:M,N,K",
    {"m": "i32:M", "n": "i32:N", "k": "i32:K", "alpha": "f32:0.5", "a": "f32[M,K]",
     "b": "f32[K,N]", "beta": "f32:-2", "c": "f32[M,N]:inout"},
    lambda a, b, c, alpha, beta: alpha * a @ b + beta * c,
    sizes=[(33, 40, 20), (4096, 4096, 4096)], flops="2*M*N*K")
RUNG = OPERATION.rung(__file__, entry="sgemm", grid="cdiv(N, 16), cdiv(M, 16)", block="16, 16")
"""
SGEMM_CU = """
extern "C" __global__ void sgemm(int m, int n, int k, float alpha, const float* a, const float* b,
                                 float beta, float* c) {
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = alpha * sum + beta * c[row * n + column];
}
"""
TOP_K = """
def softmax_top(x):
    places = np.argsort(-x, axis=1, kind="stable")[:, :4]
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.take_along_axis(e / e.sum(axis=1, keepdims=True), places, 1), places
OPERATION = from_reference(
    "top4:R,C", {"x": "f32[R,C]", "values": "f32[R,4]:out", "places": "i32[R,4]:out",
                 "columns": "i32:C"},
    softmax_top, sizes=[(3, 70), (8192, 1024)], rows="R")
RUNG = OPERATION.rung(
    __file__, entry="top", grid="R", block=32,
    supports=lambda p: None if 4 <= p.C <= 1024 else "it takes 4 to 1024 columns")
"""
TOP_K_CU = """
extern "C" __global__ void top(const float* x, float* values, int* places, int columns) {
  const float* row = x + (size_t)blockIdx.x * columns;
  __shared__ bool taken[1024];
  for (int c = threadIdx.x; c < columns; c += 32) taken[c] = false;
  __syncwarp();
  float first = 0, sum = 0;
  for (int k = 0; k < 4; ++k) {
    float most = -INFINITY;
    int place = columns;
    for (int c = threadIdx.x; c < columns; c += 32)
      if (!taken[c] && (row[c] > most || place == columns)) { most = row[c]; place = c; }
    for (int d = 16; d > 0; d /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, most, d);
      const int there = __shfl_xor_sync(0xffffffffu, place, d);
      if (there < columns && (other > most || place == columns ||
                              (other == most && there < place))) { most = other; place = there; }
    }
    if (k == 0) {
      first = most;
      for (int c = threadIdx.x; c < columns; c += 32) sum += expf(row[c] - first);
      for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
      taken[place] = true;
      values[blockIdx.x * 4 + k] = expf(most - first) / sum;
      places[blockIdx.x * 4 + k] = place;
    }
    __syncwarp();
  }
}
"""
SAXPY = """
OPERATION = from_reference(
    "saxpy:N", {"n": "i32:N", "alpha": "f32:0.5", "x": "f32[N]", "y": "f32[N]:inout"},
    lambda torch, x, y, alpha: alpha * x + y, sizes=[300, 1 << 26])
RUNG = OPERATION.rung(__file__, entry="saxpy", grid="cdiv(N, 128)", block=128)
"""
SAXPY_CU = """
extern "C" __global__ void saxpy(int n, float alpha, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += alpha * x[i];
}
"""
KERNELS = {
    "softmax": (SOFTMAX, SOFTMAX_CU, "  __syncthreads();  // red is free again", ""),
    "rms_norm": (RMS_NORM, RMS_NORM_CU, "/ columns +", "/ (columns + 1) +"),
    "transpose": (TRANSPOSE, TRANSPOSE_CU, "  __syncthreads();\n", ""),
    "reduction": (REDUCTION, REDUCTION_CU, "i < n;", "i < n - 1;"),
    "histogram": (HISTOGRAM, HISTOGRAM_CU, "atomicAdd(&out[x[i]], 1)", "out[x[i]] += 1"),
    "scan": (SCAN, SCAN_CU, "t >= d ?", "t > d ?"),
    "sgemm": (SGEMM, SGEMM_CU, "+ beta *", "- beta *"),
    "top_k": (TOP_K, TOP_K_CU, "+ k] = place;", "+ k] = place + k;"),
    "saxpy": (SAXPY, SAXPY_CU, "y[i] +=", "y[i] ="),
}
"""By name what a reader writes, the kernel, and what makes it wrong."""


def write_kernel(folder: Path, name: str, text: str = "", wrong: bool = False) -> Path:
    told, source, old, new = KERNELS[name]
    assert source.count(old) == 1 and len(told.splitlines()) < 20
    (folder / f"{name}.cu").write_text(source.replace(old, new) if wrong else source)
    (folder / f"{name}.py").write_text(HEAD + (text or told))
    return folder / f"{name}.py"


def judge(path: Path) -> CheckReport:
    rung = load_rung(path)
    return check_rung(rung, operation_of(rung.operation).small, on="cpu", quick=True)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_judged_by_its_reference(tmp_path: Path, name: str, wrong: bool) -> None:
    report = judge(write_kernel(tmp_path, name, wrong=wrong))
    assert report.ok is not wrong, report.summary
    if wrong and name == "softmax":
        assert {one.kind for one in report.faults} == {"race"}


TILES = """
OPERATION = from_reference(
    "tiles:M,N,K", {"n": "i32:N", "k": "i32:K", "a": "f32[M,K]", "b": "f32[K,N]",
                    "c": "f32[M,N]:out"},
    lambda a, b: a @ b, sizes=[(64, 64, 64), (64, 64, 448), (2048, 2048, 2048)], flops="2*M*N*K")
RUNG = OPERATION.rung(
    __file__, entry="tile", grid="N // 64, M // 64", block="16, 16",
    supports=lambda p: "multiples of 64" if any(size % 64 for size in p.sizes) else None)
"""
TILES_CU = """
extern "C" __global__ void tile(int n, int k, const float* a, const float* b, float* c) {
  const int row = blockIdx.y * 64 + threadIdx.y * 4, column = blockIdx.x * 64 + threadIdx.x * 4;
  for (int r = row; r < row + 4; ++r)
    for (int j = column; j < column + 4; ++j) {
      float sum = 0;
      for (int i = 0; i < k; ++i) sum += a[r * k + i] * b[i * n + j];
      c[r * n + j] = sum;
    }
}
"""
WRONG_TILES = {
    "rows of further blocks": ("a[r * k", "a[(r - blockIdx.y) * k"),
    "columns of further blocks": ("b[i * n + j]", "b[i * n + j - blockIdx.x]"),
    "blocks that are further along both": ("a[r * k", "a[(r - blockIdx.x * blockIdx.y) * k"),
    "the author's second size": ("i < k;", "i < k - (k == 448);"),
}


@pytest.mark.parametrize("fault", ["", *WRONG_TILES])
def test_a_quick_check_has_several_blocks_and_every_size_of_the_author(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    monkeypatch.setitem(
        KERNELS, "tiles", (TILES, TILES_CU, *WRONG_TILES.get(fault, ("const int row", "")))
    )
    report = judge(write_kernel(tmp_path, "tiles", wrong=bool(fault)))
    assert report.ok is not bool(fault), report.summary
    (said,) = [one for one in report.not_checked if "tiles:2048,2048,2048" in one]
    assert "12,582,912 elements" in said


def test_a_right_kernel_is_right_in_the_whole_battery(tmp_path: Path) -> None:
    """With a length of zero, and long sums."""
    rung = load_rung(write_kernel(tmp_path, "reduction"))
    report = check_rung(rung, operation_of("total").small, on="cpu", seed=1)
    assert report.ok, report.summary
    lengths = {case.workload.N for case in report.cases}
    assert {0, 1, 127, 129, 255} <= lengths and max(lengths) > 65_536


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("columns", [129, 300, 512])
def test_equal_terms_may_all_be_rounded_to_the_same_side(wrong: bool, columns: int) -> None:
    """One thread adds a whole row, whose mean is then taken from every element of it."""
    rung = load_rung(PUBLIC_DIR / "layer_norm2_thread.py")
    if wrong:
        rung = rung.with_source(rung.source_text.replace("m /= C;", "m /= C + 1;"))
    small = operation_of(rung).small
    for kind in ("constant", "normal"):
        problem = small.replace(R=3, columns=columns, distribution=kind, seed=1)
        found = run_on_cpu(rung, problem)
        assert found.ok is not wrong, found.told


BAD_PROBLEMS = {
    "a letter that is no size": ('"out": "f32[R,C]:out"', '"out": "f32[R,Q]:out"', "R, C"),
    "no output": ("f32[R,C]:out", "f32[R,C]", "marked as written"),
    "sizes that do not fit": ("(8192, 4096)]", "(8192,)]", "each a whole number"),
    "a name that is taken": ('"softmax_rows:', '"decode:', "is here already"),
    "an unknown parameter": ("def softmax(x):", "def softmax(x, y=1):", "asks for 'y'"),
    "rows that are none": ('rows="R"', 'rows="Q"', "none of its sizes"),
    "rows that are the second axis": ('rows="R"', 'rows="C"', "first axis"),
    "a range of an output": ("f32[R,C]:out", "f32[R,C]:out=uniform:0,1", "=uniform"),
    "an argument that is not there": ("block=256", 'block=256, args=["x", "z"]', "takes z"),
    "a launch without a block": (
        'grid="R", block=256',
        'launches=[{"entry": "softmax", "grid": "R"}]',
        "grid and block",
    ),
    "a grid of no size": ('grid="R"', 'grid="R // 2 - Z"', "are no sizes"),
}
BAD_REFERENCES = {
    "a reference that raises": ("e / e.sum(", "e / e.no_sum(", "no_sum"),
    "one that writes its inputs": ("    e = ", "    x -= 1\n    e = ", "may write into none"),
    "another shape": ("return e / e.sum(axis=1, keepdims=True)", "return e[:, :1]", "(5, 1)"),
    "another type": ("return e /", "return 1j * e /", "complex128"),
    "NaN": ("np.exp(x", "np.log(x", "not finite"),
    "too many outputs": ("return e /", "return e, e /", "2 outputs"),
    "rows that depend on each other": (
        "axis=1, keepdims=True)\nO",
        "keepdims=True)\nO",
        "other rows",
    ),
}


@pytest.mark.parametrize("case", [*BAD_PROBLEMS, *BAD_REFERENCES])
def test_what_is_no_problem_is_said(tmp_path: Path, case: str) -> None:
    old, new, said = {**BAD_PROBLEMS, **BAD_REFERENCES}[case]
    text = SOFTMAX.replace(old, new, 1)
    assert text != SOFTMAX
    path = write_kernel(tmp_path, "softmax", text)
    with pytest.raises(LabError) as refused:
        judge(path)
    assert said in str(refused.value) and refused.value.still_works
    assert "Traceback" not in str(refused.value)
    written = sorted(one.name for one in tmp_path.iterdir() if one.is_file())
    assert written == ["softmax.cu", "softmax.py"]


def test_a_reference_of_torch_is_a_peer_where_it_is_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    load_rung(write_kernel(tmp_path, "saxpy"))
    operation = operation_of("saxpy")
    assert not list_baselines("saxpy") and operation.baseline is None
    peers = {name: load_baseline(name) for name in ("saxpy_torch", "saxpy_torch_compiled")}
    small = operation.small
    drawn = operation.draw(small)
    tensors = {name: torch.from_numpy(one.copy()) for name, one in drawn.buffers().items()}
    found = peers["saxpy_torch"].prepare(tensors, small)()
    assert small.compare(found.numpy(), operation.expect(drawn)).ok
    assert operation_of("saxpy") is operation


GATHERED = """
OPERATION = from_reference(
    "gathered:N,R,C",
    {"table": "f32[N,C]:part", "rows": "i32[R]=uniform:0,N", "out": "f32[R,C]:out"},
    lambda table, rows: table[rows], sizes=[(7, 5, 3), (50000, 8192, 1024)], LEAST)
RUNG = OPERATION.rung(__file__, entry="softmax<256>", grid="R", block=256)
"""


def test_a_floor_says_what_it_leaves_out_or_counts_what_the_author_says(tmp_path: Path) -> None:
    moved = 4 * 8192 * 1025
    for least, given, left_out in [
        ('rows="R"', moved, ("table",)),
        ('least_bytes="4*R*(2*C+1)"', moved + 4 * 8192 * 1024, ()),
    ]:
        path = write_kernel(tmp_path, "softmax", GATHERED.replace("LEAST", least))
        operation = operation_of(load_rung(path).operation)
        found = floors(operation.headline, "h200")
        assert (found.bytes, found.left_out) == (given, left_out)
        assert ("without table" in operation.bytes_name) == bool(left_out)
    write_kernel(tmp_path, "softmax", GATHERED.replace("LEAST", 'least_bytes="4*Q"'))
    with pytest.raises(LabError, match="gathered cannot be read"):
        load_rung(tmp_path / "softmax.py")


TYPES = """
OPERATION = from_reference(
    "kinds:N,M",
    {"a": "f8e4m3[N,M]", "b": "f8e5m2[N]", "c": "u8[N]", "d": "i32[N,2]=uniform:-3,M",
     "e": "i64[N]=arange", "f": "f64[N]", "g": "f16[M]=uniform:min(N,1),2", "out": "f64[N,M]:out",
     "low": "f8e4m3[N,M]:out", "count": "i32[1]:out", "h": "bf16[N,M]:inout"},
    lambda a, b, c, d, e, f, g, h, N: (
        a * g + (b + c + d.sum(1) + e + f)[:, None], a / 2, (c > 7).sum(), h + N),
    sizes=[(5, 7), (300, 200)])
RUNG = OPERATION.rung(__file__, entry="softmax<256>", grid=1, block=256)
"""


def test_inputs_of_every_type_and_kind_are_drawn_within_their_ranges(tmp_path: Path) -> None:
    load_rung(write_kernel(tmp_path, "softmax", TYPES))
    operation = operation_of("kinds")
    for kind in operation.problem.distributions:
        one = parse_problem("kinds:5,7").replace(distribution=kind)
        drawn = operation.draw(one).buffers()
        for name, buffer in one.inputs.items():
            assert (drawn[name].shape, str(drawn[name].dtype)) == (buffer.shape, buffer.dtype)
        assert drawn["d"].min() >= -3 and drawn["d"].max() < 7
        assert drawn["g"].min() >= 1 and drawn["g"].max() <= 2
        assert [*drawn["e"]] == [0, 1, 2, 3, 4]
        answers = operation.expect(operation.draw(one))
        right = {x: answers[x].astype(element_dtype(b.dtype)) for x, b in one.outputs.items()}
        assert one.compare(right, answers).ok
        right["count"] = right["count"] + 1
        found = one.compare(right, answers)
        assert not found.ok and " at  (" not in str(found)
    assert one.in_out == ("h",)


@pytest.mark.parametrize("name", KERNELS)
def test_altered_inputs_have_another_answer(tmp_path: Path, name: str) -> None:
    load_rung(write_kernel(tmp_path, name))
    operation = operation_of(load_rung(tmp_path / f"{name}.py").operation)
    for kind in operation.problem.distributions:
        drawn = operation.draw(operation.small.replace(distribution=kind))
        changed = operation.alter(drawn, np.random.default_rng(1))
        other = OtherValues(drawn.problem, {**drawn.buffers(), **changed})
        before, after = operation.expect(drawn), drawn.problem.by_output(operation.oracle(other))
        for output, one in before.items():
            assert not np.array_equal(one, after[output]), kind


MEASURED = """
OPERATION = from_reference(
    "rms_torch:R,C",
    {"x": "f16[R,C]", "weight": "f16[C]", "out": "f16[R,C]:out", "columns": "i32:C",
     "epsilon": "f32:1e-6"},
    lambda torch, x, weight, epsilon, C: torch.nn.functional.rms_norm(x, (C,), weight, epsilon),
    sizes=[(5, 130), (64, 256)], rows="R")
RUNG = OPERATION.rung(__file__, entry="rms_norm", grid="R", block=128)
"""


def test_it_is_checked_timed_and_recorded_beside_its_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    use_fake_gpu(monkeypatch, tmp_path)
    monkeypatch.setenv("FAKE_GPU_TORCH", "1")
    source = RMS_NORM_CU.replace("rms(", "rms_norm(").replace("cuda_bf16", "cuda_fp16")
    source = source.replace("bfloat16", "half").replace("__nv_half", "half")
    monkeypatch.setitem(KERNELS, "measured", (MEASURED, source, "+ epsilon", "+ 1"))
    rung = load_rung(write_kernel(tmp_path, "measured"))
    operation = operation_of("rms_torch")
    assert run_on_gpu(rung, operation.small).ok
    report = record_rung(
        rung,
        operation.headline,
        effort=Effort(1, 5, profile=False, sanitize=False),
        out_dir=tmp_path / "out",
        baselines=["rms_torch_torch"],
    )
    assert report.ok, report.failures
    records = RecordStore([tmp_path / "out"]).query()
    named = {one.name: one for one in records if one.kind != "ceiling"}
    assert {*named} == {"measured", "rms_torch_torch"}
    for one in records:
        assert median_problems(one) == [] and freshness(one).fresh


def test_what_is_merged_keeps_the_error_with_its_own_limit() -> None:
    """Outputs and cases of other types are held against other limits."""
    near = Comparison(True, worst_error=1e-5, tolerance=2e-5)
    far = Comparison(True, worst_error=1e-4, tolerance=1e-3)
    for merge in (merge_comparisons, merge_outputs):
        for order in ([near, far], [far, near], [Comparison(True), far, near]):
            merged = merge(order)
            assert (merged.worst_error, merged.tolerance) == (1e-5, 2e-5)
