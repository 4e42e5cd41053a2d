"""The bench of budgets: a proposed tile against a GPU's limits, and the one that is derived. The
picture looks up every proposal; only compiling and forecasting ask Python, in a thread of its own
or, for the choices that it names, when the page is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import traitlets

from labtools.derive import space_of
from labtools.derive.proposals import ALIGNMENT_LIMIT, CONFLICT_LIMIT, SMEM_BUDGET, DesignSpace
from labtools.predict import Gpu, load_gpu
from labtools.problem import LabError, as_lab_error

from ...bench import View, place_of
from ...newest import Newest
from ...packing import pack_tables
from ...reader import reader_present
from .building import compile_and_forecast

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


class BudgetView(View, script="view"):
    """The picture.

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


class BudgetBench(BudgetView):
    """The bench, which builds what is asked for, and at once the choices ``built`` as (GPU,
    operation, workload). ``workloads`` are by operation.
    """

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
            told = as_lab_error(error)
            failed = {"failed": f"{told.what} Why: {told.why}"}
            self.built = {**self.built, str(number): failed}
        finally:
            if still_wanted():
                self.busy = ""
