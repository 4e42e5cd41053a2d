"""The picture at the top of the README: the bench of lab 1 as it begins, from a built site.

python -m tools.lab_picture _build/html
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from PIL import Image

from tools.chromium import start_browser
from tools.install import ROOT
from tools.reading import BENCHES_DRAWN, SETTLED_MS, SHOW_ALL

PICTURE = ROOT / "book" / "_static" / "lab.png"
LAB = "lab01_occupancy"
_COLOURS = 64


def take_picture(html: Path, browser: Any, lab: str = LAB) -> Image.Image:
    """A lab's bench as it begins, of the site in a folder, at two dots a pixel."""
    size = {"width": 1280, "height": 2400}
    with browser.new_context(viewport=size, device_scale_factor=2) as context:
        page = context.new_page()
        page.goto((html / "labs" / f"{lab}.html").resolve().as_uri())
        page.evaluate(SHOW_ALL)
        page.wait_for_function(BENCHES_DRAWN)
        page.wait_for_timeout(SETTLED_MS)
        page.add_style_tag(
            content="header, .skip-link, #pst-skip-link { display: none !important }"
        )
        bench = page.locator(".lt-view").first
        bench.scroll_into_view_if_needed()
        shot = bench.screenshot()
    return Image.open(io.BytesIO(shot)).convert("RGB").quantize(_COLOURS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("html", type=Path, help="the folder of the site")
    html = parser.parse_args().html
    with start_browser() as browser:
        take_picture(html, browser).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
