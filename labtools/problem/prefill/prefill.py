"""What is computed: a shape, how many queries there are, and which keys each of them sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..attention import AttentionProblem
from ..problem import SHORT_DTYPES, WARM, Buffer, is_whole


@dataclass(frozen=True)
class Prefill(AttentionProblem):
    """Attention of N queries a sequence over its S keys, with or without a causal mask.

    The mask is aligned at the last key: query i sees the keys 0 .. S - N + i, so that the last
    query sees all of them.
    """

    operation: ClassVar[str] = "prefill"
    example = "prefill:4,32,8,4096,128/causal"
    axes = ("sequence", "head", "query", "dim")
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "causal": {"causal": True},
        **SHORT_DTYPES,
        **WARM,
    }
    counted: ClassVar[Mapping[str, str]] = {"q": "qo_len"}

    # queries of a sequence, N; 0 means as many as keys. With a causal mask at most S, since a query
    # before the first key would see none.
    qo_len: int = 0
    causal: bool = False  # whether there is the mask
    dtype: str = "float16"  # element type of q, k, v and the output, ``float16`` or ``bfloat16``
    distribution: str = "normal"  # one of `distributions`
    seed: int = 0  # seed of the input generator
    cache_state: str = "cold"  # ``cold`` (buffers rotated past the L2) or ``warm``

    def __post_init__(self) -> None:
        self.check_shape()
        self.check_heads()
        if not isinstance(self.causal, bool):
            self.refuse(f"causal is {self.causal!r}", "it must be true or false")
        if not is_whole(self.qo_len) or self.qo_len < 0:
            self.refuse(
                f"qo_len is {self.qo_len!r}",
                "it must be a whole number of at least 1, or 0 for as many queries as keys",
            )
        # One problem has one form.
        own = 0 if self.qo_len == self.kv_len else int(self.qo_len)
        object.__setattr__(self, "qo_len", own)
        if self.causal and self.num_queries > self.kv_len:
            self.refuse(
                f"{self.num_queries} queries over {self.kv_len} keys with a causal mask",
                "the mask is aligned at the last key, so the first queries would see no key",
            )
        self.check_kind()
        self.check_size()

    @property
    def num_queries(self) -> int:
        """Queries of a sequence, N."""
        return self.qo_len or self.kv_len

    def keys_seen(self) -> np.ndarray:
        """How many keys, from the first one on, each query sees, int64 ``[N]``."""
        if not self.causal:
            return np.full(self.num_queries, self.kv_len)
        return np.arange(self.kv_len - self.num_queries, self.kv_len) + 1

    @property
    def pairs(self) -> int:
        """(query, key) pairs of one head that the mask leaves."""
        queries = self.num_queries
        masked = queries * (queries - 1) // 2 if self.causal else 0
        return queries * self.kv_len - masked

    def numbers(self) -> dict[str, float]:
        """As of attention, the queries of a sequence, and whether the mask is there."""
        numbers = super().numbers()
        return {**numbers, "num_queries": self.num_queries, "causal": int(self.causal)}

    def shape_words(self) -> list[int]:
        """The shape, the queries and the mask."""
        return [*super().shape_words(), self.num_queries, int(self.causal)]

    @property
    def inputs(self) -> dict[str, Buffer]:
        """q ``[B, Hq, N, D]``, k and v ``[B, Hkv, S, D]``."""
        return {"q": self.output, "k": self.kv_buffer(), "v": self.kv_buffer()}

    @property
    def output(self) -> Buffer:
        """out ``[B, Hq, N, D]``."""
        shape = (self.batch, self.num_qo_heads, self.num_queries, self.head_dim)
        return Buffer(shape, self.dtype)

    @property
    def streamed_bytes(self) -> int:
        """q, k, v and the output, each once."""
        return self.set_bytes

    @property
    def minimal_bytes(self) -> int:
        """As `streamed_bytes`; the scores need not touch memory."""
        return self.set_bytes

    @property
    def flops(self) -> int:
        """Multiply-adds of q.k and p.v, counted as two each: 4 D a (query, key) pair."""
        return 4 * self.batch * self.num_qo_heads * self.head_dim * self.pairs

    @property
    def uneven(self) -> bool:
        """With a mask the last query has more keys than the first."""
        return self.causal and self.num_queries > 1

    @property
    def visits(self) -> int:
        """(query, key) pairs of all heads."""
        return self.batch * self.num_qo_heads * self.pairs

    @property
    def part_visits(self) -> int:
        """Keys of one query, at most."""
        return self.kv_len
