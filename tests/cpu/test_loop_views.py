"""What the chapters on the loop show: attributions with their intervals, and the drawings."""

from __future__ import annotations

from dataclasses import replace

from labtools.notebook.book.attribution.attributions import attributions_figure, show_attributions
from labtools.notebook.book.attribution.drawings import ablation_drawing, loop_drawing
from labtools.optimize.attribution import Attribution
from labtools.optimize.state import STEPS

HELPS = Attribution("memory.wide", "start", 12.0, 0.6, 0.59, 0.61, 0.02, "above")
OPEN = replace(HELPS, method="latency.ring", relative=0.021, low=0.01, high=0.03, decided=None)
HARMS = replace(
    HELPS, method="compute.lazy", relative=-0.02, low=-0.03, high=-0.01, decided="below"
)


def test_a_table_says_what_is_decided_and_what_is_not() -> None:
    shown = show_attributions([HELPS, OPEN, HARMS], "recorded", "a kernel").text
    caption, heads, *rows = shown.splitlines()
    assert caption == "a kernel; threshold 2 % [recorded]" and heads.split()[-1] == "verdict"
    said = [row.split()[0] + " " + " ".join(row.split()[3:]) for row in rows]
    assert "counts" in said[0] and "undecided" in said[1] and "does not count" in said[2]
    assert "-3.0\u00a0to\u00a0-1.0" in rows[2]


def test_an_end_that_would_read_as_the_threshold_has_more_digits() -> None:
    below = replace(HELPS, low=0.0151, high=0.0197, decided="below")
    shown = show_attributions([below, HELPS], "recorded").text
    assert "+1.51\u00a0to\u00a0+1.97" in shown and "+59.0\u00a0to\u00a0+61.0" in shown
    assert "threshold 2 %" in shown
    told = attributions_figure([below], "recorded", "A kernel").text
    assert "(+1.51% to +1.97%), does not count" in told
    near = replace(HELPS, low=0.0349, high=0.1, threshold=0.03474)
    shown = show_attributions([near], "recorded").text
    assert "+3.49\u00a0to" in shown and "threshold 3.47 %" in shown
    assert (
        "+2.0\u00a0to\u00a0+3.0"
        in show_attributions([replace(HELPS, low=0.02, high=0.03)], "recorded").text
    )  # it is the threshold
    negative = replace(HELPS, low=-0.0204, high=-0.01, decided="below")
    assert "-2.04\u00a0to\u00a0-1.00" in show_attributions([negative], "recorded").text


def test_the_drawings_name_what_they_show() -> None:
    told = loop_drawing().text
    assert [told.index(f"{step} (") for step in STEPS] == sorted(
        told.index(f"{step} (") for step in STEPS
    )
    assert "lacks one" in ablation_drawing().text
