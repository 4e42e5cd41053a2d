"""The prediction journal keeps what was entered, whatever happens to its files."""

from __future__ import annotations

import itertools
import json
import math
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from labtools.problem import LabError, repository_root
from labtools.record import journal as journal_module
from labtools.record import prediction
from labtools.record.folders import work_dir
from labtools.record.journal import Journal, JournalError, JournalWarning, _class_table, _columns
from labtools.record.prediction import MISUNDERSTOOD_FROM, direction_of, score

ratios = st.floats(min_value=1e-3, max_value=1e3)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.sqlite", reader="reader")


def reopened(journal: Journal) -> Journal:
    return Journal(journal.database, reader=journal.reader)


# -- scoring -------------------------------------------------------------------------------


@given(predicted=ratios, measured=ratios)
def test_off_by_is_the_larger_quotient(predicted: float, measured: float) -> None:
    result = score(predicted, measured)
    assert result.off_by == pytest.approx(max(predicted / measured, measured / predicted))
    assert result.off_by >= 1
    assert result.understood == (result.off_by < MISUNDERSTOOD_FROM)
    assert ("do not yet understand the bottleneck" in result.verdict) != result.understood
    assert result.direction_right == (direction_of(predicted) == direction_of(measured))


def test_four_times_off_is_the_limit() -> None:
    assert "do not yet understand" in score(8.0, 2.0).verdict
    assert "do not yet understand" in score(0.5, 2.0).verdict
    assert "do not yet understand" not in score(7.9, 2.0).verdict
    # The factor that the guess is off by, and the one that it is held against, in one sentence.
    assert re.fullmatch(r"Direction right, 4\.0x off: 4x or more, [^.]+\.", score(8.0, 2.0).verdict)


def test_an_interval_decides_what_same_means() -> None:
    assert direction_of(1.2) == "faster"
    assert direction_of(1.2, (0.9, 1.4)) == "same"
    assert direction_of(1.02) == "same"
    assert direction_of(1.02, (1.01, 1.03)) == "faster"
    assert direction_of(0.5) == "slower"


def test_a_guess_or_a_result_that_is_none_is_refused(journal: Journal) -> None:
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(LabError):
            score(2.0, bad)
        with pytest.raises(JournalError, match="not entered"):
            journal.reveal("q", bad)
    with pytest.raises(JournalError, match="not entered"):
        journal.reveal("q", 2, source="guessed")
    opposed = (("faster", 0.5), ("slower", 2), ("same", 3))
    for direction, ratio in (*opposed, ("quicker", 2), ("faster", math.nan)):
        with pytest.raises(JournalError, match="not kept"):
            journal.commit("q", "page", direction, ratio)
    assert journal.history() == [] and not journal.lines.exists()


# -- keeping -------------------------------------------------------------------------------


def test_commit_reveal_history(journal: Journal) -> None:
    guess = journal.commit("q", "labs/one", "faster", 2.0, note="half the bytes")
    assert journal.prediction("q") == guess
    for _ in range(3):  # the same answer again adds nothing
        result = journal.reveal("q", 1.6, source="recorded", what="r03 against r02")
        assert result is not None
        assert result.direction_right
        assert result.off_by == pytest.approx(1.25)
    (row,) = reopened(journal).history()
    assert row.prediction == guess
    assert row.reveal is not None
    assert row.reveal.source == "recorded"
    assert row.score == result
    assert len(journal.lines.read_text().splitlines()) == 2


def test_reveal_without_a_guess_scores_nothing(journal: Journal) -> None:
    assert journal.reveal("q", 2.0) is None
    assert journal.history() == []
    late = journal.commit("q", "page", "faster", 2.0)
    assert late.after_reveal


def test_a_changed_mind_counts_before_the_reveal_and_is_marked_after_it(journal: Journal) -> None:
    first = journal.commit("q", "page", "faster", 4.0)
    changed = journal.commit("q", "page", "slower", 0.5)
    assert journal.prediction("q") == changed
    journal.reveal("q", 2.0, source="recorded")
    late = journal.commit("q", "page", "faster", 2.0)
    assert [guess.after_reveal for guess in (first, changed, late)] == [False, False, True]
    assert [row.prediction for row in journal.history("q")] == [first, changed, late]
    again = journal.reveal("q", 2.0, source="recorded")
    assert again is not None
    assert not again.direction_right
    assert journal.prediction("q") == changed


