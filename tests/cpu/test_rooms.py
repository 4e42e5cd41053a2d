"""The arrows of the house, as pyproject.toml says them, and what they do not reach."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.install import ROOT

ROOMS = [
    layer.removeprefix("labtools.")
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    for layer in contract.get("layers", ())
]


def lint(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """What a linter says of a folder with the project's configuration."""
    config = str(ROOT / "pyproject.toml")
    program = f"import sys; sys.path.insert(0, {str(root)!r}); from importlinter.cli import "
    program += "lint_imports_command; lint_imports_command()"
    asked = {
        "arrows": [sys.executable, "-c", program, "--config", config, "--no-cache"],
        "ruff": [sys.executable, "-m", "ruff", "check", "--config", config, "--no-cache", "."],
    }[command[0]]
    return subprocess.run(asked, cwd=root, capture_output=True, text=True)


def skeleton(root: Path, file: str, text: str) -> Path:
    """Rooms that hold nothing, and one file."""
    for room in ROOMS:
        path = root / "labtools" / room / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "labtools" / "__init__.py").touch()
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)
    return root


def test_every_room_uses_only_rooms_before_it_and_no_import_goes_in_a_circle() -> None:
    done = lint(ROOT, "arrows")
    assert done.returncode == 0, done.stdout[-3000:]
    assert sorted(ROOMS) == sorted(
        path.parent.name for path in (ROOT / "labtools").glob("*/__init__.py")
    )


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("labtools/toolchain/a.py", "from labtools.predict import x"),
        ("labtools/predict/a.py", "def f():\n    import labtools.notebook"),
        (
            "labtools/record/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from ..measure import time_it",
        ),
        ("labtools/predict/__init__.py", "from .m import a"),
    ],
)
def test_a_planted_arrow_or_circle_is_found(file: str, text: str, tmp_path: Path) -> None:
    root = skeleton(tmp_path, file, text)
    for name, back in (
        ("m/__init__", ""),
        ("m/a", "from ..n import b"),
        ("n/__init__", ""),
        ("n/b", "from ..m import a"),
    ):
        if file.endswith("__init__.py"):
            skeleton(root, f"labtools/predict/{name}.py", back)
    done = lint(root, "arrows")
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout


def test_torch_and_cupy_load_late(tmp_path: Path) -> None:
    """Ruff's rule, which ``make check`` asks of the whole project."""
    skeleton(tmp_path, "labtools/measure/a.py", "import cupy\n\ncupy.x()\n")
    assert "TID253" in lint(tmp_path, "ruff").stdout
    skeleton(tmp_path, "labtools/measure/a.py", "def f():\n    import torch\n\n    return torch\n")
    assert "TID253" not in lint(tmp_path, "ruff").stdout


def foreign(text: str, allowed: set[str], late: bool) -> list[str]:
    """What a file imports beside the standard library and what it may; ``late`` allows more in
    functions."""
    tree = ast.parse(text)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            known = name.split(".")[0] in sys.stdlib_module_names
            ok = known or any(f"{name}.".startswith(f"{one}.") for one in allowed)
            if not ok and not (late and id(node) in inside and not name.startswith("labtools")):
                found.append(name)
    return found


KERNEL = {"labtools.problem", "numpy"}


def test_a_rung_uses_problem_alone_and_problem_uses_numpy_alone() -> None:
    problems = {
        str(path): foreign(path.read_text(), KERNEL, late="baselines" in path.parts)
        for path in (ROOT / "kernels").rglob("*.py")
    }
    for path in (ROOT / "labtools" / "problem").rglob("*.py"):
        late = path.name == "reference.py"  # a reader's reference may be one of torch
        problems[str(path)] = foreign(path.read_text(), KERNEL | {"ml_dtypes"}, late)
    assert len(problems) > 50
    assert {path: names for path, names in problems.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "late", "names"),
    [
        ("from labtools.toolchain import compile_cubin", False, ["labtools.toolchain"]),
        ("import labtools", False, ["labtools"]),
        ("def f():\n    import cupy", False, ["cupy"]),
        ("def f():\n    import torch", True, []),
        ("import torch", True, ["torch"]),
        ("from labtools.problem import Rung", False, []),
    ],
)
def test_planted_imports_of_a_rung(text: str, late: bool, names: list[str]) -> None:
    assert foreign(text, KERNEL, late) == names
