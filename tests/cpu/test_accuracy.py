"""Forecasts held against measurements: the arithmetic, and that a bad model would be noticed."""

from __future__ import annotations

import dataclasses
import math

import pytest

from labtools.predict import load_gpu, machine_of
from labtools.predict.accuracy import (
    JudgedKernel,
    accuracy,
    accuracy_of,
    best_constant,
    bound_agreement,
    bytes_roofline_us,
    check_targets,
    pairs_of,
    point_families,
    point_strata,
    points_of,
    split_of,
)
from labtools.problem import LabError, load_rung
from labtools.record import Record, read_records, shipped_records_dir
from labtools.record.bound import CountedBound

FOLDER = shipped_records_dir() / "h200"


@pytest.fixture(scope="module")
def test_records() -> list[Record]:
    return read_records(FOLDER / "points_test.jsonl.gz")[0]


@pytest.fixture(scope="module")
def points(test_records: list[Record]) -> list[JudgedKernel]:
    calibration = read_records(FOLDER / "points_calibration.jsonl.gz")[0]
    return points_of([*calibration, *test_records], lambda record: "chain", "h200")


def changed(point: JudgedKernel, factor: float, **changes: object) -> JudgedKernel:
    """A point whose forecast is off by a factor."""
    made = {"forecast_us": factor * point.measured_us, **changes}
    return dataclasses.replace(point, **made)  # type: ignore[arg-type]


def test_accuracy_by_hand() -> None:
    found = accuracy([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    assert found.median == pytest.approx(1.0)
    assert found.within_10 == found.within_35 == pytest.approx(1 / 3)
    assert found.worst == pytest.approx(4.0)
    low = accuracy([0.5], [1.0])
    assert low.bias == pytest.approx(-1.0) and low.worst == pytest.approx(2.0)
    with pytest.raises(LabError):
        accuracy([], [])
    with pytest.raises(LabError):
        accuracy([1.0], [1.0, 2.0])


def test_best_constant_has_the_least_median_error() -> None:
    pairs = [(1.0, 2.0), (1.0, 2.2), (1.0, 2.1), (1.0, 40.0), (1.0, 0.1)]

    def error(factor: float) -> float:
        return accuracy([factor * simple for simple, _ in pairs], [one for _, one in pairs]).median

    best = best_constant(pairs)
    assert all(error(best) <= error(2 ** (step / 50)) + 1e-12 for step in range(-250, 300))
    assert best_constant([]) == 1.0


def test_families_do_not_share_a_kernel() -> None:
    families = point_families()
    assert not set(families["calibration"]) & set(families["test"])
    assert split_of("r03_one_warp") == "test"
    assert split_of("r02_one_barrier") == "calibration"
    assert split_of("nothing") is None
    assert len(point_strata()) == 6


def test_points_take_the_stored_forecast(
    test_records: list[Record], points: list[JudgedKernel]
) -> None:
    by_id = {record.identity(): record for record in test_records}
    held = [point for point in points if point.split == "test"]
    assert len(held) == len(test_records)
    for point in held:
        stored = by_id[point.record.identity()].forecast
        assert stored is not None
        assert (point.forecast_us, point.bound) == (stored.time_us, stored.bound)
    # Without a forecast or a stratum there is no point, and another predictor can be given.
    assert points_of(test_records[:3], lambda record: None, "h200") == []
    assert points_of(test_records[:3], lambda record: "tail", "h200", lambda record: None) == []
    without = test_records[0].model_copy(update={"forecast": None})
    assert points_of([without], lambda record: "tail", "h200") == []


def test_every_test_point_has_its_stratum_and_thirty_companions() -> None:
    from labtools.notebook.book.predict.accuracy import recorded_points

    held = [point for point in recorded_points() if point.split == "test"]
    assert len(held) >= 300
    for name in point_strata():
        assert sum(point.stratum == name for point in held) >= 30, name


def test_the_roofline_knows_the_level_and_the_codes() -> None:
    record = read_records(FOLDER / "points_test.jsonl.gz")[0][0]
    rung, work = load_rung("s01_warp_rows"), record.problem.replace(seq_lens=None)
    work = work.replace(cache_state="cold", batch=4, kv_len=1024)
    cold = bytes_roofline_us(rung, work, "h200")
    warm = bytes_roofline_us(rung, work.replace(cache_state="warm"), "h200")
    codes = bytes_roofline_us(load_rung("s02_warp_int8"), work, "h200")
    launch = machine_of(load_gpu("h200")).launch_us(1)
    assert launch < warm < cold
    assert 0.5 < (codes - launch) / (cold - launch) < 0.6


def test_targets_are_met_by_the_truth_and_missed_by_less(points: list[JudgedKernel]) -> None:
    held = [point for point in points if point.split == "test"]
    exact = [changed(point, 1.0) for point in held]
    assert all(target.met for target in check_targets(exact))
    off = [changed(point, 1.5) for point in held]
    missed = {target.name for target in check_targets(off) if not target.met}
    assert any("all points" in name for name in missed)
    assert any("worst stratum" in name for name in missed)
    assert any("1.35" in name for name in missed)
    one_bad = [changed(exact[0], 2.0), *exact[1:]]
    assert [target.name for target in check_targets(one_bad) if not target.met] == [
        "off by a factor of 2"
    ]
    # Forecasts that are all alike have no direction.
    flat = [dataclasses.replace(point, forecast_us=10.0) for point in held]
    assert not next(one for one in check_targets(flat) if "direction" in one.name).met
    blind = [dataclasses.replace(point, counted=None) for point in exact]
    assert not next(one for one in check_targets(blind) if "unambiguous" in one.name).met
    with pytest.raises(LabError):
        check_targets([])


def test_the_simpler_forecasts_are_far_behind(points: list[JudgedKernel]) -> None:
    held = [point for point in points if point.split == "test"]
    model = accuracy_of(held).median
    assert model < accuracy_of(held, "roofline").median / 4
    assert model < accuracy_of(held, "constant").median / 4


def test_pairs_differ_in_one_knob_and_in_time(points: list[JudgedKernel]) -> None:
    found = pairs_of(points)
    assert found
    for pair in found:
        assert pair.first.rung == pair.second.rung
        assert pair.first.workload.key() == pair.second.workload.key()
        different = [
            name for name, value in pair.first.knobs.items() if pair.second.knobs[name] != value
        ]
        assert different == [pair.knob]
        assert abs(math.log(pair.measured_ratio)) > math.log(1.05)
    first = found[0]
    swapped = dataclasses.replace(first, forecast_ratio=1 / first.measured_ratio)
    assert not swapped.right
    assert dataclasses.replace(first, forecast_ratio=first.measured_ratio).right
    assert not dataclasses.replace(first, forecast_ratio=1.0).right


def test_bounds_count_only_where_counters_are_clear(points: list[JudgedKernel]) -> None:
    point = points[0]
    clear = dataclasses.replace(point, bound="chain", counted=CountedBound("chain"))
    wrong = dataclasses.replace(clear, bound="bandwidth")
    vague = dataclasses.replace(clear, counted=CountedBound(None))
    found = bound_agreement([clear, wrong, vague, dataclasses.replace(clear, counted=None)])
    assert found.share_qualifying == pytest.approx(0.5)
    assert found.share_agreeing == pytest.approx(0.5)
    assert found.misses == (wrong,)
    assert bound_agreement([]).share_qualifying == 0.0
