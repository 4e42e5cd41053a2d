"""Lab 1 in JupyterLab and on the site, as a reader meets it: gate, slider, commit, restart."""

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
from labtools.notebook.static_page import site_script
from labtools.predict import achieved_occupancy, load_gpu, occupancy
from labtools.record.prediction import score

WAITS = "waits for your prediction"
SOLVED = re.compile(r"^\d+ registers a thread \[computed\]")
LAB01 = "labs/lab01_occupancy.md"


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
    second.get_by_role("slider").focus()
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
    (kernel,) = (one for one in cells if one[0].startswith("%%cuda"))
    assert kernel[1:] == ["text/x-c++src", False]
    keyword = page.locator(".cm-line", has_text="constexpr int NUM_THREADS").locator("span").first
    expect(keyword).to_have_text("constexpr")
    others = [one for one in cells if one is not kernel]
    assert {mime for _, mime, _ in others} == {"text/x-ipython"}
    for source, _, hidden in others:
        assert hidden == (is_plumbing(source) and not source.startswith("# launch of")), source


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
