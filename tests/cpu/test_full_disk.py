"""A disk that is full at any write, and a process that is killed at any time, lose nothing."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from record_samples import make_record

from labtools.measure.worker import child_environment
from labtools.record import RecordStore
from labtools.record.store import append_records
from labtools.record.whole import remove_left_over, write_whole

HERE = Path(__file__).parent
MOST_WRITES = 60
"""Of the longest work that is tried, about."""
POINTS = 4
KILLS = 2


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and a C compiler"
)
def test_what_was_said_to_be_kept_is_kept_wherever_the_disk_is_full(tmp_path: Path) -> None:
    shim = tmp_path / "full_disk.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", HERE / "full_disk.c", "-o", shim, "-ldl"]
    subprocess.run(command, check=True)
    points = random.sample(range(MOST_WRITES), POINTS)
    done = subprocess.run(
        [sys.executable, HERE / "full_disk.py", tmp_path, *map(str, points)],
        env=child_environment({"LD_PRELOAD": str(shim)}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stdout, f"at {points}: {done.stdout}"


APPENDS = """
import sys
from pathlib import Path
from record_samples import make_record
from labtools.record.store import append_records
for i in range(10_000):
    append_records(Path(sys.argv[1]), [make_record(f"{sys.argv[2]}{i}")])
    print(f"{sys.argv[2]}{i}", flush=True)
"""


def test_killed_writers_of_records_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    said: list[str] = []
    for number in range(KILLS):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", APPENDS, str(path), f"{name}{number}x"],
                stdout=subprocess.PIPE,
                text=True,
                env=child_environment({"PYTHONPATH": str(HERE)}),
            )
            for name in ("a", "b")
        ]
        for one in writers:
            said.append(one.stdout.readline().strip())
        time.sleep(random.random() * 0.05)
        for one in writers:
            one.send_signal(signal.SIGKILL)
            said += one.stdout.read().split()
            one.wait()
    append_records(path, [make_record("last")])
    kept = [record.candidate for record in RecordStore([tmp_path]).load()]
    assert len(kept) == len(set(kept)) and set(said) <= set(kept)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_what_a_killed_writer_left_goes_and_what_one_writes_stays(tmp_path: Path) -> None:
    left, begun = tmp_path / ".a.jsonl.x.part", tmp_path / ".b.jsonl.y.part"
    for path in (left, begun):
        path.write_text("half")
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2);"
         "print(1, flush=True); sys.stdin.read()", begun],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout.readline()
    try:
        assert RecordStore([tmp_path]).load() == []
        assert not left.exists() and begun.exists()
        write_whole(tmp_path / "c", b"all")
        assert begun.exists() and (tmp_path / "c").read_bytes() == b"all"
    finally:
        holder.communicate()
    remove_left_over(begun)
    assert not begun.exists()
