"""What the model takes of an H200 that no microbenchmark has, against what was measured there."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from labtools.predict import load_gpu
from labtools.predict.banks import word_turns
from labtools.predict.machine import machine_of
from research.measure_bounds import BOUNDS_DIR
from research.measure_units import DIRECTIONS, MIX_THREADS, MIXES, WIDTHS, drawn_places

H200 = machine_of(load_gpu("h200"))


@cache
def _measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BOUNDS_DIR / "units_h200.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("width", WIDTHS)
def test_turns_of_shared_memory_are_those_counted(width: int, direction: str) -> None:
    every = np.ones(32, bool)
    said = [word_turns(one, every, width, direction == "ld") for one in drawn_places(width)]
    assert said == _measured()["turns"][f"{direction}{8 * width}"]


def test_lanes_that_are_off_ask_for_no_turn() -> None:
    lanes = np.arange(32) % 2 == 0
    apart = 2 * np.arange(32)[lanes]
    assert word_turns(apart, lanes, 16, loads=False) == 4
    assert word_turns(apart, lanes, 16, loads=True) == 2
    assert word_turns(np.zeros(16, int), lanes, 4, loads=True) == 1


def test_a_byte_stored_beside_reads_takes_longer() -> None:
    rows = [(reads, stores, *_measured()["mixes"][name]) for name, (reads, stores) in MIXES.items()]
    threads = 16 * (MIX_THREADS[1] - MIX_THREADS[0])
    # What the larger size takes more: nothing of a launch's start is in it.
    more = {(reads, stores): (large - small) / threads for reads, stores, small, large in rows}
    of_read = more.pop((1, 0))
    assert more.pop((0, 1)) == pytest.approx(of_read, rel=0.03)  # not where nothing is read
    for (reads, stores), taken in more.items():
        assert (taken - reads * of_read) / stores / of_read == pytest.approx(H200.stored, rel=0.05)


def test_a_product_takes_longer_where_factors_are_moved_between() -> None:
    cycles, usual = _measured()["products"], H200.intervals["tensor"]
    assert cycles.pop("moved") == pytest.approx(H200.intervals["fresh_product"], rel=0.02)
    assert list(cycles.values()) == pytest.approx([usual] * len(cycles), rel=0.02)