def test_a_clock_that_jumps_changes_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry is an hour before the one above it."""
    hours = itertools.count()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2026, 1, 2, 12, tzinfo=tz) - timedelta(hours=next(hours))

    monkeypatch.setattr(prediction, "datetime", Clock)
    journal.commit("q", "page", "slower", 0.5)
    later = journal.commit("q", "page", "faster", 2)
    assert journal.reveal("q", 2.0, what="a") == journal.history("q")[1].score
    assert journal.prediction("q") == later
    assert [row.prediction.after_reveal for row in journal.history("q")] == [False, False]
    assert all(row.reveal and row.score for row in journal.history("q"))
    assert journal.commit("q", "page", "faster", 3).after_reveal
    assert reopened(journal).prediction("q") == later
    text = journal.lines.read_text()
    for moment in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-14:00", "2026-01-02T12:00:00"):
        entry = json.loads(text.splitlines()[0]) | {"entry_id": moment, "at": moment}
        journal.lines.write_text(f"{json.dumps(entry)}\n{text}")
        with pytest.warns(JournalWarning, match="1 line"):
            assert reopened(journal).prediction("q") == later


def test_a_folder_that_is_moved_meanwhile_is_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "work" / "journal.sqlite", reader="reader")
    first = journal.commit("q", "page", "faster", 2)
    (tmp_path / "work").rename(tmp_path / "moved")
    with pytest.warns(JournalWarning, match="was moved or removed"):
        second = journal.commit("q", "page", "faster", 3)
    assert len(journal.notices) == 1
    moved = tmp_path / "moved" / "journal.jsonl"
    with moved.open("a") as file:
        file.write(journal.lines.read_text())
    both = Journal(moved.with_suffix(".sqlite"), reader="reader").history("q")
    assert [row.prediction for row in both] == [first, second]


def test_readers_do_not_see_each_other(tmp_path: Path) -> None:
    one = Journal(tmp_path / "j.sqlite", reader="one")
    two = Journal(tmp_path / "j.sqlite", reader="two")
    one.commit("q", "page", "faster", 2.0)
    assert two.prediction("q") is None
    two.commit("q", "page", "slower", 0.5)
    assert one.prediction("q").direction == "faster"
    assert Journal(tmp_path / "j.sqlite", reader="two").prediction("q").direction == "slower"


def test_comparison_with_the_forecast(journal: Journal) -> None:
    assert journal.compare_with_forecast().reader_off_by is None
    asked = {"a": (4, 2, 1.9), "b": (8, 1, 1.1), "c": (8, 1, None)}
    for question, (guess, measured, forecast) in asked.items():
        journal.commit(question, "page", "faster", guess)
        journal.reveal(question, measured, source="recorded", forecast_ratio=forecast)
    both = journal.compare_with_forecast()
    assert len(both.rows) == 2
    assert both.reader_off_by == pytest.approx(math.sqrt(2 * 8))
    assert both.model_off_by == pytest.approx(math.sqrt(2 / 1.9 * 1.1))


def test_the_url_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", f"sqlite:///{tmp_path}/class.sqlite")
    Journal(reader="x").commit("q", "page", "same", 1.0)
    assert (tmp_path / "class.jsonl").exists()
    monkeypatch.delenv("LABTOOLS_JOURNAL_URL")
    assert work_dir() == repository_root() / "work"
    monkeypatch.setattr("labtools.record.journal.work_dir", lambda: tmp_path / "work")
    assert Journal(reader="x").database == tmp_path / "work" / "journal.sqlite"


def test_a_url_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no usable address"):
        Journal("://", lines=tmp_path / "j.jsonl")


# -- damage --------------------------------------------------------------------------------


def commit_three(journal: Journal) -> None:
    journal.commit("a", "page", "faster", 2.0, note="é")
    journal.reveal("a", 3.0, source="recorded")
    journal.commit("b", "page", "slower", 0.5)


def to_a_database(journal: Journal, path: Path) -> None:
    """The lines as an index in SQLite, as it once stood beside them."""
    table = _class_table()
    engine = sa.create_engine(f"sqlite:///{path}")
    table.metadata.create_all(engine)
    with engine.begin() as connection:
        rows = [_columns(entry) for entry in journal._entries()]
        connection.execute(sa.insert(table), rows)
    engine.dispose()


@pytest.mark.parametrize("kept_lines", [0, 1, 3])
def test_what_an_old_database_alone_holds_is_taken_over_once(
    journal: Journal, kept_lines: int
) -> None:
    commit_three(journal)
    before = journal.history()
    to_a_database(journal, journal.database)
    lines = journal.lines.read_text().splitlines(keepends=True)
    journal.lines.write_text("".join(lines[:kept_lines]))
    for _ in range(2):
        assert reopened(journal).history() == before
        assert len(journal.lines.read_text().splitlines()) == 3
    assert not journal.database.exists()
    assert journal.database.with_name("journal.sqlite.taken-over").exists()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "other tables"])
def test_a_damaged_old_database_is_told_and_kept_aside(journal: Journal, damage: str) -> None:
    commit_three(journal)
    before = journal.history()
    to_a_database(journal, journal.database)
    content = journal.database.read_bytes()
    if damage == "garbage":
        journal.database.write_bytes(b"not a database at all" * 500)
    elif damage == "truncated":
        journal.database.write_bytes(content[: len(content) // 2])
    else:
        journal.database.unlink()
        with sqlite3.connect(journal.database) as other:
            other.execute("CREATE TABLE journal_entries (something TEXT)")
        other.close()
    damaged = journal.database.read_bytes()
    with pytest.warns(JournalWarning, match="cannot be read"):
        assert journal.history() == before
    assert journal.database.with_name("journal.sqlite.damaged").read_bytes() == damaged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        journal.commit("c", "page", "same", 1.0)
        assert len(reopened(journal).history()) == 3


BEFORE = """
{"entry_id":"1","at":"2026-11-27T18:05:00Z","reader":"reader","question_id":"q","kind":"prediction",\
"page":"labs/one","direction":"faster","ratio":2.0,"note":"half","after_reveal":false}
{"entry_id":"2","at":"2026-11-27T18:05:01Z","reader":"reader","question_id":"q","kind":"hint",\
"page":"labs/one","hint":"roof","after_commit":true}
{"entry_id":"3","at":"2026-11-27T18:05:02Z","reader":"reader","question_id":"q","kind":"reveal",\
"measured_ratio":1.6,"source":"recorded","what":"r03 against r02","where":"","interval":[1.5,1.7],\
"forecast_ratio":2.0}
{"entry_id":"4","at":"2026-11-27T18:05:03Z","reader":"reader","question_id":"n","kind":"notes",\
"page":"labs/one","fields":{"why":"x"}}
"""
"""Lines as they were written when a ratio was all that a question could ask for."""


def test_a_journal_from_before_answers_is_read_and_goes_on(journal: Journal) -> None:
    journal.lines.write_text(BEFORE)
    (row,) = journal.history()
    assert row.score.verdict == score(2.0, 1.6).verdict and row.reveal.forecast_ratio == 2.0
    assert journal.notes("n").fields == {"why": "x"}
    assert journal.prediction("q") == row.prediction and journal.answer("q") is None
    journal.reveal("q", 1.6, "recorded", "r03 against r02", interval=(1.5, 1.7), forecast_ratio=2.0)
    assert journal.lines.read_text() == BEFORE, "the same answer was noted again"
    journal.commit_answer("s", "page", "barrier")
    assert [row.prediction.question_id for row in reopened(journal).history()] == ["q", "s"]
    assert journal.compare_with_forecast().rows[0][0] == row


NEWER = b'{"entry_id":"1","at":"2026-01-02T12:00:00Z","reader":"reader","kind":"dream"}\n'


@pytest.mark.parametrize("line", [b'{"kind":"prediction","reader":"rea', NEWER])
def test_a_line_that_is_torn_or_newer_costs_only_itself(journal: Journal, line: bytes) -> None:
    commit_three(journal)
    with open(journal.lines, "ab") as file:
        file.write(line)
    torn = reopened(journal)
    with pytest.warns(JournalWarning, match="1 line"):
        assert len(torn.history()) == 2
    torn.commit("c", "page", "same", 1.0)
    with pytest.warns(JournalWarning):
        assert [row.prediction.question_id for row in reopened(journal).history()] == list("abc")


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Inside, no file can grow beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.filterwarnings("ignore::labtools.record.journal.JournalWarning")
def test_on_a_full_disk_what_was_said_to_be_kept_is_kept(tmp_path: Path) -> None:
    refused = []
    for number, most in enumerate((0, 1200, 1700, 2900, 4100)):
        begun = number % 2 * 2  # of two journals one is new
        journal = Journal(tmp_path / f"{number}.sqlite", reader="reader")
        said = [f"begun{i}" for i in range(begun)]
        for question in said:
            journal.commit(question, "page", "faster", 2.0)
        with full_disk(most):
            for i in range(5):
                try:
                    said.append(journal.commit(f"q{i}", "p", "same", 1, "why" * 300).question_id)
                except JournalError as error:
                    refused.append(str(error))
                assert [row.prediction.question_id for row in journal.history()] == said
            fresh = reopened(journal)
            assert [row.prediction.question_id for row in fresh.history()] == said
        for later in (journal, reopened(journal)):  # and when there is room again
            assert [row.prediction.question_id for row in later.history()] == said
        journal.commit("after", "page", "same", 1.0)
        assert len(journal.lines.read_text().splitlines()) == len(said) + 1
    assert 0 < len(refused) < 25
    assert all("too large" in why for why in refused)


def test_joined_lines_are_taken_once(journal: Journal) -> None:
    commit_three(journal)
    before = journal.history()
    journal.lines.write_bytes(journal.lines.read_bytes() * 3)
    for again in (reopened(journal), journal):
        assert again.history() == before


def test_half_a_character_costs_itself_and_not_the_guess(journal: Journal) -> None:
    kept = journal.commit("q\udce9", "page", "faster", 2.0, note="half \ud83d, whole \ud83d\ude00")
    assert kept.note == "half \ufffd, whole \U0001f600"
    journal.write_notes("q", "page", {"why": "\udfff"})
    assert reopened(journal).history()[0].prediction == kept


def test_a_class_database_out_of_reach_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "mine.jsonl"
    away = Journal("nosuchdatabase://classroom/journal", lines=lines, reader="x")
    with pytest.warns(JournalWarning, match="are sent when it answers again"):
        guess = away.commit("q", "page", "faster", 2.0)
    assert away.prediction("q") == guess
    url = sa.make_url(f"sqlite:///{tmp_path}/class.db")
    for name in (lines, tmp_path / "other.jsonl"):  # here, then on another machine
        back = Journal("nosuchdatabase://classroom/journal", lines=name, reader="x")
        monkeypatch.setattr(back, "_class", url)
        assert back.prediction("q") == guess
    later = back.commit("r", "page", "same", 1.0)
    answer = back.commit_answer("s", "page", (1, 2.5))
    monkeypatch.setattr(away, "_class", url)
    assert away.prediction("r") == later and away.answer("s") == answer
    assert Journal(lines=tmp_path / "other.jsonl", reader="y").history() == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        Journal(tmp_path / "file" / "journal.sqlite")


@pytest.mark.parametrize("name", ["journal.jsonl", "journal.sqlite"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(JournalError, match="is no file"):
        Journal(tmp_path / "journal.sqlite", lines=tmp_path / "journal.jsonl")


# -- processes -----------------------------------------------------------------------------

COMMIT_LOOP = """
import sys
from labtools.record.journal import Journal
journal = Journal(sys.argv[1], reader="x")
for i in range(int(sys.argv[3])):
    kept = journal.commit(f"{sys.argv[2]}-{i}", "page", "faster", 2.0)
    print(kept.question_id, flush=True)
