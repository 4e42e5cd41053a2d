"""The five words that say where a number comes from, and the tables that carry them."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labtools.problem import LabError
from labtools.problem.text import three_digits
from labtools.record import Record, RecordedError, RecordedText, describe_record, distinguish
from labtools.record.circumstances import NOTE_TOGETHER, TOGETHER, OfRecords

_WORDS = {
    "live": ("measured now on this machine's GPU", "2px solid"),
    "recorded": ("measured earlier on a named GPU and date", "1px solid"),
    "forecast": ("from the model", "1px dashed"),
    "computed": ("from a formula or a data sheet", "1px dotted"),
    "claimed": ("somebody's published figure", "3px double"),
}
"""What each word promises, and its border."""
_BADGE = (
    "border-radius:0.6em;padding:0 0.5em;display:inline-block;font-size:0.85em;white-space:nowrap"
)
_CELL = "padding:0.25em 0.7em;text-align:left;vertical-align:top"
_LAST = "9em"  # a narrow screen scrolls rather than breaking every word
_LONG = 20  # letters of a cell that is more than a number and its unit
_RULE = "border-bottom:1px solid #8888"
BOX = "border:1px solid #8888;border-radius:4px;padding:0.6em 0.9em;margin:0.4em 0"


def check_word(word: str) -> str:
    """Return ``word``. Raises LabError: it is none of the five words."""
    if word not in _WORDS:
        words = f"the words are {', '.join(_WORDS)}"
        raise LabError(f"{word!r} does not say where a number comes from.", words)
    return word


def badge(word: str) -> str:
    """HTML of one of the five words; the border tells them apart without colour."""
    meaning, border = _WORDS[check_word(word)]
    style = f"border:{border} currentColor;{_BADGE}"
    return f'<span class="prov prov-{word}" style="{style}" title="{meaning}">{word}</span>'


@dataclass(frozen=True)
class Shown:
    """Something a page shows: HTML for a browser and plain text for everything else."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text

    def __add__(self, other: Shown) -> Shown:
        return Shown(self.html + other.html, f"{self.text}\n{other.text}")


@dataclass(frozen=True)
class Word:
    """A provenance word in a table cell, and what stands behind it."""

    word: str  # one of the five
    detail: str = ""  # GPU and day, or a reason
    records: tuple[Record, ...] = ()  # where the row's recorded numbers come from
    also: str = ""  # a second word, of a row with numbers of two kinds

    def __str__(self) -> str:
        words = f"{self.word}, {self.also}" if self.also else self.word
        return f"{words}: {self.detail}" if self.detail else words


Cell = str | Word


def recorded(*records: Record) -> Word:
    """``recorded`` with GPU and day, for the cell of a row that holds numbers of these records."""
    told = dict.fromkeys(describe_record(record) for record in records)
    return Word("recorded", "; ".join(told), records)


_NEVER_STACKED = 16.0  # em: what needs no more fits every telephone
_MOST_STACKED = 37.0  # em: from about 600 px on a table stays a table, and scrolls in its box
_COMPACT = 0.8  # size of the letters of a table that does not quite fit
_TABLE_LETTERS = 0.95  # size of a table's letters where there is room, in those of the page
_SPARE = 1.02  # faces differ a little in width


