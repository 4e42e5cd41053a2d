"""Run the microbenchmarks on this GPU, and keep what they measured."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labtools.problem import LabError
from labtools.toolchain import Cubin

from .child import child_lab_error, run_python_child
from .live_job import require_device
from .live_provenance import make_provenance
from .live_watch import TIMEOUT_MARK, read_stage
from .microbench_code import (
    Benchmark,
    check_machine_code,
    compile_benchmark,
    missing_disassembler,
)
from .microbench_plan import find_benchmarks
from .microbench_table import SCHEMA, table_from_record

RECORD_NAME = "microbench.json.gz"
CHILD_MODULE = "labtools.measure.microbench_child"
CHILD_LIMIT_S = 900.0
MOST_CHILDREN = 8
"""A benchmark that ends its child costs a new one; after so many something else is wrong."""


@dataclass(frozen=True)
class MicrobenchReport:
    """What a run of the microbenchmarks left behind.

    Attributes:
        record_path: the raw samples.
        table_path: the table of latencies made from them; None when too much failed for one.
        record: what ``record_path`` holds.
        failures: name to reason, for each benchmark without samples.
        notes: what to know about the run.
        seconds: wall time of the whole run.
    """

    record_path: Path
    table_path: Path | None
    record: dict[str, Any] = field(repr=False)
    failures: dict[str, str]
    notes: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Without the samples, which are in the file."""
        return {
            "record": str(self.record_path),
            "table": str(self.table_path) if self.table_path else None,
            "measured": [
                name for name, one in self.record["benchmarks"].items() if "samples" in one
            ],
            "failures": self.failures,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 1),
        }


