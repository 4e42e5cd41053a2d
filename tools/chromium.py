"""Find Chromium for the browser tests, or install Debian's (run by ``make test``)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHELL = "chromium-headless-shell"
"""Chromium without windows: it shows a page as Chromium does and takes less time for it."""
CANDIDATES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APT_PACKAGES = (SHELL, "chromium")
"""The first that apt-get has."""
FONTS = "fonts-dejavu-core"
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
).split()


def find_chromium(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The browser to drive: ``LABTOOLS_CHROMIUM`` if it is set, else the first one on the path."""
    named = environ.get("LABTOOLS_CHROMIUM")
    if named:
        return Path(named) if Path(named).is_file() else None
    for name in CANDIDATES:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return Path(found)
    return None


def can_run(browser: Path) -> bool:
    """Whether the browser starts at all; a package can be there without its libraries."""
    try:
        asked = subprocess.run([browser, "--version"], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


@contextmanager
def start_browser() -> Iterator[Any]:
    """A headless Chromium, as Playwright drives it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def root_prefix() -> list[str] | None:
    """What to put in front of a command that root must run; ``None`` when there is no way."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    if sys.stdin.isatty():
        return ["sudo"]
    # Without a terminal nobody can type a password.
    free = subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0
    return ["sudo", "-n"] if free else None


def main() -> int:
    if os.environ.get("SKIP_BROWSER") == "1":
        print("SKIP_BROWSER=1: the browser tests are left out.")
        return 0
    browser = find_chromium()
    if browser is not None and can_run(browser):
        return 0
    prefix = root_prefix() if shutil.which("apt-get") else None
    if prefix is None:
        print(
            "The browser tests need Chromium, and there is none here.\n"
            "Why it is not installed now: that takes apt-get and root or sudo.\n"
            "What you can do: install Chromium yourself (LABTOOLS_CHROMIUM=/path/to/it names "
            "another one), or leave these tests out: SKIP_BROWSER=1 make test",
            file=sys.stderr,
        )
        return 1
    print("Installing Debian's Chromium with apt-get, for the browser tests.")
    print("Up to 400 MB on disk. SKIP_BROWSER=1 leaves it out.", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = ["-qq", "-o=Dpkg::Use-Pty=0"]
    subprocess.run([*prefix, "apt-get", "update", *quiet], env=env, stdout=subprocess.DEVNULL)
    install = [*prefix, "apt-get", "install", "-y", "--no-install-recommends", *quiet, FONTS]
    for package in APT_PACKAGES:
        done = subprocess.run([*install, package], env=env, stdout=subprocess.DEVNULL)
        browser = find_chromium()
        if done.returncode == 0 and browser is not None and can_run(browser):
            return 0
    print(
        "Chromium could not be installed; apt-get's words are above.\n"
        "What still works: SKIP_BROWSER=1 make test",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
