"""The arrows of the house: a room uses only rooms before it, heavy packages load late.

Static: every file is parsed, none is imported, so a breach is found on any machine.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    *("problem", "toolchain", "record", "predict", "derive", "measure", "microbench", "optimize"),
    *("notebook", "cli"),
)
LATE = {"cupy", "cupyx", "cupy_backends", "torch"}


def imports_of(tree: ast.AST, package: str) -> Iterator[tuple[str, int, bool]]:
    """(absolute dotted name, line, whether it runs when the module is imported)."""

    def visit(node: ast.AST, at_import: bool) -> Iterator[tuple[str, int, bool]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            # Decorators and defaults run at import, the body does not.
            late = node.body if isinstance(node.body, list) else [node.body]
            for child in ast.iter_child_nodes(node):
                yield from visit(child, at_import and child not in late)
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, False)
            for child in node.orelse:
                yield from visit(child, at_import)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, at_import
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno, at_import
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith(("import_module", "__import__")) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value, node.lineno, at_import
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_import)

    yield from visit(tree, True)


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of what a ``from`` statement names."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def package_of(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).parent.parts)


def check_room_file(path: Path, root: Path) -> list[str]:
    """Breaches of one file of labtools."""
    parts = path.relative_to(root / "labtools").parts
    room = parts[0] if parts[0] in ROOMS else None
    breaches = []
    for name, line, at_import in imports_of(ast.parse(path.read_text()), package_of(path, root)):
        words = name.split(".")
        where = f"{path.relative_to(root)}:{line}"
        if words[0] in LATE and at_import:
            breaches.append(f"{where} imports {words[0]} outside a function")
        if words[0] != "labtools" or room is None:
            # ml_dtypes is numpy's bfloat16 and nothing else.
            allowed = sys.stdlib_module_names | {"numpy"} | (set() if at_import else {"ml_dtypes"})
            if room == "problem" and words[0] not in allowed:
                breaches.append(f"{where} imports {words[0]}: problem uses numpy alone")
            continue
        other = words[1] if len(words) > 1 else ""
        if other in ROOMS and ROOMS.index(other) > ROOMS.index(room):
            breaches.append(f"{where} uses the later room {other}")
        elif other not in ROOMS and other not in ("", "__version__"):
            breaches.append(f"{where} uses labtools.{other}, which stands above the rooms")
    return breaches


def check_rung_file(path: Path, root: Path) -> list[str]:
    """Breaches of one rung or baseline."""
    breaches = []
    baseline = "baselines" in path.relative_to(root).parts
    allowed = {"labtools", "numpy"} | set(sys.stdlib_module_names)
    for name, line, at_import in imports_of(ast.parse(path.read_text()), ""):
        words = name.split(".")
        where = f"{path.relative_to(root)}:{line}"
        if words[0] == "labtools" and words[1:2] != ["problem"]:
            breaches.append(f"{where} imports {name}: a rung uses labtools.problem alone")
        elif words[0] not in allowed and (at_import or not baseline):
            breaches.append(f"{where} imports {words[0]}")
    return breaches


def modules_of(root: Path) -> dict[str, Path]:
    """Every module of labtools by its dotted name; a package by its folder's."""
    found = {}
    for path in sorted((root / "labtools").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class ImportGraph:
    """Which module uses which, wherever the import stands: at the top, late, or for types alone.

    A name that a package passes on counts as an import of the module that defines it.
    """

    def __init__(self, root: Path) -> None:
        self.files = modules_of(root)
        self.trees = {name: ast.parse(path.read_text()) for name, path in self.files.items()}
        self.uses = {name: self._uses(name) for name in self.files}

    def _package(self, module: str) -> str:
        is_package = self.files[module].name == "__init__.py"
        return module if is_package else module.rpartition(".")[0]

    def _home(self, base: str, name: str, seen: tuple[str, ...] = ()) -> str:
        if f"{base}.{name}" in self.files:
            return f"{base}.{name}"
        if base in self.files and self._package(base) == base and base not in seen:
            for node in ast.walk(self.trees[base]):
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        if (alias.asname or alias.name) == name:
                            further = absolute(node, base)
                            return self._home(further, alias.name, (*seen, base))
        return base

    def _uses(self, module: str) -> set[str]:
        used = set()
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.ImportFrom):
                base = absolute(node, self._package(module))
                used |= {self._home(base, alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
        return {name for name in used if name in self.files and name != module}

    def folders(self) -> dict[str, set[str]]:
        """The same between folders; a folder and the folders inside it are one family."""

        def folder(module: str) -> str:
            return module if self._package(module) == module else module.rpartition(".")[0]

        graph: dict[str, set[str]] = {folder(module): set() for module in self.files}
        for module, used in self.uses.items():
            # What a package only passes on is no use of it.
            if self._package(module) == module:
                continue
            for other in used:
                here, there = folder(module), folder(other)
                if not f"{here}.".startswith(f"{there}.") and not f"{there}.".startswith(
                    f"{here}."
                ):
                    graph[here].add(there)
        return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of nodes that reach each other, each sorted."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in graph[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reached = {name: reach(name) for name in graph}
    found = {
        tuple(sorted({name, *(o for o in reached[name] if name in reached[o])}))
        for name in graph
        if name in reached[name]
    }
    return [list(group) for group in sorted(found)]


def all_breaches(root: Path) -> list[str]:
    found = []
    for path in sorted((root / "labtools").rglob("*.py")):
        found += check_room_file(path, root)
    for path in sorted((root / "kernels").rglob("*.py")):
        found += check_rung_file(path, root)
    return found


def test_every_room_uses_only_rooms_before_it() -> None:
    assert all_breaches(ROOT) == []


def test_no_circle_of_imports() -> None:
    graph = ImportGraph(ROOT)
    assert sum(len(used) for used in graph.uses.values()) > len(graph.files)
    assert circles(graph.uses) == []
    assert circles(graph.folders()) == []


CIRCLES = {
    "two modules": {"a.py": "from .b import x", "b.py": "def f():\n    from .a import y"},
    "for types alone": {
        "a.py": "from labtools.predict import b",
        "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import Y",
    },
    "over a package's names": {
        "__init__.py": "from .b import x",
        "a.py": "from labtools.predict import x",
        "b.py": "from .c import z",
        "c.py": "from .a import y",
    },
    "two folders": {
        "m/a.py": "from ..n.b import x",
        "m/c.py": "w = 1",
        "n/b.py": "x = 1",
        "n/d.py": "from ..m.c import w",
    },
}


@pytest.mark.parametrize("case", CIRCLES)
def test_planted_circles_are_found(case: str, tmp_path: Path) -> None:
    for name, text in CIRCLES[case].items():
        path = tmp_path / "labtools" / "predict" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    graph = ImportGraph(tmp_path)
    assert circles(graph.uses) or circles(graph.folders())


def test_the_scan_sees_the_project() -> None:
    """An empty scan would pass as well; it must have read real files and real imports."""
    files = list((ROOT / "labtools").rglob("*.py"))
    assert {path.relative_to(ROOT / "labtools").parts[0] for path in files} >= {
        "problem",
        "toolchain",
        "predict",
    }
    assert list((ROOT / "kernels" / "decode").glob("*.py"))
    sheets = ROOT / "labtools" / "predict" / "sheets.py"
    names = {name for name, _, _ in imports_of(ast.parse(sheets.read_text()), "labtools.predict")}
    assert "labtools.toolchain.device_query" in names


PLANTED = {
    "later room": ("labtools/toolchain/a.py", "from labtools.predict import load_gpu", "predict"),
    "later room, relative": ("labtools/record/a.py", "from ..measure import time_it", "measure"),
    "later room, inside a function": (
        "labtools/predict/a.py",
        "def f():\n    import labtools.notebook.figures",
        "notebook",
    ),
    "later room, by name": (
        "labtools/predict/a.py",
        "import importlib\n\ndef f():\n    importlib.import_module('labtools.measure')",
        "measure",
    ),
    "command line from a room": ("labtools/measure/a.py", "from labtools.cli import main", "cli"),
    "torch at the top": ("labtools/measure/a.py", "import torch", "torch"),
    "cupy in a class body": ("labtools/measure/a.py", "class A:\n    import cupy", "cupy"),
    "torch as a default": (
        "labtools/measure/a.py",
        "def f(x=__import__('torch').float16):\n    return x",
        "torch",
    ),
    "scipy in problem": ("labtools/problem/a.py", "def f():\n    import scipy", "scipy"),
    "rung uses a room": (
        "kernels/decode/r99.py",
        "from labtools.toolchain import compile_cubin",
        "toolchain",
    ),
    "rung uses the package": ("kernels/decode/r99.py", "import labtools", "labtools"),
    "rung imports cupy late": ("kernels/decode/r99.py", "def f():\n    import cupy", "cupy"),
    "baseline imports torch at the top": ("kernels/baselines/b.py", "import torch", "torch"),
    "baseline of an operation imports torch at the top": (
        "kernels/baselines/rows/b.py",
        "import torch",
        "torch",
    ),
    "rung in a deeper folder uses a room": (
        "kernels/studies/more/s99.py",
        "from labtools.predict import forecast",
        "predict",
    ),
}


@pytest.mark.parametrize("case", PLANTED)
def test_planted_breaches_are_found(case: str, tmp_path: Path) -> None:
    name, text, word = PLANTED[case]
    target = tmp_path / name
    target.parent.mkdir(parents=True)
    (tmp_path / "labtools").mkdir(exist_ok=True)
    target.write_text(text)
    found = all_breaches(tmp_path)
    assert len(found) == 1
    assert word in found[0]
    assert name in found[0]


ALLOWED = {
    "earlier room": ("labtools/predict/a.py", "from labtools.toolchain import device_query"),
    "own room": ("labtools/predict/a.py", "from .sheets import load_gpu"),
    "torch in a function": ("labtools/measure/a.py", "def f():\n    import torch"),
    "torch for types": (
        "labtools/measure/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
    ),
    "rung": ("kernels/decode/r99.py", "import numpy as np\nfrom labtools.problem import Rung"),
    "baseline": ("kernels/baselines/b.py", "def f():\n    import torch"),
    "baseline of an operation": ("kernels/baselines/rows/b.py", "def f():\n    import torch"),
    "command line": ("labtools/cli/a.py", "from labtools.measure import check_rung"),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_the_house_allows_passes(case: str, tmp_path: Path) -> None:
    name, text = ALLOWED[case]
    target = tmp_path / name
    target.parent.mkdir(parents=True)
    (tmp_path / "labtools").mkdir(exist_ok=True)
    target.write_text(text)
    assert all_breaches(tmp_path) == []
