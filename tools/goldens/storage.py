"""Where the snapshot library keeps goldens: ``KIND.jsonl.gz``, one line a golden, sorted by key.

Equal goldens give equal bytes. A golden belongs to the test ``test_golden[KIND KEY]``.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from syrupy.data import Snapshot, SnapshotCollection, SnapshotCollections
from syrupy.extensions.base import AbstractSyrupyExtension
from syrupy.utils import exclusive_file_lock, snapshot_file_lock_enabled

from labtools.problem import LabError
from tools.install import ROOT

from .values import Json, changed_paths

GOLDEN_KINDS = ("json", "forecast", "hash", "median")
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


def _kind_and_key(test: str) -> tuple[str, str]:
    """Of ``test_golden[json derive --json]``: ``json`` and ``derive --json``."""
    kind, _, key = test.partition("[")[2].removesuffix("]").partition(" ")
    return kind, key


class GoldenStorage(AbstractSyrupyExtension):
    """An answer is compared within the tolerance, and a difference names its path."""

    folder: ClassVar[Path] = FOLDER

    def serialize(self, data: Any, **_: Any) -> str:
        return json.dumps(data)

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        return not any(changed_paths(json.loads(snapshot_data), json.loads(serialized_data)))

    def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:
        before = json.loads(snapshot_data or "null")
        for path, was, now in changed_paths(before, json.loads(serialized_data)):
            yield f"{path or 'all of it'}: {str(was)[:200]} -> {str(now)[:200]}"

    @classmethod
    def get_location(cls, *, test_location: Any, index: Any) -> str:
        return str(path_of(_kind_and_key(test_location.testname)[0], cls.folder))

    @classmethod
    def matches_test_location(cls, *, test_location: Any, snapshot_location: str) -> bool:
        return True

    def discover_snapshots(self, **_: Any) -> SnapshotCollections:
        """None: most runs draw a few, and what they leave out is not unused."""
        return SnapshotCollections()

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        """Never asked for, since none is discovered."""

    def read_snapshot_collection(self, *, snapshot_location: str) -> SnapshotCollection:
        held = read_goldens(Path(snapshot_location))
        found = {key: Snapshot(name=key, data=json.dumps(value)) for key, value in held.items()}
        return SnapshotCollection(location=snapshot_location, _snapshots=found)

    def read_snapshot_data_from_location(
        self, *, snapshot_location: str, snapshot_name: str, session_id: str
    ) -> str | None:
        held = read_goldens(Path(snapshot_location))
        key = _kind_and_key(snapshot_name)[1]
        return json.dumps(held[key]) if key in held else None

    @classmethod
    def write_snapshot_collection(
        cls, *, snapshot_collection: SnapshotCollection, name_order: Any = None
    ) -> None:
        path = Path(snapshot_collection.location)
        locked = snapshot_file_lock_enabled()
        with exclusive_file_lock(str(path)) if locked else contextlib.nullcontext():
            read_goldens.cache_clear()
            new = {
                _kind_and_key(one.name)[1]: json.loads(str(one.data)) for one in snapshot_collection
            }
            write_goldens(path, read_goldens(path) | new)
