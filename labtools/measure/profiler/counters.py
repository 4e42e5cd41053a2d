"""The chosen Nsight Compute counters: their stable names, and how to read them from ncu's CSV.

A record keeps these names for ever; ncu renames its metrics from one GPU generation to the next.
So each counter lists the metrics it may come from, and the first that has a value is taken.
A counter without a value is None. It is never 0: a missing measurement is not a measured zero.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labtools.problem import LabError
from labtools.record.bound import stall_shares

_STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_PIPE = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active"
_EXECUTED = "smsp__sass_inst_executed_op"
_TURNS = "sass_l1tex_data_pipe_lsu"
_CONFLICTS = "sass_l1tex_data_bank_conflicts"
_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"


@dataclass(frozen=True)
class Counter:
    """One chosen counter; ``metrics`` are tried in order, ``unit`` is that of the value kept.

    ``against`` names the counter beside which it is large or small: what it is a part of, or what
    it comes with. One that is empty stands for itself.
    """

    name: str
    unit: str
    metrics: tuple[str, ...]
    doc: str
    against: str = ""


CHOSEN_COUNTERS = (
    Counter("duration_us", "us", ("gpu__time_duration.sum",), "time under the profiler"),
    Counter("dram_read_bytes", "byte", ("dram__bytes_read.sum",), "read from device memory"),
    Counter(
        "dram_write_bytes",
        "byte",
        ("dram__bytes_write.sum",),
        "written to device memory",
        "dram_read_bytes",
    ),
    Counter(
        "dram_throughput_pct",
        "%",
        (
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        ),
        "device memory throughput, of the peak",
    ),
    Counter(
        "sm_throughput_pct",
        "%",
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
        "busiest unit of the SM, of its peak",
    ),
    Counter("l2_hit_pct", "%", ("lts__t_sector_hit_rate.pct",), "sectors found in the L2"),
    Counter("l1_hit_pct", "%", ("l1tex__t_sector_hit_rate.pct",), "sectors found in the L1"),
    Counter(
        "achieved_occupancy_pct",
        "%",
        ("sm__warps_active.avg.pct_of_peak_sustained_active",),
        "resident warps, of the most an SM can hold",
    ),
    Counter(
        "theoretical_occupancy_pct",
        "%",
        ("sm__maximum_warps_per_active_cycle_pct",),
        "the same if the grid filled every SM",
    ),
    Counter("registers_per_thread", "", ("launch__registers_per_thread",), "registers"),
    Counter("shared_bytes_per_block", "byte", ("launch__shared_mem_per_block",), "shared memory"),
    Counter(
        "issue_slot_pct",
        "%",
        (
            "smsp__issue_active.avg.pct_of_peak_sustained_active",
            "sm__inst_issued.avg.pct_of_peak_sustained_active",
        ),
        "cycles in which a scheduler issued, of those in which it had a warp",
    ),
    Counter(
        "executed_instructions",
        "inst",
        ("smsp__inst_executed.sum", "sm__inst_executed.sum"),
        "warp instructions executed",
    ),
    Counter(
        "instructions_per_cycle",
        "inst/cycle",
        ("sm__inst_executed.avg.per_cycle_active",),
        "warp instructions an SM executes a cycle",
    ),
    Counter("pipe_fma_pct", "%", (_PIPE.format("fma"),), "FP32 multiply-add pipe"),
    Counter("pipe_alu_pct", "%", (_PIPE.format("alu"),), "integer and logic pipe"),
    Counter("pipe_xu_pct", "%", (_PIPE.format("xu"),), "exp, reciprocal and conversion pipe"),
    Counter("pipe_lsu_pct", "%", (_PIPE.format("lsu"),), "load and store pipe"),
    Counter(
        "pipe_tensor_pct",
        "%",
        (
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
            "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
            "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        ),
        "tensor cores",
    ),
    Counter(
        "shared_loads",
        "inst",
        (f"{_EXECUTED}_shared_ld.sum",),
        "reads of shared memory",
        "executed_instructions",
    ),
    Counter(
        "shared_load_wavefronts",
        "",
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
        "turns of shared memory that reads took, matrix loads among them",
        "executed_instructions",
    ),
    Counter(
        "shared_load_conflicts",
        "",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",),
        "of these, turns more than the reads' width asks for",
        "shared_load_wavefronts",
    ),
    Counter(
        "matrix_loads",
        "inst",
        ("smsp__inst_executed_op_ldsm.sum",),
        "matrix loads",
        "executed_instructions",
    ),
    Counter(
        "matrix_load_wavefronts",
        "",
        (f"smsp__{_TURNS}_wavefronts_mem_shared_op_ldsm.sum",),
        "turns of shared memory that matrix loads took",
        "executed_instructions",
    ),
    Counter(
        "matrix_load_conflicts",
        "",
        (f"smsp__{_CONFLICTS}_pipe_lsu_mem_shared_op_ldsm.sum",),
        "of these, turns more than a matrix load asks for",
        "matrix_load_wavefronts",
    ),
    Counter("sectors_per_load", "", (_SECTORS.format("ld"),), "32-byte sectors a global load"),
    Counter("sectors_per_store", "", (_SECTORS.format("st"),), "32-byte sectors a global store"),
    Counter(
        "warp_latency_cycles",
        "cycle",
        (
            "smsp__average_warp_latency_per_inst_issued.ratio",
            "smsp__average_warps_active_per_issue_active.ratio",
        ),
        "cycles between two instructions of one warp",
    ),
    Counter(
        "sm_active_pct",
        "%",
        ("sm__cycles_active.avg.pct_of_peak_sustained_elapsed",),
        "of the duration, in which an SM had a warp, on average over the SMs",
    ),
    Counter("waves_per_sm", "", ("launch__waves_per_multiprocessor",), "turns of blocks"),
    Counter(
        "sm_clock_hz",
        "hz",
        ("smsp__cycles_elapsed.avg.per_second", "gpc__cycles_elapsed.avg.per_second"),
        "clock of the SMs under the profiler",
    ),
)
"""Everything but the stalls, which `STALL_REASONS` lists."""

STALL_REASONS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)

STALL_COUNTERS = tuple(
    Counter(
        f"stall_{reason}_cycles",
        "cycle",
        (_STALLED.format(reason),),
        f"of warp_latency_cycles, spent in state {reason.replace('_', ' ')}",
        "warp_latency_cycles",
    )
    for reason in STALL_REASONS
)

COUNTERS = CHOSEN_COUNTERS + STALL_COUNTERS
"""All chosen counters in the order in which they are shown."""

_MANY_PASSES = ("sm_throughput_pct", "sectors_per_load", "sectors_per_store")
FEW_COUNTERS = tuple(
    counter
    for counter in COUNTERS
    if counter.name not in _MANY_PASSES
    and not counter.name.startswith(("pipe_", "shared_load", "matrix_load"))
)
"""What the bound of a kernel and its explanation need. Without the rates of the units and of the
pipes and the turns of shared memory ncu makes fewer passes, which counts where hundreds of kernels
are profiled."""


@dataclass(frozen=True)
class KernelCounters:
    """One profiled kernel launch: what ncu calls a result."""

    kernel: str
    grid: str
    block: str
    values: Mapping[str, float | None]
    """By stable name; None where ncu gave no value."""
    metrics: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Every metric of the report by ncu's own name, in base units (byte, ns, %, ...)."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the chosen counters that have no value."""
        return tuple(name for name, value in self.values.items() if value is None)

    @property
    def stall_shares(self) -> dict[str, float]:
        """Share of a warp's time in each state that was measured; empty when none was.

        See `labtools.record.bound.stall_shares`.
        """
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

    Both layouts are read: the wide one of ``--page raw`` (a header row, a units row, one row a
    launch) and the long one (one row a metric). Lines of the program and of ncu around the table
    are skipped.

    Raises:
        LabError: there is no table, or it holds no launch.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if re.match(r'\s*"?ID"?,"?', line)), None)
    if start is None:
        raise LabError(
            "The profiler's output could not be read.",
            "it holds no table of counters",
            "timing, and the recorded counters",
        )
    rows = [row for row in csv.reader(io.StringIO("\n".join(lines[start:]))) if row]
    header, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    launches = _read_long(header, body) if "Metric Name" in header else _read_wide(header, body)
    if not launches:
        raise LabError(
            "The profiler measured nothing.",
            "its table has no row: no kernel was launched while it was watching",
            "timing, and the recorded counters",
        )
    return launches


