"""Lab 4 and the checklist in JupyterLab: commit, reveal, score; and what a page from disk holds."""

from __future__ import annotations

from typing import Any

import pytest
from driver import Server, expect, fits_a_phone, open_notebook, run_all, shoot, wait_for
from test_labs import commit_by_keyboard, journal_lines

from labtools.notebook.labs.lab04_predict.draw import draw_rounds, recorded_answer
from labtools.notebook.tables import say_time

LAB04 = "labs/lab04_predict.md"
CHECKLIST = "book/checklist.md"
SEED = 4  # as on the page


def kept_in_journal(server: Server, kind: str, page: str) -> dict[str, Any]:
    """The one line of this kind that the journal holds of a page, once it is there."""

    def found() -> list[dict[str, Any]]:
        return [one for one in journal_lines(server, page) if one["kind"] == kind]

    (line,) = wait_for(found, 30, f"a line of kind {kind}")
    return line


def button(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def test_lab04_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    rounds = draw_rounds(SEED, per_level=3)
    first = recorded_answer(rounds[0])
    assert first is not None
    open_notebook(page, lab_server, LAB04)
    run_all(page)
    game = page.locator(".lt-rounds")
    game.get_by_text("Round 1 of 9").wait_for()
    expect(button(page, "Reveal the measurement")).to_be_disabled()
    assert say_time(first.baseline_us or 0) not in game.inner_html()
    assert "prov-recorded" not in game.inner_html()
    shoot(page, "lab04-question", game)

    # A hint by keyboard, and it is on record.
    button(page, "What the machine code says").focus()
    page.keyboard.press("Enter")
    game.get_by_text("most bytes in flight of a warp").wait_for()
    assert kept_in_journal(lab_server, "hint", "labs/lab04_predict")["hint"] == "machine code"

    # Commit without the mouse; the model follows with a seal and without its number.
    commit_by_keyboard(page, game.locator(".lt-gate"), "faster", "1.7")
    game.get_by_text("The model has committed too").wait_for()
    said = kept_in_journal(lab_server, "model", "labs/lab04_predict")
    expect(game).to_contain_text(said["seal"][:12], use_inner_text=True)
    assert "prov-recorded" not in game.inner_html()
    shoot(page, "lab04-committed", game)

    button(page, "Reveal the measurement").focus()
    page.keyboard.press("Enter")
    game.get_by_text("The model's reason").wait_for()
    for shown in (say_time(first.baseline_us or 0), "After 1 round", "direction right"):
        expect(game).to_contain_text(shown, use_inner_text=True)
    shoot(page, "lab04-revealed", game)

    # The second round begins blank; the first is still there behind it.
    button(page, "Next round").click()
    game.get_by_text("Round 2 of 9").wait_for()
    expect(button(page, "Reveal the measurement")).to_be_disabled()
    second = recorded_answer(rounds[1])
    assert say_time(second.baseline_us or 0) not in game.locator(".lt-gate").inner_html()
    button(page, "Previous round").click()
    game.get_by_text("The model's reason").wait_for()

    fits_a_phone(page, "lab04-phone", ".lt-rounds")


def test_checklist_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, CHECKLIST)
    run_all(page)
    view = page.locator(".lt-check-page")
    view.get_by_text("What must move").wait_for()
    expect(view.locator(".lt-check-item")).to_have_count(13)
    field = view.get_by_label("Which result would show that your reason is wrong?")
    field.fill("unroll 8 changes nothing")
    field.blur()
    button(page, "Keep in my journal").click()
    kept = kept_in_journal(lab_server, "notes", "book/checklist")
    assert kept["fields"]["refute"] == "unroll 8 changes nothing"
    shoot(page, "checklist", view)

    # Another value of a knob, and the list follows.
    old = view.locator('[data-item="bound"]').inner_text()
    knob = view.locator(".widget-dropdown", has_text="unroll").locator("select")
    knob.select_option("1")
    button(page, "Fill in").click()
    wait_for(lambda: view.locator('[data-item="bound"]').inner_text() != old, 60, "the new list")
    view.get_by_text("Filled.").wait_for(timeout=60_000)
    expect(view).to_contain_text("unroll 1", use_inner_text=True)

    fits_a_phone(page, "checklist-phone", ".lt-check-page")


@pytest.mark.slow
def test_static_pages_hold_no_answer_and_no_dead_control(built_site: Any, page: Any) -> None:
    """Two rounds from disk: a hint, a guess, both scores; they are there after a reload."""
    page.context.set_offline(True)
    path = built_site / "labs/lab04_predict.html"
    text = path.read_text()
    rounds = draw_rounds(SEED, per_level=3)
    for one in rounds:
        assert one.id in text
        answer = recorded_answer(one)
        assert f">{say_time(answer.baseline_us or 0)}<" not in text
    page.goto(path.as_uri())
    game = page.locator(".lt-rounds-static")
    expect(game.locator(".lt-round:visible")).to_have_count(1)
    expect(game).to_contain_text("Round 1 of 9", use_inner_text=True)
    expect(game).not_to_contain_text("The model:", use_inner_text=True)
    game.locator(".lt-round:visible").get_by_text("Who is on an SM").click()
    expect(game.get_by_text("resident warps an SM").first).to_be_visible()
    shoot(page, "static-lab04", game)
    for number in range(2):
        shown = game.locator(".lt-round:visible")
        shown.get_by_role("radio", name="slower").check()
        shown.get_by_label("by a factor of").fill("1.5")
        button(page, "Commit prediction").locator("visible=true").click()
        answer = recorded_answer(rounds[number])
        for told in ("You: Direction", "The model: Direction", say_time(answer.baseline_us or 0)):
            expect(shown).to_contain_text(told, use_inner_text=True)
        expect(game.locator(".lt-board tbody tr")).to_have_count(number + 1)
        button(page, "Next round").click()
    page.reload()
    expect(game).to_contain_text("Round 3 of 9", use_inner_text=True)
    expect(game.locator(".lt-board tbody tr")).to_have_count(2)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
    shoot(page, "static-lab04-phone", game)
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto((built_site / "book/checklist.html").as_uri())
    page.locator(".lt-check-item").first.wait_for()
    assert page.locator(".lt-check-item").count() == 17
    assert page.locator(".lt-check-page").count() == 0
    assert page.get_by_text("open this page in Jupyter").count() >= 1
    shoot(page, "static-checklist")
