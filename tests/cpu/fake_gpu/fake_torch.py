"""As much of torch as baselines and the measuring children use, over numpy, on the fake clock.

torch itself takes seconds to be imported, in every child anew; that the baselines are right with it
is tested in one process (``test_live_baselines``).
"""

import contextlib
import os
import sys
import types

import ml_dtypes
import numpy as np

_CALL_US = 15.0
_calls = {"captured": None}
bfloat16 = np.dtype(ml_dtypes.bfloat16)


def _state():
    from cupy.cuda._state import state

    return state


class Tensor:
    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def unsqueeze(self, axis):
        return Tensor(np.expand_dims(self._array, axis))

    def squeeze(self, axis):
        return Tensor(np.squeeze(self._array, axis))

    def repeat_interleave(self, times, dim):
        return Tensor(np.repeat(self._array, times, dim))

    def reshape(self, shape):
        return Tensor(self._array.reshape(shape))

    def view(self, dtype):
        return Tensor(self._array.view(dtype))

    def data_ptr(self):
        return self._array.ctypes.data

    def is_floating_point(self):
        return self.dtype.kind not in "iu"

    def float(self):
        return Tensor(self._array.astype(np.float32))

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self._array


class _Stream:
    cuda_stream = 7


class _Graph:
    count = 0

    def capture_begin(self, pool=None, capture_error_mode="global"):
        assert capture_error_mode in ("global", "thread_local", "relaxed")
        _calls["captured"] = 0

    def capture_end(self):
        self.count, _calls["captured"] = _calls["captured"], None

    def replay(self):
        _state().clock_us += _CALL_US * self.count


def _called():
    if _calls["captured"] is None:
        _state().clock_us += _CALL_US
    else:
        _calls["captured"] += 1


def scaled_dot_product_attention(q, k, v, scale, enable_gqa=False):
    _called()
    queries, keys, values = (one._array.astype(np.float32) for one in (q, k, v))
    if enable_gqa:
        group = queries.shape[1] // keys.shape[1]
        keys, values = np.repeat(keys, group, 1), np.repeat(values, group, 1)
    scores = scale * queries @ keys.swapaxes(2, 3)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return Tensor((weights / weights.sum(-1, keepdims=True) @ values).astype(q.dtype))


def rms_norm(x, shape, weight, eps):
    _called()
    numbers = x._array.astype(np.float32)
    scale = np.sqrt((numbers**2).mean(-1, keepdims=True) + eps)
    return Tensor((numbers / scale * weight._array.astype(np.float32)).astype(x.dtype))


class _Backends:
    """``SDPBackend.MATH`` and its like."""

    def __getattr__(self, name):
        return name


def _module(name, **holds):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(holds)
    return made


def install():
    """Let this process import it as torch."""
    attends = {"scaled_dot_product_attention": scaled_dot_product_attention}
    functional = _module("torch.nn.functional", rms_norm=rms_norm, **attends)
    kernel = {"sdpa_kernel": lambda backend: contextlib.nullcontext()}
    attention = _module("torch.nn.attention", SDPBackend=_Backends(), **kernel)
    cuda = _module(
        "torch.cuda",
        is_available=lambda: os.environ.get("FAKE_GPU_TORCH") == "1",
        set_device=lambda ordinal: None,
        Stream=_Stream,
        set_stream=lambda stream: None,
        empty_cache=lambda: None,
        CUDAGraph=_Graph,
    )
    cudnn = _module("torch.backends.cudnn", version=lambda: None)
    _module(
        "torch",
        __version__="fake",
        bfloat16=bfloat16,
        from_dlpack=lambda array: Tensor(np.from_dlpack(array)),
        nn=_module("torch.nn", functional=functional, attention=attention),
        cuda=cuda,
        backends=_module("torch.backends", cudnn=cudnn),
    )
