"""One of each: a concept has one definition, and a name means one thing.

A row of `CONCEPTS` is what only a definition of the concept says, the files in which it may stand,
and a second definition that must be found. Twins of types and functions are found by their text.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.toc import code_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ("labtools", "tools", "research")
CONCEPTS: dict[str, tuple[str, str, str]] = {
    "an interval that spans 1": (r"<= 1(\.0)? <=", "record/prediction.py", "low <= 1.0 <= high"),
    "bytes that must be in flight": (
        r"\.dram_\w+.{0,60}\+ .{0,40}dram_queue\(",
        "predict/machine.py",
        "share * (m.dram_async(512) + m.dram_queue(share))",
    ),
    "significant digits": (
        r"#\.\{?\w+\}?g\b|- math\.floor\(math\.log10\(|\.partition\(.e.\)",
        "problem/text.py",
        "f'{x:#.3g}'",
    ),
    "shared memory of fixed size": (r"= (48 \* 1024|49152)\b", "problem/limits.py", "A = 49152"),
    "multiprocessors of the H200": (r"= 132$", "problem/limits.py", "NUM_SMS = 132"),
    "states of the cache": (r"= \(.cold., .warm.\)", "problem/problem.py", "A = ('cold', 'warm')"),
    "writing a file whole": (
        r"os\.replace\(|\.with_\w+\(.*\)\.replace\(\w+\)",
        "record/whole.py",
        "os.replace('beside', path)",
    ),
    "deciding by a message": (
        r"['\"] (not )?in (str\((error|exc)|error\.(what|why)|reason\b|log\b|message\b)"
        r"|(error|message|reason|log)\w*(\.lower\(\))?\.(startswith|partition|removeprefix)\("
        r"|type\((error|exc)\w*\)\.__name__ (==|in)",
        # Torch raises a plain RuntimeError without a code, and a sanitizer prints a report.
        "measure/gpu/faults.py measure/profiler/sanitize.py",
        "full = 'No space left' in str(error)",
    ),
    "stall shares": (
        r"\.(startswith|removeprefix)\(.stall_|\[.warp_latency_cycles.\]",
        "record/bound.py",
        "v / values['warp_latency_cycles']",
    ),
    "reading SASS": (
        r"/\\\*\(?(\?P<\w+>)?\[0-9a-f\]",
        "toolchain/sass.py",
        r"re.compile(r'/\*[0-9a-f]{4}\*/ (.*);')",
    ),
    "two records of one campaign": (
        r"\.campaign (==|!=) \w+\.campaign",
        "record/statistics.py record/circumstances.py",
        "a.campaign == b.campaign",
    ),
    "records of one campaign": (
        r"\[\w+\.campaign\]|\{\w+\.campaign:|\.gpu, \w+\.campaign, ",
        "record/query.py record/circumstances.py",
        "kept[one.campaign] = one",
    ),
    "layout of r09": (
        r"\bBlockPlan\($|def _?(choose|plan)_(blocks|pieces|warps|cluster|layout)\(",
        "problem/decode/block_plan.py",
        "def choose_pieces(workload, sms): ...",
    ),
    "progress": (
        r"class \w*Progress|from rich\.(progress|status)",
        "toolchain/progress.py",
        "class CountingProgress: ...",
    ),
    "profiling": (r".--(metrics|print-units).", "measure/profiler/ncu.py", "['--metrics', 'x']"),
    "worker process": (
        r"\b(Popen|Process|ProcessPoolExecutor)\(",
        # Readers' Python has its own, the CPU runner starts what it compiled and a compiler of the
        # browser's, two tools look after a page's kernel, and one spreads what it computes.
        "measure/worker.py measure/cpu/module.py measure/cpu/runner.py problem/isolated.py"
        " tools/execute.py"
        " tools/page_kernels.py research/search_baselines.py",
        "subprocess.Popen(a)",
    ),
    "error format": (
        r".what.:.*.why.:.*.still_works.:",
        "problem/errors.py",
        "{'what': str(error), 'why': '', 'still_works': 'the rest'}",
    ),
}
TWO_SIDES = {
    ("BranchDone", "RoundKept"): "one event of the log, and what the events of a round come to",
    ("Baseline", "Rung"): "both can be timed; one is a library's call and the other a kernel",
    ("Design", "BlockPlan"): "derived by formulas, and chosen by the rule; tests compare them",
    ("Gpu", "Limits"): "what the data sheet says, and the part that a launch may depend on",
    ("Gpu", "DeviceInfo"): "what the data sheet says, and what the device answers",
    ("Limits", "DeviceInfo"): "what a launch may depend on, and what the device answers",
}
"""Types that share fields and are two, with the reason."""
BY_AGREEMENT = {"main", "load_ipython_extension", "__getattr__", "__all__", "write"}
"""Names that others look for: who runs a program, IPython, an import, ``tools.regen``."""


def files_of(root: Path) -> dict[str, str]:
    """The Python of the program, and of pages, by name: ``record/query.py``, ``tools/toc.py``."""
    found = {}
    for place in (*PROGRAM, "book", "labs"):
        for path in sorted((root / place).rglob("*.py" if place in PROGRAM else "*.md")):
            text = path.read_text()
            name = path.relative_to(root).as_posix().removeprefix("labtools/")
            found[name] = text if path.suffix == ".py" else code_of(text)
    return found


@functools.cache
def ours() -> tuple[dict[str, str], dict[str, ast.Module]]:
    """The project's files and their trees."""
    files = files_of(ROOT)
    return files, {name: ast.parse(text) for name, text in files.items()}


