"""The chapters: every reference leads somewhere, no measurement is typed, solutions run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labtools.problem import list_rungs
from labtools.record import published_figures
from tools.toc import code_of, executable_pages, solutions_of

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
PAGES = sorted(path for path in BOOK.rglob("*.md") if not path.parent.name.startswith("_"))
RUNG_PAGES = [BOOK / "ladder" / f"{rung.id}.md" for rung in list_rungs()]
LABS = sorted((ROOT / "labs").glob("*.md"))
CLAIMS = published_figures()

_FENCE = re.compile(r"^(`{3,}|~{3,})(.*)$")
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_MATHS = re.compile(r"\$\$.*?\$\$|\$[^$\n]*\$", re.DOTALL)
_MEASURED = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?) ?(us|µs|ms|ns|GB/s|TB/s|TFLOPS|x (?:faster|slower)|x\b)"
)
_COUNTED = "blocks|warps|bytes|KiB|registers|rows|tiles|flight|threads|cycles|instructions|loads"
_UNITS = "SM|thread|block|warp|row|cycle|byte|key|tile|head|sequence|trip|lane"
_NOT_OURS = re.compile(
    rf"(?<!how many )\b(?:{_COUNTED}) an? (?:{_UNITS})\b(?! (?:may|has|have|can|walks|into|is)\b)"
    r"|\bhalfs\b|\bsent away by\b|\bfor the clock to say\b|\bcan all start at once so\b"
)
"""What papers say otherwise: "rows per warp", "halves"."""
SECTIONS = [
    *("Where we stand", "Limiter", "What changes", "Kernel and launch", "Your prediction"),
    *("Check", "Measure", "Predicted, measured, recorded", "Why"),
]


def split_page(text: str) -> tuple[str, list[tuple[str, str]]]:
    """A page's prose, and its fenced blocks as (info, body). Exercises count as prose."""
    prose: list[str] = []
    blocks: list[tuple[str, str]] = []
    fence, info, body = "", "", []
    for line in text.splitlines():
        match = _FENCE.match(line)
        if not fence and match:
            name = match[2].strip()
            if name.startswith(("{exercise", "{solution", "{glossary", "{bibliography")):
                continue  # its text is prose like any other
            if name or not match[1].startswith("`"):
                fence, info, body = match[1], name, []
        elif fence and line.strip() == fence:
            blocks.append((info, "\n".join(body)))
            fence = ""
        elif fence:
            body.append(line)
        else:
            prose.append(line)
    text = "\n".join(prose)
    front = re.match(r"---\n.*?\n---\n", text, re.DOTALL)
    return text[front.end() :] if front else text, blocks


def prose_of(page: Path) -> str:
    return split_page(page.read_text())[0]


def claimed_numbers(data: object = CLAIMS) -> Iterator[float]:
    if isinstance(data, (dict, list)):
        for value in data.values() if isinstance(data, dict) else data:
            yield from claimed_numbers(value)
    elif isinstance(data, (int, float)):
        yield float(data)


