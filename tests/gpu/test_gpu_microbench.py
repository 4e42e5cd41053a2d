"""The microbenchmarks on a real GPU: they run, and their numbers make sense."""

from __future__ import annotations

import pytest

from labtools.microbench.run import run_microbench
from labtools.predict.latencies import read_table
from labtools.toolchain import device_query

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    if device_query() is None:
        pytest.skip("there is no GPU here")
    return run_microbench(tmp_path_factory.mktemp("microbench"))


@pytest.fixture(scope="module")
def table(report):
    return read_table(report.record_path)


def test_everything_ran_in_time(report) -> None:
    assert report.failures == {}
    assert report.seconds < 240


def test_latencies_lie_in_the_order_of_the_hierarchy(table) -> None:
    assert 15 < table.latency("shared.32") < table.latency("l1") + 10
    assert table.latency("l1") < table.latency("l2") < table.latency("hbm")
    assert table.latency("l2_near") <= table.latency("l2_far")
    assert 2 <= table.latency("ffma") <= 6


def test_rows_cost_no_less_than_the_cache_they_come_from(table) -> None:
    for size in (64, 128, 256, 512):
        assert table.latency(f"l2_row.{size}") > table.latency("l1")
        assert table.latency(f"hbm_row.{size}") > table.latency(f"l2_row.{size}")


def test_more_in_flight_is_never_much_slower(table) -> None:
    rates = {
        (point["warps"], point["loads"]): point["gb_per_s"]
        for point in table.curve("hbm")
        if point["bytes_per_lane"] == 16
    }
    for (warps, loads), rate in rates.items():
        if (2 * warps, loads) in rates:
            assert rates[2 * warps, loads] > 0.9 * rate


def test_no_rate_beats_the_data_sheet(table) -> None:
    from labtools.predict.sheets import gpu_of_device

    sheet = gpu_of_device().dram_gb_per_s
    if sheet is not None:
        assert 0.6 * sheet < table.memory("hbm_gb_per_s") < 1.03 * sheet


def test_a_barrier_costs_more_with_more_warps(table) -> None:
    by_warps = table.by_number("latency.barrier")
    assert by_warps[32] > by_warps[4] > 5
