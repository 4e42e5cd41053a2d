"""Machine code as a page shows it: control bits, source lines, loads and their first use."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labtools.problem import LabError, Rung
from labtools.toolchain.operands import GLOBAL_LOADS
from labtools.toolchain.sass import Control, Instruction, Loop, Sass, SourceLine

from ...figures import GREYS, draw_picture
from ...tables import Shown, badge, check_word
from .opcodes import WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL = "padding:0.1em 0.45em;text-align:left;vertical-align:top;white-space:pre"
_HEAD = "padding:0.25em 0.45em;text-align:left;border-bottom:1px solid #8888"
_LONG = frozenset({"instruction", "line", "waits for", "takes", "does", "note", "source"})
"""Columns whose texts go on below where the listing is wider than its column of the page."""
_BROKEN = "white-space:pre-wrap;overflow-wrap:anywhere"
_NARROW = (
    "<style>.lt-sass{container-type:inline-size}"
    "@container (max-width:34em){"
    ".lt-sass table{font-size:0.62em!important}"
    ".lt-sass :is(th,td){padding:0.1em 0.2em!important}}</style>"
)
"""On a telephone the letters of a listing are smaller."""
_KEY = (
    "waits for: scoreboards that must be free before it issues. takes: a scoreboard that it holds "
    "until its result is there, or until its operands are read. stall: cycles until the same warp "
    "may issue again; yield: another warp may go first."
)


# ------------------------------------------------------------------------------ control in words


def explain_control(control: Control) -> str:
    """The scheduling bits of one instruction as a sentence."""
    said = []
    if control.wait:
        single = len(control.wait) == 1
        said.append(
            f"waits until scoreboard{'' if single else 's'} {_list(control.wait)} "
            f"{'is' if single else 'are'} free"
        )
    if control.write_barrier is not None:
        said.append(f"takes scoreboard {control.write_barrier} until its result is there")
    if control.read_barrier is not None:
        said.append(f"takes scoreboard {control.read_barrier} until its operands have been read")
    if control.stall:
        cycles = "cycle" if control.stall == 1 else "cycles"
        said.append(f"the next instruction may issue {control.stall} {cycles} later")
    else:
        said.append("no stall count")
    if control.yields:
        said.append("another warp may go first")
    return "; ".join(said)


def _list(numbers: Sequence[int]) -> str:
    return " and ".join(str(number) for number in numbers)


def say_takes(control: Control) -> str:
    """Which scoreboards an instruction holds, and until when: ``2 result, 0 read``."""
    held = []
    if control.write_barrier is not None:
        held.append(f"{control.write_barrier} result")
    if control.read_barrier is not None:
        held.append(f"{control.read_barrier} read")
    return ", ".join(held)


# ------------------------------------------------------------------------------------- a listing


def read_sources(rung: Rung) -> dict[str, list[str]]:
    """The lines of a rung's kernel and of the headers it may include, by file name."""
    from labtools.toolchain.options import all_include_dirs

    found: dict[str, list[str]] = {}
    for folder in all_include_dirs(rung.include_dirs):
        for path in sorted(folder.glob("*.cuh")):
            found.setdefault(path.name, path.read_text(errors="replace").splitlines())
    found[rung.source.name] = rung.source_text.splitlines()
    return found


