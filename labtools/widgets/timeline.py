"""The baseline bench: what moves inside a timed call, and what was measured for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from labtools.predict import Gpu, floors
from labtools.problem import LabError, Workload

from .bench import Bench
from .provenance import check_word
from .scripts import view_script

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Step:
    """One movement of bytes inside a timed call.

    Args:
        label: what moves.
        moved_bytes: how much.
    """

    label: str
    moved_bytes: int


@dataclass(frozen=True)
class Measured:
    """A time somebody measured or published for a timed call.

    Args:
        time_us: microseconds.
        source: ``live``, ``recorded`` or ``claimed``.
        what: where and when.
    """

    time_us: float
    source: str
    what: str


@dataclass(frozen=True)
class Candidate:
    """One timed call that the bench offers.

    Args:
        title: name in the list.
        steps: what moves inside, in order, for a workload.
        measured: what is known for a GPU and a workload, perhaps nothing.
        note: one sentence about it, or empty.
    """

    title: str
    steps: Callable[[Workload], Sequence[Step]]
    measured: Callable[[Gpu, Workload], Sequence[Measured]]
    note: str = ""


def timeline_tables(
    candidates: Sequence[Candidate], gpus: Sequence[Gpu], workloads: Sequence[Workload]
) -> dict[str, Any]:
    """Every case of the bench: steps with start and length at the data sheet's memory rate.

    Raises:
        LabError: a GPU whose memory rate is unknown.
    """
    return {"cells": [[_cell(candidates, g, w) for w in workloads] for g in gpus]}


def _cell(candidates: Sequence[Candidate], gpu: Gpu, workload: Workload) -> dict[str, Any]:
    floor_us = floors(workload, gpu).time_us
    cells = [_candidate_cell(candidate, gpu, workload) for candidate in candidates]
    times = [one["total_us"] for one in cells]
    times += [measured["time_us"] for one in cells for measured in one["measured"]]
    return {
        "candidates": cells,
        "longest_us": max([*times, floor_us]),
        "floor_us": floor_us,
        "floor_text": say_time(floor_us),
    }


def _candidate_cell(candidate: Candidate, gpu: Gpu, workload: Workload) -> dict[str, Any]:
    if gpu.dram_gb_per_s is None:
        raise LabError(
            f"The memory rate of {gpu.title} is not known here.",
            "there is no data sheet for it",
            "the other GPUs of the bench",
        )
    steps: list[dict[str, Any]] = []
    clock_us = 0.0
    for step in candidate.steps(workload):
        time_us = step.moved_bytes / gpu.dram_gb_per_s / 1e3
        steps.append(
            {
                "label": step.label,
                "start_us": round(clock_us, 3),
                "time_us": round(time_us, 3),
                "bytes_text": say_bytes(step.moved_bytes),
                "time_text": say_time(time_us),
            }
        )
        clock_us += time_us
    known = [
        {
            "time_us": one.time_us,
            "time_text": say_time(one.time_us),
            "word": check_word(one.source),
            "what": one.what,
        }
        for one in candidate.measured(gpu, workload)
    ]
    notes = [candidate.note] if candidate.note else []
    if not known:
        notes.append(f"There is no measurement of this on {gpu.title} for {workload}.")
    spoken = "; ".join(f"{step['label']} {step['time_text']}" for step in steps)
    told = "; ".join(f"{one['word']} {one['time_text']}" for one in known) or "not measured"
    return {
        "steps": steps,
        "total_us": round(clock_us, 3),
        "total_text": say_time(clock_us),
        "measured": known,
        "notes": notes,
        "alt": f"{candidate.title} on {gpu.title}: {spoken}. {told}.",
    }


class TimelineView(anywidget.AnyWidget):
    """The picture; every ``*_index`` says which choice a control shows."""

    _esm = view_script("timeline.js")
    _css = (_HERE / "timeline.css").read_text()

    tables = traitlets.Dict().tag(sync=True)
    candidate_index = traitlets.Int(0).tag(sync=True)
    gpu_index = traitlets.Int(0).tag(sync=True)
    size_index = traitlets.Int(0).tag(sync=True)


def baseline_bench(
    candidates: Sequence[Candidate],
    gpus: Sequence[Gpu],
    workloads: Mapping[str, Workload],
    *,
    start: str | None = None,
    size_label: str = "workload",
) -> Bench:
    """A bench of timed calls.

    Args:
        candidates: what the first list offers.
        gpus: what the second list offers; each needs a memory rate.
        workloads: steps of the slider, by label.
        start: label of the workload to start with; by default the first.
        size_label: name of the slider.

    Raises:
        LabError: a GPU whose memory rate is unknown, or a start that is none of the labels.
    """
    labels = list(workloads)
    start = labels[0] if start is None else start
    if start not in labels:
        raise LabError(
            f"{start!r} is no step of the slider.", f"its steps are {labels}", "name one"
        )
    look = {
        "style": {"description_width": "9.5em"},
        "layout": ipywidgets.Layout(width="100%", max_width="38em"),
    }
    controls = {
        "candidate": ipywidgets.Dropdown(
            options=[one.title for one in candidates], index=0, description="timed call", **look
        ),
        "gpu": ipywidgets.Dropdown(
            options=[one.title for one in gpus], index=0, description="GPU", **look
        ),
        "size": ipywidgets.SelectionSlider(
            options=labels, index=labels.index(start), description=size_label, **look
        ),
    }
    view = TimelineView(
        tables=timeline_tables(candidates, gpus, list(workloads.values())),
        size_index=labels.index(start),
    )
    return Bench(controls, view)


def say_time(time_us: float) -> str:
    """``29.9 us``, ``1.36 ms``."""
    if time_us >= 1000:
        return f"{time_us / 1000:.2f} ms"
    return f"{time_us:.1f} us" if time_us >= 0.1 else f"{time_us:.2g} us"


def say_bytes(count: int) -> str:
    """In 10^6 bytes: ``134.2 MB``."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
