"""A row of an own problem by itself, as a GPU's answer is compared: it is fetched, answered and
altered without the others."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
import pytest

PUBLIC = Path(__file__).parents[1] / "public"


@pytest.mark.parametrize("name", ["paged_attention", "decode_attention"])
def test_a_row_is_answered_and_altered_by_itself(name: str) -> None:
    """One has a buffer whose first axis is computed of the rows, one has a number a row."""
    spec = importlib.util.spec_from_file_location(name, PUBLIC / f"{name}.py")
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    operation = module.OPERATION
    problem = operation.given[0]
    inputs = operation.draw(problem)
    held = {key: one.reshape(problem.inputs[key].shape) for key, one in inputs.arrays.items()}
    held = {key: one.copy() for key, one in held.items()}
    rng, changed = np.random.default_rng(0), set()

    def fetch(key: str, place: tuple[int, ...] | EllipsisType) -> np.ndarray:
        return np.array(held[key][place])

    def store(key: str, place: tuple[Any, ...], value: np.ndarray) -> None:
        assert held[key][place].shape == value.shape
        held[key][place] = value
        changed.add(key)

    whole = operation.oracle(inputs)
    alone = operation.oracle(operation.read_part(problem, (1,), fetch))
    for key, answer in whole.items():
        np.testing.assert_allclose(alone[key][0], answer[1], rtol=1e-12)
    operation.alter_part(problem, (1,), fetch, store, rng)
    assert {"paged_attention": "block_tables", "decode_attention": "lengths"}[name] in changed
