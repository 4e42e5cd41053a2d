"""What the CPU runner and compute-sanitizer say of a kernel, and rows of another length."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from labtools.measure.cpu import CpuFault, CpuRun, run_on_cpu
from labtools.predict import DEFAULT_GPU, load_gpu
from labtools.problem import LabError, Launch, Limits, Problem, Rung
from labtools.problem.rung import say_knobs
from labtools.record import SanitizerVerdict, describe_record, sanitizer_verdicts
from labtools.record.whole import write_whole
from labtools.toolchain.cache import in_folder

from ...live import can_run_live
from ...records import GpuRecords
from ...tables import Cell, Shown, Word, make_note, make_table, recorded

Ending = Literal["faults", "wrong", "right"]

HEADER = "scalar_tile.cuh"
STRIDE_LINE = "constexpr int STRIDE = HEAD_DIM + (PAD ? 8 : 1);"
"""The line of the header that says how long a row is, in halves."""
HALFS_BY_PAD = {0: 1, 1: 8}
"""Halves behind a row, by the value of the knob ``pad``."""
SIDE_BY_SIDE = 2
"""Runs on the CPU at a time."""


@dataclass(frozen=True)
class CpuTry:
    """A kernel to run on the CPU."""

    rung: Rung  # p00 or p01
    knobs: Mapping[str, int] = field(default_factory=dict)  # those that differ from the defaults
    stride: int | None = None  # halves from one row to the next; None leaves the header as it is


def with_stride(rung: Rung, stride: int) -> Rung:
    """The rung, whose source includes `HEADER`, with another length of row in that header."""
    header = rung.source.parent / HEADER
    text = header.read_text() if header.is_file() else ""
    if STRIDE_LINE not in text or HEADER not in rung.source_text:
        what = f"The rows of {rung.id} cannot be given another length."
        why = f"it includes no {HEADER} with the line {STRIDE_LINE}"
        raise LabError(what, why, "p00 and p01 do")
    new = f'constexpr int STRIDE = {stride};\nstatic_assert(STRIDE >= HEAD_DIM, "a row fits");'

    def launch(problem: Problem, limits: Limits, knobs: Mapping[str, int]) -> list[Launch]:
        (one,), (other,) = (
            rung.launch(problem, limits, {**knobs, "pad": pad}) for pad in HALFS_BY_PAD
        )
        # Two lengths of row tell how many rows there are.
        row_bytes = (other.smem_bytes - one.smem_bytes) // (HALFS_BY_PAD[1] - HALFS_BY_PAD[0])
        more = stride - int(problem.numbers()["head_dim"]) - HALFS_BY_PAD[0]
        return [dataclasses.replace(one, smem_bytes=one.smem_bytes + row_bytes * more)]

    texts = {rung.source.name: rung.source_text, HEADER: text.replace(STRIDE_LINE, new)}
    digest = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()[:16]

    def write(folder: Path) -> Path:
        (folder / f"stride-{digest}").mkdir(exist_ok=True)
        for name, content in texts.items():
            write_whole(folder / f"stride-{digest}" / name, content.encode())
        return folder / f"stride-{digest}" / rung.source.name

    source = in_folder("cpu", write, "the kernel with another stride")
    return dataclasses.replace(rung, source=source, launch=launch)


def _changed(tried: CpuTry) -> Rung:
    """The rung of a try, with its stride."""
    return tried.rung if tried.stride is None else with_stride(tried.rung, tried.stride)


def run_tries(tries: Sequence[CpuTry], problem: Problem) -> list[CpuRun]:
    """Run each on the CPU, some side by side, its warps in step."""

    def run(tried: CpuTry) -> CpuRun:
        return run_on_cpu(_changed(tried), problem, tried.knobs, orders=(0,), workers=1)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as together:
        return list(together.map(run, tries))


def ending_of(run: CpuRun) -> Ending:
    """``faults``, ``wrong`` or ``right``, the worst first."""
    if run.faults:
        return "faults"
    return "right" if run.ok else "wrong"


def say_run(run: CpuRun) -> dict[str, Any]:
    """What a run on the CPU says: ``outcome``, ``message``, and of a fault ``file``, ``line``,
    ``code`` (the text of that line), ``block`` and ``thread``; these are None without one.
    """
    if not run.faults:
        said: dict[str, Any] = dict.fromkeys(("file", "line", "code", "block", "thread"))
        return {**said, "outcome": ending_of(run), "message": str(run.comparison)}
    first = run.faults[0]
    return {
        "outcome": "faults",
        "message": first.message,
        "file": Path(first.file).name if first.file else None,
        "line": first.line,
        "code": first.source_line.strip(),
        "block": first.block and list(first.block),
        "thread": first.thread and list(first.thread),
    }


def first_addresses(faults: Sequence[CpuFault]) -> str:
    """``0x82, 0x104, 0x186`` of the first fault's copies; an empty string where it has none."""
    return ", ".join(f"0x{one:02x}" for fault in faults[:1] for one in fault.offsets)


