"""The one child program: ``python -m labtools.measure.child [OPTIONS] ADDRESS``.

Ordinary children leave at once when they are done, since a dead CUDA context makes destructors
complain or block; one that a profiler watches ends as programs do.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback

from labtools.problem import LabError, load_rung

from .channel import serve

LEAVE_AT_ONCE = "--leave-at-once"
PRELOAD = "--preload="
"""Before the name of a module that is imported before the first call, where it is installed."""
OPERATIONS = "--operations="
"""Before the path of a reader's file whose operations the child must know."""
REFUSED = 3
"""Exit status after a call that was refused."""


def main(arguments: list[str]) -> int:
    """Answer calls; returns the exit status."""
    for option in arguments[:-1]:
        if option.startswith(PRELOAD):
            with contextlib.suppress(ImportError):
                importlib.import_module(option.removeprefix(PRELOAD))
        elif option.startswith(OPERATIONS):
            # A file that was broken since costs only those calls that need it.
            with contextlib.suppress(LabError):
                load_rung(option.removeprefix(OPERATIONS))
    try:
        return 0 if serve(arguments[-1]) else REFUSED
    except Exception:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    if LEAVE_AT_ONCE in sys.argv:
        os._exit(status)
    sys.exit(status)
