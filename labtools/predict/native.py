"""The simulation's loop as machine code where ``make`` compiled it, under a name that holds the
digest of its text, else the same file as Python. Both give the same numbers."""

from __future__ import annotations

import hashlib
import importlib
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

LOOP = Path(__file__).with_name("sm_loop.py")


def compiled_name() -> str:
    """The name of the compiled module for the text of today."""
    return f"labtools_sm_loop_{hashlib.sha256(LOOP.read_bytes()).hexdigest()[:16]}"


def load_loop() -> ModuleType:
    """The compiled loop where there is one for the text of today, else the text."""
    try:
        return importlib.import_module(compiled_name())
    except ImportError:
        return importlib.import_module(f"{__package__}.{LOOP.stem}")


if TYPE_CHECKING:
    from . import sm_loop
else:
    sm_loop = load_loop()


def is_compiled() -> bool:
    """The loop in use is machine code."""
    return isinstance(sm_loop.__loader__, ExtensionFileLoader)
