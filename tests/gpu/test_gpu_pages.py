"""Pages on a machine with a GPU: they run from top to bottom, and their numbers are live."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("book/ladder/r03_one_warp.md", "labs/lab02_baseline.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_live(page: str) -> None:
    path = ROOT / page
    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute(env={**os.environ, "LABTOOLS_READER": "0"})
    texts = [
        str(output.get("text", "")) + str(output.get("data", {}))
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]
    assert any("live" in text for text in texts), "no cell shows a live number"
