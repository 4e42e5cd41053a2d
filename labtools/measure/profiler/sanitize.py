"""compute-sanitizer over one rung, in child processes: is the kernel clean, and if not, where.

A fault found this way kills the CUDA context of its process, so the tool always runs on a child.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from labtools.predict import limits_of
from labtools.problem import LabError, Problem, Rung
from labtools.record import SanitizerVerdict
from labtools.toolchain import find_tool
from labtools.toolchain.progress import Progress, silent

from ..gpu.job import fill_cubin, require_device
from ..gpu.queue import share_this_gpu
from ..worker import Finished
from .profile import watched_item
from .watched import WatchedResult, WatchRequest, run_watched

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
"""memcheck: out of bounds, misaligned. racecheck: shared memory. synccheck: barriers used wrongly.
initcheck: reads of device memory that nothing wrote."""

MOST_ERRORS_KEPT = 5  # of the tool's reports in a record, beside the count of all

ToolVerdict = Literal["clean", "errors", "not run"]


@dataclass(frozen=True)
class Place:
    """Where one access stands in the source."""

    access: str  # ``read``, ``write`` or an empty string
    kernel: str
    file: str | None
    line: int | None  # None of a kernel that was compiled without line information


@dataclass(frozen=True)
class SanitizerError:
    """One report of the tool."""

    kind: str  # misaligned, out_of_bounds, race, barrier, uninitialized or other
    message: str
    places: tuple[Place, ...] = ()  # the access; of a race every access that takes part
    address: int | None = None
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    space: str | None = None  # ``shared``, ``global`` or ``local``
    size_bytes: int | None = None
    hazards: int | None = None  # of a race: how many pairs of accesses were seen

    def __str__(self) -> str:
        where = ", ".join(
            f"{place.access + ' in ' if place.access else ''}{place.kernel}"
            + (f" at {Path(place.file).name}:{place.line}" if place.file else "")
            for place in self.places
        )
        parts = [self.message.rstrip(".:")]
        if where:
            parts.append(where)
        if self.address is not None:
            parts.append(f"address {self.address:#x}")
        if self.thread is not None:
            parts.append(f"thread {self.thread}, block {self.block}")
        return "; ".join(parts)


@dataclass(frozen=True)
class SanitizerReport:
    """What one tool said about one rung and workload."""

    tool: str
    verdict: ToolVerdict
    errors: tuple[SanitizerError, ...] = ()
    error_count: int = 0  # as the tool counted them, which stops printing after a while
    reason: str = ""  # why the tool did not run to its end; empty otherwise
    seconds: float = 0.0
    output: str = field(default="", repr=False)

    def record_verdict(
        self, workload: Problem, knobs: dict[str, int] | None = None
    ) -> SanitizerVerdict:
        """The form that a record keeps; ``knobs`` are those that differ from the record's own."""
        text = ""
        if self.verdict == "errors":
            shown = "\n".join(str(error) for error in self.errors[:MOST_ERRORS_KEPT])
            text = f"{self.error_count} errors\n{shown}".strip()
        elif self.verdict == "not run":
            text = self.reason
        of = workload.to_dict()
        return SanitizerVerdict(
            tool=self.tool, verdict=self.verdict, text=text, workload=of, knobs=knobs
        )


_PREFIX = re.compile(r"^=========\s?")
_ACCESS = re.compile(r"Invalid __(\w+)__ (read|write|atomic) of size (\d+)", re.I)
_UNINITIALIZED = re.compile(r"Uninitialized __(\w+)__ memory read of size (\d+)", re.I)
_RACE = re.compile(r"(?:Error|Warning): Race reported between (\w+) access at (.*)", re.I)
_RACE_AND = re.compile(r"^and (\w+) access at (.*)", re.I)
_BARRIER = re.compile(r"Barrier error detected", re.I)
_AT = re.compile(r"^at (.*)")
_BY = re.compile(r"by thread \(([\d, ]+)\) in block \(([\d, ]+)\)", re.I)
_ADDRESS = re.compile(r"(?:Address|Access (?:to|at)) (0x[0-9a-f]+) is (.*)", re.I)
_HAZARDS = re.compile(r"\[([\d,]+) hazards?\]")
_PLACE = re.compile(r"^(?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>.+):(?P<line>\d+))?\s*$", re.I)
_SUMMARY = re.compile(r"^(?:ERROR|\w+CHECK|LEAK) SUMMARY:\s*(.*)")
_COULD_NOT = re.compile(
    r"Internal Sanitizer Error.*|(?:Error: )?Device not supported.*"
    r"|Unable to launch the application.*"
    r"|(?:Error: )?Target application terminated before first instrumented API call.*"
    r"|(?:Error: )?No attachable process found.*",
    re.IGNORECASE,
)


