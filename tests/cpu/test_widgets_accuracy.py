"""The figures of the test: they say in words what they show, and refuse to show nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from labtools.notebook.book.predict.accuracy import (
    explain_error,
    forecast_and_record,
    plot_accuracy,
    plot_errors,
    plot_gain_by_rate,
    plot_sweep,
    recorded_points,
    show_bound_misses,
    show_reasons,
    show_worst,
    stratum_of_record,
)
from labtools.predict import Forecast, forecast
from labtools.predict.accuracy import JudgedKernel, bound_agreement
from labtools.problem import LabError, load_rung


@pytest.fixture(scope="module")
def points() -> list[JudgedKernel]:
    return recorded_points()


@pytest.fixture(scope="module")
def made(points: list[JudgedKernel]) -> tuple[JudgedKernel, Forecast]:
    point = next(one for one in points if one.rung == "r03_one_warp")
    found = forecast(load_rung(point.rung), point.workload, "h200", point.knobs)
    return point, found


def test_points_come_with_strata_from_both_sides(points: list[JudgedKernel]) -> None:
    assert {point.split for point in points} == {"calibration", "test"}
    assert len({point.stratum for point in points}) == 6
    elsewhere = points[0].record.model_copy(update={"campaign": "ladder-1"})
    assert stratum_of_record(elsewhere) is None


def test_plots_tell_what_they_show(points: list[JudgedKernel]) -> None:
    shown = plot_accuracy(points, "Title")
    test = [point for point in points if point.split == "test"]
    assert f"{len(points)} points, {len(test)} of them test points" in shown.text
    assert "alt=" in shown.html
    exact = [dataclasses.replace(point, forecast_us=point.measured_us) for point in test]
    assert "chain 1.00 to 1.00" in plot_errors(exact).text
    for plot in (plot_accuracy, plot_errors):
        with pytest.raises(LabError, match="no point to draw"):
            plot([])


def test_reasons(made: tuple[JudgedKernel, Forecast]) -> None:
    assert show_reasons([], "forecast").text == "None."
    shown = show_reasons([("a <b>", "c & d")], "forecast")
    assert "a &lt;b&gt;" in shown.html and "c &amp; d" in shown.html
    point, fresh = made
    assert f"recorded {point.measured_us:.1f} us" in show_worst([point], lambda _: [fresh]).text


def with_launch(made: Forecast, **changes: Any) -> Forecast:
    """A forecast whose one launch came out otherwise."""
    return dataclasses.replace(made, launches=(dataclasses.replace(made.main_launch, **changes),))


def test_an_error_is_explained_from_the_forecast_itself(
    made: tuple[JudgedKernel, Forecast],
) -> None:
    point, fresh = made
    assert explain_error(point, fresh)
    near = {"bandwidth": 0.9 * fresh.time_us, "issue": 0.8 * fresh.time_us}
    corner = dataclasses.replace(fresh, terms_us={**fresh.terms_us, **near})
    assert "a corner" in explain_error(point, corner)
    places = fresh.main_launch.occupancy.blocks_per_sm * 132
    assert "1.00 waves" in explain_error(point, with_launch(fresh, blocks=places + 1))
    assert "waves" not in explain_error(point, with_launch(fresh, blocks=places))


def test_a_full_l2_is_named_where_the_counters_see_none(
    points: list[JudgedKernel], made: tuple[JudgedKernel, Forecast]
) -> None:
    _, fresh = made
    miss = next(one for one in bound_agreement(points).misses if one.bound == "bandwidth")
    full = with_launch(fresh, l2_share=0.9, dram_share=0.4)
    assert "it is the L2 that is full, at 90%" in show_bound_misses([miss], lambda _: [full]).text
    memory = with_launch(full, dram_share=0.95)
    assert "it is the L2" not in show_bound_misses([miss], lambda _: [memory]).text


def test_sweeps_tell_both_numbers() -> None:
    series: dict[str, dict[int, tuple[float, float | None]]] = {
        "one": {1: (1.0, 1.1), 4: (2.0, None)},
        "two": {2: (3.0, 2.9)},
    }
    shown = plot_sweep(series, xlabel="unroll", ylabel="gain", where="here")
    assert "at 1 forecast 1 recorded 1.1, at 4 forecast 2. two: at 2" in shown.text
    gains = {"a": [(0.1, 1.0, 0.2, 0.9)], "b": [(0.8, 1.4, 0.9, 1.5)]}
    shown = plot_gain_by_rate(gains, xlabel="share", ylabel="gain")
    assert "a: 0.90 at 20%. b: 1.50 at 90%" in shown.text
    for plot in (plot_sweep, plot_gain_by_rate):
        with pytest.raises(LabError):
            plot({"one": {}}, xlabel="", ylabel="")


def test_the_model_is_asked_only_where_no_forecast_was_kept(points: list[JudgedKernel]) -> None:
    record = points[0].record
    assert record.forecast is not None
    assert forecast_and_record(record, lambda _: 1.0) == (record.forecast.time_us, record.median_us)
    floor = record.forecast.model_copy(update={"model": "roofline floor"})
    for stored in (None, floor):
        old = record.model_copy(update={"forecast": stored})
        assert forecast_and_record(old, lambda _: 7.0) == (7.0, record.median_us)
