"""Labs 1 and 4 and the checklist in JupyterLab and on the site, as a reader meets them: commit,
reveal, score, restart."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from driver import (
    Server,
    expect,
    fits_a_phone,
    open_notebook,
    run_all,
    shoot,
    unrun_cells,
    wait_for,
)

from labtools.notebook.cells import is_plumbing
from labtools.notebook.labs.lab04_predict.draw import draw_rounds, recorded_answer
from labtools.notebook.static_page import site_script
from labtools.notebook.tables import say_time
from labtools.predict import achieved_occupancy, load_gpu, occupancy
from labtools.record.prediction import score

WAITS = "waits for your prediction"
SOLVED = re.compile(r"^\d+ registers per thread \[computed\]")
LAB01 = "labs/lab01_occupancy.md"
LAB04 = "labs/lab04_predict.md"
CHECKLIST = "book/checklist.md"
SEED = 4  # as on the page


def gates(page: Any) -> Any:
    return page.locator(".lt-gate")


def refusals(page: Any) -> Any:
    """Where a cell says that it failed, or that it waits."""
    return page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')


def stopped_at_gate(page: Any) -> bool:
    """True when the last thing the run did was to refuse a result."""
    texts = refusals(page).all_text_contents()
    assert len(texts) <= 1, "Run All went on after the gate"
    assert all(WAITS in text for text in texts), f"a cell failed: {texts}"
    return bool(texts)


def in_sight(page: Any, thing: Any) -> bool:
    box, height = thing.bounding_box(), page.viewport_size["height"]
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height


def commit_by_keyboard(page: Any, gate: Any, direction: str, factor: str) -> None:
    """Choose, type and commit without the mouse."""
    gate.get_by_role("radio", name=direction).focus()
    page.keyboard.press("Space")
    gate.get_by_label("by a factor of").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type(factor)
    page.keyboard.press("Tab")  # slider
    page.keyboard.press("Tab")  # reason
    page.keyboard.type("dd x")  # letters that are shortcuts outside the form
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    gate.get_by_role("button", name="Guess again").wait_for()


def slide(page: Any, label: str, key: str, times: int = 1) -> None:
    handle = page.get_by_role("slider", name=label, exact=True)
    handle.focus()
    for _ in range(times):
        page.keyboard.press(key)


def shown_share(page: Any, name: str) -> Any:
    return page.locator(f'.lt-occ [data-value="{name}"]')


def journal_lines(server: Server, page: str) -> list[dict[str, Any]]:
    """What the journal holds of one page; other tests write to the same journal."""
    path = server.folder / "journal.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for text in lines if (line := json.loads(text)).get("page") == page]


def restart_kernel(server: Server, path: str) -> None:
    (session,) = (one for one in server.api("sessions") if one["path"] == path)
    server.api(f"kernels/{session['kernel']['id']}/restart", "POST", 60)


def test_lab01_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB01)
    run_all(page)
    assert stopped_at_gate(page)
    assert unrun_cells(page) > 3
    expect(gates(page)).to_have_count(1)
    wait_for(lambda: in_sight(page, gates(page)), 5, "the gate to be in sight")
    expect(gates(page)).to_contain_text("run has stopped")
    shoot(page, "lab01-stopped")

    # The bench: what the picture says is what the calculator says.
    ada = load_gpu("rtx4090")
    expect(shown_share(page, "achieved")).to_have_text("4.2 %")
    expect(shown_share(page, "theoretical")).to_have_text("50.0 %")
    slide(page, "most blocks / SM", "ArrowRight", 2)
    expect(shown_share(page, "theoretical")).to_have_text("33.3 %")
    slide(page, "most blocks / SM", "ArrowLeft", 2)
    slide(page, "blocks in grid", "End")
    grid = 8192
    expect(shown_share(page, "achieved")).to_have_text("50.0 %")
    slide(page, "threads / block", "ArrowRight")
    expect(page.locator(".widget-readout").first).to_have_text("64")
    (_, registers) = page.locator(".widget-readout").all_text_contents()[0:2]
    fits = occupancy(ada, 64, int(registers), 0)
    real = achieved_occupancy(ada, fits, grid)
    expect(shown_share(page, "theoretical")).to_have_text(f"{100 * fits.theoretical:.1f} %")
    expect(shown_share(page, "achieved")).to_have_text(f"{100 * real.achieved:.1f} %")
    shoot(page, "lab01-bench", page.locator(".lt-bench"))

    # The gate, twice; Run All goes on as far as the reader has predicted.
    commit_by_keyboard(page, gates(page).nth(0), "faster", "1.8")
    (kept,) = journal_lines(lab_server, "labs/lab01_occupancy")
    assert (kept["direction"], kept["ratio"], kept["note"]) == ("faster", 1.8, "dd x")
    # Nobody presses anything: the run that stopped goes on as far as the next question, and the
    # reader stays where the result now shows.
    expect(gates(page)).to_have_count(2)
    guessed = page.get_by_text("1.80x faster")
    wait_for(lambda: guessed.count() >= 2, 20, "the guess beside the result")
    wait_for(lambda: kernel_is_idle(lab_server, LAB01), 60, "the run to stop again")
    assert stopped_at_gate(page)
    wait_for(lambda: in_sight(page, gates(page).nth(0)), 5, "the first gate to stay in sight")
    shoot(page, "lab01-committed")
    second = gates(page).nth(1)
    # The scale reaches far, and its steps are small near 1.
    second.get_by_role("slider").press("End")
    expect(second.locator(".lt-gate-preview")).to_contain_text("1000.0x faster")
    second.get_by_label("by a factor of").fill("1.1")
    second.get_by_role("slider").press("ArrowRight")
    expect(second.locator(".lt-gate-preview")).to_contain_text("1.14x faster")
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    expect(second.get_by_role("radio", name="slower")).to_be_checked()
    expect(second.locator(".lt-gate-preview")).to_contain_text("slower")
    second.get_by_role("button", name="Commit prediction").click()
    second.get_by_role("button", name="Guess again").wait_for()
    wait_for(lambda: unrun_cells(page) == 0, 60, "the rest of the page to run")
    assert not stopped_at_gate(page)
    shoot(page, "lab01-end")

    # Solutions wait, even at the end of Run All, until one is asked for.
    assert page.get_by_text(SOLVED).count() == 0
    page.get_by_role("button", name="Show the solution").nth(1).click()
    expect(page.get_by_text(SOLVED)).to_have_count(1)

    # After a restart the guesses are still there and nothing is asked again.
    restart_kernel(lab_server, LAB01)
    wait_for(lambda: kernel_is_idle(lab_server, LAB01), 60, "the restarted kernel")
    run_all(page)
    assert not stopped_at_gate(page)
    expect(gates(page).locator(".lt-gate-status").first).to_have_text(re.compile("^Committed"))
    kinds = [line["kind"] for line in journal_lines(lab_server, "labs/lab01_occupancy")]
    assert kinds.count("prediction") == 2

    for selector in (".lt-gate", ".lt-occ"):
        fits_a_phone(page, f"lab01-phone{selector.replace('.', '-')}", selector)


CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === "code")
    .map(cell => [cell.model.sharedModel.getSource(), cell.model.mimeType, cell.inputHidden])
"""


