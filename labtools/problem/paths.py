"""Where the project's own files are."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def repository_root() -> Path:
    """The folder that holds ``labtools/`` and ``kernels/``."""
    return Path(__file__).resolve().parents[2]


def kernels_dir() -> Path:
    """The folder of the shipped rungs, their headers, the baselines and the records."""
    return repository_root() / "kernels"
