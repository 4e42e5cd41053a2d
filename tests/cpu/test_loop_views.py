"""What the chapters on the loop show: attributions with their intervals, and the drawings."""

from __future__ import annotations

from dataclasses import replace

from labtools.notebook.book.attribution.attributions import attributions_figure, say_interval_pct
from labtools.notebook.book.attribution.drawings import ablation_drawing, draw_group, loop_drawing
from labtools.notebook.book.loop_state.figures import draw_frontier
from labtools.optimize.attribution import Attribution
from labtools.optimize.state import STEPS
from labtools.record import published_figures

HELPS = Attribution("memory.wide", "start", 12.0, 0.6, 0.59, 0.61, 0.02, "above")
OPEN = replace(HELPS, method="latency.ring", relative=0.021, low=0.01, high=0.03, decided=None)
HARMS = replace(
    HELPS, method="compute.lazy", relative=-0.02, low=-0.03, high=-0.01, decided="below"
)


def test_a_figure_says_what_is_decided_and_what_is_not() -> None:
    told = attributions_figure([HELPS, OPEN, HARMS], "recorded", "A kernel").text
    assert "memory.wide +60.0% (+59.0% to +61.0%), counts" in told and "[recorded]" in told
    assert "to +3.0%), undecided" in told and "to -1.0%), does not count" in told


def test_an_end_that_would_read_as_the_threshold_has_more_digits() -> None:
    below = replace(HELPS, low=0.0151, high=0.0197, decided="below")
    assert say_interval_pct(below) == "+1.51\u00a0to\u00a0+1.97"
    assert say_interval_pct(HELPS) == "+59.0\u00a0to\u00a0+61.0"
    told = attributions_figure([below], "recorded", "A kernel").text
    assert "(+1.51% to +1.97%), does not count" in told
    near = replace(HELPS, low=0.0349, high=0.1, threshold=0.03474)
    assert say_interval_pct(near).startswith("+3.49\u00a0to")
    at_it = replace(HELPS, low=0.02, high=0.03)
    assert say_interval_pct(at_it) == "+2.0\u00a0to\u00a0+3.0"
    negative = replace(HELPS, low=-0.0204, high=-0.01, decided="below")
    assert say_interval_pct(negative) == "-2.04\u00a0to\u00a0-1.00"


def test_the_published_group_is_drawn_with_its_numbers() -> None:
    loop = published_figures()["loop"]
    gains = {name: loop[f"bundle_{name.lower()}_ms"] for name in "ABC"}
    told = draw_group(gains, dict.fromkeys(gains, "effective")).text
    assert all(f"{name} {ms:+.1f} ms effective" in told for name, ms in gains.items())
    assert f"together {sum(gains.values()):+.1f} ms." in told


def test_the_drawings_name_what_they_show() -> None:
    told = loop_drawing().text
    assert [told.index(f"{step} (") for step in STEPS] == sorted(
        told.index(f"{step} (") for step in STEPS
    )
    assert "lacks one" in ablation_drawing().text


def test_the_frontier_is_drawn_over_the_fastest_at_each_workload() -> None:
    text = draw_frontier([[10.0, 30.0], [20.0, 15.0]], ["a", "b"], "The frontier").text
    assert "over a, b. entry 1: 10.0 us, 30.0 us; entry 2: 20.0 us, 15.0 us" in text
