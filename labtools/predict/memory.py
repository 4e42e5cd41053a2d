"""The buffers of a call: how large they are, what is known of their content, who wrote them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from labtools.problem import Launch, Problem

from .lanes import Buffers, make_buffers


class CallMemory:
    """Buffers of a call: their contents, and which of them the call itself writes."""

    def __init__(
        self,
        workload: Problem,
        launches: Sequence[Launch],
        timed: Sequence[Launch],
        data: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        sizes = _sizes(workload, launches)
        buffers = make_buffers(timed, workload.traced_contents(), sizes)
        if data:  # but for what the call itself changes
            data = {name: held for name, held in data.items() if name not in workload.outputs}
        self.buffers: Buffers = dataclasses.replace(buffers, data=data) if data else buffers
        prepared = {name for launch in launches if launch.prepare for name in launch.named}
        scratch = {one.name for launch in timed for one in launch.workspace} - prepared
        self.workspaces = {
            number for number, name in enumerate(self.buffers.names) if name in scratch
        }
        self.scratch = self.workspaces | {
            number
            for number, name in enumerate(self.buffers.names)
            if name in workload.outputs and name not in workload.inputs
        }
        self.total_bytes = sum(
            size
            for number, size in enumerate(
                self.buffers.bytes.get(name, 0) for name in self.buffers.names
            )
            if number not in self.scratch
        )


def _sizes(problem: Problem, launches: Sequence[Launch]) -> dict[str, int]:
    sizes = {name: one.bytes for name, one in problem.buffers.items()}
    for launch in launches:
        sizes.update({one.name: one.bytes for one in launch.workspace})
    return sizes
