"""In a measuring child torch is the fake one; FAKE_GPU_TORCH=1 gives it a GPU."""

import sys

if any("labtools.measure.child" in argument for argument in sys.orig_argv):
    import fake_torch

    fake_torch.install()
