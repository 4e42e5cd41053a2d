"""Where rungs come from: the shipped ones, and files of readers."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .errors import LabError
from .isolated import isolated_rung
from .paths import kernels_dir
from .problem import DEFAULT_OPERATION, kernels_folder, operation_of, operations
from .rung import Rung, UnknownRung, load_by_path
from .text import given_path, is_file, read_given


def list_rungs(folder: str = DEFAULT_OPERATION) -> list[Rung]:
    """The shipped rungs of an operation or another folder, in ladder order, without families."""
    return [rung for rung in _load_folder(folder) if not rung.is_family]


def list_families(folder: str = DEFAULT_OPERATION) -> list[Rung]:
    """The shipped families of kernels in one folder: see `Rung.is_family`."""
    return [rung for rung in _load_folder(folder) if rung.is_family]


def _load_folder(folder: str) -> list[Rung]:
    paths = sorted((kernels_dir() / kernels_folder(folder)).glob("*.py"))
    found = [load_rung(path) for path in paths]
    return [rung for rung in found if folder not in operations() or rung.operation == folder]


def list_studies(operation: str = DEFAULT_OPERATION) -> list[Rung]:
    """The shipped study kernels of an operation: they are no steps of its ladder."""
    return [rung for rung in list_rungs("studies") if rung.operation == operation]


def load_rung(name: str | Path) -> Rung:
    """Load a rung by id (``r03_one_warp``), by number (``r03``) or by the path of its ``.py``. A
    reader's file is loaded in processes of its own, anew every time (see `isolated`).

    Raises LabError: there is no such rung, or the file does not define ``RUNG``.
    """
    path = _find_rung(name)
    if not (is_shipped(path) or _here):
        return isolated_rung(path)
    says = None
    if is_shipped(path):
        with contextlib.suppress(OSError):  # loading it says why it cannot be read
            says = path.read_bytes()
    known = _loaded.get(path)
    if says is not None and known is not None and known[0] == says and is_file(known[1].source):
        return known[1]
    rung = _load_anew(path)
    if says is not None:
        _loaded[path] = says, rung
    return rung


_loaded: dict[Path, tuple[bytes, Rung]] = {}
"""The shipped rungs that were asked for, each with the text that it was loaded from: what records
say is asked of them thousands of times."""
_here = False
"""Whether this is the process of a reader's file: others that it names are loaded here too."""


def load_in_place(path: Path) -> Rung:
    """The rung of a reader's file, whose Python runs in this process from now on."""
    global _here
    _here = True
    return _load_anew(path)


def is_shipped(path: Path) -> bool:
    """Whether a file is one of the project's own kernels."""
    return path.is_relative_to(kernels_dir())


def _load_anew(path: Path) -> Rung:
    of_triton = ""
    with contextlib.suppress(OSError, ValueError):  # loading it says why it cannot be read
        if "@triton.jit" in read_given(path):
            of_triton = f"labtools adopt {path} writes down how its Triton kernel is launched"
    try:
        rung = getattr(load_by_path(path), "RUNG", None)
    except LabError as error:
        error.still_works = of_triton or error.still_works
        raise
    if type(rung) is not Rung:
        compare = of_triton or "compare it with kernels/decode/r03_one_warp.py"
        raise LabError(f"{path} is not a rung.", "it does not define RUNG = Rung(...)", compare)
    if not is_file(rung.source):
        there = os.path.lexists(rung.source)
        why = f"{rung.source} is no file" if there else f"{rung.source} does not exist"
        files = "a rung is two files: NAME.py and NAME.cu beside it"
        raise LabError(f"The rung {rung.id} has no source.", why, files)
    operation_of(rung.operation)  # refuses one that nobody has registered
    return rung


def _find_rung(name: str | Path) -> Path:
    text = str(name)
    if text.endswith((".py", ".cu")) or "/" in text:
        path = given_path(text)
        if path.suffix != ".py" and path.name:
            path = path.with_suffix(".py")
        if is_file(path):
            return path.resolve()
        instead = "give the path of the rung's .py file, or the id of a shipped rung"
        raise UnknownRung(f"There is no rung at {text}.", f"{path} is not a file", instead)
    shipped = _shipped_rungs()
    found = [one for one in shipped if text in (one[1], one[1].split("_")[0])]
    if len(found) == 1:
        return kernels_dir() / found[0][0] / f"{found[0][1]}.py"
    raise UnknownRung(
        f"There is no rung {text!r}.",
        f"the shipped rungs are {', '.join(stem for _, stem in shipped)}",
        "name one of them, its number (r03), or the path of your own rung's .py file",
    )


def _shipped_rungs() -> list[tuple[str, str]]:
    """Folder and id of each shipped rung, in order; `Path.glob` takes longer."""
    with os.scandir(kernels_dir()) as entries:
        folders = [one for one in entries if one.name != "baselines" and one.is_dir()]
    return sorted(
        (folder.name, file.removesuffix(".py"))
        for folder in folders
        for file in os.listdir(folder.path)
        if file.endswith(".py")
    )
