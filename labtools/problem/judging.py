"""What judges a kernel is not changed by the kernel's own Python.

A rung is Python that runs in the process that asks for its launches. Where it puts another function
in the place of one that checks, times or records, it is refused, and the function is put back. It
is no sandbox: what it does outside of these modules is its own affair.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from .errors import KernelError

_ROOMS = ("labtools.problem", "labtools.toolchain", "labtools.record", "labtools.measure")
_LIBRARIES = ("time", "statistics", "subprocess", "numpy")
_GPU = ("cupy", "cupy.cuda", "torch")
"""Other modules of these names are no longer what times and computes."""
_METHODS = (FunctionType, staticmethod, classmethod, property)
_MISSING = object()

_Held = dict[tuple[Any, str], Any]


@contextlib.contextmanager
def nothing_changed(whose: str) -> Iterator[None]:
    """Inside, somebody's Python runs, which may change nothing of what judges; a KernelError where
    it did, and all is as before again."""
    before = _held()
    modules = {name: sys.modules.get(name) for name in _GPU}
    failed: Exception | None = None
    changed: list[str] = []
    try:
        yield
    except Exception as error:  # what it changed may be what failed
        failed = error
    finally:
        changed = [*_put_back(before), *_put_modules_back(modules)]
    if changed:
        raise KernelError(
            f"The Python of {whose} changes {changed[0]}.",
            "that is part of what judges a kernel",
            "a rung says how its kernel is launched, and nothing else",
        ) from failed
    if failed is not None:
        raise failed


def _held() -> _Held:
    """Functions and classes of the modules that judge, and those of their classes."""
    found: _Held = {}
    for name, module in list(sys.modules.items()):
        own = name.startswith(_ROOMS)
        if not (own or name in _LIBRARIES) or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if not callable(value):
                continue
            found[module, key] = value
            if own and isinstance(value, type) and value.__module__ == name:
                for inner, method in list(vars(value).items()):
                    if isinstance(method, _METHODS):
                        found[value, inner] = method
    return found


def _put_back(before: _Held) -> list[str]:
    changed = []
    for (holder, key), value in before.items():
        if vars(holder).get(key, _MISSING) is not value:
            setattr(holder, key, value)
            where = holder.__name__ if isinstance(holder, ModuleType) else holder.__qualname__
            changed.append(f"{where}.{key}")
    return changed


def _put_modules_back(before: dict[str, ModuleType | None]) -> list[str]:
    changed = []
    for name, module in before.items():
        now = sys.modules.get(name)
        honest = now is module or (module is None and getattr(now, "__spec__", None) is not None)
        if honest:
            continue
        if module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = module
        changed.append(name)
    return changed
