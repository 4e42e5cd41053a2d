"""What CONTRIBUTING.md names is there, and its examples work outside the repository."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labtools.cli import main
from labtools.optimize.family import load_family
from labtools.optimize.opening import open_bench

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "tests" / "families"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def copy(folder: Path, stem: str) -> Path:
    """The files of one example in another folder; its Python."""
    for path in FAMILIES.glob(f"{stem}.*"):
        shutil.copy(path, folder)
    return folder / f"{stem}.py"


def missing(text: str) -> list[str]:
    """Files and folders that a text names and that are not there, in labtools or the repository."""
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", text)
    places = (ROOT, ROOT / "labtools")
    generated = ("work/", "_build/")
    return [
        name
        for name in named
        if not name.startswith(generated) and not any((place / name).exists() for place in places)
    ]


def test_every_file_it_names_is_there() -> None:
    assert CONTRIBUTING.count("\n") <= 250
    table = CONTRIBUTING.split("## Ship a kernel")[0]
    assert table.count("`labtools/") >= 15
    assert missing(CONTRIBUTING) == []
    assert missing("see `labtools/record/no_such.py`") == ["labtools/record/no_such.py"]


def test_its_map_names_every_room() -> None:
    rooms = {path.parent.name for path in (ROOT / "labtools").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", CONTRIBUTING, re.MULTILINE)) == rooms


def test_its_contents_lead_to_its_sections() -> None:
    linked = re.findall(r"\]\(#([\w-]+)\)", CONTRIBUTING)
    heads = re.findall(r"^##+ (.*)$", CONTRIBUTING, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert set(linked) - anchors == set()


Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Exit status and JSON answer of a command in a folder outside the repository."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        status = main([*arguments, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return run


def test_the_example_is_right_and_a_wrong_copy_is_not(tmp_path: Path, ask: Ask) -> None:
    example = str(copy(tmp_path, "two_rows"))
    workloads = ("2,8,2,301,128", "1,4,4,1,64")
    for workload in workloads:
        status, answer = ask("run", example, "--workload", workload, "--on", "cpu")
        assert status == 0, answer
    source = tmp_path / "two_rows.cu"
    right = "pair ? exp2f(score1 - new_max) : 0.f"
    assert right in source.read_text()
    source.write_text(source.read_text().replace(right, "exp2f(score1 - new_max)"))
    assert ask("run", example, "--workload", workloads[0], "--on", "cpu")[0] == 1


def test_the_example_compiles_for_a_gpu(tmp_path: Path, ask: Ask) -> None:
    pytest.importorskip("cuda.core")
    assert ask("compile", str(copy(tmp_path, "two_rows")), "--arch", "sm_90")[0] == 0


def test_a_wrong_copy_of_the_family_is_not(tmp_path: Path) -> None:
    """Sums of a warp that are not joined over the block: the loop's check on the CPU says so."""
    family = copy(tmp_path, "row_scale")
    source = family.with_suffix(".cu")
    joined = "value += partial_smem[warp];"
    assert source.read_text().count(joined) == 1
    source.write_text(source.read_text().replace(joined, "value = partial_smem[warp];"))
    broken = load_family(family)
    with open_bench(broken, broken.workloads[0], "forecast") as bench:
        point = broken.apply(broken.start, ["latency.shuffle_sum"])
        found = bench.check([point])[point]
    assert found
    assert "rows are off" in found


def test_the_commands_of_the_page_exist(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    help_text = capsys.readouterr().out
    used = re.findall(r"^labtools (\w+) ", CONTRIBUTING, re.MULTILINE)
    assert used
    assert [name for name in used if not re.search(rf"\b{name}\b", help_text)] == []


def labtools(*arguments: str, cwd: Path) -> tuple[int, Any]:
    """Exit status and JSON answer of one command in a process of its own."""
    command = [sys.executable, "-m", "labtools", *arguments, "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_a_family_may_bring_its_own_problem(tmp_path: Path) -> None:
    """Forecasts for times, the CPU runner for right and wrong: neither GPU nor attention.

    Each command is a process of its own; those that only read do without the family.
    """
    pytest.importorskip("cuda.core")
    copy(tmp_path, "row_stencil")
    folder = str(tmp_path / "loop")
    asked = ("--kernel", str(tmp_path / "row_stencil.py"), "--on", "forecast")
    few = ("--max-rounds", "1", "--branches", "1")
    status, answer = labtools("loop", "run", folder, *asked, *few, cwd=tmp_path)
    assert status == 0, answer
    assert answer["rounds"] == 1 and answer["champion"]["point"] != "start"
    (only,) = json.loads(Path(folder, "state.json").read_text())["history"]
    assert set(only["classes"]) == {one["method"] for one in only["attribution"]} != set()
    assert "implementation_failed" not in only["classes"].values()
    (tmp_path / "row_stencil.py").unlink()
    for command in ("status", "summary"):
        status, said = labtools("loop", command, folder, cwd=tmp_path)
        assert status == 0, f"what only reads loads no family: {said}"
    status, said = labtools("loop", "export", folder, str(tmp_path / "out"), cwd=tmp_path)
    assert status != 0
    assert "row_stencil" in str(said["error"])
