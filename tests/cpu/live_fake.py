"""Helpers for tests that run the measuring children on the fake GPU."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from devices import H200

from labtools.measure.campaign import recording as campaign
from labtools.measure.gpu import measure as live_measure
from labtools.measure.gpu import runner as live
from labtools.measure.profiler import ncu as profile
from labtools.measure.profiler import sanitize
from labtools.problem import LabError

FAKE_GPU = Path(__file__).with_name("fake_gpu")

DEVICE = dataclasses.replace(
    H200,
    name="NVIDIA Fake GPU",
    sm_count=4,
    l2_bytes=64 * 1024,
    memory_bytes=2**30,
    driver_version="580.0",
)


def use_fake_gpu(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    behaviour: dict[str, str] | None = None,
    sample_us: float = 500.0,
) -> None:
    """Let children import the fake CuPy, and the parent believe in its device.

    A launch of the fake takes as long as its Python, so samples are shorter than real ones.
    """
    paths = [str(FAKE_GPU), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    # labtools itself comes first on a child's path; the fake only has to come before CuPy.
    # A GPU that is really there stays out of sight, of torch too.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("FAKE_GPU_BEHAVIOUR", json.dumps(behaviour or {}))
    monkeypatch.setenv("LABTOOLS_GPU_LOCKS", str(tmp_path / "gpu-locks"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for module in (live, live_measure):
        monkeypatch.setattr(module, "require_device", lambda: DEVICE)
    monkeypatch.setattr(campaign, "require_device", lambda: DEVICE)
    monkeypatch.setattr(live_measure, "SAMPLE_US", sample_us)
    # A GPU machine has these tools, and they would look for the real device.
    monkeypatch.setattr(profile, "find_ncu", _no_tool)
    monkeypatch.setattr(sanitize, "find_sanitizer", _no_tool)


def _no_tool() -> None:
    raise LabError("The tool was not found.", "these tests have none")
