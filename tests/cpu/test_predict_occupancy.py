"""Occupancy against NVIDIA's own calculator and against published values; grids and waves."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtools.predict import achieved_occupancy, list_gpus, load_gpu, occupancy, waves
from labtools.problem import LabError
from labtools.toolchain import find_cxx_compiler
from labtools.toolchain.options import cuda_include_dir

# A driver for the header that NVIDIA ships with the CUDA runtime. It reads one case a line.
PROGRAM = """\
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int major, minor, warps, threads, registers, smem;
  unsigned long per_sm, per_block, reserved;
  while (scanf("%d %d %d %lu %lu %lu %d %d %d", &major, &minor, &warps, &per_sm, &per_block,
               &reserved, &threads, &registers, &smem) == 9) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = warps * 32;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = per_sm;
    device.numSms = 1;
    device.sharedMemPerBlockOptin = per_block;
    device.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = 0;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = smem;
    kernel.numBlockBarriers = 1;
    cudaOccDeviceState state;
    cudaOccResult result;
    cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state,
                                                                threads, smem);
    printf("%d %d %d %d %d %zu\\n", (int)error, result.activeBlocksPerMultiprocessor,
           result.blockLimitRegs, result.blockLimitSharedMem, result.allocatedRegistersPerBlock,
           result.allocatedSharedMemPerBlock);
  }
}
"""

ONE_OF_EACH = ("t4", "a100", "rtx3090", "rtx4090", "h200", "b200", "rtx5090")
THREADS = (1, 31, 32, 33, 64, 96, 128, 160, 192, 256, 288, 384, 512, 640, 768, 1000, 1024)
REGISTERS = (1, 16, 24, 25, 32, 33, 40, 48, 64, 65, 80, 96, 128, 168, 255)
SMEM = (0, 1, 128, 1024, 1025, 4096, 8192, 16000, 32768, 49152, 65536, 99 * 1024, 163 * 1024)


@pytest.fixture(scope="session")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, headers = find_cxx_compiler(), cuda_include_dir()
    if compiler is None or headers is None or not (headers / "cuda_occupancy.h").is_file():
        pytest.skip("needs a C++ compiler and NVIDIA's cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "ask.cpp").write_text(PROGRAM)
    subprocess.run(
        [str(compiler), f"-I{headers}", "-o", str(folder / "ask"), str(folder / "ask.cpp")],
        check=True,
    )
    return folder / "ask"


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_against_nvidias_calculator(name: str, calculator: Path) -> None:
    """Source: cuda_occupancy.h of the CUDA runtime headers, compiled as it is."""
    gpu = load_gpu(name)
    cases = list(itertools.product(THREADS, REGISTERS, SMEM))
    cases += [
        (t, r, gpu.smem_per_block_bytes + d) for t in (32, 1024) for r in (32,) for d in (0, 1)
    ]
    fixed = (
        *gpu.compute_capability,
        gpu.max_warps_per_sm,
        gpu.smem_per_sm_bytes,
        gpu.smem_per_block_bytes,
        gpu.smem_reserved_per_block_bytes,
    )
    text = "\n".join(" ".join(map(str, (*fixed, *case))) for case in cases)
    done = subprocess.run([str(calculator)], input=text, capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases)
    wrong = []
    for case, answer in zip(cases, answers, strict=True):
        error, blocks, by_registers, by_smem, registers, smem = map(int, answer.split())
        assert error == 0
        ours = occupancy(gpu, *case)
        same = ours.blocks_per_sm == blocks and ours.registers_per_block == registers
        same &= ours.smem_per_block_bytes == smem
        same &= ours.limits["registers"] in (by_registers, None)
        same &= ours.limits["shared_memory"] == by_smem or by_smem > 1 << 30
        if not same:
            wrong.append((case, answer, ours))
    assert wrong == []


def test_one_warp_blocks_on_the_rtx4090() -> None:
    """A well-known post says 33 %: another chip's block limit, and not what the grid gives."""
    ada, ampere = load_gpu("rtx4090"), load_gpu("rtx3090")
    kernel = occupancy(ada, 32, 32, 0)
    assert kernel.limiter == "blocks"
    assert kernel.theoretical == 0.5
    assert occupancy(ampere, 32, 32, 0).theoretical == pytest.approx(1 / 3)
    achieved = achieved_occupancy(ada, kernel, 256)
    assert achieved.resident_warps_per_sm == 2
    assert achieved.achieved == pytest.approx(2 / 48)
    assert round(100 * achieved.achieved) == 4
    four_warps = occupancy(ada, 128, 32, 0)
    assert achieved_occupancy(ada, four_warps, 256).achieved == pytest.approx(8 / 48)


