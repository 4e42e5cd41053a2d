"""The part of ``cupy.cuda`` that the measuring children use."""

import numpy as np

from . import memory, profiler, runtime  # noqa: F401
from ._state import state as _state


class Device:
    def __init__(self, ordinal=0):
        self.id = ordinal

    def use(self):
        pass


class MemoryPointer:
    def __init__(self, buffer, offset=0):
        self.buffer = buffer
        self.offset = offset

    @property
    def ptr(self):
        return self.buffer.ctypes.data + self.offset

    def __add__(self, offset):
        return MemoryPointer(self.buffer, self.offset + offset)

    def memset_async(self, value, size, stream=None):
        self.buffer[self.offset : self.offset + size] = value

    def copy_from_device_async(self, source, size, stream=None):
        def run():
            self.buffer[self.offset : self.offset + size] = source.buffer[
                source.offset : source.offset + size
            ]

        _state.do(run)


def alloc(size):
    buffer = np.full(size, 0x11, np.uint8)
    _state.buffers.append(buffer)
    return MemoryPointer(buffer)


class Graph:
    def __init__(self, steps):
        self.steps = steps

    def launch(self, stream=None):
        _state.replayed = len(self.steps)
        for _state.played, step in enumerate(self.steps):
            step()
        _state.replayed = _state.played = 0


class Stream:
    ptr = 7

    def __init__(self, non_blocking=False):
        pass

    @classmethod
    def from_external(cls, handle):
        return cls()

    def use(self):
        return self

    def synchronize(self):
        _state.raise_pending()

    def begin_capture(self):
        _state.capturing = []

    def end_capture(self):
        graph = Graph(_state.capturing)
        _state.capturing = None
        return graph


class Event:
    time_us = None

    def record(self, stream=None):
        self.time_us = _state.clock_us

    def synchronize(self):
        _state.raise_pending()


def get_elapsed_time(start, end):
    return (end.time_us - start.time_us) / 1e3
