"""The worked example of CONTRIBUTING.md works, in a folder outside the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FILE = re.compile(r"^```\w+ file=(?P<name>[\w.]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def extract(folder: Path) -> list[Path]:
    """Write the page's files into a folder."""
    written = []
    for match in _FILE.finditer((ROOT / "CONTRIBUTING.md").read_text()):
        path = folder / match["name"]
        path.write_text(match["text"])
        written.append(path)
    return written


def labtools(*arguments: str, cwd: Path) -> tuple[int, dict[str, object]]:
    """Exit status and JSON answer of one command."""
    command = [sys.executable, "-m", "labtools", *arguments, "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    files = extract(tmp_path)
    assert sorted(path.name for path in files) == ["two_rows.cu", "two_rows.py"]
    return tmp_path / "two_rows.py"


@pytest.mark.parametrize("workload", ["2,8,2,301,128", "1,4,4,1,64", "1,4,1,34,64"])
def test_the_example_is_right(example: Path, workload: str) -> None:
    status, answer = labtools(
        "run", str(example), "--workload", workload, "--on", "cpu", cwd=example.parent
    )
    assert status == 0, answer


def test_a_wrong_copy_of_the_example_is_not(example: Path) -> None:
    source = example.with_suffix(".cu")
    text = source.read_text()
    assert "pair ? exp2f(score1 - new_max) : 0.f" in text
    source.write_text(
        text.replace("pair ? exp2f(score1 - new_max) : 0.f", "exp2f(score1 - new_max)")
    )
    status, answer = labtools(
        "run", str(example), "--workload", "2,8,2,301,128", "--on", "cpu", cwd=example.parent
    )
    assert status == 1, answer


def test_the_example_compiles_for_a_gpu(example: Path) -> None:
    pytest.importorskip("cuda.core")
    status, answer = labtools("compile", str(example), "--arch", "sm_90", cwd=example.parent)
    assert status == 0, answer


def test_the_commands_of_the_page_exist() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "labtools", "--help"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    used = re.findall(r"^labtools (\w+) ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert used
    assert [name for name in used if not re.search(rf"\b{name}\b", help_text)] == []
