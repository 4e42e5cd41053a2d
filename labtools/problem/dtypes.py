"""Element types by name."""

from __future__ import annotations

import numpy as np

from .errors import LabError


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


def element_bytes(name: str) -> int:
    """Bytes of one element of a type; needs no package for ``bfloat16``."""
    return 2 if name == "bfloat16" else np.dtype(name).itemsize
