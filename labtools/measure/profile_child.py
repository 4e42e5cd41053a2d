"""The program that ncu watches for a batch: it launches many rungs, each once within a range.

``python -m labtools.measure.profile_child REQUEST.json RESULT.json`` runs under ncu. What it has
done stands in a file after every item, so that a kernel that takes the process down costs itself
alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labtools.problem import LabError, Workload, make_inputs

from .child import report_progress, serve_lab
from .live_device import (
    RED_BYTE,
    BufferSet,
    LiveDevice,
    allocate_sets,
    allocate_workspaces,
    bind_launches,
)
from .live_faults import explain_cuda_error, looks_like_cuda
from .live_job import split_launches
from .live_watch import Watchdog

START_LIMIT_S = 120.0


class _Progress:
    """What has been done, in a file that survives the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.profiled: list[int] = []
        self.problems: dict[str, str] = {}
        self.dead = False

    def say(self) -> dict[str, Any]:
        """Write it down and return it."""
        story = {"profiled": self.profiled, "problems": self.problems, "dead": self.dead}
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(story))
        os.replace(partial, self.path)
        return story


def profile_items(request: Mapping[str, Any]) -> dict[str, Any]:
    """Launch everything that the request lists.

    Items of one workload stand next to each other and share its buffers.

    Returns:
        ``profiled``: the numbers of the items in the order in which ncu saw them; ``problems``: why
        others have no counters; ``dead``: the last problem ended the run.

    Raises:
        LabError: the GPU could not be used at all.
    """
    watchdog = Watchdog(Path(request["stage_path"]))
    progress = _Progress(Path(request["story_path"]))
    try:
        with watchdog.step("starting CUDA", START_LIMIT_S):
            device = LiveDevice(0, with_torch=False)
            _profile_empty(device, request["empty"])
    except Exception as error:
        if not looks_like_cuda(error):
            raise
        raise LabError(
            "The GPU could not be profiled.", explain_cuda_error(str(error)).message
        ) from error
    progress.say()
    for items in _by_workload(request["items"]):
        if not _profile_workload(device, items, request, watchdog, progress):
            break
        device.release()
    return progress.say()


def _by_workload(items: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Neighbours with one workload, together."""
    found: list[Mapping[str, Any]] = []
    for item in items:
        if found and item["workload"] != found[0]["workload"]:
            yield found
            found = []
        found.append(item)
    if found:
        yield found


def _profile_empty(device: LiveDevice, empty: Mapping[str, Any]) -> None:
    """An empty kernel, some times: what a launch costs under this profiler."""
    call = bind_launches(device, empty["cubin"], empty["launches"], {})
    call()
    device.synchronize()
    with _watched(device):
        for _ in range(int(empty["times"])):
            call()


def _profile_workload(
    device: LiveDevice,
    items: Sequence[Mapping[str, Any]],
    request: Mapping[str, Any],
    watchdog: Watchdog,
    progress: _Progress,
) -> bool:
    """Profile the items of one workload; False when the process can do no more."""
    workload = Workload.from_dict(items[0]["workload"])
    try:
        with watchdog.step(f"making inputs for {workload}", float(request["step_limit_s"])):
            buffers = _make_buffers(device, workload, request["fill_cubin"])
    except Exception as error:
        message, progress.dead = _explain(error)
        progress.problems.update({str(item["number"]): message for item in items})
        progress.say()
        return not progress.dead
    for place, item in enumerate(items):
        number = int(item["number"])
        if place == 0 or number % 8 == 0:
            report_progress(item=item["label"], done=len(progress.profiled))
        alive = True
        try:
            with watchdog.step(item["label"], float(request["step_limit_s"]), str(number)):
                alive = _profile_item(device, item, buffers, progress)
        except Exception as error:
            message, dead = _explain(error)
            progress.problems[str(number)] = message
            alive = not dead
        progress.dead = not alive
        progress.say()
        if not alive:
            return False
    return True


def _explain(error: Exception) -> tuple[str, bool]:
    """What an error means in plain words, and whether CUDA is dead after it."""
    if isinstance(error, LabError):
        return " ".join(filter(None, (error.what, error.why))), False
    if not looks_like_cuda(error):
        return f"{type(error).__name__}: {error}", False
    fault = explain_cuda_error(str(error))
    return fault.message, fault.fatal


def _make_buffers(device: LiveDevice, workload: Workload, fill_cubin: str) -> BufferSet:
    from .live_check import draw_on_device

    (buffers,) = allocate_sets(device, workload, 1)
    if workload.distribution == "normal":
        draw_on_device(device, fill_cubin, buffers, workload, workload.seed)
    else:
        for name, array in make_inputs(workload).buffers().items():
            device.upload(getattr(buffers, name), array)
    device.set_bytes(buffers.out, RED_BYTE)
    device.synchronize()
    return buffers


def _profile_item(
    device: LiveDevice, item: Mapping[str, Any], buffers: BufferSet, progress: _Progress
) -> bool:
    """Prepare, warm up, and launch once while ncu watches.

    Returns False when that launch failed: ncu's report may then hold a part of it, and only as
    the last part of a report can that be told from the others.
    """
    named = {**buffers.named(), **allocate_workspaces(device, item["launches"])}
    preparation, watched = split_launches(item["launches"])
    bind_launches(device, item["cubin"], preparation, named)()
    call = bind_launches(device, item["cubin"], watched, named)
    call()  # loads the module; on a warm workload it also fills the caches
    device.synchronize()
    try:
        with _watched(device):
            call()
    except Exception as error:
        progress.problems[str(item["number"])] = _explain(error)[0]
        return False
    progress.profiled.append(int(item["number"]))
    return True


@contextmanager
def _watched(device: LiveDevice) -> Iterator[None]:
    """A range that ncu profiles."""
    profiler: Any = device.cp.cuda.profiler
    start: Callable[[], None] = profiler.start
    start()
    yield
    device.synchronize()
    profiler.stop()


if __name__ == "__main__":
    serve_lab(profile_items)
