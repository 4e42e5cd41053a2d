"""How a KV cache is kept in eight or four bits: a `StorageFormat` for k and v, and the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage import StorageFormat, element_bytes
from .workload import Workload

ROW_PAD = 64
"""Scales of rows are padded to a multiple of this many rows, so that tiles may read them whole."""


def scale_shape(part: StorageFormat, workload: Workload, num_pages: int = 0) -> tuple[int, ...]:
    """Shape of the scales (and of the biases) of k or v.

    ``tensor`` (1,); ``row`` [B, Hkv, S_pad]; ``row_group`` [B, Hkv, S_pad, D / group];
    ``channel`` [B, Hkv, ceil(S / group), D]. With ``num_pages`` the first two of the row kinds are
    [num_pages, Hkv, page_size] and [num_pages, Hkv, page_size, D / group].
    """
    if part.axis == "tensor":
        return (1,)
    heads, dim = workload.num_kv_heads, workload.head_dim
    if part.axis == "channel":
        return (workload.batch, heads, -(-workload.kv_len // part.group), dim)
    rows: tuple[int, ...] = (workload.batch, heads, padded_rows(workload.kv_len))
    if num_pages:
        rows = (num_pages, heads, workload.page_size)
    return rows if part.axis == "row" else (*rows, dim // part.group)


@dataclass(frozen=True)
class Scheme:
    """How a KV cache is kept: a format for k and one for v."""

    operation: ClassVar[str] = Workload.operation

    name: str
    k: StorageFormat
    v: StorageFormat

    def bytes_per_element(self, head_dim: int) -> float:
        """Bytes an element, scales included, the mean of k and v."""
        return (self.k.bytes_per_element(head_dim) + self.v.bytes_per_element(head_dim)) / 2

    @property
    def bits(self) -> int:
        """The more of those of k and v."""
        return max(self.k.bits, self.v.bits)

    @property
    def codec(self) -> str:
        """That of the one with more bits."""
        return max(self.k, self.v, key=lambda kept: kept.bits).codec

    def stored_bytes(self, problem: Workload) -> int:
        """`kv_bytes`."""
        return self.kv_bytes(problem)

    def tail_bytes(self, workload: Workload) -> float:
        """Bytes that a server's cache holds above `kv_bytes` on average while tokens come in.

        What shares a scale along tokens has no codes until its group is full. Until then its
        tokens stay in the workload's type: half a group, on average, of every sequence. The rungs
        here are given full groups and do not read such a tail.
        """
        heads, dim = workload.batch * workload.num_kv_heads, workload.head_dim
        wide = dim * element_bytes(workload.dtype)
        grouped = [part for part in (self.k, self.v) if part.axis == "channel"]
        return sum(heads * (one.group - 1) / 2 * (wide - one.code_bytes(dim)) for one in grouped)

    def kv_bytes(self, workload: Workload) -> int:
        """Bytes of codes, scales and biases that attention must read, each once."""
        rows, dim = int(workload.lengths.sum()) * workload.num_kv_heads, workload.head_dim
        total = 0
        for part in (self.k, self.v):
            scales = {
                "tensor": 1,
                "row": rows,
                "row_group": rows * dim // max(part.group, 1),
                "channel": sum(-(-int(n) // max(part.group, 1)) for n in workload.lengths)
                * (workload.num_kv_heads * dim),
            }[part.axis]
            total += rows * part.code_bytes(dim) + scales * (4 if part.asymmetric else 2)
        return total


def padded_rows(kv_len: int) -> int:
    """S rounded up to a multiple of `ROW_PAD`."""
    return -(-kv_len // ROW_PAD) * ROW_PAD


def _all_schemes() -> dict[str, Scheme]:
    """Names: ``c64`` is 64 tokens of a channel, ``g64`` 64 dims of a row, ``a`` a bias too."""
    parts = {
        "tensor": ("tensor", 0),
        "row": ("row", 0),
        **{f"g{group}": ("row_group", group) for group in (64, 32)},
        **{f"c{group}": ("channel", group) for group in (256, 128, 64, 32)},
    }
    pairs = ["tensor tensor", "row row", "rowa rowa", "g64 g64", "g64a g64a", "g32 g32"]
    pairs += ["g32a g32a", "c256a row", "c256a rowa", "c128 row", "c128a row", "c128a rowa"]
    pairs += ["c64 row", "c64a row", "c64a rowa", "c64a g64a", "c64a g32a", "c32 row"]
    pairs += ["c32a rowa", "c32a g32a"]
    found = {}
    for codec in ("int8", "int4"):
        for pair in pairs:
            k, v = (
                StorageFormat(codec, *parts[name.removesuffix("a")], name.endswith("a"))
                for name in pair.split()
            )
            name = f"{codec}_k{pair.split()[0]}_v{pair.split()[1]}"
            found[name] = Scheme(name, k, v)
    return found


SCHEMES: dict[str, Scheme] = _all_schemes()
"""The schemes of the frontier, by name. ``int4_kc64a_vrowa``: four bits; k with a scale and a bias
for each channel of 64 tokens, v with a scale and a bias a row."""
CHOSEN_INT8 = "int8_kc128a_vrowa"
CHOSEN_INT4 = "int4_kc256a_vrowa"
PER_ROW_INT8 = "int8_krow_vrow"
PER_ROW_INT4 = "int4_krow_vrow"
PER_CHANNEL_INT4 = "int4_kc32_vrow"
"""K by channel in groups of 32 tokens and V by row: KIVI's axes and group, without its biases."""
