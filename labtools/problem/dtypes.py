"""Element types by name."""

from __future__ import annotations

import numpy as np

from .errors import LabError

_BYTES_OF_OTHERS = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


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


def element_bytes(name: str) -> int:
    """Bytes of one element of a type; needs no package for those that numpy does not know."""
    return _BYTES_OF_OTHERS.get(name) or np.dtype(name).itemsize