def _triple(text: str) -> tuple[int, int, int]:
    x, y, z = ([int(part) for part in text.split(",")] + [0, 0])[:3]
    return x, y, z


def _read_place(text: str, access: str = "") -> Place:
    text = _HAZARDS.sub("", text).strip()
    match = _PLACE.match(text)
    if match is None:
        return Place(access.lower(), text, None, None)
    kernel = (match["kernel"] or "").strip()
    # A demangled name carries its parameter list; the entry is what stands before it.
    kernel = kernel.removeprefix("void ").split("(")[0].split("<")[0]
    line = int(match["line"]) if match["line"] else None
    return Place(access.lower(), kernel, match["file"], line)


def parse_sanitizer(text: str) -> tuple[list[SanitizerError], int | None]:
    """The reports in compute-sanitizer's output, and its own count (None: no summary line).

    Lines that do not begin with ``=========`` are the program's own and are skipped.
    """
    reader = _Reader()
    for raw in text.splitlines():
        if match := _PREFIX.match(raw):
            reader.read(raw[match.end() :].strip())
    reader.close()
    return reader.errors, reader.count


class _Reader:
    """Reads line by line: a first line opens a report, further lines add to it."""

    def __init__(self) -> None:
        self.errors: list[SanitizerError] = []
        self.count: int | None = None
        self.open: dict[str, Any] | None = None
        self.places: list[Place] = []
        self.access = ""
        self.in_backtrace = False

    def close(self) -> None:
        if self.open is not None:
            self.errors.append(SanitizerError(places=tuple(self.places), **self.open))
        self.open, self.places, self.access, self.in_backtrace = None, [], "", False

    def begin(self, kind: str, message: str, **more: Any) -> None:
        self.close()
        self.open = {"kind": kind, "message": message.removeprefix("Error: "), **more}

    def read(self, line: str) -> None:
        if not line:
            self.close()
        elif summary := _SUMMARY.match(line):
            self.close()
            counted = _read_summary(summary[1])
            self.count = self.count if counted is None else counted
        elif not self._opens(line) and self.open is not None:
            self._adds(line)

    def _opens(self, line: str) -> bool:
        if match := _ACCESS.search(line):
            self.begin("other", line, space=match[1].lower(), size_bytes=int(match[3]))
            self.access = match[2]
        elif match := _UNINITIALIZED.search(line):
            self.begin("uninitialized", line, space=match[1].lower(), size_bytes=int(match[2]))
            self.access = "read"
        elif match := _RACE.search(line):
            self.begin("race", "Race: two accesses with no barrier between them", space="shared")
            self.places.append(_read_place(match[2], match[1]))
            self._count_hazards(line)
        elif _BARRIER.search(line):
            self.begin("barrier", line)
        else:
            return False
        return True

    def _adds(self, line: str) -> None:
        assert self.open is not None
        if "backtrace" in line.lower():
            self.in_backtrace = True  # host frames follow, which say nothing about the kernel
        elif match := _RACE_AND.match(line):
            self.places.append(_read_place(match[2], match[1]))
        elif match := _BY.search(line):
            self.open |= {"thread": _triple(match[1]), "block": _triple(match[2])}
        elif match := _ADDRESS.search(line):
            misaligned = "misaligned" in match[2]
            self.open["address"] = int(match[1], 16)
            self.open["kind"] = "misaligned" if misaligned else "out_of_bounds"
            self.open["message"] += f": {match[2].rstrip('.')}"
        elif self.in_backtrace:
            return
        elif (match := _AT.match(line)) and not self.places:
            self.places.append(_read_place(match[1], self.access))
        self._count_hazards(line)

    def _count_hazards(self, line: str) -> None:
        if self.open is not None and (match := _HAZARDS.search(line)):
            so_far = self.open.get("hazards") or 0
            self.open["hazards"] = so_far + int(match[1].replace(",", ""))