def test_a_kernel_that_cannot_launch_says_why() -> None:
    for arguments, word in (
        ((1025, 32, 0), "1024 threads"),
        ((32, 256, 0), "255 registers"),
        ((1024, 65, 0), "65536 registers"),
        ((128, 32, 228 * 1024), "bytes of shared memory"),
    ):
        kernel = occupancy("h200", *arguments)
        assert kernel.blocks_per_sm == 0
        assert kernel.theoretical == 0
        assert word in kernel.cannot_run
        with pytest.raises(LabError, match="cannot launch"):
            achieved_occupancy("h200", kernel, 10)


def test_limiters_are_named() -> None:
    kernel = occupancy("h200", 128, 32, 0, max_blocks=3)
    assert (kernel.blocks_per_sm, kernel.limiter) == (3, "max_blocks")
    kernel = occupancy("a100", 64, 32, 0)
    assert kernel.blocks_per_sm == 32
    assert set(kernel.limiters) == {"warps", "blocks", "registers"}


@pytest.mark.parametrize("arguments", [(0, 32, 0), (32, -1, 0), (32, 32, -1), (32, 32, 0, 0)])
def test_senseless_blocks_are_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(LabError, match="no occupancy"):
        occupancy("h200", *arguments)


def test_waves_and_tail() -> None:
    kernel = occupancy("h200", 1024, 64, 0)  # one block an SM
    assert kernel.blocks_per_sm == 1
    exact = waves("h200", kernel, 264)
    assert (exact.full_waves, exact.tail_blocks, exact.tail_fill, exact.efficiency) == (2, 0, 1, 1)
    tail = waves("h200", kernel, 133)
    assert (tail.full_waves, tail.tail_blocks) == (1, 1)
    assert tail.tail_fill == pytest.approx(1 / 132)
    assert tail.efficiency == pytest.approx(133 / 264)
    part = waves("h200", kernel, 66)
    assert (part.full_waves, part.waves, part.efficiency) == (0, 0.5, 0.5)
    with pytest.raises(LabError, match="0 blocks"):
        waves("h200", kernel, 0)


@given(
    name=st.sampled_from(list_gpus()),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    smem=st.integers(0, 100_000),
    grid=st.integers(1, 100_000),
)
def test_what_fits_never_exceeds_the_sm(
    name: str, threads: int, registers: int, smem: int, grid: int
) -> None:
    gpu = load_gpu(name)
    kernel = occupancy(gpu, threads, registers, smem)
    blocks = kernel.blocks_per_sm
    assert blocks * kernel.warps_per_block <= gpu.max_warps_per_sm
    assert blocks * kernel.registers_per_block <= gpu.registers_per_sm
    assert blocks * kernel.smem_per_block_bytes <= gpu.smem_per_sm_bytes
    assert blocks <= gpu.max_blocks_per_sm
    assert (blocks == 0) == (kernel.cannot_run is not None)
    assert kernel.limits[kernel.limiter] == blocks
    if blocks:
        achieved = achieved_occupancy(gpu, kernel, grid)
        assert 0 < achieved.achieved <= kernel.theoretical + 1e-12
        served = waves(gpu, kernel, grid)
        assert served.full_waves * served.blocks_per_wave + served.tail_blocks == grid
        assert 0 < served.efficiency <= 1
