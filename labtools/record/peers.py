"""Who is fast: a candidate against its fastest fair peer and against its floor.

A fair peer is a baseline that is not handicapped, reads the cache cold or warm as the candidate
does, and keeps K and V in as many bits. Everything compared was timed in the same processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from labtools.problem import Baseline, LabError, list_baselines

from .schema import Record
from .statistics import Ratio, best_reader, paired_ratio

LEAST_PROCESSES = 5
"""A verdict needs at least this many; fewer give a ratio and no verdict."""


def fair_peers(
    records: Iterable[Record],
    kv_bits: int = 16,
    baselines: Mapping[str, Baseline] | None = None,
) -> list[Record]:
    """The fair baselines among some records that keep K and V in ``kv_bits``, fastest first.

    Args:
        records: of one workload and one campaign.
        kv_bits: 16, or 8 for the libraries with an 8-bit cache.
        baselines: by id; None takes the shipped ones.
    """
    known = baselines if baselines is not None else {one.id: one for one in list_baselines()}
    fair = [
        record
        for record in records
        if record.kind == "baseline"
        and record.name in known
        and known[record.name].fair
        and known[record.name].kv_bits == kv_bits
    ]
    return sorted(fair, key=lambda record: record.median_us)


@dataclass(frozen=True)
class Standing:
    """Where a candidate stands among what was timed with it.

    Args:
        record: the candidate's.
        against: time of the fastest fair 16-bit peer over its own, which is above 1 where it is
            faster; None where there is no such peer, or it is the peer itself.
        against_low_bit: the same against the fastest fair peer that keeps as many bits, of a
            candidate that keeps fewer than 16.
        to_floor: its time over its floor: the bytes that it must read, at the best rate that
            anything read at in the same processes. None of a warm workload.
        floor_us: that floor, microseconds.
        reader: what read fastest.
    """

    record: Record
    against: Ratio | None
    against_low_bit: Ratio | None
    to_floor: Ratio | None
    floor_us: float | None
    reader: str | None


def say_verdict(ratio: Ratio | None) -> str:
    """``faster``, ``slower`` or ``equal``, of a ratio peer / candidate with enough processes."""
    if ratio is None:
        return ""
    if ratio.processes < LEAST_PROCESSES:
        return "too few processes for a verdict"
    if ratio.equal:
        return "equal"
    return "faster" if ratio.ratio > 1 else "slower"


def standings(
    records: Sequence[Record], baselines: Mapping[str, Baseline] | None = None
) -> list[Standing]:
    """Every rung and baseline of one measurement, fastest first; the ceiling is left out.

    Args:
        records: of one workload and one campaign.
        baselines: by id; None takes the shipped ones.

    Raises:
        LabError: they are of several workloads or campaigns.
    """
    if len({(one.campaign, one.problem.key()) for one in records}) > 1:
        raise LabError(
            "These records were not measured together.",
            "they are of several workloads or campaigns",
            "compare those of one",
        )
    known = baselines if baselines is not None else {one.id: one for one in list_baselines()}
    reader = best_reader(records)
    found = []
    for record in sorted(records, key=lambda one: one.median_us):
        if record.kind == "ceiling":
            continue
        low_bit = None
        if record.kv_bits < 16:
            low_bit = _against(record, fair_peers(records, record.kv_bits, known))
        found.append(
            Standing(
                record,
                _against(record, fair_peers(records, 16, known)),
                low_bit,
                _to_floor(record, reader),
                None if reader is None else record.read_bytes / reader.gb_per_s / 1e3,
                None if reader is None else reader.candidate,
            )
        )
    return found


def _against(record: Record, peers: Sequence[Record]) -> Ratio | None:
    if not peers or peers[0] is record:
        return None
    return paired_ratio(peers[0], record)


def _to_floor(record: Record, reader: Record | None) -> Ratio | None:
    """Time over floor. The floor is the reader's time, scaled by the bytes of both."""
    if reader is None:
        return None
    if reader is record:
        count = len(record.samples.processes)
        return Ratio(1.0, 1.0, 1.0, True, count, record.candidate, "floor")
    paired = paired_ratio(record, reader)
    scale = reader.read_bytes / record.read_bytes
    ratio, low, high = (scale * value for value in (paired.ratio, paired.low, paired.high))
    return Ratio(ratio, low, high, low <= 1.0 <= high, paired.processes, record.candidate, "floor")


def measured_together(records: Iterable[Record]) -> list[Record]:
    """Of each GPU and workload the campaign that timed most rungs beside baselines.

    Of two that timed equally many the newer one is taken; records of different campaigns are
    never mixed, since times of different processes are not compared.

    Args:
        records: any; those of rungs outside the ladder are left out.
    """
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.rung_path is None:
            key = (record.provenance.gpu, record.problem.key(), record.campaign)
            groups.setdefault(key, []).append(record)
    chosen: dict[tuple[str, str], list[Record]] = {}
    for (gpu, workload, _), together in groups.items():
        if any(one.kind == "baseline" for one in together):
            kept = chosen.setdefault((gpu, workload), together)
            if _fullness(together) > _fullness(kept):
                chosen[gpu, workload] = together
    return [record for together in chosen.values() for record in together]


def _fullness(records: Sequence[Record]) -> tuple[int, float]:
    rungs = {one.candidate for one in records if one.kind == "rung"}
    return len(rungs), max(one.provenance.date.timestamp() for one in records)
