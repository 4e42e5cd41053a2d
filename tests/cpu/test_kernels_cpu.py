"""All shipped decode kernels on drawn workloads, run on the CPU against the float64 oracle.

Every workload is given to all kernels that take it, with drawn knobs, in the even order of warps
or in an adversarial one; each kernel meets both.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest
from devices import LIMITS, some_of

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
from labtools.toolchain.cache import code_digest

RUNGS = list_rungs("decode")
DRAWS = 5
"""Workloads drawn for each kind and head dimension."""
ROW_BUDGET = 4_200
"""About the most (query head, key) pairs of one workload: each of twelve kernels runs them, at some
ten thousand a second where warps meet often."""
KINDS = ("long", "grouped", "ragged")
HEAD_DIMS = (64, 128)
WIDE = [rung for rung in RUNGS if rung.supports(Workload.parse("1,4,1,9,128/bf16/paged16")) is None]
"""The rungs that take pages and bfloat16."""
SMEM_BYTES = 227 * 1024
"""Of one block on sm_90."""

LENGTHS = {"long": (1024, 1800), "grouped": (1, 200), "ragged": (2, 200)}
"""Keys of the longest sequence, by kind."""


def seeded(*of: object) -> random.Random:
    """Numbers that are other ones after a change of the code."""
    return random.Random(f"{code_digest('problem', 'measure')} {of}")


def drawn_workloads(kind: str, head_dim: int) -> list[Workload]:
    """Of a kind, within the row budget. Some kernels are compiled for the query heads of a KV head,
    so there are two numbers of them."""
    rng = seeded(kind, head_dim)
    groups = (4, 8) if kind == "grouped" else seeded(head_dim).sample((1, 2, 3, 4), 2)
    distributions = rng.sample(DISTRIBUTIONS, len(DISTRIBUTIONS))
    shortest, longest = LENGTHS[kind]
    found = []
    for index in range(DRAWS):
        group = groups[index % 2]
        kv_len = rng.randint(shortest, min(longest, ROW_BUDGET // group))
        kv_heads = rng.randint(1, min(3, ROW_BUDGET // (group * kv_len)))
        least = 2 if kind == "ragged" else 1
        most = max(least, min(4, ROW_BUDGET // (group * kv_heads * kv_len)))
        batch, seq_lens = rng.randint(least, most), None
        if kind == "ragged":
            lengths = [rng.randint(1, kv_len) for _ in range(batch)]
            lengths[rng.randrange(batch)] = rng.randint(1, kv_len - 1)
            seq_lens = tuple(lengths)
        shape = (batch, group * kv_heads, kv_heads, kv_len, head_dim)
        distribution = distributions[index % len(distributions)]
        seed = rng.getrandbits(31)
        found.append(Workload(*shape, seq_lens=seq_lens, distribution=distribution, seed=seed))
    return found


@cache
def drawn_knobs(head_dim: int) -> dict[str, dict[str, int]]:
    """A choice of every kernel's knobs, none of them left to a rule.

    One for all kinds of a head dimension: compiling a kernel takes longer than running it.
    """
    rng = seeded(head_dim)
    return {
        rung.id: {
            knob.name: rng.choice([n for n in knob.choices if n or knob.compiled])
            for knob in rung.knobs
        }
        for rung in RUNGS
    }


def check_all(workload: Workload, knobs: dict[str, dict[str, int]]) -> list[str]:
    """Run every kernel that takes the workload; an AssertionError says which is wrong, and why.

    Returns: the kernels.
    """
    inputs = make_inputs(workload)
    ran = []
    for index, rung in enumerate(RUNGS):
        if rung.supports(workload) is not None:
            continue
        chosen = fitting(rung, workload, knobs.get(rung.id, {}))
        order = (workload.seed + index) % 4  # 0 is the even one
        run = run_on_cpu(rung, workload, chosen, orders=(order,), inputs=inputs)
        assert run.ok, f"{rung.id} {chosen} on {workload!r}: {run}"
        ran.append(rung.id)
    return ran


def fitting(rung: Rung, workload: Workload, knobs: dict[str, int]) -> dict[str, int]:
    """The knobs, or the defaults where they want more shared memory than there is."""
    try:
        launches = rung.launches(workload, LIMITS, knobs)
    except LabError:  # a rung that lays its blocks out by itself says that they do not fit
        return {}
    return knobs if max(one.smem_bytes for one in launches) <= SMEM_BYTES else {}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "head_dim"), some_of([(kind, dim) for kind in KINDS for dim in HEAD_DIMS], 2), ids=str
)
def test_drawn_workloads(kind, head_dim):
    """Some of each kind and head dimension, each on every kernel that takes it."""
    runs: Counter[str] = Counter()
    for workload in drawn_workloads(kind, head_dim):
        runs.update(check_all(workload, drawn_knobs(head_dim)))
    for rung in RUNGS:
        if rung.supports(Workload(1, 4, 1, 9, head_dim)) is None:
            assert runs[rung.id] == DRAWS, rung.id


ALWAYS = (
    Workload(3, 8, 2, 1, 128, distribution="large"),
    Workload(2, 8, 2, 1, 64, distribution="one_hot"),
    Workload(2, 6, 3, 31, 64, distribution="rising"),
    Workload(2, 4, 1, 31, 128, distribution="constant_v"),
    Workload(2, 8, 2, 33, 128, distribution="late_peaked"),
    Workload(2, 3, 3, 33, 64, distribution="normal"),
    Workload(1, 2, 1, 4097, 128, distribution="early_peaked"),
    Workload(1, 2, 2, 4097, 64, distribution="large"),
    Workload(2, 4, 2, 130, 64, distribution="sunk"),
    Workload(2, 4, 2, 70, 64, distribution="outliers"),
    Workload(2, 4, 2, 66, 128, distribution="small_v"),
    Workload(2, 4, 2, 65, 64, distribution="equal_keys"),
    Workload(2, 4, 2, 129, 128, distribution="sink"),
    Workload(2, 4, 2, 257, 64, distribution="faint"),
)


@pytest.mark.parametrize("workload", ALWAYS, ids=repr)
def test_lengths_that_are_always_tried(workload):
    assert check_all(workload, {})


def test_they_and_the_drawn_ones_are_enough():
    assert len(KINDS) * len(HEAD_DIMS) * DRAWS >= 30
    assert {1, 31, 33, 4097} <= {workload.kv_len for workload in ALWAYS}
    assert {workload.distribution for workload in ALWAYS} == set(DISTRIBUTIONS)


@pytest.mark.parametrize("rung", some_of(WIDE, 2), ids=lambda rung: rung.id)
def test_pages_and_bfloat16(rung):
    def supports(workload: Workload) -> str | None:
        plain = workload.dtype == "float16" and not workload.is_paged
        return "it is drawn elsewhere" if plain else rung.supports(workload)

    for index, workload in enumerate(
        draw_workloads(6, len(rung.id), supports, longest=300, most_elements=2**15)
    ):
        run = run_on_cpu(rung, workload, orders=(index % 4,))
        assert run.ok, f"{rung.id} on {workload!r}: {run}"


def test_some_rungs_take_pages_and_bfloat16():
    assert {"r09", "r10", "r11"} <= {rung.id[:3] for rung in WIDE}
