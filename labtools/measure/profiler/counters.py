"""The chosen Nsight Compute counters, which ``counters.toml`` lists, and how to read ncu's CSV.

A counter without a value is None. It is never 0: a missing measurement is not a measured zero.
"""

from __future__ import annotations

import csv
import io
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problem import LabError
from labtools.record.bound import stall_shares


@dataclass(frozen=True)
class CounterMeaning:
    """What lab 7 shows of a counter."""

    label: str
    unit: str  # of the value that is shown
    means: str  # one sentence
    does_not_mean: str  # the mistake that is near at hand
    scale: float = 1.0  # the value is divided by this before it is shown


@dataclass(frozen=True)
class Counter:
    """One chosen counter; the fields are those of ``counters.toml``."""

    name: str
    unit: str
    metrics: tuple[str, ...]
    doc: str
    against: str = ""
    summed: bool = False
    few: bool = True
    lab: CounterMeaning | None = None


def _read_counter(table: Mapping[str, Any]) -> Counter:
    lab = table.get("lab")
    meaning = CounterMeaning(**lab) if lab else None
    return Counter(**{**table, "metrics": tuple(table["metrics"]), "lab": meaning})


_TABLE = tomllib.loads(Path(__file__).with_name("counters.toml").read_text("utf-8"))
CHOSEN_COUNTERS = tuple(_read_counter(table) for table in _TABLE["counter"])
"""Everything but the stalls."""

STALL_REASONS: tuple[str, ...] = tuple(_TABLE["stalls"])

STALL_COUNTERS = tuple(
    Counter(
        f"stall_{reason}_cycles",
        "cycle",
        (f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",),
        f"of warp_latency_cycles, spent in state {reason.replace('_', ' ')}",
        "warp_latency_cycles",
    )
    for reason in STALL_REASONS
)

COUNTERS = CHOSEN_COUNTERS + STALL_COUNTERS
"""All chosen counters in the order in which they are shown."""

FEW_COUNTERS = tuple(counter for counter in COUNTERS if counter.few)
"""What the bound of a kernel and its explanation need."""


@dataclass(frozen=True)
class KernelCounters:
    """One profiled kernel launch: what ncu calls a result."""

    kernel: str
    grid: str
    block: str
    values: Mapping[str, float | None]  # by `Counter.name`; None where ncu gave no value

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the chosen counters that have no value."""
        return tuple(name for name, value in self.values.items() if value is None)

    @property
    def stall_shares(self) -> dict[str, float]:
        """`labtools.record.bound.stall_shares` of the values."""
        return stall_shares(self.values)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: the chosen counters with what follows from them, not every metric."""
        return {
            **{name: getattr(self, name) for name in ("kernel", "grid", "block")},
            "values": dict(self.values),
            "stall_shares": self.stall_shares,
            "missing": list(self.missing),
        }


def metrics_to_request(counters: Iterable[Counter] = COUNTERS) -> tuple[str, ...]:
    """Every ncu metric that one of the counters may come from."""
    return tuple(dict.fromkeys(metric for counter in counters for metric in counter.metrics))


# ncu scales values for the reader (us, Mbyte) unless asked for base units. Both are understood,
# since a report may come from somebody else's command line. Powers of 1000, as ncu uses them.
_TIMES = {
    **{"s": 1e9, "second": 1e9, "ms": 1e6, "msecond": 1e6, "us": 1e3, "usecond": 1e3},
    **{"ns": 1.0, "nsecond": 1.0},
}
_UNITS = {
    **_TIMES,
    **{"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
    **{"hz": 1.0, "Khz": 1e3, "Mhz": 1e6, "Ghz": 1e9},
}


def _number(text: str) -> float | None:
    """A CSV cell as a number; None for ``n/a``, an empty cell and text.

    Takes ``1,234.5`` and ``1234.5``, and ``12 (1; 5; 6)`` for a metric with instances.
    """
    text = text.strip().split(" (")[0].replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _to_base(value: float, unit: str) -> float:
    """Value in the base unit: ns, byte, hz, or the unit itself when it has no prefix."""
    unit = unit.strip()
    scale = _UNITS.get(unit)
    if scale is None and "/" in unit:
        # byte/block, Gbyte/second, cycle/nsecond: prefixes count, a rate is one a second.
        above, below = unit.split("/", 1)
        scale = _UNITS.get(above, 1.0) * 1e9 / _TIMES.get(below, 1e9)
    return value if scale is None else value * scale


def parse_ncu_csv(text: str) -> list[KernelCounters]:
    """Read what ``ncu --csv`` printed, one entry a profiled launch, in launch order.

    It is the layout of ``--page raw``: a header row, a units row, one row a launch. Lines of the
    program and of ncu around the table are skipped.

    Raises LabError: there is no table, or it holds no launch.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if re.match(r'\s*"?ID"?,"?', line)), None)
    still = "timing, and the recorded counters"
    if start is None:
        what = "The profiler's output could not be read."
        raise LabError(what, "it holds no table of counters", still)
    rows = [row for row in csv.reader(io.StringIO("\n".join(lines[start:]))) if row]
    header, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    if len(body) < 2:
        why = "its table has no row: no kernel was launched while it was watching"
        raise LabError("The profiler measured nothing.", why, still)
    units, *rows = body
    launches = []
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        metrics = {
            name: _to_base(value, unit)
            for name, unit, cell in zip(header, units, row, strict=True)
            if "__" in name and (value := _number(cell)) is not None
        }
        named = (cells.get(name, "") for name in ("Kernel Name", "Grid Size", "Block Size"))
        kernel, grid, block = named
        launches.append(KernelCounters(kernel, grid, block, choose_counters(metrics)))
    return launches


def choose_counters(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The chosen counters out of ncu's metrics (base units); None where there is no value."""
    values: dict[str, float | None] = {}
    for counter in COUNTERS:
        found = next((metrics[name] for name in counter.metrics if name in metrics), None)
        values[counter.name] = found / 1e3 if found is not None and counter.unit == "us" else found
    return values


def sum_launches(launches: Iterable[KernelCounters]) -> dict[str, float | None]:
    """Counters of a call made of several kernels: only what may be added is added.

    A sum with a missing term is missing. Rates of different kernels have no sum.
    """
    launches = list(launches)
    totals: dict[str, float | None] = {}
    for counter in (one for one in CHOSEN_COUNTERS if one.summed):
        terms = [launch.values[counter.name] for launch in launches]
        known = [term for term in terms if term is not None]
        totals[counter.name] = math.fsum(known) if known and len(known) == len(terms) else None
    return totals
