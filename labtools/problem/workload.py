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
DTYPES = ("float16",)
LAYOUTS = ("contiguous",)
LARGEST = 2**31 - 1
"""Kernels take sizes as int."""
_BYTES_PER_ELEMENT = {"float16": 2}
_SHAPE_FIELDS = ("batch", "num_qo_heads", "num_kv_heads", "kv_len", "head_dim")


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
        dtype: element type of q, k, v and the output.
        layout: ``contiguous`` is k, v as ``[B, Hkv, S, D]``.
        distribution: one of `DISTRIBUTIONS`.
        seed: seed of the input generator.
        cache_state: ``cold`` (buffers rotated past the L2) or ``warm``.

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

    @classmethod
    def parse(cls, text: str) -> Workload:
        """Read the short form ``B,Hq,Hkv,S,D`` or the path of a JSON file (the long form).

        Raises:
            LabError: the text is neither.
        """
        if text.endswith(".json"):
            try:
                return cls.from_dict(json.loads(Path(text).read_text("utf-8")))
            except (OSError, ValueError) as error:
                _refuse(f"the file {text}", f"it could not be read as JSON: {error}")
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != len(_SHAPE_FIELDS):
            _refuse(repr(text), "the short form is five whole numbers: B,Hq,Hkv,S,D")
        return cls.from_dict(dict(zip(_SHAPE_FIELDS, numbers, strict=True)))

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
        """All fields, as JSON can hold them."""
        data = dataclasses.asdict(self)
        if self.seq_lens is not None:
            data["seq_lens"] = list(self.seq_lens)
        return data

    def replace(self, **changes: Any) -> Workload:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def short(self) -> str:
        """The short form, ``B,Hq,Hkv,S,D``."""
        return ",".join(str(getattr(self, name)) for name in _SHAPE_FIELDS)

    def key(self) -> str:
        """One string that two workloads share only if they are the same problem."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def __str__(self) -> str:
        extras = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if field.name not in _SHAPE_FIELDS
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
        """Least traffic with memory: K and V once, q once, the output once, the lengths."""
        heads = 2 * self.batch * self.num_qo_heads * self.head_dim * self.element_bytes
        return self.kv_bytes + heads + 4 * self.batch

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
