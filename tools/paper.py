"""What a page of the site is on paper: text that nobody clicks on, for the PDF and the EPUB.

A question stands as text with its choices. Its answer goes to an appendix, and so does the solution
of an exercise. A bench that waits behind a question on the site goes with that question's answer,
which it would give away. What is folded on the site is left out: plumbing, long listings, hints,
numbers behind a figure. What is open there stays, and so do the reasons of verdicts, a sentence
each.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from bs4 import BeautifulSoup, Tag

APPENDIX, TITLE = "answers", "Answers"
_GONE = (
    "script:not([type*='widget']), style, noscript, form, input, button, a.headerlink, "
    "details:not([open], .lt-result, .lt-reason)"
)
BENCH = "script[type*='widget-view']"
_OURS = re.compile(r"(?![a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


@dataclass
class AppendixEntry:
    """What was asked, where on its page the answer is pointed at, and the parts of the answer."""

    asked: str
    places: list[Tag]
    parts: list[str] = field(default_factory=list)


def read_html(text: str) -> BeautifulSoup:
    """A page of the site, or a part of one."""
    return BeautifulSoup(text, "html.parser")


def lay_out(body: Tag, page: str, first: int, suffix: str = ".html") -> list[AppendixEntry]:
    """Make paper of the ``body`` of a page; returns the answers taken out of it.

    They are numbered from ``first``, and links in them lead from the appendix. The files of all
    pages end in ``suffix``.
    """
    for sealed in body.select("[data-sealed]"):
        _unseal(sealed)
    for gone in body.select(_GONE):
        if not gone.decomposed:
            gone.decompose()
    asked: dict[str, AppendixEntry] = {}
    held: AppendixEntry | None = None  # what the page waits for, where it has come to
    for place in body.select(f".lt-gate-static, details.lt-result, div.solution, {BENCH}"):
        if place.has_attr("data-question"):
            question = json.loads(str(place["data-question"]))
            entry = asked[question["id"]] = AppendixEntry(question["text"], [place])
            held = entry if place.has_attr("data-holds") else held
            _write_question(place, question)
            continue
        if place.name == "script":
            if held is not None and any(one is body for one in place.parents):
                held.places.append(_pointer_before(place))
                held.parts.append(_moved(place.extract(), page, suffix))
            continue
        answer = asked.get(str(place.get("data-of")))
        title = place.find(["summary", "p"])
        if answer is None:  # it belongs to no question: it is pointed at where it stood
            heading = title if place.name == "div" else place.find_previous(["h1", "h2", "h3"])
            assert heading is not None
            said = heading.get_text(" ", strip=True)
            answer = asked[f"{len(asked)}"] = AppendixEntry(said, [_pointer_before(place)])
        if title is not None and title.parent is place:
            title.extract()
        _unfold(place)
        answer.parts.append(_moved(place.extract(), page, suffix))
    found = [one for one in asked.values() if one.parts]
    there = posixpath.relpath(APPENDIX + suffix, posixpath.dirname(page) or ".")
    for number, answer in enumerate(found, first):
        link = f'<p class="to-answer"><a href="{there}#answer-{number}">Answer {number}</a></p>'
        for place in answer.places:
            place.append(read_html(link))
    _unfold(body)
    for cell in body.select("div.cell, div.cell_input, div.cell_output"):
        if not cell.decomposed and not cell.get_text(strip=True) and not cell.select("img, script"):
            cell.decompose()
    for section in reversed(body.select("section")):  # of some only the heading is left
        said = section.get_text("", strip=True)
        if len(section.find_all(True, recursive=False)) == 1 and said == _heading(section):
            section.decompose()
    _drop_attributes(body)
    return found


def appendix(pages: Mapping[str, tuple[str, list[AppendixEntry]]], suffix: str = ".html") -> str:
    """The body of the appendix: of each page its title and its answers, counted from 1."""
    parts, number = [f"<h1>{TITLE}</h1>"], 0
    for page, (title, answers) in pages.items():
        if answers:
            parts.append(f'<h2><a href="{page}{suffix}">{escape(title)}</a></h2>')
        for answer in answers:
            number += 1
            asked = escape(textwrap.shorten(answer.asked, 90, placeholder=" …"))
            parts.append(f'<section id="answer-{number}"><h3>{number}. {asked}</h3>')
            parts += [*answer.parts, "</section>"]
    return f"<section>{''.join(parts)}</section>"


def _pointer_before(place: Tag) -> Tag:
    """An empty box where a part of an answer stood."""
    pointer = read_html("<div></div>").div
    assert pointer is not None
    place.insert_before(pointer)
    return pointer


def _heading(section: Tag) -> str:
    heading = section.find(["h2", "h3", "h4"], recursive=False)
    return heading.get_text("", strip=True) if heading else "no heading"


def _unseal(place: Tag) -> None:
    """Give a round the result that the site's script would unpack."""
    sealed = json.loads(base64.b64decode(str(place["data-sealed"])))
    gate = place.select_one("[data-question]")
    assert gate is not None
    told = f"<p>Recorded: {escape(sealed['measured'])}.</p>" if sealed.get("measured") else ""
    result = read_html(f'<details class="lt-result"><summary></summary>{told}{sealed["html"]}')
    assert result.details is not None
    result.details["data-of"] = json.loads(str(gate["data-question"]))["id"]
    place.append(result)


def _write_question(place: Tag, question: Mapping[str, Any]) -> None:
    """List the choices of a question, in place of what the site says about opening the result."""
    place.select("p")[-1].decompose()
    labels = question.get("labels", ())
    choices = question.get("choices", [f"{one}: ______" for one in labels])
    if choices:
        items = "".join(f"<li>{escape(one)}</li>" for one in choices)
        place.append(read_html(f"<ul>{items}</ul>"))


def _unfold(body: Tag) -> None:
    """Make plain boxes of what can be folded."""
    for box in [body, *body.select("details")]:
        if box.name == "details":
            box.name = "div"
            del box["open"]
    for summary in body.select("summary"):
        summary.name = "p"


def _moved(part: Tag, page: str, suffix: str) -> str:
    """HTML of a part of a page for the appendix: links hold from there, and there are no ids."""
    for one in [part, *part.select("[id], [href], [src]")]:
        del one["id"]
        for name in ("href", "src"):
            said = str(one.get(name, ""))
            if said and _OURS.match(said):
                path, _, anchor = said.partition("#")
                path = posixpath.join(posixpath.dirname(page), path) if path else page + suffix
                one[name] = posixpath.normpath(path) + ("#" + anchor if anchor else "")
    _drop_attributes(part)
    return part.decode()


def _drop_attributes(body: Tag) -> None:
    """Drop what only scripts and keyboards need."""
    for one in [body, *body.find_all(True)]:
        if one.name != "script":
            names = [name for name in one.attrs if name.startswith("data-") or name == "tabindex"]
            for name in names:
                del one[name]
