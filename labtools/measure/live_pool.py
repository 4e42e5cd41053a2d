"""Several measuring children, kept alive for a whole campaign, measuring one at a time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from labtools.problem import LabError

from .child import ChildResult, child_lab_error, run_python_child
from .live_faults import NOTEBOOK_ALIVE, hang_message
from .live_watch import TIMEOUT_MARK, read_stage

CHILD_MODULE = "labtools.measure.live_child"
LIFETIME_S = 12 * 3600.0
ANSWER_LIMIT_S = 2 * 3600.0
"""Longest wait for one answer, waiting for the GPU included; the child's own watchdog is faster."""
_POLL_S = 0.02


class LiveChildDied(LabError):
    """A measuring child ended before it had answered."""


class _Worker:
    """One child and its mailbox."""

    def __init__(self, folder: Path, request: dict[str, Any], tell: Callable[[str], None]) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.sent = 0
        self.spent = False
        """True once CUDA is dead in this child, which then ends by itself."""
        self.ended: tuple[ChildResult, Any] | None = None
        self.error: BaseException | None = None
        self._tell = tell
        request = {**request, "kind": "serve", "mailbox": str(folder)}
        self._thread = threading.Thread(target=self._live, args=(request,), daemon=True)
        self._thread.start()

    def _live(self, request: dict[str, Any]) -> None:
        try:
            self.ended = run_python_child(
                CHILD_MODULE, request, time_limit_s=LIFETIME_S, on_progress=self._hear
            )
        except BaseException as error:  # handed to whoever waits for the answer
            self.error = error

    def _hear(self, event: dict[str, Any]) -> None:
        if "wait" in event:
            self._tell(event["wait"])

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send a job and wait for its answer.

        Raises:
            LiveChildDied: the child ended first.
        """
        number = self.sent
        self.sent += 1
        partial = self.folder / f"job-{number}.part"
        partial.write_text(json.dumps(job))
        os.replace(partial, self.folder / f"job-{number}.json")
        answer_path = self.folder / f"done-{number}.json"
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while not answer_path.exists():
            if not self.alive:
                if answer_path.exists():
                    break
                raise self._explain_end()
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(_POLL_S)
        answer: dict[str, Any] = json.loads(answer_path.read_text())
        self.spent = "fatal" in answer or bool(answer.get("dead"))
        return answer

    def _explain_end(self) -> LabError:
        if isinstance(self.error, LabError):
            return self.error
        if self.error is not None:
            raise self.error
        assert self.ended is not None
        child, result = self.ended
        return explain_end(child, result, read_stage(self.folder / "stage.json"))

    def kill(self) -> None:
        """End the child, whatever it does."""
        with suppress(OSError, ValueError):
            os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)

    def stop(self, patience_s: float) -> None:
        """Ask the child to end, then make it."""
        (self.folder / "stop").touch()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            self.kill()
            self._thread.join(20.0)


def explain_end(child: ChildResult, result: Any, stage: dict[str, Any]) -> LabError:
    """Why a child ended without an answer, as an error to raise."""
    told = child_lab_error(result)
    if told is not None:
        return told
    doing = stage.get("step", "starting") if stage.get("running") else "between two steps"
    if TIMEOUT_MARK in child.stderr and stage.get("running"):
        return LiveChildDied(
            f"A step did not end: {doing}.", hang_message(stage["limit_s"]), NOTEBOOK_ALIVE
        )
    lines = [line for line in child.stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("labtools-progress ")]
    said = f"; it said: {lines[-1].strip()[:300]}" if lines else ""
    return LiveChildDied(
        "The measuring process ended early.",
        f"it {child.ending} while {doing}{said}",
        NOTEBOOK_ALIVE,
    )


class LivePool:
    """Children that measure groups, one child at a time.

    Args:
        processes: how many.
        request: what every child is told at its start.
        tell: gets one sentence when a child must wait for the GPU.
    """

    def __init__(
        self,
        processes: int,
        request: dict[str, Any],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.request = request
        self.tell = tell
        self._folder = Path(tempfile.mkdtemp(prefix="labtools-live-"))
        self._starts = 0
        self._device: int | None = None
        self._workers = [self._start() for _ in range(processes)]

    def _start(self) -> _Worker:
        self._starts += 1
        return _Worker(self._folder / f"child-{self._starts}", self.request, self.tell)

    def measure(self, process: int, group: dict[str, Any]) -> dict[str, Any]:
        """Let one child measure a group. A child that died before is started anew.

        Raises:
            LabError: the child ended, hung, or could not use the GPU.
        """
        if self._workers[process].spent or not self._workers[process].alive:
            self._workers[process] = self._start()
        job = {"group": group, "process": process, "device": self._device}
        answer = self._workers[process].ask(job)
        self._device = answer.get("ordinal", self._device)
        return answer

    def stage(self, process: int) -> dict[str, Any]:
        """What a child was doing last."""
        return read_stage(self._workers[process].folder / "stage.json")

    def __enter__(self) -> LivePool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error a child may sit in a long group: it gets no time to finish it.
        for worker in self._workers:
            with suppress(OSError):
                (worker.folder / "stop").touch()
        for worker in self._workers:
            worker.stop(patience_s=5.0 if error is None else 0.1)
        shutil.rmtree(self._folder, ignore_errors=True)
