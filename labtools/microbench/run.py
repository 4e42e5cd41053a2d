"""Run the microbenchmarks on this GPU, and keep what they measured."""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labtools.measure.gpu.job import require_device
from labtools.measure.gpu.provenance import make_provenance
from labtools.measure.worker import Finished, run_call
from labtools.predict.measured import RECORD_NAME, SCHEMA, table_from_record
from labtools.problem import LabError
from labtools.record import Clocks
from labtools.record.whole import write_whole
from labtools.toolchain import Cubin, DisassemblerMissing
from labtools.toolchain.progress import Progress, silent

from .child import BenchmarkAnswer, BenchmarkJob, MicrobenchDone, MicrobenchRequest, run_jobs
from .code import Benchmark, check_machine_code, compile_benchmark
from .plan import find_benchmarks

CHILD_LIMIT_S = 900.0
MOST_CHILDREN = 8
"""A benchmark that ends its child costs a new one; after so many something else is wrong."""


@dataclass(frozen=True)
class MicrobenchReport:
    """What a run of the microbenchmarks left behind."""

    record_path: Path  # the raw samples
    # the table of latencies made from them; None when too much failed for one
    table_path: Path | None
    record: dict[str, Any] = field(repr=False)  # what ``record_path`` holds
    failures: dict[str, str]  # name to reason, for each benchmark without samples
    notes: tuple[str, ...]  # what to know about the run
    seconds: float  # wall time of the whole run

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the benchmarks that have samples."""
        found = self.record["benchmarks"]
        return tuple(name for name, benchmark in found.items() if "samples" in benchmark)


def run_microbench(
    out_dir: Path | str, only: Sequence[str] | None = None, progress: Progress = silent
) -> MicrobenchReport:
    """Measure this GPU with the microbenchmarks.

    Args:
        out_dir: gets ``microbench.json.gz``, which forecasts read once it stands in
            ``kernels/records/<gpu>/``, and ``latencies/<gpu>.json``, the table that they make of
            it, to look at.
        only: names of microbenchmarks or of their groups; None takes all.
    """
    started = time.monotonic()
    device = require_device()
    notes: list[str] = []
    answers: dict[str, dict[str, Any]] = {}
    benchmarks, (chase,) = find_benchmarks(only), find_benchmarks(["chase.l1"])
    with tempfile.TemporaryDirectory(
        prefix="labtools-microbench-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        jobs, version = _prepare(benchmarks, device.arch, folder, answers, notes, progress)
        touch = _store(folder, "touch", compile_benchmark(chase, device.arch, {}))
        machine = _run_children(jobs, touch, answers, progress)
    clocks = [Clocks(**one["clocks"]) for one in answers.values() if one.get("clocks")]
    provenance = make_provenance(device, machine.environment, clocks, defines={}, nvrtc=version)
    record = {
        "schema": SCHEMA,
        "kind": "microbench",
        "provenance": provenance.model_dump(mode="json"),
        "device": machine.device,
        "benchmarks": answers,
    }
    record_path, table_path = _write(Path(out_dir), record, notes)
    failures = {name: str(one["problem"]) for name, one in answers.items() if "samples" not in one}
    seconds = time.monotonic() - started
    return MicrobenchReport(record_path, table_path, record, failures, tuple(notes), seconds)


def _prepare(
    benchmarks: Sequence[Benchmark],
    arch: str,
    folder: Path,
    answers: dict[str, dict[str, Any]],
    notes: list[str],
    progress: Progress,
) -> tuple[list[BenchmarkJob], str | None]:
    """Compile and check; what does not pass is not run."""
    jobs: list[BenchmarkJob] = []
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
        except DisassemblerMissing:
            unchecked = True
        except LabError as error:
            problems = [str(error)]
        if problems:
            why = "the machine code is not what it should be: " + "; ".join(problems)
            answers[benchmark.name] = {"problem": why}
            continue
        jobs.append(BenchmarkJob(benchmark.name, paths, registers, dict(benchmark.settings)))
    if unchecked:
        notes.append("no nvdisasm here: the machine code was not checked before measuring")
    return jobs, version


def _store(folder: Path, name: str, cubin: Cubin) -> str:
    path = folder / f"{name.replace('=', '-').replace(',', '-')}.cubin"
    path.write_bytes(cubin.image)
    return str(path)


def _run_children(
    jobs: Sequence[BenchmarkJob], touch: str, answers: dict[str, dict[str, Any]], progress: Progress
) -> MicrobenchDone:
    """Run the jobs in a child; one that ends early loses one job, and another child goes on."""
    machine = MicrobenchDone()

    def keep(answer: BenchmarkAnswer) -> None:
        answers[answer.name] = answer.to_record()

    for _ in range(MOST_CHILDREN):
        left = [job for job in jobs if not answers[job.name]]
        if not left:
            return machine
        asked, limit = MicrobenchRequest(tuple(left), touch), CHILD_LIMIT_S
        finished = run_call(run_jobs, asked, time_limit_s=limit, on_item=keep, progress=progress)
        left = [job for job in left if not answers[job.name]]
        if finished.reply is not None:
            machine = finished.reply
        elif finished.refused is not None:
            _give_up(left, answers, str(finished.refused))
        elif left:
            culprit, why = _blame(finished)
            answers[culprit or left[0].name] = {"problem": why}
    left = [job for job in jobs if not answers[job.name]]
    _give_up(left, answers, f"{MOST_CHILDREN} measuring processes ended early before it")
    return machine


def _blame(finished: Finished[MicrobenchDone]) -> tuple[str, str]:
    """Which benchmark ended the child, where that is known, and how."""
    died = finished.died
    step = died.step if died is not None else None
    if died is not None and died.hung and step is not None:
        return step.label, f"it did not end within {step.limit_s:g} s"
    return step.label if step else "", f"the measuring {finished.failure}"


def _give_up(left: Sequence[BenchmarkJob], answers: dict[str, dict[str, Any]], why: str) -> None:
    for job in left:
        answers[job.name] = {"problem": why}


def _write(out_dir: Path, record: dict[str, Any], notes: list[str]) -> tuple[Path, Path | None]:
    record_path = out_dir / RECORD_NAME
    out_dir.mkdir(parents=True, exist_ok=True)
    write_record(record_path, record)
    try:
        table = table_from_record(record)
    except LabError as error:
        notes.append(f"no table of latencies: {error}")
        return record_path, None
    table_path = out_dir / "latencies" / f"{record['provenance']['gpu_slug']}.json"
    table_path.parent.mkdir(exist_ok=True)
    write_whole(table_path, (json.dumps(table, indent=1) + "\n").encode())
    return record_path, table_path


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record of microbenchmarks, the same bytes for the same record."""
    text = json.dumps(record, separators=(",", ":"))
    write_whole(path, gzip.compress(text.encode(), mtime=0), durable=True)
