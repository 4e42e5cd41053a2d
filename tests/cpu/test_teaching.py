"""Estimates of a page's time, routes through the pages, and the predictions of a class."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from labtools.cli.outcome import plain
from labtools.cli.predictions import list_predictions
from labtools.notebook.classroom import read_handed_in, show_class
from labtools.notebook.effort import (
    LINES_A_MINUTE,
    QUESTION_MINUTES,
    WORDS_A_MINUTE,
    effort_of,
    route_of,
)
from labtools.notebook.labs.lab04_predict.draw import LEVELS
from labtools.problem import LabError
from labtools.record import Journal
from tools.toc import toc_pages

ROOT = Path(__file__).resolve().parents[2]
PAGE = """---
kernelspec: {name: python3}
---

# A page

Four words of prose.

```{code-cell} ipython3
:tags: [lesson]

import math

print(math.pi)
```

```{code-cell} ipython3
from labtools.notebook import ask
gate = ask("one", "Which?")
```

```{exercise}
:label: ex-one

Say why.
```

````{solution} ex-one
Many words that nobody has to read in order to follow the page.
````
"""


def test_what_a_page_holds() -> None:
    found = effort_of(PAGE)
    assert (found.title, found.lines, found.questions, found.exercises) == ("A page", 2, 1, 1)
    # The title, the sentence and the exercise; neither its label nor its solution.
    assert found.words == 2 + 4 + 2
    expected = found.words / WORDS_A_MINUTE + 2 / LINES_A_MINUTE + QUESTION_MINUTES
    assert found.minutes == pytest.approx(expected)


def test_rounds_that_are_played_are_questions_and_rounds_that_are_shown_are_not() -> None:
    drawn, shown = "rounds = draw_rounds(seed, per_level=2)", "show_rounds(draw_rounds(1, 1))"
    cells = [f"```{{code-cell}} ipython3\n{one}\n```\n" for one in (drawn, shown)]
    played = "```{code-cell} ipython3\ngame = play_rounds(rounds, page=page)\n```\n"
    assert effort_of("\n".join([PAGE, *cells])).questions == 1
    assert effort_of("\n".join([PAGE, *cells, played])).questions == 1 + 2 * len(LEVELS)
    assert effort_of((ROOT / "labs/lab04_predict.md").read_text()).questions == 3 * len(LEVELS)


def test_a_page_without_a_title_is_refused() -> None:
    with pytest.raises(LabError, match="no title"):
        effort_of("prose alone\n")


ROUTES = [
    ("book/index.md", "A short path"),
    ("book/teach.md", "Two hours"),
    ("book/teach.md", "One day"),
    ("book/teach.md", "One lesson alone"),
]


@pytest.mark.parametrize(("page", "heading"), ROUTES)
def test_routes_lead_to_pages_of_the_site(page: str, heading: str) -> None:
    known = {f"{name}.md" for name in toc_pages(ROOT)}
    route = route_of(page, heading)
    assert len(set(route)) == len(route) >= 6
    assert set(route) <= known


@pytest.mark.parametrize(("heading", "limit"), [("Two hours", 120), ("One day", 360)])
def test_a_plan_leaves_time_for_the_class(heading: str, limit: int) -> None:
    efforts = [effort_of((ROOT / page).read_text()) for page in route_of("book/teach.md", heading)]
    assert sum(effort.minutes for effort in efforts) < 0.6 * limit


def test_the_start_page_leads_to_every_page() -> None:
    text = (ROOT / "book/index.md").read_text()
    for name in toc_pages(ROOT)[1:]:
        link = name.removeprefix("book/") if name.startswith("book/") else f"../{name}"
        if not name.startswith("book/ladder/r"):  # each rung's page leads to the next
            assert f"({link}.md)" in text, name


def test_a_route_without_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# Page\n\n## Way\n\nNo list.\n")
    with pytest.raises(LabError, match="names no pages"):
        route_of("page.md", "Way", tmp_path)


def hand_in(folder: Path, name: str, ratios: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """What `labtools journal --json` writes for a member who said these ratios; the truth is 2."""
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(folder / f"{name}.sqlite"))
    journal = Journal()
    for ratio in ratios:
        journal.commit("question", "page", "faster" if ratio > 1 else "slower", ratio)
    journal.reveal("question", 2.0, "recorded")
    (folder / f"{name}.json").write_text(json.dumps(plain(list_predictions(None))))


def test_a_class_is_compared_by_first_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in(tmp_path, "ann", [1.0 / 2, 2.0], monkeypatch)
    hand_in(tmp_path, "bob", [2.0], monkeypatch)
    members = read_handed_in(tmp_path)
    assert {name: len(rows) for name, rows in members.items()} == {"ann": 1, "bob": 1}
    (row,) = (
        line
        for line in show_class(members).text.splitlines()
        if line.startswith("question") and "of 2" in line
    )
    assert "1 of 2" in row  # ann's first answer had the wrong direction
    assert "2.00" in row and "4.00" in row  # off by 4 and by 1


def test_answers_are_handed_in_with_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, said in {"ann": "barrier", "bob": "wait"}.items():
        hand_in(tmp_path, name, [2.0], monkeypatch)
        journal = Journal()
        journal.commit_answer("which", "page", said)
        journal.reveal_answer("which", "wait", "recorded")
        (tmp_path / f"{name}.json").write_text(json.dumps(plain(list_predictions(None))))
    shown = show_class(read_handed_in(tmp_path)).text
    (row,) = (line for line in shown.splitlines() if line.startswith("which"))
    assert re.search(r"\b2\b.*\b1 of 2\b", row)
    assert re.search("question .*2 of 2", shown)


BEFORE = """{"reader": "ann", "file": "journal.jsonl", "notices": [], "predictions": [{
  "prediction": {"entry_id": "1", "at": "2026-11-27T18:05:00Z", "reader": "ann",
    "question_id": "q", "kind": "prediction", "page": "labs/one", "direction": "faster",
    "ratio": 2.0, "note": "", "after_reveal": false},
  "reveal": {"entry_id": "2", "at": "2026-11-27T18:05:02Z", "reader": "ann", "question_id": "q",
    "kind": "reveal", "measured_ratio": 1.6, "source": "recorded", "what": "r03 against r02",
    "where": "", "interval": [1.5, 1.7], "forecast_ratio": 2.0},
  "score": {"predicted_ratio": 2.0, "measured_ratio": 1.6, "predicted_direction": "faster",
    "measured_direction": "faster", "direction_right": true, "off_by": 1.25, "understood": true,
    "verdict": "Direction right, 1.25x off: close."},
  "model": null, "hints": []}]}"""
"""As it was written when a ratio was all that a question could ask for."""


def test_a_hand_in_from_before_answers_is_read(tmp_path: Path) -> None:
    (tmp_path / "ann.json").write_text(BEFORE)
    (row,) = read_handed_in(tmp_path)["ann"]
    assert row.score.off_by == 1.25 and row.reveal.measured_ratio == 1.6


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cat.json").write_text('{"predictions": [{"meow": 1}]}')
    with pytest.raises(LabError, match=r"cat\.json is no list of predictions"):
        read_handed_in(tmp_path)


@pytest.mark.parametrize("text", ["[" * 200_000, "pipe"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cat.json"
    if text == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(text)
    with pytest.raises(LabError, match=r"cat\.json is no list of predictions"):
        read_handed_in(tmp_path)


@pytest.mark.parametrize("claimed", ["1.0", "0", "-3", "NaN", "Infinity"])
def test_a_score_that_was_handed_in_is_not_believed(tmp_path: Path, claimed: str) -> None:
    forged = BEFORE.replace('"off_by": 1.25', f'"off_by": {claimed}')
    (tmp_path / "ann.json").write_text(forged)
    (row,) = read_handed_in(tmp_path)["ann"]
    assert row.score.off_by == 1.25


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    assert "Nothing was handed in" in show_class(read_handed_in(tmp_path)).text
