"""Prefill attention as an operation: inputs that find wrong kernels, the answer, the battery.

`labtools.problem.attention` says what each distribution is for. With a causal mask a query sees
only the first keys, so where one key takes all the weight (``sunk``, ``one_hot``) there is a
second one that every query sees, half as high.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import attention
from ..pairs import TILE_ENDS, Levels, case_cost, in_turn, joint_cases, size_level, size_levels
from ..problem import (
    DRAWN_DTYPES,
    DrawnArrays,
    Fetch,
    Fill,
    Operation,
    Part,
    Rng,
    Store,
    Supports,
    draw_supported,
    supported,
    takes_all,
)
from ..storage import element_dtype
from .prefill import Prefill

_SUNK_IN_BFLOAT16 = 1 / 32
"""Of the scores: beside larger ones a weight that is one comes out as up to 1.04, which bfloat16
rounds by more than an output may be off."""
_ONE_PEAK = ("sunk", "one_hot")
"""Where one key takes all the weight, and a mask may hide it."""
_ENDS = (1, 2, 5, 7, 15, 16, 31, 32, 63, 64, 65, 70, 97, 127, 128, 129, 143, 160, 192, 200)
FACTORS: Mapping[str, Sequence[Any]] = {
    "kv_len": (*_ENDS, 257, 271, 300, 320),
    "qo_len": (*(0,) * 4, *_ENDS),
    "batch": (1, 2, 3),
    "num_kv_heads": (1, 2, 3),
    "group": (1, 3, 4),
    "causal": (False, True),
}
"""Keys and queries (0: as many) below, at and above what tiles of 64 hold, with every end."""
_STARTS = {
    **{"S": (1, 2, 33, 129, 257), "N": (1, 2, 33, 129)},
    **{"B": (1, 2), "Hkv": (1, 2), "group": (1, 2)},
}
LARGER = (
    *((2, 2, 129, 128, "rising", True), (2, 1, 192, 127, "rising", True)),
    *((1, 1, 190, 128, "rising", True), (1, 1, 144, 144, "late_peaked", True)),
    *((1, 1, 700, 33, "late_peaked", True), (4, 2, 2049, 5, "sink", True)),
    *((1, 1, 33003, 2, "normal", False), (7, 1, 17, 2051, "normal", False)),
    *((1, 1, 70_001, 1, "equal_keys", False), (2, 1, 4099, 3, "faint", False)),
)
"""Heads, KV heads, keys, queries, inputs and whether there is a mask: one that ends a key behind
the end of a tile of any size, or before it; many tiles of keys, and of queries; more weights of one
than a half counts."""
OTHER_SHAPES = ((7, 33, True), (150, 150, True), (129, 70, False), (1, 271, False))
"""Queries, keys and the mask with each distribution that is not telling."""
MANY_SEQUENCES = 67
"""Sequences, more than a block takes."""

SHORTEST_FAR = 32
"""Elements of a query; of shorter ones no problem has as many as an unsigned counts."""

MOST_KEYS_DRAWN = 700
MOST_PAIRS_DRAWN = 2**18


@dataclass(frozen=True)
class PrefillInputs(DrawnArrays):
    """The arrays of one problem."""

    q: np.ndarray  # in the problem's type, ``[B, Hq, N, D]``
    k: np.ndarray  # as q, ``[B, Hkv, S, D]``
    v: np.ndarray  # as k
    problem: Prefill  # what they were drawn for

    def scores(self, sequence: int, head: int, queries: Sequence[int]) -> np.ndarray:
        """The scaled scores of some queries of one head, float64 ``[len(queries), S]``.

        A key that a query does not see has -infinity.
        """
        one = self.problem
        keys = self.k[sequence, head // one.group_size].astype(np.float64)
        scores = one.sm_scale * (self.q[sequence, head, list(queries)].astype(np.float64) @ keys.T)
        hidden = np.arange(one.kv_len) >= one.keys_seen()[list(queries), None]
        scores[hidden] = -np.inf
        return scores


class PrefillAttention(Operation[Prefill, PrefillInputs]):
    """Many queries of a sequence against its keys, with or without a causal mask."""

    problem = Prefill
    headline = Prefill(4, 8, 8, 512, 64)  # of the case study that the kernels begin with
    small = Prefill(1, 4, 2, 150, 64, causal=True)  # ragged ends show at 150
    watched = Prefill(1, 4, 2, 65, 64, qo_len=35, causal=True)
    bytes_name = "q, k, v and the output"
    minimal_name = "q, k, v and the output, each once"
    baseline = "prefill_sdpa"
    telling = attention.TELLING
    extreme = attention.EXTREME

    def draw(self, problem: Prefill) -> PrefillInputs:
        rng = np.random.default_rng([problem.seed, *problem.shape_words()])
        rows = problem.group_size * problem.num_queries
        q, k, v = attention.draw_qkv(rng, problem, rows, lambda: _score_profiles(problem, rng))
        dtype = element_dtype(problem.dtype)
        q = q.reshape(problem.output.shape)
        return PrefillInputs(q.astype(dtype), k.astype(dtype), v.astype(dtype), problem)

    def oracle(self, inputs: PrefillInputs, parts: Iterable[Part] | None = None) -> np.ndarray:
        """The output, float64 ``[B, Hq, N, D]``; a part is a (sequence, query head, query)."""
        problem = inputs.problem
        out = np.full(problem.output.shape, np.nan)
        wanted: dict[tuple[int, int], list[int]] = {}
        if parts is None:
            parts = np.ndindex(problem.output.shape[:-1])  # type: ignore[assignment]
        for sequence, head, query in parts:  # type: ignore[union-attr,misc]
            wanted.setdefault((sequence, head), []).append(query)
        for (sequence, head), queries in wanted.items():
            weights, _ = attention.softmax(inputs.scores(sequence, head, queries))
            v = inputs.v[sequence, head // problem.group_size].astype(np.float64)
            out[sequence, head, queries] = weights @ v
        return out

    def battery(self, problem: Prefill, supports: Supports = takes_all) -> list[Prefill]:
        """The given problem, then small ones in which every two levels of `levels_of` meet, edges
        of the mask, many keys and many sequences; they have its head dimension and type."""
        small = Prefill(1, 2, 2, 97, problem.head_dim, dtype=problem.dtype, seed=problem.seed + 1)

        def make(group: int, **fields: Any) -> Prefill:
            return small.replace(num_qo_heads=fields["num_kv_heads"] * group, **fields)

        choices = {**FACTORS, "group": sorted({*FACTORS["group"], problem.group_size})}
        sized = joint_cases(make, choices, self.levels_of, _cost, supports)
        cases = [problem, *in_turn(sized, self.telling, supports)]
        for heads, values in zip(itertools.cycle((2, 4)), attention.NOT_TELLING):
            kind = small.replace(num_qo_heads=heads, distribution=values)
            cases += [kind.replace(qo_len=n, kv_len=s, causal=mask) for n, s, mask in OTHER_SHAPES]
        for heads, kv_heads, keys, queries, one, causal in LARGER:
            case = small.replace(num_qo_heads=heads, num_kv_heads=kv_heads, kv_len=keys)
            cases.append(case.replace(qo_len=queries, distribution=one, causal=causal))
        many = small.replace(batch=MANY_SEQUENCES, num_qo_heads=1, num_kv_heads=1, kv_len=9)
        cases.append(many.replace(causal=True))
        cases += attention.other_head_dims(small, supports)
        return supported(cases, problem, supports)

    def large(self, problem: Prefill) -> list[Prefill]:
        """One query of many sequences, and a long prompt in part and as a whole."""
        shapes = {1: (1024, 128, 8, 16), 128: (1, 64, 8, 32768), 8192: (2, 32, 8, 8192)}
        names = problem.shape_fields  # the head dimension stays
        return [
            problem.replace(causal=True, qo_len=queries, **dict(zip(names, shape, strict=False)))
            for queries, shape in shapes.items()
        ]

    def other_values(
        self, problem: Prefill, kinds: Iterable[str] = ()
    ) -> list[tuple[str, PrefillInputs]]:
        """Scores that sink deeper."""
        if problem.distribution != "sunk":
            return []
        drawn = self.draw(problem)
        q, k = attention.sunk_deeper(drawn.q, drawn.k)
        return [("scores below -10^9", dataclasses.replace(drawn, q=q, k=k))]

    def far_apart(self, problem: Prefill) -> list[tuple[Prefill, ...]]:
        """The last of many sequences, of many keys and of many queries."""
        keys = problem.replace(qo_len=1).of_many_sequences()
        few = {"num_qo_heads": 2, "num_kv_heads": 2, "kv_len": 2, "qo_len": keys[0].kv_len}
        if problem.head_dim < SHORTEST_FAR:
            return [keys]
        return [keys, problem.replace(batch=1, causal=False, **few).stretched("batch")]

    def widening(
        self, problem: Prefill, supports: Supports = takes_all
    ) -> list[tuple[Prefill, str]]:
        """One query of any number of sequences, and any number of queries of one."""
        ((narrow, along),) = problem.replace(qo_len=1, causal=False).widening(supports)
        return [(narrow, along), (narrow.replace(batch=1), "qo_len")]

    def levels_of(self, problem: Prefill) -> Levels:
        """As of every operation, the group, keys ahead of the first query, and the mask."""
        sizes = {"S": problem.kv_len, "N": problem.num_queries, "B": problem.batch}
        sizes |= {"Hkv": problem.num_kv_heads, "group": problem.group_size}
        ahead = problem.kv_len - problem.num_queries
        return {
            **size_levels(sizes, _STARTS, {"S": TILE_ENDS, "N": TILE_ENDS}),
            "ahead": size_level(ahead, (0, 1, 64)) if ahead >= 0 else "N > S",
            "mask": "causal" if problem.causal else "none",
        }

    def draw_problems(self, count: int, seed: int, supports: Supports = takes_all) -> list[Prefill]:
        """Seeded random problems: short as often as long, every kind of mask, group and inputs."""
        rng = np.random.default_rng([seed, 402])
        return draw_supported(functools.partial(_draw_problem, rng), count, supports)

    def fills(self, problem: Prefill, seed: int) -> list[Fill] | None:
        """Normal numbers, two at a time; None where their number is odd."""
        if any(one.elements % 2 for one in problem.inputs.values()):
            return None
        return [Fill(name, seed=3 * seed + index) for index, name in enumerate(problem.inputs)]

    def read_part(self, problem: Prefill, part: Part, fetch: Fetch) -> PrefillInputs:
        """One query with the keys that it sees, as a problem of its own without a mask."""
        sequence, head, query = part
        seen = int(problem.keys_seen()[query])
        kv_head = head // problem.group_size
        one = Prefill(1, 1, 1, seen, problem.head_dim, qo_len=1, dtype=problem.dtype)
        k, v = (fetch(name, (sequence, kv_head, slice(seen))) for name in ("k", "v"))
        q = fetch("q", (sequence, head, query)).reshape(1, 1, 1, -1)
        return PrefillInputs(q, k[None, None], v[None, None], one)

    def alter_part(
        self, problem: Prefill, part: Part, fetch: Fetch, store: Store, rng: Rng
    ) -> None:
        """Another row of V where most weight is, and the key of that row at another place too."""
        mine = self.read_part(problem, part, fetch)
        query, k, v = mine.q[0, 0, 0], mine.k[0, 0], mine.v[0, 0]
        for name, row, array in attention.altered_rows(query, k, v, rng):
            store(name, (part[0], part[1] // problem.group_size, row), array)


def _cost(problem: Prefill) -> int:
    """What a case costs of a kernel that goes through whole tiles of 64 x 64."""
    tiles = -(-problem.num_queries // 64) * -(-problem.kv_len // 64)
    return case_cost(300 * problem.batch * problem.num_qo_heads * tiles, problem.kv_len)


def _draw_problem(rng: np.random.Generator) -> Prefill:
    # Evenly over the logarithm: a tile's worth of keys as often as ten.
    keys = int(np.exp(rng.uniform(0, np.log(MOST_KEYS_DRAWN + 1))))
    causal = bool(rng.integers(2))
    most = keys if causal else MOST_KEYS_DRAWN
    kind = rng.choice(("all", "one", "any"), p=(0.5, 0.1, 0.4))
    queries = {"all": keys, "one": 1, "any": int(rng.integers(1, most + 1))}[str(kind)]
    room = max(1, MOST_PAIRS_DRAWN // (keys * queries))
    kv_heads = int(rng.integers(1, min(room, 4) + 1))
    group = int(rng.integers(1, min(max(1, room // kv_heads), 5) + 1))
    batch = int(rng.integers(1, min(max(1, room // (kv_heads * group)), 3) + 1))
    return Prefill(
        *(batch, kv_heads * group, kv_heads, keys, int(rng.choice((64, 128)))),
        qo_len=queries,
        causal=causal,
        dtype=str(rng.choice(DRAWN_DTYPES)),
        distribution=str(rng.choice(attention.DISTRIBUTIONS)),
        seed=int(rng.integers(2**31)),
    )


def _score_profiles(problem: Prefill, rng: np.random.Generator) -> np.ndarray:
    """The wanted scores t, float32 ``[B, Hkv, S]``."""
    profile = np.empty((problem.batch, problem.num_kv_heads, problem.kv_len), np.float32)
    for sequence, head in np.ndindex(*profile.shape[:2]):
        low = (sequence + head) % 2 == 1
        row = attention.score_profile(problem.distribution, problem.kv_len, low, rng)
        if problem.causal and problem.distribution in _ONE_PEAK:
            place = int(rng.integers(problem.keys_seen()[0]))
            row[place] = max(row[place], (row.min() + row.max()) / 2)
        if (problem.distribution, problem.dtype) == ("sunk", "bfloat16"):
            row *= _SUNK_IN_BFLOAT16
        profile[sequence, head] = row
    return profile
