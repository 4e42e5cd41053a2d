"""Predict first: no page gives an answer away, and plumbing is folded by one rule."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labtools.notebook.cells import LESSON, MOST_OPEN_LINES, code_cells, fold_options, is_plumbing
from labtools.notebook.magic import run_solution
from labtools.notebook.static_page import static_question, static_result
from labtools.notebook.tables import Shown
from labtools.problem import LabError
from tools.toc import executable_pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = executable_pages(ROOT)


def cells_of(text: str) -> Iterator[tuple[list[str], str]]:
    """Option lines and code of each cell of a page."""
    lines = text.split("\n")
    for cell in code_cells(lines):
        yield lines[cell.start + 1 : cell.body], "\n".join(lines[cell.body : cell.end])


# ------------------------------------------------------------------------------- answers

_RESULT = re.compile(
    r'<details class="lt-result" data-of="([^"]*)" data-scored="([^"]*)">(.*?)</details>', re.DOTALL
)
_ASKS = re.compile(r"^(\w+) = ask(?:_choice|_numbers)?\(", re.MULTILINE)
_TIME = re.compile(r"<td[^>]*>(\d+(?:\.\d+)?)</td>")
_RATIO = re.compile(r"\d+\.\d\dx (?:faster|slower)")


def words_of(output: Any) -> str:
    """What an output shows: HTML where it has any, without its results, which are folded."""
    data = output.get("data", {})
    shown = data.get("text/html") or data.get("text/plain") or output.get("text", "")
    return _RESULT.sub("", "".join(shown))


def refusal_of(name: str) -> re.Pattern[str]:
    """What stops a reader without a guess at the gate of this name."""
    refuses = rf"^{name}\.(?:result|require_prediction)\(|time_here\([^`]*\b{name}\b"
    return re.compile(refuses, re.MULTILINE)


def first_refusal(codes: list[str], asked: int, answered: int) -> int:
    """The first cell that a reader without a guess does not get past, at the latest the answer."""
    name = _ASKS.search(codes[asked])
    if name is None:
        return answered
    refuses = refusal_of(name[1])
    return next(at for at in range(asked, answered + 1) if refuses.search(codes[at]))


def answers_given_away(cells: list[tuple[str, list[Any]]]) -> list[str]:
    """Questions whose answer shows before a guess, on a page that was executed with nobody there.

    An answer is known by its two times or, where there are none, by its ratio in words. On the site
    everything above the question shows; in JupyterLab everything above the first cell that refuses.
    A cell that looks whether a reader is there holds back by itself.
    """
    codes = [code for code, _ in cells]
    asks = re.compile(r"data-question=\"\{&quot;id&quot;: &quot;(.*?)&quot;")
    asked = {
        question: at for at, (_, shown) in enumerate(cells) for question in asks.findall(str(shown))
    }
    away = []
    for answered, (_, outputs) in enumerate(cells):
        for question, _, result in _RESULT.findall("".join(map(markup_of, outputs))):
            signs = set(_TIME.findall(result)) or set(_RATIO.findall(result))
            first = first_refusal(codes, asked[question], answered)
            above = " ".join(
                words_of(output)
                for at, (code, shown) in enumerate(cells[:first])
                if at < asked[question] or "see_answers" not in code
                for output in shown
            )
            numbers = set(re.findall(r"\d+(?:\.\d+)?(?:x \w+)?", html.unescape(above)))
            if len(signs) > 1 and signs <= numbers:
                away.append(question)
    return away


def markup_of(output: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", ""))


def question() -> tuple[str, list[Any]]:
    asked = static_question("q", "Which?", "", {"kind": "ratio"}).html
    return "one = ask(", [{"data": {"text/html": asked}}]


def answer(times: str) -> tuple[str, list[Any]]:
    cells = "".join(f"<td>{time}</td>" for time in times.split())
    result = static_result(Shown(cells, ""), "q", {"ratio": 2.0})
    return "one.result(2)", [{"data": {"text/html": result.html}}]


TABLE = ("show_records()", [{"data": {"text/html": "<td>630.1</td><td>958.2</td>"}}])
HALF = ("print()", [{"text": "r02 took 958.2 us, and r03 is not told"}])
GUARDED = ("see_answers = not reader_present()\nshow_records()", TABLE[1])
MEASURED = ('timing = time_here([\n"r03"], w, one)', TABLE[1])


@pytest.mark.parametrize(
    ("cells", "away"),
    [
        ([TABLE, question(), answer("958.2 630.1")], ["q"]),
        ([question(), TABLE, answer("958.2 630.1")], ["q"]),
        ([GUARDED, question(), answer("958.2 630.1")], ["q"]),
        ([question(), answer("958.2 630.1"), TABLE], []),
        ([HALF, question(), answer("958.2 630.1")], []),
        ([question(), GUARDED, answer("958.2 630.1")], []),
        ([question(), MEASURED, TABLE, answer("958.2 630.1")], []),
    ],
)
def test_an_answer_above_its_question_is_found(
    cells: list[tuple[str, list[Any]]], away: list[str]
) -> None:
    assert answers_given_away(cells) == away


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if _ASKS.search((ROOT / f"{page}.md").read_text())]
)
def test_no_cell_gives_an_answer_away(
    page: str, page_run: Callable[[str], Any], executed_pages: Any
) -> None:
    page_run(page)
    cells = [(cell.source, cell.get("outputs", [])) for cell in executed_pages.outputs(page).cells]
    assert any("lt-gate-static" in str(outputs) for _, outputs in cells)
    assert answers_given_away(cells) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_question_holds_a_result_back(page: str) -> None:
    """What is asked has a cell below that refuses without a guess."""
    code = "\n".join(code for _, code in cells_of((ROOT / f"{page}.md").read_text()))
    for match in _ASKS.finditer(code):
        assert refusal_of(match[1]).search(code, match.end()), match[1]


def test_a_question_and_its_result_carry_what_the_form_needs() -> None:
    form = {"kind": "choice", "choices": ["a"]}
    asked = static_question("q'<1>", 'Which "one"?', "Decide.", form)
    (found,) = re.findall(r'data-question="([^"]*)"', asked.html)
    assert json.loads(html.unescape(found)) == {"id": "q'<1>", "text": 'Which "one"?', **form}
    assert "Decide." in asked.html, "without a script the page says what to do"
    assert "data-holds" in asked.html
    inside = static_question("q", "Which?", "", {"kind": "ratio"}, holds_page=False)
    assert "data-holds" not in inside.html


# ------------------------------------------------------------------------------- solutions


@pytest.mark.parametrize("page", PAGES)
def test_solutions_stay_folded(page: str) -> None:
    text = (ROOT / f"{page}.md").read_text()
    assert "{solution-start}" not in text, "its cells would run with all others"
    for options in re.findall(r"^`{3,}\{solution\}[^\n]*\n((?::[^\n]*\n)*)", text, re.MULTILINE):
        assert ":class: dropdown" in options


class Shell:
    """What a solution needs of IPython."""

    def __init__(self, error: Exception | None = None) -> None:
        self.ran: list[str] = []
        self.error = error

    def run_cell(self, cell: str) -> Shell:
        self.ran.append(cell)
        return self

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error


def test_a_solution_runs_when_it_is_asked_for_or_nobody_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    monkeypatch.setenv("LABTOOLS_READER", "1")
    shell = Shell()
    run_solution(shell, "", "print(81)")
    assert shell.ran == []
    shown[0].children[0].click()
    assert shell.ran == ["print(81)"]
    run_solution(shell, "show", "print(82)")
    assert shell.ran[1:] == ["print(82)"]
    with pytest.raises(LabError, match="not understood"):
        run_solution(shell, "now", "print(83)")
    monkeypatch.setenv("LABTOOLS_READER", "0")
    with pytest.raises(ZeroDivisionError):
        run_solution(Shell(ZeroDivisionError()), "", "1 / 0")


# ------------------------------------------------------------------------------- folding

SET_UP = "beside = 1\nglobals().update(beside)"
LONG = "\n".join(f"x{n} = {n}" for n in range(MOST_OPEN_LINES + 1))
FOLDED = ":tags: [hide-input]\n:jupyter: {source_hidden: true}\n"


@pytest.mark.parametrize(
    ("options", "code", "wanted"),
    [
        ("", "x = 1", ""),
        *(("", code, FOLDED) for code in (LONG, "import numpy", "one.result(2)", SET_UP)),
        *(
            ("", code, FOLDED.replace("hide-", "remove-"))
            for code in ("one = ask(\n'q')", "one = ask_choice(", "x = 1\none = ask_numbers(")
        ),
        (f":tags: [{LESSON}]\n", LONG, f":tags: [{LESSON}]\n"),
        ("", f"%%cuda mine\n{LONG}", ""),
        ("", f"# launch of r00 (kernels/decode/r00.py)\n{LONG}", ""),
        (FOLDED, "x = 1", ""),
        ("---\ntags: [hide-output]\n---", LONG, FOLDED.replace("-input", "-input, hide-output")),
    ],
)
def test_the_rule_for_folded_cells(options: str, code: str, wanted: str) -> None:
    lines = options.split("\n") if options else []
    found = fold_options(lines, code)
    assert found == (wanted.split("\n") if wanted else [])
    assert fold_options(found, code) == found


def test_a_lesson_is_a_long_cell() -> None:
    """The tag opens what would be folded; where it changes nothing it says nothing."""
    for page in PAGES:
        for options, code in cells_of((ROOT / f"{page}.md").read_text()):
            if LESSON in "\n".join(options):
                assert is_plumbing(code), page


WARNING = "The bench knows the answers to the questions below it."


def test_who_meets_a_bench_is_warned_above_it() -> None:
    """A bench that shows what its page asks is behind the sentence that says so."""
    texts = {page: (ROOT / f"{page}.md").read_text() for page in PAGES}
    warned = [page for page, text in texts.items() if WARNING in text]
    assert len(warned) >= 3
    for page in warned:
        above, below = (
            sum(code.rstrip().endswith("\nbench") for _, code in cells_of(part))
            for part in texts[page].split(WARNING)
        )
        assert (above, below) == (0, 1), page
    assert not any("knows the answers to the questions below." in one for one in texts.values())