def run_microbench(
    out_dir: Path | str,
    only: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> MicrobenchReport:
    """Measure this GPU with the microbenchmarks.

    Args:
        out_dir: gets ``microbench.json.gz`` and ``latencies/<gpu>.toml``.
        only: names of microbenchmarks or of their groups; None takes all.
        progress: gets a sentence at each step.

    Raises:
        LabError: there is no GPU or no compiler, or a name means no microbenchmark.
    """
    started = time.monotonic()
    device = require_device()
    notes: list[str] = []
    answers: dict[str, dict[str, Any]] = {}
    environment: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="labtools-microbench-"))
    try:
        jobs, version = _prepare(
            find_benchmarks(only), device.arch, folder, answers, notes, progress
        )
        touch = _store(folder, "touch", _compile_touch(device.arch))
        _run_children(jobs, touch, folder, answers, environment, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    clocks = [one["clocks"] for one in answers.values() if one.get("clocks")]
    provenance = make_provenance(
        device, environment.get("versions", {}), clocks, defines={}, nvrtc=version
    )
    record = {
        "schema": SCHEMA,
        "kind": "microbench",
        "provenance": provenance.model_dump(mode="json"),
        "device": environment.get("device", {}),
        "benchmarks": answers,
    }
    record_path, table_path = _write(Path(out_dir), record, notes)
    failures = {name: str(one["problem"]) for name, one in answers.items() if "samples" not in one}
    seconds = time.monotonic() - started
    return MicrobenchReport(record_path, table_path, record, failures, tuple(notes), seconds)


def _compile_touch(arch: str) -> Cubin:
    (chase,) = find_benchmarks(["chase.l1"])
    return compile_benchmark(chase, arch, {})


def _prepare(
    benchmarks: Sequence[Benchmark],
    arch: str,
    folder: Path,
    answers: dict[str, dict[str, Any]],
    notes: list[str],
    progress: Callable[[str], None],
) -> tuple[list[dict[str, Any]], str | None]:
    """Compile and check; what does not pass is not run."""
    jobs: list[dict[str, Any]] = []
    version = None
    unchecked = False
    stored: dict[tuple[str, str], str] = {}
    for benchmark in benchmarks:
        answers[benchmark.name] = {}
        if not benchmark.runs_on(arch):
            answers[benchmark.name] = {"problem": f"{arch} has no such instruction"}
            continue
        progress(f"compiling {benchmark.name}")
        paths: dict[str, str] = {}
        cubins: dict[int, Cubin] = {}
        registers: dict[str, int] = {}
        problems: list[str] = []
        try:
            for number, defines in enumerate(benchmark.defines):
                given = dict(defines)
                text = ",".join(f"{key}={value}" for key, value in given.items())
                cubin = cubins[number] = compile_benchmark(benchmark, arch, given)
                version = cubin.nvrtc_version
                key = (benchmark.source, text)
                if key not in stored:
                    stored[key] = _store(folder, f"{benchmark.source}-{text}", cubin)
                paths[text] = stored[key]
                for entry, resources in cubin.entries.items():
                    registers[entry] = resources.registers or 0
            problems = check_machine_code(benchmark, arch, cubins)
        except LabError as error:
            if missing_disassembler(error):
                unchecked = True
            else:
                problems = [str(error)]
        if problems:
            answers[benchmark.name] = {
                "problem": "the machine code is not what it should be: " + "; ".join(problems)
            }
            continue
        jobs.append(
            {
                "name": benchmark.name,
                "cubins": paths,
                "registers": registers,
                "settings": dict(benchmark.settings),
            }
        )
    if unchecked:
        notes.append("no nvdisasm here: the machine code was not checked before measuring")
    return jobs, version


def _store(folder: Path, name: str, cubin: Cubin) -> str:
    path = folder / f"{name.replace('=', '-').replace(',', '-')}.cubin"
    path.write_bytes(cubin.image)
    return str(path)


def _run_children(
    jobs: list[dict[str, Any]],
    touch: str,
    folder: Path,
    answers: dict[str, dict[str, Any]],
    environment: dict[str, Any],
    progress: Callable[[str], None],
) -> None:
    """Run the jobs in a child; one that ends early loses one job, and another child goes on."""

    def tell(event: dict[str, Any]) -> None:
        progress(event.get("wait") or f"measuring {event.get('benchmark')}")

    left = list(jobs)
    for number in range(MOST_CHILDREN):
        if not left:
            return
        partial, stage = folder / f"partial-{number}.jsonl", folder / f"stage-{number}.json"
        request = {
            "jobs": left,
            "touch": touch,
            "partial_path": str(partial),
            "stage_path": str(stage),
        }
        child, result = run_python_child(
            CHILD_MODULE, request, time_limit_s=CHILD_LIMIT_S, on_progress=tell
        )
        for answer in _read_partial(partial):
            answers[answer.pop("name")] = answer
        names = {name for name, one in answers.items() if one}
        left = [job for job in left if job["name"] not in names]
        if isinstance(result, dict) and "environment" in result:
            environment["versions"] = result["environment"]
            environment["device"] = result["device"]
            continue
        if (error := child_lab_error(result)) is not None:
            _give_up(left, answers, str(error))
            return
        if left:
            lines = [line for line in child.stderr.splitlines() if line.strip()]
            lines = [line for line in lines if not line.startswith("labtools-progress ")]
            said = f"; it said: {lines[-1].strip()[:300]}" if lines else ""
            why = f"the measuring process {child.ending}{said}"
            if TIMEOUT_MARK in child.stderr:
                why = f"it did not end within {read_stage(stage).get('limit_s')} s"
            culprit = read_stage(stage).get("label") or left[0]["name"]
            answers[culprit] = {"problem": why}
            left = [job for job in left if job["name"] != culprit]
    _give_up(left, answers, f"{MOST_CHILDREN} measuring processes ended early before it")


def _give_up(left: list[dict[str, Any]], answers: dict[str, dict[str, Any]], why: str) -> None:
    for job in left:
        answers[job["name"]] = {"problem": why}


def _read_partial(path: Path) -> list[dict[str, Any]]:
    found = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line cut off by the end of the process
                found.append(json.loads(line))
    return found


def _write(out_dir: Path, record: dict[str, Any], notes: list[str]) -> tuple[Path, Path | None]:
    record_path = out_dir / RECORD_NAME
    out_dir.mkdir(parents=True, exist_ok=True)
    write_record(record_path, record)
    try:
        text = table_from_record(record)
    except LabError as error:
        notes.append(f"no table of latencies: {error}")
        return record_path, None
    table_path = out_dir / "latencies" / f"{record['provenance']['gpu_slug']}.toml"
    table_path.parent.mkdir(exist_ok=True)
    table_path.write_text(text, encoding="utf-8")
    return record_path, table_path


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record of microbenchmarks, the same bytes for the same record."""
    text = json.dumps(record, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_record(path: Path | str) -> dict[str, Any]:
    """Read a record of microbenchmarks.

    Raises:
        LabError: it is none.
    """
    try:
        record = json.loads(gzip.decompress(Path(path).read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise LabError(
            f"{Path(path).name} could not be read as a record of microbenchmarks.",
            str(error),
            "labtools microbench writes one",
        ) from error
    if not isinstance(record, dict) or record.get("kind") != "microbench":
        raise LabError(
            f"{Path(path).name} is no record of microbenchmarks.",
            "it does not say so",
            "labtools microbench writes one",
        )
    return record
