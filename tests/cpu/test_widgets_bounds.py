"""The figures of the three bounds tell in words what they show, and refuse to show nothing."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest

from labtools.notebook.book.three_ways import bounds
from labtools.notebook.book.three_ways.bounds import (
    PlanePoint,
    needed_bytes,
    plot_crossing,
    plot_little,
)
from labtools.predict import Forecast, load_gpu, machine_of
from labtools.problem import LabError

MACHINE = machine_of(load_gpu("h200"))


def test_what_must_be_in_flight_is_latency_times_rate() -> None:
    whole = MACHINE.dram_rows(256) * MACHINE.dram_bytes_per_cycle
    assert needed_bytes(MACHINE) * MACHINE.sm_count == pytest.approx(whole)
    fast = dataclasses.replace(MACHINE, l2_bytes_per_cycle=2 * MACHINE.l2_bytes_per_cycle)
    assert needed_bytes(fast, "l2") == pytest.approx(2 * needed_bytes(MACHINE, "l2"))
    assert needed_bytes(fast) == pytest.approx(needed_bytes(MACHINE))


def test_no_two_kernels_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[object, ...]] = []

    class Axes:
        def plot(self, *_: object, **style: object) -> None:
            if "marker" in style:
                drawn.append((style["marker"], style["color"], style["markerfacecolor"]))

        def __getattr__(self, name: str) -> object:
            return lambda *args, **kwargs: None

    monkeypatch.setattr(bounds, "draw_picture", lambda paint, *_, **__: paint(Axes()))
    plot_little([PlanePoint(f"r{n:02}", 1024.0, 100.0) for n in range(12)], MACHINE)
    assert len(set(drawn)) == 12


def test_points_are_placed_against_the_law() -> None:
    per_byte = MACHINE.sm_count / MACHINE.dram_rows(256) * MACHINE.clock_ghz
    points = [PlanePoint("on", 1024, 1024 * per_byte), PlanePoint("below", 4096, 2048 * per_byte)]
    shown = plot_little(points, MACHINE)
    assert "2 points of on, below" in shown.text
    assert "0.50 to 1.00 times that line" in shown.text
    with pytest.raises(LabError):
        plot_little([], MACHINE)


def test_a_sweep_names_forecast_record_and_bound() -> None:
    def made(time_us: float, bound: str) -> Forecast:
        terms = {"bandwidth": 1.0, "l2_bandwidth": 2.0, "issue": 3.0, "pipe": 0.5}
        band = (0.8 * time_us, 1.25 * time_us)
        said = SimpleNamespace(time_us=time_us, band_us=band, bound=bound, terms_us=terms)
        return cast(Forecast, said)

    crossing = {1: made(40.0, "chain"), 8: made(90.0, "bandwidth")}
    text = plot_crossing(crossing, {8: 95.0}, xlabel="batch", where="here").text
    assert "1: forecast 40, chain; 8: forecast 90, recorded 95, bandwidth" in text
    assert "here" in text
    assert "here" not in plot_crossing({1: made(4.0, "launch")}, {}, xlabel="b", where="here").text
    with pytest.raises(LabError):
        plot_crossing({}, {}, xlabel="batch")
