"""Lab 11 as a page without a kernel: the controls find the stride at which the fault is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from driver import expect, look_at_widths, shoot
from test_labs import slide

FIRST_GOOD = 72 - 65


def outcome(page: Any) -> Any:
    return page.locator(".lt-sanitizer-outcome")


@pytest.mark.slow
def test_static_lab11_has_a_live_bench(built_site: Path, page: Any) -> None:
    page.context.set_offline(True)
    page.goto((built_site / "labs/lab11_sanitizer.html").as_uri())
    page.get_by_text("Ask me nothing on any page").first.click()
    page.locator(".lt-sanitizer").wait_for()
    expect(outcome(page)).to_have_text("faults computed")
    expect(page.locator(".lt-sanitizer-row-off")).to_have_count(56 + 1)  # and its key
    slide(page, "halfs a row", "ArrowRight", FIRST_GOOD)
    expect(outcome(page)).to_have_text("wrong computed")
    expect(page.locator(".lt-sanitizer-row-off")).to_have_count(1)
    page.get_by_label("repaired", exact=True).select_option("both")
    expect(outcome(page)).to_have_text("right computed")
    expect(page.locator(".lt-sanitizer .lt-now")).to_contain_text("memcheck: clean")
    shoot(page, "static-lab11", page.locator(".lt-bench"))
    look_at_widths(page, "static-lab11", ".lt-bench", ".lt-sanitizer")
