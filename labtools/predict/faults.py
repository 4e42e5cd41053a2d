"""Addresses at which a GPU ends a launch with an error, where the machine code tells them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath

import numpy as np

from labtools.toolchain.operands import GLOBAL_ACCESSES, SHARED_ACCESSES
from labtools.toolchain.sass import Instruction

from .lanes import BUFFER_SPACING, Buffers
from .trace import Executed, Execution, Trace


def address_faults(trace: Trace, buffers: Buffers) -> list[str]:
    """Accesses that are misaligned, or outside every buffer, a sentence a line of the source; none
    where data may lead a thread elsewhere."""
    if trace.doubted():
        return []
    found: dict[str, None] = {}
    for step, address in _reached(trace.items):
        one = trace.sass.instructions[step.index]
        asks = one.base in GLOBAL_ACCESSES or one.base in SHARED_ACCESSES
        if not asks or address is None or step.index in trace.unsure:
            continue
        if fault := _fault(one, address[step.executing], buffers):
            found[fault] = None
    return list(found)


def _reached(items: Iterable[Executed]) -> Iterator[tuple[Execution, np.ndarray | None]]:
    """Every step with its addresses, [N] each, in the first trip and in the last."""
    for item in items:
        if isinstance(item, Execution):
            yield item, item.address
            continue
        yield from _reached(item.body)
        later = np.asarray(item.count if item.counts is None else item.counts) - 1
        both = zip(_reached(item.body), _reached(item.second), strict=False)
        for (step, first), (_, second) in both:
            if first is not None and second is not None:
                yield step, first + (second - first) * later.clip(0).astype(np.uint64)


def _fault(one: Instruction, address: np.ndarray, buffers: Buffers) -> str:
    """What is wrong with the addresses of an instruction; "" for nothing."""
    width = np.uint64(16 if one.base in ("LDSM", "STSM") else one.access_bytes)
    at = f"{one.text} at {one.address:#06x}"
    if one.source is not None:
        at = f"line {one.source.line} of {PurePath(one.source.file).name}"
    if (address % width).any():
        return f"{at} asks for {width} bytes at an address that is no multiple of {width}"
    if one.base in SHARED_ACCESSES:
        return ""
    number = (address // np.uint64(BUFFER_SPACING)).astype(np.int64) - 1
    offset = (address % np.uint64(BUFFER_SPACING)).astype(np.int64)
    sizes = np.array([buffers.bytes.get(name, BUFFER_SPACING) for name in buffers.names], np.int64)
    known = (number >= 0) & (number < len(sizes))
    ends = sizes[number.clip(0, len(sizes) - 1)]
    past = known & (offset + int(width) > ends)
    before = (number == -1) & (offset > BUFFER_SPACING // 2)
    if not (past | before).any():
        return ""
    far = before.any() or (offset[past] - ends[past]).max() >= 2**31
    wraps = ", as an int does that is counted past 2,147,483,647" if far else ""
    return f"{at} reaches outside of every buffer{wraps}"
