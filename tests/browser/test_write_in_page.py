"""A kernel is written on the site: compiled, run and told in the tab, from a static server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from devices import some_of
from driver import StaticServer
from test_module import DIFFERENT

from labtools.notebook.exercises import Exercise, exercise_files, load_exercise
from tools.chromium import FLAGS, find_chromium
from tools.toc import toc_pages

ROOT = Path(__file__).resolve().parents[2]
PAGE_OF = {
    name: page
    for page in toc_pages(ROOT)
    for name in exercise_files()
    if f'try_kernel("{name}")' in (ROOT / f"{page}.md").read_text("utf-8")
}
FIRST_RUN_S, RUN_S = 175, 170  # on a slow machine, where other tests run beside it


WRITE = """([box, text]) => {
    const content = box.querySelector(".cm-content");
    const view = (content.cmTile ?? content.cmView).view;
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
}"""


def open_editor(page: Any, site: str, name: str) -> Any:
    page.goto(f"{site}/{PAGE_OF[name]}.html")
    box = page.locator(f'.lt-write[data-write="{name}"]')
    page.evaluate('document.documentElement.classList.remove("lt-asks")')
    box.locator(".cm-editor").wait_for()
    return box


def press(box: Any, name: str) -> None:
    """Press a button, wherever it lies by now: what stands above may still be drawn."""
    box.get_by_role("button", name=name).evaluate("one => one.click()")


def is_focused(box: Any, name: str) -> bool:
    button = box.get_by_role("button", name=name)
    return bool(button.evaluate("one => one === document.activeElement"))


def run(box: Any, text: str, limit_s: int = RUN_S) -> str:
    box.evaluate("(box, text) => (" + WRITE + ")([box, text])", text)
    press(box, "Run")
    box.get_by_role("button", name="Run").wait_for(timeout=limit_s * 1000)
    return str(box.locator(".lt-stages").inner_text())


def is_told(box: Any, exercise: Exercise, mistake: str) -> None:
    """As test_writing.py wants it of JupyterLab: the stage, its words, and the line marked."""
    made = exercise.mistakes[mistake]
    said = run(box, exercise.solution.replace(made.old, made.new))
    last = said.strip().split("\n\u2717 ")[-1].removeprefix("\u2717 ")
    assert last.startswith(made.stage) and made.told in last, said
    if made.at and f"{exercise.name}: {mistake}" not in DIFFERENT:
        assert made.at in box.locator(".lt-fault").all_inner_texts()[0], said


@pytest.mark.parametrize("name", some_of(sorted(PAGE_OF), 1, always=["my_row_sum"]))
def test_a_kernel_is_written_in_the_page(page: Any, site: str, name: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    exercise, box = load_exercise(name), open_editor(page, site, name)
    said = run(box, exercise.start, FIRST_RUN_S)
    assert "\u2717" in said
    said = run(box, exercise.solution)
    assert "\u2717" not in said and "right so far, in " in said, said
    for mistake in some_of(sorted(exercise.mistakes), 2):
        is_told(box, exercise, mistake)
    assert all(url.startswith((site, "blob:", "data:")) for url in asked)


def visit(page: Any, name: str) -> Any:
    """From the start page to a kernel by clicks alone, and what its questions hold back."""
    page.goto(page.url.split("/book/")[0] + "/book/index.html")
    page.locator(f'main a[href$="{PAGE_OF[name].rsplit("/", 1)[-1]}.html"]').first.click()
    box = page.locator(f'.lt-write[data-write="{name}"]')
    button = box.get_by_role("button", name="Run")
    skip = page.get_by_role("button", name="Show it without a guess").filter(visible=True)
    while skip.or_(button).first.wait_for() or not button.is_visible():
        skip.first.click()
    return box


@pytest.mark.parametrize("names", some_of([["my_row_sum", "my_add", "my_r00", "my_r03"]], 0))
def test_a_first_visit_ends_with_kernels_written(
    page: Any, built_site: Path, names: list[str]
) -> None:
    with StaticServer(built_site, bytes_per_s=2_500_000) as static_server:
        begun = time.monotonic()
        page.goto(f"http://127.0.0.1:{static_server.server_port}/book/index.html")
        exercise, box = load_exercise(names[0]), visit(page, names[0])
        said = run(box, exercise.start)
        assert "\u2717" in said and time.monotonic() - begun < 60
        for mistake in exercise.mistakes:
            is_told(box, exercise, mistake)
        for name in names:
            assert "\u2717" not in run(visit(page, name), load_exercise(name).solution)
        told = saved_page(page, visit(page, names[-1]))
        assert f"{len(names)} of {len(PAGE_OF)} kernels written" in told
        static_server.shutdown()


def saved_page(page: Any, box: Any) -> str:
    with page.expect_download() as kept:
        press(box, "All my kernels")
    return Path(kept.value.path()).read_text("utf-8")


def test_a_second_visit_needs_no_network(page: Any, static_server: StaticServer, site: str) -> None:
    exercise, box = load_exercise("my_row_sum"), open_editor(page, site, "my_row_sum")
    page.evaluate("navigator.serviceWorker.ready.then(() => undefined)")
    assert "\u2717" not in run(box, exercise.solution, FIRST_RUN_S)
    static_server.shutdown()
    static_server.server_close()
    box = open_editor(page, site, "my_row_sum")
    assert "\u2717" in run(box, exercise.start, FIRST_RUN_S)
    told = saved_page(page, box)
    assert f"1 of {len(PAGE_OF)} kernels written" in told and exercise.start.strip()[:40] in told


def test_where_a_service_worker_is_not_allowed_the_browser_keeps_the_compiler(
    browser: Any, static_server: StaticServer, tmp_path: Path
) -> None:
    exercise, flags = load_exercise("my_row_sum"), [*FLAGS, "--host-resolver-rules=MAP * 127.0.0.1"]
    launch = browser.browser_type.launch_persistent_context  # others keep nothing on a disk
    with launch(tmp_path, executable_path=find_chromium(), args=flags) as kept:
        for _ in range(2):
            page = kept.new_page()
            box = open_editor(page, f"http://guide.test:{static_server.server_port}", "my_row_sum")
            assert page.evaluate("!window.isSecureContext")
            assert "\u2717" in run(box, exercise.start, FIRST_RUN_S)
    assert len([one for one in static_server.answered if "/llvm-" in one]) == 1


def test_what_was_written_is_kept_and_a_run_can_be_stopped(page: Any, site: str) -> None:
    exercise, box = load_exercise("my_row_sum"), open_editor(page, site, "my_row_sum")
    said = run(box, exercise.start.replace("}\n", "  for (;;);\n}\n"), FIRST_RUN_S)
    assert "hang" in said and "for (;;)" in box.locator(".lt-fault").inner_text()
    box = open_editor(page, site, "my_row_sum")
    assert "for (;;);" in box.locator(".cm-content").inner_text()
    assert page.locator(".lt-replaced pre", has_text="%%cuda my_row_sum").is_hidden()
    press(box, "Run")
    press(box, "Stop")
    assert "Stopped" in box.locator(".lt-write-status").inner_text()
    page.on("dialog", lambda dialog: dialog.accept())
    press(box, "Start over")
    assert "for (;;);" not in box.locator(".cm-content").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_editor_is_accessible_and_fits_a_telephone(page: Any, site: str, theme: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=theme)
    box = open_editor(page, site, "my_row_sum")
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
    found = Axe().run(page, context=".lt-write").response["violations"]
    assert not [one["id"] for one in found if one["impact"] in ("serious", "critical")], found
    box.locator(".cm-content").focus()
    page.keyboard.press("Tab")
    assert is_focused(box, "Run")


def test_a_kernel_is_written_and_run_by_keyboard(page: Any, site: str) -> None:
    box = open_editor(page, site, "my_row_sum")
    box.locator(".cm-content").focus()
    page.keyboard.type("// a slash\n")
    assert box.locator(".cm-line").first.inner_text() == "// a slash"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert is_focused(box, "Stop")
    box.get_by_role("button", name="Run").wait_for(timeout=FIRST_RUN_S * 1000)
    assert is_focused(box, "Run")


def test_a_page_from_disk_says_what_to_do_and_has_kernels_that_were_checked(
    page: Any, built_site: Path
) -> None:
    box = open_editor(page, built_site.as_uri(), "my_row_sum")
    assert box.get_by_role("button", name="Run").is_disabled()
    assert "http.server" in box.locator(".lt-write-status").inner_text()
    made, told = load_exercise("my_row_sum").mistakes, []
    box.get_by_role("button", name=f"kernel {len(made) + 1}").wait_for()
    for number in range(len(made) + 1):
        press(box, f"kernel {number + 1}")
        press(box, "Run")
        told.append(box.locator(".lt-stages").inner_text())
        marked = [one for one in made.values() if one.at and one.told in told[-1]]
        assert not marked or marked[0].at in box.locator(".lt-fault").all_inner_texts()[0]
    assert len([said for said in told if "\u2717" not in said]) == 1
    assert all(any(one.told in said for said in told) for one in made.values())
