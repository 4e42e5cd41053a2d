"""The buffers of a call: how large they are, what is known of their content, who wrote them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from labtools.problem import Launch, Problem

from .lanes import Buffers, make_buffers

Launches = Sequence[Launch]
Data = Mapping[str, np.ndarray]


class CallMemory:
    """Buffers of a call: their contents, and which of them the call itself writes."""

    def __init__(
        self, workload: Problem, launches: Launches, timed: Launches, data: Data | None = None
    ) -> None:
        sizes = {name: one.bytes for name, one in workload.buffers.items()}
        sizes |= {one.name: one.bytes for launch in launches for one in launch.workspace}
        buffers = make_buffers(timed, workload.traced_contents(), sizes)
        if data:  # but for what the call itself changes
            data = {name: held for name, held in data.items() if name not in workload.outputs}
        self.buffers: Buffers = dataclasses.replace(buffers, data=data) if data else buffers
        prepared = {name for launch in launches if launch.prepare for name in launch.named}
        scratch = {one.name for launch in timed for one in launch.workspace} - prepared
        written = set(workload.outputs) - set(workload.inputs)
        size_of = {name: self.buffers.bytes.get(name, 0) for name in self.buffers.names}
        together = sum(size for name, size in size_of.items() if name in scratch)
        numbered = list(enumerate(self.buffers.names))
        self.workspaces = {number for number, name in numbered if name in scratch}
        # what the call writes, with the bytes that the L2 must keep until they are read
        self.scratch = dict.fromkeys(self.workspaces, together) | {
            number: size_of[name] for number, name in numbered if name in written
        }
        self.total_bytes = sum(
            size_of[name] for number, name in numbered if number not in self.scratch
        )