def without_docstrings(text: str) -> str:
    return re.sub(r'"""(?!,|\)).*?"""', "", text, flags=re.DOTALL)


@pytest.mark.parametrize("concept", CONCEPTS)
def test_a_concept_stands_where_it_is_said_to_stand_and_nowhere_else(concept: str) -> None:
    pattern, where, planted = CONCEPTS[concept]
    says = re.compile(pattern, re.MULTILINE)
    assert says.search(planted)
    found = {name for name, text in ours()[0].items() if says.search(without_docstrings(text))}
    assert sorted(found) == sorted(where.split())


# ------------------------------------------------------------------------------------ the names


def is_command(node: ast.stmt) -> bool:
    """A function of the command line: it has the command's name, which a room's may have too."""
    return any(".command" in ast.unparse(made) for made in getattr(node, "decorator_list", ()))


def named_by(node: ast.stmt) -> Iterator[str]:
    """The public names that a statement of a module defines; a type variable is none."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and "TypeVar(" not in ast.unparse(node):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = [part for each in targets for part in (each, *getattr(each, "elts", ()))]
        yield from (part.id for part in parts if isinstance(part, ast.Name))


def names_twice(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Classes, and what is public of a module besides, that several files define."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, tree in trees.items():
        if not file.startswith(("book/", "labs/")):
            for node in tree.body:
                for name in named_by(node):
                    public = not name.startswith("_") and not is_command(node)
                    if isinstance(node, ast.ClassDef) or (public and name not in BY_AGREEMENT):
                        found[name].add(file)
    return {name: sorted(files) for name, files in found.items() if len(files) > 1}


def fields_of(node: ast.ClassDef) -> dict[str, str]:
    """Name and type of each field."""
    return {
        part.target.id: ast.unparse(part.annotation)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def field_twins(trees: dict[str, ast.Module], least: int = 4, shared: int = 5) -> set[frozenset]:
    """Pairs of types with the same ``least`` names or ``shared`` fields, bases' fields aside."""
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def inherited(node: ast.ClassDef) -> set[str]:
        bases = [classes[name] for name in map(ast.unparse, node.bases) if name in classes]
        return {name for base in bases for name in (*fields_of(base), *inherited(base))}

    own = {
        name: {key: kind for key, kind in fields_of(node).items() if key not in inherited(node)}
        for name, node in classes.items()
    }
    return {
        frozenset((first, second))
        for (first, a), (second, b) in itertools.combinations(own.items(), 2)
        if (a.keys() == b.keys() and len(a) >= least) or len(a.items() & b.items()) >= shared
    }


def bodies_twice(trees: dict[str, ast.Module], least: int = 70) -> list[str]:
    """Functions of ``least`` letters and more that say the same, one of them not on a page."""
    found: dict[str, list[str]] = defaultdict(list)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                text = "\n".join(map(ast.unparse, body))
                if len(text) >= least:
                    found[text].append(f"{file}:{node.lineno} {node.name}")
    return [
        " and ".join(places)
        for places in found.values()
        if len(places) > 1 and any(".py:" in place for place in places)
    ]


def test_a_name_is_defined_once() -> None:
    assert names_twice(ours()[1]) == {}


def test_no_type_is_written_twice() -> None:
    allowed = {frozenset(pair) for pair in TWO_SIDES}
    assert field_twins(ours()[1]) == allowed


def test_no_function_is_written_twice() -> None:
    assert bodies_twice(ours()[1]) == []


def test_planted_twins_are_found() -> None:
    fields = "    a: int\n    b: int\n    c: int\n    d: int\n"
    body = "    found = [x for x in many if x.name == 'r03_one_warp' and x.time_us > 1]\n"
    texts = {
        "record/a.py": f"class One:\n{fields}\nclass _Same: ...\n\ndef f(many):\n{body}",
        "tools/b.py": f"class Two:\n{fields}\nclass _Same: ...\n\nLIMIT = 3\n",
        "labs/c.md": f"def look(many):\n    '''Looks.'''\n{body}",
        "predict/d.py": f"LIMIT: int = 4\n\nclass Child(One):\n{fields}",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert set(names_twice(trees)) == {"_Same", "LIMIT"}
    assert field_twins(trees) == {frozenset(("One", "Two"))}
    assert len(bodies_twice(trees)) == 1


def test_the_scan_sees_the_project() -> None:
    assert {"record/query.py", "tools/toc.py", "book/predict.md"} <= ours()[0].keys()
