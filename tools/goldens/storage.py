"""How the snapshot library reads and writes goldens, each of the test ``test_golden[KIND KEY]``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from syrupy.data import Snapshot, SnapshotCollection, SnapshotCollections
from syrupy.extensions.base import AbstractSyrupyExtension
from syrupy.utils import exclusive_file_lock, snapshot_file_lock_enabled

from .kept import FOLDER, path_of, read_goldens, write_goldens
from .values import changed_paths


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
