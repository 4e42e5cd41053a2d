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

MEANINGS = {
    "live": "measured now on this machine's GPU",
    "recorded": "measured earlier on a named GPU and date",
    "forecast": "from the model",
    "computed": "from a formula or a data sheet",
    "claimed": "somebody's published figure",
}
"""What each word promises."""

_BORDERS = {
    "live": "2px solid",
    "recorded": "1px solid",
    "forecast": "1px dashed",
    "computed": "1px dotted",
    "claimed": "3px double",
}
_BADGE = (
    "border-radius:0.6em;padding:0 0.5em;display:inline-block;font-size:0.85em;white-space:nowrap"
)
_CELL = "padding:0.25em 0.7em;text-align:left;vertical-align:top"
_LAST = "9em"  # a narrow screen scrolls rather than breaking every word
_SENTENCE = "12em"
_LONG_SENTENCE = "20em"
_RULE = "border-bottom:1px solid #8888"
BOX = "border:1px solid #8888;border-radius:4px;padding:0.6em 0.9em;margin:0.4em 0"


def check_word(word: str) -> str:
    """Return ``word``. Raises LabError: it is none of the five words."""
    if word not in MEANINGS:
        raise LabError(
            f"{word!r} does not say where a number comes from.",
            f"the words are {', '.join(MEANINGS)}",
            "use one of them",
        )
    return word


def badge(word: str) -> str:
    """HTML of one of the five words; the border tells them apart without colour."""
    check_word(word)
    style = f"border:{_BORDERS[word]} currentColor;{_BADGE}"
    return f'<span class="prov prov-{word}" style="{style}" title="{MEANINGS[word]}">{word}</span>'


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


@dataclass(frozen=True)
class Link:
    """A cell that leads somewhere."""

    text: str  # what is read
    href: str  # where it leads, from the page that shows it

    def __str__(self) -> str:
        return self.text


Cell = str | Word | Link


def recorded(*records: Record) -> Word:
    """``recorded`` with GPU and day, for the cell of a row that holds numbers of these records."""
    told = dict.fromkeys(describe_record(record) for record in records)
    return Word("recorded", "; ".join(told), records)


_NEVER_STACKED = 16.0
"""Em: what needs no more fits every telephone."""
_SENTENCES_STACKED = 62.0
"""Em up to which rows of several sentences are lists."""
_COMPACT = 0.8
"""Size of the letters of a table that does not quite fit."""
_TABLE_LETTERS = 0.95
"""Size of a table's letters where there is room, in those of the page."""


