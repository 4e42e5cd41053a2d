"""The one query over records: which fit, which two were timed together, and who is fast.

`RecordStore` reads the records, `select` and `timings_of` choose among them, and `pair` gives two
that shared their processes, which is what a ratio needs. A fair peer is a baseline that is not
handicapped and keeps what it streams in as many bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from labtools.problem import (
    Baseline,
    LabError,
    Problem,
    Rung,
    StoredAs,
    list_baselines,
    load_rung,
    operation_of,
    parse_problem,
    problem_from_dict,
)
from labtools.problem.storage import AS_GIVEN

from .folders import shipped_records_dir
from .schema import Record, SanitizerVerdict, default_knobs_of, slug_of_gpu
from .statistics import Ratio, best_reader, paired_ratio

LEAST_PROCESSES = 5
"""A verdict needs at least this many; fewer give a ratio and no verdict."""


# ------------------------------------------------------------------------------- which records


@dataclass(frozen=True)
class Variant:
    """A candidate as it was tried: which, with which knobs, and what was done to it besides."""

    candidate: str  # a rung's id or number, or ``baseline:NAME``
    # those that differ from the rung's defaults
    knobs: Mapping[str, int] = field(default_factory=dict)
    experiment: str = ""  # as in a record: empty, ``stream``, ``outside`` or ``stream+outside``
    label: str = ""  # what a table calls it; by default its number

    @property
    def name(self) -> str:
        """What a table calls it."""
        return self.label or self.candidate.split("_")[0]

    @property
    def is_rung(self) -> bool:
        """False of a baseline or a ceiling."""
        return ":" not in self.candidate


Tried = Variant | str | tuple[str, Mapping[str, int]]
"""A variant, a candidate at its default knobs, or a candidate with the knobs that differ."""


def as_variant(tried: Tried) -> Variant:
    """The variant that a page names, also by an id alone or by (id, knobs)."""
    if isinstance(tried, Variant):
        return tried
    return Variant(tried) if isinstance(tried, str) else Variant(*tried)


def select(
    records: Iterable[Record],
    *,
    gpu: str | None = None,
    candidate: str | None = None,
    workload: Problem | str | Mapping[str, Any] | None = None,
    knobs: Mapping[str, int] | None = None,
    kind: str | None = None,
    experiment: str | None = "",
    protocol: str | None = None,
    campaign: str | None = None,
    shipped: bool = False,
    fresh: bool = False,
    latest: bool = False,
) -> list[Record]:
    """The records that fit, newest first.

    ``gpu`` is a slug (``h200``) or a name (``NVIDIA H200``); ``candidate`` is ``r03_one_warp``,
    ``r03``, ``baseline:sdpa`` or ``sdpa``; ``workload`` is a Problem, its short form, or fields.
    Knobs that are not named may have any value; ``experiment=None`` takes all. ``shipped`` leaves
    out rungs outside the ladder, ``fresh`` what no longer belongs to the code; ``latest`` takes the
    newest of several records of the same thing: of shipped ones those timed beside baselines first.
    """
    every = list(records)
    slug = None if gpu is None else slug_of_gpu(gpu)
    key = None if workload is None else _key_of(workload)
    fitting = [
        record
        for record in every
        if (kind is None or record.kind == kind)
        and (experiment is None or record.experiment == experiment)
        and (protocol is None or record.protocol == protocol)
        and (campaign is None or record.campaign == campaign)
        and (slug is None or _gpu_fits(record, slug))
        and (candidate is None or record.is_candidate(candidate))
        and not (shipped and record.rung_path is not None)
        and all(record.every_knob.get(name) == value for name, value in (knobs or {}).items())
        and (key is None or record.problem_key == key)
    ]
    if fresh:
        from .staleness import CodeNow, freshness

        now = CodeNow()
        fitting = [record for record in fitting if freshness(record, now).fresh]
    fitting.sort(key=_date, reverse=True)
    return _newest_of_each(fitting, every) if latest else fitting


def _newest_of_each(fitting: Sequence[Record], every: Sequence[Record]) -> list[Record]:
    compared = {record.campaign for record in every if record.kind == "baseline"}
    ours = str(shipped_records_dir())
    newest: dict[tuple[str, ...], Record] = {}
    alone: dict[tuple[str, ...], Record] = {}
    for record in fitting:
        by_itself = (record.file or "").startswith(ours) and record.campaign not in compared
        (alone if by_itself else newest).setdefault(record.identity(), record)
    return sorted({**alone, **newest}.values(), key=_date, reverse=True)


def timings_of(
    records: Iterable[Record], tried: Tried, workload: Problem | None = None, **fits: Any
) -> list[Record]:
    """Every record of a variant, newest first; knobs that it does not name have their defaults.

    ``fits`` are further conditions, as `select` takes them.
    """
    variant = as_variant(tried)
    candidate, knobs = variant.candidate, {}
    if variant.is_rung:
        rung = load_rung(candidate)
        candidate, knobs = rung.id, rung.resolve_knobs(variant.knobs)
    fits |= {"candidate": candidate, "workload": workload, "experiment": variant.experiment}
    found = select(records, **fits)
    return [record for record in found if record.every_knob == knobs]


def pair(
    records: Iterable[Record],
    first: Tried,
    second: Tried,
    workload: Problem | None = None,
    **fits: Any,
) -> tuple[Record, Record] | None:
    """The newest records of two variants that shared their processes, or None; of any workload
    where none is given."""
    every = list(records)
    above = timings_of(every, first, workload, **fits)
    for record in timings_of(every, second, workload, **fits):
        for other in above:
            if _go_of(other) == _go_of(record):
                return other, record
    return None


def timed_in_one_go(
    records: Iterable[Record], tried: Sequence[Tried], workload: Problem
) -> list[Record | None]:
    """Records of several variants from the processes that timed most of them; None for the rest.

    Of two campaigns with equally many the newer one is taken.
    """
    every = list(records)
    found = [timings_of(every, variant, workload) for variant in tried]
    by_go = [{_go_of(record): record for record in reversed(held)} for held in found]
    newest = sorted(itertools.chain.from_iterable(found), key=_date, reverse=True)
    goes = map(_go_of, newest)
    chosen = max(goes, key=lambda go: sum(go in held for held in by_go), default=None)
    return [None if chosen is None else held.get(chosen) for held in by_go]


def every_pair(records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Every two of some records that shared their processes, in the order of their candidates and
    knobs; campaign after campaign."""
    for _, together in sorted(_by_go(records).items()):
        together.sort(key=lambda record: (record.candidate, sorted(record.knobs.items())))
        yield from itertools.combinations(together, 2)