def _narrow_style(name: str, fits: float, compact: float) -> str:
    """What becomes of a table whose column of the page, not of the screen, is narrower than it
    needs: smaller letters, and on a telephone a list of cells with their columns' heads.
    """
    return (
        f"<style>.{name}{{container-type:inline-size}}"
        f"@container (max-width:{fits:g}em){{"
        f".{name} table{{font-size:{_COMPACT}em!important}}"
        f".{name} :is(th,td){{padding:0.2em 0.35em!important}}}}"
        f"@container (max-width:{compact:g}em){{"
        f".{name} table{{font-size:{_TABLE_LETTERS}em!important}}"
        f".{name} thead{{display:none}}"
        f".{name} :is(table,tbody,tr,td){{display:block;width:auto!important}}"
        f".{name} tr{{border-bottom:2px solid #8888;padding:0.5em 0}}"
        f".{name} td{{border:0!important;padding:0.1em 0!important;min-width:0!important;"
        "overflow-wrap:anywhere}"
        f".{name} td:empty{{display:none}}"
        f'.{name} td::before{{content:attr(data-column) ": ";font-weight:600}}'
        f'.{name} td[data-column=""]::before{{content:""}}'
        "}</style>"
    )


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> Shown:
    """A table that fits the column of the page which holds it, see `_narrow_style`, or scrolls
    within its own box; a cell a column.

    What all rows say of their origin, the caption says once. Where recorded numbers of one workload
    differ in their processes, timing, cache layout or oracle, columns say so; see `distinguish`.
    """
    columns, grid, caption = _with_circumstances(columns, [list(row) for row in rows], caption)
    columns, grid, caption, words = _with_one_origin(columns, grid, caption)
    least = _least_widths(columns, grid)
    fits, compact = _needed_widths(columns, grid, least)
    compact = min(compact, _MOST_STACKED)
    narrow = compact > _NEVER_STACKED
    widths = [f";min-width:{least[n]}" if n in least else "" for n in range(len(columns))]
    named = [f' data-column="{html.escape(name)}"' if narrow else "" for name in columns]
    head = "".join(
        f'<th scope="col" style="{_CELL};{_RULE}{width}">{mark_code(column)}</th>'
        for column, width in zip(columns, widths, strict=True)
    )
    body = ""
    for row in grid:
        pairs = zip(named, row, strict=True)
        cells = (f'<td style="{_CELL};{_RULE}"{name}>{_html(cell)}</td>' for name, cell in pairs)
        body += f"<tr>{''.join(cells)}</tr>"
    told = " ".join([caption, *(f"[{word}]" for word in words)]).strip()
    # As wide as what can be seen: a table's own caption would be as wide as the table.
    title = " ".join([mark_code(caption), *map(badge, words)]).strip()
    title = f'<div style="position:sticky;left:0">{title}</div>' if title else ""
    style, name = "", ""
    if narrow:
        box = f"lt-stacked-{fits:g}-{compact:g}"
        style, name = _narrow_style(box, fits, compact), f" lt-stacked {box}"
    markup = (
        f'{style}<div class="lt-scrolls{name}" style="overflow-x:auto;margin:0.4em 0" tabindex="0" '
        f'role="region" aria-label="{html.escape(told or "table")}">'
        f'{title}<table style="border-collapse:collapse;margin:0;font-size:{_TABLE_LETTERS}em">'
        f"<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
    return Shown(markup, plain_table(columns, grid, told))


def _with_one_origin(
    columns: Sequence[str], grid: list[list[Cell]], caption: str
) -> tuple[Sequence[str], list[list[Cell]], str, tuple[str, ...]]:
    """The table without what all its rows say of their origin, and the words that the caption
    ends in: with one GPU and day their column goes, else it keeps these."""
    for at in reversed(range(1, len(columns))):
        said = [row[at] for row in grid if row[at] != ""]
        words = [cell for cell in said if isinstance(cell, Word)]
        if not words or len(words) < len(said):
            continue
        details = list(dict.fromkeys(cell.detail for cell in words))
        common = _common_parts(details) if len(details) > 1 else []
        if common:
            caption = "; ".join(filter(None, [caption.removesuffix("."), ", ".join(common)]))
            words = [replace(cell, detail=_without(cell.detail, common)) for cell in words]
            for row, word in zip((row for row in grid if row[at] != ""), words, strict=True):
                row[at] = word
            details = list(dict.fromkeys(cell.detail for cell in words))
        if len(grid) == 1 and details[0]:
            continue  # its one row says it once
        kinds = {(cell.word, cell.also) for cell in words}
        if len(details) == 1 and details[0] and details[0] not in caption:
            caption = "; ".join(filter(None, [caption.removesuffix("."), details[0]]))
        if len(kinds) == 1 and len(details) == 1:
            columns = (*columns[:at], *columns[at + 1 :])
            grid = [[*row[:at], *row[at + 1 :]] for row in grid]
        else:
            if len(kinds) == 1 and columns[at] == "kind":
                named = "where from" if words[0].word in ("recorded", "live") else "note"
                columns = (*columns[:at], named, *columns[at + 1 :])
            for row in grid:
                if isinstance(cell := row[at], Word):
                    bare = replace(cell, detail="") if len(details) == 1 else cell
                    row[at] = cell.detail if len(kinds) == 1 else bare
        if len(kinds) > 1:
            continue
        return columns, grid, caption, tuple(filter(None, kinds.pop()))
    return columns, grid, caption, ()


def _common_parts(details: Sequence[str]) -> list[str]:
    """What stands between the commas of every one of some details, such as the GPU."""
    pieces = [piece.split(", ") for detail in details for piece in detail.split("; ")]
    return [part for part in pieces[0] if part and all(part in piece for piece in pieces)]


def _without(detail: str, common: Sequence[str]) -> str:
    pieces = (
        ", ".join(part for part in piece.split(", ") if part not in common)
        for piece in detail.split("; ")
    )
    return "; ".join(filter(None, pieces))


def _with_circumstances(
    columns: Sequence[str], grid: list[list[Cell]], caption: str
) -> tuple[Sequence[str], list[list[Cell]], str]:
    """The table with the columns that what its records differ in asks for, before the last one;
    what such a column says in every row, the caption says."""
    kept = [[cell for cell in row if isinstance(cell, (Word, OfRecords))] for row in grid]
    rows = [[record for cell in row for record in cell.records] for row in kept]
    errors = [[cell for cell in row if isinstance(cell, _ErrorText)] for row in kept]
    added = distinguish(rows, [[one for cell in row for one in cell.records] for row in errors])
    for heading, said in list(added.items()):
        if heading != TOGETHER and len(grid) > 1 and len(set(said)) == 1:
            told = f"{heading} in every row: {said[0]}"
            caption = "; ".join(filter(None, [caption.removesuffix("."), told]))
            del added[heading]
    if not added:
        return columns, grid, caption
    texts = zip(*added.values(), strict=True)
    wider = [[*row[:-1], *more, row[-1]] for row, more in zip(grid, texts, strict=True)]
    if TOGETHER in added:
        caption = f"{caption.removesuffix('.')}; {NOTE_TOGETHER}" if caption else NOTE_TOGETHER
    return (*columns[:-1], *added, columns[-1]), wider, caption


class _ErrorText(RecordedText):
    """An error as a table says it."""


def _least_widths(columns: Sequence[str], grid: Sequence[Sequence[Cell]]) -> dict[int, str]:
    """Which columns must not be squeezed, and their least widths: sentences, and one more.

    That is the one that says where a number comes from, or the last one. Where that holds numbers
    or bare words, the room goes to the first one, which names the row.
    """
    number, least = _wide_column(columns, grid)
    sentences: dict[int, str] = {}
    for row in grid:
        for column, cell in enumerate(row):
            if isinstance(cell, str) and len(cell) > 40:
                sentences.setdefault(column, "12em")
                if len(cell) > 120:
                    sentences[column] = "20em"
    return sentences | {number: least}


def _wide_column(columns: Sequence[str], grid: Sequence[Sequence[Cell]]) -> tuple[int, str]:
    for number in reversed(range(len(columns))):
        cells = [row[number] for row in grid]
        if any(isinstance(cell, Word) and len(cell.detail) > 8 for cell in cells):
            return number, _LAST
    if any(len(str(row[-1])) > _LONG for row in grid):
        return len(columns) - 1, _LAST
    longest = max((len(str(row[0])) for row in grid), default=0)
    return 0, f"min({min(9.0, 0.5 * longest + 1.5):.1f}em, 22vw)"


_THIN, _FAT = frozenset("iljtfr.,:;'|!()[] "), frozenset("mwMW@%")


def _letters_width(text: str) -> float:
    """How wide letters of a proportional face are at most, about, in em."""
    wide = dict.fromkeys(_THIN, 0.38) | dict.fromkeys(_FAT, 0.95)
    return sum(wide.get(letter, 0.72 if letter.isupper() else 0.6) for letter in text)


def _unbroken(text: str) -> float:
    """Width of the longest part of a text that a browser does not break, in em."""
    text = text.replace(" %", "\u00a0%")
    parts = re.split(r"[ \n]+|(?<=[a-z])-(?=[a-z])", text)
    return max((_letters_width(part) for part in parts), default=0.0)


def _needed_widths(
    columns: Sequence[str], grid: Sequence[Sequence[Cell]], least: Mapping[int, str]
) -> tuple[float, float]:
    """Least widths of a box, in em rounded up, in which a table fits with its own letters and with
    smaller ones: a guess from the longest word of each column, rather too large."""
    words = 0.0
    for number, column in enumerate(columns):
        widest = max((_cell_width(row[number]) for row in grid), default=0.0)
        found = re.search(r"([\d.]+)em", least.get(number, ""))
        words += max(widest, 1.1 * _unbroken(column), float(found[1]) if found else 0.0)
    own = _TABLE_LETTERS * (words + 1.4 * len(columns))
    small = _COMPACT * (words + 0.7 * len(columns))
    return math.ceil(_SPARE * own), math.ceil(_SPARE * small)


def _cell_width(cell: Cell) -> float:
    if isinstance(cell, Word):
        badges = 0.85 * max(_letters_width(word) + 1.2 for word in (cell.word, cell.also))
        return max(badges, _unbroken(cell.detail))
    text = str(cell)
    code = max((0.62 * len(part) for part in re.findall(r"`(\S+?)`", text)), default=0.0)
    return max(_unbroken(text.replace("`", "")), code)


def make_note(text: str, word: str | None = None) -> Shown:
    """One sentence in a box, with its provenance word if it holds a number."""
    mark = f" {badge(word)}" if word else ""
    plain = f"{text} [{word}]" if word else text
    return Shown(f'<div style="{BOX}">{mark_code(text)}{mark}</div>', plain)


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, word: str, note: str = ""
) -> Shown:
    """A table of texts and numbers; a row that ends in a `Word` keeps it, all others get ``word``.

    A row that also holds a recorded time says ``recorded`` beside it. ``note`` says where the
    numbers come from.
    """
    check_word(word)
    cells: list[list[Cell]] = []
    for row in rows:
        last = row[-1]
        own = last if isinstance(last, Word) else Word(word)
        values = row[:-1] if own is last else row
        if own.word != "recorded" and any(isinstance(value, OfRecords) for value in values):
            own = replace(own, also="recorded")  # a row of two kinds of numbers says both
        cells.append([*(format_value(value) for value in values), own])
    return make_table((*columns, "kind"), cells, note)


