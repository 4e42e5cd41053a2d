"""A forecast is made once for what it follows from, and anew when any of that changes."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from devices import needs_tools

from labtools.predict import forecasting
from labtools.predict.forecasting import MODEL_ROOMS, forecast, what_if
from labtools.predict.machine import machine_of
from labtools.predict.sheets import load_gpu
from labtools.problem import LabError, Workload, load_rung
from labtools.record import ForecastMade
from labtools.toolchain import listings
from labtools.toolchain.cache import SIZE_VARIABLE

pytestmark = needs_tools

WORKLOAD = Workload.parse("2,8,2,301,128")


@pytest.fixture(autouse=True)
def cold(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    listings._codes.clear()


@pytest.fixture
def modelled(monkeypatch):
    """How often the model ran."""
    ran = []
    real = forecasting._Call.models

    def counted(*given):
        ran.append(given)
        return real(*given)

    monkeypatch.setattr(forecasting._Call, "models", counted)
    return ran


def test_a_kept_forecast_is_equal_to_a_fresh_one(modelled, monkeypatch):
    rung = load_rung("r03")
    made = forecast(rung, WORKLOAD, "h200")
    listings._codes.clear()
    again = forecast(rung, WORKLOAD, "h200")
    assert len(modelled) == 1 and again is not made
    monkeypatch.setenv(SIZE_VARIABLE, "0")
    fresh = forecast(rung, WORKLOAD, "h200")
    assert len(modelled) == 2
    assert repr(made) == repr(again) == repr(fresh) and made == again == fresh


def test_whatever_it_follows_from_makes_another(modelled, monkeypatch):
    rung, gpu = load_rung("r03"), load_gpu("h200")
    machine = machine_of(gpu)
    asked = [
        lambda: forecast(rung, WORKLOAD, gpu),
        lambda: forecast(rung, WORKLOAD, gpu, {"unroll": 2}),
        lambda: forecast(rung, WORKLOAD.replace(cache_state="warm"), gpu),
        lambda: forecast(rung, WORKLOAD.replace(kv_len=300), gpu),
        lambda: forecast(rung, WORKLOAD, "a100"),
        lambda: forecast(rung, WORKLOAD, gpu, scale={"memory": 0.5}),
        lambda: forecast(rung, WORKLOAD, gpu, scale={"memory": 0.25}),
        lambda: forecast(
            rung, WORKLOAD, gpu, machine=dataclasses.replace(machine, start_us=machine.start_us + 1)
        ),
        lambda: forecast(
            rung.with_launch(
                lambda workload, limits, knobs: [
                    dataclasses.replace(one, smem_bytes=one.smem_bytes + 65536)
                    for one in rung.launch(workload, limits, knobs)
                ]
            ),
            WORKLOAD,
            gpu,
        ),
        lambda: forecast(
            rung.with_source(rung.source_text.replace("rescale = exp2f", "rescale = 2.f * exp2f")),
            WORKLOAD,
            gpu,
        ),
    ]
    times = {ask().time_us for ask in asked}
    assert len(modelled) == len(asked) and len(times) > len(asked) // 2
    assert times == {ask().time_us for ask in asked}
    assert len(modelled) == len(asked)
    monkeypatch.setattr(forecasting, "MODEL_CODE", "another rule")
    forecast(rung, WORKLOAD, gpu)
    assert len(modelled) == len(asked) + 1


def test_what_if_is_kept_by_factor_and_classes(modelled):
    rung = load_rung("r02")
    first = what_if(rung, WORKLOAD, "h200", classes=("memory", "shuffle"))
    assert what_if(rung, WORKLOAD, "h200", classes=("memory", "shuffle")) == first
    assert len(modelled) == 1
    assert what_if(rung, WORKLOAD, "h200", factor=0.25, classes=("memory", "shuffle")) != first
    assert list(what_if(rung, WORKLOAD, "h200", classes=("memory",))) == ["memory"]
    assert len(modelled) == 3


def test_what_cannot_be_forecast_is_refused_each_time(modelled):
    rung = load_rung("r03")
    for _ in range(2):
        with pytest.raises(LabError, match="no latency class"):
            forecast(rung, WORKLOAD, "h200", scale={"nonsense": 1.0})
        with pytest.raises(LabError, match="knob"):
            forecast(rung, WORKLOAD, "h200", {"nonsense": 1})
    assert modelled == []


def test_every_file_whose_code_runs_in_a_forecast_is_part_of_what_it_is_kept_under(
    repository, monkeypatch
):
    monkeypatch.setenv(SIZE_VARIABLE, "0")
    ran = set()
    sys.setprofile(lambda frame, event, _: ran.add(frame.f_code.co_filename))
    try:
        forecast(load_rung("r03"), WORKLOAD, "h200")
    finally:
        sys.setprofile(None)
    ours = {Path(name) for name in ran if name.startswith(str(repository / "labtools"))}
    assert len(ours) > 10
    rooms = {path.relative_to(repository / "labtools").parts[0] for path in ours}
    assert rooms - {"__init__.py"} <= set(MODEL_ROOMS)


def test_the_last_model_that_was_named_by_a_hash_is_the_second():
    sealed = {
        name: ForecastMade(time_us=1.0, model=name).model
        for name in ("chain model 1", "chain model 1, 3fa5da01", "chain model 1, cfc56bb9")
    }
    assert sealed["chain model 1, cfc56bb9"] == "chain model 2"
    assert all(now == name for name, now in sealed.items() if "cfc56bb9" not in name)
