"""What ``unpackTables`` of kit.js does in a browser, for tests that read a bench's tables."""

from __future__ import annotations

from typing import Any

from labtools.notebook.packing import REFERS_TO


def unpack_tables(packed: dict[str, Any]) -> Any:
    """The tables that `pack_tables` was given."""
    parts: list[Any] = []

    def unpack(value: Any) -> Any:
        if isinstance(value, dict):
            if list(value) == [REFERS_TO]:
                return parts[value[REFERS_TO]]
            return {name: unpack(one) for name, one in value.items()}
        return [unpack(one) for one in value] if isinstance(value, list) else value

    for part in packed["parts"]:
        parts.append(unpack(part))
    return unpack(packed["whole"])