"""


def start_commits(database: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMIT_LOOP, str(database), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_kill_minus_nine_loses_no_committed_guess(tmp_path: Path) -> None:
    database = tmp_path / "journal.sqlite"
    for round_number in range(3):
        process = start_commits(database, f"round{round_number}", 10_000)
        said = [process.stdout.readline().strip()]
        time.sleep(0.05 * round_number)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().split()
        process.wait()
        kept = {row.prediction.question_id for row in Journal(database, reader="x").history()}
        assert said[0]
        assert set(said) <= kept
    written = [json.loads(line) for line in database.with_suffix(".jsonl").read_bytes().split(b"\n")
               if line.endswith(b"}")]  # fmt: skip
    assert {entry["question_id"] for entry in written} == kept


def test_several_notebooks_at_once(tmp_path: Path) -> None:
    database = tmp_path / "journal.sqlite"
    count = 12
    processes = [start_commits(database, f"p{i}", count) for i in range(3)]
    said = {line for process in processes for line in process.communicate()[0].split()}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(said) == 3 * count
    kept = [row.prediction.question_id for row in Journal(database, reader="x").history()]
    assert sorted(kept) == sorted(said)
    assert len(database.with_suffix(".jsonl").read_text().splitlines()) == 3 * count


def test_a_busy_journal_says_so(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labtools.record.journal._LOCK_TIMEOUT_S", 0.1)
    holder, waiter = reopened(journal), reopened(journal)
    with holder._lock, pytest.raises(JournalError, match="busy"):
        waiter.commit("q", "page", "same", 1.0)


def test_a_class_database_gives_entries_in_an_order_that_no_clock_decides(tmp_path: Path) -> None:
    there = f"sqlite:///{tmp_path / 'class.db'}"
    engine = sa.create_engine(there)
    table = _class_table()
    table.metadata.create_all(engine)
    mine = Journal(tmp_path / "mine.sqlite", reader="me")
    mine.commit("q", "page", "faster", 2.0)
    mine.reveal("q", 1.5, "live")
    mine.commit("q", "page", "faster", 1.5)
    lines = [json.loads(line) for line in mine.lines.read_text().splitlines()]
    for back, line in enumerate(lines):  # the clock runs backward
        line["at"] = (datetime.fromisoformat(line["at"]) - timedelta(hours=back)).isoformat()
    entries = journal_module._parse([json.dumps(line) for line in lines])[0]
    with engine.begin() as connection:
        connection.execute(sa.insert(table), [_columns(one) for one in entries.values()])
    taken = journal_module._in_order(dict(reversed(entries.items())))
    assert list(taken) == list(entries)
