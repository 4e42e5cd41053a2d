"""What each counter on the bench means, and what it does not mean."""

from __future__ import annotations

import tomllib
from pathlib import Path

from labtools.measure.profiler.counters import CHOSEN_COUNTERS

from ...counters import STALL_WORDS

COUNTER_MEANINGS = {one.name: one.lab for one in CHOSEN_COUNTERS if one.lab is not None}
"""The counters of the bench by name, from ``measure/profiler/counters.toml``."""

_WAITS = tomllib.loads(Path(__file__).with_name("waits.toml").read_text())
WAIT_WORDS = {**STALL_WORDS, **_WAITS["words"]}
"""What a warp waits for in each state, in words that follow "waits"."""
WAIT_CAUTIONS: dict[str, str] = _WAITS["cautions"]
"""What a state of a warp does not say, by its name."""
