"""A baseline: a library's attention, timed beside the rungs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LabError
from .paths import kernels_dir
from .rung import load_by_path
from .workload import Workload


@dataclass(frozen=True)
class Baseline:
    """Somebody else's attention.

    Args:
        id: for example ``sdpa``.
        title: a few words.
        prepare: ``prepare(tensors, workload)`` with torch tensors q ``[B, Hq, D]``, k and v
            ``[B, Hkv, S, D]``, seq_lens int32 ``[B]``; returns a function of no arguments that
            computes the output ``[B, Hq, D]``. What that function does is what is timed.
        supports: returns why a workload cannot run here, or None.
        fair: False for a baseline that is handicapped on purpose.
        doc: what exactly is inside the timed call.
    """

    id: str
    title: str
    prepare: Callable[[Mapping[str, Any], Workload], Callable[[], Any]]
    supports: Callable[[Workload], str | None]
    fair: bool = True
    doc: str = ""
    source: Path | None = None


def list_baselines() -> list[Baseline]:
    """The shipped baselines."""
    folder = kernels_dir() / "baselines"
    return [load_by_path(path).BASELINE for path in sorted(folder.glob("*.py"))]


def load_baseline(name: str) -> Baseline:
    """One baseline by id.

    Raises:
        LabError: there is none of that name.
    """
    known = {baseline.id: baseline for baseline in list_baselines()}
    if name not in known:
        raise LabError(
            f"There is no baseline {name!r}.",
            f"the baselines are {', '.join(known)}",
            "name one of them",
        )
    return known[name]
