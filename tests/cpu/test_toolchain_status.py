"""What is here, what is missing, why, and what still works; and what a GPU answers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from devices import H200

from labtools.problem import LabError
from labtools.toolchain import compile_raw, cuda_status
from labtools.toolchain.device import describe_device
from labtools.toolchain.status import Findings, explain

GOOD = Findings(
    driver_library=True,
    cu_init=0,
    driver_cuda=(13, 0),
    device=H200,
    cupy_version="14.2.0",
    cupy_cuda_major=13,
    torch_version="2.11.0+cu130",
    torch_cuda_major=13,
    compiler="NVRTC 13.0 through cuda-core",
    headers=Path("/usr/local/cuda/include"),
    nvdisasm=Path("/usr/local/cuda/bin/nvdisasm"),
    ncu=Path("/usr/local/cuda/bin/ncu"),
    ncu_version=(2026, 2, 1, 0),
    nsight_python="1.1",
    sanitizer=Path("/usr/local/cuda/bin/compute-sanitizer"),
    cxx=Path("/usr/bin/g++"),
)


def changed(**facts: object) -> Findings:
    return Findings(**{**GOOD.__dict__, **facts})


def test_a_complete_machine_has_nothing_missing() -> None:
    status = explain(GOOD)
    assert status.missing == ()
    assert status.can_compile
    assert status.can_run_live
    assert "CuPy does not reach the GPU" in status.why_not_live().why


NO_DRIVER = {"driver_library": False, "cu_init": None, "driver_cuda": None, "device": None}
MISSING = {
    "no driver": (NO_DRIVER, "driver", "libcuda.so.1"),
    "no driver, so no GPU": (NO_DRIVER, "gpu", "no driver"),
    "driver without GPU": ({"cu_init": 100, "device": None}, "gpu", "finds no GPU"),
    "driver mismatch": ({"cu_init": 803, "device": None}, "gpu", "different versions"),
    "unknown driver error": ({"cu_init": 719, "device": None}, "gpu", "error 719"),
    "nothing to ask with": ({"device": None}, "gpu", "no package that could ask it"),
    "no CuPy": ({"cupy_version": None, "cupy_cuda_major": None}, "cupy", "not installed"),
    "CuPy too new": ({"driver_cuda": (12, 4)}, "cupy", "older than the CUDA 13"),
    "CuPy beside another torch": ({"torch_cuda_major": 12}, "cupy", "two CUDA majors"),
    "two CuPys": ({"cupy_error": "several CuPy packages overwrite one another"}, "cupy", "several"),
    "no compiler": ({"compiler": None, "compiler_error": "cupy: no"}, "nvrtc", "cupy: no"),
    "no headers": ({"headers": None}, "headers", "cuda_fp16.h"),
    "no nvdisasm": ({"nvdisasm": None}, "nvdisasm", "nvdisasm"),
    "no ncu": ({"ncu": None, "ncu_version": None}, "ncu", "neither"),
    "no sanitizer": ({"sanitizer": None}, "compute-sanitizer", "neither"),
    "no C++ compiler": ({"cxx": None}, "c++", "g++"),
    "no torch": ({"torch_version": None, "torch_cuda_major": None}, "torch", "not installed"),
    "torch for the CPU": ({"torch_cuda_major": None}, "torch", "CPU alone"),
}


@pytest.mark.parametrize("case", MISSING)
def test_a_missing_link_says_why_what_still_works_and_whether_it_stops_live_runs(case: str) -> None:
    facts, name, word = MISSING[case]
    status = explain(changed(**facts))
    link = status[name]
    assert not link.ok
    assert word in link.why
    assert link.still_works
    assert link.fix
    assert word in str(status)
    needed = [one for one in status.missing if one.name in ("driver", "gpu", "cupy", "headers")]
    assert status.can_run_live == (not needed)
    if needed:  # the first one is told
        error = status.why_not_live()
        assert isinstance(error, LabError)
        assert error.why.startswith(needed[0].why)
        assert error.still_works


def test_compiling_needs_no_gpu() -> None:
    status = explain(changed(**NO_DRIVER, cupy_version=None))
    assert status.can_compile
    assert not status.can_run_live


def test_an_old_ncu_is_usable_but_told() -> None:
    link = explain(changed(ncu_version=(2025, 3, 1, 0)))["ncu"]
    assert link.ok
    assert "2026.2.1" in link.why
    assert "child process" in link.still_works
    assert explain(changed(ncu_version=None))["ncu"].why
    assert not explain(changed(nsight_python=None, ncu_version=(2025, 3, 1)))["ncu"].why


def test_live_compilation_without_a_gpu_is_refused_plainly() -> None:
    if cuda_status().can_run_live:
        pytest.skip("there is a GPU here")
    with pytest.raises(LabError, match="Nothing can run on a GPU here") as caught:
        compile_raw('extern "C" __global__ void k() {}', {}, "k")
    assert caught.value.still_works


def test_a_device_is_described_by_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labtools.toolchain.device.query_driver_version", lambda ordinal: "580.95")
    answers = {
        **{1: 1024, 8: 49152, 10: 32, 12: 65536, 16: 132, 38: 62914560, 39: 2048, 75: 9, 76: 0},
        **{81: 233472, 82: 65536, 97: 232448, 106: 32, 111: 1024, 13: 1980000, 36: 3201000},
        37: 6144,
    }
    info = describe_device("NVIDIA H200", 1 << 37, 13000, answers.__getitem__, 0)
    assert info.arch == "sm_90"
    assert info.max_warps_per_sm == 64
    assert info.cuda_version == "13.0"
    assert info.dram_gb_per_s == pytest.approx(2 * 3.201e9 * 6144 / 8 / 1e9)
    assert json.dumps(dataclasses.asdict(info))
    # A driver that no longer reports clocks leaves them out.
    del answers[36]
    silent = describe_device("NVIDIA H200", 1 << 37, 12080, answers.__getitem__, 0)
    assert silent.memory_clock_mhz is None
    assert silent.dram_gb_per_s is None
    assert silent.cuda_version == "12.8"
