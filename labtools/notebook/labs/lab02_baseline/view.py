"""The baseline bench: what moves inside a timed call, and what was measured for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labtools.predict import Gpu, floors
from labtools.problem import LabError, Problem

from ...bench import Bench, View, dropdown, slider
from ...tables import check_word, say_time


@dataclass(frozen=True)
class Movement:
    """One movement of bytes inside a timed call."""

    label: str  # what moves
    moved_bytes: int  # how much


@dataclass(frozen=True)
class Measured:
    """A time somebody measured or published for a timed call."""

    time_us: float  # microseconds
    source: str  # ``live``, ``recorded`` or ``claimed``
    what: str  # where and when


@dataclass(frozen=True)
class TimedCall:
    """One timed call that the bench offers."""

    title: str  # name in the list
    steps: Callable[[Problem], Sequence[Movement]]  # what moves inside, in order, for a workload
    # what is known for a GPU and a workload, perhaps nothing
    measured: Callable[[Gpu, Problem], Sequence[Measured]]
    note: str = ""  # one sentence about it, or empty


def timeline_tables(
    candidates: Sequence[TimedCall], gpus: Sequence[Gpu], workloads: Sequence[Problem]
) -> dict[str, Any]:
    """Every case of the bench: steps with start and length at the data sheet's memory rate."""
    return {"cells": [[_cell(candidates, g, w) for w in workloads] for g in gpus]}


def _cell(candidates: Sequence[TimedCall], gpu: Gpu, workload: Problem) -> dict[str, Any]:
    floor_us = floors(workload, gpu).time_us
    cells = [_candidate_cell(candidate, gpu, workload) for candidate in candidates]
    times = [cell["total_us"] for cell in cells]
    times += [measured["time_us"] for cell in cells for measured in cell["measured"]]
    return {
        "candidates": cells,
        "longest_us": max([*times, floor_us]),
        "floor_us": floor_us,
        "floor_text": f"{say_time(floor_us)} us",
    }


def _candidate_cell(candidate: TimedCall, gpu: Gpu, workload: Problem) -> dict[str, Any]:
    if gpu.dram_gb_per_s is None:
        name = f"The memory rate of {gpu.title} is not known here."
        raise LabError(name, "there is no data sheet for it", "the other GPUs of the bench")
    steps: list[dict[str, Any]] = []
    clock_us = 0.0
    for step in candidate.steps(workload):
        time_us = step.moved_bytes / gpu.dram_gb_per_s / 1e3
        texts = {"bytes_text": say_bytes(step.moved_bytes), "time_text": f"{say_time(time_us)} us"}
        times = {"start_us": round(clock_us, 3), "time_us": round(time_us, 3)}
        steps.append({"label": step.label, **times, **texts})
        clock_us += time_us
    known = []
    for one in candidate.measured(gpu, workload):
        said = {"time_us": one.time_us, "time_text": f"{say_time(one.time_us)} us"}
        known.append({**said, "word": check_word(one.source), "what": one.what})
    notes = [candidate.note] if candidate.note else []
    if not known:
        notes.append(f"There is no measurement of this on {gpu.title} for {workload}.")
    spoken = "; ".join(f"{step['label']} {step['time_text']}" for step in steps)
    told = "; ".join(f"{timed['word']} {timed['time_text']}" for timed in known) or "not measured"
    return {
        "steps": steps,
        "total_us": round(clock_us, 3),
        "total_text": f"{say_time(clock_us)} us",
        "measured": known,
        "notes": notes,
        "alt": f"{candidate.title} on {gpu.title}: {spoken}. {told}.",
    }


class TimelineView(View, script="view", controls=("candidate", "gpu", "size")):
    """The picture."""


def baseline_bench(
    candidates: Sequence[TimedCall],
    gpus: Sequence[Gpu],
    workloads: Mapping[str, Problem],
    *,
    start: str | None = None,
) -> Bench:
    """A bench of timed calls that starts with a workload, by default the first."""
    labels = list(workloads)
    controls = {
        "candidate": dropdown("timed call", [candidate.title for candidate in candidates]),
        "gpu": dropdown("GPU", [gpu.title for gpu in gpus]),
        "size": slider("KV length", labels, start or labels[0]),
    }
    tables = timeline_tables(candidates, gpus, list(workloads.values()))
    return Bench(controls, TimelineView, tables)


def say_bytes(count: int) -> str:
    """In 10^6 bytes: ``134.2 MB``."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
