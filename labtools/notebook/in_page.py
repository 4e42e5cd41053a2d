"""What a page of the site needs to check a kernel that its reader writes, as files.

A tab draws no inputs and has no oracle: it gets cases with the inputs and the answers that Python
made, those of a quick check and a battery of small problems. ``write/worker.mjs`` reads them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labtools.measure.case import checked_limits
from labtools.measure.check import compiled_code, quick_cases
from labtools.measure.cpu.build import Executable, Kernel, module_unit
from labtools.measure.cpu.module import own_headers
from labtools.measure.cpu.report import KINDS, REPORT
from labtools.measure.cpu.runner import CpuJob, job_text
from labtools.problem import Problem, Rung, operation_of, poisoned
from labtools.toolchain import launched_entries, source_name

from .exercises import Exercise, load_exercise
from .scores import Stage
from .writing import stages_of

MOST_CASE_BYTES, MOST_SMALL_BYTES = 400_000, 64_000
"""Of a case of a quick check, and of one of the battery: a page fetches them all."""
BLOCK_LIMIT_S = 5.0
_HERE = "// what the reader writes\n"


@dataclass(frozen=True)
class _PageBuffer:
    """A buffer as the job names it, by the number of its file."""

    fd: int
    bytes: int
    item_bytes: int
    writable: bool
    given: bool = False


def write_tasks(names: Iterable[str], folder: Path) -> None:
    """Write ``NAME.json.gz`` of each exercise, and the inputs and answers that it names."""
    for name in names:
        task, data = page_task(load_exercise(name))
        task["data"] = f"data-{hashlib.sha256(data).hexdigest()[:16]}"
        packed = folder / f"{task['data']}.bin.gz"
        if not packed.is_file():
            packed.write_bytes(gzip.compress(data, 6, mtime=0))
        text = json.dumps(task, separators=(",", ":")).encode()
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


def prepared_texts(exercise: Exercise) -> dict[str, str]:
    """The solution of an exercise and its mistakes by name, in no order that tells which."""
    right = exercise.solution
    wrong = {name: right.replace(one.old, one.new) for name, one in exercise.mistakes.items()}
    texts = {"solution": right, **wrong}
    return dict(sorted(texts.items(), key=lambda one: hashlib.sha256(one[1].encode()).digest()))


def prepared_kernel(exercise: Exercise, text: str) -> dict[str, Any]:
    """A text with the stages of its check: what a browser that cannot compile shows."""
    return {"text": text, "stages": [*map(_stage, stages_of(exercise, text))]}


def _stage(stage: Stage) -> dict[str, Any]:
    lines = re.findall(r"^  at \w+ \(cell\):(\d+)", stage.said, re.MULTILINE)
    told = {"name": stage.name, "ok": stage.ok, "said": stage.said}
    return {**told, "lines": [int(line) for line in lines]}


def page_task(exercise: Exercise) -> tuple[dict[str, Any], bytes]:
    """What the worker is told of an exercise, and the bytes of its inputs and answers."""
    rung, data = exercise.rung_of(_HERE), bytearray()
    problems, quick = _problems(exercise)
    cases = [_case(exercise.rung, *one, data) for one in problems]
    shown, folders, below = source_name(rung), tuple(rung.include_dirs), list[str]()
    for case, one in zip(cases, problems, strict=True):
        entries = tuple(launched_entries(exercise.rung, one[0], checked_limits(), one[1]))
        above, _, rest = module_unit(Kernel(rung.source_text, shown, entries, folders)).partition(
            _HERE
        )
        if rest not in below:
            below.append(rest)
        case["below"] = below.index(rest)
    return {
        "name": exercise.name,
        "shown": shown,
        "above": above,
        "below": below,
        "headers": own_headers(folders),
        "kinds": KINDS,
        "reportBytes": REPORT.itemsize,
        "quick": quick,
        "cases": cases,
    }, bytes(data)


def _problems(exercise: Exercise) -> tuple[list[tuple[Problem, Any]], int]:
    """Problems with knobs: the least one, those of a quick check, and small ones that cover as a
    whole check does, with no code that is not compiled for the others; and how many of a quick
    check there are."""
    rung, knobs = exercise.rung, exercise.knobs
    quick = [
        one for one in quick_cases(rung, exercise.problem) if _case_bytes(one) <= MOST_CASE_BYTES
    ]
    known = {compiled_code(rung, one, knobs) for one in quick}

    def refuse(one: Problem) -> str | None:
        if _case_bytes(one) > MOST_SMALL_BYTES:
            return "too large"
        return rung.supports(one) or (
            None if compiled_code(rung, one, knobs) in known else "other code"
        )

    _, *small = operation_of(exercise.problem).battery(exercise.problem, refuse)
    every = ((one, knobs) for one in dict.fromkeys([*quick, *small]))
    return [(exercise.least, None), *every], len(quick)


def _case_bytes(problem: Problem) -> int:
    """Of its inputs, and of its answers in float32."""
    outputs = sum(4 * one.elements for one in problem.outputs.values())
    return outputs + sum(one.bytes for one in problem.inputs.values())


def _case(rung: Rung, problem: Problem, knobs: Any, data: bytearray) -> dict[str, Any]:
    limits, operation = checked_limits(), operation_of(problem)
    launches, drawn = rung.launches(problem, limits, knobs), operation.draw(problem)
    inputs = drawn.buffers()
    expected = operation.expect(drawn, rung.scheme(problem, knobs))
    tolerance = rung.tolerance_for(problem, launches)
    files: dict[str, _PageBuffer] = {}
    told: list[dict[str, Any]] = []

    def add(name: str, array: np.ndarray, writable: bool, content: bool) -> None:
        given = content and writable
        files[name] = _PageBuffer(len(files) + 1, array.nbytes, array.itemsize, writable, given)
        one: dict[str, Any] = {"bytes": array.nbytes, "writable": writable}
        one |= {"at": _put(data, array)} if content else {"poison": _poison(array.dtype)}
        told.append(one)

    for name, array in inputs.items():
        if name not in problem.outputs:
            add(name, array, writable=False, content=True)
    for name, one in problem.outputs.items():
        add(name, inputs.get(name, poisoned(one.shape, one.dtype)), True, name in inputs)
    for space in (one for launch in launches for one in launch.workspace):
        if space.name not in files:
            add(space.name, poisoned(space.shape, space.dtype), writable=True, content=False)
    compared = {name: problem.compared_as(one, tolerance) for name, one in problem.outputs.items()}
    program = Executable(Path(), (), (), runs_with=("a page",))
    job = CpuJob(program, launches, 0, None, BLOCK_LIMIT_S, 1, {}, problem)
    return {
        "shown": str(problem),
        "defines": {
            name: str(value) for name, value in rung.defines(problem, limits, knobs).items()
        },
        "job": job_text(job, files, list(files), 0, False),
        "blocks": [[*launch.block, 1, 1][:3] for launch in launches],
        "files": told,
        "outputs": [
            {
                "name": name,
                "file": files[name].fd - 1,
                "dtype": one.dtype,
                **dict(zip(("axes", "shape", "limit"), compared[name], strict=True)),
                "poison": _poison(one.dtype),
                "expected": _put(data, expected[name].astype("<f4")),
            }
            for name, one in problem.outputs.items()
        ],
    }


def _put(data: bytearray, array: np.ndarray) -> int:
    data.extend(b"\0" * (-len(data) % 8))
    at = len(data)
    data.extend(np.ascontiguousarray(array).tobytes())
    return at


def _poison(dtype: str | np.dtype) -> list[int]:
    return list(poisoned((1,), dtype).tobytes())
