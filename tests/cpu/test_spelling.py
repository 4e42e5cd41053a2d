"""The prose of the pages is spelled right, and British throughout."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from spellchecker import SpellChecker
from test_book_pages import LABS, PAGES, ROOT, split_page

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
OURS = frozenset((Path(__file__).parent / "words.txt").read_text().split())
"""Words of the field, names written like words, and British words with an American's spelling."""
ENGLISH = SpellChecker(language="en")
_PAIRS = resources.files("codespell_lib") / "data" / "dictionary_en-GB_to_en-US.txt"
BRITISH = dict(line.split("->") for line in _PAIRS.read_text("utf-8").splitlines())
"""British words, each with its American form or forms."""
AMERICAN = {form.strip(): word for word, forms in BRITISH.items() for form in forms.split(",")}

_ROLE = re.compile(r"\{(?:term|ref|doc)\}`([^`<]*)(?:<[^`]*>)?`")
_LINES = re.compile(r"^:[\w-]+:.*$|^\(\S+\)=$|^%.*$", re.MULTILINE)  # options, labels, comments
_SPANS = re.compile(
    r"\$\$.*?\$\$|\$[^$\n]*\$|\{[\w-]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)|https?://\S+|<[^<>\n]*>",
    re.DOTALL,
)


def questions(code: str) -> Iterator[str]:
    """The sentences that a cell hands to ``ask`` and its like."""
    try:
        tree = ast.parse("\n".join(line for line in code.splitlines() if line[:1] not in ":%"))
    except SyntaxError:  # of another language
        return
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "").startswith("ask"):
            for one in ast.walk(call):
                if isinstance(one, ast.Constant) and " " in str(one.value):
                    yield str(one.value)


def words_of(page: str) -> list[str]:
    """The words of a page's prose: no code, no formulas, no names that are written like names."""
    prose, blocks = split_page(page)
    said = [prose, *(body for info, body in blocks if info.startswith("{admonition"))]
    said += [text for info, body in blocks if "code-cell" in info for text in questions(body)]
    plain = _SPANS.sub(" ", _LINES.sub("", _ROLE.sub(r"\1", "\n\n".join(said))))
    found = (word.strip("'.") for word in re.findall(r"[\w'.]+", plain.replace("’", "'")))
    # A name holds a capital behind its first letter, a digit or a sign: FlashAttention, r03, ex.cu
    names = re.compile(r".+[A-Z]|.*[\d_.]")
    return [word.lower().removesuffix("'s") for word in found if not names.match(word)]


def misspelled(page: str) -> set[str]:
    """Words of a page that are in no dictionary, and American ones with their British form."""
    words = set(words_of(page)) - OURS - {""}
    unknown = {word for word in ENGLISH.unknown(words) if word not in BRITISH}
    american = words & (AMERICAN.keys() - BRITISH.keys())
    return unknown | {f"{word}: {AMERICAN[word]}" for word in american}


@pytest.mark.parametrize("page", [*PAGES, *LABS, *DOCUMENTS], ids=lambda page: page.stem)
def test_every_word_is_spelled_right(page: Path) -> None:
    assert misspelled(page.read_text()) == set()


def test_our_words_are_used_and_in_no_dictionary() -> None:
    used = {word for page in [*PAGES, *LABS, *DOCUMENTS] for word in words_of(page.read_text())}
    assert used >= OURS
    assert not [
        word for word in OURS if word in BRITISH or (word in ENGLISH and word not in AMERICAN)
    ]


PLANTED = """\
# A kernal

It is {term}`colored <colour>` and `nott` a GQAA. $nnot$ [teh book](nowher.md)

```{code-cell} ipython3
:tags: [hide-inputt]
ask("q", "Which one is fastre?", choices=["the secnod one", lowre])
```

```{admonition} Answers
About a tenht.
```
"""


def test_what_is_misspelled_is_found() -> None:
    wrong = {"kernal", "colored: coloured", "teh", "fastre", "secnod", "tenht"}
    assert misspelled(PLANTED) == wrong
    assert misspelled("The neighbour's colours aren’t optimised; a program's story.") == set()
