"""The gate: a reader predicts before a result shows; nobody there, nothing blocks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labtools.notebook import Gate, PredictionPending, Speedup
from labtools.notebook.answer import AnswerGate, ask_choice, ask_numbers
from labtools.notebook.gate import Question
from labtools.notebook.reader import reader_present
from labtools.problem import LabError
from labtools.record.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.sqlite", reader="reader")


def make_gate(journal: Journal, reader: bool = True) -> Gate:
    return Gate("q", "Which?", "old", "new", page="page", journal=journal, reader=reader)


@pytest.mark.parametrize(
    ("session", "forced", "present"),
    [("", "", False), ("/x/lab.md", "", True), ("/x/lab.md", "0", False), ("", "1", True)],
)
def test_who_counts_as_a_reader(
    monkeypatch: pytest.MonkeyPatch, session: str, forced: str, present: bool
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", session)
    monkeypatch.setenv("LABTOOLS_READER", forced)
    assert reader_present() is present


def test_a_reader_without_a_guess_is_stopped_with_one_plain_line(journal: Journal) -> None:
    gate = make_gate(journal)
    called = []
    with pytest.raises(PredictionPending) as stopped:
        gate.result(lambda: called.append("measured"))
    assert isinstance(stopped.value, LabError)
    (line,) = stopped.value._render_traceback_()
    assert "waits for your prediction" in line
    assert called == [], "the measurement ran before the prediction"
    assert not journal.lines.exists()


def test_the_form_commits_and_the_result_is_scored(journal: Journal) -> None:
    gate = make_gate(journal)
    gate._receive(None, {**GUESS, "note": "fewer barriers"}, [])
    assert gate.view.state["committed"]
    assert "2.00x faster" in gate.view.state["message"]
    shown = gate.result((100.0, 62.5), recorded=Speedup(1.5, "recorded", "NVIDIA H200"))
    for text in ("predicted", "2.00x faster", "live", "1.60x faster", "recorded", "1.50x faster"):
        assert text in shown.text
    assert "Direction right" in shown.text
    assert "prov-live" in shown.html and "prov-recorded" in shown.html
    (row,) = journal.history()
    assert row.reveal.source == "live"
    assert row.prediction.note == "fewer barriers"


GUESS = {"kind": "commit", "direction": "faster", "ratio": 2.0}


FORMS = {
    "choice": {"kind": "choice", "choices": ["load of k", "load of v"]},
    "numbers": {"kind": "numbers", "labels": ["blocks", "room for"]},
}
ANSWERS = {
    "choice": [{"kind": "commit", "choice": said} for said in ("none", "load of v", "load of k")],
    "numbers": [
        {"kind": "commit", "numbers": said} for said in ([32], [32, 1000], [32, 1056], [32, None])
    ],
}
"""Of each kind what is refused, what is wrong, and what is right."""
RIGHT = {"choice": "load of k", "numbers": (32, 1056)}


def make_answer(journal: Journal | None, kind: str, reader: bool = True) -> AnswerGate:
    return AnswerGate("q", "Which?", FORMS[kind], page="page", journal=journal, reader=reader)


def heard_by(gate: Question, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(gate.view, "send", lambda content: told.append(content["kind"]))
    return told


@pytest.mark.parametrize("kind", ["ratio", "choice", "numbers"])
def test_a_stopped_run_goes_on_after_the_guess(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    gate, sent, refused = make_gate(journal), GUESS, {**GUESS, "ratio": 0.5}
    if kind != "ratio":
        gate = make_answer(journal, kind)
        refused, sent, *_ = ANSWERS[kind]
    told = heard_by(gate, monkeypatch)
    with pytest.raises(PredictionPending):
        gate.require_prediction()
    gate._receive(None, refused, [])
    assert told == ["waiting"], "a refused guess lets nothing run"
    gate._receive(None, sent, [])
    gate._receive(None, sent, [])
    assert told == ["waiting", "go on"], "the run goes on once"
    # Somebody who runs cell by cell is not run away from.
    unhurried = Gate("q2", "Which?", "old", "new", page="page", journal=journal, reader=True)
    told = heard_by(unhurried, monkeypatch)
    unhurried._receive(None, GUESS, [])
    assert told == []


def test_a_refused_guess_and_a_lost_one_are_told_in_the_form(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = make_gate(journal)
    before = gate.view.state
    gate._receive(None, {**GUESS, "ratio": 0.5}, [])
    assert not gate.view.state["committed"] and gate.view.state != before
    assert "contradict" in gate.view.state["message"]
    gate._receive(None, {"kind": "commit", "direction": None, "ratio": None}, [])
    assert not gate.view.state["committed"]
    with pytest.raises(PredictionPending):
        gate.result(2.0)
    gate._receive(None, {**GUESS, "note": "half \ud83d"}, [])  # any characters are kept
    assert gate.view.state["committed"]

    def fail(*_: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(journal, "commit", fail)
    gate._receive(None, GUESS, [])
    assert not gate.view.state["committed"] and "something else" in gate.view.state["message"]


def test_an_answer_shows_though_the_journal_cannot_note_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = make_gate(journal)
    gate.commit("faster", 2.0)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("labtools.record.journal.os.fsync", fail)
        shown = gate.result(1.9)
    assert "Direction right" in shown.text and "No space left on device" in shown.text
    assert "could not be kept" not in gate.result(1.9).text
    assert len(journal.lines.read_text().splitlines()) == 2


def test_nobody_there(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    gate = make_gate(journal, reader=False)
    assert gate.view is None
    shown = gate.result(2.0)
    assert capsys.readouterr().out == ""
    assert shown.html.startswith("<details")
    assert 'data-of="q"' in shown.html
    untold = "predicted|no GPU here|no record|Your score"
    assert not re.search(untold, shown.text), "what is not there is told"
    assert not journal.lines.exists()


def test_a_journal_that_cannot_be_used_does_not_lock_the_reader_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "file" / "journal.sqlite"))
    gate = Gate("q", "Which?", "old", "new", reader=True)
    assert "cannot be written" in gate.view.state["message"]
    assert "could not be kept" in gate.result(2.0).text


@pytest.mark.parametrize("bad", ["2.0", object(), True, (1.0, 2.0, 3.0), (0.0, 1.0)])
def test_what_is_no_result_is_refused_and_none_is_told(journal: Journal, bad: object) -> None:
    gate = make_gate(journal)
    gate.commit("faster", 2.0)
    with pytest.raises(LabError):
        gate.result(bad)
    text = gate.result(None).text
    assert "no GPU here" in text and "no record yet" in text
    assert journal.history()[0].reveal is None, "without a result the question stays open"


# -- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        (
            "choice",
            "You said load of v. The model says: load of k. Because. [forecast]",
            "You were right. The model says: load of k. Because. [forecast]",
        ),
        (
            "numbers",
            "blocks: 32, as you said. room for: 1056; you: 1000. Because. [forecast]",
            "blocks: 32, as you said. room for: 1056, as you said. Because. [forecast]",
        ),
    ],
)
def test_an_answer_is_kept_compared_and_outlives_the_kernel(
    journal: Journal, kind: str, wrong: str, right: str
) -> None:
    gate = make_answer(journal, kind)
    asked: list[str] = []

    def result(of: AnswerGate) -> str:
        return of.result(lambda: asked.append("right") or RIGHT[kind], lambda: "Because.").text

    with pytest.raises(PredictionPending, match="waits for your"):
        result(gate)
    assert asked == [], "the answer was looked up before there was a guess"
    refused, first, second, *others = ANSWERS[kind]
    for content in (refused, *others):
        gate._receive(None, content, [])
        assert not gate.view.state["committed"] and "not kept" in gate.view.state["message"]
    assert not journal.lines.exists()
    gate._receive(None, first, [])
    assert gate.view.state["committed"]
    assert result(gate) == wrong
    # Another kernel: the answer is there, and a new guess is marked and does not count.
    again = make_answer(Journal(journal.database, reader="reader"), kind)
    assert re.match("Committed .*(load of v|32, 1000)", again.view.state["message"])
    assert "does not count" in again.view.again_message
    again._receive(None, second, [])
    assert "does not count" in again.view.state["message"]
    assert result(again) == wrong, "the first guess counts"
    counted, late = journal.history()
    assert counted.score.verdict == "Wrong." and late.prediction.after_reveal
    assert len(journal.lines.read_text().splitlines()) == 3, "the same answer is noted once"
    # Who changes their mind before the answer shows is judged by the last guess.
    other = AnswerGate("q2", "Which?", FORMS[kind], page="page", journal=journal, reader=True)
    for content in (first, second):
        other._receive(None, content, [])
    assert result(other) == right


def test_a_guess_after_the_answer_says_so_with_the_result(journal: Journal) -> None:
    gate = make_answer(journal, "choice")
    journal.reveal_answer("q", "load of k", "recorded")
    gate.commit("load of k")
    shown = gate.result("load of k", word="recorded").text
    assert shown.startswith("This guess was made after the answer was shown and does not count.")
    assert "The record says: load of k." in shown


def test_an_answer_shows_though_the_journal_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "file" / "journal.sqlite"))
    gate = make_answer(None, "numbers")
    assert "cannot be written" in gate.view.state["message"]
    shown = gate.result((32, 1056), word="computed").text
    assert shown.startswith("blocks: 32. room for: 1056. Your guess could not be kept.")


def test_an_answer_that_is_not_there_leaves_the_question_open(journal: Journal) -> None:
    gate = make_answer(journal, "numbers")
    gate.commit((32, 1000))
    assert "Your guess is kept and stays open." in gate.result(lambda: None).text
    assert journal.history()[0].reveal is None


def test_answers_where_nobody_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABTOOLS_READER", "0")
    choice = ask_choice("q", "Which?", ("load of k", "load of v"))
    numbers = ask_numbers("q", "How many?", ["blocks"])
    asked = capsys.readouterr().out
    assert "Which?" in asked and "How many?" in asked
    assert "The model says: load of k." in choice.result("load of k").text
    folded = numbers.result([32], word="computed").html
    assert folded.startswith("<details") and 'data-of="q"' in folded
    assert "{&quot;right&quot;: [32]}" in folded and "You" not in folded and "you" not in folded
