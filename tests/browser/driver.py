"""Driving JupyterLab in Chromium: start a server, open a notebook, run it, look at it."""

from __future__ import annotations

import functools
import http.server
import json
import math
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import TimeoutError as NothingShown
from playwright.sync_api import expect

from labtools.problem import repository_root

expect.set_options(timeout=20_000)  # as a page's own limit below
SCREENSHOTS = repository_root() / "_build" / "screenshots"
KEEP_PICTURES = os.environ.get("LABTOOLS_PICTURES") == "1"


@dataclass(frozen=True)
class Server:
    """A running JupyterLab."""

    url: str
    token: str
    folder: Path

    def api(self, path: str, method: str = "GET", seconds: float = 10) -> Any:
        """The answer of the server's REST interface."""
        asked = {"headers": {"Authorization": f"token {self.token}"}, "method": method}
        request = urllib.request.Request(f"{self.url}/api/{path}", **asked)
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)


@contextmanager
def start_server(folder: Path, environment: dict[str, str]) -> Iterator[Server]:
    """Run JupyterLab on ``folder`` until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    variables = {
        **{name: value for name, value in os.environ.items() if name != "LABTOOLS_READER"},
        "JUPYTER_CONFIG_PATH": str(repository_root() / "jupyter_config"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / ".settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / ".workspaces"),
        **environment,
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    command += [f"--port={port}", f"--IdentityProvider.token={token}"]
    command += [f"--ServerApp.root_dir={folder}", "--ServerApp.port_retries=0"]
    command += ["--LabApp.expose_app_in_browser=True"]  # for `prompts`
    with open(folder / "server.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=variables, cwd=folder)
    server = Server(f"http://127.0.0.1:{port}", token, folder)
    try:
        wait_for(lambda: _answers(server), 60, "JupyterLab to answer")
        yield server
    finally:
        process.terminate()
        process.wait(20)


def _answers(server: Server) -> bool:
    try:
        return bool(server.api("status"))
    except (OSError, urllib.error.URLError):
        return False


@contextmanager
def open_page(browser: Any, *, fills: bool = False) -> Iterator[Any]:
    """A fresh page that nothing was kept for. Only with ``fills`` a notebook without outputs asks
    for them."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(20_000)
    if not fills:
        context.route("**/fieldguide/filled*", lambda route: route.abort())
    try:
        yield context.new_page()
    finally:
        context.close()


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Poll until ``condition`` is true and return what it gave."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


def open_notebook(page: Any, server: Server, path: str) -> None:
    """Open a notebook alone on the screen and wait until its kernel is ready."""
    tries = 3  # JupyterLab's page stays blank once in a while; a person would load it again
    for attempt in range(1, tries + 1):
        page.goto(f"{server.url}/doc/tree/{path}?token={server.token}&reset")
        try:
            page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=40_000)
            break
        except NothingShown:
            if attempt == tries:
                raise
    wait_for(lambda: _kernel_ready(server, path), 60, "the kernel")


def _kernel_ready(server: Server, path: str) -> bool:
    # The indicator in the page says idle before the kernel is connected; the server knows better.
    for session in server.api("sessions"):
        kernel = session.get("kernel") or {}
        if session["path"] == path and kernel.get("connections", 0) > 0:
            return bool(kernel.get("execution_state") == "idle")
    return False


_RUN = """cells => Promise.race([
    window.jupyterapp.commands.execute(`notebook:run-all-${cells}`),
    new Promise((_, late) => setTimeout(late, 180_000, Error("the cells do not end")))])"""


def run_all(page: Any, cells: str = "cells") -> None:
    """Run every cell, as the menu does, or with ``below`` from the chosen one on, to the end."""
    page.evaluate(_RUN, cells)


_PROMPTS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === "code")
    .map(cell => cell.inputArea?.promptNode?.textContent
        ?? `[${cell.model.executionCount ?? " "}]:`)
"""


def prompts(page: Any) -> list[str]:
    """``[3]:``, ``[*]:`` or ``[ ]:`` of each code cell; a folded cell shows its own to nobody."""
    return list(page.evaluate(_PROMPTS))


def unrun_cells(page: Any) -> int:
    """How many cells have not run to their end."""
    return sum(prompt in ("[ ]:", "[*]:") for prompt in prompts(page))


def shoot(page: Any, name: str, whole: Any = None, *, keep: bool = KEEP_PICTURES) -> None:
    """Keep a picture of the page, or of one element, if wanted; see that the element is shown.

    Drawing pictures that nobody looks at takes time, so they are kept where ``LABTOOLS_PICTURES=1``
    asks for them, and of what fails.
    """
    if not keep:
        if whole is not None:
            whole.wait_for(state="visible")
        return
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (whole or page).screenshot(path=str(SCREENSHOTS / f"{name}.png"))


def look_at_widths(page: Any, name: str, view: str) -> None:
    """A view of a static page, wide and narrow, then in the dark; each kept as a picture. Nothing
    may pass its right edge."""
    page.add_style_tag(content="* { transition: none !important; }")  # or the side bars slide
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        assert fits_the_screen(page, view), f"{name} does not fit a width of {width}"
        shoot(page, f"{name}-{width}", page.locator(view))
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    shoot(page, f"{name}-dark", page.locator(view))


_INSIDE = """view => {
    const bench = document.querySelector(view);
    const edge = bench.getBoundingClientRect().right;
    const scrolls = one => ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
    const held = one => one !== bench && (scrolls(one) || held(one.parentElement));
    return [...bench.querySelectorAll("*")].every(one =>
        one.getBoundingClientRect().right <= edge + 1 || held(one.parentElement));
}"""


def fits_the_screen(page: Any, view: str) -> bool:
    """Whether a page does not scroll sideways, and no part of a view passes its right edge.

    What lies in a part of the view that scrolls within itself may be wider.
    """
    settle(page)
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return bool(page.evaluate(_INSIDE, view)) and wide <= 0


def settle(page: Any) -> None:
    """Wait until what was asked of a page is drawn."""
    frame = "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
    page.evaluate(f"document.fonts.ready.then(() => {frame})")


def fits_a_phone(page: Any, name: str, view: str) -> None:
    """Whether a view of a notebook is narrower than a phone; kept as a picture."""
    page.set_viewport_size({"width": 390, "height": 844})
    shown = page.locator(view).first
    shown.scroll_into_view_if_needed()
    assert shown.bounding_box()["width"] < 390
    shoot(page, name, shown)


class StaticServer(http.server.ThreadingHTTPServer):
    """A plain static server of a folder, and what it answered: a status and a path each."""

    def __init__(self, folder: Path, bytes_per_s: float = math.inf) -> None:
        answered: list[str] = []

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Nothing."""

            def copyfile(self, source: Any, outputfile: Any) -> None:
                while part := source.read(65536):
                    outputfile.write(part)
                    time.sleep(len(part) / bytes_per_s)

            def log_request(self, code: Any = "-", size: Any = "-") -> None:
                answered.append(f"{int(code)} {self.path}")

        super().__init__(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
        self.answered = answered
        threading.Thread(target=self.serve_forever, daemon=True).start()
