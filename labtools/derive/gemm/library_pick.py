"""The tile that NVIDIA's own heuristics name for a product, where the package is installed.

``nvidia-matmul-heuristics`` is asked in a process of its own, since it may crash when it ends. Its
tiles are taken and its times are not: they contradict each other between its modes. It ranks its
whole set only where its own model of the time may choose; without that flag the first of its
candidates comes back, which is one tile for every product. It is asked for CUTLASS's kernels with
wgmma or tcgen05 where the GPU has those, else for the older ones, whose products are mma.sync.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass

from labtools.predict.sheets import Gpu
from labtools.problem.text import how_many

PACKAGE = "nvMatmulHeuristics"
INSTALL = "pip install nvidia-matmul-heuristics"
SECONDS = 20
_GPUS = {
    "a100-40gb": "A100_PCIE_80GB",
    "a100-80gb": "A100_SXM_80GB",
    "a10": "A10_PCIE",
    "l4": "L4",
    "l40s": "L40S",
    "rtx3090": "RTX_3090",
    "rtx4090": "RTX_4090",
    "h100": "H100_SXM",
    "h200": "H200_SXM",
    "h100-pcie": "H100_PCIE",
    "rtx5090": "RTX_5090",
    "rtx-a6000": "RTX_A6000",
    "b200": "B200",
}
"""What the package calls the GPUs of our sheets. An A100 of 40 GB has the SMs of one of 80."""
_CHILD = """
import json, os, sys
from nvMatmulHeuristics import *
m, n, k, gpu, target = *map(int, sys.argv[1:4]), *sys.argv[4:]
asked = NvMatmulHeuristicsInterface(
    NvMatmulHeuristicsTarget[target],
    precision="HSH",
    flags=NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
)
descriptor = asked.createHardwareDescriptor()
asked.setHardwarePredefinedGpu(descriptor, NvMatmulHeuristicsNvidiaGpu[gpu])
layout = NvMatmulHeuristicsMatmulLayout.TN_ROW_MAJOR
asked.loadInternalDiscoverySet(layout, descriptor)
one = asked.get_with_mnk(m, n, k, layout, 1, descriptor)[0]["kernel"]
said = {"cta": [one.cta_tile_m, one.cta_tile_n, one.cta_tile_k], "stages": one.stages,
        "split_k": one.split_k, "cluster": [one.cluster_m, one.cluster_n],
        "warp": [one.warp_tile_m, one.warp_tile_n, one.warp_tile_k]}
print(json.dumps(said), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class LibraryPick:
    """NVIDIA's own pick."""

    there: bool  # whether the package answered
    said: str  # the tile in words, or why there is none
    cta: tuple[int, int, int] | None = None  # rows, columns and depth of a block's tile
    # stages, split_k: of its ring; blocks that share a sum
    stages: int | None = None
    split_k: int | None = None
    cluster: tuple[int, int] | None = None  # blocks along rows and columns


def pick_of_library(rows: int, columns: int, depth: int, gpu: Gpu) -> LibraryPick:
    """Ask for a product in fp16 with sums in fp32, both factors with the summed axis last."""
    if importlib.util.find_spec(PACKAGE) is None:
        return LibraryPick(False, f"nvidia-matmul-heuristics is not installed here ({INSTALL})")
    if gpu.name not in _GPUS:
        return LibraryPick(False, f"nvidia-matmul-heuristics has no {gpu.title}")
    sizes = [str(one) for one in (rows, columns, depth)]
    target = "CUTLASS3" if gpu.compute_capability[0] in (9, 10) else "CUTLASS"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, *sizes, _GPUS[gpu.name], target],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        said = json.loads(done.stdout.strip().splitlines()[-1])
        cta, cluster = said["cta"], said["cluster"]
        (m, n, k), stages = cta, said["stages"]
        split, blocks = said["split_k"], (cluster[0], cluster[1])
        words = f"{m} x {n} x {k}, {how_many(stages, 'stage')}, {how_many(split, 'block')} per tile"
        words += f", clusters of {blocks[0]} x {blocks[1]}, for {target}"
        return LibraryPick(True, words, (m, n, k), stages, split, blocks)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return LibraryPick(False, "nvidia-matmul-heuristics is installed and gave no answer")
