"""The child-process runner: nothing outlives it, whatever the child does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from processes import ends, is_alive

from labtools.measure.worker import KEPT_BYTES, ChildNotStarted, child_environment, run_child


def _python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *arguments]


def _wait_for_pid(path: Path, within_s: float = 20.0) -> int:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} was never written")


# A child that starts a grandchild, which ignores polite signals and writes down its pid.
STUBBORN = """
    import os, subprocess, sys, time
    grandchild = (
        "import os, signal, sys, time\\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\\n"
        "time.sleep(600)\\n"
    )
    process = subprocess.Popen([sys.executable, "-c", grandchild, sys.argv[1]])
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    if sys.argv[2] == "wait":
        process.wait()
"""


@pytest.mark.parametrize(
    ("code", "status", "ending"),
    [
        ("pass", 0, "ended with status 0"),
        ("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)", 7, "status 7"),
        ("import os; os.kill(os.getpid(), 11)", -11, "was ended by SIGSEGV"),
    ],
)
def test_output_and_status_come_back(code: str, status: int, ending: str) -> None:
    child = run_child(_python(code), time_limit_s=30)
    assert (child.returncode, child.ok, child.timed_out) == (status, status == 0, False)
    assert ending in child.ending
    if status == 7:
        assert (child.stdout, child.stderr) == ("out\n", "err\n")


@pytest.mark.parametrize(("then", "limit_s"), [("wait", 3.0), ("leave", 60.0)])
def test_a_grandchild_ends_with_a_child_that_hangs_or_leaves_it(
    tmp_path: Path, then: str, limit_s: float
) -> None:
    pid_file = tmp_path / "pid"
    child = run_child(_python(STUBBORN, str(pid_file), then), time_limit_s=limit_s)
    assert child.seconds < 30
    assert child.timed_out == (then == "wait") and child.ok == (then == "leave")
    assert not child.timed_out or (child.returncode is None and "3 s" in child.ending)
    assert ends(int(pid_file.read_text()))


def test_endless_output_is_bounded() -> None:
    child = run_child(
        _python(
            """
            import sys
            print("first")
            piece = "x" * 1_000_000
            for _ in range(20):
                sys.stdout.write(piece)
            print("\\nlast")
            """
        ),
        time_limit_s=60,
    )
    assert child.ok
    assert child.stdout.startswith("first\n")
    assert child.stdout.endswith("last\n")
    assert "bytes left out" in child.stdout
    assert len(child.stdout) < KEPT_BYTES + 100


def test_a_program_that_is_missing_or_cannot_be_executed_is_told(tmp_path: Path) -> None:
    with pytest.raises(ChildNotStarted) as caught:
        run_child(["no-such-program-here"], time_limit_s=5)
    assert "no-such-program-here" in caught.value.what
    assert caught.value.why and caught.value.still_works
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(ChildNotStarted) as caught:
        run_child([broken], time_limit_s=5)
    assert "No such file" in caught.value.why


def test_the_child_imports_this_labtools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import labtools

    monkeypatch.chdir(tmp_path)
    child = run_child(_python("import labtools; print(labtools.__file__)"), time_limit_s=30)
    assert child.stdout.strip() == labtools.__file__


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_child_outlives_its_parent(tmp_path: Path, ending: signal.Signals) -> None:
    """Ctrl-C raises in the parent; SIGKILL gives it no chance to clean up."""
    pid_file, module = tmp_path / "pid", tmp_path / "parent.py"
    module.write_text(
        "import sys\n"
        "from labtools.measure.worker import run_child\n"
        f"run_child([sys.executable, '-c', {textwrap.dedent(STUBBORN)!r}, {str(pid_file)!r}, "
        "'wait'], time_limit_s=600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, str(module)], env=child_environment(), stderr=subprocess.DEVNULL
    )
    try:
        grandchild = _wait_for_pid(pid_file)
        assert is_alive(grandchild)
        os.kill(parent.pid, ending)
        parent.wait(timeout=60)
        assert ends(grandchild)
    finally:
        if parent.poll() is None:
            parent.kill()
            parent.wait()