def _go_of(record: Record) -> tuple[str, str, str]:
    """What two records must share to be compared: GPU, campaign and workload."""
    return record.provenance.gpu, record.campaign, record.problem_key


def _by_go(records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault(_go_of(record), []).append(record)
    return groups


def with_counters(records: Iterable[Record]) -> list[Record]:
    """Those that hold hardware counters; the newest record need not be the profiled one."""
    return [record for record in records if record.counters and record.counters.values]


def sanitizer_verdicts(
    records: Iterable[Record], rung: Rung, knobs: Mapping[str, int]
) -> tuple[list[SanitizerVerdict], Record | None]:
    """What compute-sanitizer said of a rung at knobs that differ from the defaults, and the record
    that holds it: that at the default knobs, as a kernel that is broken has none of its own."""
    usual, wanted = rung.resolve_knobs(), rung.resolve_knobs(knobs)
    for record in records:
        if record.candidate != rung.id or record.knobs != usual:
            continue
        found = [one for one in record.sanitizer if rung.resolve_knobs(one.knobs or {}) == wanted]
        if found:
            return found, record
    return [], None


def _key_of(workload: Problem | str | Mapping[str, Any]) -> str:
    if isinstance(workload, str):
        workload = parse_problem(workload)
    elif not isinstance(workload, Problem):
        workload = problem_from_dict(dict(workload))
    return workload.key()


def _gpu_fits(record: Record, wanted: str) -> bool:
    # Older records say ``rtx-4090`` where newer ones say ``rtx4090``; ``a100`` is any A100.
    slug = record.provenance.gpu_slug
    return slug.replace("-", "") == wanted.replace("-", "") or slug.startswith(f"{wanted}-")


def _date(record: Record) -> datetime:
    return record.provenance.date


def at_default_knobs(records: Iterable[Record]) -> list[Record]:
    """Baselines, the ceiling, and shipped rungs at their default knobs."""
    return [
        record
        for record in records
        if record.kind != "rung"
        or (record.rung_path is None and record.every_knob == default_knobs_of(record.candidate))
    ]


def describe_record(record: Record) -> str:
    """Where and when: ``NVIDIA H200, 2026-11-21``, and ``unsigned`` where its file is not ours."""
    unsigned = ", unsigned" if record.signed is False else ""
    return f"{record.provenance.gpu}, {record.provenance.date:%Y-%m-%d}{unsigned}"


def describe_records(records: Iterable[Record]) -> str:
    """GPUs and dates of some records, each once."""
    return "; ".join(dict.fromkeys(describe_record(record) for record in records))


# ---------------------------------------------------------------------------------- how accurate


@dataclass(frozen=True)
class Errors:
    """Both errors of a candidate, each the worst relative one of a part of the output."""

    # recorded, against float64 on what its kernel was given; None where `total` holds it
    arithmetic: float | None
    total: float | None  # against the unquantised cache, of a library that converts it
    # computed, by kind of inputs, from keeping them in few bits alone; empty where they are not,
    # or where it is not known how
    of_scheme: Mapping[str, float]


def errors_of(record: Record, scheme: StoredAs | None = None) -> Errors:
    """Both errors of a record's candidate; a shipped rung's scheme is asked."""
    error, few = record.comparison.worst_error, record.codec != AS_GIVEN
    converts = few and record.kind == "baseline"
    if few and scheme is None and record.kind == "rung" and record.rung_path is None:
        scheme = load_rung(record.candidate).scheme(record.problem, record.knobs)
    of_scheme: Mapping[str, float] = {}
    if few and (converts or scheme is not None):
        of_scheme = operation_of(record.problem).errors_of_scheme(record.problem, scheme)
    return Errors(None if converts else error, error if converts else None, of_scheme)


def same_output(record: Record, others: Iterable[Record]) -> list[Record]:
    """Those of some records whose error is the same to the last digit, at the same place, from
    which follows that their output is the same."""

    def place(one: Record) -> tuple[Any, ...]:
        return one.problem_key, one.comparison.worst_error, one.comparison.worst_index

    if record.comparison.worst_error is None:
        return []
    return [one for one in others if one is not record and place(one) == place(record)]


# ---------------------------------------------------------------------------------- who is fast


def fair_peers(
    records: Iterable[Record], kv_bits: int = 16, baselines: Mapping[str, Baseline] | None = None
) -> list[Record]:
    """The fair baselines among some records that keep ``kv_bits`` an element, fastest first.

    ``records`` are of one workload and one campaign; None for ``baselines`` takes the shipped ones.
    """
    known = _shipped_baselines() if baselines is None else baselines
    fair = {name for name, one in known.items() if one.fair and one.storage.bits == kv_bits}
    peers = (record for record in records if record.kind == "baseline" and record.name in fair)
    return sorted(peers, key=lambda record: record.median_us)


def _shipped_baselines() -> dict[str, Baseline]:
    return {baseline.id: baseline for baseline in list_baselines(None)}


@dataclass(frozen=True)
class Standing:
    """Where a candidate stands among what was timed with it."""

    record: Record
    # time of the fastest fair 16-bit peer over its own; None where it is that peer or has none
    against: Ratio | None
    against_low_bit: Ratio | None  # the same against peers of its bits, where these are under 16
    # its time over that of its bytes at the best rate of its processes; None of a warm workload
    to_floor: Ratio | None
    floor_us: float | None  # that floor, microseconds
    reader: str | None  # what read fastest


def say_verdict(ratio: Ratio | None) -> str:
    """``faster``, ``slower`` or ``equal``, of a ratio peer / candidate with enough processes."""
    if ratio is None:
        return ""
    if ratio.processes < LEAST_PROCESSES:
        return "too few processes for a verdict"
    return "equal" if ratio.equal else ratio.direction


def standings(
    records: Sequence[Record], baselines: Mapping[str, Baseline] | None = None
) -> list[Standing]:
    """Every rung and baseline of one measurement, fastest first; the ceiling is left out."""
    if len(_by_go(records)) > 1:
        why = "they are of several workloads or campaigns"
        raise LabError("These records were not measured together.", why, "compare those of one")
    known = _shipped_baselines() if baselines is None else baselines
    reader = best_reader(records)
    found = []
    for record in sorted(records, key=lambda record: record.median_us):
        if record.kind == "ceiling":
            continue
        peers = fair_peers(records, record.kv_bits, known) if record.kv_bits < 16 else []
        against = _against(record, fair_peers(records, 16, known))
        floor = None if reader is None else record.read_bytes / reader.gb_per_s / 1e3
        ratios = (against, _against(record, peers), _to_floor(record, reader))
        found.append(Standing(record, *ratios, floor, reader.candidate if reader else None))
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
        return Ratio(1.0, 1.0, 1.0, count, record.candidate, "floor")
    paired = paired_ratio(record, reader)
    scale = reader.read_bytes / record.read_bytes
    ratio, low, high = (scale * value for value in (paired.ratio, paired.low, paired.high))
    return Ratio(ratio, low, high, paired.processes, record.candidate, "floor")


def measured_together(records: Iterable[Record], having: str | None = None) -> list[Record]:
    """Of each GPU and workload the campaign that timed most rungs beside baselines, the newer of
    two.

    Records of different campaigns are never mixed, and those of rungs outside the ladder are left
    out. ``having`` is the id of a rung that the campaign must have timed: then the one with most
    baselines beside it is taken.
    """
    counted = "rung" if having is None else "baseline"

    def fullness(together: Sequence[Record]) -> tuple[int, float]:
        found = {record.candidate for record in together if record.kind == counted}
        return len(found), max(_date(record).timestamp() for record in together)

    groups = _by_go(record for record in records if record.rung_path is None)
    chosen: dict[tuple[str, str], list[Record]] = {}
    for (gpu, _, workload), together in groups.items():
        timed = {record.candidate for record in together}
        if having is not None and having not in timed:
            continue
        if any(record.kind == "baseline" for record in together):
            kept = chosen.setdefault((gpu, workload), together)
            if fullness(together) > fullness(kept):
                chosen[gpu, workload] = together
    return [record for together in chosen.values() for record in together]
