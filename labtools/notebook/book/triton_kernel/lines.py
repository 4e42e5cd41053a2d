"""How many instructions each line of a kernel became."""

from __future__ import annotations

from collections import Counter

from labtools.problem import Rung
from labtools.toolchain.listings import MachineCode, source_text_of

from ...figures import SHADES, Axes, draw_picture
from ...tables import Shown

NAMED = ("LDG", "STG", "SHFL", "STS", "LDS", "BAR", "MUFU")
"""Opcodes that the drawing names: memory, what threads exchange, and exponentials."""


def draw_lines(code: MachineCode, entry: str, rung: Rung, width: int = 46) -> Shown:
    """A bar for each line of a rung's source, as long as its instructions are many, and one for
    each other file; a line is cut off after ``width`` characters."""
    counts: dict[tuple[int, str], Counter[str]] = {}
    own = rung.source.name
    for one in code.entries[entry].executable:
        if one.source is None or one.is_padding:
            continue
        name = one.source.file.rsplit("/", 1)[-1]
        text = (source_text_of(one.source, rung) or "").strip() if name == own else ""
        cut = text if len(text) <= width else f"{text[: width - 3]}..."
        key = (one.source.line, cut) if name == own else (10**6, f"in {name}")
        counts.setdefault(key, Counter())[one.base] += 1
    rows = [(label, counts[line, label]) for line, label in sorted(counts)]
    said = [
        ", ".join([f"{found.total()}", *(f"{found[op]} {op}" for op in NAMED if found[op])])
        for _, found in rows
    ]

    def paint(axes: Axes) -> None:
        longest = max(found.total() for _, found in rows)
        for row, ((_, found), text) in enumerate(zip(rows, said, strict=True)):
            axes.barh(row, found.total(), color="#9dbfe0", edgecolor=SHADES[0])
            axes.text(found.total() + 0.02 * longest, row, text, va="center", fontsize=9)
        labels = [label for label, _ in rows]
        axes.set_yticks(range(len(rows)), labels, family="monospace", fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.5 * longest)
        axes.set_xlabel("instructions")
        axes.grid(axis="y", visible=False)

    told = "; ".join(f"{label}: {text}" for (label, _), text in zip(rows, said, strict=True))
    caption = f"The instructions that each line became, {code.origin}"
    size = (7.2, 0.8 + 0.32 * len(rows))
    return draw_picture(paint, f"{told}.", caption, "computed", size=size)
