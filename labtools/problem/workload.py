"""What is computed: the shape, the lengths, the inputs and the state of the cache."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import LabError

DISTRIBUTIONS = ("normal", "late_peaked", "rising", "large", "one_hot", "constant_v")
"""Input distributions; `labtools.problem.inputs` says what each one is for."""

CACHE_STATES = ("cold", "warm")
DTYPES = ("float16", "bfloat16")
LAYOUTS = ("contiguous", "paged")
PAGE_SIZES = (16, 64)
"""Tokens of one page of a paged cache."""
LARGEST = 2**31 - 1
"""Kernels take sizes as int."""
_BYTES_PER_ELEMENT = {"float16": 2, "bfloat16": 2}
_OPTIONS: dict[str, dict[str, Any]] = {
    "fp16": {"dtype": "float16"},
    "bf16": {"dtype": "bfloat16"},
    **{f"paged{size}": {"layout": "paged", "page_size": size} for size in PAGE_SIZES},
    "warm": {"cache_state": "warm"},
}
"""What may stand behind a short form, after a slash."""
_SHAPE_FIELDS = ("batch", "num_qo_heads", "num_kv_heads", "kv_len", "head_dim")


def element_dtype(name: str) -> np.dtype:
    """The numpy type of a name; numpy itself does not know ``bfloat16``.

    Raises:
        LabError: the package ml_dtypes, which brings bfloat16, is not installed.
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise LabError(
            "bfloat16 arrays cannot be made here.",
            "the package ml_dtypes is not installed",
            "float16 workloads; pip install ml_dtypes adds the others",
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Workload:
    """One decode-attention problem: one query token a sequence against its KV cache.

    Args:
        batch: number of sequences, B.
        num_qo_heads: query (and output) heads, Hq; a multiple of ``num_kv_heads``.
        num_kv_heads: key and value heads, Hkv.
        kv_len: cached tokens S; the padded length when ``seq_lens`` is given.
        head_dim: elements of one head, D.
        seq_lens: tokens of each sequence, B values in 1..S; None means S for all.
        dtype: element type of q, k, v and the output, ``float16`` or ``bfloat16``.
        layout: ``contiguous`` is k, v as ``[B, Hkv, S, D]``; ``paged`` is k, v as
            ``[num_pages, Hkv, page_size, D]`` with a page table ``[B, max_pages]``.
        distribution: one of `DISTRIBUTIONS`.
        seed: seed of the input generator.
        cache_state: ``cold`` (buffers rotated past the L2) or ``warm``.
        page_size: tokens of one page when paged, one of `PAGE_SIZES`; 0 otherwise.

    Raises:
        LabError: a value that does not describe a problem.
    """

    batch: int
    num_qo_heads: int
    num_kv_heads: int
    kv_len: int
    head_dim: int
    seq_lens: tuple[int, ...] | None = None
    dtype: str = "float16"
    layout: str = "contiguous"
    distribution: str = "normal"
    seed: int = 0
    cache_state: str = "cold"
    page_size: int = 0

    def __post_init__(self) -> None:
        for name in _SHAPE_FIELDS:
            value = getattr(self, name)
            if not _is_whole(value) or value < 1:
                _refuse(f"{name} is {value!r}", "it must be a whole number of at least 1")
            if value > LARGEST:
                _refuse(f"{name} is {value!r}", f"it must be at most {LARGEST}, an int of a kernel")
            object.__setattr__(self, name, int(value))
        if self.num_qo_heads % self.num_kv_heads:
            _refuse(
                f"{self.num_qo_heads} query heads over {self.num_kv_heads} KV heads",
                "every KV head serves the same number of query heads",
            )
        if self.seq_lens is not None:
            if not isinstance(self.seq_lens, (list, tuple, np.ndarray)) or not all(
                _is_whole(n) for n in self.seq_lens
            ):
                _refuse(f"seq_lens is {self.seq_lens!r}", "it must be a list of whole numbers")
            object.__setattr__(self, "seq_lens", tuple(int(n) for n in self.seq_lens))
            if len(self.seq_lens) != self.batch:
                _refuse(
                    f"seq_lens has {len(self.seq_lens)} values for a batch of {self.batch}",
                    "it needs one length a sequence",
                )
            if min(self.seq_lens) < 1 or max(self.seq_lens) > self.kv_len:
                _refuse(
                    f"seq_lens {list(self.seq_lens)}", f"each must lie in 1..{self.kv_len} (kv_len)"
                )
        if not _is_whole(self.seed) or self.seed < 0:
            _refuse(f"seed is {self.seed!r}", "it must be a whole number of at least 0")
        object.__setattr__(self, "seed", int(self.seed))
        for name, choices in (
            ("dtype", DTYPES),
            ("layout", LAYOUTS),
            ("distribution", DISTRIBUTIONS),
            ("cache_state", CACHE_STATES),
        ):
            if getattr(self, name) not in choices:
                _refuse(f"{name} is {getattr(self, name)!r}", f"it must be one of {choices}")
        if not _is_whole(self.page_size):
            _refuse(f"page_size is {self.page_size!r}", "it must be a whole number")
        object.__setattr__(self, "page_size", int(self.page_size))
        if self.is_paged and self.page_size not in PAGE_SIZES:
            _refuse(
                f"a paged cache with page_size {self.page_size}",
                f"it must be one of {PAGE_SIZES}",
            )
        if not self.is_paged and self.page_size:
            _refuse(
                f"page_size is {self.page_size} and the cache is contiguous",
                "only a paged cache has pages",
            )

    @classmethod
    def parse(cls, text: str) -> Workload:
        """Read the short form or the path of a JSON file (the long form).

        The short form is ``B,Hq,Hkv,S,D`` and, behind slashes and in any order, what is not as
        usual: ``bf16``, ``paged16`` or ``paged64``, ``warm``; for example
        ``8,32,8,4096,128/bf16/paged16``.

        Raises:
            LabError: the text is neither.
        """
        if text.endswith(".json"):
            try:
                return cls.from_dict(json.loads(Path(text).read_text("utf-8")))
            except (OSError, ValueError) as error:
                _refuse(f"the file {text}", f"it could not be read as JSON: {error}")
        shape, *options = text.split("/")
        try:
            numbers = [int(part) for part in shape.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != len(_SHAPE_FIELDS):
            _refuse(repr(text), "the short form is five whole numbers: B,Hq,Hkv,S,D")
        fields: dict[str, Any] = dict(zip(_SHAPE_FIELDS, numbers, strict=True))
        for option in options:
            chosen = _OPTIONS.get(option.strip().lower())
            if chosen is None:
                _refuse(
                    repr(text),
                    f"{option!r} is no option; behind the five numbers may stand "
                    f"{', '.join('/' + name for name in _OPTIONS)}",
                )
            elif set(chosen) & set(fields):
                _refuse(repr(text), f"/{option} says again what another option said")
            else:
                fields.update(chosen)
        return cls.from_dict(fields)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Workload:
        """The inverse of `to_dict`.

        Raises:
            LabError: a field is missing or unknown.
        """
        if not isinstance(data, dict):
            _refuse(repr(data), "a JSON workload is an object with named fields")
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(data) - known)
        missing = sorted(set(_SHAPE_FIELDS) - set(data))
        if unknown or missing:
            _refuse(f"fields {sorted(data)}", f"unknown: {unknown}; missing: {missing}")
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them; without a page size where there are no pages."""
        data = dataclasses.asdict(self)
        if not self.is_paged:
            del data["page_size"]  # so that the key is what it was before there were pages
        if self.seq_lens is not None:
            data["seq_lens"] = list(self.seq_lens)
        return data

    def replace(self, **changes: Any) -> Workload:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def short(self) -> str:
        """The short form: ``B,Hq,Hkv,S,D``, and ``/bf16``, ``/paged16`` where it is so.

        Lengths, distribution, seed and cache state are not in it.
        """
        text = ",".join(str(getattr(self, name)) for name in _SHAPE_FIELDS)
        if self.dtype == "bfloat16":
            text += "/bf16"
        return text + (f"/paged{self.page_size}" if self.is_paged else "")

    def key(self) -> str:
        """One string that two workloads share only if they are the same problem."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def __str__(self) -> str:
        extras = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if field.name not in (*_SHAPE_FIELDS, "dtype", "layout", "page_size")
            and getattr(self, field.name) != field.default
            and field.name != "seq_lens"
        ]
        if self.seq_lens is not None:
            extras.insert(0, "ragged")
        return " ".join([self.short(), *extras])

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head, Hq / Hkv."""
        return self.num_qo_heads // self.num_kv_heads

    @property
    def is_paged(self) -> bool:
        """Whether K and V lie in pages."""
        return self.layout == "paged"

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
    def sm_scale(self) -> float:
        """The softmax scale, 1 / sqrt(D)."""
        return 1.0 / float(np.sqrt(self.head_dim))

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return _BYTES_PER_ELEMENT[self.dtype]

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
    def flops(self) -> int:
        """Multiply-adds of q.k and p.v, counted as two each: 4 Hq D a key."""
        return 4 * self.num_qo_heads * self.head_dim * int(self.lengths.sum())

    @property
    def kv_row_visits(self) -> int:
        """(query head, key) pairs: the work of a kernel that serves each query head apart."""
        return self.num_qo_heads * int(self.lengths.sum())


HEADLINE = Workload(8, 32, 8, 4096, 128)
"""The guide's headline workload: Llama-3-8B heads, batch 8, 4096 cached tokens, fp16."""


def _refuse(what: str, why: str) -> None:
    raise LabError(
        f"This is not a workload: {what}.",
        f"{why}.",
        "a workload looks like 8,32,8,4096,128 (B,Hq,Hkv,S,D) or is a JSON file with those fields",
    )
