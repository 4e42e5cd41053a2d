"""The kernels of odd_loops.cu, each as a rung."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from labtools.problem import Launch, Limits, Rung, Workload, load_rung

WORKLOAD = Workload.parse("2,8,2,300,128")
BLOCKS, THREADS, N = 4, 64, 40
SOURCE = "odd.cu"

_HEAD, *_REST = re.split(r"^//@ (.*)\n", Path(__file__).with_suffix(".cu").read_text(), flags=re.M)
ODD_LOOPS = dict(zip(_REST[::2], _REST[1::2], strict=True))
"""Name to the kernel's body."""
TAIL = "  out[b * blockDim.x + t] = __float2half(x);\n}\n"


def marked_line(text: str) -> int:
    """The line, from 1, that is gone through once a trip: in the kernel, or in what it calls."""
    lines = text.splitlines()
    kernel = next(i for i, line in enumerate(lines) if "__global__" in line)
    called = re.search(r"x = (depth_of|fold|chase)\(", "\n".join(lines[kernel:]))
    begin = kernel
    if called:
        begin = next(i for i, line in enumerate(lines) if f" {called[1]}(" in line)
    return next(i for i, line in enumerate(lines[begin:], begin + 1) if "//*" in line)


def odd_rung(folder: Path, name: str) -> Rung:
    """A rung that is one of the odd loops."""
    source = folder / SOURCE
    source.write_text(_HEAD + ODD_LOOPS[name] + TAIL)

    def launch(workload: Workload, limits: Limits, knobs: object) -> list[Launch]:
        args = ("k", "seq_lens", "out", np.int32(N))
        return [Launch("odd", (BLOCKS, 1, 1), (THREADS, 1, 1), args=args)]

    return dataclasses.replace(load_rung("r03"), id="odd", source=source, knobs=(), launch=launch)
