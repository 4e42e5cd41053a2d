"""A baseline: how a library computes an operation, timed beside the rungs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LabError
from .paths import kernels_dir
from .problem import DEFAULT_OPERATION, Problem, Supports, kernels_folder, operations
from .rung import OfOperation, load_by_path
from .storage import AS_THEY_ARE, StorageFormat

LIBRARY_TOLERANCE = {"float16": 3e-3, "bfloat16": 1.5e-2, "float32": 1e-4}
"""Relative error allowed to a library by element type: it may round the weights before it
multiplies them with V, which a kernel of this project may not."""


@dataclass(frozen=True)
class Baseline:
    """Somebody else's way to compute an operation."""

    id: str  # for example ``sdpa``
    title: str  # a few words
    # ``prepare(tensors, problem)`` with torch tensors by the names of the problem's inputs, with
    # their shapes and types; returns a function of no arguments that computes the output, or a
    # tuple of all outputs in their order. What that function does is what is timed.
    prepare: Callable[[Mapping[str, Any], Any], Callable[[], Any]]
    # returns why a problem of its operation cannot run here, or None. A layout or type that is not
    # among ``layouts`` and ``dtypes`` is refused before it is asked.
    supports: Supports
    fair: bool = True  # False for a baseline that is handicapped on purpose
    doc: str = ""  # what exactly is inside the timed call
    source: Path | None = None
    # how it keeps what it streams, of decode K and V. A baseline is a fair peer of the rungs that
    # keep an element in as many bits.
    storage: StorageFormat = AS_THEY_ARE
    layouts: tuple[str, ...] = ("contiguous",)  # of the inputs, that it takes as they are
    dtypes: tuple[str, ...] = ("float16", "bfloat16")  # of the inputs
    # relative error allowed; None takes `LIBRARY_TOLERANCE` of the type
    tolerance: float | None = None
    operation: str = DEFAULT_OPERATION  # what it computes, by name

    def __post_init__(self) -> None:
        asked = self.supports

        def supports(problem: Problem) -> str | None:
            if problem.layout not in self.layouts:
                return f"the layout is {problem.layout}; it takes {' or '.join(self.layouts)}"
            if problem.dtype not in self.dtypes:
                return f"the type is {problem.dtype}; it takes {' or '.join(self.dtypes)}"
            if problem.empty_parts:
                return "there are lengths of 0"
            return asked(problem)

        if not isinstance(asked, OfOperation):
            object.__setattr__(self, "supports", OfOperation(self.operation, supports))

    @property
    def path(self) -> Path:
        """Its file: `source`, or where a shipped one of its operation stands."""
        return self.source or baselines_dir(self.operation) / f"{self.id}.py"

    @property
    def own_page_size(self) -> int | None:
        """Tokens of the pages that it copies a contiguous cache into, outside the timed call; None
        of one that reads it as it lies. Its file, or the one it shares, says ``PAGE_SIZE``."""
        module = load_by_path(self.path)
        return getattr(getattr(module, "_SHARED", module), "PAGE_SIZE", None)

    def tolerance_for(self, problem: Problem) -> float:
        """Relative error of one part of the output against the oracle that it is allowed."""
        if self.tolerance is not None:
            return self.tolerance
        return LIBRARY_TOLERANCE.get(problem.output.dtype, problem.tolerance)


def baselines_dir(operation: str = DEFAULT_OPERATION) -> Path:
    """Where the shipped baselines of an operation stand; other operations have their own folder."""
    folder = kernels_dir() / "baselines"
    return folder if operation == DEFAULT_OPERATION else folder / kernels_folder(operation)


def list_baselines(operation: str | None = DEFAULT_OPERATION) -> list[Baseline]:
    """The shipped baselines of an operation; None for those of every one."""
    names = operations() if operation is None else (operation,)
    found = [
        load_by_path(path).BASELINE
        for folder in dict.fromkeys(baselines_dir(name) for name in names)
        for path in sorted(folder.glob("*.py"))
    ]
    return [one for one in found if one.operation in names]


def own_baselines() -> list[Baseline]:
    """Those that readers' files bring with their operations. Such a file is loaded by the process
    that times, so one is taken only where it is named."""
    return [one for operation in operations().values() for one in operation.peers]


def load_baseline(name: str) -> Baseline:
    """One baseline by id, shipped or of a reader's file; a LabError where there is none of that
    name."""
    known = {baseline.id: baseline for baseline in (*list_baselines(None), *own_baselines())}
    if name not in known:
        why = f"the baselines are {', '.join(known)}"
        raise LabError(f"There is no baseline {name!r}.", why, "name one of them")
    return known[name]
