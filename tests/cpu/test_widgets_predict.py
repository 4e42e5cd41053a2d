"""The prediction game and the checklist page: nothing measured shows before both have committed."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from labtools.notebook import PredictionPending, Speedup
from labtools.notebook.book.checklist.form import ChecklistPage, show_checklist
from labtools.notebook.labs.lab04_predict import draw, views
from labtools.notebook.labs.lab04_predict import game as predict_round
from labtools.notebook.labs.lab04_predict.draw import (
    Round,
    all_rounds,
    draw_rounds,
    recorded_answer,
)
from labtools.notebook.labs.lab04_predict.figures import draw_score, score_bands
from labtools.notebook.labs.lab04_predict.game import PredictionRounds
from labtools.notebook.labs.lab04_predict.views import HINTS, say_change, say_sides
from labtools.notebook.tables import say_time
from labtools.predict import forecast, load_gpu
from labtools.problem import HEADLINE, LabError, load_rung
from labtools.record.journal import Journal, JournalError, score
from labtools.record.prediction import ENTRY

PAGE = "labs/lab04_predict"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.sqlite", reader="reader")


@pytest.fixture(scope="module")
def pool() -> list[Round]:
    return all_rounds()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_round, "can_run_live", lambda: False)


def cheap(level: int = 1) -> list[Round]:
    """Rounds at the headline workload, which the model answers quickly."""
    found = [one for one in all_rounds() if one.level == level and one.workload == HEADLINE]
    return [one for one in found if one.baseline.rung == "r03_one_warp"][:2] or found[:2]


@pytest.fixture
def game(journal: Journal, no_gpu: None) -> PredictionRounds:
    return PredictionRounds(cheap(), page=PAGE, journal=journal, reader=True)


# -- drawing -------------------------------------------------------------------------------


def test_a_draw_goes_from_easy_to_hard_and_varies() -> None:
    assert draw_rounds(3) == draw_rounds(3) != draw_rounds(4)
    drawn = draw_rounds(5, per_level=4)
    assert [one.level for one in drawn] == [1] * 4 + [2] * 4 + [3] * 4
    assert len({one.id for one in drawn}) == len(drawn)
    assert len({tuple(one.changed) for one in drawn}) > 1
    ways = {recorded_answer(one).value > 1 for seed in range(4) for one in draw_rounds(seed)}
    assert ways == {True, False}, "one direction would always be right"


def test_levels_hold_what_they_say(pool: list[Round]) -> None:
    assert {one.level for one in pool} == set(draw.LEVELS)
    for one in [one for one in pool if one.level == 1]:
        ratio = recorded_answer(one).value
        assert max(ratio, 1 / ratio) > 1.4 and list(one.changed) != ["kernel"]
    assert all(len(one.changed) == 1 and len(set(say_sides(one))) == 2 for one in pool)


def test_a_teacher_fixes_the_list() -> None:
    drawn = draw_rounds(9, per_level=2)
    assert draw.find_rounds([one.id for one in drawn]) == drawn
    with pytest.raises(LabError, match="no round"):
        draw.find_rounds(["0123456789"])
    with pytest.raises(LabError, match="level"):
        draw_rounds(1, levels=(4,))


def test_the_example_is_never_drawn(pool: list[Round]) -> None:
    example = draw.example_round()
    assert recorded_answer(example) is not None
    sides = {example.baseline, example.candidate}
    assert not [o for o in pool if {o.baseline, o.candidate} & sides and o.workload == HEADLINE]


def test_the_scale_says_what_the_score_says() -> None:
    for low, high, said in score_bands():
        off_by = 1.01 * low
        assert off_by < high and said in draw_score().text
        for measured in (3.0, 0.2):
            assert score(measured * off_by, measured).verdict.endswith(f"{said}.")


# -- the model's commitment ------------------------------------------------------------------

SAID: dict[str, Any] = {"baseline_us": 200.0, "candidate_us": 100.0, "band": (1.5, 2.5)}
SAID |= {"model": "some model", "gpu": "h200"}


def test_the_model_commits_once_and_before_the_answer(journal: Journal) -> None:
    with pytest.raises(JournalError):
        journal.commit_forecast("q", PAGE, **{**SAID, "candidate_us": 0.0})
    assert journal.model_prediction("q") is None
    first = journal.commit_forecast("q", PAGE, **SAID)
    assert first.ratio == 2.0
    assert re.fullmatch(r"[0-9a-f]{64}", first.seal)
    assert journal.commit_forecast("q", PAGE, **SAID) == first
    journal.commit("q", PAGE, "faster", 3.0)
    journal.reveal("q", 2.4)
    (row,) = journal.history("q")
    assert row.model == first
    assert row.reveal.forecast_ratio == 2.0
    late = journal.commit_forecast("q", PAGE, **{**SAID, "candidate_us": 83.3})
    assert late.after_reveal
    assert journal.model_prediction("q") == first
    ((_, model),) = journal.compare_with_forecast(PAGE).rows
    assert model == score(2.0, 2.4)
    assert journal.compare_with_forecast("elsewhere").rows == ()


def test_a_seal_names_no_reader_and_no_time(journal: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path / "other.sqlite", reader="somebody else")
    one, two = (j.commit_forecast("q", PAGE, **SAID) for j in (journal, other))
    assert one.seal == two.seal
    assert one.seal != journal.commit_forecast("p", PAGE, **SAID).seal


def test_a_changed_commitment_does_not_fit_its_seal(journal: Journal) -> None:
    kept = journal.commit_forecast("q", PAGE, **SAID)
    forged = {**json.loads(kept.model_dump_json()), "ratio": 2.4}
    with pytest.raises(ValueError, match="seal"):
        ENTRY.validate_python(forged)
    journal.lines.write_text(json.dumps(forged) + "\n")
    with pytest.warns(match="cannot be read"):
        assert Journal(journal.database, reader="reader").model_prediction("q") is None


def test_the_lines_alone_bring_everything_back(journal: Journal) -> None:
    journal.log_hint("q", PAGE, "code")
    journal.commit("q", PAGE, "faster", 2.0)
    journal.log_hint("q", PAGE, "residency")
    said = journal.commit_forecast("q", PAGE, **SAID)
    journal.write_notes("n", PAGE, {"refute": "no change at unroll 8"})
    journal.reveal("q", 2.0)
    again = Journal(journal.database, reader="reader")
    assert again.model_prediction("q") == said
    assert again.hints("q") == ("code",), "a hint after the commitment counts for nothing"
    assert again.notes("n").fields == {"refute": "no change at unroll 8"}
    assert again.history("q")[0].hints == ("code",)


# -- the game ------------------------------------------------------------------------------


def browser_sees(widget: Any) -> str:
    """Everything that the browser is told of a widget and of those in it."""
    state = {k: v for k, v in widget.get_state().items() if k not in ("_esm", "_css", "children")}
    inside = map(browser_sees, getattr(widget, "children", ()))
    return "\n".join([json.dumps(state, default=str), *inside])


def test_nothing_measured_is_touched_before_both_have_committed(
    game: PredictionRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(one: Round) -> Speedup:
        asked.append(one)
        assert game._journal.prediction(one.question_id) is not None
        assert game._journal.model_prediction(one.question_id) is not None
        return Speedup(3.21, "recorded", "NVIDIA H200", baseline_us=456.7, candidate_us=1423.0)

    monkeypatch.setattr(predict_round, "recorded_answer", answer)
    for name in HINTS:
        assert game.hint(name).text
    game._hint_buttons["machine code"].click()
    with pytest.raises(PredictionPending):
        game.reveal()
    assert game._reveal_button.disabled
    assert asked == []
    game.commit("faster", 2.0)
    assert asked == []
    seen = browser_sees(game.view)
    assert not [told for told in ("456.7", "3.21", "recorded") if told in seen]
    said = game._journal.model_prediction(game.round.question_id)
    assert said.seal[:12] in seen
    assert f"{said.ratio:.2f}" not in seen, "the model's number shows before the reveal"
    game._reveal_button.click()
    seen = browser_sees(game.view)
    assert asked and "456.7" in seen and "3.21x faster" in seen


def test_a_round_is_scored_by_one_rule_for_both(game: PredictionRounds) -> None:
    one = game.round
    guess = game.commit("faster", 2.0, "more in flight")
    shown = game.reveal()
    answer = recorded_answer(one)
    said = game._journal.model_prediction(one.question_id)
    before, after = (
        forecast(load_rung(side.rung), one.workload, "h200", dict(side.knobs)).time_us
        for side in (one.baseline, one.candidate)
    )
    assert said.ratio == pytest.approx(before / after, rel=1e-5)
    assert f"You: {score(guess, answer.value).verdict}" in shown.text
    assert f"The model: {score(said.ratio, answer.value).verdict}" in shown.text
    assert "The model's reason" in shown.text
    board = game.scoreboard().text
    assert "After 1 round:" in board
    # What was compared and where it was measured are two fields; the board shows the first.
    (entry,) = (row.reveal for row in game._journal.history(one.question_id) if row.reveal)
    assert (entry.what, entry.where) == (f"{say_change(one)}, on {one.workload}", answer.what)
    assert entry.what in board and answer.what not in board


def test_the_game_goes_on_where_it_stopped(
    game: PredictionRounds, journal: Journal, no_gpu: None
) -> None:
    game.commit("slower", 0.5)
    game.reveal()
    later = PredictionRounds(game.rounds, page=PAGE, journal=journal, reader=True)
    assert later.place == 1
    later._back.click()
    assert "Direction" in later._result.value
    assert later._reveal_button.disabled
    reveals = [line for line in journal.lines.read_text().splitlines() if '"reveal"' in line]
    assert len(reveals) == 1


def test_hints_are_noted(game: PredictionRounds) -> None:
    game._hint_buttons["code"].click()
    assert "UNROLL" in game._hint_area.value
    assert game._journal.hints(game.round.question_id) == ("code",)
    with pytest.raises(LabError):
        game.hint("answer")


def test_a_model_without_an_answer_does_not_stop_the_reader(
    game: PredictionRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise LabError("No trip count.", "the loop's end is data", "guess")

    monkeypatch.setattr(views, "forecast", refuse)
    game.commit("faster", 2.0)
    assert "No trip count" in game._status.value
    assert "The model had no answer" in game.reveal().text


def with_gpu(monkeypatch: pytest.MonkeyPatch, measure: Any) -> None:
    monkeypatch.setattr(predict_round, "can_run_live", lambda: True)
    monkeypatch.setattr(predict_round, "gpu_of_device", lambda: load_gpu("h200"))
    monkeypatch.setattr(predict_round, "measure_speedup", measure)


def test_with_a_gpu_both_are_timed_now(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(*names: str, **knobs: Any) -> Speedup:
        asked.append((names, knobs))
        return Speedup(1.25, "live", "H200", (1.2, 1.3), 500.0, 400.0)

    with_gpu(monkeypatch, measure)
    one = cheap()[0]
    game = PredictionRounds([one], page=PAGE, journal=journal, reader=True)
    game.commit("faster", 1.5)
    assert asked == []
    assert "live" in game.reveal().text
    ((names, knobs),) = asked
    assert names[:2] == (one.baseline.rung, one.candidate.rung)
    assert knobs["candidate_knobs"] == dict(one.candidate.knobs)
    (row,) = journal.history(one.question_id)
    assert (row.reveal.source, row.reveal.measured_ratio) == ("live", 1.25)
    assert "live" in game.reveal().text, "shown again, it is still the live number"
    assert len(asked) == 1


def test_nobody_there_sees_questions_alone(no_gpu: None, journal: Journal) -> None:
    rounds = draw_rounds(1, per_level=1)
    game = PredictionRounds(rounds, page=PAGE, reader=False)
    assert game.view is None
    shown = game.listing()
    # What the site's script tells after a guess is there, and not to be read by accident.
    packed = re.findall(r'data-sealed="([^"]+)"', shown.html)
    assert len(packed) == len(rounds)
    for one, text in zip(rounds, packed, strict=True):
        sealed, answer = json.loads(base64.b64decode(text)), recorded_answer(one)
        assert say_time(answer.baseline_us) in sealed["html"]
        assert sealed["scored"]["ratio"] == answer.value
        assert sealed["model"]["ratio"] > 0 and len(sealed["seal"]) == 12
        assert one.id in shown.text
        assert say_time(answer.baseline_us) not in shown.html
    assert "recorded" not in shown.html
    with pytest.raises(JournalError):
        game.commit("faster", 2.0)
    assert "No round has been played" in game.scoreboard().text


def test_a_journal_that_cannot_be_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_gpu: None
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "file" / "journal.sqlite"))
    game = PredictionRounds(cheap(), page=PAGE, reader=True)
    assert "no round can be played" in game._status.value
    assert game._reveal_button.disabled


# -- the checklist page ----------------------------------------------------------------------


def test_the_checklist_page_without_a_reader_offers_no_dead_control() -> None:
    page = ChecklistPage("r03", HEADLINE, reader=False)
    shown = show_checklist(page.filled)
    assert page.view is None
    assert "<button" not in shown.html and "<textarea" not in shown.html
    assert "Only you can answer this" in shown.text
    with pytest.raises(JournalError):
        page.write({"refute": "x"})


def test_the_readers_answers_are_kept_per_kernel(journal: Journal) -> None:
    page = ChecklistPage("r03", HEADLINE, journal=journal, reader=True)
    page._fields["refute"].value = "unroll 8 changes nothing"
    page._keep.click()
    assert "Kept" in page._kept.value
    page._knobs["unroll"].value = 8
    page._button.click()
    assert page.filled.knobs["unroll"] == 8
    assert page._fields["refute"].value == "", "another kernel, another hypothesis"
    again = ChecklistPage("r03", HEADLINE, journal=journal, reader=True)
    assert again._fields["refute"].value == "unroll 8 changes nothing"


def test_another_kernel_brings_its_own_knobs(journal: Journal, tmp_path: Path) -> None:
    page = ChecklistPage("r03", HEADLINE, journal=journal, reader=True)
    page._kernel.value = "r02"
    assert "dims_per_thread" in page._knobs
    page._workload.value = "2,8,2,256,128"
    page._cache.value = "warm"
    page._button.click()
    assert (page.filled.rung_id, page.filled.workload.cache_state) == ("r02_one_barrier", "warm")
    assert "r02_one_barrier" in page._list.value
    page._workload.value = "nonsense"
    page._button.click()
    assert "five whole numbers" in page._status.value
    page._kernel.value = str(tmp_path / "gone.py")
    assert "no rung" in page._status.value


def test_a_guess_without_a_model_is_completed_after_a_restart(
    journal: Journal, no_gpu: None
) -> None:
    one = cheap()[0]
    journal.commit(one.question_id, PAGE, "faster", 2.0)
    PredictionRounds([one], page=PAGE, journal=journal, reader=True)
    assert journal.model_prediction(one.question_id) is not None


def test_a_live_failure_falls_back_to_the_record(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LabError("The GPU fell over.", "it was unplugged", "records")

    with_gpu(monkeypatch, fail)
    game = PredictionRounds(cheap()[:1], page=PAGE, journal=journal, reader=True)
    game.commit("faster", 1.5)
    shown = game.reveal().text
    assert "The GPU fell over" in shown
    assert "recorded" in shown
