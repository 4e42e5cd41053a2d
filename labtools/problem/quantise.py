"""A KV cache in eight or four bits: schemes, and packers with exact inverses.

A value is kept as a code and read back as ``scale * c + bias`` with scale and bias in fp16. The
stored code u is unsigned, ``c = u - 2^(bits - 1)``. What differs between schemes is how many
bits a code has, and which elements share one scale.

All arithmetic is fp32 with one rounding an operation, so kernels/include/quantise.cuh makes the
same bits on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import LabError
from .inputs import Inputs, into_pages
from .rung import Launch, Workspace
from .workload import Workload

AXES = ("tensor", "row", "row_group", "channel")
ROW_PAD = 64
"""Scales of rows are padded to a multiple of this many rows, so that tiles may read them whole."""
_LARGEST_HALF = np.float32(65504)


@dataclass(frozen=True)
class TensorScheme:
    """How k or v is kept.

    Args:
        bits: 4 or 8.
        axis: which elements share a scale. ``tensor``: all; ``row``: the head_dim elements of a
            token; ``row_group``: ``group`` neighbouring dims of a token; ``channel``: one dim
            over ``group`` neighbouring tokens, counted from token 0.
        group: elements that share a scale, for ``row_group`` and ``channel``; 0 otherwise.
        asymmetric: a bias beside the scale, so that the codes span lowest to highest; without it
            they span minus to plus the largest magnitude.

    Raises:
        LabError: a scheme that does not exist.
    """

    bits: int
    axis: str
    group: int = 0
    asymmetric: bool = False

    def __post_init__(self) -> None:
        grouped = self.axis in ("row_group", "channel")
        if self.bits not in (4, 8) or self.axis not in AXES or grouped != (self.group > 0):
            raise LabError(
                f"There is no scheme {self!r}.",
                f"bits is 4 or 8, axis one of {AXES}, and group belongs to row_group and channel",
                "correct the scheme",
            )

    @property
    def half_range(self) -> int:
        """2^(bits - 1): what is subtracted from a stored code."""
        return 1 << (self.bits - 1)

    def sharers(self, head_dim: int) -> int:
        """Elements that share one scale; 0 means all of them."""
        return {"tensor": 0, "row": head_dim}.get(self.axis, self.group)

    def bytes_per_element(self, head_dim: int) -> float:
        """Bytes that one element costs, its part of scale and bias included."""
        sharers = self.sharers(head_dim)
        beside = (4 if self.asymmetric else 2) / sharers if sharers else 0.0
        return self.bits / 8 + beside

    def code_dims(self, head_dim: int) -> int:
        """Bytes of the codes of one row."""
        return head_dim * self.bits // 8

    def scale_shape(self, workload: Workload, num_pages: int = 0) -> tuple[int, ...]:
        """Shape of the scales (and of the biases).

        ``tensor`` (1,); ``row`` [B, Hkv, S_pad]; ``row_group`` [B, Hkv, S_pad, D / group];
        ``channel`` [B, Hkv, ceil(S / group), D]. With ``num_pages`` the first two of the row
        kinds are [num_pages, Hkv, page_size] and [num_pages, Hkv, page_size, D / group].
        """
        if self.axis == "tensor":
            return (1,)
        heads, dim = workload.num_kv_heads, workload.head_dim
        if self.axis == "channel":
            return (workload.batch, heads, -(-workload.kv_len // self.group), dim)
        rows: tuple[int, ...] = (workload.batch, heads, padded_rows(workload.kv_len))
        if num_pages:
            rows = (num_pages, heads, workload.page_size)
        return rows if self.axis == "row" else (*rows, dim // self.group)


@dataclass(frozen=True)
class Scheme:
    """How a KV cache is kept: one `TensorScheme` for k and one for v."""

    name: str
    k: TensorScheme
    v: TensorScheme

    def bytes_per_element(self, head_dim: int) -> float:
        """Bytes an element, scales included, the mean of k and v."""
        return (self.k.bytes_per_element(head_dim) + self.v.bytes_per_element(head_dim)) / 2

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
            total += rows * part.code_dims(dim) + scales * (4 if part.asymmetric else 2)
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
    pairs += ["c64 row", "c64a row", "c64a rowa", "c64a g64a", "c64a g32a", "c32a rowa"]
    pairs += ["c32a g32a"]
    found = {}
    for bits in (8, 4):
        for pair in pairs:
            k, v = (
                TensorScheme(bits, *parts[name.removesuffix("a")], name.endswith("a"))
                for name in pair.split()
            )
            name = f"int{bits}_k{pair.split()[0]}_v{pair.split()[1]}"
            found[name] = Scheme(name, k, v)
    return found


SCHEMES: dict[str, Scheme] = _all_schemes()
"""The schemes of the frontier, by name. ``int4_kc64a_vrowa``: four bits; k with a scale and a bias
for each channel of 64 tokens, v with a scale and a bias a row."""
CHOSEN_INT8 = "int8_kc128a_vrowa"
CHOSEN_INT4 = "int4_kc256a_vrowa"
PER_ROW_INT8 = "int8_krow_vrow"
PER_ROW_INT4 = "int4_krow_vrow"


@dataclass(frozen=True)
class Quantised:
    """A quantised k or v.

    Args:
        scheme: how.
        codes: uint8 ``[B, Hkv, S, D]``, or ``[B, Hkv, S, D / 2]`` with element 2i in the low
            nibble. Rows behind a length hold 0.
        scale: float16, see `TensorScheme.scale_shape`; 0 behind a length.
        bias: as scale; None for a symmetric scheme.
        lengths: int32 ``[B]``.
    """

    scheme: TensorScheme
    codes: np.ndarray
    scale: np.ndarray
    bias: np.ndarray | None
    lengths: np.ndarray


def pack_nibbles(codes: np.ndarray) -> np.ndarray:
    """uint8 codes below 16, ``[..., D]``, to ``[..., D / 2]``: element 2i is the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed: np.ndarray) -> np.ndarray:
    """The inverse of `pack_nibbles`."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def quantise_tensor(x: np.ndarray, lengths: np.ndarray, scheme: TensorScheme) -> Quantised:
    """Quantise k or v.

    Args:
        x: ``[B, Hkv, S, D]`` in fp16, bf16 or fp32; rows behind a length are not looked at.
        lengths: int32 ``[B]``.
        scheme: how.

    Raises:
        LabError: the scheme's group does not divide head_dim.
    """
    rows = x.shape[2]
    if scheme.axis == "row_group" and x.shape[3] % scheme.group:
        raise LabError(
            f"head_dim {x.shape[3]} cannot be cut into groups of {scheme.group}.",
            "every group of a row has the same size",
            "choose a group that divides head_dim",
        )
    x = x.astype(np.float32)
    inside = np.arange(rows)[None, :] < np.asarray(lengths)[:, None]  # [B, S]
    x[~np.broadcast_to(inside[:, None, :], x.shape[:3])] = np.nan
    low, high = _extremes(x, scheme)
    scale, bias = _scale_and_bias(low, high, scheme)
    wide_scale, wide_bias = _spread(scale, x.shape, scheme), _spread(bias, x.shape, scheme)
    top = scheme.half_range - 1
    bottom = -scheme.half_range if scheme.asymmetric else -top
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        c = np.rint((x - wide_bias) / wide_scale) if scheme.asymmetric else np.rint(x / wide_scale)
    c[~np.broadcast_to(wide_scale > 0, c.shape)] = 0  # rows behind a length among them
    c = np.nan_to_num(np.clip(c, bottom, top)) + scheme.half_range
    codes = c.astype(np.uint8)
    codes[np.isnan(x)] = 0
    if scheme.bits == 4:
        codes = pack_nibbles(codes)
    if scheme.axis in ("row", "row_group"):
        pad = [(0, 0)] * scale.ndim
        pad[2] = (0, padded_rows(rows) - rows)
        scale, bias = np.pad(scale, pad), np.pad(bias, pad)
    kept_bias = bias if scheme.asymmetric else None
    return Quantised(scheme, codes, scale, kept_bias, np.asarray(lengths))


def dequantise_tensor(quantised: Quantised) -> np.ndarray:
    """The values that the codes stand for, float32 ``[B, Hkv, S, D]``; NaN behind a length."""
    scheme, codes = quantised.scheme, quantised.codes
    if scheme.bits == 4:
        codes = unpack_nibbles(codes)
    c = codes.astype(np.float32) - np.float32(scheme.half_range)
    x = c * _spread(_unpad(quantised.scale, c.shape, scheme), c.shape, scheme)
    if quantised.bias is not None:
        x = x + _spread(_unpad(quantised.bias, c.shape, scheme), c.shape, scheme)
    outside = np.arange(c.shape[2])[None, :] >= quantised.lengths[:, None]
    x[np.broadcast_to(outside[:, None, :], c.shape[:3])] = np.nan
    return x


def _extremes(x: np.ndarray, scheme: TensorScheme) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest of the elements that share a scale; NaN where there is none."""
    batch, heads, rows, dim = x.shape
    axes: Any = {"tensor": None, "row": 3, "row_group": 4, "channel": 3}[scheme.axis]
    if scheme.axis == "row_group":
        x = x.reshape(batch, heads, rows, dim // scheme.group, scheme.group)
    elif scheme.axis == "channel":
        groups = -(-rows // scheme.group)
        pad = ((0, 0), (0, 0), (0, groups * scheme.group - rows), (0, 0))
        x = np.pad(x, pad, constant_values=np.nan)
        x = x.reshape(batch, heads, groups, scheme.group, dim)
    return np.fmin.reduce(x, axis=axes), np.fmax.reduce(x, axis=axes)


def _scale_and_bias(
    low: np.ndarray, high: np.ndarray, scheme: TensorScheme
) -> tuple[np.ndarray, np.ndarray]:
    """fp16 scale and bias, 0 where there is no element."""
    half = np.float32(scheme.half_range)
    if scheme.asymmetric:
        scale = _to_half((high - low) / np.float32(2 * half - 1))
        bias = _to_half(low + scale.astype(np.float32) * half)
    else:
        scale = _to_half(np.maximum(np.abs(low), np.abs(high)) / (half - np.float32(1)))
        bias = np.zeros_like(scale)
    return scale, bias


def _to_half(x: np.ndarray) -> np.ndarray:
    """Rounded to fp16, at most its largest number; NaN becomes 0."""
    return np.clip(np.nan_to_num(x), -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16)


def _unpad(scale: np.ndarray, shape: Sequence[int], scheme: TensorScheme) -> np.ndarray:
    return scale[:, :, : shape[2]] if scheme.axis in ("row", "row_group") else scale


def _spread(scale: np.ndarray, shape: Sequence[int], scheme: TensorScheme) -> np.ndarray:
    """The scale of every element, float32, of a shape that broadcasts to ``shape``."""
    scale = scale.astype(np.float32)
    if scheme.axis == "row":
        return scale[..., None]
    if scheme.axis == "row_group":
        return np.repeat(scale, scheme.group, axis=-1)
    if scheme.axis == "channel":
        return np.repeat(scale, scheme.group, axis=2)[:, :, : shape[2]]
    return scale


def dequantise_inputs(inputs: Inputs, scheme: Scheme) -> Inputs:
    """The inputs that a kernel with this scheme computes with: k and v are float32 arrays.

    They have the layout of the given ones. Every value is an fp16 scale times a small whole
    number plus an fp16 bias, rounded to fp32 once, so the float64 oracle sees what the codes say.
    """
    changed: dict[str, Any] = {}
    for name, part in (("k", scheme.k), ("v", scheme.v)):
        x, back = by_sequence(inputs, name)
        changed[name] = back(dequantise_tensor(quantise_tensor(x, inputs.seq_lens, part)))
    return dataclasses.replace(inputs, **changed)


def by_sequence(inputs: Inputs, name: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """k or v as ``[B, Hkv, S, D]`` and the way back to the layout of the inputs."""
    cache: np.ndarray = getattr(inputs, name)
    table, workload = inputs.page_table, inputs.workload
    if table is None:
        return cache, lambda rows: rows
    rows = np.full(
        (workload.batch, workload.num_kv_heads, workload.kv_len, workload.head_dim),
        *(np.nan, cache.dtype),
    )
    for sequence, head in np.ndindex(rows.shape[:2]):
        k, v = inputs.kv_rows(sequence, head)
        rows[sequence, head, : len(k)] = k if name == "k" else v
    return rows, lambda rows: into_pages(rows, workload, table)


def quantise_launches(
    workload: Workload, scheme: Scheme
) -> tuple[tuple[Workspace, ...], list[Launch]]:
    """The buffers of a quantised cache and the launches that fill it, for a rung's ``launch``.

    The buffers are ``k_codes``, ``k_scale`` and, for an asymmetric scheme, ``k_bias``, and the
    same with v; shapes as in `Quantised` and `TensorScheme.scale_shape`. Paged: codes are
    ``[num_pages, Hkv, page_size, D or D / 2]``. The entries are ``quantise_k`` and ``quantise_v``,
    which the rung's source makes with the macros of quantise.cuh, of the same bits, axis and
    group.

    Raises:
        LabError: one scale for a whole tensor, for which there is no packer.
    """
    spaces: list[Workspace] = []
    launches = []
    num_pages = workload.num_pages if workload.is_paged else 0
    for name, part in (("k", scheme.k), ("v", scheme.v)):
        if part.axis == "tensor":
            raise LabError(
                f"There is no packer for {scheme.name}.",
                "one scale for a whole tensor is not known before its last token is",
                "a scheme with a scale a row or a channel",
            )
        scales = part.scale_shape(workload, num_pages)
        codes = (*workload.kv_shape[:3], part.code_dims(workload.head_dim))
        mine = [Workspace(f"{name}_codes", codes, "uint8")]
        mine += [
            Workspace(f"{name}_{what}", scales, "float16")
            for what in (("scale", "bias") if part.asymmetric else ("scale",))
        ]
        tile = part.group if part.axis == "channel" else ROW_PAD
        launches.append(
            Launch(
                entry=f"quantise_{name}",
                grid=(-(-workload.kv_len // tile), workload.num_kv_heads, workload.batch),
                block=(32, 1, 1),
                args=(
                    *(name, "seq_lens"),
                    *(("page_table",) if workload.is_paged else ()),
                    *(space.name for space in mine),
                    np.int32(workload.kv_len),
                ),
                workspace=tuple(mine),
                prepare=True,
            )
        )
        spaces += mine
    return tuple(spaces), launches
