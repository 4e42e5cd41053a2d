"""Machine code as a page shows it: control bits, source lines, loads and their first use."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labtools.problem import LabError, Rung
from labtools.toolchain.operands import GLOBAL_LOADS
from labtools.toolchain.sass import Control, Instruction, Loop, Sass, SourceLine

from ...figures import SHADES, Axes, draw_picture
from ...tables import Shown, badge, plain_table
from .opcodes import WORDS

_CELL = "padding:0.1em 0.45em;text-align:left;vertical-align:top;white-space:pre"
_HEAD = "padding:0.25em 0.45em;text-align:left;border-bottom:1px solid #8888"
_LONG = frozenset({"instruction", "line", "waits for", "takes", "does", "source"})
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
        numbers = " and ".join(map(str, control.wait))
        one = len(control.wait) == 1
        are = f"scoreboard {numbers} is" if one else f"scoreboards {numbers} are"
        said.append(f"waits until {are} free")
    if control.write_barrier is not None:
        said.append(f"takes scoreboard {control.write_barrier} until its result is there")
    if control.read_barrier is not None:
        said.append(f"takes scoreboard {control.read_barrier} until its operands have been read")
    cycles = f"{control.stall} cycle{'' if control.stall == 1 else 's'} later"
    said.append(f"the next instruction may issue {cycles}" if control.stall else "no stall count")
    if control.yields:
        said.append("another warp may go first")
    return "; ".join(said)


def _say_takes(control: Control) -> str:
    """Which scoreboards an instruction holds, and until when: ``2 result, 0 read``."""
    held = {"result": control.write_barrier, "read": control.read_barrier}
    return ", ".join(f"{number} {until}" for until, number in held.items() if number is not None)


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
    only: Collection[str] = (),
    words: bool = False,
    caption: str = "",
) -> Shown:
    """A listing as a table: instruction, control bits, source line. It scrolls in its own box.

    Without a ``span``, a loop or (first, last) instruction, it holds all that can run; with
    ``only`` the opcodes named, without modifiers.
    """
    first, last = _span(code, span)
    heads = ["at", "instruction", "line", "waits for", "takes", "stall"]
    heads += ["does"] * words + ["source"] * bool(sources)
    targets = {
        one.target
        for one in code.instructions
        if one.base in ("BRA", "JMP") and one.target is not None and one.target <= one.address
    }
    chosen = [one for one in code.instructions[first : last + 1] if not only or one.base in only]
    rows: list[list[str]] = []
    before: SourceLine | None = None
    for one in chosen:
        control, source = one.control, one.source
        cells = {
            "at": f"{one.address:04x}",
            "instruction": _instruction_text(one),
            "line": f"{_file_name(source)}:{source.line}" if source else "",
            "waits for": " ".join(map(str, control.wait)),
            "takes": _say_takes(control),
            "stall": f"{control.stall}{' yield' if control.yields else ''}",
            "does": WORDS.get(one.base, ""),
            "source": _source_text(source, sources or {}) if source and source != before else "",
        }
        before = source
        rows.append([cells[head] for head in heads])
    count = f"{len(chosen)} of " if only else ""
    key = "" if only else _KEY  # a few lines cut out of a listing that was shown before
    text = caption or f"{code.entry}, {code.arch}: {count}{last - first + 1} instructions"
    kinds = [_kind(one, one.address in targets) for one in chosen]
    plain = plain_table(heads, rows, f"{text} [computed]") + (f"\n{key}" if key else "")
    return Shown(_listing_html(heads, zip(rows, kinds, strict=True), text, key), plain)


def _span(code: Sass, span: Loop | tuple[int, int] | None) -> tuple[int, int]:
    if span is None:
        return 0, len(code.executable) - 1
    first, last = (span.first, span.last) if isinstance(span, Loop) else span
    if not 0 <= first <= last < len(code.instructions):
        why = f"they are numbered from 0 to {len(code.instructions) - 1}"
        raise LabError(f"{code.entry} has no instructions {first} to {last}.", why)
    return first, last


def _instruction_text(instruction: Instruction) -> str:
    """The text, with the address of a branch's target in place of the compiler's label."""
    if instruction.target is None or "`(" not in instruction.text:
        return instruction.text
    head = instruction.text[: instruction.text.index("`(")]
    return f"{head}{instruction.target:04x}"


def _file_name(source: SourceLine) -> str:
    return source.file.replace("\\", "/").rsplit("/", 1)[-1]


def _source_text(source: SourceLine, sources: Mapping[str, Sequence[str]]) -> str:
    lines = sources.get(_file_name(source), ())
    return lines[source.line - 1].strip() if 0 < source.line <= len(lines) else ""


def _kind(instruction: Instruction, is_head: bool) -> str:
    kinds = {"head": is_head, "load": instruction.base in GLOBAL_LOADS}
    kinds["wait"] = bool(instruction.control.wait)
    return " ".join(f"lt-sass-{kind}" for kind, holds in kinds.items() if holds)


def _listing_html(
    heads: Sequence[str], rows: Iterable[tuple[list[str], str]], caption: str, key: str
) -> str:
    head = "".join(f'<th scope="col" style="{_HEAD}">{html.escape(name)}</th>' for name in heads)
    body = []
    for row, kind in rows:
        # A load is bold, and so is what an instruction waits for; the head of a loop has a line.
        rule = "border-top:1px solid #8888;" if "lt-sass-head" in kind else ""
        cells = []
        for name, text in zip(heads, row, strict=True):
            bold = (name == "instruction" and "lt-sass-load" in kind) or name == "waits for"
            weight = "font-weight:bold;" if bold and text else ""
            font = "font-family:inherit" if name == "does" else "font-family:monospace"
            breaks = f";{_BROKEN}" if name in _LONG else ""
            cells.append(
                f'<td style="{_CELL};{rule}{weight}{font}{breaks}">{html.escape(text)}</td>'
            )
        body.append(f'<tr class="{kind}">{"".join(cells)}</tr>')
    label = html.escape(caption, quote=True)
    return (
        f'{_NARROW}<figure class="lt-sass" style="margin:0.6em 0;text-align:left">'
        f"<figcaption>{html.escape(caption)} {badge('computed')}</figcaption>"
        '<div style="overflow:auto;max-height:32em;border:1px solid #8888;border-radius:4px" '
        f'tabindex="0" role="region" aria-label="{label}">'
        '<table style="border-collapse:collapse;margin:0;font-size:0.75em;line-height:1.4">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<div style="font-size:0.85em;margin-top:0.2em">{html.escape(key)}</div></figure>'
    )


# ------------------------------------------------------------------------------ loads in flight


@dataclass(frozen=True)
class LoadSpan:
    """A load from global memory in a loop, from its issue to the first use of its result."""

    issue: int  # position in the loop, from 0
    first_use: int  # of the first that needs it; in the next trip beyond the loop's length
    bytes_per_lane: int  # 1 to 16


def main_loop(code: Sass) -> Loop:
    """The innermost loop with the most loads from global memory, the longest of several."""
    loops = [loop for loop in code.innermost_loops if loop.count("LDG|LDGSTS")]
    if not loops:
        what = f"No loop of {code.entry} loads from global memory."
        raise LabError(what, f"it has {len(code.innermost_loops)} innermost loops")
    return max(loops, key=lambda loop: (loop.count("LDG|LDGSTS"), len(loop.instructions)))


def load_spans(code: Sass, loop: Loop) -> list[LoadSpan]:
    """Every load of one trip and its first use, in program order: there a warp waits, and nothing
    behind it issues either."""
    body = loop.instructions
    found = []
    for place, instruction in enumerate(body):
        if instruction.base != "LDG":
            continue
        behind = [*body[place + 1 :], *body[: place + 1]]
        uses = (n for n, later in enumerate(behind, 1) if instruction.defines & later.uses)
        first_use = place + next(uses, len(body))
        found.append(LoadSpan(place, first_use, instruction.access_bytes))
    return found


def plot_loads(loops: Mapping[str, tuple[Sass, Loop]], title: str = "") -> Shown:
    """When each load of a trip issues and where its result is first needed, by instruction, of a
    loop a label."""
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
                style: dict[str, Any] = {"color": SHADES[1], "height": 0.7}
                axes.barh(row, end - span.issue, left=span.issue, **style)
                axes.plot(span.issue, row, ">", color=SHADES[0], markersize=4)
                row += 1
            axes.plot([sizes[label]] * 2, [start - 0.6, row - 0.4], color=SHADES[0], linewidth=1)
            ticks.append((start + row - 1) / 2)
            names.append(label)
            row += 2
        axes.set_yticks(ticks, names)
        axes.set_ylim(row - 1, -1)
        axes.set_xlim(left=0)
        axes.set_xlabel("instruction of the trip")
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)

    alt = "; ".join(
        f"{label}: {len(spans)} loads in {sizes[label]} instructions, "
        f"issued at {', '.join(str(span.issue) for span in spans)}, "
        f"first used at {', '.join(str(span.first_use) for span in spans)}"
        for label, spans in found.items()
    )
    caption = (
        "A bar runs from a load's place in the trip to the first instruction that needs its "
        "result; the vertical line is the end of the trip."
    )
    size = (7.2, max(2.0, 0.8 + 0.15 * rows))
    return draw_picture(paint, f"{alt}.", caption, "computed", size=size, title=title)
