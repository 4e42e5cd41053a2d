"""Count the turns that shared memory takes for drawn addresses of a warp.

    python -m research.measure_banks --out FOLDER

Run on a GPU; the table that it writes, ``banks.json``, is ``tests/bounds/banks_<gpu>.json``: by
bytes a lane and direction the turns (wavefronts) of each of `drawn_places`, as ncu counts them.
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
from labtools.measure.profiler.ncu import find_ncu

WIDTHS = (4, 8, 16)
DIRECTIONS = ("ld", "st")
WORDS = 2048
"""Words of shared memory that the lanes choose from."""
DRAWN = 60
TRIPS = 64
METRIC = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
KERNEL = """
extern "C" __global__ void {name}(const int* places, float* out, int trips) {{
  __shared__ float4 held[512];
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(held)) + 4 * places[threadIdx.x];
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
    most = WORDS // each
    for number in range(DRAWN):
        different = 1 << number % 6  # so many places at most
        choice = rng.integers(0, min(most, 4 * different * (1 + number % 3)), different)
        found.append(choice[rng.integers(0, different, 32)])
    return np.array([each * (one % most) for one in found], np.int32)


def kernel_source() -> str:
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
                KERNEL.format(
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

    module = cupy.RawModule(code=kernel_source(), backend="nvrtc")
    out = cupy.zeros(32, np.float32)
    cupy.cuda.profiler.start()
    for width in WIDTHS:
        for direction in DIRECTIONS:
            kernel = module.get_function(f"{direction}{8 * width}")
            for places in drawn_places(width):
                kernel((1,), (32,), (cupy.asarray(places), out, np.int32(TRIPS)))
    cupy.cuda.Device().synchronize()
    cupy.cuda.profiler.stop()


def count_turns() -> dict[str, list[int]]:
    """The turns of a launch's access by kernel, in the order of its patterns."""
    command = [find_ncu().path, "--profile-from-start", "off", "--csv", "--page", "raw"]
    command += ["--kernel-name", "regex:^(ld|st)[0-9]+$"]
    command += ["--metrics", ",".join(METRIC.format(one) for one in DIRECTIONS)]
    command += [sys.executable, "-m", "research.measure_banks", "--watched"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    table = said[said.index('"ID"') :]
    found: dict[str, list[int]] = {}
    for row in csv.DictReader(io.StringIO(table)):
        name = row["Kernel Name"].partition("(")[0]
        if not row["ID"]:  # the line of units
            continue
        counted = float(row[METRIC.format(name[:2])].replace(",", ""))
        found.setdefault(name, []).append(round(counted / TRIPS))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and count."""
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
    path = chosen.out / "banks.json"
    path.write_text(json.dumps({**about, "turns": count_turns()}) + "\n")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
