"""Floors: units, bounds, and what they refuse."""

from __future__ import annotations

import dataclasses

import pytest

from labtools.predict import floors, load_gpu
from labtools.problem import HEADLINE, LabError, Workload


def test_headline_floor_by_hand() -> None:
    """B=8 Hkv=8 S=4096 D=128 fp16: K and V are 2 x 67,108,864 bytes; q and out 2 x 65,536."""
    floor = floors(HEADLINE, "h200", gb_per_s=4500)
    assert floor.bytes == 2 * 67_108_864 + 2 * 65_536 + 32
    assert floor.time_us == pytest.approx(134_348_832 / 4.8e12 * 1e6)
    assert floor.time_at_given_us == pytest.approx(134_348_832 / 4.5e12 * 1e6)
    assert round(floor.time_at_given_us, 1) == 29.9
    assert floor.flops == 4 * 8 * 32 * 4096 * 128
    assert floor.compute_us == pytest.approx(536_870_912 / 989.5e12 * 1e6)
    assert floor.bound == "bandwidth"
    assert not floor.fits_l2


def test_fair_floor_on_the_rtx4090() -> None:
    assert floors(HEADLINE, "rtx4090").time_us == pytest.approx(133, abs=0.5)


def test_ragged_lengths_count_as_they_are() -> None:
    ragged = HEADLINE.replace(seq_lens=(1, 31, 33, 4096, 100, 200, 300, 400))
    whole, part = floors(HEADLINE, "h200"), floors(ragged, "h200")
    assert part.bytes - 131_072 - 32 == (5161 * 8 * 128 * 2 * 2)
    assert part.flops * 8 * 4096 == whole.flops * 5161


def test_the_bound_and_the_peak_follow_from_the_sheet() -> None:
    sheet = load_gpu("h200")
    slow = dataclasses.replace(sheet, fp16_tensor_tflops=0.5, fp32_tflops=0.5)
    assert floors(HEADLINE, slow).bound == "compute"
    unknown = dataclasses.replace(sheet, fp16_tensor_tflops=None, fp32_tflops=None)
    floor = floors(HEADLINE, unknown)
    assert (floor.compute_us, floor.compute_tflops, floor.bound) == (None, None, "bandwidth")
    assert floors(HEADLINE, dataclasses.replace(unknown, fp32_tflops=67.0)).compute_tflops == 67.0
    with pytest.raises(LabError, match="memory rate"):
        floors(HEADLINE, dataclasses.replace(sheet, dram_gb_per_s=None))
    for rate in (0, -1.0, float("nan")):
        with pytest.raises(LabError, match="gives no floor"):
            floors(HEADLINE, "h200", gb_per_s=rate)


def test_a_warm_workload_in_the_l2_voids_the_memory_floor() -> None:
    small = Workload(1, 32, 8, 4096, 128)
    assert floors(small, "h200").fits_l2
    assert floors(small, "h200").note == ""
    warm = small.replace(cache_state="warm")
    assert "does not hold" in floors(warm, "h200").note
    big_warm = HEADLINE.replace(cache_state="warm")
    assert floors(big_warm, "h200").note == ""
