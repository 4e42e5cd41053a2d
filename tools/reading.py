"""Count what a reader of each page meets: tables, words, code, folds, pictures.

python -m tools.reading SITE [book/the_gpu ...]   a line a page, * where it is over a limit

The pages are opened in Chromium with every question answered and every widget after its first move.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .chromium import start_browser
from .install import ROOT
from .toc import toc_pages

COUNT_PAGE = Path(__file__).with_suffix(".js").read_text("utf-8")
# What waits behind the questions too, with the questions still asked.
SHOW_ALL = """document.querySelectorAll(".lt-gate-static").forEach(
    gate => { gate.dataset.open = "yes"; })"""
FIRST_MOVE = """document.querySelectorAll(".lt-view").forEach(
    view => view.querySelector("button:not(:disabled)")?.click())"""
BENCHES_DRAWN = """() => [...document.querySelectorAll(".widget-subarea")].filter(
    bench => bench.childElementCount).length === document.querySelectorAll(
    'script[type="application/vnd.jupyter.widget-view+json"]').length"""
SETTLED_MS = 400

FREE = ("book/glossary", "book/tune_your_own", "book/sources", "book/teach", "book/reproduce")
"""Pages to look things up in; the last is the records appendix."""
MOST_ON_A_PAGE = {"tables": 3, "words": 1100, "code": 70, "set-up": 0}
MOST_IN_A_LAB = {"tables": 5, "words": 600}
KEPT_SHORT = tuple(page for page in toc_pages(ROOT) if page not in FREE)
"""Pages that have limits, and stay within them."""


def count_page(page: Any, file: Path) -> dict[str, int]:
    """What the page of a built site shows; ``page`` is Playwright's. The words of a lab are those
    before its first move."""
    page.goto(file.resolve().as_uri())
    page.evaluate(SHOW_ALL)
    page.wait_for_function(BENCHES_DRAWN)
    page.wait_for_timeout(SETTLED_MS)
    before = page.evaluate(COUNT_PAGE)
    page.evaluate(FIRST_MOVE)
    page.wait_for_timeout(SETTLED_MS)
    after = dict(page.evaluate(COUNT_PAGE))
    return after | ({"words": before["words"]} if file.parent.name == "labs" else {})


def over(name: str, counts: Mapping[str, int]) -> list[str]:
    """What of a page is past its limit."""
    if name in FREE:
        return []
    most = {"folds": counts["sections"], "folded": counts["words"]}
    most |= MOST_IN_A_LAB if name.startswith("labs/") else MOST_ON_A_PAGE
    found = [key for key, limit in most.items() if counts[key] > limit]
    return found + ([] if counts["pictures"] else ["pictures"])


def tell(site: Path, names: Iterable[str]) -> int:
    """Print the counts of pages; how many are over a limit."""
    wrong = 0
    with start_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for name in names:
            counts = count_page(page, site / f"{name}.html")
            past = over(name, counts)
            wrong += bool(past)
            said = (f"{key} {value}{'*' * (key in past)}" for key, value in counts.items())
            print(f"{name:34} {'  '.join(said)}", flush=True)
    print(f"{wrong} over a limit")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("site", type=Path)
    parser.add_argument("pages", nargs="*")
    given = parser.parse_args()
    return int(bool(tell(given.site, given.pages or toc_pages(ROOT))))


if __name__ == "__main__":
    sys.exit(main())
