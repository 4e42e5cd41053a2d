"""What the goldens ask of labtools. Where a name of labtools moves, this file follows it.

Every function takes plain values or a record as it is held, and gives plain JSON values.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from tools.install import ROOT

from .values import Json

RECORD_FILES = ROOT / "kernels" / "records"


def usual_workload() -> tuple[tuple[str, ...], dict[str, Any]]:
    """The fields of a decode workload: those of its shape, and the others as is usual."""
    from labtools.problem import Workload

    others = [one for one in fields(Workload) if one.name not in Workload.shape_fields]
    return Workload.shape_fields, {one.name: one.default for one in others}


def workload_file(shape: Sequence[int], lengths: Sequence[int], **more: Any) -> str:
    """The long form of a decode workload, as a file holds it."""
    from labtools.problem import Workload

    make: Any = Workload
    return json.dumps(make(*shape, tuple(lengths), **more).to_dict())


@dataclass(frozen=True)
class Held:
    """One shipped record."""

    file: str  # under ``kernels/records``
    # the line of the file. Keys of goldens come from it, since it does not change when the classes
    # that read it do.
    raw: dict[str, Any]
    record: Any  # what labtools makes of the line


@lru_cache(maxsize=1)
def held_records() -> tuple[Held, ...]:
    """Every shipped record of decode, in the order of the files and their lines."""
    from labtools.record import read_records

    found = []
    for path in sorted(RECORD_FILES.glob("*/*.jsonl.gz")):
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        raws = [json.loads(line) for line in lines if line.strip()]
        records, problems = read_records(path)
        if problems:
            raise problems[0]
        name = path.relative_to(RECORD_FILES).as_posix()
        pairs = zip(raws, records, strict=True)
        found += [Held(name, *pair) for pair in pairs if "operation" not in pair[0]["workload"]]
    return tuple(found)


def run_command(arguments: Sequence[str]) -> tuple[int, str]:
    """Exit status and stdout of ``labtools`` with these arguments, run in this process."""
    from labtools.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return int(status), out.getvalue()


def forecast_answer(held: Held) -> Json:
    """The forecast of a record's rung, knobs and workload on the record's GPU."""
    from labtools.predict import forecast, load_gpu
    from labtools.problem import load_rung

    record = held.record
    gpu = load_gpu(record.provenance.gpu_slug)
    made = forecast(load_rung(record.name), record.problem, gpu, record.knobs)
    return {
        "time_us": made.time_us,
        "band_us": made.band_us and list(made.band_us),
        "bound": made.bound,
        "bound_reason": made.bound_reason,
        "terms_us": dict(made.terms_us),
        "gb_per_s": made.gb_per_s,
        "in_flight_bytes": made.in_flight_bytes,
        "note": made.note,
        "floor_us": made.floor.time_us,
        "stack": [[one.name, one.cycles] for one in made.stack[:4]],
        "launches": [
            {
                "entry": one.entry,
                "time_us": one.time_us,
                "blocks": one.blocks,
                "threads": one.threads,
                "resident_blocks": one.resident_blocks,
                "trips": [list(loop) for loop in one.trips],
                "dram_bytes": one.dram_bytes,
                "l2_bytes": one.l2_bytes,
                "issue_share": one.issue_share,
                "load_latency_cycles": one.load_latency_cycles,
                "true_chain_cycles": one.true_chain_cycles,
                "main_loop": list(one.main_loop) if one.main_loop else None,
            }
            for one in made.launches
        ],
    }


_hashes: dict[str, Json] = {}


def hashes_of(held: Held) -> Json:
    """The hashes of a record's code as it stands now, compiled for the record's architecture."""
    from labtools.problem import kernels_dir, load_rung
    from labtools.record import hash_python_file
    from labtools.record.staleness import limits_of_record
    from labtools.toolchain.compiler import kernel_hashes, launched_entries

    record = held.record
    if record.kind == "baseline":
        return {"source": hash_python_file(kernels_dir() / "baselines" / f"{record.name}.py")}
    if record.kind == "ceiling":
        rung = load_rung(kernels_dir() / "microbench" / f"{record.name}.py")
    else:
        rung = load_rung(record.name)
    arch = record.provenance.arch
    limits = limits_of_record(record)
    defines = rung.defines(record.problem, limits, record.knobs)
    entries = launched_entries(rung, record.problem, limits, record.knobs)
    key = json.dumps([rung.id, arch, sorted(defines.items()), entries])
    if key not in _hashes:
        made = kernel_hashes(rung, record.problem, limits, record.knobs, arch)
        _hashes[key] = {"source": made.source_hash, "sass": made.sass_hash}
    return _hashes[key]


def freshness_of(held: Held) -> Json:
    """Whether labtools says that a record still belongs to the code, and why."""
    from labtools.record import freshness

    answer = freshness(held.record)
    return {"fresh": answer.fresh, "reason": answer.reason}


def times_of(held: Held) -> Json:
    """A record's median and quartiles, computed from its samples; what it says and was foretold."""
    from labtools.record import summary

    found = summary(held.record)
    sealed = held.record.forecast
    return {
        "median_us": found.median_us,
        "iqr_us": list(found.iqr_us),
        "range_us": list(found.range_us),
        "samples": found.samples,
        "said_us": held.record.median_us,
        "gb_per_s": held.record.gb_per_s,
        "sealed": sealed.model_dump(mode="json") if sealed else None,
    }


def nvrtc_version() -> str | None:
    """The compiler here, or None."""
    from labtools.toolchain import CompilerMissing, find_compiler, find_tool

    try:
        return str(find_compiler().version) if find_tool("nvdisasm") else None
    except CompilerMissing:
        return None


def goldens_nvrtc() -> str:
    """The compiler that the goldens belong to: the one that the lock file pins."""
    from tools.write_listings import locked_nvrtc as locked

    return locked()


def has_gpu() -> bool:
    """Whether a GPU answers here."""
    from labtools.toolchain import cuda_status

    return cuda_status().device is not None


def has_host_compiler() -> bool:
    """Whether kernels can run on the CPU here."""
    from labtools.toolchain import cuda_status

    return bool(cuda_status()["c++"].ok)


def has_own_records() -> bool:
    """Whether this checkout holds records of its own, which the command line lists too."""
    from labtools.record import own_records_dir

    return any(own_records_dir().rglob("*.jsonl*"))