def test_kernels_are_coloured_and_plumbing_is_folded(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, "book/ladder/r03_one_warp.md")
    # JupyterLab gives every cell the kernel's language once it knows it; ours keep theirs.
    wait_for(lambda: "text/x-ipython" in str(page.evaluate(CELLS)), 30, "the kernel's language")
    cells = page.evaluate(CELLS)
    kernels = [one for one in cells if one[0].startswith("%%cuda")]
    # The reader's is open; the guide's, which solves it, is folded.
    assert [one[1:] for one in kernels] == [["text/x-c++src", False], ["text/x-c++src", True]]
    keyword = page.locator(".cm-line", has_text="constexpr int NUM_THREADS").locator("span").first
    expect(keyword).to_have_text("constexpr")
    others = [one for one in cells if one not in kernels]
    assert {mime for _, mime, _ in others} == {"text/x-ipython"}
    for source, _, hidden in others:
        assert hidden == is_plumbing(source), source


def kernel_is_idle(server: Server, path: str) -> bool:
    (session,) = (one for one in server.api("sessions") if one["path"] == path)
    return session["kernel"]["execution_state"] == "idle"


def shown_results(page: Any) -> int:
    return sum(one.is_visible() for one in page.locator("details.lt-result").all())


# Guess, measured ratio, interval: all words of the score, and both sides of each limit.
SCORED = [
    (guess, measured, interval)
    for guess in (0.2, 0.9, 1.0, 1.04, 1.06, 1.6, 2.0, 3.9, 4.0, 9.0)
    for measured, interval in ((1.0, None), (1.02, (1.01, 1.03)), (0.97, (0.9, 1.1)), (2.0, None))
]


