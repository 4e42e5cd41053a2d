"""The gate: a reader predicts before a result shows; nobody there, nothing blocks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labtools.notebook import Gate, PredictionPending, Speedup
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


def heard_by(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(gate.view, "send", lambda content: told.append(content["kind"]))
    return told


def test_a_stopped_run_goes_on_after_the_guess(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = make_gate(journal)
    told = heard_by(gate, monkeypatch)
    with pytest.raises(PredictionPending):
        gate.require_prediction()
    gate._receive(None, {**GUESS, "ratio": 0.5}, [])
    assert told == ["waiting"], "a refused guess lets nothing run"
    gate._receive(None, GUESS, [])
    gate._receive(None, GUESS, [])
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
