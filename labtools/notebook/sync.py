"""Write the kernels' text into the pages, one way: from ``kernels/`` into ``book/`` and ``labs/``;
and below each title what the page needs, takes and gives (`labtools.notebook.heads`).

A cell that begins with ``%%cuda NAME`` holds ``kernels/*/NAME.cu``, or what a reader begins with
where ``kernels/*/exercises/NAME.toml`` is there; one that begins with ``# launch
of NAME (kernels/decode/NAME.py)`` that file's function ``launch``. Each carries a hash of its text
(``:synced:``); without it the cell was edited by hand and is refused, never overwritten. Cells of
Python are folded or opened by the rule of `labtools.notebook.cells`. Copies in ``work/`` are not
looked at.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labtools.problem import KernelError, repository_root
from labtools.record.whole import write_whole

from .cells import PageCell, code_cells, fold_options
from .exercises import load_exercise
from .heads import TABLE, with_head
from .pages import list_pages

_CUDA = re.compile(r"^%%cuda\s+(?P<name>\w+)")
_LAUNCH = re.compile(r"^# launch of (?P<name>\w+) \((?P<path>[^()]+\.py)\)\s*$")
_SYNCED = re.compile(r"^:?synced:\s*(?P<digest>\S+)\s*$")
# A name of the ladder must have its file; any other %%cuda name is a page's own experiment.
_LADDER_NAME = re.compile(r"^[a-z]\d\d_")


_FOLDING = "the rule for folded cells"
_CORRECT = "Correct the first line of the cell."


class SyncError(KernelError):
    """Cells that may not be written, or sources that are not there."""


@dataclass(frozen=True)
class SyncedCell:
    """A cell that ``kernels/`` supplies, or that is not folded as it should be.

    ``state`` is ``same``, ``behind`` (the source has changed since), ``new`` (never written), or
    ``edited`` (by hand).
    """

    page: str
    line: int
    name: str
    source: str
    state: str


@dataclass(frozen=True)
class SyncReport:
    """Every supplied cell and the pages that were written (none when only checking)."""

    cells: tuple[SyncedCell, ...]
    written: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every cell held its source's text when it was read."""
        return all(cell.state == "same" for cell in self.cells)

    def describe(self) -> str:
        """One line a cell that differs, and a count."""
        differ = [cell for cell in self.cells if cell.state != "same"]
        lines = [f"{cell.page}:{cell.line}: {cell.state}: {cell.source}" for cell in differ]
        lines.append(f"{len(self.cells)} cells, {len(self.written)} pages written")
        return "\n".join(lines)


def sync(check: bool = False, root: Path | None = None) -> SyncReport:
    """Bring the pages' cells up to ``kernels/``; with ``check`` only compare.

    Raises SyncError: a cell was edited by hand (then nothing is written), or names a source that is
    not there.
    """
    root = root or repository_root()
    cells: list[SyncedCell] = []
    texts: dict[Path, str] = {}
    pages = [root / name for name in list_pages(root) if name.endswith(".md")]
    for page in pages:
        found, text = _sync_page(page, root)
        cells += found
        if any(cell.state != "same" for cell in found):
            texts[page] = text
    if check:
        return SyncReport(tuple(cells), ())
    if edited := [cell for cell in cells if cell.state == "edited"]:
        where = "; ".join(f"{cell.page} line {cell.line}, edit {cell.source}" for cell in edited)
        raise SyncError(
            f"Cells edited by hand: {len(edited)}. Nothing was written.",
            f"These cells are written from other files, so the change belongs there: {where}.",
            "Make the change in the named file and undo it in the page (or empty the cell below "
            "its first line), then run make regen again.",
        )
    for page, text in texts.items():
        write_whole(page, text.encode())
    return SyncReport(tuple(cells), tuple(page.relative_to(root).as_posix() for page in texts))


