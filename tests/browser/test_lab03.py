"""Lab 3 in JupyterLab and as a page without a kernel: knobs, pin, keyboard, answers held back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from driver import Server, open_notebook, run_all, shoot, wait_for
from test_labs import commit_by_keyboard, gates, kernel_is_idle, slide, unrun_cells

from labtools.notebook.tables import say_time
from labtools.predict import forecast
from labtools.problem import HEADLINE, load_rung

LAB03 = "labs/lab03_chain.md"
GATES = ("four-rows-a-trip", "barrier-at-one-row", "no-launch-bounds", "recurrence-bound")


def refusals(page: Any) -> list[str]:
    found = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    return list(found.all_text_contents())


def shown_time(page: Any) -> str:
    return str(page.locator(".lt-ch-value").text_content())


def forecast_text(name: str, **knobs: int) -> str:
    time_us = forecast(load_rung(name), HEADLINE, "h200", knobs).time_us
    return f"{say_time(time_us)} us"


def chosen_row(page: Any) -> int:
    return int(page.locator(".lt-ch-list tr.lt-ch-on td").first.text_content())


def walk_the_table(page: Any) -> None:
    """The longest wait is chosen at first; arrows move, and a button goes to what it waited for."""
    wait_for(lambda: page.locator(".lt-ch-list tr.lt-ch-on").count(), 5, "a chosen row")
    longest = chosen_row(page)
    assert "memory: HBM" in page.locator(".lt-ch-detail").text_content()
    page.locator(".lt-ch-list tr.lt-ch-on").focus()
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
    assert page.locator(".lt-ch-list tr.lt-ch-on").text_content().count("LDG") == 1
    assert "row.cuh:" in page.locator(".lt-ch-source").text_content()


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
    assert page.get_by_text("You were right.").count() == 1

    # A knob compiles and forecasts; the pin keeps what it is compared with.
    page.locator(".lt-ch").scroll_into_view_if_needed()
    assert shown_time(page) == forecast_text("r03", unroll=1)
    walk_the_table(page)
    shoot(page, "lab03-bench", page.locator(".lt-bench"))
    slide(page, "unroll", "ArrowRight", 2)
    wait_for(lambda: shown_time(page) == forecast_text("r03", unroll=4), 20, "unroll 4")
    assert "faster than the pinned setting" in page.locator(".lt-ch-change").text_content()
    assert page.locator(".lt-ch-row").count() == 2
    shoot(page, "lab03-bench-compared", page.locator(".lt-bench"))
    page.get_by_role("button", name="Pin this setting").click()
    wait_for(lambda: page.locator(".lt-ch-row").count() == 1, 5, "the pin")
    page.get_by_label("kernel", exact=True).select_option(index=2)
    wait_for(lambda: shown_time(page) == forecast_text("r02", unroll=4), 20, "r02")
    assert page.get_by_role("slider", name="dims_per_thread", exact=True).count() == 1
    assert "slower than the pinned setting" in page.locator(".lt-ch-change").text_content()

    for number, _ in enumerate(GATES):
        commit_by_keyboard(page, gates(page).nth(number), "faster", "2")
        run_all(page)
        wait_for(lambda: kernel_is_idle(lab_server, LAB03), 120, "the end of the run")
    assert refusals(page) == []
    assert unrun_cells(page) == 0
    shoot(page, "lab03-end")

    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".lt-ch").scroll_into_view_if_needed()
    assert page.locator(".lt-ch").bounding_box()["width"] < 390
    shoot(page, "lab03-phone", page.locator(".lt-bench"))


@pytest.mark.slow
def test_static_lab03_offers_settings_and_no_dead_knob(built_site: Path, page: Any) -> None:
    page.context.set_offline(True)
    page.goto((built_site / "labs/lab03_chain.html").as_uri())
    page.locator(".lt-ch").wait_for()
    assert shown_time(page) == forecast_text("r03", unroll=1)
    assert page.locator(".lt-bench").count() == 0
    walk_the_table(page)
    page.get_by_label("setting", exact=True).select_option(index=1)
    assert shown_time(page) == forecast_text("r03", unroll=4)
    assert "faster than the pinned setting" in page.locator(".lt-ch-change").text_content()
    page.get_by_role("button", name="Pin this setting").click()
    assert page.locator(".lt-ch-change").count() == 0
    page.get_by_label("setting", exact=True).select_option(index=0)
    assert "slower than the pinned setting" in page.locator(".lt-ch-change").text_content()
    shoot(page, "static-lab03", page.locator(".lt-ch"))
    assert page.locator(".lt-gate-static").count() == len(GATES)
    results = page.locator("details.lt-result")
    assert results.count() == len(GATES) + 1
    assert not results.first.evaluate("element => element.open")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    shoot(page, "static-lab03-dark", page.locator(".lt-ch"))
