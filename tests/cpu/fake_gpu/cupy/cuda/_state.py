"""What the fake device remembers."""

import json
import os

import numpy as np


class _State:
    def __init__(self):
        self.clock_us = 0.0
        self.capturing = None
        self.pending = None
        self.calls = {}
        self.buffers = []
        self.held = {}  # what was allocated by the runtime's own call and is not freed yet
        self.watched = False
        self.played = 0  # of them, so far
        self.replayed = 0  # kernels in the graph that is being replayed

    def note_launch(self, entry, grid, block):
        """What a profiler sees of a launch, if one is watching."""
        log = os.environ.get("FAKE_PROFILE_LOG")
        if self.watched and log:
            line = json.dumps({"entry": entry, "grid": list(grid), "block": list(block)})
            with open(log, "a") as file:
                file.write(line + "\n")

    def do(self, step):
        """Now, or whenever the graph that is being made is replayed."""
        if self.capturing is None:
            step()
        else:
            self.capturing.append(step)

    def raise_pending(self):
        if self.pending is not None:
            raise self.pending

    def arrays_at(self, pointer, dtype, count):
        for buffer in self.buffers:
            offset = pointer - buffer.ctypes.data
            if 0 <= offset < buffer.size:
                size = count * np.dtype(dtype).itemsize
                return buffer[offset : offset + size].view(dtype)
        raise AssertionError("a pointer into no buffer")


state = _State()
