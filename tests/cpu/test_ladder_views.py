"""Figures and tables of the ladder's pages, on records made up for the purpose."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import record_samples

pytest.importorskip("pydantic")
pytest.importorskip("matplotlib")

from labtools.notebook.book.attention.figures import plot_online_softmax
from labtools.notebook.book.baseline.figures import plot_copy
from labtools.notebook.book.decode.figures import plot_roofline, prefill_intensity
from labtools.notebook.book.fusion.figures import plot_passes
from labtools.notebook.book.ladder.figures import draw_codes, draw_flights, draw_loops, draw_turns
from labtools.notebook.book.the_gpu.figures import plot_in_flight
from labtools.notebook.counters import show_counters
from labtools.notebook.ladder import plot_confound, plot_ladder, plot_unrolling
from labtools.notebook.records import GpuRecords, forecast_of
from labtools.notebook.tables import format_value, make_table, say_time
from labtools.predict import load_gpu, sheet_floor_us
from labtools.problem import HEADLINE, Workload, load_rung, make_inputs
from labtools.record import Record, RecordStore, Tried, fair_peers, measured_together
from labtools.record.headline import at_default_knobs
from labtools.record.prediction import say_ratio


def make_record(
    candidate: str, us: float, knobs: dict[str, int] | None = None, **more: Any
) -> Record:
    """A record of the headline workload on an H200 that never ran."""
    lists = [[us, us * 1.01, us * 0.99]] * 5
    launches = [{"entry": "e", "grid": (32, 8, 1), "block": (32, 1, 1)}]
    return record_samples.make_record(
        candidate, lists, knobs=knobs or {}, launches=launches, **more
    )


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    store = RecordStore([tmp_path])
    records = [make_record("baseline:sdpa", 40.0)]
    for number, name in enumerate(("r00", "r01", "r02", "r03")):
        rung = load_rung(name)
        for knobs in rung.knob_combinations():
            records.append(make_record(rung.id, 1000.0 - 100 * number + knobs["unroll"], knobs))
    store.append("test.jsonl", records)
    return store


def test_ladder_shows_every_rung_and_the_floor(store: RecordStore) -> None:
    shown = plot_ladder(store=store)
    floor = sheet_floor_us(make_record("r00_two_passes", 1.0).read_bytes, "h200")
    labels = (
        "r00 1004 us",
        "r01 904.0 us",
        "r02",
        "r03",
        "sdpa",
        "40.0 us",
        f"floor {floor:.1f} us",
    )
    assert [label for label in labels if label not in shown.text] == []


def test_a_page_gives_its_rung_away_only_after_its_answer(store: RecordStore) -> None:
    before, after = (plot_ladder("r02", after=late, store=store).text for late in (False, True))
    assert "r02, this page, is still a question" in before
    assert "r01 904.0 us" in before and "r02 804.0 us" not in before and "r03" not in before
    assert "r02 804.0 us" in after and "r03" not in after
    assert "Last step: r01 is 1.11x faster than r00" in before
    # Its parent was measured with V asked for early, which the page says.
    assert re.search(r"Last step: r02 is \S+x faster than r01, V early", after)


def test_the_ladder_of_the_pages_is_that_of_the_records() -> None:
    """Each time, the library and the floor are those of the campaign that the README shows."""
    text = plot_ladder().text
    records = measured_together(
        at_default_knobs(RecordStore().query("h200", workload=HEADLINE, latest=False))
    )
    for record in records:
        if record.kind == "rung":
            floor = sheet_floor_us(record.read_bytes, "h200")
            assert floor
            told = f"{say_time(record.median_us)} us ({record.median_us / floor:.1f}x its floor)"
            assert f"{record.candidate.split('_')[0]} {told}" in text
    assert f"{fair_peers(records)[0].median_us:.1f} us" in text


def test_no_record_no_picture(tmp_path: Path) -> None:
    empty = RecordStore([tmp_path])
    assert "no record" in plot_ladder(store=empty).text
    assert "no record" in plot_confound(empty).text
    assert "<img" not in plot_ladder(store=empty).html


def test_a_row_is_drawn_as_its_machine_code_runs() -> None:
    text = draw_loops(("a", ("r01", {"prefetch_v": 1})), ("b", "r02"), ("c", "r03")).text
    strips = re.findall(r"([abc]), (\d) warps? a block: ([^;.]*)", text)
    assert [(name, int(warps), steps.count("barrier")) for name, warps, steps in strips] == [
        *(("a", 4, 3), ("b", 4, 1), ("c", 1, 0)),
    ]


def test_rows_in_time_pass_as_the_forecast_has_it() -> None:
    """The latency is the forecast's, and so is how much further one kernel gets than another."""
    tried: dict[str, Tried] = {"a": "r03", "b": "r05", "c": ("r05", {"stages": 8})}
    text = draw_flights(*tried.items()).text
    found = re.findall(r"([abc]): up to (\d) rows on their way, (\d+) .*?, (\d+) rows done", text)
    assert [(name, int(held)) for name, held, *_ in found] == [("a", 4), ("b", 2), ("c", 8)]
    first = forecast_of("r03", HEADLINE).time_us * int(found[0][3])
    for name, _, latency, done in found:
        forecast = forecast_of(tried[name], HEADLINE)
        assert latency == f"{forecast.main_launch.load_latency_cycles:.0f}"
        assert int(done) == pytest.approx(first / forecast.time_us, abs=2)  # they begin with a wait


