"""What CONTRIBUTING.md names is there, and its examples work outside the repository."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def labtools(*arguments: str, cwd: Path) -> tuple[int, dict[str, object]]:
    """Exit status and JSON answer of one command."""
    command = [sys.executable, "-m", "labtools", *arguments, "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return copy(tmp_path, "two_rows")


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


@pytest.fixture
def family(tmp_path: Path) -> Path:
    return copy(tmp_path, "row_scale")


def test_the_family_of_the_page_goes_through_the_loop(family: Path) -> None:
    """Forecasts for times, the CPU runner for right and wrong: neither GPU nor attention."""
    pytest.importorskip("cuda.core")
    status, answer = labtools(
        *("loop", "run", "mine", "--kernel", family.name, "--workload", "rows:64,1024"),
        *("--on", "forecast", "--max-rounds", "1", "--branches", "1"),
        cwd=family.parent,
    )
    assert status == 0, answer
    assert answer["rounds"] == 1 and answer["champion"]["point"] != "start"  # type: ignore[index]
    state = json.loads((family.parent / "mine" / "state.json").read_text())
    (only,) = state["history"]
    assert set(only["classes"]) == {one["method"] for one in only["attribution"]} != set()
    assert "implementation_failed" not in only["classes"].values()


def test_a_wrong_copy_of_the_family_is_not(family: Path) -> None:
    """Sums of a warp that are not joined over the block: the loop's check on the CPU says so."""
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


def test_the_commands_of_the_page_exist() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "labtools", "--help"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    used = re.findall(r"^labtools (\w+) ", CONTRIBUTING, re.MULTILINE)
    assert used
    assert [name for name in used if not re.search(rf"\b{name}\b", help_text)] == []


@pytest.mark.slow
def test_a_family_may_bring_its_own_problem(tmp_path: Path) -> None:
    """Each command is a process of its own: the log is read before anybody names the family."""
    pytest.importorskip("cuda.core")
    copy(tmp_path, "row_softmax")
    folder = str(tmp_path / "loop")
    asked = ("--kernel", str(tmp_path / "row_softmax.py"), "--on", "forecast")
    few = ("--max-rounds", "1", "--branches", "1")
    status, answer = labtools("loop", "run", folder, *asked, *few, cwd=tmp_path)
    assert status == 0, answer
    assert answer["rounds"] == 1
    for command in ("status", "summary"):
        status, said = labtools("loop", command, folder, cwd=tmp_path)
        assert status == 0, said
    live = ("--kernel", str(tmp_path / "row_softmax.py"), "--on", "gpu")
    status, said = labtools("loop", "init", str(tmp_path / "live"), *live, cwd=tmp_path)
    assert status == 3
    assert "load no kernel's Python" in str(said["error"])
    (tmp_path / "row_softmax.py").unlink()
    status, said = labtools("loop", "status", folder, cwd=tmp_path)
    assert status != 0
    assert "row_softmax" in str(said["error"])
