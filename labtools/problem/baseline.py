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

LIBRARY_TOLERANCE = {"float16": 3e-3, "bfloat16": 1.5e-2}
"""Relative error allowed to a library by element type: it may round the weights before it
multiplies them with V, which a kernel of this project may not."""


@dataclass(frozen=True)
class Baseline:
    """Somebody else's attention.

    Args:
        id: for example ``sdpa``.
        title: a few words.
        prepare: ``prepare(tensors, workload)`` with torch tensors q ``[B, Hq, D]``, k and v
            ``[B, Hkv, S, D]`` (paged: ``[pages, Hkv, page_size, D]`` and page_table int32
            ``[B, max_pages]``) of the workload's type, seq_lens int32 ``[B]``; returns a function
            of no arguments that computes the output ``[B, Hq, D]``. What that function does is
            what is timed.
        supports: returns why a workload cannot run here, or None. A layout or type that is not
            among ``layouts`` and ``dtypes`` is refused before it is asked.
        fair: False for a baseline that is handicapped on purpose.
        doc: what exactly is inside the timed call.
        kv_bits: bits in which it keeps an element of K and V. A baseline is a fair peer of the
            rungs that keep as many.
        layouts: of the cache, that it takes as it is.
        dtypes: of q, k and v.
        tolerance: relative error allowed; None takes `LIBRARY_TOLERANCE` of the type.
    """

    id: str
    title: str
    prepare: Callable[[Mapping[str, Any], Workload], Callable[[], Any]]
    supports: Callable[[Workload], str | None]
    fair: bool = True
    doc: str = ""
    source: Path | None = None
    kv_bits: int = 16
    layouts: tuple[str, ...] = ("contiguous",)
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    tolerance: float | None = None

    def __post_init__(self) -> None:
        asked = self.supports

        def supports(workload: Workload) -> str | None:
            if workload.layout not in self.layouts:
                return f"the cache is {workload.layout}; it takes {' or '.join(self.layouts)}"
            if workload.dtype not in self.dtypes:
                return f"the type is {workload.dtype}; it takes {' or '.join(self.dtypes)}"
            return asked(workload)

        object.__setattr__(self, "supports", supports)

    def tolerance_for(self, workload: Workload) -> float:
        """Relative error of one (sequence, head) against the oracle that it is allowed."""
        return LIBRARY_TOLERANCE[workload.dtype] if self.tolerance is None else self.tolerance


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
