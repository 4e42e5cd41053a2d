"""All shipped decode kernels on drawn workloads, run on the CPU against the float64 oracle.

Every workload is given to all kernels that take it, with drawn knobs, in the even order of warps
and in one adversarial order. `test_enough_was_drawn` counts what the others drew.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from devices import LIMITS
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

from labtools.measure.cpu import run_on_cpu
from labtools.problem import (
    DISTRIBUTIONS,
    LabError,
    Rung,
    Workload,
    draw_workloads,
    list_rungs,
    make_inputs,
)

RUNGS = list_rungs("decode")
DRAWS = 11
"""Workloads drawn for each kind and head dimension."""
ROW_BUDGET = 12_000
"""Most (query head, key) pairs of one workload: the CPU runs some 50 thousand a second."""
KINDS = ("long", "grouped", "ragged")
HEAD_DIMS = (64, 128)
WIDE = [rung for rung in RUNGS if rung.supports(Workload.parse("1,4,1,9,128/bf16/paged16")) is None]
"""The rungs that take pages and bfloat16."""
SMEM_BYTES = 227 * 1024
"""Of one block on sm_90."""

drawn: dict[tuple[str, int], list[Workload]] = defaultdict(list)
explicit: list[Workload] = []
runs: dict[str, int] = defaultdict(int)


@st.composite
def workloads(draw: st.DrawFn, kind: str, head_dim: int) -> Workload:
    """A workload of that kind within the row budget."""
    lengths = {"long": (1024, 4200), "grouped": (1, 400), "ragged": (2, 500)}[kind]
    kv_len = draw(st.integers(*lengths))
    groups = (4, 8) if kind == "grouped" else (1, 2, 3, 4)
    group = draw(st.sampled_from([g for g in groups if g * kv_len <= ROW_BUDGET]))
    kv_heads = draw(st.integers(1, min(3, ROW_BUDGET // (group * kv_len))))
    least = 2 if kind == "ragged" else 1
    most = max(least, min(4, ROW_BUDGET // (group * kv_heads * kv_len)))
    batch = draw(st.integers(least, most))
    seq_lens = None
    if kind == "ragged":
        shorter = draw(st.integers(1, kv_len - 1))
        others = draw(st.lists(st.integers(1, kv_len), min_size=batch - 1, max_size=batch - 1))
        seq_lens = tuple(draw(st.permutations([shorter, *others])))
    return Workload(
        batch, group * kv_heads, kv_heads, kv_len, head_dim,
        seq_lens=seq_lens,
        distribution=draw(st.sampled_from(DISTRIBUTIONS)),
        seed=draw(st.integers(0, 2**31 - 1)),
    )  # fmt: skip


KNOBS = st.fixed_dictionaries(
    {
        rung.id: st.fixed_dictionaries(
            {knob.name: st.sampled_from(knob.choices) for knob in rung.knobs}
        )
        for rung in RUNGS
    }
)


def check_all(workload: Workload, knobs: dict[str, dict[str, int]]) -> None:
    """Every kernel, or an AssertionError that says which one and why."""
    inputs = make_inputs(workload)
    for index, rung in enumerate(RUNGS):
        if rung.supports(workload) is not None:
            continue
        chosen = fitting(rung, workload, knobs.get(rung.id, {}))
        orders = (0, 1 + (workload.seed + index) % 3)
        run = run_on_cpu(rung, workload, chosen, orders=orders, inputs=inputs)
        assert run.ok, f"{rung.id} {chosen} on {workload!r}: {run}"
        runs[rung.id] += 1


def fitting(rung: Rung, workload: Workload, knobs: dict[str, int]) -> dict[str, int]:
    """The knobs, or the defaults where they want more shared memory than there is."""
    try:
        launches = rung.launches(workload, LIMITS, knobs)
    except LabError:  # a rung that lays its blocks out by itself says that they do not fit
        return {}
    return knobs if max(one.smem_bytes for one in launches) <= SMEM_BYTES else {}


def draw_and_check(kind: str, head_dim: int) -> None:
    @settings(
        max_examples=DRAWS,
        deadline=None,
        database=None,
        phases=(Phase.generate,),  # shrinking would run for many minutes; the message has it all
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(workload=workloads(kind, head_dim), knobs=KNOBS)
    def check(workload: Workload, knobs: dict[str, dict[str, int]]) -> None:
        assume(workload not in drawn[kind, head_dim])
        check_all(workload, knobs)
        drawn[kind, head_dim].append(workload)

    drawn.pop((kind, head_dim), None)
    check()


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_workloads(kind, head_dim):
    draw_and_check(kind, head_dim)


@example(Workload(3, 8, 2, 1, 128, distribution="large"))
@example(Workload(2, 8, 2, 1, 64, distribution="one_hot"))
@example(Workload(2, 6, 3, 31, 64, distribution="rising"))
@example(Workload(2, 4, 1, 31, 128, distribution="constant_v"))
@example(Workload(2, 8, 2, 33, 128, distribution="late_peaked"))
@example(Workload(2, 3, 3, 33, 64, distribution="normal"))
@example(Workload(1, 2, 1, 4097, 128, distribution="late_peaked"))
@example(Workload(1, 2, 2, 4097, 64, distribution="large"))
@settings(phases=(Phase.explicit,), deadline=None, database=None)
@given(workload=workloads("grouped", 64))
def test_lengths_that_are_always_tried(workload):
    check_all(workload, {})
    if workload not in explicit:
        explicit.append(workload)


@pytest.mark.parametrize("rung", WIDE, ids=lambda rung: rung.id)
def test_pages_and_bfloat16(rung):
    def supports(workload: Workload) -> str | None:
        plain = workload.dtype == "float16" and not workload.is_paged
        return "it is drawn elsewhere" if plain else rung.supports(workload)

    for index, workload in enumerate(
        draw_workloads(10, len(rung.id), supports, longest=300, most_elements=2**15)
    ):
        run = run_on_cpu(rung, workload, orders=(0, 1 + index % 3))
        assert run.ok, f"{rung.id} on {workload!r}: {run}"


def test_some_rungs_take_pages_and_bfloat16():
    assert {"r09", "r10", "r11"} <= {rung.id[:3] for rung in WIDE}


@pytest.mark.slow
def test_enough_was_drawn():
    for kind in KINDS:
        for head_dim in HEAD_DIMS:
            if not drawn[kind, head_dim]:  # when this test runs alone
                draw_and_check(kind, head_dim)
    if not explicit:
        test_lengths_that_are_always_tried()
    every = list(dict.fromkeys(workload for some in drawn.values() for workload in some))
    assert len(every) >= 60
    assert sum(workload.kv_len >= 1024 for workload in every) >= 15
    assert sum(workload.group_size >= 4 for workload in every) >= 15
    assert sum(len(set(workload.lengths.tolist())) > 1 or
               min(workload.lengths) < workload.kv_len for workload in every) >= 15  # fmt: skip
    assert sum(workload.head_dim == 128 for workload in every) * 2 >= len(every)
    tried = [*every, *explicit]
    assert {1, 31, 33, 4097} <= {workload.kv_len for workload in tried}
    assert {workload.distribution for workload in tried} == set(DISTRIBUTIONS)
    for rung in RUNGS:
        taken = [dim for dim in HEAD_DIMS if rung.supports(Workload(1, 4, 1, 9, dim)) is None]
        assert runs[rung.id] >= 30 * len(taken) > 0, rung.id
