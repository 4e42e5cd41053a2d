"""What a kernel did wrong, on whichever machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Fault:
    """One thing that a kernel did wrong, apart from its numbers."""

    # on the CPU one of `labtools.measure.cpu.FAULT_KINDS`; on the GPU misaligned, out_of_bounds,
    # hang, out_of_memory, launch, trap, busy, crash or cuda
    kind: str
    message: str  # what happened, in words
    # the kernel's source (or cell, or header); None when no line could be found. A GPU does not
    # say.
    file: str | None = None
    line: int | None = None  # 1-based line in it
    block: tuple[int, int, int] | None = None  # blockIdx, or None
    thread: tuple[int, int, int] | None = None  # threadIdx, or None

    # A fault on the CPU knows more, which is in its text.
    in_json: ClassVar[Mapping[str, str]] = {
        name: name for name in ("kind", "message", "file", "line", "block", "thread")
    }
    """What the JSON of either machine holds."""

    def __str__(self) -> str:
        return self.message
