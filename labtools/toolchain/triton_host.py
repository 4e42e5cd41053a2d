"""The other side of `triton_code`: loads a file of Triton's and compiles one kernel of it, in a
copy of the process that asks and never in that itself. What comes back is text."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import linecache
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Refused(Exception):
    """The kernel is not compiled: what is said of it, and the line of the file or 0."""


class _Device:
    """What Triton asks of a driver where nothing is launched."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)


class _Type(NamedTuple):
    """The type of a tensor's elements, called as torch calls it."""

    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


class _Tensor:
    """A tensor of which Triton asks the type and the place."""

    def __init__(self, dtype: str) -> None:
        self.dtype = _Type(dtype)

    def data_ptr(self) -> int:
        return 0  # as aligned as what torch allocates


def compile_kernel(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The machine code of one kernel with what its launch needs besides, or ``refused``, the line
    of that or 0, and ``needs``, parameters without a value."""
    for name in [one for one in os.environ if one.startswith("TRITON_")]:
        del os.environ[name]
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the same on every machine
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            return _compile(asked)
        except Refused as error:
            said, line, needs = error.args
            return {"refused": said, "line": line, "needs": needs}
        except MemoryError:
            raise
        except BaseException as error:  # an installation that is broken, or a file's own exit
            return {"refused": (f"{type(error).__name__}: {error}", ""), "line": 0, "needs": ()}


def _compile(asked: Mapping[str, Any]) -> dict[str, Any]:
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    target = GPUTarget("cuda", asked["capability"], 32)
    triton.runtime.driver.set_active(_Device(target))
    knobs.nvidia.dump_ptxas_log = True
    held, failed = _load(Path(asked["path"]), asked["text"])
    # Triton asks for torch to know its tensors, of which none is here; loading it takes seconds.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    named = re.search(rf"\b{re.escape(asked['entry'])}\b", asked["text"])
    kernel, wrapped = _find(held, failed if named else [], asked["entry"])
    given = {name: _value(text) for name, text in asked["constants"].items()}
    options = make_backend(target).parse_options({}).__dict__
    names = {one.name for one in kernel.params}
    for name in [one for one in given if one not in names and one.lower() in options]:
        given[name.lower()] = given.pop(name)  # as a knob's definition is called
    unknown = [one for one in given if one not in names and one not in options]
    if asked.get("others"):
        given = {name: of for name, of in given.items() if name not in unknown}
    elif unknown:
        has = ", ".join(one.name for one in kernel.params)
        raise _refused(
            f"{asked['entry']} has no parameter {unknown[0]}, and Triton no such option",
            0,
            f"its parameters are {has}",
        )
    for name in {*given} & {*options} - names:
        if isinstance(options[name], int) and not isinstance(given[name], int):
            raise _refused(
                f"{name} is {given[name]!r}", 0, "this option of Triton's is a whole number"
            )
    takes = [one for one in kernel.params if not one.is_constexpr and one.name not in given]
    numbers = {}
    for place, (one, told) in enumerate(zip(takes, asked["args"], strict=False)):
        stands = told.get("name", "")
        if stands in names and stands != one.name:
            raise _refused(
                f"{stands} is given in the place of {one.name}",
                0,
                "each argument in the order of the kernel's parameters",
            )
        given[one.name] = _Tensor(told["dtype"]) if "dtype" in told else told["value"]
        numbers[one.name] = place
    for heuristic in wrapped:
        for name, of in getattr(heuristic, "values", {}).items():
            with contextlib.suppress(Exception):  # then it is asked for
                given.setdefault(name, of(dict(given)))
    missing = [one for one in kernel.params if one.name not in given and not one.has_default]
    if missing or len(asked["args"]) > len(takes):
        raise _misfit(asked, kernel, wrapped, takes, missing)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            made = kernel.run(grid=(1,), warmup=True, **given)
    except Exception as error:
        raise _of_compiler(error, asked["text"]) from error
    usual = {one.name: one.default for one in kernel.params if one.has_default}
    return {
        **_told(made, usual | given, numbers),
        "log": said.getvalue(),
        "version": triton.__version__,
    }


def _refused(said: str, line: int = 0, why: str = "", needs: tuple[str, ...] = ()) -> Refused:
    return Refused((said, why), line, needs)


def _told(made: Any, given: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, Any]:
    about = made.metadata
    params: list[dict[str, Any]] = []
    for name, kind in made.src.signature.items():
        if kind == "constexpr":
            continue
        if not isinstance(kind, str) or kind.startswith("tensordesc"):
            raise _refused(
                f"{name} is passed as {kind}",
                0,
                "a launch here passes buffers and numbers, of which a kernel can make one itself",
            )
        of = {"arg": numbers[name]} if name in numbers else {"value": given[name]}
        params.append({"type": kind, **of})
    for kind in ("global", "profile"):
        params.append({"type": "scratch", "size": getattr(about, f"{kind}_scratch_size") or 0})
    return {
        "name": about.name,
        "params": params,
        "num_warps": about.num_warps,
        "num_ctas": about.num_ctas,
        "shared": about.shared,
        "ptx": made.asm["ptx"],
        "cubin": base64.b64encode(made.asm["cubin"]).decode(),
    }


def _value(text: str) -> Any:
    """What is written of a constant: a number, True, None, a type of Triton's, or a text."""
    import triton.language as tl

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        scope, _, name = text.rpartition(".")
        return getattr(tl, name, text) if scope in ("tl", "triton.language") else text


def _load(path: Path, text: str) -> tuple[dict[str, Any], list[tuple[ast.stmt, BaseException]]]:
    """What a file defines, and the statements of it that fail: those which launch kernels do where
    there is no GPU, and the kernels seldom need them."""
    lines = text.splitlines(keepends=True)
    linecache.cache[str(path)] = (len(text), None, lines, str(path))
    package: list[str] = []
    root = path.parent
    while (root / "__init__.py").is_file():
        package.insert(0, root.name)
        root = root.parent
    sys.path.insert(0, str(root))
    module = types.ModuleType(".".join([*package, path.stem]))
    vars(module).update(__file__=str(path), __package__=".".join(package))
    sys.modules[module.__name__] = module
    failed: list[tuple[ast.stmt, BaseException]] = []
    try:
        body = ast.parse(text, str(path)).body
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0) or 0
        raise _refused(f"it is no Python: {getattr(error, 'msg', error)}", line) from error
    future = [one for one in body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]

    def run(one: ast.stmt) -> None:
        part = ast.Module([*future, one], [])
        exec(compile(part, str(path), "exec", dont_inherit=True), vars(module))

    for one in body:
        try:
            run(one)
        except (MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:
            failed.append((one, error))
            if isinstance(one, ast.FunctionDef):  # a kernel whose tuner asks for a GPU
                one.decorator_list = [each for each in one.decorator_list if is_jit(each)]
                with contextlib.suppress(Exception):
                    run(one)
    return vars(module), failed


def is_jit(decorator: ast.expr) -> bool:
    """Whether it is what makes a kernel of a function."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "attr", getattr(called, "id", "")) == "jit"


def _find(
    held: Mapping[str, Any], failed: list[tuple[ast.stmt, BaseException]], entry: str
) -> tuple[Any, list[Any]]:
    """A kernel, and what stands around it: tuners and heuristics, the outermost first."""
    from triton.runtime.jit import JITFunction

    found, wrapped = held.get(entry), []
    while found is not None and not isinstance(found, JITFunction) and hasattr(found, "fn"):
        wrapped.append(found)
        found = found.fn
    if isinstance(found, JITFunction):
        return found, wrapped
    own = [one for one in failed if getattr(one[0], "name", "") == entry]
    for statement, error in own or (failed if found is None else []):
        said = f"its Python raises {type(error).__name__}: {error}"
        raise _refused(said, statement.lineno, f"{entry} is not defined then")
    kernels = sorted(name for name, one in held.items() if _is_kernel(one, JITFunction))
    has = f"its kernels are {', '.join(kernels)}" if kernels else "none of its functions has that"
    if found is None:
        raise _refused(f"it has no kernel called {entry}", 0, has)
    raise _refused(f"{entry} is no kernel, for it is not marked @triton.jit", 0, has)


def _is_kernel(one: Any, of: type) -> bool:
    while not isinstance(one, of) and hasattr(one, "fn"):
        one = one.fn
    return isinstance(one, of)


def _misfit(
    asked: Mapping[str, Any], kernel: Any, wrapped: list[Any], takes: list[Any], missing: list[Any]
) -> Refused:
    entry, count = asked["entry"], len(asked["args"])
    found = {name for of in wrapped for name in getattr(of, "values", {})}
    constants = [one.name for one in missing if one.is_constexpr]
    constants = [one for one in constants if one not in found] or constants
    if count > len(takes) or not all(one.is_constexpr for one in missing):
        has = ", ".join(one.name for one in takes)
        return _refused(
            f"{entry} takes {len(takes)} arguments, {has}, and {count} are given",
            0,
            "one for each parameter that is no tl.constexpr, in order",
        )
    tried = next((str(of.configs[0]) for of in wrapped if getattr(of, "configs", None)), "")
    why = f"its tuner tries {tried} first" if tried else "a constant has one value in a launch"
    said = f"{entry} does not say what {', '.join(constants)} {'are' if constants[1:] else 'is'}"
    return _refused(said, 0, why, tuple(constants))


def _of_compiler(error: BaseException, text: str) -> Refused:
    """Why Triton refuses a kernel, with the line where it says one."""
    from triton.compiler.errors import CompilationError

    found: CompilationError | None = None
    for one in _causes(error):
        found = one if isinstance(one, CompilationError) else found
    last = list(_causes(error))[-1]
    if found is None:
        return _refused(f"{type(last).__name__}: {last}".partition("\n")[0].rstrip(" .:"))
    said = found.error_message or ("" if last is found else f"{type(last).__name__}: {last}")
    line, start = getattr(found.node, "lineno", 0), text.find(str(found.src).rstrip())
    if start < 0:
        return _refused(said or str(found))
    return _refused(said or "Triton does not take this", text.count("\n", 0, start) + line)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
