"""Lab 7 in JupyterLab and as a page without a kernel: the lists find what the records say."""

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
from test_labs import commit_by_keyboard, gates, in_sight, kernel_is_idle

from labtools.notebook.labs.lab07_ncu.run import recorded_run
from labtools.notebook.records import GpuRecords
from labtools.problem import HEADLINE
from labtools.record.bound import stall_shares

LAB07 = "labs/lab07_ncu.md"
ANSWERS = 3
GATES = 1


def choose(page: Any, name: str, value: str) -> None:
    page.locator(".lt-bench").get_by_label(name, exact=True).first.select_option(value)


def check_rung(page: Any, rung: str) -> None:
    """The picture holds the record's bound, its waits by length, and the rung's point."""
    run = recorded_run(GpuRecords("h200"), rung, HEADLINE)
    assert run is not None
    expect(page.locator(".lt-ncu-bound")).to_have_text(f"bound: {run.bound_word} ")
    expect(page.locator(".lt-ncu .lt-now")).to_contain_text(run.where)
    first = page.locator(".lt-ncu-waits .lt-ncu-bar").first
    reason, share = next(iter(stall_shares(run.values).items()))
    expect(first).to_contain_text(reason.replace("_", " "))
    expect(first).to_contain_text(f"{100 * share:.1f} %")
    expect(page.locator(".lt-ncu-roof .lt-ncu-point")).to_have_count(1)


def walk_the_bench(page: Any) -> None:
    page.locator(".lt-ncu").wait_for()
    check_rung(page, "r03_one_warp")
    expect(page.locator(".lt-ncu-missing")).to_contain_text("What is missing is not zero.")
    choose(page, "rung", "r09_inverted")
    check_rung(page, "r09_inverted")
    expect(page.locator(".lt-ncu-missing")).to_contain_text("No counter of this list is missing.")
    choose(page, "workload", "1,32,8,4096,128")
    expect(page.locator(".lt-ncu-none")).to_contain_text("No counters of r09_inverted")
    choose(page, "workload", str(HEADLINE.replace(cache_state="warm")))
    choose(page, "rung", "r07_int4")
    expect(page.locator(".lt-ncu-bound")).to_have_text("bound: counters apart ")
    expect(page.locator(".lt-ncu-apart")).to_contain_text("do not belong together")
    expect(page.locator(".lt-ncu-roof .lt-ncu-point")).to_have_count(0)
    choose(page, "workload", str(HEADLINE))
    choose(page, "rung", "r03_one_warp")
    check_rung(page, "r03_one_warp")


def answer_in_cell(page: Any, name: str, value: str) -> None:
    page.locator(".cm-content").filter(has_text=f'{name} = ""').click()
    page.keyboard.press("Control+End")
    page.keyboard.type(f"\n{name} = {value}")


def test_lab07_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB07)
    run_all(page)
    refused = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    expect(refused).to_contain_text("waits for yours")
    wait_for(lambda: in_sight(page, refused), 5, "the place where the run waits to be in sight")
    assert page.locator(".lt-ncu").count() == 0, "the answer stands before the question"
    answer_in_cell(page, "my_wait", '"barrier"')
    run_all(page)
    expect(page.get_by_text("You said barrier.")).to_have_count(1)
    walk_the_bench(page)
    shoot(page, "lab07-bench", page.locator(".lt-bench"))
    answer_in_cell(page, "my_wait_r09", '"barrier"')
    answer_in_cell(page, "my_step", "steps[0]")
    run_all(page)
    commit_by_keyboard(page, gates(page).first, "faster", "2")
    wait_for(lambda: kernel_is_idle(lab_server, LAB07), 180, "the end of the run")
    wait_for(lambda: unrun_cells(page) == 0, 180, "the rest of the page to run")
    assert refused.all_text_contents() == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".lt-ncu").scroll_into_view_if_needed()
    assert page.locator(".lt-ncu").bounding_box()["width"] < 390
    shoot(page, "lab07-phone", page.locator(".lt-bench"))


@pytest.mark.slow
def test_static_lab07_has_live_lists(built_site: Path, page: Any) -> None:
    page.context.set_offline(True)
    page.goto((built_site / "labs/lab07_ncu.html").as_uri())
    page.get_by_role("radio", name="barrier", exact=True).first.check()
    page.get_by_role("button", name="Commit answer").click()
    walk_the_bench(page)
    assert page.locator(".lt-gate-static").count() == ANSWERS + GATES
    look_at_widths(page, "static-lab07", ".lt-bench", ".lt-ncu")
