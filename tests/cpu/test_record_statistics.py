"""Statistics with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import make_record, make_samples

from labtools.problem import HEADLINE, LabError
from labtools.record import best_read_gb_per_s, median_us, paired_ratio, ratio_of_samples, summary

TIMES = st.lists(st.floats(1.0, 1e5), min_size=1, max_size=12)


def test_the_median_is_the_median_of_the_processes_medians():
    # Pooled, the median would be 3; the processes' medians are 1, 3 and 100.
    samples = make_samples([[1, 1, 1, 1], [2, 3, 4], [100, 100, 100, 100]])
    assert median_us(samples) == 3.0
    found = summary(samples)
    assert found.range_us == (1.0, 100.0)
    assert (found.processes, found.samples) == (3, 11)


def test_quartiles_are_over_all_samples():
    found = summary(make_samples([[1, 2, 3, 4, 5]]))
    assert found.iqr_us == (2.0, 4.0)
    assert found.spread == pytest.approx(2 / 3)


@given(st.lists(TIMES, min_size=1, max_size=6))
def test_every_median_lies_among_its_samples(lists):
    samples = make_samples(lists)
    flat = [value for values in lists for value in values]
    assert min(flat) <= median_us(samples) <= max(flat)
    found = summary(samples)
    assert found.range_us[0] <= found.median_us <= found.range_us[1]


def test_a_ratio_is_paired_by_process():
    # Every process is slower than the one before, for both: the ratio is 2 in each.
    drift = [1.0, 1.5, 2.0, 3.0, 5.0]
    first = make_record("r02_one_barrier", [[20 * d, 20 * d] for d in drift])
    second = make_record("r03_one_warp", [[10 * d, 10 * d] for d in drift])
    ratio = paired_ratio(first, second)
    assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert not ratio.equal
    assert ratio.processes == 5
    back = paired_ratio(second, first)
    assert back.ratio == pytest.approx(0.5)
    assert "2.000" in str(ratio)


def test_equal_when_the_interval_spans_one():
    ratios = [0.97, 0.99, 1.0, 1.01, 1.03]
    first = make_record("a", [[10 * r] for r in ratios])
    second = make_record("b", [[10.0]] * 5)
    ratio = paired_ratio(first, second)
    assert ratio.equal
    assert (ratio.low, ratio.high) == pytest.approx((0.97, 1.03))
    assert str(ratio).endswith("equal")


def test_the_interval_is_seeded():
    rng = np.random.default_rng(3)
    first = make_record("a", rng.normal(10, 1, (5, 8)))
    second = make_record("b", rng.normal(10, 1, (5, 8)))
    assert paired_ratio(first, second) == paired_ratio(first, second)
    assert paired_ratio(first, second) != paired_ratio(first, second, seed=1)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    # Five processes, each with an effect of its own: the median of five lies within their range
    # in 15 of 16 cases, and noise within a process only widens the interval.
    rng = np.random.default_rng(11)
    held = 0
    trials = 300
    for _ in range(trials):
        effects = np.exp(rng.normal(0, 0.02, 5))
        above = [1.1 * e * rng.normal(1, 0.01, 10) for e in effects]
        below = [rng.normal(1, 0.01, 10) for _ in range(5)]
        _, low, high = ratio_of_samples(above, below, seed=1)
        held += low <= 1.1 <= high
    assert held / trials > 0.90


def test_records_of_different_campaigns_or_workloads_are_not_compared():
    one = make_record("a")
    for other in (
        make_record("b", campaign="c2"),
        make_record("b", workload=HEADLINE.replace(batch=1)),
    ):
        with pytest.raises(LabError, match="not measured together"):
            paired_ratio(one, other)


def test_processes_that_do_not_match_are_left_out():
    one = make_record("a", [[10.0], [20.0], [30.0]])
    two = make_record("b", [[10.0], [10.0]])
    assert paired_ratio(one, two).processes == 2


def test_the_best_read_is_cold_and_right():
    slow, fast = make_record("a", [[100.0]]), make_record("ceiling:read_sweep", [[50.0]])
    warm = make_record("c", [[1.0]], HEADLINE.replace(cache_state="warm"))
    assert best_read_gb_per_s([slow, fast, warm]) == pytest.approx(fast.gb_per_s)
    assert best_read_gb_per_s([warm]) is None
    # A study may keep the cache in fewer bits than its record says.
    study = make_record("s02_warp_int8", [[10.0]])
    assert best_read_gb_per_s([slow, fast, study]) == pytest.approx(fast.gb_per_s)