def _read_wide(header: list[str], body: list[list[str]]) -> list[KernelCounters]:
    if not body:
        return []
    units = body[0]
    if units[0].strip():  # no units row: take every value as it stands
        units = [""] * len(header)
    else:
        body = body[1:]
    known = {"ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time"}
    known |= {"Context", "Stream", "Block Size", "Grid Size", "Device", "CC"}
    launches = []
    for row in body:
        cells = dict(zip(header, row, strict=True))
        metrics = {}
        for name, unit, cell in zip(header, units, row, strict=True):
            value = None if name in known else _number(cell)
            if value is not None:
                metrics[name] = _to_base(value, unit)
        launches.append(_one_launch(cells, metrics))
    return launches


def _read_long(header: list[str], body: list[list[str]]) -> list[KernelCounters]:
    groups: dict[str, tuple[dict[str, str], dict[str, float]]] = {}
    for row in body:
        cells = dict(zip(header, row, strict=True))
        _, metrics = groups.setdefault(cells["ID"], (cells, {}))
        value = _number(cells.get("Metric Value", ""))
        if value is not None:
            metrics[cells["Metric Name"]] = _to_base(value, cells.get("Metric Unit", ""))
    return [_one_launch(cells, metrics) for cells, metrics in groups.values()]


def _one_launch(cells: Mapping[str, str], metrics: dict[str, float]) -> KernelCounters:
    return KernelCounters(
        kernel=cells.get("Kernel Name", ""),
        grid=cells.get("Grid Size", ""),
        block=cells.get("Block Size", ""),
        values=choose_counters(metrics),
        metrics=metrics,
    )


def choose_counters(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The chosen counters out of ncu's metrics (base units); None where there is no value."""
    values: dict[str, float | None] = {}
    for counter in COUNTERS:
        found = next((metrics[name] for name in counter.metrics if name in metrics), None)
        values[counter.name] = found / 1e3 if found is not None and counter.unit == "us" else found
    return values


_ADDED = ("duration_us", "dram_read_bytes", "dram_write_bytes", "executed_instructions")


def sum_launches(launches: Iterable[KernelCounters]) -> dict[str, float | None]:
    """Counters of a call made of several kernels: only what may be added is added.

    A sum with a missing term is missing. Rates of different kernels have no sum.
    """
    launches = list(launches)
    totals: dict[str, float | None] = {}
    for name in _ADDED:
        terms = [launch.values[name] for launch in launches]
        known = [term for term in terms if term is not None]
        totals[name] = math.fsum(known) if known and len(known) == len(terms) else None
    return totals
