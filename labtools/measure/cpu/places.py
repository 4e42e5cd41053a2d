"""Which line of the kernel a code address belongs to."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOCATION = re.compile(r"^(?P<file>.*):(?P<line>\d+)(?: \(discriminator \d+\))?$")


@dataclass(frozen=True)
class KernelLine:
    """A line of the kernel or of one of its own headers."""

    file: str  # the kernel's source where it is on the way, else a header
    line: int  # 1-based
    within: str = ""  # the header's line that was reached from there, as ``row.cuh line 28``


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
            done = subprocess.run(
                [tool, "-e", str(self._program), "-i", "-a"],
                input=text,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
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
