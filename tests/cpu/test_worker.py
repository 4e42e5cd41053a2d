"""Calls in a child: replies, items and progress come back, and every way to end is told apart."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import child_functions
import pytest
from child_functions import Sum
from processes import ends

from labtools.measure.worker import ChildFailed, ChildNotStarted, Worker, WorkerDied, run_call


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find the functions of these tests."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def test_one_child_answers_call_after_call() -> None:
    said: list[tuple[str, int, int]] = []
    items: list[float] = []
    with Worker(progress=lambda *event: said.append(event)) as worker:
        first = worker.call(
            child_functions.add, Sum((1.0, 2.5)), time_limit_s=60, on_item=items.append
        )
        second = worker.call(child_functions.add, Sum((0.1,)), time_limit_s=60)
        assert worker.step is not None and not worker.step.running
    assert items == [1.0, 3.5]
    assert said[:2] == [("adding 1.0", 0, 2), ("adding 2.5", 1, 2)]
    assert (first.numbers, second.numbers) == ((3.5,), (0.1,))
    assert first.ending == second.ending  # one process
    assert ends(int(first.ending)), "the child outlives its worker"


@pytest.mark.parametrize("ending", ["crash", "hang", "raise"])
def test_what_was_done_before_the_end_is_kept_and_the_step_is_named(ending: str) -> None:
    items: list[float] = []
    request = Sum((1.0, -1.0, 2.0), ending, limit_s=2.0)
    with Worker() as worker, pytest.raises(WorkerDied) as caught:
        worker.call(child_functions.add, request, time_limit_s=120, on_item=items.append)
    died = caught.value
    assert items == [1.0]
    assert died.hung == (ending == "hang")
    assert not worker.alive
    if ending == "raise":  # the step is over: the error has left it
        assert "ZeroDivisionError: a mistake" in died.why
    else:
        assert died.step is not None
        assert (died.step.name, died.step.label) == ("adding -1.0", "1")
        assert "adding -1.0" in str(died)
        assert ("did not end within 2 s" if ending == "hang" else "SIGABRT") in died.why


def test_a_refusal_is_told_whole_and_the_child_goes_on() -> None:
    with Worker() as worker:
        with pytest.raises(ChildFailed) as caught:
            worker.call(child_functions.refuse, "what", time_limit_s=60)
        assert (caught.value.what, caught.value.why) == ("what", "b")
        assert worker.call(child_functions.add, Sum((2.0,)), time_limit_s=60).numbers == (2.0,)


def test_a_call_past_its_limit_is_killed() -> None:
    started = time.monotonic()
    with Worker() as worker, pytest.raises(WorkerDied) as caught:
        worker.call(child_functions.add, Sum((-1.0,), "hang", 500.0), time_limit_s=3.0)
    assert caught.value.child.timed_out
    assert "time limit of 3 s" in caught.value.why
    assert time.monotonic() - started < 20


def test_a_tool_may_stand_between(tmp_path: Path) -> None:
    """Whatever starts the child, and whatever it leaves open for it, the channel is there."""
    tool = tmp_path / "tool"
    tool.write_text(
        f"#!{sys.executable}\n"
        "import subprocess, sys\n"
        "print('the tool watches')\n"
        "sys.exit(subprocess.run(sys.argv[1:], close_fds=True).returncode)\n"
    )
    tool.chmod(0o755)
    finished = run_call(
        child_functions.add, Sum((1.0, 2.0)), time_limit_s=60, prefix=[tool], tidy=True
    )
    assert finished.answered and finished.reply is not None
    assert finished.reply.numbers == (3.0,)
    assert finished.child.ok
    assert "the tool watches" in finished.child.stdout


def test_a_tool_that_never_starts_the_child_is_told(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho no such device >&2\nexit 9\n")
    tool.chmod(0o755)
    finished = run_call(child_functions.add, Sum((1.0,)), time_limit_s=60, prefix=[tool])
    assert not finished.answered
    assert finished.failure == "the process ended with status 9; it said: no such device"
    with pytest.raises(ChildNotStarted):
        run_call(child_functions.add, Sum((1.0,)), time_limit_s=60, prefix=["no-such-tool"])


def test_a_long_temporary_folder_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a local socket has about a hundred characters at most."""
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert run_call(child_functions.add, Sum((1.0,)), time_limit_s=60).answered
    assert not list(deep.iterdir())


def test_a_child_that_takes_too_much_memory_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labtools.measure.worker.WORKER_BYTES", 2**28)
    with Worker() as worker, pytest.raises(WorkerDied, match=r"limit of 0\.[23] GiB of memory"):
        worker.call(child_functions.add, Sum((-1.0,), "fill"), time_limit_s=60)