def show_sass(
    code: Sass,
    span: Loop | tuple[int, int] | None = None,
    *,
    sources: Mapping[str, Sequence[str]] | None = None,
    notes: Mapping[int, str] | None = None,
    only: Collection[str] = (),
    words: bool = False,
    caption: str = "",
    word: str = "computed",
) -> Shown:
    """A listing as a table: instruction, control bits, source line. It scrolls in its own box.

    Args:
        span: a loop, or (first, last) instruction, both included; None shows all that can run.
        only: opcodes without modifiers; others are left out. Empty shows all.
        word: where the listing comes from: ``computed`` here, by a compiler.
    """
    check_word(word)
    first, last = _span(code, span)
    heads = ["at", "instruction", "line", "waits for", "takes", "stall"]
    heads += ["does"] if words else []
    heads += ["note"] if notes else []
    heads += ["source"] if sources else []
    targets = {
        instruction.target: instruction.index
        for instruction in code.instructions
        if instruction.base in ("BRA", "JMP")
        and instruction.target is not None
        and instruction.target <= instruction.address
    }
    rows: list[list[str]] = []
    kinds: list[str] = []
    before: SourceLine | None = None
    chosen = [
        instruction
        for instruction in code.instructions[first : last + 1]
        if not only or instruction.base in only
    ]
    for instruction in chosen:
        control = instruction.control
        row = [
            f"{instruction.address:04x}",
            _instruction_text(instruction),
            f"{_file_name(instruction.source)}:{instruction.source.line}"
            if instruction.source
            else "",
            " ".join(str(number) for number in control.wait),
            say_takes(control),
            f"{control.stall}{' yield' if control.yields else ''}",
        ]
        row += [WORDS.get(instruction.base, "")] if words else []
        row += [(notes or {}).get(instruction.index, "")] if notes else []
        if sources:
            row.append(
                "" if instruction.source == before else _source_text(instruction.source, sources)
            )
        before = instruction.source
        rows.append(row)
        kinds.append(_kind(instruction, instruction.address in targets))
    count = f"{len(chosen)} of " if only else ""
    key = "" if only else _KEY  # a few lines cut out of a listing that was shown before
    text = caption or f"{code.entry}, {code.arch}: {count}{last - first + 1} instructions"
    return Shown(
        _listing_html(heads, rows, kinds, text, word, key),
        _listing_text(heads, rows, text, word, key),
    )


def _span(code: Sass, span: Loop | tuple[int, int] | None) -> tuple[int, int]:
    if span is None:
        return 0, len(code.executable) - 1
    first, last = (span.first, span.last) if isinstance(span, Loop) else span
    if not 0 <= first <= last < len(code.instructions):
        raise LabError(
            f"{code.entry} has no instructions {first} to {last}.",
            f"they are numbered from 0 to {len(code.instructions) - 1}",
            "give a loop of its own, or numbers in that range",
        )
    return first, last


def _instruction_text(instruction: Instruction) -> str:
    """The text, with the address of a branch's target in place of the compiler's label."""
    if instruction.target is None or "`(" not in instruction.text:
        return instruction.text
    head = instruction.text[: instruction.text.index("`(")]
    return f"{head}{instruction.target:04x}"


def _file_name(source: SourceLine) -> str:
    return source.file.replace("\\", "/").rsplit("/", 1)[-1]


def _source_text(source: SourceLine | None, sources: Mapping[str, Sequence[str]]) -> str:
    if source is None:
        return ""
    lines = sources.get(_file_name(source), ())
    return lines[source.line - 1].strip() if 0 < source.line <= len(lines) else ""


def _kind(instruction: Instruction, is_head: bool) -> str:
    kinds = ["lt-sass-head"] if is_head else []
    if instruction.base in GLOBAL_LOADS:
        kinds.append("lt-sass-load")
    if instruction.control.wait:
        kinds.append("lt-sass-wait")
    return " ".join(kinds)


def _listing_html(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    kinds: Sequence[str],
    caption: str,
    word: str,
    key: str,
) -> str:
    head = "".join(f'<th scope="col" style="{_HEAD}">{html.escape(name)}</th>' for name in heads)
    body = []
    for row, kind in zip(rows, kinds, strict=True):
        # A load is bold, and so is what an instruction waits for; the head of a loop has a line.
        rule = "border-top:1px solid #8888;" if "lt-sass-head" in kind else ""
        cells = []
        for name, text in zip(heads, row, strict=True):
            bold = (name == "instruction" and "lt-sass-load" in kind) or name == "waits for"
            weight = "font-weight:bold;" if bold and text else ""
            font = "font-family:inherit" if name in ("does", "note") else "font-family:monospace"
            breaks = f";{_BROKEN}" if name in _LONG else ""
            cells.append(
                f'<td style="{_CELL};{rule}{weight}{font}{breaks}">{html.escape(text)}</td>'
            )
        body.append(f'<tr class="{kind}">{"".join(cells)}</tr>')
    label = html.escape(caption, quote=True)
    return (
        f'{_NARROW}<figure class="lt-sass" style="margin:0.6em 0;text-align:left">'
        f"<figcaption>{html.escape(caption)} {badge(word)}</figcaption>"
        '<div style="overflow:auto;max-height:32em;border:1px solid #8888;border-radius:4px" '
        f'tabindex="0" role="region" aria-label="{label}">'
        '<table style="border-collapse:collapse;margin:0;font-size:0.75em;line-height:1.4">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<div style="font-size:0.85em;margin-top:0.2em">{html.escape(key)}</div></figure>'
    )


