"""A Triton kernel to machine code by Triton's own compiler, without a GPU; and its launch, to which
that compiler adds arguments, threads and shared memory."""

from __future__ import annotations

import ast
import base64
import dataclasses
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from labtools.problem import (
    KernelError,
    LabError,
    Launch,
    Limits,
    Problem,
    Rung,
    Workspace,
    kernels_dir,
)
from labtools.problem.launched import OF_TRITON
from labtools.problem.rung import COMPLETES
from labtools.problem.text import is_file

from .apart import OWN_LIMIT_S, Stopped, allowed_s, can_work_apart, work_apart
from .cache import Recent, code_digest, content_key, kept
from .cubin import Cubin, named_by, read_entries
from .errors import CompileError, CompilerMissing
from .linker import link_ptx
from .options import split_arch
from .triton_host import compile_kernel, is_jit

_WARP = 32
NEEDS_TRITON = (
    "make triton, in the guide's folder, installs it, which takes 700 MB and needs no GPU; CUDA "
    "C++, PTX and machine code are read without it"
)
TRITON_BYTES = 16 * 2**30
"""Address space that Triton may take, most of which torch's CUDA libraries do where they are."""
_NUMBERS = {
    **{
        f"{sign}{bits}": f"{word}{bits}"
        for sign, word in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{"i1": "uint8", "u1": "uint8", "fp32": "float32", "fp64": "float64"},
}
_OURS = code_digest("toolchain")
_OWN_FILE, _LIBRARY = "source.py", "triton/language/"
"""What stored PTX calls a kernel's file, and the folder of Triton's own functions."""
_made: Recent[dict[str, Any]] = Recent(64)


def is_of_triton(rung: Rung) -> bool:
    """Whether a rung's source is Python with kernels of Triton's."""
    return rung.source.suffix == OF_TRITON


def triton_version() -> str:
    """The version that is installed; empty: none."""
    return _package_version("triton") if find_spec("triton") else ""


def is_triton_here() -> bool:
    """Whether Triton can be asked here. Where it cannot, what `stored_answers` holds is taken."""
    return bool(triton_version()) and can_work_apart()


def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def triton_kernels(text: str) -> dict[str, str]:
    """The kernels of a text in Python, each with its parameters; empty where it is no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return {}
    functions = (one for one in body if isinstance(one, ast.FunctionDef))
    found = (one for one in functions if any(map(is_jit, one.decorator_list)))
    return {one.name: f"{one.name}({ast.unparse(one.args)})" for one in found}


def triton_parameters(text: str, kernel: str) -> dict[str, str]:
    """The parameters of a kernel in order, each with what its text says of it: ``constant``,
    ``out`` of a pointer that is written, ``in`` of another, or ``number``."""
    found = (one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef))
    function = next(one for one in found if one.name == kernel)
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    constant = {
        one.arg for one in given if one.annotation and "constexpr" in ast.unparse(one.annotation)
    }
    set_to = {
        target.id: one.value
        for one in ast.walk(function)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    kinds = {one.arg: "number" for one in given}
    for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
        called = getattr(call.func, "attr", "")
        of_memory = called in ("load", "store", "make_block_ptr", "make_tensor_descriptor")
        if not (of_memory or called.startswith("atomic_")):
            continue
        named = {one.arg: one.value for one in call.keywords}
        first = next(iter([*call.args, *named.values()]), None)
        root = _root(named.get("base", named.get("pointer", first)), set_to)
        if root in kinds:
            writes = called == "store" or called.startswith("atomic_") or kinds[root] == "out"
            kinds[root] = "out" if writes else "in"
    for name, kind in kinds.items():
        if name in constant:
            kinds[name] = "constant"
        elif kind == "number" and re.search(r"ptr|desc", name, re.IGNORECASE):
            kinds[name] = "in"
    return kinds


def _root(value: ast.AST | None, set_to: Mapping[str, ast.expr]) -> str:
    """The name at the left end of a sum of a pointer and offsets, through what it was set to."""
    seen: set[str] = set()
    while value is not None:
        if isinstance(value, ast.BinOp):
            value = value.left
        elif isinstance(value, ast.Name) and value.id in set_to and value.id not in seen:
            seen.add(value.id)
            value = set_to[value.id]
        else:
            return getattr(value, "id", "")
    return ""


def compile_triton(
    rung: Rung,
    problem: Problem,
    limits: Limits,
    knobs: Mapping[str, int] | None = None,
    arch: str | None = None,
) -> Cubin:
    """The kernel that a rung launches; errors are those of `labtools.toolchain.compile_rung`."""
    arch = arch or limits.arch
    launches = rung.told_launches(problem, limits, knobs)
    made = _compiled(rung, problem, limits, knobs, arch, launches)
    of_texts: dict[str, str] = {}  # kernels of one name that differ need names of their own
    symbols: dict[str, str] = {}
    for one, told in zip(launches, made, strict=True):
        free = told["name"] not in of_texts.values()
        name = told["name"] if free else f"{told['name']}_{len(of_texts)}"
        symbol = of_texts.setdefault(told["ptx"], name)
        if symbols.setdefault(one.entry, symbol) != symbol:
            what = f"{rung.source.name} launches two kernels as {one.entry}."
            why = "with other numbers that Triton compiles in, it is other machine code"
            still = f"name a constant behind one of them, such as {one.entry}<num_warps=4>"
            raise LabError(what, why, still)
    if len(of_texts) == 1 and "cubin" in made[0]:
        image, log = base64.b64decode(made[0]["cubin"]), made[0]["log"]
        texts = [*of_texts]
    else:
        texts = [re.sub(r"(\.entry\s+)\w+", rf"\1{of}", one) for one, of in of_texts.items()]
        image, log = _together(texts, rung.source.name)
    ptx = "\n".join(texts)
    of = f"Triton {made[0]['version']}"
    cubin = Cubin(image, arch, log, of, read_entries(image, arch, log), str(rung.source), ptx=ptx)
    return named_by(cubin, {one: name for one, name in symbols.items() if one != name})


def _together(texts: Sequence[str], name: str) -> tuple[bytes, str]:
    """Kernels that were compiled one by one, or stored, as one file of machine code, and what was
    said."""
    target = re.search(r"\.target\s+(\w+)", texts[0])
    assert target is not None  # Triton wrote it

    def make() -> tuple[bytes, str]:
        image, log, missing = link_ptx(texts, target[1], name)
        if missing:
            what = "PTX of Triton's cannot be assembled here."
            raise CompilerMissing(what, missing, "one kernel by itself, where Triton is installed")
        return image, log

    return kept("triton_together", (*texts, target[1], _package_version("nvidia-nvjitlink")), make)


def complete_launches(
    rung: Rung, problem: Problem, limits: Limits, knobs: Mapping[str, int], launches: list[Launch]
) -> list[Launch]:
    """The launches with what Triton's launcher gives a kernel: warps, shared memory, and arguments
    of its own. Integers have the width that Triton gives them, and those that it compiled in are
    left out."""
    made = _compiled(rung, problem, limits, knobs, limits.arch, launches)
    return [_complete(one, told) for one, told in zip(launches, made, strict=True)]


COMPLETES[OF_TRITON] = complete_launches


def _complete(launch: Launch, told: Mapping[str, Any]) -> Launch:
    args: list[Any] = []
    spaces = list(launch.workspace)
    for place, one in enumerate(told["params"]):
        if one["type"] == "scratch":
            size = one["size"] * launch.num_blocks * told["num_ctas"]
            name = f"{'_'.join(re.findall(r'[a-zA-Z0-9]+', launch.entry))}_scratch_{place}"
            spaces += [Workspace(name, (size,), "uint8")] if size else []
            args.append(name if size else np.uint64(0))
        else:
            value = launch.args[one["arg"]] if "arg" in one else one["value"]
            number = one["type"] in _NUMBERS
            args.append(np.dtype(_NUMBERS[one["type"]]).type(value) if number else value)
    x, y, z = launch.grid
    return dataclasses.replace(
        launch,
        grid=(x * told["num_ctas"], y, z),
        block=(told["num_warps"] * _WARP, 1, 1),
        smem_bytes=told["shared"],
        args=tuple(args),
        workspace=tuple(spaces),
    )


def _compiled(
    rung: Rung,
    problem: Problem,
    limits: Limits,
    knobs: Mapping[str, int] | None,
    arch: str,
    launches: Sequence[Launch],
) -> list[dict[str, Any]]:
    """What `compile_kernel` says of the kernel of each launch."""
    defines = rung.defines(problem, limits, knobs)
    major, minor = split_arch(arch)
    made = []
    for launch in launches:
        entry, own = _split_entry(launch.entry)
        told: dict[str, Any] = {
            "path": str(rung.source.resolve()),
            "text": rung.source_text,
            "entry": entry,
            "capability": 10 * major + minor,
            "args": [_told_argument(one, launch, problem) for one in launch.args],
            "constants": {**defines, **own},
            "others": len(launches) > 1,  # kernels, which the constants may be of
        }
        if "heuristics" not in rung.source_text:  # which may ask for the numbers themselves
            told["args"] = [{**one, **_alike(one)} for one in told["args"]]
        made.append(_ask(told, rung.source))
    return made


def _split_entry(entry: str) -> tuple[str, dict[str, str]]:
    """A kernel's name, and constants of this launch alone: ``softmax<BLOCK=64, num_warps=2>``."""
    name, _, inside = entry.removesuffix(">").partition("<")
    own = re.findall(r"(\w+)\s*=\s*([^,]+)", inside)
    if inside.count(",") + bool(inside) != len(own):
        why = "behind a Triton kernel's name stand its constants, as in softmax<BLOCK=64>"
        raise KernelError(f"{entry} names no kernel.", why, "the name alone, with -D for constants")
    return name, {key: value.strip() for key, value in own}


def _told_argument(arg: Any, launch: Launch, problem: Problem) -> dict[str, Any]:
    """An argument as `compile_kernel` takes it: of a buffer its name and type, of a number its
    value."""
    if isinstance(arg, str):
        spaces = {one.name: one.dtype for one in launch.workspace}
        return {"name": arg, "dtype": spaces.get(arg) or problem.buffers[arg].dtype}
    if isinstance(arg, np.generic) and arg.dtype.kind in "iufb":
        return {"value": arg.item()}
    what = f"{launch.entry} is launched with a structure."
    raise LabError(what, "a Triton kernel takes buffers and numbers", "one --arg for each of them")


def _alike(told: Mapping[str, Any]) -> dict[str, Any]:
    """A number for which Triton makes the same code: it compiles in 1, whether it is a multiple of
    16, and its width."""
    value = told.get("value")
    if isinstance(value, float):
        return {"value": 0.5}
    if not isinstance(value, int) or isinstance(value, bool) or value == 1:
        return {}
    least = 2**63 if value >= 2**63 else 0 if -(2**31) <= value < 2**31 else 2**32
    return {"value": least + (16 if value % 16 == 0 else 17)}


def _ask(asked: dict[str, Any], source: Path) -> dict[str, Any]:
    if not is_triton_here():
        return _stored(asked, source)
    modules = _own_modules(asked["text"], source)
    key = content_key(_OURS, triton_version(), json.dumps(asked), modules)
    if (known := _made.get(key)) is None:
        known = kept("triton", [key], lambda: _run(asked, source))
        _made.put(key, known)
    return known


def _run(asked: dict[str, Any], source: Path) -> dict[str, Any]:
    limit_s = allowed_s(OWN_LIMIT_S)
    try:
        data = work_apart(
            lambda: json.dumps(compile_kernel(asked)).encode(),
            limit_s=limit_s,
            limit_bytes=TRITON_BYTES,
        )
    except Stopped as error:
        what = f"Triton did not compile {source.name}."
        raise CompileError(what, f"{error}, or Triton ended its process", "other kernels") from None
    told: dict[str, Any] = json.loads(data)
    if "refused" in told:
        raise _refusal(told, asked, source)
    return {**told, "asked": {name: one for name, one in asked.items() if name != "path"}}


def stored_answers_path() -> Path:
    """The file of what Triton made of the pages' kernels, by `tools.write_triton`."""
    return kernels_dir() / "listings" / "triton.json.gz"


@lru_cache(maxsize=1)
def stored_answers() -> list[dict[str, Any]]:
    """What that file holds: of each question what `portable_answer` says."""
    answers: list[dict[str, Any]] = json.loads(gzip.decompress(stored_answers_path().read_bytes()))
    return answers


def portable_answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """What `compile_kernel` says to a question without a path, which is in the answer as ``asked``;
    PTX alone, with the same names of files on every machine."""
    told = _run({**question, "path": _OWN_FILE}, Path(_OWN_FILE))
    library = re.compile(rf'(\.file\s+\d+ ")[^"]*/({re.escape(_LIBRARY)})')
    answer = {name: one for name, one in told.items() if name not in ("cubin", "log")}
    return {**answer, "ptx": library.sub(r"\1\2", told["ptx"])}


def _stored(asked: Mapping[str, Any], source: Path) -> dict[str, Any]:
    question = {name: one for name, one in asked.items() if name != "path"}
    for told in stored_answers():
        if told["asked"] == question:
            path = asked["path"].replace("\\", "/")
            return {**told, "ptx": told["ptx"].replace(f'"{_OWN_FILE}"', f'"{path}"')}
    why = (
        f"{source.name} is Python of Triton's, the package triton is not installed, and PTX is "
        "kept of the pages' own kernels alone"
    )
    raise CompilerMissing("There is no Triton here.", why, NEEDS_TRITON)


def _refusal(told: Mapping[str, Any], asked: Mapping[str, Any], source: Path) -> LabError:
    (said, why), line = told["refused"], int(told["line"])
    if told["needs"]:
        still = " ".join(f"-D {name}=..." for name in told["needs"])
        still += " says it, and -D num_warps=8 how many warps a block has"
        return KernelError(f"{source.name}: {said}.", why, still)
    still = "every other kernel is unaffected"
    if not line:
        return KernelError(f"{source.name}: {said}.", why, still)
    lines = asked["text"].splitlines()
    excerpt = f"{line:>5} | {lines[line - 1]}" if 0 < line <= len(lines) else ""
    what = f"{source} does not compile: line {line}: {said}.\n{excerpt}"
    return CompileError(what, why, still, file=str(source), line=line, excerpt=excerpt, log=said)


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import\b(.*)|import[ \t]+([\w., \t]+))", re.M
)


def _own_modules(text: str, source: Path) -> list[str]:
    """The texts of modules beside a source, of which a kernel may take functions, and of those
    beside them."""
    seen: dict[Path, str] = {}
    waiting = [(text, source.resolve().parent)]
    while waiting:
        words, folder = waiting.pop()
        for path in _imported(words, folder):
            if path not in seen and is_file(path):
                seen[path] = path.read_text("utf-8", errors="replace")
                waiting.append((seen[path], path.parent))
    return [f"{path} {seen[path]}" for path in sorted(seen)]


def _imported(text: str, folder: Path) -> Iterable[Path]:
    for of, names, plain in _IMPORT.findall(text):
        dots = len(of) - len(of.lstrip("."))
        place = folder.joinpath(*[".."] * max(dots - 1, 0))
        members = re.findall(r"\w+", names) if dots else []
        for module in [of.lstrip("."), *re.findall(r"[\w.]+", plain)]:
            base = place.joinpath(*filter(None, module.split(".")))
            yield from (base.with_suffix(OF_TRITON), base / "__init__.py")
            yield from (base / f"{one}{OF_TRITON}" for one in members)
