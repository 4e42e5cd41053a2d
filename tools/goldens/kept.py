"""Goldens on disk: ``KIND.jsonl.gz``, one line a golden, sorted by key.

Equal goldens give equal bytes.
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

GOLDEN_KINDS = ("json", "forecast", "hash", "median", "prepared")
"""The last are the checks of kernels that the site shows beforehand, which it takes from here."""
FOLDER = ROOT / "tests" / "goldens"


def path_of(kind: str, folder: Path = FOLDER) -> Path:
    """Where the goldens of one kind are kept."""
    return folder / f"{kind}.jsonl.gz"


@lru_cache(maxsize=8)
def read_goldens(path: Path) -> dict[str, Json]:
    """The goldens of one file by key."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        return dict(json.loads(line) for line in lines)
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise LabError(
            f"The goldens {path.name} cannot be read.", str(error), "git checkout gives them back"
        ) from error


def write_goldens(path: Path, goldens: Mapping[str, Json]) -> None:
    """Write the goldens of one file."""
    lines = [json.dumps([key, goldens[key]], separators=(",", ":")) for key in sorted(goldens)]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0))
    read_goldens.cache_clear()
