"""The goldens on disk: ``tests/goldens/KIND.jsonl.gz``, one line a golden, sorted by key.

Equal goldens give equal bytes. ``zdiff`` of two versions shows what changed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from labtools.problem import LabError
from tools.install import ROOT

from .values import Json

GOLDEN_KINDS = ("json", "forecast", "hash", "median")
FOLDER = ROOT / "tests" / "goldens"


def path_of(kind: str, folder: Path = FOLDER) -> Path:
    """Where the goldens of one kind are kept."""
    return folder / f"{kind}.jsonl.gz"


def read_goldens(kind: str, folder: Path = FOLDER) -> dict[str, Json]:
    """The goldens of one kind by key.

    Raises:
        LabError: there are none, or the file is damaged.
    """
    return dict(_read(path_of(kind, folder)))


@lru_cache(maxsize=8)
def _read(path: Path) -> dict[str, Json]:
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        return dict(json.loads(line) for line in lines)
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise LabError(
            f"The goldens {path.name} cannot be read.",
            str(error),
            "git checkout gives them back; make goldens ARGS=--write writes what is said now",
        ) from error


def write(kind: str, goldens: Mapping[str, Json], folder: Path = FOLDER) -> bool:
    """Write the goldens of one kind; says whether the file changed."""
    lines = [json.dumps([key, goldens[key]], separators=(",", ":")) for key in sorted(goldens)]
    data = "".join(f"{line}\n" for line in lines).encode()
    path = path_of(kind, folder)
    if path.is_file() and gzip.decompress(path.read_bytes()) == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    _read.cache_clear()
    return True
