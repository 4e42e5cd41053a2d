"""Row-wise kernels, derived: the launch's rule, the bytes on the way, and the command."""

from __future__ import annotations

import pytest

from labtools.derive import derive
from labtools.derive.rows.derivation import (
    MOST_HELD,
    THREAD_CHOICES,
    pieces_of_thread,
    row_threads,
)
from labtools.predict import load_gpu, machine_of
from labtools.problem import load_rung, parse_problem
from labtools.problem.rows import Rows


@pytest.mark.parametrize("columns", [1, 255, 256, 1000, 4096, 8192, 33003, 500_000])
def test_a_row_has_the_fewest_threads_that_hold_it(columns: int) -> None:
    problem = Rows(4, columns)
    threads = row_threads(problem)
    assert pieces_of_thread(problem, threads) <= MOST_HELD or threads == max(THREAD_CHOICES)
    fewer = [one for one in THREAD_CHOICES if one < threads]
    assert all(pieces_of_thread(problem, one) > MOST_HELD for one in fewer)


@pytest.mark.parametrize("text", ["rows:8192,4096", "rows:64,40000/bf16", "add_norm:7,99"])
def test_the_floor_is_every_byte_once_and_the_time_its_parts(text: str) -> None:
    design, problem = derive(text, "h200"), parse_problem(text)
    machine = machine_of(load_gpu("h200"))
    rate = machine.dram_bytes_per_cycle * machine.clock_ghz
    assert design.floor_us == pytest.approx(problem.minimal_bytes / rate / 1e3)
    assert design.step("time").answer.value == sum(one.value for one in design.step("time").inputs)
    read = sum(one.value for one in design.step("bytes").inputs[:-1])
    assert read == problem.minimal_bytes
    choices = load_rung(design.kernel).knobs[0].choices
    assert len(design.step("tile").rejected) == len(choices) - 1


def test_many_rows_keep_memory_busy_and_few_do_not() -> None:
    many, few = derive("rows:8192,4096", "h200"), derive("rows:16,4096", "h200")
    share = "share of the ceiling"
    assert many.step("residency").result(share) > 0.95 > few.step("residency").result(share)