def test_turns_are_those_of_the_knobs_and_the_rule() -> None:
    text = draw_turns(("a", "r04"), ("b", "r08")).text
    found = re.findall(r"([ab]): (\d+) pieces, (\d+) warps? a piece, (\d+) rows", text)
    knobs, split = load_rung("r08").resolve_knobs(), load_rung("r04").resolve_knobs()["split"]
    pieces = load_rung("r08").launches(HEADLINE, load_gpu("h200").limits)[0].grid[2]
    wanted = [("a", split, 1, 4), ("b", pieces, knobs["warps"], knobs["rows"])]
    assert [(name, *map(int, counts)) for name, *counts in found] == wanted


@pytest.mark.parametrize("bits", [8, 4])
def test_codes_are_drawn_as_the_kernel_takes_them_apart(bits: int) -> None:
    """The word that the lane loads holds the codes, lowest first, and they stand for the row."""
    text = draw_codes(bits).text
    (word,) = re.findall(r"loads 0x([0-9a-f]+)", text)
    rows = re.findall(r"stored (\d+), code (-?\d+), read back (\S+), was (\S+?)[;.](?: |$)", text)
    scale = max(abs(float(was)) for *_, was in rows) / (2 ** (bits - 1) - 1)
    assert len(rows) == 4
    for i, (stored, code, back, was) in enumerate(rows):
        assert int(word, 16) >> bits * i & (2**bits - 1) == int(stored)
        assert int(stored) - 2 ** (bits - 1) == int(code)
        assert float(back) == pytest.approx(scale * int(code), abs=0.02)
        assert abs(float(back) - float(was)) <= 0.51 * scale + 0.01


def test_times_by_unrolling_are_those_of_the_records() -> None:
    text = plot_unrolling({"r07": "r07"}, {"cold": HEADLINE}).text
    for n in (1, 4, 8):
        record = GpuRecords().find(("r07", {"unroll": n}), HEADLINE)
        assert record and f"{say_time(record.median_us)} at unroll {n}" in text


def test_confound_has_a_line_a_variant(store: RecordStore) -> None:
    text = plot_confound(store).text
    assert "without launch bounds" in text and "unroll 1 701" in text


def test_counters_are_shares_and_missing_stays_missing(tmp_path: Path) -> None:
    rung = load_rung("r03")
    values = {"warp_latency_cycles": 200.0, "stall_long_scoreboard_cycles": 150.0}
    values |= dict.fromkeys(("stall_barrier_cycles", "l2_hit_pct"))
    counters = {"tool": "ncu", "values": values}
    record = make_record(rung.id, 5.0, rung.resolve_knobs(), counters=counters)
    store = RecordStore([tmp_path])
    store.append("test.jsonl", [record])
    text = show_counters("r03_one_warp", store=store).text
    assert re.search(r"waiting: long scoreboard +75\.0", text) and "barrier" not in text
    assert re.search(r"L2 hit rate +- ", text)
    assert "no record" in show_counters("r03_one_warp", knobs={"unroll": 1}, store=store).text


def test_pictures_say_what_they_show_and_are_reproducible() -> None:
    gpu = load_gpu("h200")
    small = Workload(1, 2, 1, 64, 64)
    pictures = [
        plot_roofline([load_gpu("rtx4090"), gpu], HEADLINE),
        plot_in_flight(gpu, 4800.0, 240.0, 256),
        plot_passes({"two kernels": ["x read", "residual read", "out written"]}, 67.0),
        plot_copy(HEADLINE, load_gpu("rtx4090"), 1360.0, 713.0, 157.7, 133.0),
        plot_online_softmax(make_inputs(small), make_inputs(small.replace(distribution="rising"))),
    ]
    assert all(re.search(r'alt="[^"]{60,}"', picture.html) for picture in pictures)
    assert plot_in_flight(gpu, 4800.0, 240.0, 256).html == pictures[1].html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (None, "-"),
            (3, "3"),
            (131072, "131,072"),
            (0.0, "0"),
            (0.543, "0.543"),
            (37.96, "38.0"),
        ),
        *((1237.4, "1237"), (float("nan"), "nan"), ("text", "text"), (1.5, "1.50")),
        # One that rounds to a digit more keeps three.
        *((9.996, "10.0"), (9.994, "9.99"), (99.96, "100")),
    ],
)
def test_format_value(value: object, text: str) -> None:
    assert format_value(value) == text


def test_prefill_intensity_of_one_token_is_that_of_its_bytes() -> None:
    one = HEADLINE.replace(kv_len=1)
    rows = 2 * (one.num_qo_heads + one.num_kv_heads) * one.batch
    assert prefill_intensity(one) == one.flops / (rows * one.head_dim * 2)


def test_a_small_difference_is_not_said_to_be_none() -> None:
    assert say_ratio(1.004, (1.002, 1.005)) == "1.004x faster"
    assert say_ratio(1 / 1.004, (0.995, 0.998)) == "1.004x slower"
    assert (say_ratio(1.09), say_ratio(1.004)) == ("1.09x faster", "the same (1.00x)")


def test_a_percent_sign_stays_with_its_number() -> None:
    table = make_table(("a",), [("1.09x faster (95 %: 1.05 to 1.12)",)])
    assert "95\u00a0%:" in table.html and "95 %:" in table.text
