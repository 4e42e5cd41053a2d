"""One mistake in a kernel, of every kind that it could have: a run on the CPU shows each."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from labtools.measure.cpu import run_on_cpu
from labtools.measure.cpu.runner import ORDERS
from labtools.problem import operation_of
from tests.wrong_kernels import mistaken

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "wrong_kernels" / "mistakes.toml"
KERNELS = tomllib.loads(TABLE.read_text("utf-8"))["kernel"]
CASES = [
    pytest.param(one, texts, id=f"{one['rung'].split('/')[-1]}: {name}")
    for one in KERNELS
    for name, texts in one["mistakes"].items()
]


@pytest.mark.parametrize(("kernel", "texts"), CASES)
def test_a_mistake_is_found(kernel: dict[str, Any], texts: list[str]) -> None:
    said = texts[-1] if len(texts) % 2 else ""
    rung, problem = mistaken(kernel, texts)
    battery = operation_of(problem).battery(problem, rung.supports)
    how = {name: kernel.get(name) for name in ("knobs", "workers")}
    how["orders"] = kernel.get("orders", ORDERS)
    for one in battery[: kernel.get("battery", 1)]:  # the first is the problem itself
        run = run_on_cpu(rung, one, **how)
        if not run.ok:
            assert said in " ".join([str(run), *(fault.kind for fault in run.faults)])
            return
    pytest.fail("it was accepted")
