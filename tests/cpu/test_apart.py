"""Work in copies of this process: the same answers, and what a copy cannot do is done here."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labtools.predict import forecast, forecast_each
from labtools.problem import LabError, Workload, load_rung
from labtools.toolchain import apart
from labtools.toolchain.apart import can_work_apart, each_apart

LIMITS = {"limit_s": 20.0, "limit_bytes": 2**30}

pytestmark = pytest.mark.skipif(not can_work_apart(), reason="this system copies no process")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "usable_cores", lambda: 2)


@pytest.mark.parametrize(
    ("container", "cores", "copies"),
    [(str(2**31), 16, 2), (str(2**20), 16, 1), ("max\n", 2, 2), (None, 2, 2)],
)
def test_copies_fit_the_memory_of_a_container(
    container: str | None, cores: int, copies: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "memory.max"
    if container is not None:
        limit.write_text(container)
    monkeypatch.setattr(apart, "_CONTAINER_BYTES", limit)
    monkeypatch.setattr(apart, "usable_cores", lambda: cores)
    monkeypatch.setattr(os, "sysconf", lambda name: 2**21 if name == "SC_PHYS_PAGES" else 4096)
    assert apart.copies_at_once() == copies


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def test_answers_stand_in_the_order_of_the_items_and_come_from_copies() -> None:
    answers = each_apart(square, range(40), **LIMITS)
    assert [one for one, _ in answers] == [number * number for number in range(40)]
    copies = {pid for _, pid in answers}
    assert os.getpid() not in copies
    assert len(copies) <= 2


def test_one_item_is_done_here() -> None:
    assert each_apart(square, [3], **LIMITS) == [(9, os.getpid())]
    assert each_apart(square, [], **LIMITS) == []


def test_what_fails_in_a_copy_is_raised_here() -> None:
    def work(number: int) -> int:
        return 6 // number

    with pytest.raises(ZeroDivisionError):
        each_apart(work, [1, 2, 0, 3], **LIMITS)


def test_what_a_copy_does_not_end_is_done_here() -> None:
    def work(number: int) -> int:
        if number == 2 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return number + 1

    here = os.getpid()
    assert each_apart(work, range(5), **LIMITS) == [1, 2, 3, 4, 5]


def test_more_items_than_a_pipe_holds() -> None:
    count = 2**16 // 4 + 100
    assert each_apart(abs, range(-count, 0), **LIMITS) == list(range(count, 0, -1))


def test_several_forecasts_are_those_made_one_by_one(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        (load_rung("r03"), Workload.parse("2,8,2,256,128"), "h200", knobs)
        for knobs in ({"unroll": 1}, {"unroll": 4}, None)
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    together = forecast_each(asked)
    monkeypatch.setenv("LABTOOLS_CACHE_MIB", "0")
    assert together == [forecast(*one) for one in asked]
    with pytest.raises(LabError, match="unrolled"):
        forecast_each([asked[0], (*asked[1][:3], {"unrolled": 1})])


def test_one_thread_forks_at_a_time_and_a_copy_may_be_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """filelock lets no thread fork while another is at it, as long as it holds a lock."""
    real, inside, most = os.fork, [], [0]

    def fork() -> int:
        inside.append(1)
        most[0] = max(most[0], len(inside))
        time.sleep(0.002)
        try:
            return real()
        finally:
            inside.pop()

    def plain(_: int) -> bytes:
        return apart.work_apart(lambda: b"copied", **LIMITS)

    def nested(number: int) -> bytes:
        return apart.work_apart(lambda: plain(number), **LIMITS)

    monkeypatch.setattr(os, "fork", fork)
    with ThreadPoolExecutor(8) as pool:
        for work in (plain, nested):
            assert list(pool.map(work, range(24))) == [b"copied"] * 24
    assert most == [1]
