"""Decode attention as an operation: what every later room asks of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..attention import EXTREME, TELLING, altered_rows, sunk_deeper
from ..errors import LabError
from ..problem import Fetch, Fill, Operation, Part, Rng, Store, Supports, takes_all
from ..storage import StorageFormat
from .battery import battery, covered, draw_workloads, levels_of
from .inputs import Inputs, make_inputs, make_page_table
from .oracle import attention_oracle
from .outliers import errors_of_scheme
from .quantise import dequantise_inputs
from .scheme import Scheme
from .workload import HEADLINE, LargePool, Workload


class DecodeAttention(Operation[Workload, Inputs]):
    """One query token a sequence against its KV cache."""

    problem = Workload
    headline = HEADLINE
    small = Workload(2, 8, 2, 300, 128)  # ragged ends show at 300
    watched = Workload(2, 8, 2, 65, 128, seq_lens=(65, 31))
    bytes_name = "K and V"
    minimal_name = "K and V once, q, output"
    baseline = "sdpa"
    telling = TELLING
    extreme = EXTREME

    draw = staticmethod(make_inputs)  # type: ignore[assignment]  # it says workload for problem
    battery = staticmethod(battery)  # type: ignore[assignment]
    covered = staticmethod(covered)
    levels_of = staticmethod(levels_of)  # type: ignore[assignment]
    draw_problems = staticmethod(draw_workloads)
    stored = staticmethod(dequantise_inputs)
    errors_of_scheme = staticmethod(errors_of_scheme)

    def oracle(self, inputs: Inputs, parts: Iterable[Part] | None = None) -> np.ndarray:
        """The output of `attention_oracle`; a part is a (sequence, query head)."""
        pairs = None if parts is None else [(one[0], one[1]) for one in parts]
        return attention_oracle(inputs, pairs)[0]

    def large(self, problem: Workload) -> list[Workload]:
        """Many sequences of many heads, and a long one."""
        shapes = ((1024, 128, 8, 64), (1, 64, 8, 32768))
        names = problem.shape_fields  # the head dimension stays
        same = problem.replace(seq_lens=None)
        return [same.replace(**dict(zip(names, shape, strict=False))) for shape in shapes]

    def other_values(
        self, problem: Workload, kinds: Iterable[str] = ()
    ) -> list[tuple[str, Inputs]]:
        """Scores that sink deeper."""
        if problem.distribution != "sunk":
            return []
        drawn = self.draw(problem)
        q, k = sunk_deeper(drawn.q, drawn.k)
        return [("scores below -10^9", dataclasses.replace(drawn, q=q, k=k))]

    def far_apart(self, problem: Workload) -> list[tuple[Workload, ...]]:
        """Two KV heads whose rows begin 2^32 elements apart, and a thousand rows, where many query
        heads share one too, so that a row for each of them ends as far, and the last of many
        sequences; or the last pages of a large pool."""
        if problem.is_paged:
            return [(problem, LargePool(**vars(problem)))]
        heads = {"num_qo_heads": 2 * problem.group_size, "num_kv_heads": 2}
        near = problem.replace(batch=1, **heads, kv_len=64, seq_lens=(50,))
        far = near.replace(kv_len=2**32 // problem.head_dim + 1024)
        many = {"num_qo_heads": 2 * (problem.head_dim // 2 + 1)}
        shared = (near.replace(**many), far.replace(**many))
        return [(near, far), shared, problem.replace(seq_lens=None).of_many_sequences()]

    def widening(
        self, problem: Workload, supports: Supports = takes_all
    ) -> list[tuple[Workload, str]]:
        """Any number of sequences."""
        return problem.replace(seq_lens=None).widening(supports)

    def kinds(self, problem: Workload) -> list[Workload]:
        """Every type, contiguous and in pages; a battery of one page size tries the other too."""
        lies = {"layout": "contiguous", "page_size": 0}, {"layout": "paged", "page_size": 16}
        others = lies[problem.layout == "contiguous"]
        typed = super().kinds(problem)
        return [*typed, *(one.replace(**others) for one in typed)]

    def fills(self, problem: Workload, seed: int) -> list[Fill]:
        """Normal numbers in q, k and v; NaN in rows past a length and in the pages of nobody.

        The table is the workload's own, whatever the seed: all layers of a model share one.
        """
        rows = problem.lengths
        fills = [Fill("seq_lens", rows)]
        if problem.is_paged:
            table = make_page_table(problem)
            fills.append(Fill("page_table", table))
            rows = _rows_of_pages(problem, table)
        heads = problem.num_kv_heads
        fills += [Fill("q", seed=3 * seed), Fill("k", None, 3 * seed + 1, heads, rows)]
        return [*fills, Fill("v", None, 3 * seed + 2, heads, rows)]

    def read_part(self, problem: Workload, part: Part, fetch: Fetch) -> Inputs:
        """The inputs of one (sequence, query head), contiguous, as a workload of its own."""
        sequence, head = part
        length = int(problem.lengths[sequence])
        kv_head = head // problem.group_size
        shape, lengths = (1, 1, 1, max(1, length), problem.head_dim), None if length else (0,)
        small = Workload(*shape, seq_lens=lengths, dtype=problem.dtype)
        if problem.is_paged:
            used = -(-length // problem.page_size)
            pages = [int(page) for page in fetch("page_table", (sequence,))[:used]]
            k, v = (
                np.concatenate([fetch(name, (page, kv_head)) for page in pages or [0]])[:length]
                for name in ("k", "v")
            )
        else:
            k, v = (fetch(name, (sequence, kv_head, slice(length))) for name in ("k", "v"))
        return Inputs(
            q=fetch("q", (sequence, head)).reshape(1, 1, -1),
            k=k[None, None],
            v=v[None, None],
            seq_lens=np.array([length], np.int32),
            sm_scale=problem.sm_scale,
            workload=small,
        )

    def alter_part(
        self, problem: Workload, part: Part, fetch: Fetch, store: Store, rng: Rng
    ) -> None:
        """Another row of V where most weight is, and the key of that row at another place too."""
        sequence, head = part
        mine = self.read_part(problem, part, fetch)
        for name, row, array in altered_rows(mine.q[0, 0], mine.k[0, 0], mine.v[0, 0], rng):
            place: tuple[int, ...] = (sequence, head // problem.group_size, row)
            if problem.is_paged:
                page = fetch("page_table", (sequence,))[row // problem.page_size]
                place = (int(page), place[1], row % problem.page_size)
            store(name, place, array)

    def check_scheme(self, rung: str, scheme: Scheme) -> None:
        """Refuse one scale a tensor, which no part of a cache can be checked by itself with."""
        if "tensor" in (scheme.k.axis, scheme.v.axis):
            raise LabError(
                f"{rung} stores K or V with one scale for the whole tensor ({scheme.name}).",
                "a rung is checked one sequence and head at a time, and a cache that grows token "
                "by token has no such scale",
                "a scheme with a scale a row, a group or a channel",
            )

    def read_scheme(self, data: Mapping[str, Any]) -> Scheme:
        return Scheme(data["name"], StorageFormat(**data["k"]), StorageFormat(**data["v"]))


def _rows_of_pages(workload: Workload, table: np.ndarray) -> np.ndarray:
    """How many rows of each page hold a token, int32 ``[num_pages]``."""
    rows = np.zeros(workload.num_pages, np.int32)
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        used = -(-length // workload.page_size)
        rows[table[sequence, :used]] = workload.page_size
        if used:
            rows[table[sequence, used - 1]] = length - (used - 1) * workload.page_size
    return rows
