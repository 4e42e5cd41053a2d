"""Cheats that are held off by where a rung's code runs: each is tried for real."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from devices import LIMITS
from live_fake import use_fake_gpu
from test_judge import ENTRY, STORE, edited

from labtools.measure.gpu import timing
from labtools.measure.gpu.measure import time_candidates
from labtools.problem import Workload, kernels_dir, load_rung
from labtools.toolchain import CompileError
from labtools.toolchain.listings import machine_code

WORKLOAD = Workload(2, 4, 2, 64, 64)
PATCHES = """
import sys as _sys
from labtools.measure.gpu import timing as _timing


class _Stopped:
    \"\"\"A clock that stands.\"\"\"

    @staticmethod
    def get_elapsed_time(start, end):
        return 1e-6


_timing.time_group = lambda *args, **kwargs: {}
_sys.modules["cupy"] = _Stopped
"""


@pytest.fixture
def patched_back() -> Iterator[None]:
    """What the cheat does to this process is undone."""
    real, cupy = timing.time_group, sys.modules.get("cupy")
    yield
    timing.time_group = real
    sys.modules.pop("cupy", None)
    if cupy is not None:
        sys.modules["cupy"] = cupy


def test_a_rung_that_patches_the_timer_patches_no_process_that_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, patched_back: None
) -> None:
    """Its Python runs where launches are asked for; children that time get launch data alone."""
    use_fake_gpu(monkeypatch, tmp_path)
    folder = kernels_dir() / "decode"
    shutil.copy(folder / "r03_one_warp.cu", tmp_path / "r03_one_warp.cu")
    text = (folder / "r03_one_warp.py").read_text()
    marker = "from labtools.problem import"
    assert marker in text
    path = tmp_path / "r03_one_warp.py"
    path.write_text(text.replace(marker, f"{PATCHES}\n{marker}", 1))
    cheat = load_rung(path)
    assert timing.time_group({}) == {}, "the patch is in force here"
    found = time_candidates([cheat], WORKLOAD, processes=1, rounds=3, ceiling=False)
    (record,) = found.records
    assert record.median_us == pytest.approx(10.0), "the fake GPU's time of this kernel"


DECLARED = """struct CUstream_st;
extern "C" __device__ void* cudaGetParameterBufferV2(void*, dim3, dim3, unsigned);
extern "C" __device__ int cudaLaunchDeviceV2(void*, CUstream_st*);
"""


@pytest.mark.parametrize("declared", ["", DECLARED])
def test_a_kernel_starts_no_other_that_would_answer_late(declared: str) -> None:
    """A launch names no stream, and device code cannot launch: nothing would link it."""
    late = f"{declared}{ENTRY} void late(half* out) {{ out[0] = __float2half(1.f); }}\n{ENTRY}"
    cheat = edited((ENTRY, late), (STORE, f"late<<<1, 1>>>(out);\n{STORE}"))
    with pytest.raises(CompileError):
        machine_code(cheat, WORKLOAD, LIMITS, cheat.resolve_knobs())
    begins = edited((ENTRY, late.replace(declared, "")), (STORE, STORE))
    assert "late" in machine_code(begins, WORKLOAD, LIMITS, begins.resolve_knobs()).entries
