"""From the raw samples of the microbenchmarks to the table that the forecast reads."""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labtools.problem import LabError

RECORD_NAME = "microbench.json.gz"
"""A GPU's record of microbenchmarks, in its folder of records."""
SCHEMA = 1
LANE_LOGIC = {2: 1, 4: 1, 8: 1, 16: 2}
"""Three-input operations between a loaded row and the next address, by bytes a lane."""
ALIASES = {"fp32": "ffma", "fp16": "hfma2", "alu": "lop3", "xu": "ex2", "mma_fp16": "hmma"}
"""Names of units, and the instruction that stands for each."""

Entry = dict[str, Any]
"""One number: value, low and high, unit, source."""
Values = Sequence[float] | None
TableRows = list[dict[str, Any]]


def _median(values: Sequence[float] | None) -> float:
    return statistics.median(values or [0])


def _minus(values: Sequence[float], other: float) -> list[float]:
    return [value - other for value in values]


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        name: round(statistics.median(values), 3),
        "low": round(min(values), 3),
        "high": round(max(values), 3),
    }


def _where(warps: str) -> str:
    """What a name ends in where not every SM was busy."""
    return "" if warps == "every SM" else "_one"


class _Table:
    """The samples of a record, and the numbers made of them; what it lacks is left out."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.samples: dict[str, list[dict[str, Any]]] = {
            name: one["samples"]
            for name, one in record["benchmarks"].items()
            if isinstance(one, dict) and one.get("samples")
        }
        self.groups: dict[str, dict[str, Entry]] = {}
        self.curves: dict[str, list[dict[str, Any]]] = {}

    def all(self, benchmark: str, **what: Any) -> list[dict[str, Any]]:
        """Every sample with these settings."""
        return [
            one
            for one in self.samples.get(benchmark, [])
            if all(one["what"].get(key) == value for key, value in what.items())
        ]

    def values(self, benchmark: str, **what: Any) -> list[float] | None:
        """The values of the one sample with these settings; None without it."""
        found = self.all(benchmark, **what)
        return [float(value) for value in found[0]["values"]] if found else None

    def slope(self, benchmark: str, per: float = 1.0, **what: Any) -> list[float] | None:
        """What one more step of the body costs, a repeat: from the two lengths."""
        found = sorted(self.all(benchmark, **what), key=lambda one: one["what"]["body"])
        if len(found) < 2:
            return None
        short, long = found[0], found[-1]
        steps = (long["what"]["body"] - short["what"]["body"]) * long["what"]["trips"] * per
        pairs = zip(sorted(short["values"]), sorted(long["values"]), strict=False)
        return [(b - a) / steps for a, b in pairs]

    def put(self, name: str, values: Values, source: str, unit: str = "cycles") -> None:
        """Add a number, for example ``latency.l2``, unless there are no values."""
        if values:
            group, _, rest = name.partition(".")
            middle, low, high = map(float, (statistics.median(values), min(values), max(values)))
            entry = {"value": middle, "low": low, "high": high, "unit": unit, "source": source}
            self.groups.setdefault(group, {})[rest] = entry

    def value(self, name: str) -> float | None:
        """A number's value, or None."""
        group, _, rest = name.partition(".")
        entry = self.groups.get(group, {}).get(rest)
        return entry["value"] if entry else None

    def curve(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add a curve, unless it is empty."""
        if rows:
            self.curves[name] = list(rows)


def read_record(path: Path | str) -> dict[str, Any]:
    """Read a record of microbenchmarks."""
    try:
        record = json.loads(gzip.decompress(Path(path).read_bytes()))
    except (OSError, ValueError, EOFError) as error:
        raise LabError(
            f"{Path(path).name} could not be read as a record of microbenchmarks.",
            str(error),
            "labtools microbench writes one",
        ) from error
    if not isinstance(record, dict) or record.get("kind") != "microbench":
        what = f"{Path(path).name} is no record of microbenchmarks."
        raise LabError(what, "it does not say so", "labtools microbench writes one")
    return record


def table_from_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The table of what ``run_microbench`` kept, as one of ``latencies/`` reads: entries in groups,
    those of one name by count or bytes a level deeper, and curves; cycles of the SM's clock."""
    if record.get("schema") != SCHEMA:
        raise LabError(
            "This record of microbenchmarks has another layout.",
            f"it says {record.get('schema')}, this version reads {SCHEMA}",
            "labtools microbench writes a new one",
        )
    table = _Table(record)
    if not table.samples:
        raise LabError(
            "There is nothing to make a table of.",
            "no microbenchmark has samples",
            "the reasons are in the report",
        )
    table.put("clock.sm", table.values("clock", test="clock"), "clock", "MHz")
    clock = table.values("product.clock", test="clock")
    table.put("clock.products", clock, "product.clock", "MHz")
    _put_tensor_clock(table)
    for put in (
        *(_put_pipes, _put_chase, _put_rows, _put_async, _put_barriers, _put_products, _put_phases),
        *(_put_stores, _put_boxes, _put_branches, _put_code, _put_bandwidth, _put_footprint),
        _put_launches,
    ):
        put(table)
    return _whole(table, record["provenance"])


def _put_tensor_clock(table: _Table) -> None:
    """The clock beside tensor cores at work. An L2 hit at that clock and at the usual one parts its
    cycles, which the SM's clock times, from its nanoseconds."""
    source, usual = "tensor.clock", table.value("clock.sm")
    table.put(
        "clock.tensor",
        table.values(source, test="clock", beside="products"),
        f"{source}: a warp of each SM multiplies matrices",
        "MHz",
    )
    slower, sums = (
        table.values(source, test="hit", beside=beside) for beside in ("products", "sums")
    )
    mhz = table.value("clock.tensor")
    if mhz and usual and mhz < usual and slower and sums:
        ratio, hit = mhz / usual, statistics.median(sums)
        own = [max(0.0, (cycles - ratio * hit) / (1 - ratio)) for cycles in slower]
        table.put("latency.l2_sm", own, f"{source}: of an L2 hit, those of the SM's clock")


# -------------------------------------------------------------------------------- instructions

_LATENCY_NAMES = {f"lds{bits}": f"shared.{bits}" for bits in (32, 64, 128)}
_LATENCY_NAMES |= {f"ldg{bits}": f"l1_row.{4 * bits}" for bits in (32, 64, 128)}


def _put_pipes(table: _Table) -> None:
    curve = []
    for source in table.samples:
        group, _, name = source.partition(".")
        if group != "pipe":
            continue
        latency = table.slope(source, test="latency")
        table.put(f"latency.{_LATENCY_NAMES.get(name, name)}", latency, source)
        for parts, suffix in ((1, ""), (4, "_sm")):
            best: list[float] | None = None
            for warps in (1, 2, 4, 8):
                shape = {"warps": warps, "sub_partitions": parts}
                # An SM with all parts busy issues four times as many.
                found = table.slope(source, warps * parts, test="interval", **shape)
                if not found:
                    continue
                cycles = statistics.median(found)
                curve.append({"name": name, **shape, "cycles": round(cycles, 4)})
                if best is None or cycles < statistics.median(best):
                    best = found
            table.put(f"interval.{name}{suffix}", best, source)
    table.curve("interval", curve)
    _put_derived(table)


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
    with_read, without = table.all("pipe.s2r", reads=1), table.values("pipe.s2r", reads=0)
    if with_read and without:
        trips, base = with_read[0]["what"]["trips"], statistics.median(without)
        each = [(value - base) / trips for value in with_read[0]["values"]]
        table.put("latency.s2r", each, "pipe.s2r")
    for name in ("latency", "interval"):
        if not table.groups[name]:
            del table.groups[name]


# -------------------------------------------------------------------------------------- memory


def _put_chase(table: _Table) -> None:
    table.put("latency.l1", table.values("chase.l1", kib=16), "chase.l1: 16 KiB, one thread")
    found, note = table.values("chase.l2", kib=8192, warmed="by all"), "8 MiB that all SMs had read"
    table.put("latency.l2", found, f"chase.l2: {note}, one thread")
    slices = [float(v) for one in table.all("chase.slices") for v in one["values"]]
    if len(slices) >= 10:
        tenths = statistics.quantiles(slices, n=10)
        note = "chase.slices: one line at a time"
        table.put("latency.l2_near", [tenths[0]], f"{note}, the lowest tenth")
        table.put("latency.l2_far", [tenths[-1]], f"{note}, the highest tenth")
    by_size = {one["what"]["mib"]: one["values"] for one in table.all("chase.hbm")}
    if by_size:
        most = max(by_size)
        usual = 1024 if 1024 in by_size else most
        for name, mib in (("hbm", usual), ("hbm_beyond_tlb", most)):
            note = f"chase.hbm: {mib} MiB of random lines, one thread"
            table.put(f"latency.{name}", by_size[mib], note)
    rows = []
    for one in (one for name in ("l1", "l2", "hbm") for one in table.all(f"chase.{name}")):
        what = one["what"]
        shape = {"kib": what.get("kib") or what["mib"] * 1024, "cache": what.get("cache", "ca")}
        warmed = what.get("warmed", "no" if "mib" in what else "by itself")
        rows.append({**shape, "warmed": warmed, **_spread("cycles", one["values"])})
    table.curve("chase", rows)


def _put_rows(table: _Table) -> None:
    logic = table.value("latency.lop3") or 0.0
    rows = []
    for level in ("l1", "l2", "hbm"):
        for one in table.all(f"rows.{level}"):
            what = one["what"]
            width, loads, distance = what["bytes_per_lane"], what["loads"], what["distance"]
            # The chain's own three-input operations are not part of the load.
            words = max(1, width // 4) * loads
            own = logic * (LANE_LOGIC[width] if loads == 1 else max(1, -(-words // 2)))
            values = _minus(one["values"], own)
            shape = {name: what[name] for name in ("bytes_per_lane", "loads", "distance", "warps")}
            rows.append({"level": level, **shape, **_spread("cycles", values)})
            if loads != 1:
                continue
            where, far = _where(what["warps"]), "_far" if distance == "far" else ""
            name = f"latency.{level}_row{where}{far}.{32 * width}"
            source = f"rows.{level}: {distance} rows, {what['warps']}"
            source += f", less {LANE_LOGIC[width]} latency.lop3"
            if table.value(name) is None:
                table.put(name, values, source)
            if not where and not far and one.get("slowest"):
                slowest = _minus(one["slowest"], own)
                name = f"latency.{level}_row_slowest.{32 * width}"
                table.put(name, slowest, f"{source}; the slowest SM")
    table.curve("rows", rows)


def _put_async(table: _Table) -> None:
    for level in ("l2", "hbm"):
        for warps in ("every SM", "one"):
            base = table.values("async.copy", level=level, copies=0, warps=warps)
            for width in (4, 8, 16) if base else ():
                what = {"level": level, "bytes_per_lane": width, "warps": warps}
                one = table.values("async.copy", copies=1, **what)
                many = table.values("async.copy", copies=16, **what)
                if one is None or many is None:
                    continue
                name = f"latency.async_{level}{_where(warps)}.{32 * width}"
                less = _minus(one, _median(base))
                table.put(name, less, f"async.copy: {warps}, less the wait alone")
                if level == "l2" and warps == "one":
                    each = [(value - _median(one)) / 15 for value in many]
                    source = "async.copy: sixteen less one, from the L2"
                    table.put(f"interval.async.{32 * width}", each, source)
    apart = []
    for sample in table.all("async.apart"):
        shape = {key: sample["what"][key] for key in ("level", "bytes_per_lane", "rows")}
        apart.append({**shape, **_spread("cycles", sample["values"])})
    table.curve("apart", apart)
    for sample in table.all("async.bulk"):
        what = sample["what"]
        name = f"latency.bulk_{what['level']}{_where(what['warps'])}.{what['bytes']}"
        source = f"async.bulk: {what['warps']}, with the loop's few instructions"
        table.put(name, sample["values"], source)


def _put_stores(table: _Table) -> None:
    """Cycles of an SM for each store of a warp by the bytes side by side, and what is left over."""
    for one in table.all("store.pieces"):
        what = one["what"]
        each = table.slope("store.pieces", bytes=what["bytes"])
        if each is None or what["body"] > 32:
            continue
        table.put(f"interval.store_sm.{what['bytes']}", each, "store.pieces: all SMs store")
        stored = what["body"] * what["trips"] * statistics.median(each)
        left = _minus(one["values"], stored)
        source = "store.pieces: from the last store until all can be seen"
        table.put(f"latency.store_drain.{what['bytes']}", left, source)


def _put_boxes(table: _Table) -> None:
    rows = []
    for one in table.all("async.boxes"):
        what = one["what"]
        shape = {key: what[key] for key in ("level", "bytes", "depth", "warps")}
        rows.append({**shape, **_spread("cycles", one["values"])})
        if what["depth"] == 1:
            name = f"latency.box_{what['level']}{_where(what['warps'])}.{what['bytes']}"
            source = f"async.boxes: {what['warps']}, from its start to the end of the wait"
            table.put(name, one["values"], source)
    table.curve("boxes", rows)


# ------------------------------------------------- barriers, products, branches, code


def _put_barriers(table: _Table) -> None:
    for blocks, name in ((1, "barrier"), (2, "barrier_two_blocks")):
        for warps in (1, 2, 4, 8, 16, 32):
            found = table.slope("barrier.meet", test="meet", warps=warps, blocks=blocks)
            table.put(f"latency.{name}.{warps}", found, "barrier.meet")
    multiply = table.value("latency.ffma")
    rows = []
    for warps in (1, 2, 4, 8):
        cost = {
            extra: table.slope("barrier.skew", test="skew", warps=warps, extra=extra)
            for extra in (0, 16, 64)
        }
        idle, most = cost[0], cost[64]
        if not idle or not most or not multiply:
            continue
        for extra, values in cost.items():
            if values:
                late = {"warps": warps, "extra_cycles": round(extra * multiply, 3)}
                rows.append({**late, **_spread("cycles", values)})
        share = [(value - _median(idle)) / (64 * multiply) for value in most]
        source = "barrier.skew: what is added for each cycle that one warp is late"
        table.put(f"latency.barrier_skew_share.{warps}", share, source, "cycles a cycle")
    table.curve("barrier_skew", rows)


def _products_waiting(table: _Table, name: str, columns: int) -> list[float] | None:
    """Products that are started and not done, where two warpgroups start as many as they can: from
    the last one's start to the end of the wait pass those before it in the queue, its own, and what
    a product takes beyond its turn on the tensor cores."""
    what = {"columns": columns, "groups": 2, "body": 16}
    whole, start = (table.all(name, test=test, **what) for test in ("product", "start"))
    alone = table.values(name, test="product", columns=columns, groups=1, body=1)
    cycles = _median(table.slope(name, per=2, test="product", columns=columns, groups=2))
    if not whole or not start or not alone or not cycles:
        return None
    trips = whole[0]["what"]["trips"]
    beyond = _median(alone) / trips - cycles
    pairs = zip(sorted(whole[0]["values"]), sorted(start[0]["values"]), strict=False)
    return [max(1.0, ((end - begun) / trips - beyond) / cycles) for end, begun in pairs]


def _put_products(table: _Table) -> None:
    """Products of a warpgroup."""
    for of in ("shared", "registers"):
        name = f"product.{of}"
        for columns in sorted({one["what"]["columns"] for one in table.all(name)}):
            for one in table.all(name, test="product", columns=columns, groups=1, body=1):
                each = [value / one["what"]["trips"] for value in one["values"]]
                source = f"{name}: one product, from its start to the end of the wait, and the loop"
                table.put(f"latency.product_{of}.{columns}", each, source)
            for groups, end in ((1, ""), (2, "_sm")):
                what = {"columns": columns, "groups": groups}
                more = f"one more product of {groups} warpgroup{'s' * (groups > 1)}"
                found = table.slope(name, per=groups, test="product", **what)
                table.put(f"interval.product_{of}{end}.{columns}", found, f"{name}: {more}")
                found = table.slope(name, test="start", **what)
                source = f"{name}: until {more} is started"
                table.put(f"interval.start_{of}{end}.{columns}", found, source)
            queue = _products_waiting(table, name, columns)
            source = "16 of each of two warpgroups, those not done when the last is started"
            name_of = f"interval.product_queue_{of}.{columns}"
            table.put(name_of, queue, f"{name}: {source}", "products")


def _put_phases(table: _Table) -> None:
    """Waits for mbarriers and named barriers."""
    turn = "from a wait's end to that of the other warp, which was waited for"
    for name, benchmark, handed, of in (
        ("phase_own", "phase.own", 1, "an arrival and the wait for its phase"),
        ("phase_ended", "phase.ended", 1, "a wait for a phase that has ended"),
        ("phase_turn", "phase.turns", 2, turn),
        ("named_turn", "barrier.turns", 2, "from a wait's end to that of the other warpgroup"),
    ):
        found = table.slope(benchmark, per=handed)
        table.put(f"latency.{name}", found, f"{benchmark}: {of}")


def _put_branches(table: _Table) -> None:
    trips = 256
    found = {body: table.values("branch.loop", body=body, warps=1) for body in (4, 8, 16, 64, 128)}
    if all(found.values()):
        step = (_median(found[128]) - _median(found[64])) / 64
        each = [(value - 16 * step) / trips for value in found[16] or []]
        source = "branch.loop: a trip of 16 multiplications less those"
        table.put("latency.loop_trip", each, source)
        # What a trip takes beyond the stall counts of its instructions is the taken branch's.
        beyond = [
            value / trips - one["what"]["stall_cycles"]
            for one in table.all("branch.loop", warps=1)
            if one["what"].get("stall_cycles")
            for value in one["values"]
        ]
        source = "branch.loop: cycles of a trip less the stall counts in its machine code"
        table.put("latency.branch", beyond, source)
    for warps, name in ((1, "predicated_off"), (16, "predicated_off_16_warps")):
        off = table.slope("branch.skip", test="skip", warps=warps)
        table.put(f"interval.{name}", off, "branch.skip")


def _put_code(table: _Table) -> None:
    rows = []
    for first in table.all("code.size", **{"pass": 0}):
        what = first["what"]
        passes = table.all("code.size", **{**what, "pass": 4})
        later = [value for one in passes for value in one["values"]]
        if later:
            row = {name: what[name] for name in ("kib", "warps", "sms")}
            row["instructions"] = 64 * what["kib"]
            row["cold_cycles"] = round(statistics.median(first["values"]), 1)
            row["warm_cycles"] = round(statistics.median(later), 1)
            rows.append(row)
    table.curve("code", rows)


# ------------------------------------------------------------------------- bandwidth, launches


def _rates(one: Mapping[str, Any]) -> list[float]:
    return [one["what"]["bytes"] / value / 1e3 for value in one["values"]]


def _bandwidth_row(one: Mapping[str, Any]) -> dict[str, Any]:
    what = one["what"]
    return {
        **{name: what[name] for name in ("warps", "loads", "bytes_per_lane")},
        "in_flight_bytes_per_sm": 32 * what["warps"] * what["loads"] * what["bytes_per_lane"],
        **_spread("gb_per_s", _rates(one)),
    }


def _put_bandwidth(table: _Table) -> None:
    for level in ("hbm", "l2"):
        found = table.all(f"bandwidth.{level}")
        rows = []
        for one in found:
            what = one["what"]
            sized = what.get("level") == "l2" and "mib" in what
            rows.append({**({"mib": what["mib"]} if sized else {}), **_bandwidth_row(one)})
        _put_fastest(table, level, rows, f"bandwidth.{level}", found)
    for level in ("hbm", "l2"):
        found = table.all("bandwidth.one_sm", level=level)
        rows = [{"level": level, **_bandwidth_row(one)} for one in found]
        _put_fastest(table, f"one_sm_{level}", rows, "bandwidth.one_sm", found)


def _put_fastest(table: _Table, name: str, rows: TableRows, source: str, found: TableRows) -> None:
    table.curve(name, rows)
    best = max(map(_rates, found), key=statistics.median, default=None)
    table.put(f"memory.{name}_gb_per_s", best, f"{source}: the fastest shape", "GB/s")


def _put_footprint(table: _Table) -> None:
    """The rate by footprint, and the share of misses that would explain it."""
    rows = [(one["what"]["mib"], _rates(one)) for one in table.all("bandwidth.footprint")]
    if not rows:
        return
    medians = [statistics.median(rates) for _, rates in rows]
    hit = max(medians)
    miss = table.value("memory.hbm_gb_per_s") or min(medians)
    curve = []
    for place, (mib, rates) in enumerate(rows):
        missing = 0.0
        # Up to the fastest less data are no slower to hit: these runs are short.
        if place > medians.index(hit) and hit > miss:
            # Time a byte is (1 - m) / hit + m / miss.
            share = (1 / medians[place] - 1 / hit) / (1 / miss - 1 / hit)
            missing = round(min(1.0, max(0.0, share)), 4)
        curve.append({"mib": mib, **_spread("gb_per_s", rates), "missing": missing})
    table.curve("l2_footprint", curve)


def _put_launches(table: _Table) -> None:
    rows = []
    loading = {one["what"]["grid"] for one in table.all("launch.kinds", kind="one_load")}
    several = min(loading - {1}, default=None)  # blocks; the least that is more than one
    # by launch what is put of it, and its source
    told = {
        ("empty", 1, 32): ("empty", "launch.shape: one warp, a node of a graph"),
        ("one_load", several, 128): ("one_load", f"launch.kinds: one load, {several} blocks"),
    }
    for benchmark in ("launch.shape", "launch.kinds"):
        pairs: dict[str, list[dict[str, Any]]] = {}
        for one in table.all(benchmark):
            key = json.dumps({k: v for k, v in one["what"].items() if k != "nodes"})
            pairs.setdefault(key, []).append(one)
        for both in pairs.values():
            if len(both) != 2:
                continue
            short, long = sorted(both, key=lambda one: one["what"]["nodes"])
            what = long["what"]
            nodes = what["nodes"] - short["what"]["nodes"]
            # A step of two kernels that take turns is two launches.
            kernels = 2 if what["kind"] == "two_in_turn" else 1
            base = statistics.median(short["values"])
            us = [(value - base) / nodes / kernels for value in long["values"]]
            shape = {name: what[name] for name in ("kind", "grid", "threads")}
            rows.append({**shape, **_spread("us", us)})
            if tuple(shape.values()) in told:
                name, source = told[what["kind"], what["grid"], what["threads"]]
                table.put(f"launch.{name}", us, source, "us")
    table.curve("launch", rows)
    for threads in (32, 128, 256, 1024):
        empty = [one for one in rows if (one["kind"], one["threads"]) == ("empty", threads)]
        by_grid = {one["grid"]: one["us"] for one in empty}
        if len(by_grid) > 1:
            fewer, most = sorted(by_grid)[-2:]
            rate = (by_grid[most] - by_grid[fewer]) / (most - fewer) * 1e3
            source = f"launch.shape: an empty block more, {fewer} to {most} blocks"
            table.put(f"launch.block.{threads}", [rate], source, "ns")


# ---------------------------------------------------------------------------------- the whole


def _rounded(value: Any) -> Any:
    """A fraction with five digits; what is very large or small, with one after the point."""
    if not isinstance(value, float):
        return value
    text = f"{value:.5g}"
    return round(value, 1) if "e" in text else float(text)


def _whole(table: _Table, provenance: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        **{"gpu": provenance["gpu_slug"], "title": provenance["gpu"], "arch": provenance["arch"]},
        **{name: provenance.get(name) or 0 for name in ("num_sms", "l2_bytes")},
        **{"calibrated": True, "date": str(provenance["date"])[:10]},
        **{name: provenance.get(name) or "unknown" for name in ("driver", "nvrtc")},
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
