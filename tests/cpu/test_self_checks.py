"""Each part of the walk opens with five questions that route the reader, and ends with three that
recall earlier pages; each has an answer, and the answer says where it is taught."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PARTS = [
    [chapter["file"] for chapter in part["chapters"]]
    for part in yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"]
    if part["caption"] not in ("Labs", "Reference")
]
WALK = [page for part in PARTS for page in part]
_CHECK = re.compile(
    r"^````\{admonition\} Self-check: (?P<title>[^\n]+)\n:class: dropdown\n(?P<asked>.*?)"
    r"^```\{admonition\} Answers\n:class: dropdown\n(?P<answers>.*?)^```\n````\n",
    re.DOTALL | re.MULTILINE,
)


def numbered(text: str) -> list[str]:
    """The items of the numbered list in a text, in order."""
    return re.split(r"^\d\. ", text, flags=re.MULTILINE)[1:]


def taught_in(answer: str, page: str) -> list[str]:
    """The pages that an answer names; the page that it stands on, where it names none."""
    found = re.findall(r"\]\(([^)]+)\.md\)", answer)
    return [os.path.normpath(Path(page).parent / one) for one in found] or [page]


@pytest.mark.parametrize("number", range(len(PARTS)), ids=lambda n: Path(PARTS[n][0]).stem)
def test_a_part_opens_and_ends_with_its_questions(number: int) -> None:
    first, last = PARTS[number][0], PARTS[number][-1]
    opens, ends = (_CHECK.findall((ROOT / f"{page}.md").read_text()) for page in (first, last))
    assert [title for title, *_ in opens] == ["do you need this part?"]
    assert [title for title, *_ in ends] == ["earlier pages"]
    for (_, asked, answers), count in ((opens[0], 5), (ends[0], 3)):
        questions = numbered(asked)
        assert len(questions) == len(numbered(answers)) == count
        assert all(question.strip().endswith("?") for question in questions)
    after = (*WALK, "labs/lab09_loop")[WALK.index(last) + 1]
    assert taught_in(opens[0][1].split("1. ")[0], first) == [after]
    assert {page for one in numbered(opens[0][2]) for page in taught_in(one, first)} <= {
        *PARTS[number]
    }
    before = WALK[: WALK.index(last if number == 0 else first)]
    assert {page for one in numbered(ends[0][2]) for page in taught_in(one, last)} <= {*before}
