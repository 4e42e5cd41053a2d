"""One of each: a concept has one definition, and a name means one thing.

Static: every file of labtools and tools is parsed and every code cell of book and labs, none is
imported. For each concept a detector finds what only a definition of it does, and says in which
files that may stand. Planted second definitions show that a detector finds one.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.toc import code_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ("labtools", "tools", "research")
PLACES = (*PROGRAM, "book", "labs")
Detector = Callable[[ast.AST], Iterator[int]]


@dataclass(frozen=True)
class Concept:
    """Something that stands once."""

    find: Detector  # lines that only a definition of it has
    where: tuple[str, ...]  # files in which it may stand, as `name_of` names them
    places: tuple[str, ...] = PLACES  # folders that are looked through


@functools.cache
def nodes_of(tree: ast.AST) -> tuple[Any, ...]:
    """All that stands in a tree; many detectors look through the same ones."""
    return tuple(ast.walk(tree))


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes_of(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def texts_of(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every string that is no statement of its own, as a docstring is."""
    alone = {id(node.value) for node in nodes_of(tree) if isinstance(node, ast.Expr)}
    for node in nodes_of(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if text and id(node) not in alone:
            yield node


def method_name(node: ast.AST) -> str:
    """``get`` of ``values.get(...)``, else an empty string."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr
    return ""


# ------------------------------------------------------------------------------- the concepts

BOUNDS = {"bandwidth", "issue", "chain", "launch"}


def deciding_a_bound(tree: ast.AST) -> Iterator[int]:
    """A function that returns several of the bounds by comparing: a rule that names one."""
    for function in functions_of(tree):
        returned = {
            constant.value
            for node in nodes_of(function)
            if isinstance(node, ast.Return) and node.value is not None
            for constant in nodes_of(node.value)
            if isinstance(constant, ast.Constant)
        }
        compares = any(
            isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
            for node in nodes_of(function)
            if isinstance(node, ast.Compare)
            for operator in node.ops
        )
        if compares and len(BOUNDS & returned) >= 2:
            yield function.lineno


def sharing_stalls(tree: ast.AST) -> Iterator[int]:
    """Taking the stall counters apart by name, or dividing by a warp's whole time."""
    for node in nodes_of(tree):
        if method_name(node) in ("startswith", "removeprefix"):
            assert isinstance(node, ast.Call)
            if any(isinstance(a, ast.Constant) and a.value == "stall_" for a in node.args):
                yield node.lineno
        elif isinstance(node, (ast.Subscript, ast.Call)):
            key = node.slice if isinstance(node, ast.Subscript) else (node.args or [None])[0]
            reads = isinstance(node, ast.Subscript) or method_name(node) == "get"
            if reads and isinstance(key, ast.Constant) and key.value == "warp_latency_cycles":
                yield node.lineno


def reading_sass(tree: ast.AST) -> Iterator[int]:
    """A pattern for a line of machine code: its address in a comment, or a label."""
    for text in texts_of(tree):
        if re.search(r"/\\\*\(?(\?P<\w+>)?\[0-9a-f\]|L_x_\\d", text.value):
            yield text.lineno


def counting_loads_in_flight(tree: ast.AST) -> Iterator[int]:
    """Walking trips of a loop while what was asked for and not yet used grows and shrinks.

    Seen in a function that keeps a most and goes over a repeated sequence (``body * 2``), or that
    asks when a load is issued and first used.
    """
    for function in functions_of(tree):
        names = {node.id for node in nodes_of(function) if isinstance(node, ast.Name)}
        looks = {node.attr for node in nodes_of(function) if isinstance(node, ast.Attribute)}
        repeats = any(
            (isinstance(node.iter, ast.BinOp) and isinstance(node.iter.op, ast.Mult))
            or re.search(r"\b(repeat|cycle)\(", ast.unparse(node.iter))
            for node in nodes_of(function)
            if isinstance(node, (ast.For, ast.comprehension))
        )
        if names & {"most", "largest"} and (repeats or looks >= {"issue", "first_use"}):
            yield function.lineno


def is_campaign(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "campaign"


def pairing_records(tree: ast.AST) -> Iterator[int]:
    """Two records' campaigns compared for being the same one."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            continue
        if all(is_campaign(side) for side in (node.left, *node.comparators)):
            yield node.lineno


def grouping_by_campaign(tree: ast.AST) -> Iterator[int]:
    """Records sorted into what is kept by campaign, or taken by a set of campaigns.

    Seen where a campaign, alone or in a tuple, is a key: of a dict, a subscript, a set, a sort or
    a grouping; or where it is looked for in one.
    """
    for node in nodes_of(tree):
        keys: list[ast.AST | None] = []
        if isinstance(node, ast.Subscript):
            keys = [node.slice]
        elif isinstance(node, ast.Call) and method_name(node) in ("setdefault", "get", "pop"):
            keys = [*node.args[:1]]
        elif isinstance(node, ast.DictComp):
            keys = [node.key]
        elif isinstance(node, ast.SetComp):
            keys = [node.elt]
        elif isinstance(node, ast.Lambda):
            keys = [node.body]
        elif isinstance(node, (ast.Assign, ast.Return)) and isinstance(node.value, ast.Tuple):
            keys = [node.value]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            keys = [node.left]
        parts = [part for key in keys for part in (key, *getattr(key, "elts", ()))]
        if any(is_campaign(part) for part in parts):
            yield node.lineno


def laying_out_blocks(tree: ast.AST) -> Iterator[int]:
    """A rule for the blocks of the inverted kernels: making a plan, or choosing its parts."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("BlockPlan"):
            yield node.lineno
    for function in functions_of(tree):
        if re.fullmatch(r"_?(choose|plan)_(blocks|pieces|warps|cluster|layout)", function.name):
            yield function.lineno


def showing_progress(tree: ast.AST) -> Iterator[int]:
    """A status or a progress bar of rich, or a class of progress."""
    for node in nodes_of(tree):
        bar = isinstance(node, ast.ImportFrom) and node.module in ("rich.progress", "rich.status")
        status = method_name(node) == "status" and "Console" in ast.unparse(node)
        if bar or status or (isinstance(node, ast.ClassDef) and "Progress" in node.name):
            yield node.lineno


def starting_a_profiler(tree: ast.AST) -> Iterator[int]:
    """The words of a command line of Nsight Compute."""
    for text in texts_of(tree):
        if text.value in ("--metrics", "--print-units"):
            yield text.lineno


def being_a_program(tree: ast.AST) -> Iterator[int]:
    """A module that is run as a program of its own."""
    for node in nodes_of(tree):
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            yield node.lineno


def starting_a_process(tree: ast.AST) -> Iterator[int]:
    """A process that runs beside this one: `subprocess.run` waits and is a look-up."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith(("Popen", "Process", "ProcessPoolExecutor")):
                yield node.lineno


def shaping_an_error(tree: ast.AST) -> Iterator[int]:
    """A dict of the three parts of a message."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if keys >= {"what", "why", "still_works"}:
                yield node.lineno


MESSAGES = {
    *("what", "why", "still_works", "reason", "message", "failure", "problem"),
    *("note", "notes", "said", "doubt", "doubts"),
}
"""Attributes that hold sentences for a person."""
MESSAGE_NAMES = {"reason", "log", "why", "note", "notes", "said", "doubt", "doubts", "message"}
"""Names of a variable that holds one. One called ``text`` may hold anything: what is looked for in
it decides."""
ERRORS = {"error", "exception", "exc", "failure", "died", "refused"}


CUTTING = {"partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix"}


def is_message(node: ast.AST) -> bool:
    """The text of an error, or a sentence for a person."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("str", "repr") and node.args:
        return isinstance(node.args[0], ast.Name) and node.args[0].id in ERRORS
    if isinstance(node, ast.Call) and method_name(node) in ("lower", "strip", "casefold"):
        assert isinstance(node.func, ast.Attribute)
        return is_message(node.func.value)
    if isinstance(node, ast.Name):
        return node.id in MESSAGE_NAMES
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "args"
    return isinstance(node, ast.Attribute) and node.attr in MESSAGES


def deciding_by_a_message(tree: ast.AST) -> Iterator[int]:
    """Looking for words in a sentence, cutting it at words, or looking at the name of a class."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            words = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
            where = node.comparators[0]
            sentence = words and " " in node.left.value.strip() and ast.unparse(where) == "text"
            if words and (is_message(where) or sentence):
                yield node.lineno
        if isinstance(node, ast.Call):
            cuts = method_name(node) in CUTTING and any(
                isinstance(one, ast.Constant) and str(one.value).strip() for one in node.args[:1]
            )
            ends = method_name(node) in ("startswith", "endswith") or cuts
            looks = ast.unparse(node.func).endswith((".search", ".match", ".fullmatch"))
            asked = [node.func.value] if ends and isinstance(node.func, ast.Attribute) else []
            if any(is_message(one) for one in (*asked, *(node.args if looks else ()))):
                yield node.lineno
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(isinstance(one, ast.Attribute) and one.attr == "__name__" for one in sides):
                yield node.lineno


def writing_whole(tree: ast.AST) -> Iterator[int]:
    """A file moved to its place: ``os.replace``, or ``replace`` of a path, which takes one."""
    for node in nodes_of(tree):
        if method_name(node) == "replace":
            assert isinstance(node, ast.Call)
            called = ast.unparse(node.func)
            one = len(node.args) == 1 and not node.keywords and called != "dataclasses.replace"
            if one or called == "os.replace":
                yield node.lineno


def saying_knobs(tree: ast.AST) -> Iterator[int]:
    """Each name and value of something as ``name=value``, as of a mapping of knobs."""
    for node in nodes_of(tree):
        if not isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            continue
        pieces = node.elt.values if isinstance(node.elt, ast.JoinedStr) else []
        if len(pieces) == 3 and getattr(pieces[1], "value", None) == "=":
            yield node.lineno


def spanning_one(tree: ast.AST) -> Iterator[int]:
    """An interval asked whether 1 lies in it."""
    for node in nodes_of(tree):
        middle = node.comparators[0] if isinstance(node, ast.Compare) else None
        if isinstance(middle, ast.Constant) and middle.value == 1 and len(node.ops) == 2:
            yield node.lineno


def adding_up_latencies(tree: ast.AST) -> Iterator[int]:
    """The latency of a copy from memory and what a load adds to it, in one sum."""
    for node in nodes_of(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = [ast.unparse(side) for side in (node.left, node.right)]
            if all(".dram_" in one for one in sides) and any("dram_queue(" in one for one in sides):
                yield node.lineno


def counting_digits(tree: ast.AST) -> Iterator[int]:
    """How many digits stand before the point, which decides how many follow it."""
    for node in nodes_of(tree):
        less = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
        right = ast.unparse(node.right) if less else ""
        if "math.floor(math.log10(" in right or ".partition('e')" in right:
            yield node.lineno
    for text in texts_of(tree):
        if re.fullmatch(r"#\.\d+g", text.value):
            yield text.lineno


def is_value(*texts: str) -> Detector:
    """Values, as Python writes them, that get a name."""

    def find(tree: ast.AST) -> Iterator[int]:
        for node in nodes_of(tree):
            part = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            plain = isinstance(part, (ast.BinOp, ast.Tuple, ast.Constant))
            if plain and ast.unparse(part) in texts:
                yield node.lineno

    return find


CONCEPTS = {
    "an interval that spans 1": Concept(spanning_one, ("record/prediction.py",)),
    "bytes that must be in flight": Concept(adding_up_latencies, ("predict/machine.py",)),
    "significant digits": Concept(counting_digits, ("problem/text.py",)),
    "shared memory of fixed size": Concept(
        is_value("48 * 1024", "49152"), ("problem/limits.py",), PROGRAM
    ),
    "multiprocessors of the H200": Concept(is_value("132"), ("problem/limits.py",), PROGRAM),
    "states of the cache": Concept(is_value("('cold', 'warm')"), ("problem/problem.py",)),
    # What sets up the environment runs without the library.
    "writing a file whole": Concept(writing_whole, ("record/whole.py", "tools/install.py")),
    # A microbenchmark has values for the preprocessor and a problem has fields: no knobs.
    "knobs as text": Concept(
        saying_knobs, ("problem/rung.py", "problem/problem.py", "microbench/run.py")
    ),
    # Torch and the libraries on top of it raise a plain RuntimeError without a code. A compiler's
    # log is all that it says of a source, and is read into a message; a sanitizer prints a report.
    "deciding by a message": Concept(
        deciding_by_a_message,
        (
            *("measure/gpu/faults.py", "toolchain/errors.py", "measure/cpu/build.py"),
            "measure/profiler/sanitize.py",
        ),
    ),
    "bound": Concept(deciding_a_bound, ("record/bound.py",)),
    "stall shares": Concept(sharing_stalls, ("record/bound.py",)),
    "reading SASS": Concept(reading_sass, ("toolchain/sass.py",)),
    "loads in flight": Concept(counting_loads_in_flight, ("toolchain/sass.py",)),
    # `paired_ratio` refuses two that do not belong together.
    # And the rule that says which records of a table were not timed together.
    "two records of one campaign": Concept(
        pairing_records, ("record/statistics.py", "record/circumstances.py")
    ),
    "records of one campaign": Concept(
        grouping_by_campaign, ("record/query.py", "record/circumstances.py")
    ),
    "layout of r09": Concept(laying_out_blocks, ("problem/decode/block_plan.py",)),
    "progress": Concept(showing_progress, ("toolchain/progress.py",)),
    "profiling": Concept(starting_a_profiler, ("measure/profiler/ncu.py",)),
    "child program": Concept(
        being_a_program,
        # Besides the command line: the one child of measuring, the question how many clusters
        # fit, which must not leave a context behind.
        ("measure/child.py", "toolchain/clusters.py", "__main__.py"),
        # What stands in tools is run from the Makefile.
        ("labtools", "book", "labs"),
    ),
    "worker process": Concept(
        starting_a_process,
        # The CPU runner's executable is C++, and nvidia-smi watches clocks beside a timing. Of the
        # tools, one looks at the processes of a page's kernel, one is copied for such kernels, and
        # one spreads what it computes.
        (
            *("measure/worker.py", "measure/cpu/runner.py", "measure/gpu/clocks.py"),
            *("tools/execute.py", "tools/page_kernels.py"),
            "research/search_baselines.py",
        ),
    ),
    "error format": Concept(shaping_an_error, ("problem/errors.py",)),
}


@functools.cache
def parse(path: Path) -> ast.Module:
    """A file of Python, or what a page holds of it, on the page's own lines."""
    text = path.read_text()
    return ast.parse(text if path.suffix == ".py" else code_of(text))


def files_of(root: Path, places: tuple[str, ...] = PLACES) -> list[Path]:
    """The files of some folders of a repository; of a page's folder, only pages."""
    return [
        path
        for place in places
        for path in sorted((root / place).rglob("*.py" if place in PROGRAM else "*.md"))
        if not any(part.startswith((".", "_build")) for part in path.relative_to(root).parts)
    ]


def name_of(path: Path, root: Path) -> str:
    """``record/query.py`` of labtools, ``tools/toc.py`` and ``book/predict.md`` of the others."""
    return path.relative_to(root).as_posix().removeprefix("labtools/")


def second_definitions(root: Path, concept: Concept) -> list[str]:
    """Places outside the concept's files that define it again."""
    found = []
    for path in files_of(root, concept.places):
        name = name_of(path, root)
        if name not in concept.where:
            found += [f"{name}:{line}" for line in concept.find(parse(path))]
    return found


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_concept_stands_once(name: str) -> None:
    assert second_definitions(ROOT, CONCEPTS[name]) == []


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_concept_stands_where_it_is_said_to_stand(name: str) -> None:
    """A detector that finds nothing at all would find no second definition either, and a file that
    no longer defines it may not do so again."""
    concept = CONCEPTS[name]
    there = {name_of(path, ROOT): path for path in files_of(ROOT)}
    assert concept.where
    assert [name for name in concept.where if not list(concept.find(parse(there[name])))] == []


PLANTED: dict[str, str | tuple[str, ...]] = {
    "deciding by a message": (
        "def skip(reason):\n    return 'not installed' in reason",
        "def full(error):\n    return 'No space left' in str(error).lower()",
        "import re\n\ndef hangs(error):\n    return re.search('timed out', str(error))",
        "def ours(error):\n    return error.what.startswith('There is no')",
        "def cuda(error):\n    return type(error).__name__ in ('CUDARuntimeError',)",
        "def allocates(record):\n    return any('every call' in note for note in record.notes)",
        "def first(message):\n    return message.partition('the first to byte ')[2]",
        "def side(shown):\n    return shown.what.split(';')[0]",
        "def where(shown):\n    return shown.what.partition('; ')[2]",
        "def as_or_than(said):\n    return 'as' if said.startswith('the same') else 'than'",
        "def unsure(doubt):\n    return doubt.removeprefix('no band: ')",
        "def band(text):\n    return 'claims no width' not in text",
    ),
    "an interval that spans 1": "def equal(low, high):\n    return low <= 1.0 <= high",
    "bytes that must be in flight": (
        "def needed(m, share):\n    return share * (m.dram_async(512) + m.dram_queue(share))"
    ),
    "significant digits": (
        "def say(x):\n    return f'{x:#.3g}'",
        "import math\n\ndef digits(x):\n    return 2 - math.floor(math.log10(abs(x)))",
    ),
    "shared memory of fixed size": "LIMIT = 48 * 1024",
    "multiprocessors of the H200": "NUM_SMS = 132",
    "states of the cache": "CACHE = ('cold', 'warm')",
    "writing a file whole": (
        "import os\n\ndef write(path, text):\n    os.replace('beside', path)",
        "def write(path, text):\n    path.with_suffix('.new').replace(path)",
    ),
    "knobs as text": (
        "def label(knobs):\n    return ' '.join(f'{name}={value}' for name, value in knobs.items())"
    ),
    "bound": (
        "def limit(dram, issued):\n"
        "    if dram > 0.75:\n        return 'bandwidth'\n"
        "    return 'issue' if issued > 0.7 else 'chain'"
    ),
    "stall shares": (
        "def shares(values):\n"
        "    return {k: v / values['warp_latency_cycles'] for k, v in values.items()}"
    ),
    "reading SASS": "import re\n_CODE = re.compile(r'^\\s*/\\*[0-9a-f]{4}\\*/ (.*);')",
    "loads in flight": (
        "def in_flight(body):\n    most, pending = 0, []\n    for one in body * 2:\n"
        "        pending = [x for x in pending if not x & one.uses]\n"
        "        most = max(most, len(pending))\n    return most"
    ),
    "two records of one campaign": (
        (
            "def find(firsts, seconds):\n"
            "    return [(a, b) for a in firsts for b in seconds if a.campaign == b.campaign]"
        ),
        "def refuse(a, b):\n    if a.campaign != b.campaign:\n        raise ValueError",
    ),
    "records of one campaign": (
        (
            "def find(records):\n    groups = {}\n    for one in records:\n"
            "        groups.setdefault((one.campaign, one.key), []).append(one)"
        ),
        "def find(records, kept):\n    for one in records:\n        kept[one.campaign] = one",
        "def find(records):\n    return {one.campaign: one for one in records}",
        "from itertools import groupby\nfound = groupby(some, key=lambda one: one.campaign)",
        "def find(records, having):\n    return [one for one in records if one.campaign in having]",
    ),
    "layout of r09": "def choose_pieces(workload, sms):\n    return sms // workload.batch",
    "progress": "class CountingProgress:\n    def __call__(self, text): ...",
    "profiling": "def command(ncu):\n    return [str(ncu), '--metrics', 'dram__bytes.sum']",
    "child program": "def main(): ...\n\nif __name__ == '__main__':\n    main()",
    "worker process": "import subprocess\n\ndef go(a):\n    return subprocess.Popen(a)",
    "error format": (
        "def tell(error):\n    return {'what': str(error), 'why': '', 'still_works': 'the rest'}"
    ),
}


def plant(root: Path, place: str, text: str) -> str:
    """Put a definition into a room of labtools, a tool or a cell of a page; its name there."""
    page = place in ("book", "labs")
    name = f"{place}/notebook/second.{'md' if page else 'py'}"
    planted = root / name
    planted.parent.mkdir(parents=True)
    planted.write_text(f"# Page\n\n```{{code-cell}} ipython3\n{text}\n```\n" if page else text)
    return name.removeprefix("labtools/")


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_planted_second_definition_is_found(name: str, tmp_path: Path) -> None:
    planted = PLANTED[name]
    for number, text in enumerate((planted,) if isinstance(planted, str) else planted):
        for place in CONCEPTS[name].places:
            root = tmp_path / f"{number} {place}"
            where = plant(root, place, text)
            found = second_definitions(root, CONCEPTS[name])
            assert len(found) == 1
            assert found[0].startswith(f"{where}:")


# ------------------------------------------------------------------------------------ the names

BY_AGREEMENT = {"main", "load_ipython_extension", "__getattr__", "__all__"}
"""Names that others look for: who runs a program, IPython, and the import of a package."""


def is_command(node: ast.stmt) -> bool:
    """A function of the command line: it has the command's name, which a room's may have too."""
    decorators = getattr(node, "decorator_list", ())
    return any(".command" in ast.unparse(decorator) for decorator in decorators)


def named_by(node: ast.stmt) -> list[str]:
    """The names that a statement defines; a type variable is a placeholder and no name."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar":
            return []
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = [part for target in targets for part in (target, *getattr(target, "elts", ()))]
        return [part.id for part in parts if isinstance(part, ast.Name)]
    return []


def statements_of(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What a module defines, under a condition too."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from statements_of(node.body)
            yield from statements_of(getattr(node, "orelse", []))


def definitions(root: Path) -> dict[str, set[str]]:
    """The files that define each name: every class, and what is public of a module besides."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in files_of(root, PROGRAM):
        tree, file = parse(path), name_of(path, root)
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(f"{file}:{node.lineno}")
        for node in statements_of(tree.body):
            for name in named_by(node):
                public = not name.startswith("_") and not is_command(node)
                if public and name not in BY_AGREEMENT and not isinstance(node, ast.ClassDef):
                    found[name].add(file)
    return found


def names_twice(root: Path) -> dict[str, list[str]]:
    return {name: sorted(at) for name, at in definitions(root).items() if len(at) > 1}


def shadowed_modules(root: Path) -> list[str]:
    """Packages whose ``__init__`` gives a function or class the name of a module beside it."""
    found = []
    for path in files_of(root, ("labtools",)):
        if path.name != "__init__.py":
            continue
        modules = {other.stem for other in path.parent.glob("*.py")} - {"__init__"}
        for node in parse(path).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {alias.asname or alias.name for alias in node.names}
                for name in sorted(names & modules):
                    found.append(f"{path.parent.relative_to(root).as_posix()}: {name}")
    return found


def fields_of(node: ast.ClassDef) -> dict[str, str]:
    """Name and type of each field."""
    return {
        part.target.id: ast.unparse(part.annotation)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def field_twins(root: Path, least: int = 4, shared: int = 5) -> list[tuple[str, str]]:
    """Types that stand twice: ``least`` fields and all of the same names, or ``shared`` of the
    same name and type. What both have from a base, as an abstract class names it, is no twin.
    """
    classes = [
        node
        for path in files_of(root, PLACES)
        for node in nodes_of(parse(path))
        if isinstance(node, ast.ClassDef)
    ]
    by_name = {node.name: node for node in classes}

    def inherited(node: ast.ClassDef) -> set[str]:
        bases = [by_name[name] for name in map(ast.unparse, node.bases) if name in by_name]
        return {name for base in bases for name in (*fields_of(base), *inherited(base))}

    own = {}
    for node in classes:
        above = inherited(node)
        own[node.name] = {k: kind for k, kind in fields_of(node).items() if k not in above}
    found = []
    for (first, a), (second, b) in itertools.combinations(own.items(), 2):
        same_names = a.keys() == b.keys() and len(a) >= least
        if same_names or len(a.items() & b.items()) >= shared:
            found.append((first, second))
    return found


def bodies_twice(root: Path, least: int = 70) -> list[str]:
    """Functions of ``least`` letters and more that say the same, of which one is in a library or
    a tool; a page that stands alone may show what another page shows."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in files_of(root):
        for function in functions_of(parse(path)):
            body = function.body
            if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                body = body[1:]  # its docstring
            text = "\n".join(map(ast.unparse, body))
            if len(text) >= least:
                found[text].append(f"{name_of(path, root)}:{function.lineno} {function.name}")
    return [
        " and ".join(places)
        for places in found.values()
        if len(places) > 1 and any(".py:" in place for place in places)
    ]


def values_twice(root: Path, least: int = 15) -> list[str]:
    """Patterns of regular expressions that stand twice, and private constants of one name and one
    value: allowed files of a concept are looked through as well."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in files_of(root, PROGRAM):
        tree, file = parse(path), name_of(path, root)
        for node in nodes_of(tree):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).startswith("re.")
                and node.args
            ):
                pattern = ast.unparse(node.args[0])
                if isinstance(node.args[0], (ast.Constant, ast.JoinedStr)) and len(pattern) > least:
                    found[f"pattern {pattern}"].add(f"{file}:{node.lineno}")
        for statement in tree.body:
            value = getattr(statement, "value", None)
            if isinstance(value, (ast.Constant, ast.Tuple, ast.Set, ast.Dict, ast.List)):
                for name in named_by(statement):
                    text = ast.unparse(value)
                    if name.startswith("_") and len(text) > least:
                        found[f"{name} = {text}"].add(f"{file}:{statement.lineno}")
    return [f"{what}: {', '.join(sorted(at))}" for what, at in found.items() if len(at) > 1]


TWO_SIDES = {
    ("BranchDone", "RoundKept"): "one event of the log, and what the events of a round come to",
    ("Baseline", "Rung"): "both can be timed; one is a library's call and the other a kernel",
    ("Design", "BlockPlan"): "derived by formulas, and chosen by the rule; tests compare them",
    ("Gpu", "Limits"): "what the data sheet says, and the part that a launch may depend on",
    ("Gpu", "DeviceInfo"): "what the data sheet says, and what the device answers",
    ("Limits", "DeviceInfo"): "what a launch may depend on, and what the device answers",
    ("Instruction", "_Printed"): "an instruction at its place, and what its text alone says",
}
"""Types that share fields and are two, with the reason."""


def test_a_name_is_defined_once() -> None:
    assert names_twice(ROOT) == {}


def test_no_function_shadows_its_module() -> None:
    assert shadowed_modules(ROOT) == []


def test_no_type_is_written_twice() -> None:
    twins = {frozenset(pair): pair for pair in field_twins(ROOT)}
    allowed = {frozenset(pair) for pair in TWO_SIDES}
    assert sorted(pair for key, pair in twins.items() if key not in allowed) == []
    assert allowed <= twins.keys()


def test_no_function_is_written_twice() -> None:
    assert bodies_twice(ROOT) == []


def test_no_pattern_and_no_private_constant_is_written_twice() -> None:
    assert values_twice(ROOT) == []


def test_planted_names_are_found(tmp_path: Path) -> None:
    library, tools = tmp_path / "labtools", tmp_path / "tools"
    for file, text in (
        (
            library / "record" / "made.py",
            "class Pair:\n    a: int\n    b: int\n    c: int\n    d: int\n\n"
            "class _Hidden: ...\n\nLIMIT = 3\nAlias = int\n\ndef show(x): ...\n",
        ),
        (
            library / "predict" / "made.py",
            "class Pair:\n    x: int\n\nclass Twin:\n    d: int\n    c: int\n    b: int\n"
            "    a: int\n\nclass _Hidden: ...\n\nif True:\n    LIMIT: int = 4\n",
        ),
        (tools / "made.py", "Alias, OTHER = str, 1\n\ndef show(y): ...\n\ndef main(): ...\n"),
        (tools / "more.py", "def main(): ...\n\ndef _own(): ...\n"),
        (library / "predict" / "__init__.py", "from .made import made\n"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert set(names_twice(tmp_path)) == {"Pair", "_Hidden", "LIMIT", "Alias", "show"}
    assert shadowed_modules(tmp_path) == ["labtools/predict: made"]


def plant_both(root: Path, first: str, second: str, place: str = "tools") -> None:
    for where, text in (("labtools", first), (place, second)):
        plant(root, where, text)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a: int\n    b: int\n    c: int\n    d: int", "d: str\n    c: int\n    b: int\n    a: x"),
        (
            "a: int\n    b: int\n    c: int\n    d: int\n    e: str\n    f: int",
            "g: int\n    e: str\n    d: int\n    c: int\n    b: int\n    a: int",
        ),
    ],
    ids=["all names", "a part"],
)
@pytest.mark.parametrize("place", ["tools", "book"])
def test_planted_types_are_found(first: str, second: str, place: str, tmp_path: Path) -> None:
    plant_both(tmp_path, f"class One:\n    {first}\n", f"class Two:\n    {second}\n", place)
    assert field_twins(tmp_path) == [("One", "Two")]


def test_what_a_base_names_is_no_twin(tmp_path: Path) -> None:
    fields = "    a: int\n    b: int\n    c: int\n    d: int\n    e: int\n"
    plant(tmp_path, "labtools", f"class Base:\n{fields}\nclass One(Base):\n{fields}    f: int\n")
    assert field_twins(tmp_path) == []


@pytest.mark.parametrize("place", ["tools", "labs"])
def test_planted_functions_are_found(place: str, tmp_path: Path) -> None:
    body = "    found = [one for one in many if one.name == 'r03_one_warp']\n    return found[0]\n"
    first = f"class Kept:\n    def find(self, many):\n{body.replace('    ', '        ')}"
    second = f'def look(many):\n    """Looks."""\n{body}'
    plant_both(tmp_path, first, second, place)
    (found,) = bodies_twice(tmp_path)
    assert "find" in found
    assert "look" in found


def test_planted_patterns_and_constants_are_found(tmp_path: Path) -> None:
    first = (
        "import re\n_LINE = re.compile(r'^(?P<low>[0-9a-f]{16})$')\n_SET = {'LDS', 'STS', 'LDSM'}\n"
    )
    second = (
        "import re\n\ndef read(x):\n    return re.match(r'^(?P<low>[0-9a-f]{16})$', x)\n\n"
        "_SET = {'LDS', 'STS', 'LDSM'}\n"
    )
    plant_both(tmp_path, first, second)
    found = values_twice(tmp_path)
    assert [one.split(" ")[0] for one in found] == ["pattern", "_SET"]


def test_the_scan_sees_the_project() -> None:
    names = {name_of(path, ROOT) for path in files_of(ROOT)}
    assert {"record/query.py", "tools/toc.py", "book/predict.md", "labs/lab03_chain.md"} <= names
    assert len(definitions(ROOT)) > 700
