"""The bench of budgets: a proposed tile against a GPU's limits, and the one that is derived. The
picture looks up every proposal; only compiling and forecasting ask Python, in a thread of its own
or, for the choices that it names, when the page is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import traitlets

from labtools.derive import space_of
from labtools.derive.proposals import ALIGNMENT_LIMIT, CONFLICT_LIMIT, SMEM_BUDGET, DesignSpace
from labtools.predict import Gpu, forecast, load_gpu
from labtools.problem import (
    LabError,
    Problem,
    Rung,
    as_lab_error,
    load_rung,
    parse_problem,
    timed_launches,
)
from labtools.toolchain import compile_rung

from ...bench import View, place_of
from ...newest import Newest
from ...packing import pack_tables
from ...reader import reader_present

BENCH_GPUS = ("h200", "a100-80gb", "l4")
BENCH_WORKLOADS = {
    "decode": ("8,32,8,4096,128", "1,32,8,4096,128"),
    "prefill": ("prefill:4,32,8,4096,128/causal", "prefill:4,8,8,512,64"),
    "gemm": ("gemm:4096,4096,4096", "gemm:16,4096,4096"),
    "conv": ("conv:4,28,28,64,64,3,3,1",),
    "moe": ("moe:512,8,2,1024,1024",),
}
"""What the bench offers of each operation."""
PRECISIONS = {
    "decode": ((16, "", "fp16"), (8, "", "K and V in 8 bits"), (4, "", "K and V in 4 bits")),
    "prefill": ((16, "", "fp16"), (16, "/bf16", "bf16")),
}
"""Of an operation: bits, what a workload ends with, and how it is called; else fp16 alone."""
_FP16 = ((16, "", "fp16"),)
BUILD_REST_S = 0.02
BELIEVED = 0.95
"""A forecast below so much of the floor is not believed."""


@dataclass(frozen=True)
class BenchCase:
    """One thing to design for."""

    gpu: Gpu  # its sheet
    op: str  # the operation
    shape: str  # the workload without its precision
    workload: str  # in short form
    bits: int  # of an element of K and V in memory
    precision: str  # what that is called


def every_choice(
    gpus: Sequence[str] = BENCH_GPUS, workloads: dict[str, tuple[str, ...]] | None = None
) -> list[BenchCase]:
    """What the bench offers, by GPU, operation, workload and precision."""
    return [
        BenchCase(load_gpu(gpu), op, text, text + ending, bits, called)
        for gpu in gpus
        for op, texts in (workloads or BENCH_WORKLOADS).items()
        for text in texts
        for bits, ending, called in PRECISIONS.get(op, _FP16)
    ]


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else float(f"{value:.4g}")


def choice_tables(choice: BenchCase, space: DesignSpace) -> dict[str, Any]:
    """Every answer that the picture may need for a choice.

    ``cells`` are by the places of the three sizes: fixed bytes, bytes of rows, why not, time, then
    a number and a limit of each constraint.
    """
    names = [one.name for one in space.constraints]
    first, second, third = (range(len(values)) for values in space.sizes.values())

    def cell(*at: int) -> list[Any]:
        one = space.proposals[at]
        time = None if one.time_us is None else _number(one.time_us)
        figures = [[_number(number) for number in one.figures[name]] for name in names]
        return [one.fixed_bytes, one.row_bytes, one.cannot, time, *figures]

    at, layout = space.derived
    kernel, knobs = space.specified or ("", {})
    command = f"labtools forecast {kernel} -w {choice.workload} --gpu {choice.gpu.name}"
    command += "".join(f" -k {name}={value}" for name, value in knobs.items())
    return {
        "gpu": choice.gpu.title,
        "op": choice.op,
        "shape": choice.shape,
        "precision": choice.precision,
        "bound": space.bound,
        "calibrated": space.design.calibrated,
        "smem_limit": space.smem_limit,
        "smem": asdict(SMEM_BUDGET),
        "alignment": asdict(ALIGNMENT_LIMIT),
        "conflicts": asdict(CONFLICT_LIMIT),
        "sizes": [[name, list(values)] for name, values in space.sizes.items()],
        "constraints": [asdict(one) for one in space.constraints],
        "layouts": [
            [name, one.row_share, one.beside, one.turns, one.refused]
            for name, one in space.layouts.items()
        ],
        "cells": [[[cell(a, b, c) for c in third] for b in second] for a in first],
        "derived": [*at, list(space.layouts).index(layout)],
        "steps": [[one.question, one.decision] for one in space.design.steps],
        "kernel": kernel,
        "knobs": [[name, value] for name, value in knobs.items()],
        "command": command if kernel else "",
    }


def compile_and_forecast(
    kernel: str, knobs: Mapping[str, int], workload: str, gpu: Gpu, floor_us: float
) -> dict[str, Any]:
    """What the compiler and the forecast say of a kernel; neither needs a GPU.

    ``registers``, ``spilled`` and ``smem`` bytes are None with the reason as ``not_compiled``;
    ``time``, ``bound`` and ``calibrated`` with the reason as ``not_forecast``. A forecast below
    ``floor_us``, which no kernel can beat, is not believed.
    """
    rung, problem = load_rung(kernel), parse_problem(workload)
    compiled: dict[str, Any] = dict.fromkeys(("registers", "spilled", "smem"))
    made: dict[str, Any] = dict.fromkeys(("time", "bound", "calibrated"))
    try:
        compiled = _compiled(rung, problem, gpu, knobs)
    except LabError as error:
        compiled["not_compiled"] = _said(error)
    try:
        model = forecast(rung, problem, gpu, knobs)
        if model.time_us < BELIEVED * floor_us:
            made["not_forecast"] = (
                f"It would say {model.time_us:.3g} us, and no kernel can take less than "
                f"{floor_us:.3g}: the model does not understand this machine code yet."
            )
        else:
            made = {"time": round(model.time_us, 3), "bound": model.bound}
            made |= {"calibrated": model.calibrated, "not_forecast": ""}
    except LabError as error:
        made["not_forecast"] = _said(error)
    return {**compiled, **made}


def _compiled(rung: Rung, problem: Problem, gpu: Gpu, knobs: Mapping[str, int]) -> dict[str, Any]:
    launch = timed_launches(rung.launches(problem, gpu.limits, knobs))[-1]
    used = compile_rung(rung, problem, gpu.limits, knobs).resources_of(launch.entry)
    return {
        "registers": used.registers,
        "spilled": used.spill_store_bytes,
        "smem": used.shared_bytes + launch.smem_bytes,
        "threads": launch.num_threads,
        "blocks": launch.num_blocks,
        "not_compiled": "",
    }


def _said(error: LabError) -> str:
    """What happened and why, in two sentences."""
    what, why = error.what.strip(), error.why.strip()
    return f"{what} Why: {why}".strip()


class BudgetBench(View, script="view"):
    """The bench, which builds what is asked for, and at once the choices ``built`` as (GPU,
    operation, workload). ``workloads`` are by operation.

    ``tables`` are those of every choice, packed. ``choice`` says which is shown, ``at`` the places
    of the three sizes and of the layout, ``built`` by the number of a choice what compiler and
    forecast said, ``busy`` the choice that is worked on, ``live`` whether Python is there to ask.
    """

    tables = traitlets.Dict().tag(sync=True)
    choice = traitlets.Int(0).tag(sync=True)
    at = traitlets.List(traitlets.Int(), [0, 0, 0, 0]).tag(sync=True)
    built = traitlets.Dict().tag(sync=True)
    busy = traitlets.Unicode("").tag(sync=True)
    live = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self,
        gpus: Sequence[str] = BENCH_GPUS,
        workloads: dict[str, tuple[str, ...]] | None = None,
        built: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        self.choices = every_choice(gpus, workloads)
        self.spaces = [space_of(one.op, one.workload, one.gpu, one.bits) for one in self.choices]
        tables = list(map(choice_tables, self.choices, self.spaces))
        super().__init__(tables=pack_tables(tables), live=reader_present())
        self._work = Newest(self._answer, BUILD_REST_S)
        self.on_msg(self._receive)
        for asked in built:
            self.build(self.number_of(*asked))

    def number_of(self, gpu: str, op: str, workload: str) -> int:
        """The number of a choice."""
        named = [f"{one.gpu.name}, {one.op}, {one.workload}" for one in self.choices]
        return place_of(f"{gpu}, {op}, {workload}", named)

    def build(self, number: int) -> dict[str, Any]:
        """Compile and forecast what is derived for a choice, and show it."""
        one, specified = self.choices[number], self.spaces[number].specified
        if specified is None:
            why = "what is derived is a specification"
            raise LabError(f"No shipped kernel computes {one.workload}.", why, "another operation")
        floor_us = self.spaces[number].floor_us
        found = compile_and_forecast(*specified, one.workload, one.gpu, floor_us)
        self.built = {**self.built, str(number): found}
        return found

    def wait(self, seconds: float = 60.0) -> bool:
        """True once nothing is being built."""
        return self._work.wait(seconds)

    def _receive(self, _view: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict) and content.get("kind") == "build":
            self.busy = str(self.choice)
            self._work.ask((self.choice,))

    def _answer(self, asked: tuple[Any, ...], still_wanted: Callable[[], bool]) -> None:
        (number,) = asked
        try:
            self.build(number)
        except Exception as error:  # a thread has nobody above it who would tell the reader
            self.built = {**self.built, str(number): {"failed": _said(as_lab_error(error))}}
        finally:
            if still_wanted():
                self.busy = ""