def show_tries(tries: Mapping[str, CpuTry], problem: Problem) -> Shown:
    """A row a try: what its launch asks for, what it does on the CPU, and where."""
    rows: list[list[Cell]] = []
    runs = run_tries(list(tries.values()), problem)
    for (name, tried), run in zip(tries.items(), runs, strict=True):
        said = say_run(run)
        launch = _changed(tried).launches(problem, load_gpu(DEFAULT_GPU).limits, tried.knobs)[-1]
        where = f"{said['file']}:{said['line']}" if said["file"] else ""
        what = first_addresses(run.faults) or said["message"]
        asks = f"{launch.num_threads:,}", f"{launch.smem_bytes:,}"
        rows.append([name, *asks, said["outcome"], where, what, Word("computed")])
    asked = ("threads", "bytes of shared memory")
    found = ("the kernel", "at", "first addresses, or the answer")
    columns = ("what was tried", *asked, *found, "")
    return make_table(columns, rows, f"The CPU runner on {problem}, its warps in step")


def recorded_verdicts(
    records: GpuRecords, rung: Rung, knobs: Mapping[str, int]
) -> tuple[list[SanitizerVerdict], Word | None]:
    """What compute-sanitizer said on a GPU, and where; nothing where it was not recorded."""
    found, record = sanitizer_verdicts(records.every, rung, knobs)
    return found, recorded(record) if record is not None else None


def show_sanitizer(
    records: GpuRecords,
    rung: Rung,
    knobs: Mapping[str, int],
    problem: Problem,
    tools: Sequence[str] = ("memcheck",),
) -> Shown:
    """compute-sanitizer's report: made now where a GPU and the tool are here, else as recorded."""
    verdicts: list[SanitizerVerdict] = []
    word: Word | None = None
    note = ""
    if can_run_live():
        from labtools.measure.profiler.sanitize import sanitize_rung

        try:
            reports = sanitize_rung(rung, problem, knobs, tools)
            verdicts = [one.record_verdict(problem, dict(knobs) or None) for one in reports]
            word = Word("live")
        except LabError as error:
            note = str(error)
    if word is None:
        verdicts, word = recorded_verdicts(records, rung, knobs)
    if word is None:
        return make_note(f"There is no report of {rung.id} with {say_knobs(knobs)}. {note}".strip())
    rows: list[list[Cell]] = []
    for one in verdicts:
        first = "; then ".join(one.text.splitlines()[:2])
        rows.append([one.tool, one.verdict, first if one.verdict == "errors" else one.text, word])
    name = f"{rung.id}, {say_knobs(knobs) or 'repaired'}"
    shown = make_table(("tool", "verdict", "what it says", "where from"), rows, name)
    return shown + make_note(note) if note else shown


def describe_verdict(records: GpuRecords, rung: Rung, knobs: Mapping[str, int]) -> dict[str, Any]:
    """The recorded report of memcheck for a picture; ``verdict`` is empty where there is none."""
    verdicts, word = recorded_verdicts(records, rung, knobs)
    found = next((one for one in verdicts if one.tool == "memcheck"), None)
    if found is None or word is None:
        return {"verdict": "", "lines": [], "where": ""}
    where = "; ".join(dict.fromkeys(describe_record(one) for one in word.records))
    return {"verdict": found.verdict, "lines": found.text.splitlines()[:2], "where": where}
