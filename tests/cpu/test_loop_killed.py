"""kill -9 of the real command ``labtools loop run``, at random events and at random times."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from labtools.measure.worker import child_environment
from labtools.optimize.events import PointTimed
from labtools.optimize.loop_folder import LoopFolder

KILLS = int(os.environ.get("LABTOOLS_LOOP_KILLS", "3"))
SEED = 3
LIMIT_S = 120.0
WAIT_S = 0.002
AT_ANY_TIME = 0.25
"""Share of the kills that wait for no event."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")


def start_run(folder: Path) -> subprocess.Popen[str]:
    """The command, in a process group of its own."""
    command = [sys.executable, "-m", "labtools", "loop", "run", str(folder)]
    return subprocess.Popen(
        [*command, "--kernel", "tunable", "--on", "recorded", "--seed", str(SEED), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
        start_new_session=True,
    )


def run_through(folder: Path) -> dict[str, Any]:
    """The command to its end; its answer."""
    child = start_run(folder)
    said, errors = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 0, errors
    answer: dict[str, Any] = json.loads(said)
    return answer


def whole_lines(folder: Path) -> list[bytes]:
    """What the log has acknowledged: its lines that are whole."""
    try:
        return (folder / "log.jsonl").read_bytes().split(b"\n")[:-1]
    except OSError:
        return []


def kill_run(folder: Path, chance: random.Random) -> list[bytes]:
    """Run the command and kill it, after some more events or at any time, its start included.

    Returns:
        The lines that it had acknowledged before.
    """
    child = start_run(folder)
    wanted = len(whole_lines(folder)) + chance.randrange(1, 30)
    more_s, until = chance.random() * 0.02, time.monotonic() + LIMIT_S
    if chance.random() < AT_ANY_TIME:
        wanted, more_s = 0, chance.random() * 2.0
    while child.poll() is None and len(whole_lines(folder)) < wanted:
        assert time.monotonic() < until
        time.sleep(WAIT_S)
    time.sleep(more_s)
    acknowledged = whole_lines(folder)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=LIMIT_S)
    return acknowledged


@pytest.mark.slow
def test_a_killed_run_loses_nothing_and_ends_with_the_same_champion(tmp_path):
    chance = random.Random(int(os.environ.get("LABTOOLS_LOOP_KILL_SEED", "11")))
    whole = run_through(tmp_path / "whole")
    kills = number = 0
    while kills < KILLS:
        folder, acknowledged = tmp_path / str(number), list[bytes]()
        for _ in range(min(3, KILLS - kills)):
            acknowledged = kill_run(folder, chance)
            assert whole_lines(folder)[: len(acknowledged)] == acknowledged
            kills += 1
        answer = run_through(folder)
        assert whole_lines(folder)[: len(acknowledged)] == acknowledged
        for name in (
            "champion",
            "rounds",
            "runs",
            "stopped",
            "best",
            "best_leading",
            "sol",
            "forecast",
        ):
            assert answer[name] == whole[name]
        looked = LoopFolder.look(folder)
        timed = Counter(
            (one.round, one.purpose, one.point)
            for line in looked.lines
            if isinstance(one := line.event, PointTimed)
        )
        assert set(timed.values()) == {1}, "nothing is timed twice"
        # A kill may tear a line that is longer than a page; that one was not acknowledged.
        assert all("half written" in notice for notice in looked.notices), looked.notices
        number += 1
