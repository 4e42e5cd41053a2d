"""With FAKE_GPU_TORCH=1, torch in a child believes in a GPU: its own CPU, on the fake clock."""

import os
import sys

if os.environ.get("FAKE_GPU_TORCH") == "1" and any(
    "labtools.measure.child" in a for a in sys.orig_argv
):
    import torch

    _CALL_US = 15.0
    _calls = {"captured": None}

    def _state():
        from cupy.cuda._state import state

        return state

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

    _attend = torch.nn.functional.scaled_dot_product_attention

    def _timed_attend(*args, **kwargs):
        if _calls["captured"] is None:
            _state().clock_us += _CALL_US
        else:
            _calls["captured"] += 1
        return _attend(*args, **kwargs)

    torch.nn.functional.scaled_dot_product_attention = _timed_attend
    torch.cuda.is_available = lambda: True
    torch.cuda.set_device = lambda ordinal: None
    torch.cuda.Stream = _Stream
    torch.cuda.set_stream = lambda stream: None
    torch.cuda.empty_cache = lambda: None
    torch.cuda.CUDAGraph = _Graph
    torch.backends.cudnn.version = lambda: None
