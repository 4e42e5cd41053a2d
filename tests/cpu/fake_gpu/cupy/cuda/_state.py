"""What the fake device remembers."""

import numpy as np


class _State:
    def __init__(self):
        self.clock_us = 0.0
        self.capturing = None
        self.pending = None
        self.calls = {}
        self.buffers = []

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
