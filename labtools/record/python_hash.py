"""The hash of a Python file's code, the same under every Python.

Since 3.12 `tokenize` takes an f-string apart; here it is one word, as it stands in the file. Some
shipped records hold the hash with f-strings taken apart, so `python_hashes` gives both.
"""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from tokenize import TokenInfo

from labtools.problem.text import read_given

_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING}
_OPENING = re.compile(r"(?i:f|rf|fr)('''|\"\"\"|'|\")")


def hash_python_file(path: Path) -> str:
    """SHA-256 of a Python file's words, without comments, docstrings and layout.

    Raises OSError, UnicodeError: it cannot be read. tokenize.TokenError, SyntaxError: no Python.
    """
    return _hash(_words(read_given(path)))


def python_hashes(path: Path) -> tuple[str, str]:
    """`hash_python_file`, and the same with f-strings taken apart as Python 3.12 takes them; it
    raises what that raises."""
    text = read_given(path)
    return _hash(_words(text)), _hash(_words(text, take_apart))


def _hash(words: Iterator[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _words(text: str, split: Callable[[str], list[str]] | None = None) -> Iterator[str]:
    statement: list[TokenInfo] = []
    for token in _joined(text):
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            # A statement that is one string is a docstring.
            if any(part.type != tokenize.STRING for part in statement):
                for part in statement:
                    yield from split(part.string) if split else (part.string,)
                yield "\n"
            statement = []
        elif token.type in (tokenize.INDENT, tokenize.DEDENT):
            yield tokenize.tok_name[token.type]
        elif token.type not in _NOT_CODE:
            statement.append(token)


def _joined(text: str) -> Iterator[TokenInfo]:
    """The tokens of a text, in which a string of any kind is one."""
    lines = list(io.StringIO(text))
    opened: list[TokenInfo] = []
    for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):
            opened.append(token)
        elif kind.endswith("STRING_END"):
            first = opened.pop()
            if not opened:
                whole = lines[first.start[0] - 1 : token.end[0]]
                whole[-1] = whole[-1][: token.end[1]]
                whole[0] = whole[0][first.start[1] :]
                yield TokenInfo(tokenize.STRING, "".join(whole), first.start, token.end, first.line)
        elif not opened:
            yield token


def take_apart(word: str) -> list[str]:
    """An f-string in the words that `tokenize` of Python 3.12 makes of it; any other word itself.

    One with names of characters, or with fields in the format of a field, stays whole, and so does
    one that is no Python, which `tokenize` of 3.11 does not see.
    """
    opening = _OPENING.match(word)
    if opening is None or "\\N{" in word:
        return [word]
    try:
        return _parts(word, opening)
    except (IndexError, ValueError, SyntaxError, tokenize.TokenError):
        return [word]


def _parts(word: str, opening: re.Match[str]) -> list[str]:
    body, at = word[opening.end() : -len(opening[1])], 0
    words, middle = [opening[0]], ""
    while at < len(body):
        doubled = body[at : at + 2] in ("{{", "}}")
        field = body[at] == "{" and not doubled
        middle += "" if field else body[at]
        at += 2 if doubled else 1
        if middle and (doubled or field or at == len(body)):
            words.append(middle)
            middle = ""
        if field:
            end = _end_of_expression(body, at)
            words += ["{", *[*_words(f"({body[at:end]})\n", take_apart)][1:-2]]
            if body[end] == "!":
                words += ["!", body[end + 1]]
                end += 2
            at = body.index("}", end)
            if "{" in body[end:at]:
                raise ValueError("a field in the format of a field")
            words += [":", body[end + 1 : at], "}"] if body[end] == ":" else ["}"]
            at += 1
    return [*words, opening[1]]


def _end_of_expression(body: str, at: int) -> int:
    """Where the expression that begins at `at` ends: at its ``}``, ``:`` or ``!r``."""
    depth, quote = 0, ""
    while True:
        here = body[at]
        if quote:
            quote = "" if here == quote else quote
        elif here in "'\"":
            quote = here
        elif depth == 0 and (here in ":}" or (here == "!" and body[at + 1] != "=")):
            return at
        else:
            depth += (here in "([{") - (here in ")]}")
        at += 1
