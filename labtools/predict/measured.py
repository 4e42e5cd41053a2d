"""From the raw samples of the microbenchmarks to the table that the forecast reads.

Pure: the same record always gives the same table. A length's own overhead leaves by differences of
two lengths, repeat by repeat.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labtools.problem import LabError

RECORD_NAME = "microbench.json.gz"
"""A GPU's record of microbenchmarks, in its folder of records."""
SCHEMA = 1
LANE_LOGIC = {2: 1, 4: 1, 8: 1, 16: 2}
"""Three-input operations between a loaded row and the next address, by bytes a lane."""
ALIASES = {
    "fp32": "ffma",
    "fp16": "hfma2",
    "alu": "lop3",
    "xu": "ex2",
    "mma_fp16": "hmma",
}
"""Names of units, and the instruction that stands for each."""

Entry = dict[str, Any]
"""One number: value, low and high, unit, source."""


class _Samples:
    """The samples of one record, found by their settings."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.by_name: dict[str, list[dict[str, Any]]] = {
            name: one["samples"]
            for name, one in record["benchmarks"].items()
            if isinstance(one, dict) and one.get("samples")
        }

    def all(self, benchmark: str, **what: Any) -> list[dict[str, Any]]:
        """Every sample with these settings."""
        return [
            one
            for one in self.by_name.get(benchmark, [])
            if all(one["what"].get(key) == value for key, value in what.items())
        ]

    def values(self, benchmark: str, **what: Any) -> list[float] | None:
        """The values of the one sample with these settings; None without it."""
        found = self.all(benchmark, **what)
        return [float(value) for value in found[0]["values"]] if found else None


def _entry(values: Sequence[float], unit: str, source: str) -> Entry:
    middle, low, high = map(float, (statistics.median(values), min(values), max(values)))
    return {"value": middle, "low": low, "high": high, "unit": unit, "source": source}


def _slope(samples: _Samples, benchmark: str, per: float = 1.0, **what: Any) -> list[float] | None:
    """What one more step of the body costs, a repeat: from the two lengths."""
    found = sorted(samples.all(benchmark, **what), key=lambda one: one["what"]["body"])
    if len(found) < 2:
        return None
    short, long = found[0], found[-1]
    steps = (long["what"]["body"] - short["what"]["body"]) * long["what"]["trips"] * per
    pairs = zip(sorted(short["values"]), sorted(long["values"]), strict=False)
    return [(b - a) / steps for a, b in pairs]


def _minus(values: Sequence[float], other: float) -> list[float]:
    return [value - other for value in values]


class _Table:
    """Collects groups of entries; what the record lacks is left out."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.samples = _Samples(record)
        self.record = record
        self.groups: dict[str, dict[str, Entry]] = {}
        self.curves: dict[str, list[dict[str, Any]]] = {}

    def put(
        self, group: str, name: str, values: Sequence[float] | None, unit: str, source: str
    ) -> None:
        """Add an entry, unless there are no values."""
        if values:
            self.groups.setdefault(group, {})[name] = _entry(values, unit, source)

    def value(self, group: str, name: str) -> float | None:
        """An entry's value, or None."""
        entry = self.groups.get(group, {}).get(name)
        return entry["value"] if entry else None

    def curve(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Add a curve, unless it is empty."""
        kept = [row for row in rows if row]
        if kept:
            self.curves[name] = kept


def read_record(path: Path | str) -> dict[str, Any]:
    """Read a record of microbenchmarks.

    Raises:
        LabError: it is none.
    """
    try:
        record = json.loads(gzip.decompress(Path(path).read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise LabError(
            f"{Path(path).name} could not be read as a record of microbenchmarks.",
            str(error),
            "labtools microbench writes one",
        ) from error
    if not isinstance(record, dict) or record.get("kind") != "microbench":
        raise LabError(
            f"{Path(path).name} is no record of microbenchmarks.",
            "it does not say so",
            "labtools microbench writes one",
        )
    return record


def table_from_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The table of latencies, intervals, bandwidths and launches.

    Cycles are of the SM's clock. Each value is a median, low and high the spread; every number has
    five digits.

    Args:
        record: what ``run_microbench`` kept.

    Returns:
        As a published table of ``latencies/`` reads: ``about``; groups of entries, each with value,
        low, high, unit and source, those of one name by count or bytes a level deeper; ``curve``.

    Raises:
        LabError: the record has no samples at all, or another layout.
    """
    if record.get("schema") != SCHEMA:
        raise LabError(
            "This record of microbenchmarks has another layout.",
            f"it says {record.get('schema')}, this version reads {SCHEMA}",
            "labtools microbench writes a new one",
        )
    table = _Table(record)
    if not table.samples.by_name:
        raise LabError(
            "There is nothing to make a table of.",
            "no microbenchmark has samples",
            "the reasons are in the report",
        )
    steps: tuple[Callable[[_Table], None], ...] = (
        _put_clock,
        _put_pipes,
        _put_chase,
        _put_rows,
        _put_async,
        _put_barriers,
        _put_hopper,
        _put_branches,
        _put_code,
        _put_bandwidth,
        _put_launches,
    )
    for step in steps:
        step(table)
    return _whole(table)


def _put_clock(table: _Table) -> None:
    for name, source in (("sm", "clock"), ("products", "product.clock")):
        table.put("clock", name, table.samples.values(source, test="clock"), "MHz", source)


# -------------------------------------------------------------------------------- instructions


def _put_pipes(table: _Table) -> None:
    curve = []
    for source in table.samples.by_name:
        group, _, name = source.partition(".")
        if group != "pipe":
            continue
        latency = _slope(table.samples, source, test="latency")
        table.put("latency", _latency_name(name), latency, "cycles", source)
        for parts, suffix in ((1, ""), (4, "_sm")):
            best: list[float] | None = None
            for warps in (1, 2, 4, 8):
                # An SM with all parts busy issues four times as many.
                per = warps * parts if suffix else warps
                found = _slope(
                    table.samples, source, per,
                    test="interval", warps=warps, sub_partitions=parts,
                )  # fmt: skip
                if not found:
                    continue
                cycles = statistics.median(found)
                curve.append(
                    {
                        "name": name,
                        "warps": warps,
                        "sub_partitions": parts,
                        "cycles": round(cycles, 4),
                    }
                )
                if best is None or cycles < statistics.median(best):
                    best = found
            table.put("interval", name + suffix, best, "cycles", source)
    table.curve("interval", curve)
    _put_derived(table)


def _latency_name(name: str) -> str:
    widths = {"lds32": "shared.32", "lds64": "shared.64", "lds128": "shared.128"}
    widths |= {"ldg32": "l1_row.128", "ldg64": "l1_row.256", "ldg128": "l1_row.512"}
    return widths.get(name, name)


def _put_derived(table: _Table) -> None:
    """What is known only by difference, and the names of units."""
    latency = table.groups.setdefault("latency", {})
    if "rcp_fadd" in latency and "fadd" in latency:
        whole, addition = latency.pop("rcp_fadd"), latency["fadd"]["value"]
        less = {name: whole[name] - addition for name in ("value", "low", "high")}
        latency["rcp"] = {**whole, **less, "source": "pipe.rcp_fadd less latency.fadd"}
    intervals = table.groups.setdefault("interval", {})
    for suffix in ("", "_sm"):
        if f"rcp_fadd{suffix}" in intervals:
            intervals[f"rcp{suffix}"] = intervals.pop(f"rcp_fadd{suffix}")
    for group in (latency, intervals):
        for alias, name in ALIASES.items():
            for suffix in ("", "_sm"):
                if name + suffix in group:
                    group[alias + suffix] = group[name + suffix]
    with_read = table.samples.values("pipe.s2r", reads=1)
    without = table.samples.values("pipe.s2r", reads=0)
    found = table.samples.all("pipe.s2r", reads=1)
    if with_read and without and found:
        trips = found[0]["what"]["trips"]
        base = statistics.median(without)
        table.put(
            "latency", "s2r", [(value - base) / trips for value in with_read], "cycles", "pipe.s2r"
        )
    for name in ("latency", "interval"):
        if not table.groups[name]:
            del table.groups[name]


# -------------------------------------------------------------------------------------- memory


def _put_chase(table: _Table) -> None:
    samples = table.samples
    table.put(
        "latency",
        "l1",
        samples.values("chase.l1", kib=16),
        "cycles",
        "chase.l1: 16 KiB, one thread",
    )
    table.put(
        "latency", "l2", samples.values("chase.l2", kib=8192, warmed="by all"), "cycles",
        "chase.l2: 8 MiB that all SMs had read, one thread",
    )  # fmt: skip
    slices = [float(v) for one in samples.all("chase.slices") for v in one["values"]]
    if len(slices) >= 10:
        tenths = statistics.quantiles(slices, n=10)
        note = "chase.slices: one line at a time"
        table.put("latency", "l2_near", [tenths[0]], "cycles", f"{note}, the lowest tenth")
        table.put("latency", "l2_far", [tenths[-1]], "cycles", f"{note}, the highest tenth")
    far = samples.all("chase.hbm")
    by_size = {one["what"]["mib"]: one["values"] for one in far}
    if by_size:
        usual = 1024 if 1024 in by_size else max(by_size)
        table.put(
            "latency", "hbm", by_size[usual], "cycles",
            f"chase.hbm: {usual} MiB of random lines, one thread",
        )  # fmt: skip
        most = max(by_size)
        table.put(
            "latency", "hbm_beyond_tlb", by_size[most], "cycles",
            f"chase.hbm: {most} MiB of random lines, one thread",
        )  # fmt: skip
    table.curve(
        "chase",
        [
            {
                "kib": one["what"].get("kib") or one["what"]["mib"] * 1024,
                "cache": one["what"].get("cache", "ca"),
                "warmed": one["what"].get("warmed", "no" if "mib" in one["what"] else "by itself"),
                **_spread("cycles", one["values"]),
            }
            for name in ("chase.l1", "chase.l2", "chase.hbm")
            for one in samples.all(name)
        ],
    )


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        name: round(statistics.median(values), 3),
        "low": round(min(values), 3),
        "high": round(max(values), 3),
    }


