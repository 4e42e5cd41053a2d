"""The checks of the claims ledger: a few, for all sources, since each claim brings its own formula.
What a check returns follows from the claim, the ledger's figures and the records alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from labtools.problem import LabError, Problem, load_rung, parse_problem
from labtools.problem.rung import say_knobs
from labtools.record import (
    Record,
    RecordStore,
    Variant,
    at_default_knobs,
    describe_record,
    describe_records,
    measured_together,
    pair,
    paired_ratio,
    same_output,
    sanitizer_verdicts,
    say_timed,
    select,
    timings_of,
    with_counters,
)
from labtools.record.bound import Bound, counted_bound, stall_shares
from labtools.record.claims import (
    Claim,
    Finding,
    Ledger,
    ValueOrigin,
    load_ledger,
    say_number,
)
from labtools.record.expressions import (
    ExpressionError,
    MissingName,
    Quantity,
    evaluate_expression,
    names_in,
)
from labtools.record.verdicts import HELD, Unjudged, decide_verdict, judge
from labtools.toolchain.listings import machine_code

from .banks import check_tile, half_tile
from .forecasting import forecast
from .residency import occupancy
from .result import waits_for_memory
from .sheets import DEFAULT_GPU, Gpu, load_gpu

_NOT_WAITING = ("selected", "not_selected")


@dataclass(frozen=True)
class Evidence:
    """What checks may look at."""

    ledger: Ledger  # claims and figures
    records: Sequence[Record] = field(default_factory=list)  # measured ones, of any GPU

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """Published figures by table."""
        return self.ledger.figures


Check = Callable[[Claim, Evidence], Unjudged]
CHECKS: dict[str, Check] = {}


def check_claim(claim: Claim, evidence: Evidence) -> Finding:
    """Run the check of a claim and judge what it finds."""
    if claim.check is None:
        return Finding(verdict="not checkable", reason=claim.reason)
    try:
        found = find_value(claim, evidence)
        verdict = decide_verdict(claim, found)
    except MissingName as error:
        found = _not_here(error.name)
        verdict = decide_verdict(claim, found)
    reason = f"{found.reason}; {found.doubt}" if verdict == "incomplete" and found.doubt else ""
    return Finding(
        value=found.value,
        verdict=verdict,
        reason=reason or found.reason,
        origin=found.origin,
        interval=found.interval,
        where=found.where,
    )


def find_value(claim: Claim, evidence: Evidence) -> Unjudged:
    """What the check of a claim finds, not yet judged.

    Raises LabError: it names a check that does not exist. MissingName: something is not here.
    """
    if claim.check not in CHECKS:
        raise LabError(
            f"The claim {claim.id} names the check {claim.check!r}.",
            f"the checks are {', '.join(sorted(CHECKS))}",
            "correct book/claims.yml",
        )
    found = CHECKS[claim.check](claim, evidence)
    for part in claim.made_of:
        finding = check_claim(evidence.ledger.find(part), evidence)
        if finding.verdict not in (*HELD, "not measured here"):
            wrong = f"its figures are not to be had: {part} is {finding.verdict}"
            return found.model_copy(update={"doubt": wrong})
    return found


def gather_evidence(store: RecordStore | None = None, ledger: Ledger | None = None) -> Evidence:
    """The ledger as it stands and every record."""
    return Evidence(ledger or load_ledger(), (store or RecordStore()).load())


def _check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


# what a claim's formula may name


@dataclass
class FormulaNames:
    """What the names of a formula stand for, and where they come from."""

    # by name; None where it was not measured
    numbers: dict[str, Quantity | None] = field(default_factory=dict)
    # by name, which source brought it: a key of `_SOURCES`, for figures the work's key
    brought_by: dict[str, str] = field(default_factory=dict)
    # words by name, which only the reason of a claim may quote
    texts: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)  # the sources, as a reason names them
    records: list[Record] = field(default_factory=list)  # profiled ones that are among them
    forecast_of: str = ""  # the GPU of a forecast that is among them, or an empty string
    undecided: bool = False  # a forecast among them is of a GPU that nothing calibrated

    def add(self, found: Mapping[str, Any], prefix: str, source: str) -> None:
        """Take numbers and words in. Raises LabError: a name stands for two numbers."""
        for key, value in found.items():
            name = f"{prefix}_{key}" if prefix else key
            if isinstance(value, str):
                self.texts[name] = value
                continue
            if name in self.numbers and self.numbers[name] != value:
                raise LabError(
                    f"The name {name} stands for {self.numbers[name]} and for {value}.",
                    "two sources of one claim both have it",
                    "give one of them a prefix with as: in book/claims.yml",
                )
            self.numbers[name] = value
            self.brought_by[name] = source

    def moving(self, formulas: Sequence[str], tolerance: float) -> set[str]:
        """The sources of the names that move a formula's value, by more than a claim's tolerance,
        when they are three times what they are, or a third; a name that does not is none."""

        def moves(text: str, name: str) -> bool:
            now, number = evaluate_expression(text, self.numbers), self.numbers[name] or 0
            try:
                others = (number * 3, number / 3) if number else (1,)
                tried = [{**self.numbers, name: other} for other in others]
                values = [evaluate_expression(text, one) for one in tried]
                return not all(math.isclose(one, now, rel_tol=tolerance) for one in values)
            except ExpressionError:
                return True

        named = [(text, name) for text in formulas for name in names_in(text)]
        return {self.brought_by[name] for text, name in named if moves(text, name)}

    @property
    def origin(self) -> ValueOrigin:
        """The word for what comes out."""
        if self.forecast_of:
            return "forecast"
        return "recorded" if self.records else "computed"

    @property
    def where(self) -> str:
        """GPU and date of what was measured, or the GPU that was forecast."""
        return self.forecast_of or (describe_records(self.records) if self.records else "")


def _figures(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """A table of the ledger, ``{name: loop}``; a list's items are ``list_0`` and so on."""
    table = evidence.figures[asked["name"]]
    return _flat({key: value for key, value in table.items() if key != "source"})


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, (list, dict)):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        parts = [_flat(one, f"{name}_{key}" if name else str(key)) for key, one in inner]
        counted = {f"{name}_count": len(value)} if isinstance(value, list) else {}
        return {key: one for part in parts for key, one in part.items()} | counted
    return {name: value}


