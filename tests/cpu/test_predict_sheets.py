"""Data sheets: complete, sourced, consistent with themselves, replaced by the GPU's answers."""

from __future__ import annotations

import dataclasses
import json

import pytest

from labtools.predict import gpu_of_device, list_gpus, load_gpu, merge_device, occupancy
from labtools.problem import LabError
from labtools.problem.limits import SMS_OF_H200
from labtools.toolchain import DeviceInfo, device_query

WANTED = {"t4", "l4", "rtx3090", "rtx4090", "a10", "h100", "h200", "b200", "rtx5090"}
WANTED |= {"l40s", "rtx-a6000"}


def test_the_promised_sheets_are_there() -> None:
    assert set(list_gpus()) >= WANTED | {"a100-40gb", "a100-80gb"}


@pytest.mark.parametrize("name", list_gpus())
def test_every_number_has_a_source(name: str) -> None:
    gpu = load_gpu(name)
    numbers = {
        key
        for key, value in dataclasses.asdict(gpu).items()
        if isinstance(value, (int, float)) and value is not None
    }
    assert numbers - set(gpu.sources) == set()
    assert all(len(source) > 20 for source in gpu.sources.values())
    assert gpu.origin == "data sheet"
    json.dumps(gpu.to_dict())


# Fused multiply-adds an SM and clock: (fp32, dense fp16 tensor with fp32 accumulation).
# Source: NVIDIA's white papers of the architectures, tables of SM throughput.
RATES = {
    "t4": (64, 512),
    "l4": (128, 512),
    "rtx3090": (128, 256),
    "rtx4090": (128, 256),
    "a10": (128, 512),
    "l40s": (128, 512),
    "rtx-a6000": (128, 512),
    "a100-40gb": (64, 1024),
    "a100-80gb": (64, 1024),
    "h100": (128, 2048),
    "h100-pcie": (128, 2048),
    "h200": (128, 2048),
    "rtx5090": (128, 256),
}
TENSOR_CLOCK_MHZ = {"h100": 1830, "h100-pcie": 1620, "h200": 1830}


@pytest.mark.parametrize("name", RATES)
def test_peaks_follow_from_sms_and_clock(name: str) -> None:
    """A sparse or half-accumulated figure would be off by two."""
    gpu = load_gpu(name)
    fp32, tensor = RATES[name]
    assert gpu.boost_clock_mhz is not None
    clock = gpu.boost_clock_mhz * 1e6
    tensor_clock = TENSOR_CLOCK_MHZ.get(name, gpu.boost_clock_mhz) * 1e6
    assert gpu.fp32_tflops == pytest.approx(2 * gpu.sm_count * fp32 * clock / 1e12, rel=0.02)
    assert gpu.fp16_tensor_tflops == pytest.approx(
        2 * gpu.sm_count * tensor * tensor_clock / 1e12, rel=0.02
    )


@pytest.mark.parametrize("name", list_gpus())
def test_fp8_has_twice_the_rate_of_fp16_where_there_is_any(name: str) -> None:
    gpu = load_gpu(name)
    assert (gpu.fp8_tensor_tflops is not None) is (gpu.compute_capability >= (8, 9))
    if gpu.fp8_tensor_tflops is not None:
        assert gpu.fp8_tensor_tflops == pytest.approx(2 * gpu.fp16_tensor_tflops, rel=0.02)  # type: ignore[operator]


def test_names_as_drivers_say_them() -> None:
    for said, name in {
        "NVIDIA L40S": "l40s",
        "NVIDIA RTX A6000": "rtx-a6000",
        "NVIDIA H200": "h200",
        "Tesla T4": "t4",
        "NVIDIA GeForce RTX 4090": "rtx4090",
        "NVIDIA A100-SXM4-80GB": "a100-80gb",
        "NVIDIA H100 80GB HBM3": "h100",
        "RTX 5090": "rtx5090",
        "A100": "a100-80gb",
    }.items():
        assert load_gpu(said).name == name