def _put_rows(table: _Table) -> None:
    logic = table.value("latency", "lop3") or 0.0
    rows = []
    for level in ("l1", "l2", "hbm"):
        for one in table.samples.all(f"rows.{level}"):
            what = one["what"]
            width, loads = what["bytes_per_lane"], what["loads"]
            # The chain's own three-input operations are not part of the load.
            words = max(1, width // 4) * loads
            own = logic * (LANE_LOGIC[width] if loads == 1 else max(1, -(-words // 2)))
            values = _minus(one["values"], own)
            rows.append(
                {
                    "level": level,
                    "bytes_per_lane": width,
                    "loads": loads,
                    "distance": what["distance"],
                    "warps": what["warps"],
                    **_spread("cycles", values),
                }
            )
            if loads != 1:
                continue
            where = "" if what["warps"] == "every SM" else "_one"
            far = "_far" if what["distance"] == "far" else ""
            name = f"{level}_row{where}{far}.{32 * width}"
            source = (
                f"rows.{level}: {what['distance']} rows, {what['warps']}"
                f", less {LANE_LOGIC[width]} latency.lop3"
            )
            known = table.groups.get("latency", {})
            if name not in known:
                table.put("latency", name, values, "cycles", source)
            if not where and not far and one.get("slowest"):
                table.put(
                    "latency", f"{level}_row_slowest.{32 * width}", _minus(one["slowest"], own),
                    "cycles", f"{source}; the slowest SM",
                )  # fmt: skip
    table.curve("rows", rows)


def _put_async(table: _Table) -> None:
    samples = table.samples
    for level in ("l2", "hbm"):
        for warps, where in (("every SM", ""), ("one", "_one")):
            base = samples.values("async.copy", level=level, copies=0, warps=warps)
            if base is None:
                continue
            idle = statistics.median(base)
            for width in (4, 8, 16):
                what = {"level": level, "bytes_per_lane": width, "warps": warps}
                one = samples.values("async.copy", copies=1, **what)
                many = samples.values("async.copy", copies=16, **what)
                if one is None or many is None:
                    continue
                table.put(
                    "latency", f"async_{level}{where}.{32 * width}", _minus(one, idle), "cycles",
                    f"async.copy: {warps}, less the wait alone",
                )  # fmt: skip
                if level == "l2" and warps == "one":
                    first = statistics.median(one)
                    table.put(
                        "interval", f"async.{32 * width}", [(v - first) / 15 for v in many],
                        "cycles", "async.copy: sixteen less one, from the L2",
                    )  # fmt: skip
    for one_sample in samples.all("async.bulk"):
        what = one_sample["what"]
        where = "" if what["warps"] == "every SM" else "_one"
        table.put(
            "latency", f"bulk_{what['level']}{where}.{what['bytes']}", one_sample["values"],
            "cycles", f"async.bulk: {what['warps']}, with the loop's few instructions",
        )  # fmt: skip


# ------------------------------------------------------------------ barriers, branches, code


def _put_barriers(table: _Table) -> None:
    samples = table.samples
    for blocks, name in ((1, "barrier"), (2, "barrier_two_blocks")):
        for warps in (1, 2, 4, 8, 16, 32):
            found = _slope(samples, "barrier.meet", test="meet", warps=warps, blocks=blocks)
            table.put("latency", f"{name}.{warps}", found, "cycles", "barrier.meet")
    multiply = table.value("latency", "ffma")
    rows = []
    for warps in (1, 2, 4, 8):
        cost = {
            extra: _slope(samples, "barrier.skew", test="skew", warps=warps, extra=extra)
            for extra in (0, 16, 64)
        }
        idle, most = cost[0], cost[64]
        if not idle or not most or not multiply:
            continue
        for extra, values in cost.items():
            if values:
                rows.append(
                    {
                        "warps": warps,
                        "extra_cycles": round(extra * multiply, 3),
                        **_spread("cycles", values),
                    }
                )
        base = statistics.median(idle)
        table.put(
            "latency", f"barrier_skew_share.{warps}",
            [(value - base) / (64 * multiply) for value in most], "cycles a cycle",
            "barrier.skew: what is added for each cycle that one warp is late",
        )  # fmt: skip
    table.curve("barrier_skew", rows)


def _products_waiting(samples: _Samples, name: str, columns: int) -> list[float] | None:
    """Products that are started and not done, where two warpgroups start as many as they can.

    From the last one's start to the end of the wait pass the products that were before it in the
    queue, its own, and what a product takes beyond its turn on the tensor cores.
    """
    what = {"columns": columns, "groups": 2, "body": 16}
    whole, start = (samples.all(name, test=test, **what) for test in ("product", "start"))
    alone = samples.all(name, test="product", columns=columns, groups=1, body=1)
    each = _slope(samples, name, per=2, test="product", columns=columns, groups=2)
    if not whole or not start or not alone or not each:
        return None
    trips = whole[0]["what"]["trips"]
    single = statistics.median(alone[0]["values"]) / trips
    cycles = statistics.median(each)
    return (
        [
            max(1.0, ((end - begun) / trips - (single - cycles)) / cycles)
            for end, begun in zip(
                sorted(whole[0]["values"]), sorted(start[0]["values"]), strict=False
            )
        ]
        if cycles
        else None
    )


def _put_hopper(table: _Table) -> None:
    """Products of a warpgroup, mbarriers, named barriers and copies by a tensor map."""
    samples = table.samples
    for source in ("shared", "registers"):
        name = f"product.{source}"
        for columns in sorted({one["what"]["columns"] for one in samples.all(name)}):
            short = samples.all(name, test="product", columns=columns, groups=1, body=1)
            for one in short:
                table.put(
                    "latency", f"product_{source}.{columns}",
                    [value / one["what"]["trips"] for value in one["values"]], "cycles",
                    f"{name}: one product, from its start to the end of the wait, and the loop",
                )  # fmt: skip
            for groups, end in ((1, ""), (2, "_sm")):
                what = {"columns": columns, "groups": groups}
                found = _slope(samples, name, per=groups, test="product", **what)
                table.put(
                    "interval", f"product_{source}{end}.{columns}", found, "cycles",
                    f"{name}: one more product of {groups} warpgroup{'s' * (groups > 1)}",
                )  # fmt: skip
                table.put(
                    "interval", f"start_{source}{end}.{columns}",
                    _slope(samples, name, test="start", **what), "cycles",
                    f"{name}: until one more product of {groups} warpgroup{'s' * (groups > 1)} "
                    "is started",
                )  # fmt: skip
            table.put(
                "interval", f"product_queue_{source}.{columns}",
                _products_waiting(samples, name, columns), "products",
                f"{name}: 16 of each of two warpgroups, those not done when the last is started",
            )  # fmt: skip
    for kind, handed, of in (
        ("own", 1, "an arrival and the wait for its phase"),
        ("ended", 1, "a wait for a phase that has ended"),
        ("turn", 2, "from a wait's end to that of the other warp, which was waited for"),
    ):
        name = "phase.turns" if kind == "turn" else f"phase.{kind}"
        found = _slope(samples, name, per=handed)
        table.put("latency", f"phase_{kind}", found, "cycles", f"{name}: {of}")
    table.put(
        "latency", "named_turn", _slope(samples, "barrier.turns", per=2), "cycles",
        "barrier.turns: from a wait's end to that of the other warpgroup",
    )  # fmt: skip
    _put_stores(table)
    rows = []
    for one in samples.all("async.boxes"):
        what = one["what"]
        rows.append(
            {
                **{key: what[key] for key in ("level", "bytes", "depth", "warps")},
                **_spread("cycles", one["values"]),
            }
        )
        if what["depth"] == 1:
            where = "" if what["warps"] == "every SM" else "_one"
            table.put(
                "latency", f"box_{what['level']}{where}.{what['bytes']}", one["values"], "cycles",
                f"async.boxes: {what['warps']}, from its start to the end of the wait",
            )  # fmt: skip
    table.curve("boxes", rows)


def _put_stores(table: _Table) -> None:
    """Cycles of an SM for each store of a warp by the bytes side by side, and what is left over."""
    samples = table.samples
    for one in samples.all("store.pieces"):
        what = one["what"]
        each = _slope(samples, "store.pieces", bytes=what["bytes"])
        if each is None or what["body"] > 32:
            continue
        name = f"{what['bytes']}"
        table.put("interval", f"store_sm.{name}", each, "cycles", "store.pieces: all SMs store")
        stored = what["body"] * what["trips"] * statistics.median(each)
        table.put(
            "latency", f"store_drain.{name}", _minus(one["values"], stored), "cycles",
            "store.pieces: from the last store until all can be seen",
        )  # fmt: skip


def _put_branches(table: _Table) -> None:
    samples = table.samples
    for warps in (1, 4, 16):
        found = {
            body: samples.values("branch.loop", body=body, warps=warps)
            for body in (4, 8, 16, 64, 128)
        }
        trips = 256
        if not all(found.values()):
            continue
        middle = {body: statistics.median(values or [0]) for body, values in found.items()}
        step = (middle[128] - middle[64]) / 64
        if warps != 1:
            continue
        table.put(
            "latency", "loop_trip", [(value - 16 * step) / trips for value in found[16] or []],
            "cycles", "branch.loop: a trip of 16 multiplications less those",
        )  # fmt: skip
        # What a trip takes beyond the stall counts of its instructions is the taken branch's.
        beyond = [
            value / trips - one["what"]["stall_cycles"]
            for one in samples.all("branch.loop")
            if one["what"]["warps"] == 1 and one["what"].get("stall_cycles")
            for value in one["values"]
        ]
        if beyond:
            table.put(
                "latency", "branch", beyond, "cycles",
                "branch.loop: cycles of a trip less the stall counts in its machine code",
            )  # fmt: skip
    for warps, name in ((1, "predicated_off"), (16, "predicated_off_16_warps")):
        table.put(
            "interval", name, _slope(samples, "branch.skip", test="skip", warps=warps), "cycles",
            "branch.skip",
        )  # fmt: skip


def _put_code(table: _Table) -> None:
    rows = []
    for first in table.samples.all("code.size", **{"pass": 0}):
        what = first["what"]
        later = [
            value
            for one in table.samples.all("code.size", **{**what, "pass": 4})
            for value in one["values"]
        ]
        if not later:
            continue
        rows.append(
            {
                "kib": what["kib"],
                "warps": what["warps"],
                "sms": what["sms"],
                "instructions": 64 * what["kib"],
                "cold_cycles": round(statistics.median(first["values"]), 1),
                "warm_cycles": round(statistics.median(later), 1),
            }
        )
    table.curve("code", rows)


# ------------------------------------------------------------------------- bandwidth, launches


def _rates(one: Mapping[str, Any]) -> list[float]:
    return [one["what"]["bytes"] / value / 1e3 for value in one["values"]]


def _bandwidth_row(one: Mapping[str, Any]) -> dict[str, Any]:
    what = one["what"]
    in_flight = 32 * what["warps"] * what["loads"] * what["bytes_per_lane"]
    row = {
        "warps": what["warps"],
        "loads": what["loads"],
        "bytes_per_lane": what["bytes_per_lane"],
        "in_flight_bytes_per_sm": in_flight,
        **_spread("gb_per_s", _rates(one)),
    }
    return {"mib": what["mib"], **row} if what.get("level") == "l2" and "mib" in what else row


def _put_bandwidth(table: _Table) -> None:
    samples = table.samples
    for level in ("hbm", "l2"):
        found = samples.all(f"bandwidth.{level}")
        table.curve(level, [_bandwidth_row(one) for one in found])
        if found:
            best = max(found, key=lambda one: statistics.median(_rates(one)))
            table.put(
                "memory", f"{level}_gb_per_s", _rates(best), "GB/s",
                f"bandwidth.{level}: the fastest shape",
            )  # fmt: skip
    for level in ("hbm", "l2"):
        found = samples.all("bandwidth.one_sm", level=level)
        rows = []
        for one in found:
            row = _bandwidth_row({**one, "what": {**one["what"], "level": "one"}})
            rows.append({"level": level, **row})
        if rows:
            table.curve(f"one_sm_{level}", rows)
            best = max(found, key=lambda one: statistics.median(_rates(one)))
            table.put(
                "memory", f"one_sm_{level}_gb_per_s", _rates(best), "GB/s",
                "bandwidth.one_sm: the fastest shape",
            )  # fmt: skip
    _put_footprint(table)


def _put_footprint(table: _Table) -> None:
    """The rate by footprint, and the share of misses that would explain it."""
    rows = [(one["what"]["mib"], _rates(one)) for one in table.samples.all("bandwidth.footprint")]
    if not rows:
        return
    hit = max(statistics.median(rates) for _, rates in rows)
    miss = table.value("memory", "hbm_gb_per_s") or min(statistics.median(r) for _, r in rows)
    curve = []
    fastest = max(range(len(rows)), key=lambda place: statistics.median(rows[place][1]))
    for place, (mib, rates) in enumerate(rows):
        rate = statistics.median(rates)
        if place <= fastest:  # less data are no slower to hit: these runs are short
            curve.append({"mib": mib, **_spread("gb_per_s", rates), "missing": 0.0})
            continue
        # Time a byte is (1 - m) / hit + m / miss.
        share = (1 / rate - 1 / hit) / (1 / miss - 1 / hit) if hit > miss else 0.0
        curve.append(
            {
                "mib": mib,
                **_spread("gb_per_s", rates),
                "missing": round(min(1.0, max(0.0, share)), 4),
            }
        )
    table.curve("l2_footprint", curve)


def _put_launches(table: _Table) -> None:
    rows = []
    loading = {one["what"]["grid"] for one in table.samples.all("launch.kinds", kind="one_load")}
    several = min(loading - {1}, default=None)  # blocks; the least that is more than one
    for name in ("launch.shape", "launch.kinds"):
        pairs: dict[str, list[dict[str, Any]]] = {}
        for one in table.samples.all(name):
            key = json.dumps({k: v for k, v in one["what"].items() if k != "nodes"})
            pairs.setdefault(key, []).append(one)
        for both in pairs.values():
            if len(both) != 2:
                continue
            short, long = sorted(both, key=lambda one: one["what"]["nodes"])
            nodes = long["what"]["nodes"] - short["what"]["nodes"]
            # A step of two kernels that take turns is two launches.
            kernels = 2 if long["what"]["kind"] == "two_in_turn" else 1
            base = statistics.median(short["values"])
            us = [(value - base) / nodes / kernels for value in long["values"]]
            what = long["what"]
            rows.append(
                {
                    "kind": what["kind"],
                    "grid": what["grid"],
                    "threads": what["threads"],
                    **_spread("us", us),
                }
            )
            if what["kind"] == "empty" and what["grid"] == 1 and what["threads"] == 32:
                table.put("launch", "empty", us, "us", "launch.shape: one warp, a node of a graph")
            if what["kind"] == "one_load" and what["grid"] == several and what["threads"] == 128:
                table.put(
                    "launch", "one_load", us, "us", f"launch.kinds: one load, {several} blocks"
                )
    table.curve("launch", rows)
    for threads in (32, 128, 256, 1024):
        by_grid = {
            row["grid"]: row["us"]
            for row in rows
            if row["kind"] == "empty" and row["threads"] == threads
        }
        if len(by_grid) > 1:
            fewer, most = sorted(by_grid)[-2:]
            rate = (by_grid[most] - by_grid[fewer]) / (most - fewer) * 1e3
            table.put(
                "launch", f"block.{threads}", [rate], "ns",
                f"launch.shape: an empty block more, {fewer} to {most} blocks",
            )  # fmt: skip


# ---------------------------------------------------------------------------------- the whole


def _rounded(value: Any) -> Any:
    """A fraction with five digits; what is very large or small, with one after the point."""
    if not isinstance(value, float):
        return value
    text = f"{value:.5g}"
    return round(value, 1) if "e" in text else float(text)


def _whole(table: _Table) -> dict[str, Any]:
    provenance = table.record["provenance"]
    about = {
        "gpu": provenance["gpu_slug"],
        "title": provenance["gpu"],
        "arch": provenance["arch"],
        "num_sms": provenance.get("num_sms") or 0,
        "l2_bytes": provenance.get("l2_bytes") or 0,
        "calibrated": True,
        "date": str(provenance["date"])[:10],
        "driver": provenance.get("driver") or "unknown",
        "nvrtc": provenance.get("nvrtc") or "unknown",
        "source": "microbenchmarks of this project, kernels/microbench",
    }
    found: dict[str, Any] = {"about": about}
    for group, entries in table.groups.items():
        kept = found.setdefault(group, {})
        # Single numbers first, then those of which there are several.
        for name, entry in sorted(entries.items(), key=lambda one: "." in one[0]):
            head, _, tail = name.partition(".")
            (kept.setdefault(head, {}) if tail else kept)[tail or head] = {
                key: _rounded(value) for key, value in entry.items()
            }
    found["curve"] = {
        name: [{key: _rounded(value) for key, value in row.items()} for row in rows]
        for name, rows in table.curves.items()
    }
    return found
