"""What a rung changes from its parent, computed."""

from __future__ import annotations

import difflib
import html
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from labtools.problem import LabError, Rung, load_rung
from labtools.problem.rung import function_text

from .tables import Shown, badge, mark_code

_CONTEXT_LINES = 3
_MOST_OPEN = 100
"""Lines of a diff that are read one by one; of a longer one a page says what changes."""
_FUNCTION = re.compile(
    r"^(?!static_assert)[A-Za-z_][^;={}#]*?\b([a-z]\w*)\((?=[^;]*?\{)", re.MULTILINE
)
_LOOKS = {
    "+": ("added", "background:#2e7d3230;border-left:4px solid #2e7d32"),
    "-": ("removed", "background:#c6282830;border-left:4px double #c62828"),
    "@": ("context", "opacity:0.7;border-left:4px solid transparent;font-style:italic"),
    " ": ("context", "border-left:4px solid transparent"),
}


@dataclass(frozen=True)
class RungDiff:
    """The lines in which two rungs differ."""

    lines: tuple[str, ...]  # unified diff, kernel first, then the launch function
    added: int  # lines that only the rung has
    removed: int  # lines that only its parent has


def diff_rungs(parent: Rung, rung: Rung) -> RungDiff:
    """Compare kernel and launch function of two rungs, line by line."""
    lines: list[str] = []
    texts = {"kernel": (parent.source_text, rung.source_text)}
    texts["launch"] = (function_text(parent.launch), function_text(rung.launch))
    for name, (old, new) in texts.items():
        if changes := list(_changes(old, new)):
            lines += [f"@@ {name}: {parent.id} -> {rung.id}", *changes[1:]]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return RungDiff(tuple(lines), added, removed)


def _changes(old: str, new: str) -> Iterator[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=_CONTEXT_LINES)
    for line in itertools.islice(lines, 2, None):  # the first two lines name files
        yield "@@" if line.startswith("@@") else line


def show_diff(rung: Rung | str, parent: Rung | str | None = None) -> Shown:
    """The diff of a rung, with its edits, from its parent or the one given, with the count of
    lines. A long one is folded below what it changes: the rung's idea, and the functions that come
    and go.

    Raises LabError: there is no such rung, or it has no parent.
    """
    rung = rung if isinstance(rung, Rung) else load_rung(rung)
    if parent is None:
        if rung.parent is None:
            raise LabError(f"{rung.id} has no parent.", "it is the first of its ladder")
        parent = rung.parent
    parent = parent if isinstance(parent, Rung) else load_rung(parent)
    diff = diff_rungs(parent, rung)
    count = f"{diff.added} lines added, {diff.removed} removed from {parent.id}"
    body = ""
    for line in (line or " " for line in diff.lines):
        name, style = _LOOKS.get(line[0], _LOOKS[" "])
        style = f"display:block;padding-left:0.5em;{style}"
        body += f'<span class="lt-{name}" style="{style}">{html.escape(line)}</span>'
    told = "" if len(diff.lines) <= _MOST_OPEN else _say_idea(parent, rung)
    markup = (
        f"{f'<p>{mark_code(told)}</p>' if told else ''}"
        f'<details{"" if told else " open"} class="lt-diff"><summary style="cursor:pointer">'
        f"{html.escape(count)} {badge('computed')}</summary>"
        '<pre style="overflow-x:auto;line-height:1.35;font-size:0.85em;margin:0.4em 0" '
        f'tabindex="0" role="region" aria-label="{html.escape(count)}">'
        '<code style="display:inline-block;min-width:100%">'
        f"{body}</code></pre></details>"
    )
    said = [told] if told else []
    return Shown(markup, "\n".join([*said, f"{count} [computed]", *diff.lines]))


def _say_idea(parent: Rung, rung: Rung) -> str:
    """What a rung changes of its own parent in a sentence, or of any where it has none, and which
    functions of the kernel are new or gone."""
    old, new = (list(dict.fromkeys(_FUNCTION.findall(one.source_text))) for one in (parent, rung))
    said = []
    if rung.parent in (None, parent.id):
        said.append(f"{rung.idea[0].upper()}{rung.idea[1:].removesuffix('.')}.")
    for word, names in (
        ("New functions", [name for name in new if name not in old]),
        (f"Functions of {parent.id} that are gone", [name for name in old if name not in new]),
    ):
        if names:
            said.append(f"{word}: {', '.join(f'`{name}`' for name in names)}.")
    return " ".join(said)
