"""Lab 8 in JupyterLab and as a page without a kernel: a method out, a guess, then the record."""

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
from test_labs import commit_by_keyboard, gates, kernel_is_idle

from labtools.notebook.labs.lab08_ablation.kernels import LOOP_CHAMPION
from labtools.optimize.family import load_family
from labtools.optimize.loop import ablate_point

LAB08 = "labs/lab08_ablation.md"
ANSWERS = 3
GATES = 1
SLOWER = "slower by the threshold or more"
MORE = "more than the product"


def untick(page: Any, title: str) -> None:
    page.locator(".lt-ablation").get_by_label(title).uncheck()


def press(page: Any, text: str) -> None:
    page.locator(".lt-ablation").get_by_role("button", name=text).click()


def choose(page: Any, kernel: str) -> None:
    page.locator(".lt-bench").get_by_label("kernel", exact=True).first.select_option(kernel)


def walk_the_bench(page: Any) -> None:
    """A method of the loop's champion, then two, then a method that the compiler dropped."""
    family = load_family("tunable")
    first, second = "compute.tensor_core", "latency.split_sequences"
    knobs = family.read_key(LOOP_CHAMPION).knobs
    found = ablate_point(family, None, "recorded", knobs, (first, second), pairs=True)
    titles = [family.method(name).title for name in (first, second)]
    panel, values = page.locator(".lt-ablation-panel"), page.locator(".lt-ablation-value")
    page.locator(".lt-ablation").wait_for()
    expect(page.locator(".lt-ablation .lt-value")).to_contain_text(f"{found.of.time_us:.2f} us")
    expect(page.locator(".lt-ablation-dot")).to_have_count(found.aa.pairs)
    assert "times as long" not in panel.inner_text()
    untick(page, titles[0])
    expect(panel).to_contain_text("Without it, the kernel is")
    expect(values.filter(has_text="not seen yet")).to_have_count(
        len(family.methods_on(family.read_key(LOOP_CHAMPION)))
    )
    press(page, SLOWER)
    expect(panel).to_contain_text(f"{100 * found.attribution[0].relative:+.1f} %")
    expect(panel).to_contain_text(found.classes[first].replace("_", " "))
    expect(panel.locator(".lt-ablation-opcodes")).to_contain_text("HMMA.16816")
    expect(page.locator(".lt-ablation-score")).to_have_text("You guessed 1 of 1 right.")
    untick(page, titles[1])
    expect(panel).to_contain_text("Take each out alone first")
    press(page, f"Only without: {titles[1]}")
    press(page, "Show it without a guess")
    untick(page, titles[0])
    press(page, MORE)
    expect(panel).to_contain_text(f"Together {100 * found.pairs[0].relative:+.1f} %")
    expect(page.locator(".lt-ablation-score")).to_have_text("You guessed 2 of 2 right.")
    choose(page, "the fastest at the headline")
    expect(panel).to_contain_text("Untick a method")
    untick(page, family.method("latency.known_block_size").title)
    press(page, "no difference that counts")
    expect(panel).to_contain_text("implementation failed")
    expect(panel.locator(".lt-ablation-same")).to_contain_text("Nothing.")
    other = family.workloads[1]
    found = ablate_point(family, other, "recorded", {}, ["compute.exponent_base_2"])
    choose(page, "the start")
    page.locator(".lt-bench").get_by_label("workload", exact=True).select_option(str(other))
    expect(page.locator(".lt-ablation .lt-value")).to_contain_text(f"{found.of.time_us:.2f} us")
    expect(page.locator(".lt-ablation .lt-now").first).to_contain_text(str(other))
    expect(page.locator(".lt-ablation-score")).to_have_text("You guessed 3 of 3 right.")
    page.locator(".lt-bench").get_by_label("workload", exact=True).select_option(index=0)


def answer_in_cell(page: Any, name: str, value: str) -> None:
    page.locator(".cm-content").filter(has_text=f'{name} = ""').click()
    page.keyboard.press("Control+End")
    page.keyboard.type(f"\n{name} = {value}")


def test_lab08_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB08)
    run_all(page)
    refused = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    expect(refused).to_contain_text("waits for yours")
    assert page.locator(".lt-ablation").count() == 0
    answer_in_cell(page, "my_noisiest", "list(workloads)[0]")
    run_all(page)
    commit_by_keyboard(page, gates(page).first, "faster", "2")
    walk_the_bench(page)
    shoot(page, "lab08-bench", page.locator(".lt-bench"))
    answer_in_cell(page, "my_class", "classes[0]")
    answer_in_cell(page, "my_pair", "together[0]")
    run_all(page)
    wait_for(lambda: kernel_is_idle(lab_server, LAB08), 180, "the end of the run")
    wait_for(lambda: unrun_cells(page) == 0, 180, "the rest of the page to run")
    assert refused.all_text_contents() == []
    expect(page.get_by_text("You said effective.")).to_have_count(1)
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".lt-ablation").scroll_into_view_if_needed()
    assert page.locator(".lt-ablation").bounding_box()["width"] < 390
    shoot(page, "lab08-phone", page.locator(".lt-bench"))


@pytest.mark.slow
def test_static_lab08_has_a_live_bench(built_site: Path, page: Any) -> None:
    page.context.set_offline(True)
    page.goto((built_site / "labs/lab08_ablation.html").as_uri())
    page.get_by_role("radio", name="8,32,8,4096,128", exact=True).first.check()
    page.get_by_role("button", name="Commit answer").click()
    gate = page.locator(".lt-gate-static").nth(1)
    gate.get_by_role("button", name="Show it without a guess").click()
    walk_the_bench(page)
    assert page.locator(".lt-gate-static").count() == ANSWERS + GATES
    look_at_widths(page, "static-lab08", ".lt-bench", ".lt-ablation")
