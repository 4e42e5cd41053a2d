"""CUDA's runtime, as far as the measuring children ask it."""

import numpy as np

from ._state import state as _state

_SAID = {
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    716: "cudaErrorMisalignedAddress: misaligned address",
}


class CUDARuntimeError(RuntimeError):
    """As CuPy's: made of CUDA's code, which it keeps."""

    def __init__(self, status):
        self.status = status
        super().__init__(_SAID[status])


def getDeviceCount():
    return 1


def getDeviceProperties(ordinal):
    return {"name": b"Fake GPU", "l2CacheSize": 64 * 1024, "multiProcessorCount": 4}


def deviceGetPCIBusId(ordinal):
    return "0000:fa:ke.0"


def memGetInfo():
    return (2**30, 2**30)


MALLOC_US, FREE_US = 30.0, 20.0


def malloc(size):
    assert _state.capturing is None, "memory would be allocated once, while the graph is made"
    assert len(_state.held) < 4, "memory is allocated and not freed"
    buffer = np.full(size, 0x11, np.uint8)
    pointer = buffer.ctypes.data
    _state.held[pointer] = buffer
    _state.buffers.append(buffer)
    _state.clock_us += MALLOC_US
    return pointer


def free(pointer):
    buffer = _state.held.pop(pointer)
    buffer[:] = 0xFF
    _state.buffers[:] = [one for one in _state.buffers if one is not buffer]
    _state.clock_us += FREE_US


def runtimeGetVersion():
    return 13000
