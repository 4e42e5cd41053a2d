"""The machine of every data sheet: where its numbers come from, and its curves."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labtools.predict import list_gpus, load_gpu
from labtools.predict.latencies import ASSUMED, Latencies, load_latencies
from labtools.predict.machine import FITTED, Curve, LoadCurve, Machine, machine_of
from labtools.problem import LabError

H200 = machine_of(load_gpu("h200"))
WITH_CLOCK = [name for name in list_gpus() if load_gpu(name).boost_clock_mhz is not None]
WITHOUT_CLOCK = sorted({*list_gpus()} - {*WITH_CLOCK} - {"h200"})


def numbers_of(machine: Machine) -> dict[str, float]:
    """Every number of a machine, by field."""
    found: dict[str, float] = {}
    for field in dataclasses.fields(machine):
        value = getattr(machine, field.name)
        if isinstance(value, bool | str) or field.name == "sources":
            continue
        if isinstance(value, Curve):
            value = dict(enumerate(value.y))
        elif isinstance(value, LoadCurve):
            value = dict(enumerate(value.waits))
        elif isinstance(value, tuple):
            value = dict(enumerate(value))
        if not isinstance(value, dict):
            value = {"": value}
        if any(isinstance(one, Curve) for one in value.values()):
            value = {
                (key, x): y for key, one in value.items() for x, y in zip(one.x, one.y, strict=True)
            }
        found.update({f"{field.name}.{key}": float(one) for key, one in value.items()})
    return found


@pytest.mark.parametrize("name", sorted({*WITH_CLOCK, "h200"}))
def test_every_sheet_gives_a_machine(name: str) -> None:
    gpu = load_gpu(name)
    machine = machine_of(gpu)
    assert machine.name == name and machine.sm_count == gpu.sm_count
    assert machine.calibrated == (name == "h200")
    for field, number in numbers_of(machine).items():
        assert 0 <= number < math.inf, field
    assert machine.dram_bytes_per_cycle * machine.clock_ghz <= (gpu.dram_gb_per_s or 0)
    assert machine.l2_bytes_per_cycle > machine.dram_bytes_per_cycle
    # Each level is farther than the one before.
    near = max(machine.l1.values())
    assert near < min(machine.l2_rows.y) < min(machine.dram_rows.y)


def test_beside_tensor_cores_an_sm_is_slower_and_memory_is_not() -> None:
    slower = H200.beside_tensor_cores()
    assert slower.clock_ghz == H200.tensor_clock_ghz < H200.clock_ghz
    for name in ("dram_bytes_per_cycle", "l2_bytes_per_cycle", "box_bytes_per_cycle"):
        rates = [getattr(one, name) * one.clock_ghz for one in (slower, H200)]
        assert rates[0] == pytest.approx(rates[1])
    for name in ("l2_rows", "dram_rows", "l2_async", "dram_async", "l2_box", "dram_box"):
        cycles, usual = (getattr(one, name)(512) for one in (slower, H200))
        assert cycles < usual
        assert cycles / slower.clock_ghz > usual / H200.clock_ghz
    assert slower.dram_queue(0.9) < H200.dram_queue(0.9)
    assert numbers_of(slower.beside_tensor_cores()) == pytest.approx(numbers_of(slower))


@pytest.mark.parametrize("name", WITHOUT_CLOCK)
def test_a_gpu_of_unknown_clock_is_refused_and_a_known_one_is_not(name: str) -> None:
    gpu = load_gpu(name)
    with pytest.raises(LabError, match="clock"):
        machine_of(gpu)
    known = dataclasses.replace(gpu, boost_clock_mhz=1900.0)
    assert machine_of(known).clock_ghz == 1.9
    with pytest.raises(LabError, match="memory rate"):
        machine_of(dataclasses.replace(known, dram_gb_per_s=None))


def test_nothing_of_the_h200_is_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    known = load_latencies("h200")
    assert known.calibrated and not any(one.assumed for one in known.entries.values())
    assert not any(source.startswith(ASSUMED) for source in H200.sources.values())
    assert all(H200.sources.values())
    # No number falls back on a default: each one that is asked for is in the table.
    asked: list[str] = []

    def has_it(self: Latencies, name: str, default: float | None = None) -> float:
        asked.append(name)
        assert name in self.entries, name
        return self.entry(name).value

    monkeypatch.setattr(Latencies, "value", has_it)
    assert numbers_of(machine_of(load_gpu("h200"))) == numbers_of(H200)
    assert len(asked) > 30
    assert {"hbm", "l2", "l2_footprint", "launch", "code"} <= set(known.curves)
    for rows in ("l2_row", "hbm_row", "async_l2", "async_hbm", "barrier", "l1_row"):
        assert len(known.by_number(f"latency.{rows}")) >= 2, rows
    assert len(H200.dram_queue.shares) >= 4 and len(H200.launch_us.x) >= 3
    fitted = FITTED["h200"]
    assert H200.scattered == fitted["scattered"] and H200.start_us == fitted["start_us"]


def test_an_unmeasured_gpu_keeps_what_is_its_own() -> None:
    gpu = load_gpu("rtx4090")
    machine = machine_of(gpu)
    assert machine.clock_ghz == pytest.approx((gpu.boost_clock_mhz or 0) / 1e3)
    assert machine.sm_count == 128
    assert any(source.startswith(ASSUMED) for source in machine.sources.values())
    # A larger L2 keeps more: the misses begin in proportion to its size.
    assert machine.l2_miss.x[0] / H200.l2_miss.x[0] == pytest.approx(
        gpu.l2_bytes / load_gpu("h200").l2_bytes
    )


def test_the_last_of_several_rows_comes_later() -> None:
    for beside, apart in (
        (H200.l2_beside, H200.l2_apart),
        (H200.dram_beside, H200.dram_apart),
    ):
        steps = np.diff(apart)
        assert apart[0] == 0 < beside < apart[1]
        assert (steps > 0).all() and steps[-1] < steps[0]  # of more rows each adds less
    assert H200.dram_apart[1] > 5 * H200.l2_apart[1]


@given(st.floats(1e-6, 0.9999), st.floats(1e-6, 0.9999))
def test_more_load_means_more_wait(a: float, b: float) -> None:
    for curve in (H200.dram_queue, H200.l2_queue):
        low, high = sorted((a, b))
        assert 0 <= curve(low) <= curve(high) * (1 + 1e-9)


def test_the_wait_has_no_limit_towards_the_ceiling() -> None:
    for curve in (H200.dram_queue, H200.l2_queue):
        assert curve(0.0) == curve(-0.1) == 0.0
        ahead = [curve(share) for share in (0.9, 0.99, 0.999, 0.9999, 1.0, 1.2, 2.0)]
        assert all(a < b for a, b in itertools.pairwise(ahead))
        assert ahead[-1] > 20_000
    points = H200.dram_queue
    for share, wait in zip(points.shares, points.waits, strict=True):
        assert points(share) == pytest.approx(wait)


def test_a_curve_goes_through_its_points_and_is_flat_beyond() -> None:
    curve = Curve((1.0, 2.0, 4.0), (10.0, 20.0, 0.0))
    assert [curve(x) for x in (0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0)] == [10, 10, 15, 20, 10, 0, 0]
    assert [curve.scaled(2.0)(x) for x in (1.0, 1.5)] == [20, 30]


def test_larger_pieces_come_nearer_to_the_ceiling() -> None:
    shares = [H200.chunk_share(size) for size in (256, 1024, 2048, 4096, 8192, 1 << 20)]
    assert shares[0] == shares[1] == H200.scattered
    assert shares[-1] == shares[-2] == 1.0
    assert shares == sorted(shares) and len(set(shares)) == 4
    assert H200.chunk_share(0) == 1.0  # nothing is read


def test_what_is_fitted_is_of_the_gpu_or_of_the_one_that_it_borrows_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {name: 2 * value for name, value in FITTED["h200"].items()}
    monkeypatch.setitem(FITTED, "h100", own)
    assert machine_of(load_gpu("h100")).start_us == own["start_us"]
    assert machine_of(load_gpu("rtx4090")).start_us == FITTED["h200"]["start_us"]
