"""A newcomer without a GPU, who knows the README and nothing else: from the clone to a score.

Commands are taken from the README and from what pages say; on pages only what can be read is
pressed and followed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from driver import expect, open_page, shoot, wait_for

from tools.choose import find_driver
from tools.slow_list import EVERY_CASE

ROOT = Path(__file__).resolve().parents[2]
GUESS = "3"
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/lab\S*\?token=\w+")
pytestmark = pytest.mark.skipif(not EVERY_CASE, reason="make audit installs the lab anew")


def newcomers_environment(folder: Path) -> dict[str, str]:
    """What a newcomer has set: nothing of ours, and no cache but the installers'."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LABTOOLS_", "JUPYTER", "PYTEST_", "PYTHON", "MPL", "IPYTHON"))
    }
    env.pop("VIRTUAL_ENV", None)
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    env.setdefault("UV_CACHE_DIR", str(kept / "uv"))
    env.setdefault("PIP_CACHE_DIR", str(kept / "pip"))
    return env | {"XDG_CACHE_HOME": str(folder / "cache")}


def processes_of(folder: Path) -> list[psutil.Process]:
    """Those that were started in a folder or with a program of it."""

    def is_there(one: psutil.Process) -> bool:
        try:
            return str(folder) in " ".join([one.cwd(), *one.cmdline()])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    return [one for one in psutil.process_iter() if is_there(one)]


def said_in(text: str, command: str) -> str:
    """A command as a text says it: the rest of its line of code is no part of it."""
    found = re.search(rf"^{command}.*?(?=\s+#|$)|(?<=`){command}[^`]*(?=`)", text, re.MULTILINE)
    assert found, f"{command} is not told"
    return found[0]


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A fresh clone; after the test no process of it is left, and nothing on the disk."""
    if find_driver() is not None:
        pytest.skip("it is about a machine without a GPU")
    made = tmp_path / "guide"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(made)], check=True)
    try:
        yield made
        wait_for(lambda: not processes_of(tmp_path), 20, "every process of the lab to end")
    finally:
        for left in processes_of(tmp_path):
            left.kill()
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def lab(clone: Path) -> Iterator[str]:
    """The address that the README's ``make lab`` prints, where it opens no browser itself."""
    readme = (clone / "README.md").read_text("utf-8")
    needs = said_in(readme, "sudo apt-get install").split()[3:]
    asked = subprocess.run(["dpkg-query", "-W", *needs], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    assert said_in(readme, "make lab") == "make lab"
    command, log = said_in(readme, "make lab ARGS"), clone.parent / "lab.log"
    with open(log, "w") as out:
        started = subprocess.Popen(
            command.split(),
            cwd=clone,
            env=newcomers_environment(clone.parent),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        found = wait_for(
            lambda: _ADDRESS.search(log.read_text()) or started.poll() is not None,
            180,
            f"the lab's address in {log.read_text()}",
        )
        assert isinstance(found, re.Match), log.read_text()
        yield found[0]
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(30)


@pytest.fixture
def window(browser: Any) -> Iterator[Any]:
    with open_page(browser, fills=True) as opened:
        yield opened


def shown(page: Any) -> Any:
    """The page that is in front: JupyterLab keeps the others behind it."""
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")


def run_page(page: Any) -> None:
    button = shown(page).get_by_role("button", name="Run this page")
    button.or_(shown(page).get_by_text("Run this page")).first.click()


def follow(page: Any, name: str, heading: str) -> None:
    """Click a link by its words, and wait for the page that it opens."""
    shown(page).get_by_role("link", name=name, exact=True).first.click()
    expect(shown(page).get_by_role("heading", name=heading).first).to_be_visible(timeout=40_000)


def guess(form: Any, direction: str) -> None:
    form.get_by_role("radio", name=direction).check(timeout=60_000)
    form.get_by_label("by a factor of").fill(GUESS)
    form.get_by_role("button", name="Commit prediction").click()


def test_a_newcomer_comes_from_the_clone_to_a_score(clone: Path, lab: str, window: Any) -> None:
    page = window
    page.goto(lab)
    expect(shown(page)).to_contain_text("Choose Run this page above the page", timeout=60_000)
    journal = shown(page).locator("code", has_text=re.compile("^labtools journal")).inner_text()

    # A guess.
    run_page(page)
    guess(shown(page), "slower")
    expect(shown(page)).to_contain_text("Direction right", timeout=60_000)
    shoot(page, "newcomer-guess")

    # A kernel, broken as its page proposes.
    follow(page, "A first kernel", "A first kernel, and one that you write")
    expect(shown(page)).to_contain_text("if you leave out the line with return")
    shown(page).locator(".cm-line", has_text="if (row >= rows) return;").click()
    for key in ("Home", "Shift+End", "Delete"):
        page.keyboard.press(key)
    run_page(page)
    told = shown(page).locator(".jp-OutputArea", has_text="wrong in").first
    expect(told).to_contain_text("out of bounds: reads 2 bytes at element", timeout=90_000)
    expect(told).to_contain_text("thread_a_row (cell):12, block (0, 0, 0), thread (6, 0, 0)")
    expect(told).to_contain_text("12 | const float value = __half2float(x[row * columns + c]);")
    shoot(page, "newcomer-kernel")

    # A lab, from the start page.
    page.get_by_role("tab", name=re.compile("^index")).click()
    follow(page, "Lab 4", "Lab 4: you, the model, and the clock")
    run_page(page)
    expect(shown(page)).to_contain_text("Round 1 of 9", timeout=90_000)
    guess(shown(page), "faster")
    shown(page).get_by_role("button", name="Reveal the measurement").click(timeout=60_000)
    expect(shown(page)).to_contain_text("After 1 round", timeout=60_000)
    shoot(page, "newcomer-lab")

    # What the journal says of both, in a terminal and on a page.
    activate = said_in((clone / "README.md").read_text("utf-8"), "source .venv/bin/activate")
    done = subprocess.run(
        ["bash", "-c", f"{activate} && {journal}"],
        cwd=clone,
        env=newcomers_environment(clone.parent),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "3.00x slower" in done.stdout and "3.00x faster" in done.stdout
    assert done.stdout.count("x off") == 2, done.stdout
    page.goto((clone / journal.split()[-1]).as_uri())
    expect(page.get_by_role("row", name=re.compile("^all of them 2 . of 2 "))).to_be_visible()
