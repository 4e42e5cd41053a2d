"""Measure what the model takes of a GPU that no microbenchmark has.

    python -m research.measure_units --out FOLDER

Run on a GPU; the table that it writes, ``units.json``, is ``tests/bounds/units_<gpu>.json``:
`turns` that shared memory takes for the addresses of `drawn_places`, as ncu counts them; `mixes`,
microseconds of kernels that read and store so many float4 a thread, of two sizes; `products`,
cycles of a sub-partition for one ``mma`` whose factors the one before used (`same`), or not, or
in front of which they are moved (`moved`); `stores`, cycles of an SM for a store of each
of `STORE_PATTERNS` by one SM and by all.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from labtools.measure.gpu.job import require_device
from labtools.measure.profiler.counters import Counter
from labtools.measure.profiler.ncu import find_ncu, ncu_command

WIDTHS = (4, 8, 16)
DIRECTIONS = ("ld", "st")
WORDS_TO_CHOOSE = 2048
"""Words of shared memory that the lanes choose from."""
PLACES_DRAWN = 60
ACCESSES_COUNTED = 64
MIX_SAMPLES, LAUNCHES = 7, 20
METRIC = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
TURNS_KERNEL = """
extern "C" __global__ void {name}(const int* places, float* out, int trips) {{
  __shared__ float4 held[512];
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(held));
  const unsigned at = base + 4 * places[threadIdx.x];
  float {declared};
  for (int k = 0; k < trips; ++k) asm volatile("{code}" {operands} : "memory");
  out[threadIdx.x] = {result} + held[0].x;
}}
"""


def drawn_places(width: int) -> np.ndarray:
    """[patterns, 32] the first word of each lane: some that programs have, then drawn ones."""
    each, lane = width // 4, np.arange(32)
    rng = np.random.default_rng(width)
    found = [0 * lane, lane, lane // 2, lane // 4, lane // 8, lane // 16, lane % 2, lane % 4]
    found += [lane % 8, lane % 16, lane ^ 1, lane ^ 5, 2 * lane, 4 * lane, 8 * lane, 32 * lane]
    found += [np.where(lane < 16, 0, lane), np.where(lane < 16, lane, 0)]
    found += [
        lane // 2 % 2,
        lane // 2 % 8,
        lane // 4 % 2,
        lane // 8 % 2,
        8 * (lane % 4) + lane // 4,
    ]
    found += [
        8 * (lane // 2 % 4),
        lane // 2 * 8 % 64,
        lane % 8 * 8,
        lane // 8 * 32,
        33 * lane % 256,
    ]
    most = WORDS_TO_CHOOSE // each
    for number in range(PLACES_DRAWN):
        different = 1 << number % 6  # so many places at most
        choice = rng.integers(0, min(most, 4 * different * (1 + number % 3)), different)
        found.append(choice[rng.integers(0, different, 32)])
    return np.array([each * (one % most) for one in found], np.int32)


def turns_source() -> str:
    """One kernel a width and direction."""
    parts = []
    for width in WIDTHS:
        names = [f"x{i}" for i in range(width // 4)]
        vector = {4: "", 8: ".v2", 16: ".v4"}[width]
        places = ", ".join(f"%{i}" for i in range(len(names)))
        for direction in DIRECTIONS:
            loads = direction == "ld"
            marks = ", ".join(f'"{"=f" if loads else "f"}"({name})' for name in names)
            last = len(names) if loads else 0
            if loads:
                code = f"ld.volatile.shared{vector}.f32 {{{places}}}, [%{last}];"
                operands = f': {marks} : "r"(at)'
            else:
                places = ", ".join(f"%{i + 1}" for i in range(len(names)))
                code = f"st.volatile.shared{vector}.f32 [%0], {{{places}}};"
                operands = f': : "r"(at), {marks}'
            parts.append(
                TURNS_KERNEL.format(
                    name=f"{direction}{8 * width}",
                    declared=", ".join(f"{name} = threadIdx.x" for name in names),
                    code=code if vector else code.replace("{", "").replace("}", ""),
                    operands=operands,
                    result=" + ".join(names),
                )
            )
    return "".join(parts)


def launch_watched() -> None:
    """Each kernel on each pattern, between a profiler's start and its stop."""
    import cupy

    module = cupy.RawModule(code=turns_source(), backend="nvrtc")
    out = cupy.zeros(32, np.float32)
    cupy.cuda.profiler.start()
    for width in WIDTHS:
        for direction in DIRECTIONS:
            kernel = module.get_function(f"{direction}{8 * width}")
            for places in drawn_places(width):
                kernel((1,), (32,), (cupy.asarray(places), out, np.int32(ACCESSES_COUNTED)))
    cupy.cuda.Device().synchronize()
    cupy.cuda.profiler.stop()


