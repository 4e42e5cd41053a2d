"""Reading Nsight Compute's CSV: units, thousands separators, and values that are not there."""

from __future__ import annotations

import pytest

from labtools.measure.profiler.counters import (
    CHOSEN_COUNTERS,
    COUNTERS,
    STALL_COUNTERS,
    choose_counters,
    metrics_to_request,
    parse_ncu_csv,
    sum_launches,
)
from labtools.problem import LabError

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

# `ncu --import report.ncu-rep --page raw --csv --print-units base`, cut to a few columns.
WIDE = f"""\
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum",\
"dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum",\
"launch__registers_per_thread","lts__t_sector_hit_rate.pct",\
"sm__maximum_warps_per_active_cycle_pct","sm__warps_active.avg.pct_of_peak_sustained_active",\
"smsp__average_warp_latency_per_inst_issued.ratio","{STALL.format("long_scoreboard")}",\
"{STALL.format("selected")}","{STALL.format("wait")}","smsp__inst_executed.sum",\
"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","byte","byte","%","ns","register/thread","%","%","%","inst",\
"inst","inst","inst","inst","%"
"0","4711","python3.12","127.0.0.1","decode","1","7","(32, 1, 1)","(256, 1, 1)","0","9.0",\
"134,283,264","1,052,672","23.41","1,257,216","40","0.97","50.00","6.06","4.00","3.00","1.00",\
"n/a","8,912,896","0"
"1","4711","python3.12","127.0.0.1","merge(float *, __half *)","1","7","(128, 1, 1)",\
"(256, 1, 1)","0","9.0","2,048","1,024","n/a","3,200","24","","100.00","88.1","10.5","5.25",\
"1.00","2.00","4,096","0"
"""


def test_wide_values() -> None:
    decode, merge = parse_ncu_csv(WIDE)
    assert list(decode.values) == [counter.name for counter in COUNTERS]
    assert (decode.kernel, decode.grid, decode.block) == ("decode", "(256, 1, 1)", "(32, 1, 1)")
    assert decode.values["dram_read_bytes"] == 134_283_264
    assert decode.values["duration_us"] == pytest.approx(1257.216)
    assert decode.values["registers_per_thread"] == 40
    assert decode.values["l2_hit_pct"] == 0.97
    assert merge.kernel == "merge(float *, __half *)"
    assert merge.values["duration_us"] == pytest.approx(3.2)


def test_a_measured_zero_stays_zero_and_a_missing_value_is_none() -> None:
    decode, merge = parse_ncu_csv(WIDE)
    assert decode.values["pipe_tensor_pct"] == 0.0
    assert decode.values["stall_wait_cycles"] is None
    assert decode.values["pipe_fma_pct"] is None  # no such column at all
    assert merge.values["dram_throughput_pct"] is None  # n/a
    assert merge.values["l2_hit_pct"] is None  # an empty cell
    assert "stall_wait_cycles" in decode.missing
    assert "pipe_tensor_pct" not in decode.missing


DURATION = ("gpu__time_duration.sum", "duration_us")
BYTES = ("dram__bytes_read.sum", "dram_read_bytes")
INSTRUCTIONS = ("smsp__inst_executed.sum", "executed_instructions")


@pytest.mark.parametrize(
    ("counter", "unit", "cell", "value"),
    [
        *((DURATION, "ns", "41,280", 41.28), (DURATION, "nsecond", "41280", 41.28)),
        *((DURATION, "us", "41.28", 41.28), (DURATION, "usecond", "41.28", 41.28)),
        *((DURATION, "msecond", "0.04128", 41.28), (DURATION, "second", "4.128e-05", 41.28)),
        *((BYTES, "byte", text, None) for text in ("n/a", "", "(!) n/a", "nan", "inf", "yes")),
        (INSTRUCTIONS, "inst", "12 (1; 5; 6)", 12),  # of instances the total is kept
    ],
)
def test_a_cell_is_read_by_its_unit_or_is_no_number(counter, unit, cell, value) -> None:
    metric, name = counter
    text = f'"ID","Kernel Name","{metric}"\n"","","{unit}"\n"0","k","{cell}"\n'
    found = parse_ncu_csv(text)[0].values[name]
    assert found == (value if value is None else pytest.approx(value))


def test_the_first_metric_with_a_value_is_taken() -> None:
    old = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
    new = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    assert choose_counters({old: 5.0})["dram_throughput_pct"] == 5.0
    assert choose_counters({old: 5.0, new: 6.0})["dram_throughput_pct"] == 6.0


def test_stall_shares() -> None:
    decode, merge = parse_ncu_csv(WIDE)
    assert decode.stall_shares == {"long_scoreboard": 0.75, "selected": 0.25}
    # The first is the largest: that is the one a reader looks at.
    assert next(iter(merge.stall_shares)) == "long_scoreboard"
    without = parse_ncu_csv('"ID","Kernel Name","a"\n"","",""\n"0","k","1"\n')[0]
    assert without.stall_shares == {}


def test_totals_add_only_what_can_be_added_and_a_gap_stays_a_gap() -> None:
    launches = parse_ncu_csv(WIDE)
    totals = sum_launches(launches)
    assert totals["duration_us"] == pytest.approx(1257.216 + 3.2)
    assert totals["dram_read_bytes"] == 134_285_312
    assert "l2_hit_pct" not in totals
    gap = parse_ncu_csv(WIDE.replace('"2,048"', '"n/a"'))
    assert sum_launches(gap)["dram_read_bytes"] is None


@pytest.mark.parametrize(
    "text",
    ["", "==ERROR== nothing here", '"ID","Kernel Name","a"\n', '"ID","Kernel Name","a"\n"","",""'],
)
def test_no_table_or_no_launch_is_refused(text: str) -> None:
    with pytest.raises(LabError) as caught:
        parse_ncu_csv(text)
    assert caught.value.why
    assert caught.value.still_works


def test_names_and_metrics_are_unique_and_requested() -> None:
    names = [counter.name for counter in COUNTERS]
    assert len(set(names)) == len(names)
    requested = metrics_to_request()
    assert len(set(requested)) == len(requested)
    for counter in (*CHOSEN_COUNTERS, *STALL_COUNTERS):
        assert set(counter.metrics) <= set(requested)
