"""A tensor map as the driver writes it, for a kernel that gets it by value."""

from __future__ import annotations

import ctypes

import numpy as np

from labtools.problem import LabError, TensorMap

BYTES, ALIGNMENT = 128, 64
_TYPES = {"float16": 6, "bfloat16": 9}  # as cuTensorMapEncodeTiled calls them
_SWIZZLES = {0: 0, 128: 3}
_L2_128_BYTES = 2


def encode_tensor_map(tensor_map: TensorMap, address: int) -> np.ndarray:
    """Ask the driver for the 128 bytes that name a buffer at an address to the copy engine.

    Returns one element of 128 bytes, [1], which CuPy passes by value.

    Raises LabError: the driver does not take it.
    """
    words = tensor_map.words
    room = (ctypes.c_ubyte * (BYTES + ALIGNMENT))()
    start = -ctypes.addressof(room) % ALIGNMENT
    error = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.byref(room, start),
        _TYPES[tensor_map.dtype],
        3,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 3)(*words[:3]),
        (ctypes.c_uint64 * 2)(*words[3:5]),
        (ctypes.c_uint32 * 3)(*words[5:8]),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        0,
        _SWIZZLES[tensor_map.swizzle],
        _L2_128_BYTES,
        0,
    )
    if error:
        what = f"The driver refused a tensor map of {tensor_map.buffer}: CUDA error {error}."
        raise LabError(what, f"{tensor_map} at address {address:#x}", "kernels without tensor maps")
    return np.frombuffer(bytes(room[start : start + BYTES]), dtype=np.dtype(f"V{BYTES}"))