def count_turns(folder: Path) -> dict[str, list[int]]:
    """The turns of a launch's access by kernel, in the order of its patterns."""
    ncu, report = find_ncu(), folder / "units.ncu-rep"
    metrics = [METRIC.format(one) for one in DIRECTIONS]
    wanted = [Counter(metric, "", (metric,), "") for metric in metrics]
    command = ncu_command(ncu, report, counters="chosen", warm=True, wanted=wanted)
    command += [sys.executable, "-m", "research.measure_units", "--watched"]
    subprocess.run(command, check=True, capture_output=True)
    command = [ncu.path, "--import", str(report), "--page", "raw", "--csv"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    report.unlink()
    found: dict[str, list[int]] = {}
    for row in csv.DictReader(io.StringIO(said[said.index('"ID"') :])):
        name = row["Kernel Name"].partition("(")[0]
        if row["ID"]:  # the line of units has none
            counted = float(row[METRIC.format(name[:2])].replace(",", ""))
            found.setdefault(name, []).append(round(counted / ACCESSES_COUNTED))
    return found


MIXES = {
    "read": (1, 0),
    "store": (0, 1),
    "1:1": (1, 1),
    "2:1": (2, 1),
    "3:1": (3, 1),
    "1:3": (1, 3),
}
"""Float4 that a thread reads and stores."""
MIX_THREADS = (1 << 23, 1 << 24)
"""Threads of a mix."""
MIX_KERNEL = """
extern "C" __global__ void mix(const float4* x, float4* out, size_t n) {{
  const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  float4 sum = make_float4(1, 2, 3, i);
  for (int k = 0; k < {reads}; ++k) {{
    const float4 v = x[i + k * n];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }}
  if ({stores} || sum.x > 1e30f)
    for (int k = 0; k < {stores} + !{stores}; ++k) out[i + k * n] = sum;
}}
"""
FACTORS_IN_TURN = {"same": (1, 1), "a": (2, 1), "b": (1, 2), "both": (2, 2), "moved": (2, 0)}
"""How many left and right factors products take in turn; 0 right ones are halves of the left one,
which the compiler moves to where a product can read them."""
PRODUCTS_A_LOOP, PRODUCT_LOOPS, PRODUCT_WARPS = 16, 200, 16
PRODUCT_KERNEL = """
extern "C" __global__ void products(const unsigned* in, float* out, long long* cycles) {{
  unsigned a[2][4], b[2][2];
  float c[4][4] = {{}}, sum = 0;
  for (int i = 0; i < 2; ++i) {{
    for (int j = 0; j < 4; ++j) a[i][j] = in[32 * (4 * i + j) + threadIdx.x];
    for (int j = 0; j < 2; ++j) b[i][j] = in[32 * (8 + 2 * i + j) + threadIdx.x];
  }}
  __syncthreads();
  const long long start = clock64();
  for (int k = 0; k < {trips}; ++k) {{
    {code}
  }}
  const long long end = clock64();
  for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) sum += c[i][j];
  for (int i = 0; i < 2; ++i) sum += a[i][0] + b[i][0];
  out[threadIdx.x] = sum;
  if (threadIdx.x == 0) *cycles = end - start;
}}
"""


def products_source(left: int, right: int) -> str:
    """A kernel of products that take so many factors in turn."""
    form = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    places = "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    code = []
    for i in range(PRODUCTS_A_LOOP):
        sums = ", ".join(f'"+f"(c[{i % 4}][{j}])' for j in range(4))
        factors = [f'"r"(a[{i % left}][{j}])' for j in range(4)]
        if right:
            factors += [f'"r"(b[{i % right}][{j}])' for j in range(2)]
        else:
            factors += [f'"r"(a[{i % left}][{2 * j}])' for j in range(2)]
        code.append(f'asm volatile("{form} {places}" : {sums} : {", ".join(factors)});')
    return PRODUCT_KERNEL.format(trips=PRODUCT_LOOPS, code="\n    ".join(code))


STORE_PATTERNS = [
    (width, stride, advance)
    for width in (4, 16)
    for stride in (4, 8, 16, 32, 64, 128, 512, 2048)
    if stride >= width
    for advance in (0, width, 128)
]
"""Bytes of a lane's store, bytes from a lane's to the next one's, and bytes by which a warp's next
store is further on: until it begins anew after 128, or after 4096 if they are whole lines."""
STORING_WARPS, STORES_TIMED = 8, 512
STORE_KERNEL = """
extern "C" __global__ void stores(char* room, long long* cycles, int stride, int advance) {{
  const int warp = blockIdx.x * {warps} + threadIdx.x / 32;
  char* here = room + (size_t)warp * (32 * stride + 4096) + threadIdx.x % 32 * stride;
  __syncthreads();
  const long long start = clock64();
  for (int k = 0; k < {count}; ++k) {{
    char* at = here + k * advance % (advance == 128 ? 4096 : 128);
    asm volatile("st.global{form}" : : "l"(at), "r"(k) : "memory");
  }}
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - start;
}}
"""
STORE_FORMS = {4: ".u32 [%0], %1;", 16: ".v4.u32 [%0], {%1, %1, %1, %1};"}


def time_stores() -> list[list[float]]:
    """Of each pattern the bytes of `STORE_PATTERNS`, the SMs that store, and cycles of an SM for a
    store of a warp: the median of the SMs, of the last of three launches."""
    import cupy

    found = []
    sms = int(cupy.cuda.Device().attributes["MultiProcessorCount"])
    room = cupy.zeros(128 << 20, np.uint8)
    kernels = {
        width: cupy.RawModule(
            code=STORE_KERNEL.format(warps=STORING_WARPS, count=STORES_TIMED, form=form)
        ).get_function("stores")
        for width, form in STORE_FORMS.items()
    }
    for width, stride, advance in STORE_PATTERNS:
        for blocks in (1, sms):
            cycles = cupy.zeros(blocks, np.int64)
            given = room, cycles, np.int32(stride), np.int32(advance)
            for _ in range(3):
                kernels[width]((blocks,), (32 * STORING_WARPS,), given)
            each = float(np.median(cycles.get())) / (STORING_WARPS * STORES_TIMED)
            found.append([width, stride, advance, blocks, round(each, 3)])
    return found


def time_mixes() -> dict[str, list[float]]:
    """Microseconds of a launch of each mix and size, the middle of `MIX_SAMPLES`."""
    import cupy

    found: dict[str, list[float]] = {}
    events = [cupy.cuda.Event() for _ in range(2)]
    for name, (reads, stores) in MIXES.items():
        module = cupy.RawModule(code=MIX_KERNEL.format(reads=reads, stores=stores))
        kernel = module.get_function("mix")
        for size in MIX_THREADS:
            given = cupy.zeros((max(1, reads) * size, 4), np.float32)
            out = cupy.zeros((max(1, stores) * size, 4), np.float32)
            times = []
            for _ in range(MIX_SAMPLES + 1):
                events[0].record()
                for _ in range(LAUNCHES):
                    kernel((size // 256,), (256,), (given, out, np.uint64(size)))
                events[1].record()
                events[1].synchronize()
                times.append(1e3 * cupy.cuda.get_elapsed_time(*events) / LAUNCHES)
            found.setdefault(name, []).append(float(np.median(times[1:])))
    return found


def time_products() -> dict[str, float]:
    """Cycles of a sub-partition for a product, by the factors that they take."""
    import cupy

    found = {}
    given, out = cupy.zeros(4096, np.uint32), cupy.zeros(1024, np.float32)
    cycles = cupy.zeros(1, np.int64)
    for name, (left, right) in FACTORS_IN_TURN.items():
        module = cupy.RawModule(code=products_source(left, right))
        kernel = module.get_function("products")
        for _ in range(2):
            kernel((1,), (32 * PRODUCT_WARPS,), (given, out, cycles))
        found[name] = int(cycles[0]) / (PRODUCTS_A_LOOP * PRODUCT_LOOPS * PRODUCT_WARPS / 4)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="folder of the table")
    parser.add_argument("--watched", action="store_true", help="launch each once, under a profiler")
    chosen = parser.parse_args(arguments)
    if chosen.watched:
        launch_watched()
        return 0
    device = require_device()
    about = {"gpu": device.name, "driver": device.driver_version or ""}
    about["date"] = datetime.now(UTC).date().isoformat()
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / "units.json"
    measured = {
        "products": time_products(),
        "mixes": time_mixes(),
        "stores": time_stores(),
        "turns": count_turns(chosen.out),
    }
    path.write_text(json.dumps({**about, **measured}) + "\n")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
