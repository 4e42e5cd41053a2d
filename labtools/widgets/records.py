"""Records as tables and pictures; each says which GPU and which day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labtools.problem import HEADLINE, Workload, load_rung
from labtools.record import Record, RecordStore, freshness, summary

from .provenance import Cell, Shown, Word, make_note, make_table
from .ratios import describe_record


def find_records(
    candidates: Sequence[str],
    workload: Workload = HEADLINE,
    *,
    gpu: str | None = None,
    knobs: Mapping[str, int] | None = None,
    defaults: bool = False,
    store: RecordStore | None = None,
) -> list[Record]:
    """The newest records of some candidates on one workload, in the order asked for.

    Args:
        candidates: rung ids and ``baseline:NAME``.
        workload: what they ran.
        gpu: slug of a GPU; None takes any.
        knobs: a rung's record must have these values, where the rung has such a knob; a record
            with other knobs is left out.
        defaults: a rung's record must have the rung's default knobs.
        store: where to look; by default the shipped records and the reader's own.
    """
    store = store or RecordStore()
    every = store.query(gpu, None, workload)
    wanted = dict(knobs or {})
    found: list[Record] = []
    for candidate in candidates:
        for record in every:
            if not record.is_candidate(candidate):
                continue
            fixed = {**_default_knobs(record), **wanted} if defaults else wanted
            if all(record.knobs.get(k, v) == v for k, v in fixed.items()):
                found.append(record)
    return found


def _default_knobs(record: Record) -> dict[str, int]:
    if record.kind != "rung":
        return {}
    return load_rung(record.rung_path or record.candidate).resolve_knobs()


def show_records(
    candidates: str | Sequence[str],
    workload: Workload = HEADLINE,
    *,
    gpu: str | None = None,
    knobs: Mapping[str, int] | None = None,
    defaults: bool = True,
    store: RecordStore | None = None,
    check_fresh: bool = True,
) -> Shown:
    """A table of what was measured: median, spread, processes, where and when, and whether the
    record still belongs to the code.

    Args:
        candidates: rung ids and ``baseline:NAME``.
        workload: what they ran.
        gpu: slug of a GPU; None takes any.
        knobs: only records with these values.
        defaults: the knobs that are not named have their defaults.
        store: where to look.
        check_fresh: compile and compare hashes, which takes a moment for each rung.
    """
    wanted = [candidates] if isinstance(candidates, str) else list(candidates)
    records = find_records(wanted, workload, gpu=gpu, knobs=knobs, defaults=defaults, store=store)
    missing = [name for name in wanted if not any(r.is_candidate(name) for r in records)]
    shown = make_note(
        f"There is no record of {', '.join(missing)} for {workload}. "
        "On a machine with a GPU, labtools record makes one."
    )
    if not records:
        return shown
    table = make_table(
        ["what", "knobs", "median (us)", "middle half (us)", "processes", "where from", "state"],
        [_row(record, check_fresh) for record in records],
        caption=f"Workload {workload}",
    )
    return table + shown if missing else table


def _row(record: Record, check_fresh: bool) -> list[Cell]:
    spread = summary(record)
    low, high = spread.iqr_us
    state = ""
    if check_fresh:
        answer = freshness(record)
        state = "fresh" if answer.fresh else f"stale: {answer.reason}"
    return [
        record.candidate,
        ", ".join(f"{name}={value}" for name, value in sorted(record.knobs.items())),
        f"{spread.median_us:.1f}",
        f"{low:.1f} to {high:.1f}",
        str(spread.processes),
        Word("recorded", describe_record(record)),
        state,
    ]
