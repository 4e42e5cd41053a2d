"""The game of the loop: its table says what the loop says, and its figure shows every search."""

from __future__ import annotations

import dataclasses

import pytest

from labtools.notebook.loop.figures import searches_figure
from labtools.optimize.searches import Searches, read_searches, searches_path


@pytest.fixture(scope="module")
def searches() -> Searches:
    return read_searches(searches_path("tunable", "h200"))


# ---------------------------------------------------------------------------------- the figure


def test_the_figure_tells_each_search_and_the_reader(searches: Searches) -> None:
    shown = searches_figure(searches, [2 * searches.best_us, searches.best_us, 9e9])
    for one in searches.searches:
        assert f"{one.title} ({one.seeds} seeds): " in shown.text
    assert "you: 100.0% after 1, 0.0% after 2, 0.0% after 3" in shown.text
    assert "you:" not in searches_figure(searches).text


def test_a_search_without_a_time_is_said_to_have_none(searches: Searches) -> None:
    one = searches.searches[0]
    none = dataclasses.replace(one, name="none", title="none", middle_us=(None,) * 3)
    shown = searches_figure(dataclasses.replace(searches, searches=(none,)))
    assert f"none ({one.seeds} seeds): no time" in shown.text