def _gpu(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """The numbers of a data sheet, ``{name: l4}``."""
    sheet = load_gpu(asked["name"])
    names.told.append(f"the data sheet of {sheet.title}")
    return {"title": sheet.title} | {
        one.name: value
        for one in fields(Gpu)
        if isinstance(value := getattr(sheet, one.name), (int, float))
    }


def _problem(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """The sizes, bytes and operations of a problem, ``{name: "8,32,8,4096,128"}``."""
    names.told.append("the shape")
    return parse_problem(asked["name"]).numbers()


def _occupancy(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """What a block of ``threads`` with ``registers`` and ``smem`` leaves of an SM of ``gpu``."""
    found = occupancy(asked["gpu"], asked["threads"], asked["registers"], asked.get("smem", 0))
    return {"theoretical": found.theoretical, "warps": found.warps_per_block}


def _tile(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """``half s[rows][columns + padding]`` and, by access, its turns, ways and misaligned lanes."""
    sizes = asked["rows"], asked["columns"], asked.get("padding", 0)
    kinds = tuple(asked.get("accesses", ()))
    report = check_tile(half_tile(*sizes, asked.get("layout", "plain")), kinds)
    names.told.append(f"the addresses of half[{sizes[0]}][{sizes[1] + sizes[2]}]")
    found: dict[str, Any] = {
        **{"bytes": report.tile.bytes, "rows": report.tile.rows, "stride": report.tile.stride},
        **{"row_bytes": report.tile.row_bytes, "padding_bytes": report.padding_bytes},
        "misaligned_rows": report.misaligned_rows,
    }
    for kind, one in zip(kinds, report.accesses, strict=True):
        lanes = {"wavefronts": one.wavefronts, "ways": one.ways, "least": one.least}
        found |= {f"{kind}_{name}": count for name, count in lanes.items()}
        found[f"{kind}_misaligned"] = one.misaligned_lanes
    return found


def _counters(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """Counters of a profiled kernel, and the part of its waiting by reason, ``waits_barrier``."""
    try:
        problem, rung = parse_problem(asked["workload"]), asked["candidate"]
        of_gpu = select(evidence.records, gpu=asked["gpu"], workload=problem, shipped=True)
        records = at_default_knobs([one for one in with_counters(of_gpu) if one.candidate == rung])
    except LabError:  # a kernel that is not there has no records
        records = []
    # Of several profiles the one that read most.
    found = max(
        records, key=lambda one: len(one.counters.values if one.counters else ()), default=None
    )
    if found is None or found.counters is None or not found.counters.values:
        raise MissingName(_say_profile(asked))
    names.records.append(found)
    shares = stall_shares(found.counters.values)
    waits = {reason: part for reason, part in shares.items() if reason not in _NOT_WAITING}
    total = math.fsum(waits.values())
    return found.counters.values | {
        f"waits_{reason}": part / total for reason, part in waits.items() if total
    }


def _bounds(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """How many of ``candidates`` have which bound by the one rule on counters, ``chain_count``, of
    how many, ``count``; ``each`` is what a reason says of them."""
    max_warps = load_gpu(asked["gpu"]).max_warps_per_sm
    told = {}
    for candidate in asked["candidates"]:
        values = _counters({**asked, "candidate": candidate}, names, evidence)
        counted = counted_bound(values, max_warps_per_sm=max_warps)
        told[candidate.split("_")[0]] = counted.bound or "ambiguous"
    counts = {f"{one}_count": list(told.values()).count(one) for one in get_args(Bound)}
    each = ", ".join(f"{name} {bound}" for name, bound in told.items())
    return {**counts, "count": len(told), "each": each}


def _profiled(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """Of the shipped profiles of a GPU that have the counters for it, how many meet each named
    condition over them, and how many there are, ``count``."""
    of_gpu = with_counters(select(evidence.records, gpu=asked["gpu"], shipped=True))
    met: dict[str, int] = dict.fromkeys((*asked["named"], "count"), 0)
    for record in of_gpu:
        values = record.counters.values if record.counters else {}
        try:
            found = [n for n, text in asked["named"].items() if evaluate_expression(text, values)]
        except (MissingName, ExpressionError):
            continue
        names.records.append(record)
        for name in (*found, "count"):
            met[name] += 1
    if not met["count"]:
        raise MissingName(_say_profile({**asked, "candidate": "r09", "workload": "the headline"}))
    return met


def _times(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """The recorded median of each of ``knobs`` by name, microseconds, of one candidate and GPU."""
    problem = parse_problem(asked["workload"])
    found = {}
    for name, knobs in asked["knobs"].items():
        wanted = (asked["candidate"], knobs)
        timed = timings_of(evidence.records, wanted, problem, gpu=asked["gpu"], shipped=True)
        if not timed:
            command = _say_record(asked["candidate"], asked["workload"], knobs)
            on = f"On an {load_gpu(asked['gpu']).title}, `{command}` makes it"
            raise MissingName(f"a time of {asked['candidate']} ({say_knobs(knobs)}). {on}")
        names.records.append(timed[0])
        found[name] = timed[0].median_us
    return found


def _sanitizer(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """Errors that each tool of compute-sanitizer counted, ``memcheck_errors``; None of one that did
    not run to its end. The kernel is taken as it was written, or at ``knobs``.
    """
    try:
        rung = load_rung(asked["candidate"])
        knobs = asked.get("knobs", rung.as_written())
        of_gpu = select(evidence.records, gpu=asked["gpu"], shipped=True)
        verdicts, record = sanitizer_verdicts(of_gpu, rung, knobs)
    except LabError:  # a kernel that is not there has no records
        verdicts, record = [], None
    if record is None:
        raise MissingName(
            f"what compute-sanitizer says of {asked['candidate']}. On an "
            f"{load_gpu(asked['gpu']).title}, `labtools sanitize {asked['candidate']}` asks it"
        )
    names.records.append(record)
    return {f"{one.tool}_errors": one.error_count for one in verdicts}


def _opcodes(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """How many instructions of a kernel's machine code match each pattern, by name."""
    try:
        rung = load_rung(asked["candidate"])
        code = machine_code(
            rung,
            parse_problem(asked["workload"]),
            load_gpu(asked["gpu"]).limits,
            asked.get("knobs"),
        )
    except LabError as error:
        raise MissingName(
            f"the machine code of {asked['candidate']}; `labtools compile {asked['candidate']}` "
            "makes it"
        ) from error
    names.told.append(f"the machine code of {asked['candidate']}")
    texts = [one.text for sass in code.entries.values() for one in sass.executable]
    return {
        name: sum(bool(re.search(pattern, one)) for one in texts)
        for name, pattern in asked["named"].items()
    }


def _forecast(asked: Mapping[str, Any], names: FormulaNames, evidence: Evidence) -> dict[str, Any]:
    """The model's time, and the cycles of one warp that are waits for memory and those that not."""
    gpu = load_gpu(asked["gpu"])
    try:
        problem = parse_problem(asked["workload"])
        made = forecast(load_rung(asked["candidate"]), problem, gpu, asked.get("knobs"))
    except LabError as error:
        raise MissingName(
            f"a forecast of {asked['candidate']}, since {error.what} `labtools forecast "
            f"{asked['candidate']} -w {asked['workload']} --gpu {asked['gpu']}` makes one"
        ) from error
    names.forecast_of, names.undecided = gpu.title, not made.calibrated
    names.told.append("the forecast" if made.calibrated else "the forecast, uncalibrated")
    memory = sum(one.cycles for one in made.stack if waits_for_memory(one.name))
    rest = sum(one.cycles for one in made.stack) - memory
    return {"time_us": made.time_us, "memory_cycles": memory, "other_cycles": rest}


_SOURCES: Mapping[str, Callable[[Mapping[str, Any], FormulaNames, Evidence], Mapping[str, Any]]] = {
    **{"figures": _figures, "gpu": _gpu, "problem": _problem, "occupancy": _occupancy},
    **{"tile": _tile, "counters": _counters, "opcodes": _opcodes, "forecast": _forecast},
    **{"sanitizer": _sanitizer, "bounds": _bounds, "profiled": _profiled, "times": _times},
}


def _names_of(claim: Claim, evidence: Evidence) -> FormulaNames:
    """What the names of a claim's formulas stand for; ``claimed`` is the claim's own value. Each
    source in ``given`` is one query or a list; ``as`` puts a prefix before its names."""
    names = FormulaNames()
    for kind, find in _SOURCES.items():
        asked = claim.given.get(kind, [])
        for one in asked if isinstance(asked, list) else [asked]:
            query = {"name": one} if isinstance(one, str) else one
            source = evidence.figures[query["name"]]["source"] if kind == "figures" else kind
            names.add(find(query, names, evidence), query.get("as", ""), source)
    if isinstance(claim.value, (int, float)):
        names.add({"claimed": claim.value}, "", claim.source)
    return names


_OURS = frozenset(_SOURCES) - {"figures", "problem"}
"""The sources of names that are more than published figures and the shape that they are of."""


@_check
def by_formula(claim: Claim, evidence: Evidence) -> Unjudged:
    """A formula of the ledger, or one for each value of the claim, over its sources (`_SOURCES`).
    With a ``relation`` the value is a limit, or the two of them that it lies ``within``. ``say`` is
    the reason, with formulas in braces; it and ``when`` may name ``ours``, what a single formula
    came to."""
    given = claim.given
    names = _names_of(claim, evidence)
    formulas = [given["formula"]] if isinstance(given["formula"], str) else given["formula"]
    ours = [float(evaluate_expression(text, names.numbers)) for text in formulas]
    moving = names.moving(formulas, max(claim.tolerance, 1e-9))
    own = not moving & _OURS and moving - {"problem"} == {claim.source}
    if len(ours) == 1:
        names.numbers["ours"] = ours[0]
    told = _say_formulas(formulas, ours, names, own)
    if "say" in given:
        told = _fill_in(given["say"], names)
    if names.undecided:
        told += f". Nothing calibrated an {names.forecast_of}, so that a forecast decides nothing; "
        told += "`labtools microbench` on one does"
    return Unjudged(
        value=ours[0] if len(ours) == 1 else tuple(ours),
        reason=told,
        origin=names.origin,
        where=names.where,
        names=names.numbers,
        published=not moving & _OURS,
        own=own and "problem" not in given,
        settled="not measured here" if names.undecided else None,
    )


def _say_formulas(formulas: list[str], ours: list[float], names: FormulaNames, own: bool) -> str:
    """By what, and each formula with its numbers."""
    sources = [*names.told, *(describe_record(one) for one in names.records)]
    if not own and not sources:
        sources.append("published figures")
    written = [text if text.isidentifier() else _with_numbers(text, names) for text in formulas]
    pairs = zip(written, ours, strict=True)
    told = "; ".join(f"{text} = {say_number(mine)}" for text, mine in pairs)
    return f"by {'its own figures' if own else ' and '.join(dict.fromkeys(sources))}: {told}"


def _with_numbers(formula: str, names: FormulaNames) -> str:
    """A formula with the values of its names in their places."""

    def value_of(match: re.Match[str]) -> str:
        value = names.numbers.get(match[0])
        return match[0] if value is None else f"{value:.10g}"

    return re.sub(r"[A-Za-z_]\w*", value_of, formula)


def _fill_in(text: str, names: FormulaNames) -> str:
    """A reason with its formulas computed: ``{a / b:.2f}``, or ``{title}`` of words."""

    def value_of(match: re.Match[str]) -> str:
        formula, _, form = match[1].partition(":")
        if formula in names.texts:
            return names.texts[formula]
        return format(evaluate_expression(formula, names.numbers), form or "g")

    return re.sub(r"\{([^{}]+)\}", value_of, text)


# times of the card that a source used


@_check
def time_on_their_card(claim: Claim, evidence: Evidence) -> Unjudged:
    """A published time against its floor, and against a record of our design on the same card."""
    given = claim.given
    gpu, knobs = load_gpu(given["gpu"]), given.get("knobs", {})
    command = _say_record(given["candidate"], given["workload"], knobs)
    deciding = f"On such a card, `{command}` makes the record that decides"
    try:
        problem = parse_problem(given["workload"])
        floor_us = _stored_floor_us(given["candidate"], problem, gpu, knobs)
    except LabError:  # of an operation or a kernel that is not there
        return _not_here(f"a time on an {gpu.title}. {deciding}")
    to_us = {"us": 1.0, "ms": 1e3}[claim.unit]
    floor = floor_us / to_us
    if claim.number < floor:
        below = "it is below the floor: these bytes take longer at the card's peak rate"
        return Unjudged(reason=below, value=floor, origin="computed", settled="refuted")
    try:
        asked = given["candidate"], knobs
        found = timings_of(evidence.records, asked, problem, gpu=given["gpu"], shipped=True)
    except LabError:  # a rung that is not there has no records that belong to it
        found = []
    if not found:
        possible = f", and possible, at {claim.number / floor:.1f} times its floor" if floor else ""
        reason = f"it is of an {gpu.title}{possible}. {deciding}"
        return Unjudged(reason=reason, settled="not measured here")
    return Unjudged(
        reason="our rung of the same idea on the same kind of card",
        value=found[0].median_us / to_us,
        origin="recorded",
        where=describe_record(found[0]),
    )


def _stored_floor_us(candidate: str, problem: Problem, gpu: Gpu, knobs: Mapping[str, int]) -> float:
    """Least time of the bytes that a candidate reads, microseconds; a kept form may be smaller."""
    is_rung = Variant(candidate).is_rung
    scheme = load_rung(candidate).scheme(problem, knobs) if is_rung else None
    moved = problem.minimal_bytes
    if scheme is not None:
        moved += scheme.stored_bytes(problem) - problem.streamed_bytes
        if moved <= gpu.l2_bytes:
            return 0.0  # it may come from the L2 if the same buffers are read again and again
    if gpu.dram_gb_per_s is None:
        raise LabError(f"{gpu.title} has no memory rate.", "its sheet says none", "")
    return moved / gpu.dram_gb_per_s / 1e3


# what our records say


@_check
def recorded_ratio(claim: Claim, evidence: Evidence) -> Unjudged:
    """Time of ``first`` over time of ``second`` on one GPU, paired within processes. ``control``
    has other knobs for the two: where the ratio does not fit with these as well, they are a part
    of its cause."""
    given = claim.given
    gpu = given.get("gpu", DEFAULT_GPU)
    first, second = _variants(given)
    found = _timed_together(first, second, given["workload"], gpu, evidence)
    if found is None:
        knobs = [f" ({say_knobs(one.knobs)})" if one.knobs else "" for one in (first, second)]
        both = f"{first.candidate}{knobs[0]} and {second.candidate}{knobs[1]}"
        command = f"labtools bench {first.candidate} {second.candidate} -w {given['workload']}"
        return _not_here(
            f"{both} timed together on {given['workload']}. `{command.replace('baseline:', '')}` "
            f"on an {load_gpu(gpu).title} times them"
        )
    above, below = found
    measured = paired_ratio(above, below)
    ways = say_timed(above), say_timed(below)
    made = Unjudged(
        reason=f"{above.candidate}{_knobs(above)} {above.median_us:.1f} us, "
        f"{below.candidate}{_knobs(below)} {below.median_us:.1f} us, {measured.processes} processes"
        + (f"; both by {ways[0]}" if ways[0] == ways[1] else f"; by {ways[0]}, and {ways[1]}"),
        value=measured.ratio,
        interval=(measured.low, measured.high),
        origin="recorded",
        where=describe_record(above),
    )
    other = None
    if control := given.get("control"):
        other = _timed_together(*_variants({**given, **control}), given["workload"], gpu, evidence)
    if other is None:
        return made
    again = paired_ratio(*other)
    moved = made.model_copy(update={"value": again.ratio, "interval": (again.low, again.high)})
    if decide_verdict(claim, moved) == "holds":
        return made
    with_knobs = f"{other[0].candidate}{_knobs(other[0])} over {other[1].candidate}"
    told = f"{with_knobs}{_knobs(other[1])} it is {again.ratio:.2f}"
    return made.model_copy(update={"doubt": told})


def _variants(given: Mapping[str, Any]) -> tuple[Variant, Variant]:
    first, second = (
        Variant(given[side], given.get(f"{side}_knobs") or {}, given.get(f"{side}_as", ""))
        for side in ("first", "second")
    )
    return first, second


def _timed_together(
    first: Variant, second: Variant, workload: str, gpu: str, evidence: Evidence
) -> tuple[Record, Record] | None:
    try:
        records = select(evidence.records, gpu=gpu, shipped=True, experiment=None)
        return pair(records, first, second, parse_problem(workload))
    except LabError:  # a rung that is not there has no records that belong to it
        return None


def _knobs(record: Record) -> str:
    """The knobs that differ from the defaults."""
    if record.kind != "rung":
        return ""
    usual = load_rung(record.candidate).resolve_knobs()
    changed = {name: value for name, value in record.knobs.items() if usual.get(name) != value}
    return f" ({say_knobs(changed)})" if changed else ""


@_check
def same_output_as(claim: Claim, evidence: Evidence) -> Unjudged:
    """Which candidates of one campaign give the output of ``candidate``, by the errors of both."""
    given = claim.given
    workload = parse_problem(given["workload"])
    records = measured_together(select(evidence.records, gpu=given["gpu"], workload=workload))
    first = next((one for one in records if one.candidate == given["candidate"]), None)
    if first is None:
        return _not_here(
            f"{given['candidate']} beside its named backends on an "
            f"{load_gpu(given['gpu']).title}. There, `labtools bench -w {given['workload']}` "
            "times them together"
        )
    same = [one.name for one in same_output(first, records) if one.name.startswith(given["among"])]
    return Unjudged(
        reason=f"the default's error is that of {' and '.join(same) or 'none'} to the last digit",
        choice=tuple(same),
        origin="recorded",
        where=describe_record(first),
    )


@_check
def has_instructions(claim: Claim, evidence: Evidence) -> Unjudged:
    """Which of the patterns of `_opcodes` are in the machine code of a kernel."""
    names = _names_of(claim, evidence)
    counts = {name: names.numbers[name] or 0 for name in claim.given["opcodes"]["named"]}
    told = ", ".join(f"{count} of {name}" for name, count in counts.items())
    return Unjudged(
        reason=f"{' and '.join(names.told)} has {told}",
        choice=tuple(name for name, count in counts.items() if count),
        origin=names.origin,
        where=names.where,
    )


@_check
def published_again(claim: Claim, evidence: Evidence) -> Unjudged:
    """What another claim, ``of``, says as well: where the two agree, one thing has one verdict.
    ``factor`` is of the units."""
    other = evidence.ledger.find(claim.given["of"])
    theirs = other.number * claim.given.get("factor", 1.0)
    if judge(theirs, claim.number, claim.tolerance) != "holds":
        apart = f"{other.id} puts it at {say_number(theirs, claim.unit)}"
        return Unjudged(reason=apart, value=theirs, origin="computed", published=True, own=True)
    finding = check_claim(other, evidence)
    again = f"{other.id} says so as well, {say_number(theirs, claim.unit)}: {finding.reason}"
    return Unjudged(
        reason=again, value=finding.value, origin=finding.origin, settled=finding.verdict
    )


def _say_record(candidate: str, workload: str, knobs: Mapping[str, int]) -> str:
    """The command that records a rung, or a library beside one."""
    kind, _, name = candidate.rpartition(":")
    command = f"labtools record r03 --baseline {name}" if kind else f"labtools record {name}"
    if ":" in workload:
        command += f" -w {workload}"
    return command + "".join(f" -k {knob}={value}" for knob, value in knobs.items())


def _say_profile(asked: Mapping[str, Any]) -> str:
    """What counters are missing, and the command that reads them."""
    candidate = asked["candidate"].removeprefix("baseline:")
    return (
        f"counters of {asked['candidate']} on {asked['workload']}. On an "
        f"{load_gpu(asked['gpu']).title}, `labtools profile {candidate} -w {asked['workload']}` "
        "reads them"
    )


def _not_here(what: str) -> Unjudged:
    return Unjudged(reason=f"there is no record yet: {what}", settled="not measured here")
