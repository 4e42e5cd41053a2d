"""How the elements of a buffer are stored: their types, bits, codec, packing and scales.

A value is kept as a code of few bits and read back as ``scale * c + bias``, where c is what the
codec makes of the code, and scale and bias are fp16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .errors import LabError

_BYTES_OF_OTHERS = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
AXES = ("tensor", "row", "row_group", "channel")
AS_GIVEN = "none"
"""The codec of elements that stay as they are."""


def element_dtype(name: str) -> np.dtype:
    """The numpy type of a name; numpy itself does not know ``bfloat16`` and the 8-bit floats; a
    LabError where the package ml_dtypes, which brings them, is not installed."""
    if name not in _BYTES_OF_OTHERS:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise LabError(
            f"{name} arrays cannot be made here.",
            "the package ml_dtypes is not installed",
            "float16 workloads; pip install ml_dtypes adds the others",
        ) from error
    return np.dtype(getattr(ml_dtypes, name))


def largest_of(dtype: np.dtype) -> float:
    """The largest number of a type."""
    if dtype.kind in "iu":
        return float(np.iinfo(dtype).max)
    if dtype.kind == "f" and dtype.isbuiltin == 1:
        return float(np.finfo(dtype).max)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


def element_bytes(name: str) -> int:
    """Bytes of one element of a type; needs no package for those that numpy does not know."""
    return _BYTES_OF_OTHERS.get(name) or np.dtype(name).itemsize


@dataclass(frozen=True)
class Codec:
    """How a number is written in few bits."""

    name: str
    bits: int  # of a code, 4 or 8
    lowest: float  # number that has a code
    highest: float
    encode: Callable[[np.ndarray], np.ndarray]  # numbers in that range to codes, uint8
    decode: Callable[[np.ndarray], np.ndarray]  # the inverse, float32

    @property
    def per_byte(self) -> int:
        """Codes that lie in one byte, the first in its lowest bits."""
        return 8 // self.bits

    def pack(self, codes: np.ndarray) -> np.ndarray:
        """Codes ``[..., D]`` to bytes ``[..., D / per_byte]``."""
        parts = [codes[..., i :: self.per_byte] << (self.bits * i) for i in range(self.per_byte)]
        return np.bitwise_or.reduce(parts)

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        mask = (1 << self.bits) - 1
        parts = [packed >> (self.bits * i) & mask for i in range(self.per_byte)]
        return np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)


def _whole_numbers(bits: int) -> Codec:
    """Signed whole numbers; a code is one plus 2^(bits - 1)."""
    half = 1 << (bits - 1)
    return Codec(
        name=f"int{bits}",
        bits=bits,
        lowest=-half,
        highest=half - 1,
        encode=lambda numbers: (np.rint(numbers) + half).astype(np.uint8),
        decode=lambda codes: codes.astype(np.float32) - np.float32(half),
    )


def _small_float(name: str, dtype: str, highest: float) -> Codec:
    """A float of eight bits; a code is its bits."""
    return Codec(
        name=name,
        bits=8,
        lowest=-highest,
        highest=highest,
        encode=lambda numbers: numbers.astype(element_dtype(dtype)).view(np.uint8),
        decode=lambda codes: codes.view(element_dtype(dtype)).astype(np.float32),
    )


CODECS = {
    codec.name: codec
    for codec in (
        _whole_numbers(8),
        _whole_numbers(4),
        _small_float("fp8-e4m3", "float8_e4m3fn", 448.0),
    )
}


@dataclass(frozen=True)
class StorageFormat:
    """How the elements of a buffer are kept; a LabError for a format that does not exist."""

    codec: str  # one of `CODECS`, or `AS_GIVEN`
    # which elements share a scale. ``tensor``: all; ``row``: those along the last axis;
    # ``row_group``: ``group`` neighbours of a row; ``channel``: one element of ``group``
    # neighbouring rows, counted from the first. Nothing where elements stay as they are.
    axis: str = ""
    group: int = 0  # elements that share a scale, for ``row_group`` and ``channel``; 0 otherwise
    # a bias beside the scale, so that the codes span lowest to highest; without it they span minus
    # to plus the largest magnitude
    asymmetric: bool = False

    def __post_init__(self) -> None:
        grouped = self.axis in ("row_group", "channel")
        known = self.codec in CODECS and self.axis in AXES and grouped == (self.group > 0)
        as_given = self.codec == AS_GIVEN and not (self.axis or self.group or self.asymmetric)
        if not (known or as_given):
            why = f"codec is one of {[*CODECS]}, axis one of {AXES}, and group belongs to row_group"
            what = f"There is no storage format {self!r}."
            raise LabError(what, f"{why} and channel", "correct the format")

    @property
    def coded(self) -> Codec:
        """The codec itself; there is none of elements that stay as they are."""
        return CODECS[self.codec]

    @property
    def bits(self) -> int:
        """Bits of an element; 16 of one that stays as it is."""
        return 16 if self.codec == AS_GIVEN else self.coded.bits

    def stored_bytes(self, given_bytes: int, element_bytes: int) -> int:
        """Bytes of the codes of what takes ``given_bytes`` in elements of so many bytes."""
        if self.codec == AS_GIVEN:
            return given_bytes
        return given_bytes * self.bits // (8 * element_bytes)

    def sharers(self, row: int) -> int:
        """Elements that share one scale, of rows of so many elements; 0 means all of them."""
        return {"tensor": 0, "row": row}.get(self.axis, self.group)

    def bytes_per_element(self, row: int) -> float:
        """Bytes that one element of such rows costs, its part of scale and bias included."""
        sharers = self.sharers(row)
        beside = (4 if self.asymmetric else 2) / sharers if sharers else 0.0
        return self.bits / 8 + beside

    def code_bytes(self, row: int) -> int:
        """Bytes of the codes of one row of so many elements."""
        return row * self.bits // 8


AS_THEY_ARE = StorageFormat(AS_GIVEN)
