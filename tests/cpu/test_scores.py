"""How far a reader came with each kernel, and whether the guesses became better."""

from __future__ import annotations

from pathlib import Path

import pytest

from labtools.cli import main
from labtools.notebook.scores import (
    Stage,
    calibration,
    keep_progress,
    progress_html,
    read_progress,
)
from labtools.record.journal import Journal

PASSED = [Stage(name, True, f"{name} said") for name in ("it compiles", "one row is right")]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.sqlite", reader="a reader")


def test_the_furthest_that_a_kernel_came_is_kept(journal: Journal) -> None:
    keep_progress("my_r02", PASSED, journal)
    keep_progress("my_r02", [*PASSED[:1], Stage("one row is right", False, "off")], journal)
    keep_progress("my_r03", [Stage("it compiles", False, "no")], journal)
    came = {one.kernel: (one.stages, one.said) for one in read_progress(journal) if one.at}
    assert came == {"my_r02": (2, "one row is right said")}
    assert "2 of 5" in progress_html(journal)
    # What somebody else wrote there counts as nothing.
    for stages in ("6", "-1", "many"):
        journal.write_notes("kernel-my_r03", "page", {"stages": stages})
        assert [one.stages for one in read_progress(journal) if one.kernel == "my_r03"] == [0]


def test_the_second_half_of_the_guesses_is_compared_with_the_first(journal: Journal) -> None:
    for number, ratio in enumerate((8.0, 0.5, 2.0, 3.0)):
        journal.commit(f"q{number}", "page", "faster" if ratio > 1 else "slower", ratio)
        journal.reveal(f"q{number}", 2.0)
    journal.commit("q0", "page", "faster", 2.0)  # after it was shown
    told = calibration(journal.history())
    assert told == [("first half", 2, "1 of 2", "4.00"), ("second half", 2, "2 of 2", "1.22")]
    assert calibration(journal.history("q2")) == [("all of them", 1, "1 of 1", "1.00")]


def test_the_page_is_written_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "journal.sqlite"))
    keep_progress("my_r02", PASSED)
    page = tmp_path / "mine.html"
    assert main(["journal", "--html", str(page)]) == 0
    text = page.read_text()
    assert "my_r02" in text and "one row is right said" in text and "src=" not in text
    assert main(["journal", "--html", str(tmp_path / "nowhere" / "mine.html")]) == 3
    assert "cannot be written" in capsys.readouterr().err