def _sync_page(page: Path, root: Path) -> tuple[list[SyncedCell], str]:
    """The supplied cells of one page, and the page's text with all of them up to date."""
    lines = page.read_text(encoding="utf-8").split("\n")
    name = page.relative_to(root).as_posix()
    found: list[SyncedCell] = []
    # From the last cell to the first, so that line numbers in front stay valid.
    for cell in reversed(list(code_cells(lines))):
        if cell.body >= cell.end:
            continue
        options = lines[cell.start + 1 : cell.body]
        folded = fold_options(options, "\n".join(lines[cell.body : cell.end]))
        if folded != options:
            found.append(SyncedCell(name, cell.body + 1, "", _FOLDING, "behind"))
            lines[cell.start + 1 : cell.body] = folded
            more = len(folded) - len(options)
            cell = PageCell(cell.start, cell.body + more, cell.end + more)
            options = folded
        first = lines[cell.body]
        supplied = _find_source(first, root, f"{name}:{cell.body + 1}")
        if supplied is None:
            continue
        rung, source, wanted = supplied
        body = lines[cell.body + 1 : cell.end]
        kept = next((m["digest"] for line in options if (m := _SYNCED.match(line))), None)
        state = _judge(body, wanted, kept)
        found.append(SyncedCell(name, cell.body + 1, rung, source, state))
        if state != "same":
            options = _with_digest(options, _digest(wanted))
            lines[cell.start + 1 : cell.end] = [*options, first, *wanted]
    text = "\n".join(lines)
    headed = with_head(name, text, root)
    if headed != text:
        found.append(SyncedCell(name, 1, "", TABLE, "behind"))
    return found[::-1], headed


def _judge(body: list[str], wanted: list[str], kept: str | None) -> str:
    if body == wanted:
        return "same" if kept == _digest(wanted) else "new"
    if not any(line.strip() for line in body):
        return "new"
    return "behind" if kept == _digest(body) else "edited"


def _digest(lines: Sequence[str]) -> str:
    # The letter in front keeps YAML from reading a hash of digits as a number.
    return "k" + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:15]


def _with_digest(options: list[str], digest: str) -> list[str]:
    """A cell's option lines with the hash put in, in whichever of the two forms they have."""
    kept = [line for line in options if line.strip() and not _SYNCED.match(line)]
    if kept and kept[0].strip() == "---":
        return [*kept[:-1], f"synced: {digest}", kept[-1]]
    # The blank line ends the options, as jupytext writes them.
    return [*kept, f":synced: {digest}", ""]


def _find_source(first: str, root: Path, where: str) -> tuple[str, str, list[str]] | None:
    """The name, file and text that a cell with this first line must hold; ``None`` if not ours."""
    if match := _CUDA.match(first):
        name = match["name"]
        files = sorted((root / "kernels").glob(f"*/{name}.cu"))
        if files:
            text = files[0].read_text(encoding="utf-8")
            return name, files[0].relative_to(root).as_posix(), text.rstrip("\n").split("\n")
        if exercises := sorted((root / "kernels").glob(f"*/exercises/{name}.toml")):
            text = load_exercise(name).start
            return name, exercises[0].relative_to(root).as_posix(), text.rstrip("\n").split("\n")
        if _LADDER_NAME.match(name):
            why = f"There is no kernels/*/{name}.cu, and a name of this form is a rung's."
            raise SyncError(f"{where}: no kernel is called {name}.", why, _CORRECT)
    elif match := _LAUNCH.match(first):
        name, path = match["name"], match["path"]
        if not (root / path).is_file() or Path(path).stem != name:
            why = "The first line of this cell names the file that supplies it."
            raise SyncError(f"{where}: {path} is not there or is not {name}'s.", why, _CORRECT)
        return name, path, _launch_text(root / path)
    return None


def _launch_text(file: Path) -> list[str]:
    """The source lines of the function ``launch`` in a rung's file."""
    text = file.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == "launch":
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return text.split("\n")[start - 1 : node.end_lineno]
    why = "A rung's file has one at its top level, and pages show it."
    raise SyncError(f"{file.name} has no function launch.", why)
