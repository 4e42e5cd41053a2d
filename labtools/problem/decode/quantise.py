"""A KV cache in eight or four bits: packers with exact inverses, for the schemes of `scheme`.

All arithmetic is fp32 with one rounding an operation, so kernels/include/quantise.cuh makes the
same bits on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import LabError
from ..rung import Launch, Workspace
from ..storage import StorageFormat
from .inputs import Inputs, into_pages
from .scheme import ROW_PAD, Scheme, padded_rows, scale_shape
from .workload import Workload

_LARGEST_HALF = np.float32(65504)
_PIECE_ROWS = 1024
"""Of a piece, a multiple of every group of rows: what is made on the way stays in the caches."""


@dataclass(frozen=True)
class Quantised:
    """A quantised k or v."""

    scheme: StorageFormat  # how
    # uint8 ``[B, Hkv, S, D / per_byte]``, see `Codec.pack`. Rows
    # behind a length hold 0.
    codes: np.ndarray
    scale: np.ndarray  # float16, see `scale_shape`; 0 behind a length
    bias: np.ndarray | None  # as scale; None for a symmetric scheme
    lengths: np.ndarray  # int32 ``[B]``


def quantise_tensor(x: np.ndarray, lengths: np.ndarray, scheme: StorageFormat) -> Quantised:
    """Quantise k or v, ``[B, Hkv, S, D]`` in fp16, bf16 or fp32 with lengths int32 ``[B]``; a
    LabError where the scheme's group does not divide head_dim."""
    rows = x.shape[2]
    if scheme.axis == "row_group" and x.shape[3] % scheme.group:
        what = f"head_dim {x.shape[3]} cannot be cut into groups of {scheme.group}."
        why = "every group of a row has the same size"
        raise LabError(what, why, "choose a group that divides head_dim")
    x = x.astype(np.float32)
    x[_behind(lengths, x.shape)] = np.nan
    grouped, axis = _grouped(x, scheme)
    low, high = np.fmin.reduce(grouped, axis=axis), np.fmax.reduce(grouped, axis=axis)
    scale, bias = _scale_and_bias(low, high, scheme)
    wide_scale, codec = _widen(scale, axis), scheme.coded
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        c = grouped - _widen(bias, axis) if scheme.asymmetric else grouped.copy()
        np.divide(c, wide_scale, out=c)
    np.copyto(c, 0, where=~(wide_scale > 0))  # rows behind a length among them
    np.clip(c, codec.lowest if scheme.asymmetric else -codec.highest, codec.highest, out=c)
    missing = np.isnan(grouped)
    np.copyto(c, 0, where=missing)
    codes = codec.encode(c)
    np.copyto(codes, 0, where=missing)
    codes = codec.pack(codes.reshape(*x.shape[:2], -1, x.shape[3])[:, :, :rows])
    if scheme.axis in ("row", "row_group"):
        pad = [(0, 0)] * scale.ndim
        pad[2] = (0, padded_rows(rows) - rows)
        scale, bias = np.pad(scale, pad), np.pad(bias, pad)
    kept_bias = bias if scheme.asymmetric else None
    return Quantised(scheme, codes, scale, kept_bias, np.asarray(lengths))


def dequantise_tensor(quantised: Quantised) -> np.ndarray:
    """The values that the codes stand for, float32 ``[B, Hkv, S, D]``; NaN behind a length."""
    scheme = quantised.scheme
    c = scheme.coded.decode(scheme.coded.unpack(quantised.codes))
    grouped, axis = _grouped(c, scheme)
    x = grouped * _widen(_unpad(quantised.scale, c.shape, scheme), axis)
    if quantised.bias is not None:
        x += _widen(_unpad(quantised.bias, c.shape, scheme), axis)
    x = x.reshape(*c.shape[:2], -1, c.shape[3])[:, :, : c.shape[2]]
    x[_behind(quantised.lengths, c.shape)] = np.nan
    return np.ascontiguousarray(x)


