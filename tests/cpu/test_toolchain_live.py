"""Live compilation, on a machine with a GPU: the same code, plain errors, no stale headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import LIMITS

from labtools.notebook.magic import PAGE, run_cuda_cell
from labtools.problem import HEADLINE, LabError, load_rung
from labtools.toolchain import (
    CompileError,
    can_launch_here,
    compile_cubin,
    compile_raw,
    compile_rung,
    cuda_status,
    device_query,
)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(device_query() is None, reason="no GPU here")]

TWICE = """\
#include "factor.cuh"
extern "C" __global__ void scale(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= FACTOR;
}
"""


def run_scale(kernel: Any) -> np.ndarray:
    import cupy

    data = cupy.arange(100, dtype=cupy.float32)
    kernel((4,), (32,), (data, np.int32(100)))
    return cupy.asnumpy(data)


def test_this_machine_is_complete_enough() -> None:
    assert can_launch_here(), cuda_status().why_not_live()
    assert cuda_status().can_run_live


def test_the_device_answers() -> None:
    info = device_query()
    assert info is not None
    assert info.sm_count > 0
    assert info.l2_bytes > 1 << 20
    assert info.arch == f"sm_{info.compute_capability[0]}{info.compute_capability[1]}"
    import cupy

    assert info.compute_capability == tuple(map(int, _split(cupy.cuda.Device(0))))


def _split(device: Any) -> tuple[str, str]:
    digits = device.compute_capability
    return digits[:-1], digits[-1]


def test_a_kernel_runs_and_a_changed_header_is_not_stale(tmp_path: Path) -> None:
    header = tmp_path / "factor.cuh"
    for factor in (2, 3):
        header.write_text(f"#define FACTOR {factor}\n")
        kernel = compile_raw(TWICE, {}, "scale", include_dirs=[tmp_path])
        assert np.array_equal(run_scale(kernel), np.arange(100, dtype=np.float32) * factor)


def test_live_and_offline_code_cost_the_same() -> None:
    info = device_query()
    assert info is not None
    for name in ("r00", "r01", "r02", "r03"):
        rung = load_rung(name)
        cubin = compile_rung(rung, HEADLINE, LIMITS, arch=info.arch, compiler="cupy")
        for entry, resources in cubin.entries.items():
            kernel = compile_raw(
                rung.source_text, rung.defines(HEADLINE, LIMITS), entry, rung.id, rung.include_dirs
            )
            assert kernel.num_regs == resources.registers
            assert kernel.local_size_bytes == resources.local_bytes
            # On compute capability 9.0 and later some drivers count their reserve here.
            assert kernel.shared_size_bytes in (
                resources.shared_bytes,
                resources.shared_bytes + info.smem_reserved_per_block_bytes,
            )
            if resources.max_threads is not None:
                assert kernel.max_threads_per_block == resources.max_threads


def test_a_source_that_does_not_compile_names_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile_raw(TWICE.replace('#include "factor.cuh"', ""), {}, "scale", name="my.cu")
    assert (caught.value.file, caught.value.line) == ("my.cu", 4)
    assert "FACTOR" in caught.value.what


def test_a_missing_kernel_lists_those_there_are() -> None:
    with pytest.raises(LabError, match="no kernel called twice") as caught:
        compile_raw(TWICE.replace("#include", "//"), {"FACTOR": "2"}, "twice")
    assert "scale" in caught.value.why


def test_a_cell_is_compiled_live(capsys: Any) -> None:
    text = TWICE.replace('#include "factor.cuh"\n', "")
    run_cuda_cell("toy --define FACTOR=4", text)
    said = capsys.readouterr().out
    assert "live" in said
    kernel = PAGE.kernel("toy").kernels["scale"]
    assert np.array_equal(run_scale(kernel), np.arange(100, dtype=np.float32) * 4)
    other = "sm_75" if device_query().arch != "sm_75" else "sm_80"  # type: ignore[union-attr]
    run_cuda_cell(f"toy --define FACTOR=4 --arch {other}", text)
    assert "no GPU used" in capsys.readouterr().out
    PAGE.clear()


def test_a_cubin_made_offline_loads(tmp_path: Path) -> None:
    import cupy

    info = device_query()
    assert info is not None
    cubin = compile_cubin(TWICE.replace('#include "factor.cuh"\n', ""), info.arch, {"FACTOR": "5"})
    path = tmp_path / "scale.cubin"
    path.write_bytes(cubin.image)
    kernel = cupy.RawModule(path=str(path)).get_function("scale")
    assert np.array_equal(run_scale(kernel), np.arange(100, dtype=np.float32) * 5)