def test_the_site_scores_as_the_journal_does(page: Any) -> None:
    page.goto("about:blank")
    page.add_script_tag(content=site_script())
    said = page.evaluate(
        "cases => cases.map(([ratio, measured, interval]) => "
        "fieldguide.verdict({ ratio }, { ratio: measured, interval }))",
        SCORED,
    )
    assert said == [score(*case).verdict for case in SCORED]


@pytest.mark.slow
def test_static_lab01_stays_alive(built_site: Any, page: Any) -> None:
    page.context.set_offline(True)
    file = built_site / "labs/lab01_occupancy.html"
    page.goto(file.as_uri())
    page.locator(".lt-occ").wait_for()
    expect(shown_share(page, "achieved")).to_have_text("4.2 %")
    slide(page, "blocks in grid", "End")
    expect(shown_share(page, "achieved")).to_have_text("50.0 %")
    shoot(page, "static-lab01", page.locator(".lt-bench"))

    # What is below a question shows with the guess, and stays.
    first, behind = gates(page).nth(0), page.get_by_role("heading", name="What to take along")
    assert shown_results(page) == 0
    assert not behind.is_visible()
    expect(first).to_contain_text("The rest of this page waits")
    first.get_by_role("radio", name="faster").focus()
    page.keyboard.press("Space")
    first.get_by_label("by a factor of").fill("1.8")
    first.get_by_role("button", name="Commit prediction").press("Enter")
    expect(first).to_contain_text("1.80x faster. It is kept in this browser")
    expect(first.locator(".lt-gate-status")).to_be_focused()
    result = page.locator("details.lt-result").first
    assert result.evaluate("element => element.open")
    expect(result.locator(".lt-score-static")).to_contain_text("You said: 1.80x faster. Direction")
    assert shown_results(page) == 1, "the second question holds the second result"
    shoot(page, "static-lab01-committed")

    page.reload()
    expect(first).to_contain_text("1.80x faster")
    assert shown_results(page) == 1
    # A link into what waits leads to the question, and to its place once that is answered.
    page.goto(page.url + "#what-to-take-along")
    expect(gates(page).nth(1)).to_contain_text("stands below this question")
    page.get_by_role("button", name="Show it without a guess").click()
    wait_for(lambda: in_sight(page, behind), 5, "the part of the page that the link names")
    assert shown_results(page) == 2
    page.get_by_role("button", name="Forget this guess").click()
    assert shown_results(page) == 0

    # Without a script all shows, but for results, which are folded; the question says what to do.
    context = page.context.browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(file.as_uri())
    assert plain.get_by_role("heading", name="What to take along").is_visible()
    expect(plain.locator(".lt-gate-static").first).to_contain_text("Decide first")
    results = plain.locator("details.lt-result")
    assert results.count() == 2
    for result in results.all():
        assert result.is_visible() and result.get_attribute("open") is None
    context.close()


# ------------------------------------------------------------------- lab 4 and the checklist


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
    expect(game.get_by_text("resident warps per SM").first).to_be_visible()
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