def kept_rows(
    x: np.ndarray,
    lengths: np.ndarray,
    scheme: StorageFormat,
    like: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """What `dequantise_tensor` makes of `quantise_tensor`, piece by piece where no scale is of rows
    of two pieces.

    ``like`` is another k or v of these lengths and what this gave for it: what is the same bits is
    taken from there.
    """
    rows = x.shape[2] if scheme.axis == "tensor" else _PIECE_ROWS
    pieces = [slice(first, first + rows) for first in range(0, x.shape[2], rows)]
    if like is not None:
        bits, others = (one.view(f"u{one.itemsize}") for one in (x, like[0]))
        pieces = [one for one in pieces if (bits[:, :, one] != others[:, :, one]).any()]
        if not pieces:
            return like[1]
    kept = np.empty(x.shape, np.float32) if like is None else like[1].copy()
    for one in pieces:
        left = np.asarray(lengths) - one.start
        kept[:, :, one] = dequantise_tensor(quantise_tensor(x[:, :, one], left, scheme))
    return kept


def _behind(lengths: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Which rows of ``[B, Hkv, S, D]`` lie behind a length, bool ``[B, Hkv, S]``."""
    outside = np.arange(shape[2])[None, :] >= np.asarray(lengths)[:, None]
    return np.broadcast_to(outside[:, None, :], shape[:3])


def _grouped(x: np.ndarray, scheme: StorageFormat) -> tuple[np.ndarray, int | None]:
    """x with an axis along which elements share a scale, and that axis; None where all share one.
    Rows that a group of channels lacks are NaN."""
    batch, heads, rows, dim = x.shape
    if scheme.axis == "row_group":
        return x.reshape(batch, heads, rows, dim // scheme.group, scheme.group), 4
    if scheme.axis == "channel":
        groups = -(-rows // scheme.group)
        if lacks := groups * scheme.group - rows:
            x = np.pad(x, ((0, 0), (0, 0), (0, lacks), (0, 0)), constant_values=np.nan)
        return x.reshape(batch, heads, groups, scheme.group, dim), 3
    return x, 3 if scheme.axis == "row" else None


def _widen(scale: np.ndarray, axis: int | None) -> np.ndarray:
    """The scale of every element of `_grouped`, float32, of a shape that broadcasts."""
    scale = scale.astype(np.float32)
    return scale if axis is None else np.expand_dims(scale, axis)


def _scale_and_bias(
    low: np.ndarray, high: np.ndarray, scheme: StorageFormat
) -> tuple[np.ndarray, np.ndarray]:
    """fp16 scale and bias, 0 where there is no element."""
    lowest, highest = np.float32(scheme.coded.lowest), np.float32(scheme.coded.highest)
    if scheme.asymmetric:
        scale = _to_half((high - low) / (highest - lowest))
        bias = _to_half(low - scale.astype(np.float32) * lowest)
    else:
        scale = _to_half(np.maximum(np.abs(low), np.abs(high)) / highest)
        bias = np.zeros_like(scale)
    return scale, bias


def _to_half(x: np.ndarray) -> np.ndarray:
    """Rounded to fp16, at most its largest number; NaN becomes 0."""
    return np.clip(np.nan_to_num(x), -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16)


def _unpad(scale: np.ndarray, shape: Sequence[int], scheme: StorageFormat) -> np.ndarray:
    return scale[:, :, : shape[2]] if scheme.axis in ("row", "row_group") else scale


def dequantise_inputs(
    inputs: Inputs, scheme: Scheme, like: tuple[Inputs, Inputs] | None = None
) -> Inputs:
    """The inputs that a kernel with this scheme computes with: k and v are float32 arrays.

    They have the layout of the given ones; ``like`` as of `kept_rows`. Every value is an fp16 scale
    times a small whole number plus an fp16 bias, rounded to fp32 once, so the float64 oracle sees
    what the codes say.
    """
    changed: dict[str, Any] = {}
    for name, part in (("k", scheme.k), ("v", scheme.v)):
        x, back = by_sequence(inputs, name)
        known = like and (by_sequence(like[0], name)[0], by_sequence(like[1], name)[0])
        changed[name] = back(kept_rows(x, inputs.seq_lens, part, known))
    return dataclasses.replace(inputs, **changed)


def by_sequence(inputs: Inputs, name: str) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """k or v as ``[B, Hkv, S, D]`` and the way back to the layout of the inputs."""
    cache: np.ndarray = getattr(inputs, name)
    table, workload = inputs.page_table, inputs.workload
    if table is None:
        return cache, lambda rows: rows
    rows = np.full(workload.kv_buffer().shape, np.nan, cache.dtype)
    for sequence, head in np.ndindex(rows.shape[:2]):
        k, v = inputs.kv_rows(sequence, head)
        rows[sequence, head, : len(k)] = k if name == "k" else v
    return rows, lambda rows: into_pages(rows, workload, table)


def quantise_launches(
    workload: Workload, scheme: Scheme
) -> tuple[tuple[Workspace, ...], list[Launch]]:
    """The buffers of a quantised cache and the launches that fill it, for a rung's ``launch``.

    The buffers are ``k_codes``, ``k_scale`` and, for an asymmetric scheme, ``k_bias``, and the
    same with v; shapes as in `Quantised` and `scale_shape`. Paged: codes are
    ``[num_pages, Hkv, page_size, D or D / 2]``. The entries are ``quantise_k`` and ``quantise_v``
    of the rung's source, such as the macros of quantise.cuh make.
    A LabError for one scale for a whole tensor, for which there is no packer.
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
        scales = scale_shape(part, workload, num_pages)
        codes = (*workload.kv_shape[:3], part.code_bytes(workload.head_dim))
        kinds = ("scale", "bias") if part.asymmetric else ("scale",)
        mine = [Workspace(f"{name}_codes", codes, "uint8")]
        mine += [Workspace(f"{name}_{what}", scales, "float16") for what in kinds]
        tile = part.group if part.axis == "channel" else ROW_PAD
        grid = (-(-workload.kv_len // tile), workload.num_kv_heads, workload.batch)
        given = (name, "seq_lens", *(("page_table",) if workload.is_paged else ()))
        args = (*given, *(space.name for space in mine), np.int32(workload.kv_len))
        one = Launch(f"quantise_{name}", grid, (32, 1, 1), 0, args, tuple(mine), prepare=True)
        launches.append(one)
        spaces += mine
    return tuple(spaces), launches
