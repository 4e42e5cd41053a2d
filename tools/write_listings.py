"""Write the machine code listings that travel with the project (``make regen``).

With them a machine without a compiler reads and forecasts the shipped kernels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from labtools.measure.campaign.plan import load_plan
from labtools.predict import DEFAULT_GPU, list_gpus, load_gpu
from labtools.problem import (
    DEFAULT_OPERATION,
    LabError,
    Limits,
    Problem,
    Rung,
    Workload,
    list_rungs,
    list_studies,
    operation_of,
    operations,
)
from labtools.record import Record, RecordStore, shipped_records_dir
from labtools.record.staleness import CodeNow, limits_of_record, read_pending
from labtools.toolchain import compile_rung, find_compiler
from labtools.toolchain.compiler import codes_path
from labtools.toolchain.listings import listings_dir, make_stored, stored_path, write_stored
from tools.install import ROOT

ARCHS = ("sm_90", "sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120")
USUAL_HEAD_DIM, OTHER_HEAD_DIM = 128, 64


def headline_with(head_dim: int) -> Workload:
    """A workload of that head dimension; nothing else of it reaches the compiler."""
    return Workload.parse(f"8,32,8,4096,{head_dim}")


def gpus_of(arch: str) -> list[Limits]:
    """The GPUs of an architecture that have a data sheet, that of the records first."""
    names = sorted(list_gpus(), key=lambda name: name != DEFAULT_GPU)
    return [gpu.limits for gpu in map(load_gpu, names) if gpu.arch == arch]


def workloads_of(rung: Rung) -> tuple[Problem, Problem]:
    """Two workloads that other machine code is compiled for: the usual one, and one beside it."""
    if rung.operation == DEFAULT_OPERATION:
        return headline_with(USUAL_HEAD_DIM), headline_with(OTHER_HEAD_DIM)
    usual = operation_of(rung.operation).headline
    return usual, usual.replace(dtype="bfloat16")


def planned(
    rung: Rung, limits: Limits, in_ladder: bool
) -> Iterator[tuple[Problem, dict[str, int]]]:
    """Workloads and knobs whose listings are stored for a rung and a GPU.

    For the GPU of the records: every combination of knobs of a rung of decode's ladder, and its
    defaults at the workloads of the start page's table, which the pages forecast; of a study
    kernel the defaults and every change of one knob; of a rung of another ladder the defaults,
    what was measured, and what is broken as its author wrote it; and the defaults at the other
    workload, of decode the other head dimension. For the others the defaults of the ladders at
    both, and of a kernel that has no record yet its own. Knobs that no block of that GPU can have
    are left out.
    """
    if not rung.runs_on(limits.arch):
        return
    defaults = rung.resolve_knobs()
    main, other = workloads_of(rung)
    wanted: list[tuple[Problem, dict[str, int]]] = []
    if limits.name != DEFAULT_GPU or rung.id in _pending():
        if in_ladder or limits.name == DEFAULT_GPU:
            wanted += [(main, defaults), (other, defaults)]
    elif in_ladder and rung.operation == DEFAULT_OPERATION:
        wanted += [(main, knobs) for knobs in rung.knob_combinations()]
        wanted += [(Workload.parse(text), defaults) for text in load_plan("bench").lists["table"]]
        wanted.append((other, defaults))
    elif in_ladder:
        wanted += [(main, defaults), (other, defaults), (main, defaults | rung.as_written())]
        wanted += _measured().get(rung.id, [])
    else:
        wanted.append((main, defaults))
        for knob in rung.knobs:
            changed = [value for value in knob.choices if value != knob.default]
            wanted += [(main, {**defaults, knob.name: value}) for value in changed]
    for workload, knobs in wanted:
        if _can_launch(rung, workload, limits, knobs):
            yield workload, knobs


def _can_launch(rung: Rung, workload: Problem, limits: Limits, knobs: dict[str, int]) -> bool:
    """Whether a rung can run a workload on a GPU with these knobs."""
    try:
        rung.launches(workload, limits, knobs)
    except LabError:
        return False
    return True


@cache
def _measured() -> dict[str, list[tuple[Problem, dict[str, int]]]]:
    """What the shipped records of the data sheet's own GPU ran, by rung."""
    found: dict[str, list[tuple[Problem, dict[str, int]]]] = {}
    for record in RecordStore([shipped_records_dir()]).load():
        shipped = record.kind == "rung" and record.rung_path is None
        if shipped and record.provenance.gpu_slug == DEFAULT_GPU:
            found.setdefault(record.name, []).append((record.problem, dict(record.knobs)))
    return found


