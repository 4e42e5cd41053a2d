"""A kernel is written on the site in Firefox too. Only where every case is asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from test_write_in_page import PAGE_OF

from labtools.notebook.exercises import load_exercise
from tools.site_assets import AssetError, fetch_packages, find_node
from tools.slow_list import EVERY_CASE

ROOT = Path(__file__).resolve().parents[2]
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
DEEP = "__device__ __noinline__ int deep(volatile int n) { return deep(n + 1) + n; }\n"


@pytest.fixture(scope="session")
def driver() -> Path:
    """The folder of the script that drives Firefox, with its package."""
    if FIREFOX is None:
        pytest.skip("Firefox is not here")
    if not EVERY_CASE:
        pytest.skip("puppeteer-core is fetched only with LABTOOLS_EVERY_CASE=1")
    try:
        return fetch_packages(Path(__file__).parent, ROOT / "_build" / "firefox")
    except AssetError as error:
        pytest.skip(f"node or puppeteer-core is not here: {error}")


def test_a_kernel_is_written_in_firefox(driver: Path, site: str) -> None:
    exercise = load_exercise("my_row_sum")
    made, right = exercise.mistakes["no barrier before the tree"], exercise.solution
    deep = right.replace('extern "C"', f'{DEEP}extern "C"').replace("sum = 0.f", "sum = deep(1)")
    texts = [exercise.start, right.replace(made.old, made.new), deep, right]
    page = f"{site}/{PAGE_OF[exercise.name]}.html"
    asked = {"firefox": FIREFOX, "page": page, "name": exercise.name, "texts": texts}
    command = [find_node(), str(driver / "firefox.mjs")]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    start, wrong, overflow, solved = found["told"]
    assert "never written" in start["said"]
    assert made.told in wrong["said"] and made.at in wrong["lines"][0]
    assert "stack overflowed" in overflow["said"]
    assert "\u2717" not in solved["said"] and "right so far, in " in solved["said"], solved
    assert found["left"] == "Stopped."
    assert all(url.startswith((site, "blob:", "data:")) for url in found["asked"])
