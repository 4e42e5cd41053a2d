"""The SOL score and its refusals; the old policy, and the example with which it is judged."""

from __future__ import annotations

import pytest
from devices import LIMITS
from hypothesis import given
from hypothesis import strategies as st
from test_optimize_family import LARGER, ROWS, SHUFFLES, WIDE

from labtools.optimize.gaps import Gaps
from labtools.optimize.pick import Taken
from labtools.optimize.score import sol_score
from labtools.optimize.v1 import NOISE, contributions, judge_group, pick_one_an_axis
from labtools.problem import LabError, Rows


def test_the_ends_of_the_score():
    assert sol_score(30.0, 30.0, 40.0).score == 1
    assert sol_score(40.0, 30.0, 40.0).score == 0.5
    assert sol_score(60.0, 30.0, 40.0).score == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ((35.0, 40.0, 40.0), "not above the floor"),
        ((35.0, 41.0, 40.0), "not above the floor"),
        ((29.0, 30.0, 40.0), "below the floor"),
        ((0.0, 30.0, 40.0), "no time"),
        ((float("nan"), 30.0, 40.0), "no time"),
        ((35.0, -1.0, 40.0), "no time"),
        ((35.0, 30.0, float("inf")), "no time"),
    ],
)
def test_what_cannot_be_scored_is_refused(times, says):
    with pytest.raises(LabError) as refused:
        sol_score(*times)
    assert says in refused.value.why


@given(st.floats(1, 1e4), st.floats(1e-3, 1e4), st.floats(0, 1e5), st.floats(0, 1e5))
def test_a_longer_time_never_scores_higher(floor, room, first, more):
    short = sol_score(floor + first, floor, floor + room)
    long = sol_score(floor + first + more, floor, floor + room)
    assert 0 < long.score <= short.score <= 1


# ------------------------------------------------------------------------------- the old policy

WITHOUT_MS = {"A": 4.82, "B": 2.31, "C": 2.19}
CHAMPION_MS = 2.14


def test_the_example_of_the_source_by_its_own_rule():
    """It calls C ineffective; 0.05 of 2.14 ms is more than its 2 %."""
    found = contributions(CHAMPION_MS, WITHOUT_MS)
    assert found["C"] == pytest.approx(0.05 / 2.14)
    assert round(100 * found["C"], 2) == 2.34
    assert [name for name, part in found.items() if part > NOISE] == ["A", "B", "C"]


def test_a_group_is_judged_as_one():
    """Whatever C does, it is called what the group is called."""
    for without_c in (2.19, 2.14, 1.90):
        assert contributions(CHAMPION_MS, {"C": without_c})["C"] < 0.03
        group = judge_group(tuple(WITHOUT_MS), before_us=5.20, after_us=CHAMPION_MS)
        assert set(group.classes.values()) == {"effective"}
        assert group.keeps
    assert set(judge_group("AB", 2.18, 2.14).classes.values()) == {"ineffective"}
    assert not judge_group("AB", 2.18, 2.14).keeps
    assert not judge_group("AB", 2.00, 2.14).keeps


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(time):
    with pytest.raises(LabError):
        contributions(2.14, {"A": time})
    with pytest.raises(LabError):
        contributions(time, {"A": 2.14})


def test_the_old_policy_takes_the_first_of_each_axis_whatever_the_gaps():
    gaps = Gaps(0.9, 0.3, 0.3, "counters", {})
    found = pick_one_an_axis(ROWS, ROWS.start, gaps, {}, Rows(8192, 4096), LIMITS)
    assert set(found.methods) == {LARGER, WIDE, SHUFFLES}
    later = pick_one_an_axis(
        ROWS, ROWS.start, gaps, {}, Rows(8192, 4096), LIMITS, Taken(effective=(SHUFFLES,))
    )
    assert SHUFFLES not in later.methods and len(later.methods) == 3
