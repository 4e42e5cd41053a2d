"""The terms of a forecast in words: what each part would take if nothing else took time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A term of ``Forecast.terms_us``."""

    alone: str  # what takes the time
    at_ceiling: str = ""  # the same beside a curve; empty where it is no unit's ceiling
    limit: str = ""  # the unit whose ceiling it is, within a sentence


TERMS = {
    "bandwidth": Term("DRAM bytes at the ceiling", "memory's bytes at its ceiling", "memory"),
    "l2_bandwidth": Term("L2 bytes at the ceiling", "L2's bytes at its ceiling", "the L2"),
    "pipe": Term("the busiest pipe", "the busiest pipe's work, never idle", "a pipe"),
    "issue": Term("issue slots", "instructions, every slot in use", "issue"),
    "chain": Term("the simulated chain, waits for memory included"),
    "launch": Term("launch overhead"),
}
LIMITS = {name: term for name, term in TERMS.items() if term.limit}
"""The terms that are a unit's ceiling."""