def typed_measurements(prose: str) -> list[str]:
    """Numbers with the unit of a measurement that no figure of claims.yml holds."""
    plain = _MATHS.sub("", _INLINE_CODE.sub("", prose))
    known = set(claimed_numbers())
    return [match[0] for match in _MEASURED.finditer(plain) if float(match[1]) not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_prose_is_plain_and_holds_no_typed_measurement(page: Path) -> None:
    assert typed_measurements(prose_of(page)) == []
    prose = _INLINE_CODE.sub("", _MATHS.sub("", prose_of(page)))
    assert "!" not in prose
    assert not [letter for letter in prose if ord(letter) > 0x2190 and letter not in "⌊⌋"]


@pytest.mark.parametrize("page", [*PAGES, *LABS], ids=lambda p: p.stem)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    text = re.sub(r"^%%cuda .*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [found[0] for found in _NOT_OURS.finditer(text)] == []


def test_a_typed_measurement_is_found_and_a_quoted_claim_is_none() -> None:
    text = "It takes 38.0 us. 2.5x faster, at 4500 GB/s"
    assert typed_measurements(text) == ["38.0 us", "2.5x faster", "4500 GB/s"]
    assert typed_measurements("the headline says 1.91x faster, `3 us` in code") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_reference_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    glossary = (BOOK / "glossary.md").read_text()
    bibliography = (BOOK / "references.bib").read_text()
    keys = set(re.findall(r"^@\w+\{([^,]+),", bibliography, re.MULTILINE))
    cited = re.findall(r"[\w-]+", ",".join(re.findall(r"\{cite\}`([^`]+)`", text)))
    assert set(cited) <= keys
    for term in re.findall(r"\{term\}`([^`]+)`", text):
        word = re.sub(r".*<([^>]+)>", r"\1", term)
        assert re.search(rf"^{re.escape(word)}$", glossary, re.MULTILINE | re.IGNORECASE), term
    for target in re.findall(r"\]\(([^)#:]+\.md)\)", text):
        assert (page.parent / target).is_file(), target


def test_every_claim_names_its_source_and_the_glossary_defines_each_word_once() -> None:
    bibliography = (BOOK / "references.bib").read_text()
    glossary = (BOOK / "glossary.md").read_text()
    for name, table in CLAIMS.items():
        assert f"{{{table['source']}," in bibliography, name
    words = re.findall(r"^([^\s`{}:#(][^\n]*)\n  \S", glossary, re.MULTILINE)
    assert len({word.lower() for word in words}) == len(words) > 40


@pytest.mark.parametrize("page", RUNG_PAGES, ids=lambda page: page.stem)
def test_a_rung_page_has_its_parts_in_order(page: Path) -> None:
    prose, blocks = split_page(page.read_text())
    headings = re.findall(r"^## (.+)$", prose, re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == SECTIONS
    code = "\n".join(body for info, body in blocks if info.startswith("{code-cell}"))
    assert f"%%cuda {page.stem}\n" in code
    assert f"# launch of {page.stem} (kernels/decode/{page.stem}.py)" in code
    # The question stands before anything that gives its answer away.
    asked = code.index("ask(")
    assert asked < code.index(".result(")
    shown_before = re.findall(r"show_records\(.*?\)", code[:asked], re.DOTALL)
    assert f'"{page.stem}"' not in "".join(shown_before)


def shown_too_early(text: str) -> list[str]:
    """Tables above a page's first question that hold both kernels which it compares."""
    code = "\n".join(body for info, body in split_page(text)[1] if info.startswith("{code-cell}"))
    above, asked, below = code.partition("ask(")
    sides = re.findall(r"(?:baseline|candidate)=\"(\w+)\"", below.partition("\n)")[0])
    if not asked or len(sides) < 2:
        return []
    tables = re.findall(
        r"(?:show_records|show_tried|plot_times)\(.*?\)\s*$", above, re.DOTALL | re.MULTILINE
    )
    return [table for table in tables if all(f'"{side}' in table for side in sides)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_table_above_a_question_holds_its_answer(page: Path) -> None:
    assert shown_too_early(page.read_text()) == []


def test_such_a_table_is_found() -> None:
    page = BOOK / "prefill/p01_inverted.md"
    table = 'plot_times(w, "baseline:prefill_sdpa", "p00")'
    assert table in page.read_text()
    early = page.read_text().replace(table, table.replace('"p00")', '"p00", "p01")'))
    assert len(shown_too_early(early)) == 1


def test_question_ids_are_unique() -> None:
    code = "\n".join(body for page in PAGES for _, body in split_page(page.read_text())[1])
    ids = re.findall(r"\bask\(\s*\"([^\"]+)\"", code)
    assert len(ids) >= 6
    assert len(set(ids)) == len(ids)


WITH_SOLUTIONS = [page for page in PAGES if solutions_of(page.read_text())]


def test_some_pages_have_solutions_and_all_of_them_are_executed() -> None:
    named = {page.relative_to(ROOT).with_suffix("").as_posix() for page in WITH_SOLUTIONS}
    assert 10 <= len(named) < len(executable_pages(ROOT))
    assert named <= set(executable_pages(ROOT))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("page", WITH_SOLUTIONS, ids=lambda page: page.stem)
def test_solutions_run_after_the_page(page: Path, solved_page: Callable[[str], Any]) -> None:
    """In the one run of the page that test_notebooks looks at too."""
    noted = solved_page(page.relative_to(ROOT).with_suffix("").as_posix())
    assert noted.solution_error == ""
    assert noted.solutions == len(solutions_of(page.read_text()))


ALL_PAGES = [ROOT / f"{page}.md" for page in executable_pages(ROOT)]


def is_there(module: str, name: str) -> bool:
    """Whether ``from module import name`` would work."""
    found = importlib.import_module(module)
    if hasattr(found, name):
        return True
    folder = hasattr(found, "__path__")
    return folder and importlib.util.find_spec(f"{module}.{name}") is not None


def missing_names(code: str) -> list[str]:
    """What a page imports from labtools that is not there."""
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    return [
        f"{node.module}.{name.name}"
        for node in imports
        if node.module and node.module.partition(".")[0] == "labtools"
        for name in node.names
        if not is_there(node.module, name.name)
    ]


def names_taken_over(code: str) -> set[str]:
    """What a page takes over from elsewhere with ``globals().update``, by name."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return {
        constant.value
        for call in calls
        if ast.unparse(call.func) == "globals().update"
        for constant in ast.walk(call)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    }


def undefined_names(files: list[Path]) -> str:
    known = {"display", "get_ipython"}.union(*(names_taken_over(one.read_text()) for one in files))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821"]
    command += ["--config", f"builtins = {sorted(known)}", "--output-format", "concise"]
    return subprocess.run([*command, *files], capture_output=True, text=True).stdout


def test_pages_use_only_names_that_are_there(tmp_path: Path) -> None:
    """What running them would find after minutes, found in a second."""
    missing = {page.stem: missing_names(code_of(page.read_text())) for page in ALL_PAGES}
    assert {page: names for page, names in missing.items() if names} == {}
    files = []
    for page in ALL_PAGES:
        files.append(tmp_path / f"{page.stem}.py")
        files[-1].write_text(code_of(page.read_text()))
    found = undefined_names(files)
    assert "F821" not in found, found


def test_a_name_that_is_not_there_is_found(tmp_path: Path) -> None:
    missing = missing_names("from labtools.record import RecordStore, rubbish\n")
    assert missing == ["labtools.record.rubbish"]
    (tmp_path / "page.py").write_text("display(1)\nprint(where_of(2))\n")
    found = undefined_names([tmp_path / "page.py"])
    assert "where_of" in found and "display" not in found
