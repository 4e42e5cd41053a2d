"""What is computed: the shape, the lengths, the inputs and the state of the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..attention import AttentionProblem
from ..problem import MOST_END, SHORT_DTYPES, WARM, Buffer, is_whole

LAYOUTS = ("contiguous", "paged")
PAGE_SIZES = (16, 64)
"""Tokens of one page of a paged cache."""
PAGE_TABLE = "page_table"
"""The input that is there for paged workloads only."""


@dataclass(frozen=True)
class Workload(AttentionProblem):
    """One decode-attention problem: one query token a sequence against its KV cache; a LabError for
    a value that does not describe a problem."""

    operation: ClassVar[str] = "decode"
    example = "8,32,8,4096,128"
    axes = ("sequence", "head", "dim")
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **SHORT_DTYPES,
        **{f"paged{size}": {"layout": "paged", "page_size": size} for size in PAGE_SIZES},
        **WARM,
    }

    small_v = 2.0**-12

    # tokens of each sequence, B values in 0..S; None means S for all. One without tokens has an
    # output of zeros.
    seq_lens: tuple[int, ...] | None = None
    dtype: str = "float16"  # element type of q, k, v and the output, ``float16`` or ``bfloat16``
    # ``contiguous`` is k, v as ``[B, Hkv, S, D]``; ``paged`` is k, v as ``[num_pages, Hkv,
    # page_size, D]`` with a page table ``[B, max_pages]``
    layout: str = "contiguous"
    distribution: str = "normal"  # one of `distributions`
    seed: int = 0  # seed of the input generator
    cache_state: str = "cold"  # ``cold`` (buffers rotated past the L2) or ``warm``
    page_size: int = 0  # tokens of one page when paged, one of `PAGE_SIZES`; 0 otherwise

    def __post_init__(self) -> None:
        self.check_shape()
        self.check_heads()
        if self.seq_lens is not None:
            if not isinstance(self.seq_lens, (list, tuple, np.ndarray)) or not all(
                is_whole(n) for n in self.seq_lens
            ):
                self.refuse(f"seq_lens is {self.seq_lens!r}", "it must be a list of whole numbers")
            object.__setattr__(self, "seq_lens", tuple(int(n) for n in self.seq_lens))
            if (count := len(self.seq_lens)) != self.batch:
                what = f"seq_lens has {count} values for a batch of {self.batch}"
                self.refuse(what, "it needs one length a sequence")
            if min(self.seq_lens) < 0 or max(self.seq_lens) > self.kv_len:
                why = f"each must lie in 0..{self.kv_len} (kv_len)"
                self.refuse(f"seq_lens {list(self.seq_lens)}", why)
        self.check_kind(layout=LAYOUTS)
        if not is_whole(self.page_size):
            self.refuse(f"page_size is {self.page_size!r}", "it must be a whole number")
        object.__setattr__(self, "page_size", int(self.page_size))
        if self.is_paged and self.page_size not in PAGE_SIZES:
            what = f"a paged cache with page_size {self.page_size}"
            self.refuse(what, f"it must be one of {PAGE_SIZES}")
        if not self.is_paged and self.page_size:
            what = f"page_size is {self.page_size} and the cache is contiguous"
            self.refuse(what, "only a paged cache has pages")
        self.check_size()

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them; without a page size where there are no pages."""
        data = super().to_dict()
        if not self.is_paged:
            del data["page_size"]  # so that the key is what it was before there were pages
        if self.seq_lens is not None:
            data["seq_lens"] = list(self.seq_lens)
        return data

    def smaller(self) -> Iterator[Workload]:
        """As of every problem, each sequence as long as the cache is wide."""
        return super(Workload, self.replace(seq_lens=None)).smaller()

    def remarks(self) -> list[str]:
        """As `Problem.remarks`; the lengths themselves are not listed."""
        usual = super(Workload, dataclasses.replace(self, seq_lens=None)).remarks()
        return usual if self.seq_lens is None else ["ragged", *usual]

    @property
    def is_paged(self) -> bool:
        """Whether K and V lie in pages."""
        return self.layout == "paged"

    @property
    def uneven(self) -> bool:
        return len(set(self.seq_lens or ())) > 1

    @property
    def empty_parts(self) -> bool:
        return 0 in (self.seq_lens or ())

    @property
    def max_pages(self) -> int:
        """Columns of the page table, ceil(S / page_size); 0 where there are no pages."""
        return -(-self.kv_len // self.page_size) if self.is_paged else 0

    @property
    def pages_used(self) -> int:
        """Pages that hold tokens; 0 where there are no pages."""
        return int((-(-self.lengths // self.page_size)).sum()) if self.is_paged else 0

    @property
    def num_pages(self) -> int:
        """Pages of the cache: those used, and a few that belong to nobody."""
        return self.pages_used + 3 + self.pages_used // 64 if self.is_paged else 0

    @property
    def kv_shape(self) -> tuple[int, int, int, int]:
        """Shape of k and of v: ``[B, Hkv, S, D]``, or ``[num_pages, Hkv, page_size, D]``."""
        if self.is_paged:
            return (self.num_pages, self.num_kv_heads, self.page_size, self.head_dim)
        return (self.batch, self.num_kv_heads, self.kv_len, self.head_dim)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence, int32 [B]."""
        if self.seq_lens is None:
            return np.full(self.batch, self.kv_len, np.int32)
        return np.asarray(self.seq_lens, np.int32)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the K and V rows that attention must read, each once."""
        rows = int(self.lengths.sum()) * self.num_kv_heads
        return 2 * rows * self.head_dim * self.element_bytes

    @property
    def minimal_bytes(self) -> int:
        """Least traffic with memory: K and V once, q once, the output once, lengths and pages."""
        heads = 2 * self.batch * self.num_qo_heads * self.head_dim * self.element_bytes
        return self.kv_bytes + heads + 4 * self.batch + 4 * self.pages_used

    @property
    def streamed_bytes(self) -> int:
        return self.kv_bytes

    @property
    def flops(self) -> int:
        """Multiply-adds of q.k and p.v, counted as two each: 4 Hq D a key."""
        return 4 * self.num_qo_heads * self.head_dim * int(self.lengths.sum())

    @property
    def visits(self) -> int:
        """(query head, key) pairs: the work of a kernel that serves each query head apart."""
        return self.num_qo_heads * int(self.lengths.sum())

    @property
    def part_visits(self) -> int:
        """Keys of one sequence, padded."""
        return self.kv_len

    @property
    def size_ends(self) -> set[tuple[str, int]]:
        """Of the width of the cache, and how long the last page of a sequence is."""
        width = min(self.kv_len & -self.kv_len, MOST_END)
        return {("kv_len", width), *(("rows", int(n) % MOST_END) for n in self.lengths)}

    @property
    def call_inputs(self) -> tuple[str, ...]:
        """The query; the cache is written before."""
        return ("q",)

    @property
    def inputs(self) -> dict[str, Buffer]:
        """q, k, v, the lengths and, where there are pages, their table."""
        kv = Buffer(self.kv_shape, self.dtype)
        lengths = Buffer((self.batch,), "int32")
        named = {"q": self.output, "k": kv, "v": kv, "seq_lens": lengths}
        if self.is_paged:
            named[PAGE_TABLE] = Buffer((self.batch, self.max_pages), "int32")
        return named

    @property
    def output(self) -> Buffer:
        """out ``[B, Hq, D]``."""
        return Buffer((self.batch, self.num_qo_heads, self.head_dim), self.dtype)

    def why_absent(self, name: str) -> str | None:
        """Of the page table, where there are no pages."""
        return "the cache of this workload is contiguous" if name == PAGE_TABLE else None

    @property
    def used_share(self) -> float:
        """Keys of all sequences over those of the padded cache."""
        return int(self.lengths.sum()) / (self.kv_len * self.batch)

    def defines(self) -> dict[str, str]:
        """``HEAD_DIM``; ``BF16=1`` for bfloat16 and ``PAGE_SIZE`` for a paged cache."""
        defines = super().defines()
        if self.is_paged:
            defines["PAGE_SIZE"] = str(self.page_size)
        return defines

    def code_key(self) -> tuple[Any, ...]:
        """Head dimension, type and layout; the battery of one page size tries the other too."""
        return (self.head_dim, self.dtype, self.layout)

    def call_bytes(self, read: Iterable[str]) -> int:
        """`minimal_bytes` less K or V, where a call does not read it."""
        half, named = self.kv_bytes // 2, set(read)
        return self.minimal_bytes - half * (("k" not in named) + ("v" not in named))

    def traced_contents(self) -> dict[str, np.ndarray]:
        """The lengths, and a page table whose pages lie one after another, int32 [B, max_pages].

        A real cache has them in any order. A page is a run of memory either way, as long as a
        block reads at a time, so the order changes which bytes are read and not how many, or in
        what pieces.
        """
        contents = {"seq_lens": self.lengths}
        if self.is_paged:
            used = -(-self.lengths // self.page_size)
            first = np.r_[0, np.cumsum(used)[:-1]]
            place = np.arange(self.max_pages)
            table = np.where(place < used[:, None], first[:, None] + place, self.num_pages)
            contents[PAGE_TABLE] = table.astype(np.int32)
        return contents

    @property
    def forecast_note(self) -> str:
        """Of the pages, where there are any."""
        if not self.is_paged:
            return ""
        return "the pages are taken to lie in order, which changes no number of bytes"


HEADLINE = Workload(8, 32, 8, 4096, 128)
"""The guide's headline workload: Llama-3-8B heads, batch 8, 4096 cached tokens, fp16."""


@dataclass(frozen=True)
class LargePool(Workload):
    """A paged workload whose pages are the last of a pool of 2^32 elements and more."""

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        page = self.num_kv_heads * self.page_size * self.head_dim
        return 2**32 // page + 2 * super().num_pages

    def place(self, name: str, array: np.ndarray) -> tuple[np.ndarray, int]:
        """The last pages, and the table of them."""
        first = self.num_pages - super().num_pages
        if name == PAGE_TABLE:
            return array + np.int32(first), 0
        return array, first if name in ("k", "v") else 0