def _read_summary(text: str) -> int | None:
    """``450 errors``, ``1 hazard displayed (1 error, 0 warnings)``; None for other remarks."""
    if "not printed" in text:
        return None
    if match := re.search(r"\((\d+) errors?, (\d+) warnings?\)", text):
        # A racecheck warning is a race of equal values or one it cannot decide: not clean.
        return int(match[1]) + int(match[2])
    if match := re.match(r"([\d,]+) error", text):
        return int(match[1].replace(",", ""))
    return None


def find_sanitizer() -> str:
    """Path of compute-sanitizer. Raises LabError: it is not installed."""
    chosen = os.environ.get("LABTOOLS_SANITIZER") or shutil.which("compute-sanitizer")
    path = chosen or find_tool("compute-sanitizer")
    if path is None or not os.access(path, os.X_OK):
        raise LabError(
            "compute-sanitizer was not found.",
            "it is part of the CUDA toolkit, which is neither on the PATH nor in /usr/local/cuda; "
            "set LABTOOLS_SANITIZER to its path if it is elsewhere",
            "the CPU runner finds out-of-bounds accesses, misalignment, barriers used wrongly and "
            "races without a GPU: labtools run RUNG --on cpu",
        )
    return str(path)


def sanitize_rung(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    tools: Sequence[str] = TOOLS,
    *,
    time_limit_s: float = 300.0,
    progress: Progress = silent,
) -> list[SanitizerReport]:
    """Run ``rung`` once on ``workload`` under each tool; needs a GPU and the CUDA toolkit.

    ``time_limit_s`` is for one tool. Racecheck slows a kernel down a hundredfold, so give it a
    small workload. A tool that cannot finish says ``not run`` and why; it never counts as clean.

    Raises LabError: an unknown tool, no compute-sanitizer, or a kernel that does not compile.
    """
    unknown = [tool for tool in tools if tool not in TOOLS]
    if unknown or not tools:
        what = f"There is no sanitizer tool {', '.join(map(repr, unknown)) or 'named'}."
        raise LabError(what, f"the tools are {', '.join(TOOLS)}", "name one or more of these")
    limits = limits_of(require_device())
    item = watched_item(rung, workload, knobs, limits)
    request = WatchRequest((item,), str(fill_cubin(limits.arch)), "sanitizer", time_limit_s)
    program = find_sanitizer()
    reports = []
    for number, tool in enumerate(tools):
        progress(f"{tool} over {rung.id}", number, len(tools))
        prefix = [program, "--tool", tool, "--target-processes", "all", "--print-limit", "100"]
        # Only what the kernel does counts; libraries probe the driver with calls that may fail.
        prefix += ["--report-api-errors", "no"] if tool == "memcheck" else []
        with share_this_gpu(f"{tool} over {rung.id}", progress):
            finished, results = run_watched(request, time_limit_s=time_limit_s, prefix=prefix)
        reports.append(_judge(tool, finished, results))
    return reports


def _judge(
    tool: str, finished: Finished[None], results: Sequence[WatchedResult]
) -> SanitizerReport:
    """Turn one tool's output into a verdict. Nothing is clean unless the tool said so itself."""
    child = finished.child
    problem = "; ".join(one.problem for one in results if one.problem)
    output = child.stdout + "\n" + child.stderr
    errors, count = parse_sanitizer(output)
    could_not = _COULD_NOT.search(output)
    reason = could_not[0].strip().rstrip(".") + "." if could_not else ""
    verdict: ToolVerdict
    if errors or count:
        verdict = "errors"
        reason = "" if count is not None else reason or f"{tool} {child.ending}."
    elif count is None or reason or problem or not finished.answered:
        verdict = "not run"
        reason = reason or problem or finished.failure
    else:
        verdict = "clean"
    counted = max(count or 0, len(errors))
    return SanitizerReport(tool, verdict, tuple(errors), counted, reason, child.seconds, output)