@cache
def _pending() -> frozenset[str]:
    """Ids of the rungs that nobody has measured yet; their knobs may still change."""
    return frozenset(read_pending())


def kernels() -> Iterator[tuple[Rung, bool]]:
    """Every kernel that has listings, and whether it is a rung of a ladder."""
    for name in operations():
        for rung in list_rungs(name):
            yield rung, True
        for rung in list_studies(name):
            yield rung, False


def locked_nvrtc(root: Path = ROOT) -> str:
    """The NVRTC that the lock file pins, for example ``13.0``."""
    lock = (root / "requirements.lock").read_text("utf-8")
    found = re.search(r"^nvidia-cuda-nvrtc==(\d+\.\d+)", lock, re.MULTILINE)
    if found is None:
        raise LabError(
            "requirements.lock pins no NVRTC.",
            "listings are written with the compiler that everybody has",
            "run make lock",
        )
    return found[1]


def write_all() -> None:
    """Write every planned listing with the pinned compiler; remove those no longer planned."""
    locked, here = locked_nvrtc(), find_compiler()
    if here.version != locked:
        raise LabError(
            "The listings are not written.",
            f"requirements.lock pins NVRTC {locked}, and here is {here}",
            "run make regen, which installs what is pinned",
        )
    kept = set()
    for rung, in_ladder in kernels():
        for arch in ARCHS:
            if plan := plan_of_arch(rung, arch, in_ladder):
                path = stored_path(rung.id, arch)
                kept.add(path)
                write_stored(path, arch, [make_stored(rung, *compiled) for compiled in plan])
    for path in set(listings_dir().glob("*/*.json.gz")) - kept:
        path.unlink()
    write_codes()


def needed_codes() -> dict[str, dict[str, tuple[Rung, Record]]]:
    """The codes that no shipped record's source hash names, by compiler and source hash.

    They belong to records whose source changed since; the machine code must say whether they are
    fresh.
    """
    needed: dict[str, dict[str, tuple[Rung, Record]]] = {}
    now = CodeNow()
    for record in RecordStore([shipped_records_dir()]).load():
        if record.kind != "rung" or record.rung_path is not None:
            continue
        try:
            rung = now.rung(record.name)
            defines = rung.defines(record.problem, limits_of_record(record), record.knobs)
            source_hash = now.text_hash(rung, defines)
        except LabError:
            continue  # of a kernel, or with knobs, that are no more
        if source_hash != record.hashes.source_hash:
            compiler = f"{record.provenance.arch}, NVRTC {record.hashes.nvrtc_version}"
            needed.setdefault(compiler, {})[source_hash] = (rung, record)
    return needed


def write_codes() -> None:
    """Write what machine code the sources of such records give; this compiler's codes only."""
    here = find_compiler().version
    written: dict[str, dict[str, dict[str, str]]] = {}
    for compiler, codes in sorted(needed_codes().items()):
        if not compiler.endswith(f"NVRTC {here}"):
            continue
        found = written.setdefault(compiler, {})
        for source_hash, (rung, record) in sorted(codes.items()):
            arch = record.provenance.arch
            limits = limits_of_record(record)
            entries = compile_rung(rung, record.problem, limits, record.knobs, arch).entries
            found[source_hash] = {name: entries[name].code_hash for name in sorted(entries)}
    codes_path().write_text(json.dumps(written, indent=1) + "\n", "utf-8")


def plan_of_arch(
    rung: Rung, arch: str, in_ladder: bool
) -> list[tuple[Problem, Limits, dict[str, int]]]:
    """What is compiled for an architecture; GPUs that want the same code share it."""
    found: dict[tuple[tuple[str, str], ...], tuple[Problem, Limits, dict[str, int]]] = {}
    for limits in gpus_of(arch):
        for workload, knobs in planned(rung, limits, in_ladder):
            defines = rung.defines(workload, limits, knobs)
            found.setdefault(tuple(sorted(defines.items())), (workload, limits, knobs))
    return list(found.values())
