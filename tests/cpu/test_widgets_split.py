"""The split's tables, figures and bench say what records and forecast say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from devices import LIMITS
from record_samples import make_record

from labtools.notebook import records as kept_records
from labtools.notebook.labs.lab05_split.figures import plot_pieces, plot_surfaces, time_parts
from labtools.notebook.labs.lab05_split.view import SplitView, split_bench
from labtools.notebook.records import PENDING, GpuRecords, Variant, forecast_of, show_tried
from labtools.predict import forecast
from labtools.problem import HEADLINE, load_rung
from labtools.record import RecordStore

R03, R04 = Variant("r03", experiment="stream"), Variant("r04")
MOVED = Variant("r04", experiment="stream+outside", label="line moved")


def kept(tried: Variant, times_us: list[float]) -> Any:
    rung = load_rung(tried.candidate)
    knobs, lists = rung.resolve_knobs(tried.knobs), [[us] * 3 for us in times_us]
    return make_record(rung.id, lists, knobs=knobs, experiment=tried.experiment)


@pytest.fixture
def records(tmp_path: Path) -> GpuRecords:
    store = RecordStore([tmp_path])
    times = [(R03, 600.0), (R04, 800.0), (MOVED, 100.0)]
    made = [kept(tried, [us, us + 1, us + 2, us, us]) for tried, us in times]
    store.append("test.jsonl", made)
    return GpuRecords(store=store)


def test_tries_are_told_apart(records: GpuRecords) -> None:
    assert records.time_us(R04, HEADLINE) == pytest.approx(800.0, rel=0.01)
    assert records.time_us(MOVED, HEADLINE) == pytest.approx(100.0, rel=0.01)
    assert records.find(Variant("r04", experiment="outside"), HEADLINE) is None
    assert records.find(Variant("r04", {"split": 4}), HEADLINE) is None
    found = records.ratio(R03, R04, HEADLINE)
    assert found is not None
    assert found.value == pytest.approx(0.75, rel=0.01)
    shown = show_tried(records, [R03, R04, MOVED], HEADLINE, against=R03).text
    assert "1.33x slower" in shown and "6.00x faster" in shown
    others = [Variant("r03"), Variant("r04", experiment="outside")]
    assert show_tried(records, others, HEADLINE).text.count(PENDING) == 2


def test_signs_over_a_sweep(records: GpuRecords) -> None:
    sweep = [HEADLINE, HEADLINE.replace(batch=1, kv_len=512)]
    slower = {"faster": 0, "same": 0, "slower": 1, "pending": 1}
    assert kept_records.count_signs(records, sweep, R03, R04) == slower
    assert kept_records.count_signs(records, sweep, R03, MOVED)["faster"] == 1
    text = kept_records.show_signs(records, sweep, [(R03, R04)]).text
    assert "1.33x slower" in text
    assert PENDING in text


def test_a_forecast_is_that_of_the_launches() -> None:
    assert forecast_of(R04, HEADLINE) is forecast_of(MOVED, HEADLINE)
    by_rule = forecast_of(Variant("r08"), HEADLINE)
    pieces = load_rung("r08").launches(HEADLINE, LIMITS)[0].grid[2]
    assert by_rule is forecast_of(Variant("r08", {"split": pieces}), HEADLINE)
    assert by_rule.time_us == forecast(load_rung("r08"), HEADLINE, "h200").time_us
    assert by_rule.time_us == pytest.approx(sum(time_parts(by_rule).values()))


def test_a_surface_says_what_is_missing_and_what_is_slower() -> None:
    shown = plot_surfaces({"a": {(1, 512): 4.0, (8, 4096): 0.9}, "b": {}}, "caption")
    assert "batch 1 length 512 4.00" in shown.text
    assert "measured yet" in plot_surfaces({"a": {}}, "caption").text
    pieces = {n: forecast_of(Variant("r08", {"split": n}), HEADLINE) for n in (1, 4)}
    assert "recorded 70.0" in plot_pieces(pieces, {4: 70.0}, "caption").text


def test_the_bench_holds_what_the_forecast_says(records: GpuRecords) -> None:
    bench = split_bench(records, 8, 4096, 4, batches=(1, 8), lengths=(4096,), counts=(1, 4))
    assert isinstance(bench.view, SplitView)
    assert (bench.view.batch_index, bench.view.length_index, bench.view.pieces_index) == (1, 0, 1)
    cell = bench.view.tables["cells"][1][0][1]
    model = forecast_of(Variant("r08", {"split": 4}), HEADLINE)
    assert cell["time"] == pytest.approx(model.time_us, abs=1e-3)
    assert cell["decode"] + cell["merge"] + cell["launch"] == pytest.approx(cell["time"], abs=0.01)
    assert cell["bound"] == model.bound
    assert cell["recorded"] is None
    assert cell["blocks"] == 4 * 8 * 32