def _narrow_style(name: str, fits: float, compact: float) -> str:
    """What becomes of a table whose column of the page is narrower than it needs.

    First its letters become smaller. Where that is not enough, each row becomes a list of its
    cells, each with the head of its column before it. What counts is the width of the box that
    holds the table, not that of the screen.
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
        f".{name} td{{border:0!important;padding:0.1em 0!important;overflow-wrap:anywhere}}"
        f".{name} td:empty{{display:none}}"
        f'.{name} td::before{{content:attr(data-column) ": ";font-weight:600}}'
        f'.{name} td[data-column=""]::before{{content:""}}'
        "}</style>"
    )


def make_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    caption: str = "",
    *,
    stacked: bool = False,
) -> Shown:
    """A table that fits the column of the page which holds it.

    Where that is too narrow, the letters become smaller, and then each row becomes a list of its
    cells; see `_narrow_style`. Where all rows name one GPU and day, the caption does.

    Where recorded numbers of one workload differ in their processes, the way they were timed, the
    layout of the cache or the oracle, the table gets columns that say so; see `distinguish`.

    Args:
        rows: a cell a column.
    """
    columns, grid, caption = _with_circumstances(columns, [list(row) for row in rows], caption)
    grid, caption = _with_one_origin(grid, caption)
    least = _least_widths(columns, grid)
    fits, compact = _needed_widths(columns, grid, least)
    if stacked:
        fits = compact = max(_SENTENCES_STACKED, fits)
    narrow = compact > _NEVER_STACKED
    head = "".join(
        f'<th scope="col" style="{_CELL};{_RULE}'
        f'{f";min-width:{least[number]}" if number in least else ""}">{_text(column)}</th>'
        for number, column in enumerate(columns)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL};{_RULE}"{_named(column, narrow)}>{_html(cell)}</td>'
            for column, cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in grid
    )
    # As wide as what can be seen: a table's own caption would be as wide as the table.
    title = f'<div style="position:sticky;left:0">{_text(caption)}</div>' if caption else ""
    style, name = "", ""
    if narrow:
        box = f"lt-stacked-{fits:g}-{compact:g}"
        style, name = _narrow_style(box, fits, compact), f' class="lt-stacked {box}"'
    markup = (
        f'{style}<div{name} style="overflow-x:auto;margin:0.4em 0" tabindex="0" role="region" '
        f'aria-label="{html.escape(caption or "table")}">'
        f'{title}<table style="border-collapse:collapse;margin:0;font-size:{_TABLE_LETTERS}em">'
        f"<thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
    return Shown(markup, _plain_table(columns, grid, caption))


def _named(column: str, narrow: bool) -> str:
    return f' data-column="{html.escape(column)}"' if narrow else ""


def _with_one_origin(grid: list[list[Cell]], caption: str) -> tuple[list[list[Cell]], str]:
    """The table with what all rows say of their origin in the caption, and the bare words left.

    A row without numbers, whose last cell is no `Word`, says nothing of an origin.
    """
    said = [(at, cell) for row in grid for at, cell in enumerate(row) if isinstance(cell, Word)]
    details = {(at, cell.detail) for at, cell in said}
    if len(said) < 2 or len(details) != 1 or not said[0][1].detail:
        return grid, caption
    detail = said[0][1].detail
    bare = [
        [replace(cell, detail="") if isinstance(cell, Word) else cell for cell in row]
        for row in grid
    ]
    told = f"{caption.removesuffix('.')}; {detail}" if caption else detail
    return bare, caption if detail in caption else told


def _with_circumstances(
    columns: Sequence[str], grid: list[list[Cell]], caption: str
) -> tuple[Sequence[str], list[list[Cell]], str]:
    """The table with the columns that what its records differ in asks for, before the last one."""
    rows = [[record for cell in row for record in _records_of(cell)] for row in grid]
    errors = [
        [record for cell in row for record in _records_of(cell) if isinstance(cell, _ErrorText)]
        for row in grid
    ]
    added = distinguish(rows, errors)
    if not added:
        return columns, grid, caption
    texts = zip(*added.values(), strict=True)
    wider = [[*row[:-1], *more, row[-1]] for row, more in zip(grid, texts, strict=True)]
    if TOGETHER in added:
        caption = f"{caption.removesuffix('.')}; {NOTE_TOGETHER}" if caption else NOTE_TOGETHER
    return (*columns[:-1], *added, columns[-1]), wider, caption


class _ErrorText(RecordedText):
    """An error as a table says it."""


def _records_of(cell: Any) -> tuple[Record, ...]:
    return cell.records if isinstance(cell, (Word, OfRecords)) else ()


def _least_widths(columns: Sequence[str], grid: Sequence[Sequence[Cell]]) -> dict[int, str]:
    """Which columns must not be squeezed, and their least widths: sentences, and one more.

    That is the one that says where a number comes from, or the last one. Where that holds bare
    words, which never break, the room goes to the first one, which names the row.
    """
    number, least = _wide_column(columns, grid)
    sentences: dict[int, str] = {}
    for row in grid:
        for column, cell in enumerate(row):
            if isinstance(cell, str) and len(cell) > 40:
                sentences.setdefault(column, _SENTENCE)
                if len(cell) > 120:
                    sentences[column] = _LONG_SENTENCE
    return sentences | {number: least}


def _wide_column(columns: Sequence[str], grid: Sequence[Sequence[Cell]]) -> tuple[int, str]:
    for number in reversed(range(len(columns))):
        cells = [row[number] for row in grid]
        if any(isinstance(cell, Word) and len(cell.detail) > 8 for cell in cells):
            return number, _LAST
    if any(not isinstance(row[-1], Word) for row in grid):
        return len(columns) - 1, _LAST
    longest = max((len(str(row[0])) for row in grid), default=0)
    return 0, f"min({min(9.0, 0.5 * longest + 1.5):.1f}em, 22vw)"


_SPARE = 1.02
"""Faces differ a little in width."""
_THIN, _FAT = frozenset("iljtfr.,:;'|!()[] "), frozenset("mwMW@%")


def _letters_width(text: str) -> float:
    """How wide letters of a proportional face are at most, about, in em."""
    return sum(
        0.38 if c in _THIN else 0.95 if c in _FAT else 0.72 if c.isupper() else 0.6 for c in text
    )


def _unbroken(text: str) -> float:
    """Width of the longest part of a text that a browser does not break, in em."""
    text = text.replace(" %", "\u00a0%")
    parts = re.split(r"[ \n]+|(?<=[a-z])-(?=[a-z])", text)
    return max((_letters_width(part) for part in parts), default=0.0)


def _needed_widths(
    columns: Sequence[str], grid: Sequence[Sequence[Cell]], least: Mapping[int, str]
) -> tuple[float, float]:
    """Least widths of a box in which a table fits, with its own letters and with smaller ones.

    In em of the box, rounded up. They are a guess from the longest word of each column, and rather
    too large than too small.
    """
    words, cells = 0.0, 0
    for number, column in enumerate(columns):
        widest = max((_cell_width(row[number]) for row in grid), default=0.0)
        found = re.search(r"([\d.]+)em", least.get(number, ""))
        words += max(widest, 1.1 * _unbroken(column), float(found[1]) if found else 0.0)
        cells += 1
    own = _TABLE_LETTERS * (words + 1.4 * cells)
    small = _COMPACT * (words + 0.7 * cells)
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
    return Shown(f'<div style="{BOX}">{_text(text)}{mark}</div>', plain)


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, word: str, note: str = ""
) -> Shown:
    """A table of texts and numbers; a row that ends in a `Word` keeps it, all others get ``word``.

    A row that also holds a recorded time says ``recorded`` beside it.

    Args:
        word: ``live``, ``recorded``, ``forecast``, ``computed`` or ``claimed``.
        note: where the numbers come from.
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


def _plain_table(columns: Sequence[str], rows: list[list[Cell]], caption: str) -> str:
    grid = [list(columns)] + [[str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in grid) for i in range(len(columns))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in grid
    ]
    return "\n".join([caption, *lines] if caption else lines)


def _html(cell: Cell) -> str:
    if isinstance(cell, Word):
        badges = " ".join(badge(word) for word in (cell.word, cell.also) if word)
        return f"{badges} {_text(cell.detail)}".rstrip()
    if isinstance(cell, Link):
        return f'<a href="{html.escape(cell.href)}">{_text(cell.text)}</a>'
    return _text(cell).replace(" %", "\u00a0%")  # a sign alone on a line belongs to nothing


def _text(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
