"""Lab 10 in JupyterLab and as a page without a kernel: propose, read the limits, derive, build."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from driver import (
    Server,
    expect,
    fits_the_screen,
    look_at_widths,
    open_notebook,
    run_all,
    shoot,
    unrun_cells,
    wait_for,
)
from test_labs import kernel_is_idle

from labtools.derive import space_of
from labtools.notebook.labs.lab10_inversion.view import BENCH_WORKLOADS
from labtools.predict import load_gpu

LAB10 = "labs/lab10_inversion.md"
HELD = "Every constraint holds."
MOVES_WITHIN_S = 0.7


def pick(page: Any, name: str, label: str) -> None:
    page.locator(".lt-budget").get_by_label(name, exact=True).select_option(label=label)


def derive(page: Any) -> None:
    page.locator(".lt-budget").get_by_role("button", name="Derive").click()


def row(page: Any, name: str) -> Any:
    constraints = page.locator(".lt-budget-constraint")
    return constraints.filter(has=page.get_by_role("rowheader", name=name, exact=True))


def walk_the_bench(page: Any) -> None:
    """Decode as it begins, layouts of both bad kinds, what is derived; then another operation."""
    headline = page.locator(".lt-budget-headline")
    page.locator(".lt-budget").wait_for()
    expect(headline).to_contain_text("do not hold")
    expect(row(page, "bank conflicts")).to_contain_text("costs time")
    expect(row(page, "alignment")).to_contain_text("holds")
    pick(page, "rows in shared memory", "2 bytes behind each")
    expect(row(page, "alignment")).to_contain_text("fails")
    expect(page.locator(".lt-budget-now")).to_contain_text("cannot run as it is")
    derive(page)
    expect(headline).to_have_text(HELD)
    expect(page.locator(".lt-budget-fill-holds")).to_have_count(3)
    expect(page.locator(".lt-budget-panel")).to_contain_text("r09_inverted")
    expect(page.locator(".lt-budget-compiled")).to_contain_text("registers a thread")
    pick(page, "operation", "prefill")
    space = space_of("prefill", BENCH_WORKLOADS["prefill"][0], load_gpu("h200"))
    pick(page, "warpgroups", "3")
    pick(page, "keys of a tile", "176")
    expect(row(page, "registers")).to_contain_text("costs time")
    began = time.monotonic()
    derive(page)
    expect(headline).to_have_text(HELD)
    assert time.monotonic() - began < MOVES_WITHIN_S
    expect(page.locator(".lt-budget-now")).to_contain_text(f"{space.design.time_us:.4g} us")
    expect(page.locator(".lt-budget-steps li")).to_have_count(len(space.design.steps))
    pick(page, "operation", "moe")
    expect(page.locator(".lt-budget-panel")).to_contain_text("No shipped kernel")


def test_lab10_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB10)
    run_all(page)
    walk_the_bench(page)
    pick(page, "operation", "decode")
    pick(page, "precision", "K and V in 4 bits")
    derive(page)
    page.locator(".lt-budget").get_by_role("button", name="Compile and forecast").click()
    expect(page.locator(".lt-budget-compiled")).to_contain_text(
        "registers a thread", timeout=60_000
    )
    expect(page.locator(".lt-budget-forecast")).to_contain_text("us, bound by")
    shoot(page, "lab10-bench", page.locator(".lt-budget"))
    page.locator(".cm-content").filter(has_text='my_bound = ""').click()
    page.keyboard.press("Control+End")
    page.keyboard.type("\nmy_bound = bounds[0]")
    run_all(page)
    wait_for(lambda: kernel_is_idle(lab_server, LAB10), 180, "the end of the run")
    wait_for(lambda: unrun_cells(page) == 0, 180, "the rest of the page to run")
    expect(page.get_by_text("You said matrix units.")).to_have_count(1)
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".lt-budget").scroll_into_view_if_needed()
    assert page.locator(".lt-budget").bounding_box()["width"] < 390
    shoot(page, "lab10-phone", page.locator(".lt-budget"))


@pytest.mark.slow
def test_static_lab10_has_a_live_bench(built_site: Path, page: Any) -> None:
    page.context.set_offline(True)
    page.goto((built_site / "labs/lab10_inversion.html").as_uri())
    walk_the_bench(page)
    pick(page, "operation", "decode")
    pick(page, "precision", "K and V in 8 bits")
    expect(page.locator(".lt-budget-panel")).to_contain_text("labtools forecast r10_inverted_int8")
    assert fits_the_screen(page, ".lt-budget")
    look_at_widths(page, "static-lab10", ".lt-budget")