def _listing_text(
    heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str, word: str, key: str
) -> str:
    grid = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in grid
    ]
    return "\n".join([f"{caption} [{word}]", *lines, *([key] if key else [])])


# ------------------------------------------------------------------------------ loads in flight


@dataclass(frozen=True)
class LoadSpan:
    """A load from global memory in a loop, from its issue to the first use of its result."""

    issue: int  # position in the loop, from 0
    # position of the first instruction that needs it; beyond the loop's length where that is in the
    # next trip
    first_use: int
    bytes_per_lane: int  # 1 to 16


def main_loop(code: Sass) -> Loop:
    """The innermost loop with the most loads from global memory, the longest of several."""
    loops = [
        (loop.count("LDG|LDGSTS"), len(loop.instructions), loop) for loop in code.innermost_loops
    ]
    best = max(loops, key=lambda found: found[:2], default=None)
    if best is None or not best[0]:
        raise LabError(
            f"No loop of {code.entry} loads from global memory.",
            f"it has {len(loops)} innermost loops",
            "look at the whole kernel",
        )
    return best[2]


def load_spans(code: Sass, loop: Loop) -> list[LoadSpan]:
    """Every load of one trip and its first use, in program order.

    A warp issues in order, so it waits at the first use, and nothing behind that issues either.
    """
    body = loop.instructions
    found = []
    for place, instruction in enumerate(body):
        if instruction.base != "LDG":
            continue
        first_use = next(
            (
                place + ahead
                for ahead in range(1, len(body) + 1)
                if instruction.defines & body[(place + ahead) % len(body)].uses
            ),
            place + len(body),
        )
        found.append(LoadSpan(place, first_use, instruction.access_bytes))
    return found


def plot_loads(loops: Mapping[str, tuple[Sass, Loop]], title: str = "") -> Shown:
    """When each load of a trip issues and where its result is first needed, by instruction.

    Args:
        loops: by label: a kernel and one of its loops.
    """
    if not loops:
        raise LabError("There are no loads to draw.", "no loop was given", "give one")
    found = {label: load_spans(code, loop) for label, (code, loop) in loops.items()}
    sizes = {label: loop.last - loop.first + 1 for label, (_, loop) in loops.items()}
    rows = sum(len(spans) for spans in found.values()) + 2 * len(found)

    def paint(axes: Axes) -> None:
        row, ticks, names = 0, [], []
        for label, spans in found.items():
            start = row
            for span in spans:
                end = span.first_use
                style: dict[str, Any] = {"color": GREYS[1], "height": 0.7}
                axes.barh(row, end - span.issue, left=span.issue, **style)
                axes.plot(span.issue, row, ">", color=GREYS[0], markersize=4)
                row += 1
            axes.plot([sizes[label]] * 2, [start - 0.6, row - 0.4], color=GREYS[0], linewidth=1)
            ticks.append((start + row - 1) / 2)
            names.append(label)
            row += 2
        axes.set_yticks(ticks, names)
        axes.set_ylim(row - 1, -1)
        axes.set_xlim(left=0)
        axes.set(xlabel="instruction of the trip", title=title)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)

    told = "; ".join(
        f"{label}: {len(spans)} loads in {sizes[label]} instructions, issued at "
        + ", ".join(str(span.issue) for span in spans)
        + ", first used at "
        + ", ".join(str(span.first_use) for span in spans)
        for label, spans in found.items()
    )
    caption = (
        "A bar runs from a load's place in the trip to the first instruction that needs its "
        "result; the vertical line is the end of the trip."
    )
    alt = f"{title + '. ' if title else ''}{told}."
    return draw_picture(paint, alt, caption, "computed", size=(7.2, max(2.0, 0.8 + 0.15 * rows)))
