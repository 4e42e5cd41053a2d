"""What went wrong in a run on the CPU, with the line it went wrong at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..case import Fault
from .places import KernelLine, LineTable
from .report import RawFault

FAULT_KINDS = {
    "out_of_bounds": "an access outside a buffer, a shared variable or an array",
    "misaligned": "an address that is no multiple of what the access needs",
    "uninitialised": "a read of memory that nobody has written",
    "race": "two threads, one of them writing, at the same bytes with no order between them",
    "barrier": "a barrier that not every thread of the block reaches",
    "collective": "a warp function that lanes of its mask miss, or reach differently",
    "async_copy": "an asynchronous copy whose data are used before they are there",
    "read_only": "a write to an input",
    "launch": "a launch that a GPU would refuse, or arguments of the wrong type",
    "hang": "a block that does not end",
    "crash": "a thread or its process that died",
    "carried": "what one call of the launches left behind and the next one reads",
    "order_dependent": "a result that changes with the order in which warps run",
}


@dataclass(frozen=True)
class CpuFault(Fault):
    """A fault of a run on the CPU."""

    order: int = 0  # the order of warps under which it showed
    source_line: str = ""  # the text of its line
    places: tuple[tuple[str, int], ...] = ()  # every (file, line) that the message names
    # of asynchronous copies to where none may go: bytes of shared memory, of three threads
    offsets: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = [f"{self.file}:{self.line}"] if self.file and self.line is not None else []
        where += [f"block {self.block}"] if self.block is not None else []
        where += [f"thread {self.thread}"] if self.thread is not None else []
        text = f"{self.kind.replace('_', ' ')}: {self.message}"
        if where:
            text += f"\n  at {', '.join(where)}"
        if self.source_line:
            text += f"\n  {self.line:>5} | {self.source_line.strip()}"
        return text


def explain_faults(
    raw: Sequence[RawFault],
    table: LineTable,
    block_dims: Sequence[tuple[int, int, int]],
    order: int,
    texts: dict[str, list[str]],
) -> list[CpuFault]:
    """Put lines in the place of code addresses.

    ``block_dims`` are the threads of a block in x, y, z, for each launch; ``texts`` the lines of
    the sources by file name.
    """
    table.resolve([address for fault in raw for place in fault.places for address in place])
    faults: list[CpuFault] = []
    first = [[table.line_of(place) for place in fault.places[:1]] for fault in raw]
    for fault in raw:
        lines = [table.line_of(place) for place in fault.places]
        # A loop that the compiler lays out is several instructions of one line.
        copies = sum(
            other.copies
            for other, line in zip(raw, first, strict=True)
            if line == lines[:1] and other.block == fault.block
        )
        if fault.only_if_lines_differ and len(set(lines)) < 2:
            continue
        explained = _explain(fault, lines, copies, block_dims, order, texts)
        same = (explained.kind, explained.file, explained.line, explained.places)
        if same not in [(f.kind, f.file, f.line, f.places) for f in faults]:
            faults.append(explained)
    return faults


def _explain(
    fault: RawFault,
    lines: Sequence[KernelLine | None],
    copies: int,
    block_dims: Sequence[tuple[int, int, int]],
    order: int,
    texts: dict[str, list[str]],
) -> CpuFault:
    first = lines[0] if lines else None

    def name(match: re.Match[str]) -> str:
        index = int(match[1])
        place = lines[index] if index < len(lines) else None
        if place is None:
            return "an unknown line"
        text = f"line {place.line}"
        if first is None or place.file != first.file:
            text = f"{place.file.rsplit('/', 1)[-1]} {text}"
        return f"{text} (in {place.within})" if place.within else text

    dims = block_dims[min(fault.launch, len(block_dims) - 1)]
    started = fault.thread >= 0
    source = texts.get(first.file, []) if first else []
    message = re.sub(r"\{(\d)\}", name, fault.text).replace("{copies}", str(copies))
    if first is not None and first.within and first.within not in message:
        message += f" (in {first.within})"
    return CpuFault(
        kind=fault.kind,
        message=message,
        file=first.file if first else None,
        line=first.line if first else None,
        block=fault.block if started else None,
        thread=_three(fault.thread, dims) if started else None,
        order=order,
        source_line=source[first.line - 1] if first and first.line <= len(source) else "",
        places=tuple((place.file, place.line) for place in lines if place is not None),
        offsets=fault.offsets,
    )


def _three(linear: int, dims: tuple[int, int, int]) -> tuple[int, int, int]:
    return (linear % dims[0], linear // dims[0] % dims[1], linear // (dims[0] * dims[1]))
