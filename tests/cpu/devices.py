"""Devices as they would describe themselves, for tests that have none."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from labtools.predict import load_gpu
from labtools.toolchain import CompilerMissing, DeviceInfo, find_compiler, find_tool
from labtools.toolchain.cache import code_digest
from tools.slow_list import EVERY_CASE
from tools.write_listings import locked_nvrtc

T = TypeVar("T")


def _compiler_version() -> str | None:
    try:
        return find_compiler().version
    except CompilerMissing:
        return None


NVRTC = _compiler_version()
_HAS_TOOLS = NVRTC is not None and find_tool("nvdisasm") is not None
needs_compiler = pytest.mark.skipif(NVRTC is None, reason="no compiler here")
needs_tools = pytest.mark.skipif(not _HAS_TOOLS, reason="no compiler or no nvdisasm here")
needs_locked = pytest.mark.skipif(
    not _HAS_TOOLS or locked_nvrtc() != NVRTC, reason="not the pinned compiler"
)


_CODE = code_digest("problem", "toolchain", "measure", "predict", "optimize")


def some_of(every: Sequence[T], count: int, always: Sequence[T] = ()) -> list[T]:
    """Some cases of many alike ones, in their order; ``always`` are taken beside the drawn ones.

    The draw follows from the code, since all processes of a test run must make the same one.
    """
    if EVERY_CASE:
        return list(every)
    rng = random.Random(_CODE + "".join(str(getattr(case, "id", case)) for case in every))
    left = [one for one in every if one not in always]
    chosen = rng.sample(left, min(count, len(left)))
    return [one for one in every if one in chosen or one in always]


_SAID = tomllib.loads(Path(__file__).with_name("h200.toml").read_text("utf-8"))
H200 = DeviceInfo(**{**_SAID, "compute_capability": tuple(_SAID["compute_capability"])})

LIMITS = load_gpu("h200").limits
"""What the data sheet of the H200 gives a launch."""
