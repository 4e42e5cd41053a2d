"""Lab 5 in JupyterLab and as a page without a kernel: the sliders find what the forecast says."""

from __future__ import annotations

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
from test_labs import commit_by_keyboard, gates, in_sight, kernel_is_idle, slide

from labtools.notebook.records import Variant, forecast_of
from labtools.problem import HEADLINE

LAB05 = "labs/lab05_split.md"
GATES = 3


def shown(page: Any) -> Any:
    return page.locator(".lt-split .lt-value")


def expected(pieces: int, **changes: int) -> str:
    """The readout of a case, as the picture writes it."""
    workload = HEADLINE.replace(**changes)
    time_us = forecast_of(Variant("r08", {"split": pieces}), workload).time_us
    text = f"{time_us:.0f}" if time_us >= 100 else f"{time_us:#.3g}"
    return f"{text} us forecast"


def walk_the_bench(page: Any) -> None:
    page.locator(".lt-split").wait_for()
    expect(shown(page)).to_have_text(expected(1))
    expect(page.locator(".lt-split-decode")).to_have_count(6)
    slide(page, "pieces", "ArrowRight", 2)
    expect(shown(page)).to_have_text(expected(4))
    expect(page.locator(".lt-split-table tr.lt-chosen th")).to_have_text("4")
    slide(page, "batch B", "ArrowLeft")
    expect(shown(page)).to_have_text(expected(4, batch=1))
    expect(page.locator(".lt-split-bound")).to_have_text("chain")


def test_lab05_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB05)
    run_all(page)
    refused = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    expect(refused).to_contain_text("waits for yours")
    wait_for(lambda: in_sight(page, refused), 5, "the place where the run waits to be in sight")
    assert page.locator(".lt-split").count() == 0, "the answer stands before the question"
    page.locator(".cm-content").filter(has_text="my_blocks, my_slots = None").click()
    page.keyboard.press("Control+End")
    page.keyboard.type("\nmy_blocks, my_slots = 32, 1000")
    run_all(page)
    expect(page.get_by_text("blocks: 32, as you said")).to_have_count(1)
    walk_the_bench(page)
    shoot(page, "lab05-bench", page.locator(".lt-bench"))
    for number in range(GATES):
        commit_by_keyboard(page, gates(page).nth(number), "faster", "2")
        if number + 1 < GATES:
            expect(gates(page)).to_have_count(number + 2, timeout=180_000)
        wait_for(lambda: kernel_is_idle(lab_server, LAB05), 180, "the end of the run")
    wait_for(lambda: unrun_cells(page) == 0, 180, "the rest of the page to run")
    assert refused.all_text_contents() == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".lt-split").scroll_into_view_if_needed()
    assert page.locator(".lt-split").bounding_box()["width"] < 390
    shoot(page, "lab05-phone", page.locator(".lt-bench"))


@pytest.mark.slow
def test_static_lab05_has_live_sliders(built_site: Path, page: Any) -> None:
    page.context.set_offline(True)
    page.goto((built_site / "labs/lab05_split.html").as_uri())
    page.get_by_label("blocks:").fill("32")
    page.get_by_label("room for:").fill("1000")
    page.get_by_role("button", name="Commit answer").click()
    expect(page.get_by_text("You said: 32, 1000.")).to_be_visible()
    walk_the_bench(page)
    shoot(page, "static-lab05", page.locator(".lt-bench"))
    assert page.locator(".lt-gate-static").count() == GATES + 1
    assert not page.locator("details.lt-result").nth(1).evaluate("element => element.open")
    look_at_widths(page, "static-lab05", ".lt-bench")