def format_value(value: Any) -> str:
    """A number as a reader wants it: integers whole, others to three significant digits."""
    if value is None:
        return "-"
    if isinstance(value, OfRecords):
        if isinstance(value, str):
            return value
        text = three_digits(float(value))  # type: ignore[arg-type]
        kind = _ErrorText if isinstance(value, RecordedError) else RecordedText
        return kind(text, value.records)
    if isinstance(value, (str, bool)):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return f"{value:,}" if abs(int(value)) >= 100_000 else str(value)
    return three_digits(float(value))


def say_time(time_us: float) -> str:
    """Microseconds, without the unit: ``1986``, ``561.3``, ``12.4``, ``3.46``."""
    digits = 0 if time_us >= 1000 else 1 if time_us >= 10 else 2
    text = f"{time_us:.{digits}f}" if time_us >= 0.1 else f"{time_us:.2g}"
    return RecordedText(text, time_us.records) if isinstance(time_us, OfRecords) else text


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    """A table as text: its caption, the heads, and a line a row."""
    grid = [list(columns)] + [[str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in grid]
    return "\n".join([caption, *lines] if caption else lines)


def _html(cell: Cell) -> str:
    if isinstance(cell, Word):
        badges = " ".join(badge(word) for word in (cell.word, cell.also) if word)
        return f"{badges} {mark_code(cell.detail)}".rstrip()
    text = mark_code(cell).replace(" %", "\u00a0%")  # a sign alone on a line belongs to nothing
    return re.sub(r"\w{20,}", lambda name: name[0].replace("_", "_<wbr>"), text)


def mark_code(text: str) -> str:
    """HTML of a text whose words in back-quotes are code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
