"""Where records are."""

from __future__ import annotations

from pathlib import Path

from labtools.problem import kernels_dir, repository_root


def shipped_records_dir() -> Path:
    """Where the records of the repository are."""
    return kernels_dir() / "records"


def work_dir(root: Path | None = None) -> Path:
    """The reader's own folder, ``work/``, of this repository or another; git ignores it."""
    return (root or repository_root()) / "work"


def own_records_dir() -> Path:
    """Where a reader's own records go."""
    return work_dir() / "records"
