"""Where records are."""

from __future__ import annotations

from pathlib import Path

from labtools.problem import kernels_dir, repository_root


def shipped_records_dir() -> Path:
    """Where the records of the repository are."""
    return kernels_dir() / "records"


def own_records_dir() -> Path:
    """Where a reader's own records go; git ignores it."""
    return repository_root() / "work" / "records"
