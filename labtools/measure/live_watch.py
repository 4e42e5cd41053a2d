"""A child's own watchdog: says what it is doing, and ends it when a step takes too long.

A kernel that never ends blocks the thread that waits for it. ``faulthandler`` watches from a
thread in C that needs nothing from Python, so it can end the process in that state too. What was
running stands in a file, which the parent reads.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMEOUT_MARK = "Timeout ("
"""How faulthandler begins what it prints when it ends the process."""


class Watchdog:
    """Watches the steps of one child.

    Args:
        path: the file that says which step is running.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def step(self, name: str, limit_s: float, label: str = "") -> Iterator[None]:
        """Run a step; the process ends if it is not over in ``limit_s`` seconds.

        ``label`` names the candidate that the step is about, if it is about one.
        """
        self._say({"step": name, "limit_s": limit_s, "label": label, "running": True})
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._say({"step": name, "limit_s": limit_s, "label": label, "running": False})

    def _say(self, stage: dict[str, Any]) -> None:
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(stage))
        os.replace(partial, self.path)


def read_stage(path: Path) -> dict[str, Any]:
    """What a child was doing last; an empty dict when it said nothing."""
    try:
        stage = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return stage if isinstance(stage, dict) else {}
