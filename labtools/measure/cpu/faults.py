"""What went wrong in a run on the CPU, with the line it went wrong at."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problem import repository_root

from ..case import Fault
from .report import RawFault

_LOCATION = re.compile(r"^(?P<file>.*):(?P<line>\d+)(?: \(discriminator \d+\))?$")


@dataclass(frozen=True)
class KernelLine:
    """A line of the kernel or of one of its own headers."""

    file: str  # the kernel's source where it is on the way, else a header
    line: int  # 1-based
    within: str = ""  # the header's line that was reached from there, as ``row.cuh line 28``

    def told_beside(self, file: str | None) -> str:
        """Its number, with its file's name where that is not ``file``."""
        text = f"line {self.line}"
        return text if self.file == file else f"{Path(self.file).name} {text}"


class LineTable:
    """Answers for one executable; only lines of the kernel's source and its own headers count."""

    def __init__(self, program: Path, name: str, include_dirs: Iterable[Path]) -> None:
        self._program = program
        self._name = name.replace("\\", "/").replace('"', "'")
        self._shown = name
        self._folders = [str(Path(folder).resolve()) for folder in include_dirs]
        self._known: dict[int, list[KernelLine]] = {}

    def resolve(self, addresses: Sequence[int]) -> None:
        """Look up many return addresses at once."""
        wanted = sorted({a for a in addresses if a} - self._known.keys())
        tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
        if not wanted or tool is None:
            return
        # A return address is the instruction after the call; one less lies in the call.
        text = "".join(f"{hex(a - 1)}\n" for a in wanted)
        try:
            command = [tool, "-e", str(self._program), "-i", "-a"]
            how: dict[str, Any] = {"input": text, "capture_output": True, "text": True}
            done = subprocess.run(command, **how, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return
        current: list[KernelLine] | None = None
        for line in done.stdout.splitlines():
            if re.fullmatch(r"0x[0-9a-f]+", line):
                current = self._known.setdefault(int(line, 16) + 1, [])
                continue
            found = _LOCATION.match(line)
            if found and current is not None:
                own = self._own(found["file"])
                if own and int(found["line"]):
                    current.append(KernelLine(own, int(found["line"])))

    def _own(self, file: str) -> str | None:
        if file == self._name or file.endswith("/" + self._name):
            return self._shown
        path = str(Path(file).resolve())
        return path if any(path.startswith(folder + "/") for folder in self._folders) else None

    def innermost(self, address: int) -> KernelLine | None:
        """The line at a return address, of a header where a call into it was laid out there."""
        self.resolve([address])
        return next(iter(self._known.get(address, [])), None)

    def line_of(self, addresses: Sequence[int]) -> KernelLine | None:
        """Where the kernel is at these addresses, which go from the inside out.

        The reader's own source comes before a header that it calls into.
        """
        self.resolve(addresses)
        lines = [line for address in addresses for line in self._known.get(address, [])]
        if not lines:
            return None
        inner = lines[0]
        own = next((line for line in lines if line.file == self._shown), None)
        if own is None or own is inner:
            return inner
        return KernelLine(own.file, own.line, f"{Path(inner.file).name} line {inner.line}")


class PlaceTable(LineTable):
    """`LineTable` of a module, whose addresses are numbers of places."""

    def resolve(self, addresses: Sequence[int]) -> None:
        """Look up many numbers at once."""
        if not (wanted := {one for one in addresses if one} - self._known.keys()):
            return
        places = json.loads(self._program.with_name("places.json").read_text())["places"]
        for number in wanted:
            lines = [(self._own(file), line) for file, line in places[number]]
            self._known[number] = [KernelLine(own, line) for own, line in lines if own and line]

    def _own(self, file: str) -> str | None:
        found = super()._own(file)
        paths = (Path(folder) / Path(file).name for folder in self._folders)
        return found or next((str(path) for path in paths if path.is_file()), None)


def line_table(program: Path, name: str, include_dirs: Iterable[Path]) -> LineTable:
    """The lines of a program or of a module."""
    table = PlaceTable if program.suffix == ".wasm" else LineTable
    return table(program, name, include_dirs)


@dataclass(frozen=True)
class CpuFault(Fault):
    """A fault of a run on the CPU."""

    order: int = 0  # the order of warps under which it showed
    source_line: str = ""  # the text of its line
    places: tuple[tuple[str, int], ...] = ()  # every (file, line) that the message names
    # of asynchronous copies to where none may go: bytes of shared memory, of three threads
    offsets: tuple[int, ...] = ()

    def __str__(self) -> str:
        file = (self.file or "").removeprefix(f"{repository_root()}/")
        where = [f"{file}:{self.line}"] if file and self.line is not None else []
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
    block_dims: Sequence[tuple[int, int, int]],  # of each launch
    order: int,
    texts: dict[str, list[str]],
) -> list[CpuFault]:
    """Put lines in the place of code addresses; ``texts`` are the sources' lines by file name."""
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
        text = place.told_beside(first.file if first else None)
        text += f" (in {place.within})" if place.within else ""
        again = fault.kind in ("barrier", "collective") and place in lines[:index]
        return f"{text} too, in another call or trip of a loop" if again else text

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
