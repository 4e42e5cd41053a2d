"""The summary of a loop, as text and as one HTML file."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from loop_play import METHODS, begin, gaps_of, play
from matplotlib.figure import Figure

from labtools.optimize import page as page_module
from labtools.optimize.attribution import Attribution
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.page import summary_html
from labtools.optimize.state import LoopState, RoundKept
from labtools.optimize.summary import SummaryTable, best_so_far, summarise, summary_text
from labtools.toolchain.apart import stopped_compiling

UNCLOSED = {"meta", "link", "img", "br", "hr"}


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    path = tmp_path_factory.mktemp("summary")
    play(path)
    return LoopFolder.look(path).state


class Page(HTMLParser):
    """Holds a page to its promises: every tag is closed, nothing is fetched, nothing runs."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in UNCLOSED:
            self.open.append(tag)
        for name, value in attrs:
            outside = name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
            if outside or name.startswith("on"):
                self.fetched.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in UNCLOSED:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_text_tells_the_whole_loop(state):
    text = summary_text(state)
    for number in (1, 2, 3):
        assert f"r{number}b2" in text
        assert all(method in text for method in METHODS[number])
    (migration,) = [one for one in summarise(state) if one.title.startswith("Migration")]
    assert [row[1:5] for row in migration.rows] == [
        ("0.90", "missing", "0.50", "chain"),
        ("0.90", "0.40", "0.50", "chain"),
        ("0.90", "0.30", "0.50", "bandwidth"),
    ]
    assert [row[5] for row in migration.rows] == ["1/1/1"] * 3
    (classes,) = [one for one in summarise(state) if one.title == "Classes"]
    assert dict(classes.rows)["implementation failed"] == (
        "latency.async, memory.swizzle, latency.stages"
    )
    assert dict(classes.rows)["ineffective"] == "none"
    assert "us at 1,32,8,4096,128" in text
    (attribution,) = [one for one in summarise(state) if one.title == "Attribution"]
    assert attribution.rows[0][3:5] == ("+30.0%", "+29.5% to +30.5%")


def test_best_so_far_never_rises(state):
    found = [time for time in best_so_far(state) if time is not None]
    assert found == sorted(found, reverse=True)
    assert found[-1] == min(run.time_us for run in state.timed if run.time_us is not None)
    assert len(best_so_far(state)) == state.runs


def test_a_large_value_does_not_flatten_the_others(state):
    """Half the time is as far away at one end of the axis as at the other."""
    times = (1.0, 2.0, 4.0, 400.0)
    runs = tuple(replace(state.timed[0], purpose="branch", time_us=us) for us in times)
    axes = Figure().subplots()
    assert page_module._plot_best(axes, replace(state, timed=runs)) is not None
    at = [float(axes.transData.transform((1, us))[1]) for us in times]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1]) and at[1] - at[0] > 20


def test_the_page_is_whole_and_needs_nothing_else(state):
    text = summary_html(state)
    page = Page()
    page.feed(text)
    assert not page.open
    assert not page.fetched
    assert page.tags.count("svg") == 4
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not re.search(r"url\((?!#)|@import", text)
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert len(text) < 400_000
    assert summary_html(state) == text
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert ids and len(set(ids)) == len(ids)
    used = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text)
    assert used and {first or second for first, second in used} <= set(ids)


def test_what_is_written_into_a_loop_is_text(tmp_path):
    with LoopFolder.create(tmp_path, begin(family="<script>alert(1)|x")) as folder:
        folder.keep(gaps_of(1))
        text = summary_html(folder.state)
        assert "<script" not in text
        assert "&lt;script&gt;" in text
        sources = summary_html(folder.state, ("int a;\n</pre>", "int b;\n</pre><script>"))
        assert "<script" not in sources
        assert "<del>-int a;</del>" in sources and "<ins>+int b;</ins>" in sources
        assert "&lt;/pre&gt;&lt;script&gt;" in sources


def test_a_loop_that_has_just_begun_has_a_summary(tmp_path):
    with LoopFolder.create(tmp_path, begin()) as folder:
        assert "No round has begun" in summary_text(folder.state)
        page = Page()
        page.feed(summary_html(folder.state))
        assert not page.open
        assert "svg" not in page.tags


def table_of(state: LoopState, title: str) -> SummaryTable:
    """A part of the summary."""
    return next(one for one in summarise(state) if one.title == title)


def changed(state: LoopState, number: int, **values: object) -> LoopState:
    """A loop with one of its rounds changed."""
    rounds = [
        replace(one, **values) if one.round == number else one  # type: ignore[arg-type]
        for one in state.history
    ]
    return replace(state, history=tuple(rounds))


def effect(method: str, relative: float) -> Attribution:
    """A method, or two, without which the point takes longer."""
    ends = (relative - 0.005, relative + 0.005)
    return Attribution(method, "without", relative, relative, *ends, 0.02, "above")


def test_an_abandoned_round_is_marked_with_its_champion(state):
    abandoned = changed(state, 2, abandoned=True)
    assert [row[3] for row in table_of(abandoned, "Rounds").rows] == [
        *("r1b2", "r2b2 (abandoned)", "r3b2")
    ]
    empty = replace(state, history=(RoundKept(1, abandoned=True),))
    assert table_of(empty, "Rounds").rows[0][3] == "abandoned"


def test_a_limit_of_the_compiler_is_told_and_other_failures_are_not(state):
    why = stopped_compiling("mine.cu", "it did not end within 5 s of processor time").clause
    limited = changed(state, 1, untimed={"memory.wide": why, "latency.async": "wrong at row 3"})
    (said,) = limited.say_stopped()
    assert "round 1" in said and "memory.wide" in said and "5 s" in said
    assert said in table_of(limited, "Result").note
    assert not list(state.say_stopped())


def test_the_forecast_is_held_against_what_it_chose(state):
    def hits(changed: LoopState) -> tuple[int, int] | None:
        found = changed.forecast_hits
        return None if found is None else (found.led, found.rounds)

    given = tuple(replace(one, why="given") for one in state.history[0].branches)
    assert hits(state) == (3, 3)
    assert hits(changed(state, 1, branches=given)) == (2, 2), "it chose none of these"
    assert hits(changed(state, 3, abandoned=True)) == (2, 2)
    assert hits(replace(state, on="forecast")) is None, "it is always right about itself"
    assert "forecast" not in dict(table_of(replace(state, on="forecast"), "Result").rows)
    one = replace(state, history=state.history[:1])
    assert str(one.forecast_hits).endswith("led 1 of 1 round")
