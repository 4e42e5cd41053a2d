"""Tables for a page with what repeats in them written once."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

SHORTEST = 16  # characters of JSON from which a repeated part is worth a reference
REFERS_TO = "$"
"""The one name of an object that stands for a part: its value is the part's number."""


def pack_tables(tables: Any) -> dict[str, Any]:
    """JSON values with each repeated list, object or text kept once; ``unpackTables`` reads them.

    No object has `REFERS_TO` for its only name. Of ``parts``, each refers only to those before it,
    and ``whole`` to any.
    """
    counts: Counter[str] = Counter()

    def count(value: Any) -> None:
        if isinstance(value, dict | list | tuple | str):
            text = json.dumps(value)
            counts[text] += 1
            if counts[text] > 1 or isinstance(value, str):
                return
            for one in value.values() if isinstance(value, dict) else value:
                count(one)

    count(tables)
    parts: list[Any] = []
    places: dict[str, int] = {}

    def pack(value: Any) -> Any:
        if not isinstance(value, dict | list | tuple | str):
            return value
        text = json.dumps(value)
        if text in places:
            return {REFERS_TO: places[text]}
        made = value
        if isinstance(value, dict):
            made = {name: pack(held) for name, held in value.items()}
        elif not isinstance(value, str):
            made = [pack(held) for held in value]
        if counts[text] > 1 and len(text) >= SHORTEST:
            places[text] = len(parts)
            parts.append(made)
            return {REFERS_TO: places[text]}
        return made

    return {"whole": pack(tables), "parts": parts}
