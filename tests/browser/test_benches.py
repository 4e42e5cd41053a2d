"""The benches in JupyterLab and on pages without a kernel: each control finds what the models
and the records say, and no answer stands before its question."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from driver import (
    Server,
    expect,
    fits_a_phone,
    look_at_widths,
    open_notebook,
    run_all,
    shoot,
    unrun_cells,
    wait_for,
)
from test_labs import (
    commit_by_keyboard,
    gates,
    in_sight,
    journal_lines,
    kernel_is_idle,
    refusals,
    slide,
)

from labtools.derive import space_of
from labtools.notebook.labs.lab07_ncu.run import recorded_run
from labtools.notebook.labs.lab08_ablation.kernels import TAKEN_APART
from labtools.notebook.labs.lab10_inversion.view import BENCH_WORKLOADS
from labtools.notebook.records import GpuRecords, Variant, forecast_of
from labtools.notebook.tables import say_time
from labtools.optimize.family import load_family
from labtools.optimize.loop import ablate_point
from labtools.predict import floors, forecast, load_gpu
from labtools.problem import HEADLINE, load_rung
from labtools.record.bound import stall_shares


def open_lab(page: Any, server: Server, path: str, view: str = "") -> None:
    """Run a lab as far as its first question, which no ``view`` that answers it stands before."""
    open_notebook(page, server, path)
    run_all(page)
    expect(refusals(page)).to_contain_text("waits for your")
    expect(gates(page).last).to_contain_text("Here the run has stopped.")
    wait_for(lambda: in_sight(page, gates(page).last), 5, "the question that the run waits for")
    ground = refusals(page).evaluate("one => getComputedStyle(one).backgroundColor")
    assert ground == "rgba(0, 0, 0, 0)", "a question that waits looks like an error"
    shoot(page, f"{Path(path).stem}-stopped")
    assert not view or page.locator(view).count() == 0, "the answer stands before the question"


TWICE = "2"
Said = str | dict[str, str]
"""An answer: `TWICE` as fast, one of the choices, or numbers by their labels."""


def answer(page: Any, gate: Any, said: Said) -> None:
    if said == TWICE:
        commit_by_keyboard(page, gate, "faster", TWICE)
        return
    if isinstance(said, str):
        gate.get_by_role("radio", name=said, exact=True).check()
    else:
        expect(gate.get_by_role("button", name="Commit answer")).to_be_disabled()
        for label, number in said.items():
            gate.get_by_label(f"{label}:").fill(number)
    gate.get_by_role("button", name="Commit answer").click()
    gate.get_by_role("button", name="Guess again").wait_for()


def finish_lab(
    page: Any, server: Server, path: str, view: str, answers: Sequence[Said], begun: int = 0
) -> None:
    """Answer the questions that are left; then the whole page has run, and fits a phone."""
    for number, said in enumerate(answers, start=begun):
        expect(gates(page)).to_have_count(number + 1, timeout=180_000)
        answer(page, gates(page).nth(number), said)
        wait_for(lambda: kernel_is_idle(server, path), 180, "the end of the run")
    wait_for(lambda: kernel_is_idle(server, path), 180, "the end of the run")
    wait_for(lambda: unrun_cells(page) == 0, 180, "the rest of the page to run")
    assert refusals(page).all_text_contents() == []
    fits_a_phone(page, f"{view.strip('.')}-phone", view)


READ: dict[str, tuple[str, list[Said], str]] = {
    "lab02_baseline": (".lt-tl", [TWICE, TWICE], "2.00x faster"),
    "lab05_split": (
        ".lt-split",
        [{"blocks": "32", "room for": "1000"}, TWICE, TWICE, TWICE],
        "blocks: 32, as you said",
    ),
    "lab07_ncu": (".lt-ncu", ["barrier", "barrier", "below 60%", TWICE], "You said barrier."),
    "lab08_ablation": (
        ".lt-ablation",
        [str(HEADLINE), TWICE, "effective", "less than the product"],
        "You said effective.",
    ),
}
"""Of each lab whose bench needs no kernel: its view, an answer to each question, and what is said
of one."""


@pytest.mark.parametrize("lab", READ)
def test_a_lab_runs_from_question_to_question(lab_server: Server, page: Any, lab: str) -> None:
    view, answers, said = READ[lab]
    open_lab(page, lab_server, f"labs/{lab}.md", view)
    finish_lab(page, lab_server, f"labs/{lab}.md", view, answers)
    expect(page.get_by_text(said).locator("visible=true").first).to_be_visible()
    kept = [line["kind"] for line in journal_lines(lab_server, lab)]
    assert kept.count("answer") == sum(one != TWICE for one in answers)


def open_static(page: Any, site: Path, lab: str) -> None:
    page.context.set_offline(True)
    page.goto((site / f"labs/{lab}.html").as_uri())


# ------------------------------------------------------------------------------------- lab 2


def walk_lab02(page: Any) -> None:
    """A timed call that copies, against the floor; twice the length takes twice the time."""
    page.get_by_role("button", name="Show it without a guess").click()
    view = page.locator(".lt-tl")
    value = view.locator(".lt-value").first
    page.get_by_label("timed call", exact=True).select_option(index=2)
    ada = load_gpu("rtx4090")
    moved = (1 + 2 * HEADLINE.group_size) * HEADLINE.kv_bytes
    moved += HEADLINE.minimal_bytes - HEADLINE.kv_bytes - 4 * HEADLINE.batch
    expected_us = moved / ada.dram_gb_per_s / 1e3
    expect(value).to_have_text(f"{say_time(expected_us)} us")
    expect(view).to_contain_text(f"{say_time(floors(HEADLINE, ada).time_us)} us")
    expect(view).to_contain_text("claimed")
    slide(page, "KV length", "ArrowRight")
    expect(value).to_have_text(f"{say_time(2 * expected_us)} us")


# ------------------------------------------------------------------------------------- lab 3


LAB03, GATES03 = "labs/lab03_chain.md", 4


def shows_time(page: Any, name: str, unroll: int) -> None:
    time_us = forecast(load_rung(name), HEADLINE, "h200", {"unroll": unroll}).time_us
    expect(page.locator(".lt-ch .lt-value")).to_have_text(f"{say_time(time_us)} us")


def chosen_row(page: Any) -> int:
    return int(page.locator(".lt-ch-list tr.lt-ch-on th").text_content())


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
    open_lab(page, lab_server, LAB03, ".lt-ch")
    answer(page, gates(page).first, "load of k")
    expect(page.get_by_text("You were right.")).to_have_count(1)
    # A knob compiles and forecasts; the pin keeps what it is compared with.
    page.locator(".lt-ch").scroll_into_view_if_needed()
    shows_time(page, "r03", 1)
    walk_the_table(page)
    slide(page, "unroll", "ArrowRight", 2)
    shows_time(page, "r03", 4)
    expect(page.locator(".lt-ch-change")).to_contain_text("faster than the pinned setting")
    expect(page.locator(".lt-ch-row")).to_have_count(2)
    shoot(page, "lab03-bench-compared", page.locator(".lt-bench"))
    page.get_by_role("button", name="Pin this setting").click()
    expect(page.locator(".lt-ch-row")).to_have_count(1)
    page.get_by_label("kernel", exact=True).select_option(index=2)
    shows_time(page, "r02", 4)
    expect(page.get_by_role("slider", name="dims_per_thread", exact=True)).to_have_count(1)
    expect(page.locator(".lt-ch-change")).to_contain_text("slower than the pinned setting")
    finish_lab(page, lab_server, LAB03, ".lt-ch", [TWICE] * GATES03, begun=1)


@pytest.mark.slow
def test_static_lab03_offers_settings_and_no_dead_knob(built_site: Path, page: Any) -> None:
    open_static(page, built_site, "lab03_chain")
    answer = page.get_by_text("The model says: load of k.")
    assert not answer.is_visible(), "the answer stands before the question"
    assert not page.locator(".lt-ch").is_visible()
    page.get_by_role("radio", name="load of v").check()
    page.get_by_role("button", name="Commit answer").click()
    expect(page.get_by_text("You said: load of v.")).to_be_visible()
    expect(answer).to_be_visible()
    page.locator(".lt-ch").wait_for()
    shows_time(page, "r03", 1)
    assert page.locator(".lt-bench").count() == 0
    page.get_by_label("setting", exact=True).select_option(index=1)
    shows_time(page, "r03", 4)
    expect(page.locator(".lt-ch-change")).to_contain_text("faster than the pinned setting")
    page.get_by_role("button", name="Pin this setting").click()
    expect(page.locator(".lt-ch-change")).to_have_count(0)
    page.get_by_label("setting", exact=True).select_option(index=0)
    expect(page.locator(".lt-ch-change")).to_contain_text("slower than the pinned setting")
    results = page.locator("details.lt-result")
    assert results.count() == page.locator(".lt-gate-static").count() == GATES03 + 1
    assert not results.nth(1).evaluate("element => element.open")
    look_at_widths(page, "static-lab03", ".lt-ch")


# ------------------------------------------------------------------------------------- lab 5


def expected(pieces: int, **changes: int) -> str:
    """The readout of a case, as the picture writes it."""
    time_us = forecast_of(Variant("r08", {"split": pieces}), HEADLINE.replace(**changes)).time_us
    return f"{time_us:.0f} us forecast" if time_us >= 100 else f"{time_us:#.3g} us forecast"


def walk_lab05(page: Any) -> None:
    page.get_by_label("blocks:").fill("32")
    page.get_by_label("room for:").fill("1000")
    page.get_by_role("button", name="Commit answer").click()
    expect(page.get_by_text("You said: 32, 1000.")).to_be_visible()
    value = page.locator(".lt-split .lt-value")
    expect(value).to_have_text(expected(1))
    expect(page.locator(".lt-split-decode")).to_have_count(6)
    slide(page, "pieces", "ArrowRight", 2)
    expect(value).to_have_text(expected(4))
    expect(page.locator(".lt-split-table tr.lt-chosen th")).to_have_text("4")
    slide(page, "batch B", "ArrowLeft")
    expect(value).to_have_text(expected(4, batch=1))
    expect(page.locator(".lt-split-bound")).to_have_text("chain")


# ------------------------------------------------------------------------------------- lab 7


def choose(page: Any, name: str, value: str | None = None, **option: Any) -> None:
    control = page.locator(".lt-bench").get_by_label(name, exact=True).first
    control.select_option(value, **option)


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


def walk_lab07(page: Any) -> None:
    page.get_by_role("radio", name="barrier", exact=True).first.check()
    page.get_by_role("button", name="Commit answer").click()
    for number in (1, 2, 3):
        assert not page.locator(".lt-ncu").is_visible(), "the answers stand before the questions"
        gate = page.locator(".lt-gate-static").nth(number)
        gate.get_by_role("button", name="Show it without a guess").click()
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


# ------------------------------------------------------------------------------------- lab 8


def walk_lab08(page: Any) -> None:
    """A method of a kernel, then two, then a method that the compiler dropped."""
    page.get_by_role("radio", name="8,32,8,4096,128", exact=True).first.check()
    page.get_by_role("button", name="Commit answer").click()
    gate = page.locator(".lt-gate-static").nth(1)
    gate.get_by_role("button", name="Show it without a guess").click()
    bench = page.locator(".lt-ablation")

    def untick(title: str) -> None:
        bench.get_by_label(title).uncheck()

    def press(text: str) -> None:
        bench.get_by_role("button", name=text).click()

    family = load_family("tunable")
    first, second = "compute.tensor_core", "latency.split_sequences"
    knobs = family.read_key(TAKEN_APART).knobs
    found = ablate_point(family, None, "recorded", knobs, (first, second), pairs=True)
    alone = ablate_point(family, None, "recorded", knobs, (first, second)).classes
    titles = [family.method(name).title for name in (first, second)]
    panel, values = page.locator(".lt-ablation-panel"), page.locator(".lt-ablation-value")
    expect(bench.locator(".lt-value")).to_contain_text(f"{found.of.time_us:.2f} us")
    expect(page.locator(".lt-ablation-dot")).to_have_count(found.aa.pairs)
    assert "times as long" not in panel.inner_text()
    untick(titles[0])
    expect(panel).to_contain_text("Without it, the kernel is")
    on = family.methods_on(family.read_key(TAKEN_APART))
    expect(values.filter(has_text="?")).to_have_count(len(on))
    press("slower by the threshold or more")
    expect(panel).to_contain_text(f"{100 * found.attribution[0].relative:+.1f} %")
    expect(panel).to_contain_text(alone[first].replace("_", " "))
    expect(panel.locator(".lt-ablation-opcodes")).to_contain_text("HMMA.16816")
    expect(page.locator(".lt-ablation-score")).to_have_text("You guessed 1 of 1 right.")
    untick(titles[1])
    expect(panel).to_contain_text("Take each out alone first")
    press(f"Only without: {titles[1]}")
    press("Show it without a guess")
    untick(titles[0])
    press("more than the product")
    expect(panel).to_contain_text(f"Together {100 * found.pairs[0].relative:+.1f} %")
    expect(page.locator(".lt-ablation-score")).to_have_text("You guessed 2 of 2 right.")
    choose(page, "kernel", "the fastest at the headline")
    expect(panel).to_contain_text("Untick a method")
    untick(family.method("latency.known_block_size").title)
    press("no difference that counts")
    expect(panel).to_contain_text("implementation failed")
    expect(panel.locator(".lt-ablation-same")).to_contain_text("Nothing.")
    other = family.workloads[1]
    found = ablate_point(family, other, "recorded", {}, ["compute.exponent_base_2"])
    choose(page, "kernel", "the start")
    choose(page, "workload", str(other))
    expect(bench.locator(".lt-value")).to_contain_text(f"{found.of.time_us:.2f} us")
    expect(page.locator(".lt-ablation .lt-now").first).to_contain_text(str(other))
    expect(page.locator(".lt-ablation-score")).to_have_text("You guessed 3 of 3 right.")
    choose(page, "workload", index=0)


# ------------------------------------------------------------------------------------ lab 10


LAB10, HELD = "labs/lab10_inversion.md", "Every constraint holds."
MOVES_WITHIN_S = 0.7


def pick(page: Any, name: str, label: str) -> None:
    page.locator(".lt-budget").get_by_label(name, exact=True).select_option(label=label)


def row(page: Any, name: str) -> Any:
    constraints = page.locator(".lt-budget-constraint")
    return constraints.filter(has=page.get_by_role("rowheader", name=name, exact=True))


def walk_lab10(page: Any) -> None:
    """Decode as it begins, layouts of both bad kinds, what is derived; then another operation."""
    headline = page.locator(".lt-budget-headline")
    page.locator(".lt-budget").wait_for()
    expect(headline).to_contain_text("do not hold")
    expect(row(page, "bank conflicts")).to_contain_text("costs time")
    expect(row(page, "alignment")).to_contain_text("holds")
    pick(page, "rows in shared memory", "2 bytes behind each")
    expect(row(page, "alignment")).to_contain_text("fails")
    expect(page.locator(".lt-budget-now")).to_contain_text("cannot run as it is")
    page.get_by_role("button", name="Derive").click()
    expect(headline).to_have_text(HELD)
    expect(page.locator(".lt-budget-fill-holds")).to_have_count(3)
    expect(page.locator(".lt-budget-panel")).to_contain_text("r09_inverted")
    expect(page.locator(".lt-budget-compiled")).to_contain_text("registers per thread")
    pick(page, "operation", "prefill")
    space = space_of("prefill", BENCH_WORKLOADS["prefill"][0], load_gpu("h200"))
    pick(page, "warpgroups", "3")
    pick(page, "keys of a tile", "176")
    expect(row(page, "registers")).to_contain_text("costs time")
    began = time.monotonic()
    page.get_by_role("button", name="Derive").click()
    expect(headline).to_have_text(HELD)
    assert time.monotonic() - began < MOVES_WITHIN_S
    expect(page.locator(".lt-budget-now")).to_contain_text(f"{space.design.time_us:.4g} us")
    expect(page.locator(".lt-budget-steps li")).to_have_count(len(space.design.steps))
    pick(page, "operation", "moe")
    expect(page.locator(".lt-budget-panel")).to_contain_text("No shipped kernel")
    pick(page, "operation", "decode")
    pick(page, "precision", "K and V in 8 bits")
    expect(page.locator(".lt-budget-panel")).to_contain_text("labtools forecast r10_inverted_int8")


def test_lab10_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB10)
    run_all(page)
    page.locator(".lt-budget").wait_for()
    pick(page, "precision", "K and V in 4 bits")
    page.get_by_role("button", name="Derive").click()
    page.locator(".lt-budget").get_by_role("button", name="Compile and forecast").click()
    compiled = page.locator(".lt-budget-compiled")
    expect(compiled).to_contain_text("registers per thread", timeout=60_000)
    expect(page.locator(".lt-budget-forecast")).to_contain_text("us, bound by")
    finish_lab(page, lab_server, LAB10, ".lt-budget", ["tensor cores"])
    expect(page.get_by_text("You said tensor cores.")).to_have_count(1)


# ------------------------------------------------------------------------------------ lab 11


def walk_lab11(page: Any) -> None:
    page.get_by_text("Ask me nothing on any page").first.click()
    outcome = page.locator(".lt-sanitizer-outcome")
    expect(outcome).to_have_text("faults computed")
    expect(page.locator(".lt-sanitizer-row-off")).to_have_count(56 + 1)  # and its key
    slide(page, "halves per row", "ArrowRight", 72 - 65)
    expect(outcome).to_have_text("wrong computed")
    expect(page.locator(".lt-sanitizer-row-off")).to_have_count(1)
    page.get_by_label("repaired", exact=True).select_option("both")
    expect(outcome).to_have_text("right computed")
    expect(page.locator(".lt-sanitizer .lt-now")).to_contain_text("memcheck: clean")


# ------------------------------------------------------------------------- pages from disk


WALKS = {
    "lab02_baseline": (walk_lab02, ".lt-tl"),
    "lab05_split": (walk_lab05, ".lt-split"),
    "lab07_ncu": (walk_lab07, ".lt-ncu"),
    "lab08_ablation": (walk_lab08, ".lt-ablation"),
    "lab10_inversion": (walk_lab10, ".lt-budget"),
    "lab11_sanitizer": (walk_lab11, ".lt-sanitizer"),
}


@pytest.mark.slow
@pytest.mark.parametrize("lab", WALKS)
def test_a_page_without_a_kernel_has_a_live_bench(built_site: Path, page: Any, lab: str) -> None:
    walk, view = WALKS[lab]
    open_static(page, built_site, lab)
    if lab != "lab10_inversion":  # which begins without a question
        assert not page.locator(view).is_visible(), "the answer stands before the question"
    walk(page)
    look_at_widths(page, f"static-{lab}", view)
