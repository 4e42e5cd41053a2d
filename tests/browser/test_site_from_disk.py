"""The built book, opened from disk with the network cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from devices import some_of
from driver import settle, shoot
from PIL import Image, ImageChops, ImageStat

from tools.lab_picture import LAB, PICTURE, take_picture
from tools.pdf import WIDGETS_DRAWN
from tools.reading import KEPT_SHORT, SHOW_ALL, count_page, over
from tools.toc import toc_pages

ROOT = Path(__file__).resolve().parents[2]


# Tables that are wider than their place: headings of those, with everything unfolded.
WIDE_TABLES = """() => {
    document.querySelectorAll("main details").forEach(one => { one.open = true; });
    const scroller = one => {
        while (one.tagName !== "MAIN" && getComputedStyle(one).overflowX === "visible")
            one = one.parentElement;
        return one;
    };
    const wide = one => {
        const held = scroller(one);
        const place = one.closest(".cell_output, section").getBoundingClientRect();
        return held.scrollWidth > held.clientWidth + 1
            || one.getBoundingClientRect().right > place.right + 1;
    };
    return [...document.querySelectorAll("main table:not(.highlighttable)")]
        .filter(one => one.offsetWidth && wide(one))
        .map(one => one.textContent.trim().slice(0, 100));
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", toc_pages(ROOT))
def test_a_page_works_without_a_network(built_site: Path, page: Any, name: str) -> None:
    page.context.set_offline(True)
    asked: list[str] = []
    broken: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.on("requestfailed", lambda request: broken.append(request.url))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((built_site / f"{name}.html").as_uri())
    page.wait_for_selector(".bd-article h1")
    page.evaluate(SHOW_ALL)
    if page.locator(".math").count():
        page.wait_for_selector("mjx-container svg", timeout=20_000)
    page.wait_for_function(WIDGETS_DRAWN)
    settle(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 391, f"it is {wide} px wide on a screen of 390"
    assert page.evaluate(WIDE_TABLES) == [], "on a screen of 390"
    shoot(page, f"site-phone-{name.replace('/', '-')}")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate(WIDE_TABLES) == [], "on a screen of 1280"
    assert page.locator("a[href*=_sources]").count() == 0, "a link to what is not there"
    assert page.locator("link[rel~=icon]").count() == 1
    outside = [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
    assert outside == []
    assert broken == []


@pytest.mark.parametrize("name", KEPT_SHORT)
def test_a_page_that_was_made_short_stays_so(built_site: Path, page: Any, name: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    counts = count_page(page, built_site / f"{name}.html")
    assert over(name, counts) == [], counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    some_of(
        [(n, s, w) for n in toc_pages(ROOT) for s, w in (("light", 1440), ("dark", 360))],
        12,
        [("book/index", "dark", 360)],
    ),
)
def test_nothing_on_a_page_is_a_barrier(
    built_site: Path, browser: Any, name: str, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 900}
    with browser.new_context(color_scheme=scheme, viewport=size) as context:
        page = context.new_page()
        page.goto((built_site / f"{name}.html").as_uri())
        page.evaluate(SHOW_ALL)
        settle(page)
        found = Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], [at["html"] for at in one["nodes"]]) for one in serious]


def unlike(one: Image.Image, other: Image.Image) -> float:
    """How far two pictures are apart, made small and grey: 0 to 255, the mean over their dots."""
    small = (picture.convert("L").resize((100, 100)) for picture in (one, other))
    return ImageStat.Stat(ImageChops.difference(*small)).mean[0]


def test_the_readme_shows_the_bench_of_its_lab(built_site: Path, browser: Any) -> None:
    """Another machine's letters may move it a little; another lab's bench is 20 away."""
    kept, taken = Image.open(PICTURE), take_picture(built_site, browser)
    assert kept.width == taken.width and kept.height == pytest.approx(taken.height, rel=0.05)
    assert unlike(kept, taken) < 5 < 20 < unlike(kept, kept.transpose(Image.Transpose.ROTATE_180))
    shown = (
        f'<img src="{PICTURE.relative_to(ROOT)}" width="520" alt="The bench of lab {int(LAB[3:5])}:'
    )
    assert shown in (ROOT / "README.md").read_text()


def test_the_start_page_takes_its_guess_at_once(built_site: Path, page: Any) -> None:
    page.goto((built_site / "book/index.html").as_uri())
    question, ladder = page.locator(".lt-gate-static"), page.get_by_alt_text("from the slowest")
    assert page.get_by_role("heading", name="Choose a door").is_visible(), "nothing waits"
    assert not ladder.is_visible()
    question.get_by_role("radio", name="slower").check()
    question.get_by_label("by a factor of").fill("2")
    question.get_by_role("button", name="Commit prediction").click()
    assert ladder.is_visible()
    assert "You said: 2.00x slower" in page.locator(".lt-score-static").inner_text()


def test_a_word_of_the_glossary_explains_itself(built_site: Path, page: Any, browser: Any) -> None:
    address = (built_site / "book" / "attention.html").as_uri()
    page.goto(address)
    word, tip = page.locator("main a[data-term]").first, page.locator("#term-tip")
    shown = page.evaluate("one => window.GLOSSARY[one]", word.get_attribute("data-term"))
    word.hover()
    assert tip.inner_text().strip() in page.evaluate(
        "html => new DOMParser().parseFromString(html, 'text/html').body.textContent", shown
    )
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    word.focus()
    assert tip.is_visible()
    with browser.new_context(has_touch=True, viewport={"width": 390, "height": 844}) as phone:
        touched = phone.new_page()
        touched.goto(address)
        word = touched.locator("main a[data-term]").first
        word.tap()
        assert touched.locator("#term-tip").is_visible()
        assert touched.url == address
        word.tap()
        touched.wait_for_url("**/glossary.html#term-*")
