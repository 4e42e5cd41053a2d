"""Which model made a forecast: its name, and a hash of its code and numbers."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

MODEL = "chain model 1"
_CODE = (
    *("semantics", "trace", "streams", "machine", "calibration", "sm_model", "occupancy"),
    *("latencies", "forecast"),
)


@lru_cache(maxsize=1)
def model_name() -> str:
    """For example ``chain model 1, 3f9a01c2``; a changed rule or number changes the hash."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in (
        *(folder / f"{name}.py" for name in _CODE),
        *sorted((folder / "latencies").glob("*.toml")),
        folder / "gpus.toml",
    ):
        digest.update(path.read_bytes())
    return f"{MODEL}, {digest.hexdigest()[:8]}"
