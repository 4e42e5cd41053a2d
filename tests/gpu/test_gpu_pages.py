"""Pages on a machine with a GPU: they run from top to bottom, and their numbers are live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

PAGES = ("book/ladder/r03_one_warp", "labs/lab02_baseline", "labs/lab08_ablation")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_live(page: str, page_run: Callable[[str], Any], executed_pages: Any) -> None:
    page_run(page)
    texts = [
        str(output.get("text", "")) + str(output.get("data", {}))
        for cell in executed_pages.outputs(page).cells
        for output in cell.get("outputs", ())
    ]
    assert any("live" in text for text in texts), "no cell shows a live number"