@pytest.mark.parametrize("name", ["gtx1080", "NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 4090 D"])
def test_an_unknown_gpu_gets_a_list_and_no_guess(name: str) -> None:
    with pytest.raises(LabError, match="no data sheet") as caught:
        load_gpu(name)
    assert "rtx4090" in caught.value.why


def answers(**changes: object) -> DeviceInfo:
    base = {
        "name": "NVIDIA H200",
        "compute_capability": (9, 0),
        "sm_count": 132,
        "warp_size": 32,
        "max_threads_per_block": 1024,
        "max_threads_per_sm": 2048,
        "max_blocks_per_sm": 32,
        "registers_per_block": 65536,
        "registers_per_sm": 65536,
        "smem_per_block_bytes": 49152,
        "smem_per_block_optin_bytes": 232448,
        "smem_per_sm_bytes": 233472,
        "smem_reserved_per_block_bytes": 1024,
        "l2_bytes": 62914560,
        "memory_bytes": 150_754_820_096,
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": None,
        "bus_width_bits": None,
        "cuda_version": "13.0",
        "driver_version": "580.95.05",
    }
    return DeviceInfo(**{**base, **changes})  # type: ignore[arg-type]


def test_a_device_replaces_the_sheet() -> None:
    gpu = merge_device(answers(sm_count=130, l2_bytes=52428800))
    assert gpu.origin == "device"
    assert (gpu.name, gpu.sm_count, gpu.l2_bytes) == ("h200", 130, 52428800)
    assert gpu.dram_gb_per_s == load_gpu("h200").dram_gb_per_s
    assert any(text.startswith("sm_count: the sheet says 132") for text in gpu.differences)
    assert any(text.startswith("l2_bytes") for text in gpu.differences)
    assert len(gpu.differences) == 2
    assert "own answer" in gpu.sources["sm_count"]
    assert "data sheet" in gpu.sources["dram_gb_per_s"]


def test_an_agreeing_device_has_no_differences() -> None:
    assert merge_device(answers()).differences == ()


def test_another_memory_rate_is_told() -> None:
    gpu = merge_device(answers(memory_clock_mhz=2619.0, bus_width_bits=5120))
    assert any("dram_gb_per_s" in text and "3352" in text for text in gpu.differences)


def test_a_device_without_a_sheet_has_limits_but_no_peaks() -> None:
    gpu = merge_device(
        answers(
            name="NVIDIA RTX 6000 Ada Generation",
            compute_capability=(8, 9),
            sm_count=142,
            max_threads_per_sm=1536,
            max_blocks_per_sm=24,
            smem_per_block_optin_bytes=101376,
            smem_per_sm_bytes=102400,
            memory_clock_mhz=10001.0,
            bus_width_bits=384,
        )
    )
    assert (gpu.fp16_tensor_tflops, gpu.fp32_tflops) == (None, None)
    assert gpu.dram_gb_per_s == pytest.approx(960.1, rel=1e-3)
    assert "no compute peaks" in gpu.notes[0]
    assert occupancy(gpu, 32, 32, 0).blocks_per_sm == 24
    numbers = {
        key
        for key, value in dataclasses.asdict(gpu).items()
        if isinstance(value, (int, float)) and value is not None
    }
    assert numbers - set(gpu.sources) == set()


def test_a_new_chip_of_a_known_family_uses_its_rules() -> None:
    gpu = merge_device(answers(name="NVIDIA B300", compute_capability=(10, 3), sm_count=160))
    assert gpu.smem_granularity_bytes == load_gpu("b200").smem_granularity_bytes
    with pytest.raises(LabError, match="not known here"):
        merge_device(answers(name="NVIDIA Future", compute_capability=(15, 0)))


def test_the_device_of_this_machine() -> None:
    gpu = gpu_of_device()
    info = device_query()
    if info is None:
        assert gpu is None
        pytest.skip("no GPU here")
    assert gpu is not None
    assert gpu.sm_count == info.sm_count
    assert gpu.origin == "device"


def test_the_number_of_multiprocessors_that_is_assumed_is_the_data_sheets() -> None:
    assert load_gpu("h200").sm_count == SMS_OF_H200
