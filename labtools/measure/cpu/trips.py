"""Trip counts for a forecast: the inputs that decide them, and how often a run passes each line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from labtools.predict.counts import LineCounts
from labtools.problem import Drawn, LabError, Limits, Problem, Rung, operation_of
from labtools.toolchain.cache import code_digest

from .build import native_digest
from .report import MAX_COUNTED
from .runner import COUNT_LIMIT_S, count_on_cpu

LARGEST_INPUTS = 2**28  # bytes of inputs that are drawn for a forecast: a second or two
_CODE = code_digest("measure")


class CpuTripCounts:
    """What `labtools.predict.forecast` may ask where the machine code leaves trip counts open."""

    most_blocks = MAX_COUNTED

    def __init__(
        self,
        rung: Rung,
        workload: Problem,
        knobs: Mapping[str, int] | None,
        limits: Limits,
        time_limit_s: float = COUNT_LIMIT_S,
    ) -> None:
        self._rung, self._workload, self._knobs, self._limits = rung, workload, knobs, limits
        self._time_limit_s = time_limit_s

    @property
    def content(self) -> object:
        """The code of the runner, the source with its lines, and the time limit."""
        rung = self._rung
        return _CODE, native_digest(), rung.source_text, str(rung.source), self._time_limit_s

    @cached_property
    def _drawn(self) -> Drawn:
        size = sum(one.bytes for one in self._workload.buffers.values())
        if size > LARGEST_INPUTS:
            raise LabError(
                f"The inputs of {self._workload.short()} are too large to be drawn for a forecast.",
                f"they have {size / 2**20:,.0f} MiB, and at most {LARGEST_INPUTS >> 20} are drawn",
                "a smaller workload has counts",
            )
        return operation_of(self._workload).draw(self._workload)

    def inputs(self) -> Mapping[str, np.ndarray]:
        """The inputs that a check on the CPU draws too, by buffer."""
        return self._drawn.buffers()

    def count(self, launch: int, blocks: Sequence[int]) -> Sequence[LineCounts]:
        """The counts of at most `most_blocks` blocks of one launch; as `count_on_cpu`."""
        rung, drawn, knobs, limits = self._rung, self._drawn, self._knobs, self._limits
        return count_on_cpu(rung, drawn, knobs, limits, launch, blocks, self._time_limit_s)
