"""The picture at the top of the README: the bench of lab 1 as it begins, from a built site.

python -m tools.lab_picture _build/html
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image

from tools.chromium import start_browser
from tools.install import ROOT
from tools.reading import SETTLED_MS, SHOW_ALL

PICTURE = ROOT / "book" / "_static" / "lab.png"
_COLOURS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("html", type=Path, help="the folder of the site")
    lab = parser.parse_args().html / "labs" / "lab01_occupancy.html"
    with start_browser() as browser:
        size = {"width": 1280, "height": 2400}
        page = browser.new_context(viewport=size, device_scale_factor=2).new_page()
        page.goto(lab.resolve().as_uri())
        page.evaluate(SHOW_ALL)
        page.wait_for_timeout(4 * SETTLED_MS)
        page.add_style_tag(
            content="header, .skip-link, #pst-skip-link { display: none !important }"
        )
        bench = page.locator(".lt-view").first
        bench.scroll_into_view_if_needed()
        shot = bench.screenshot()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(_COLOURS).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
