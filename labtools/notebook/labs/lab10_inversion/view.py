"""The bench of budgets: a proposed tile against a GPU's limits, and the one that is derived.

Python works out every proposal once, and the picture looks them up, so that the bench also works in
a page that has no kernel. Only compiling and forecasting ask Python: in a thread of its own where a
reader is here, and when the page is made for the choices that it names.
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

from ...bench import View
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

    Returns:
        ``sizes`` with their values, ``constraints``, ``layouts``, ``cells`` by the places of the
        three sizes (fixed bytes, bytes of rows, why not, time, then a number and a limit of each
        constraint), and what is ``derived``.
    """
    names = [one.name for one in space.constraints]
    lists = list(space.sizes.values())

    def cell(*at: int) -> list[Any]:
        one = space.proposals[at]
        time = None if one.time_us is None else _number(one.time_us)
        figures = [[_number(number) for number in one.figures[name]] for name in names]
        return [one.fixed_bytes, one.row_bytes, one.cannot, time, *figures]

    at, layout = space.derived
    design = space.design
    specified = space.specified
    return {
        "gpu": choice.gpu.title,
        "op": choice.op,
        "shape": choice.shape,
        "precision": choice.precision,
        "bound": space.bound,
        "calibrated": design.calibrated,
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
        "cells": [
            [[cell(a, b, c) for c in range(len(lists[2]))] for b in range(len(lists[1]))]
            for a in range(len(lists[0]))
        ],
        "derived": [*at, list(space.layouts).index(layout)],
        "steps": [[one.question, one.decision] for one in design.steps],
        "kernel": specified[0] if specified else "",
        "knobs": [[name, value] for name, value in specified[1].items()] if specified else [],
        "command": _command(choice, specified),
    }


def _command(choice: BenchCase, specified: tuple[str, dict[str, int]] | None) -> str:
    if specified is None:
        return ""
    kernel, chosen = specified
    knobs = "".join(f" -k {name}={value}" for name, value in chosen.items())
    return f"labtools forecast {kernel} -w {choice.workload} --gpu {choice.gpu.name}{knobs}"


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
    """The bench, which builds what is asked for.

    Args:
        workloads: by operation; None takes `BENCH_WORKLOADS`.
        built: choices that are built at once, as (GPU, operation, workload): the first such choice.

    Attributes:
        choices: what can be chosen.
        spaces: of each.
    """

    def __init__(
        self,
        gpus: Sequence[str] = BENCH_GPUS,
        workloads: dict[str, tuple[str, ...]] | None = None,
        built: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        self.choices = every_choice(gpus, workloads)
        self.spaces = [space_of(one.op, one.workload, one.gpu, one.bits) for one in self.choices]
        tables = [
            choice_tables(one, space) for one, space in zip(self.choices, self.spaces, strict=True)
        ]
        super().__init__(tables=pack_tables(tables), live=reader_present())
        self._work = Newest(self._answer, BUILD_REST_S)
        self.on_msg(self._receive)
        for asked in built:
            self.build(self.number_of(*asked))

    def number_of(self, gpu: str, op: str, workload: str) -> int:
        """The number of a choice."""
        for number, one in enumerate(self.choices):
            if (one.gpu.name, one.op, one.workload) == (gpu, op, workload):
                return number
        raise LabError(
            f"{gpu}, {op}, {workload} is not on this bench.",
            f"it offers {len(self.choices)} choices of {', '.join(BENCH_WORKLOADS)}",
            "name one of them",
        )

    def build(self, number: int) -> dict[str, Any]:
        """Compile and forecast what is derived for a choice, and show it."""
        one, specified = self.choices[number], self.spaces[number].specified
        if specified is None:
            raise LabError(
                f"No shipped kernel computes {one.workload}.",
                "what is derived is a specification",
                "the operations decode, prefill and gemm have kernels",
            )
        kernel, knobs = specified
        found = compile_and_forecast(
            kernel, knobs, one.workload, one.gpu, self.spaces[number].floor_us
        )
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
