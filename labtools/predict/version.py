"""Which model made a forecast: a name that is a hash of what the model says.

The hash is over the model's tables and over its forecasts of forty frozen listings. A comment, a
moved file or a renamed variable gives the same name; a rule or a number that moves any of the
forty forecasts gives another one, in whatever file it stands.

Forty forecasts take seconds, so ``model_name.json`` keeps the name beside a digest of the code and
the tables that it was computed with. Where the digest fits, the name is read there. Where somebody
edited the model, it is computed once and kept on this machine; ``make name`` writes the file anew.
It is no ``.toml``: those are part of the digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from labtools.toolchain.cache import kept as cached

from .forecasting import MODEL_CODE, forecast
from .frozen import FROZEN, FrozenListing, read_frozen
from .latencies import raw_table, table_files
from .machine import FITTED, READ_EFFICIENCY
from .sheets import SHEETS

MODEL = "chain model 1"
DIGITS = 9
"""Of a forecast, in the hash: more than any machine's last digits, less than any rule's change."""
KEPT_NAME = Path(__file__).with_name("model_name.json")
_WORDS = ("source", "sources", "documents", "title", "notes", "date", "driver", "nvrtc", "aliases")
"""What a table says besides its numbers. A corrected title makes no new model."""


@lru_cache(maxsize=1)
def model_name() -> str:
    """For example ``chain model 1, 3f9a01c2``; another model has another name."""
    kept, digest = read_kept(), model_digest()
    if kept.get("digest") == digest:
        return kept["name"]
    return cached("model-name", [digest], compute_name)


def compute_name(listings: Sequence[FrozenListing] | None = None) -> str:
    """Forecast the frozen listings and hash what came out; takes seconds."""
    said = {
        "tables": canonical_tables(),
        "forecasts": [say_forecast(one) for one in listings or read_frozen()],
    }
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return f"{MODEL}, {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def say_forecast(one: FrozenListing) -> str:
    """The forecast of a frozen listing in the words that are hashed."""
    made = forecast(one.rung, one.workload, one.sheet, code=one.code)
    return f"{made.time_us:.{DIGITS}g} {made.bound}"


def canonical_tables() -> dict[str, Any]:
    """The numbers of all tables by the tables' names, and the numbers that were fitted."""
    files = {**table_files(), SHEETS.stem: SHEETS}
    tables = {name: _numbers(raw_table(path)) for name, path in files.items()}
    return {**tables, "fitted": {**FITTED, "read_efficiency": READ_EFFICIENCY}}


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _numbers(one) for name, one in value.items() if name not in _WORDS}
        return {name: one for name, one in kept.items() if one != {}}
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return f"{value:.12g}" if isinstance(value, float) else str(value)


# --------------------------------------------------------------------------- the kept name


def model_digest() -> str:
    """SHA-256 of all that the name follows from: code, tables, frozen listings, our own records."""
    digest = hashlib.sha256(MODEL_CODE.encode())
    records = sorted(path for path in table_files().values() if path.suffix == ".gz")
    for path in (FROZEN, *records):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def write_name(path: Path = KEPT_NAME) -> str:
    """Compute the name and keep it with the digest of what it was computed with."""
    said = {"name": compute_name(), "digest": model_digest()}
    path.write_text(json.dumps(said, indent=0) + "\n", "utf-8")
    return said["name"]


def read_kept(path: Path | None = None) -> dict[str, str]:
    """The name that is kept and its digest; empty where there is none.

    Args:
        path: None takes the shipped file.
    """
    try:
        kept = json.loads((path or KEPT_NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # it only saves time
    return kept if isinstance(kept, dict) and "name" in kept else {}
