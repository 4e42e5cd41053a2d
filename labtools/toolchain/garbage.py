"""Work that makes very many objects and no circles of them, without a search for such circles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Let Python look for no unreachable circles of objects until the block ends. Of threads in
    such blocks the one that switched the search off switches it on again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
