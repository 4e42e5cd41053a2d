"""Lab 3 in JupyterLab and as a page without a kernel: knobs, pin, keyboard, answers held back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from driver import (
    Server,
    expect,
    look_at_widths,
    open_notebook,
    run_all,
    shoot,
    unrun_cells,
    wait_for,
)
from test_labs import commit_by_keyboard, gates, kernel_is_idle, slide

from labtools.notebook.tables import say_time
from labtools.predict import forecast
from labtools.problem import HEADLINE, load_rung

LAB03 = "labs/lab03_chain.md"
GATES = ("four-rows-a-trip", "barrier-at-one-row", "no-launch-bounds", "recurrence-bound")


def refusals(page: Any) -> list[str]:
    found = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    return list(found.all_text_contents())


def shown_time(page: Any) -> Any:
    return page.locator(".lt-ch .lt-value")


def forecast_text(name: str, **knobs: int) -> str:
    time_us = forecast(load_rung(name), HEADLINE, "h200", knobs).time_us
    return f"{say_time(time_us)} us"


def chosen_row(page: Any) -> int:
    return int(page.locator(".lt-ch-list tr.lt-ch-on td").first.text_content())


def walk_the_table(page: Any) -> None:
    """The longest wait is chosen at first; arrows move, and a button goes to what it waited for."""
    chosen = page.locator(".lt-ch-list tr.lt-ch-on")
    expect(chosen).to_have_count(1)
    longest = chosen_row(page)
    expect(page.locator(".lt-ch-detail")).to_contain_text("memory: DRAM")
    chosen.focus()
    page.keyboard.press("ArrowDown")
    assert chosen_row(page) == longest + 1
    page.keyboard.press("Home")
    assert chosen_row(page) == 0
    page.keyboard.press("End")
    assert chosen_row(page) == page.locator(".lt-ch-list tbody tr").count() - 1
    page.get_by_role("button", name="Longest wait").click()
    assert chosen_row(page) == longest
    page.get_by_role("button", name="What it waited for").click()
    assert chosen_row(page) < longest
    expect(chosen).to_have_text(re.compile("^((?!LDG).)*LDG((?!LDG).)*$"))
    expect(page.locator(".lt-ch-source")).to_contain_text("row.cuh:")


def test_lab03_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB03)
    run_all(page)
    assert "waits for yours" in "".join(refusals(page))
    assert page.locator(".lt-ch").count() == 0, "the answer stands before the question"
    cell = page.locator(".cm-content").filter(has_text=re.compile(r'my_answer = ""'))
    cell.click()
    page.keyboard.press("Control+End")
    page.keyboard.type('\nmy_answer = "load of k"')
    run_all(page)
    assert "waits for your prediction" in "".join(refusals(page))
    expect(page.get_by_text("You were right.")).to_have_count(1)

    # A knob compiles and forecasts; the pin keeps what it is compared with.
    page.locator(".lt-ch").scroll_into_view_if_needed()
    expect(shown_time(page)).to_have_text(forecast_text("r03", unroll=1))
    walk_the_table(page)
    shoot(page, "lab03-bench", page.locator(".lt-bench"))
    slide(page, "unroll", "ArrowRight", 2)
    expect(shown_time(page)).to_have_text(forecast_text("r03", unroll=4))
    expect(page.locator(".lt-ch-change")).to_contain_text("faster than the pinned setting")
    expect(page.locator(".lt-ch-row")).to_have_count(2)
    shoot(page, "lab03-bench-compared", page.locator(".lt-bench"))
    page.get_by_role("button", name="Pin this setting").click()
    expect(page.locator(".lt-ch-row")).to_have_count(1)
    page.get_by_label("kernel", exact=True).select_option(index=2)
    expect(shown_time(page)).to_have_text(forecast_text("r02", unroll=4))
    expect(page.get_by_role("slider", name="dims_per_thread", exact=True)).to_have_count(1)
    expect(page.locator(".lt-ch-change")).to_contain_text("slower than the pinned setting")

    for number, _ in enumerate(GATES):
        commit_by_keyboard(page, gates(page).nth(number), "faster", "2")
        if number + 1 < len(GATES):
            expect(gates(page)).to_have_count(number + 2, timeout=120_000)
        wait_for(lambda: kernel_is_idle(lab_server, LAB03), 120, "the end of the run")
    wait_for(lambda: unrun_cells(page) == 0, 120, "the rest of the page to run")
    assert refusals(page) == []
    shoot(page, "lab03-end")

    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".lt-ch").scroll_into_view_if_needed()
    assert page.locator(".lt-ch").bounding_box()["width"] < 390
    shoot(page, "lab03-phone", page.locator(".lt-bench"))


@pytest.mark.slow
def test_static_lab03_offers_settings_and_no_dead_knob(built_site: Path, page: Any) -> None:
    page.context.set_offline(True)
    page.goto((built_site / "labs/lab03_chain.html").as_uri())
    answer = page.get_by_text("The model says: load of k.")
    assert not answer.is_visible(), "the answer stands before the question"
    assert not page.locator(".lt-ch").is_visible()
    page.get_by_role("radio", name="load of v").check()
    page.get_by_role("button", name="Commit answer").click()
    expect(page.get_by_text("You said: load of v.")).to_be_visible()
    expect(answer).to_be_visible()
    page.locator(".lt-ch").wait_for()
    expect(shown_time(page)).to_have_text(forecast_text("r03", unroll=1))
    assert page.locator(".lt-bench").count() == 0
    walk_the_table(page)
    page.get_by_label("setting", exact=True).select_option(index=1)
    expect(shown_time(page)).to_have_text(forecast_text("r03", unroll=4))
    expect(page.locator(".lt-ch-change")).to_contain_text("faster than the pinned setting")
    page.get_by_role("button", name="Pin this setting").click()
    expect(page.locator(".lt-ch-change")).to_have_count(0)
    page.get_by_label("setting", exact=True).select_option(index=0)
    expect(page.locator(".lt-ch-change")).to_contain_text("slower than the pinned setting")
    shoot(page, "static-lab03", page.locator(".lt-ch"))
    assert page.locator(".lt-gate-static").count() == len(GATES) + 1
    results = page.locator("details.lt-result")
    assert results.count() == len(GATES) + 1
    assert not results.nth(1).evaluate("element => element.open")
    look_at_widths(page, "static-lab03", ".lt-ch")
