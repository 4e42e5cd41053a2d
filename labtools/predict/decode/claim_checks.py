"""The checks of the claims ledger: each function decides a claim, and no verdict is typed.

A check gets the claim, the ledger with its figures, and records. What it returns follows from
these alone, so that a claim with another number gets another verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from labtools.problem import LabError, Workload, load_rung
from labtools.problem.decode.scheme import Scheme, TensorScheme
from labtools.problem.limits import MIB
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
    say_timed,
    select,
    timings_of,
    with_counters,
)
from labtools.record.claims import Claim, Finding, Ledger, Number, Verdict, load_ledger
from labtools.record.expressions import MissingName, Quantity, evaluate_expression
from labtools.record.prediction import SAME_WITHIN, direction_of
from labtools.toolchain.listings import machine_code

from ..forecasting import forecast
from ..residency import occupancy
from ..result import Forecast
from ..roofline import floors
from ..sheets import Gpu, load_gpu

SLIP_WITHIN = 2.0
"""A number that is off by more than this is refuted; by less it is a slip."""
_NEIGHBOUR = "rtx3090"
"""A card of the neighbouring architecture, whose limits are easily taken for those of the 4090."""


@dataclass(frozen=True)
class Evidence:
    """What checks may look at.

    Args:
        ledger: claims and figures.
        records: measured ones, of any GPU.
    """

    ledger: Ledger
    records: Sequence[Record] = field(default_factory=list)

    @property
    def card(self) -> Gpu:
        """The sheet of the card that the source measured on."""
        return load_gpu("rtx4090")

    @property
    def workload(self) -> Workload:
        """What the source measured."""
        return Workload.parse(self.figures["workload"]["short"])

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """Published figures by table."""
        return self.ledger.figures

    @property
    def dram_gb_per_s(self) -> float:
        """Peak rate of that card's memory, 10^9 bytes a second."""
        rate = self.card.dram_gb_per_s
        if rate is None:
            raise LabError(f"{self.card.title} has no memory rate.", "its sheet says none", "")
        return rate


Check = Callable[[Claim, Evidence], Finding]
CHECKS: dict[str, Check] = {}


def check_claim(claim: Claim, evidence: Evidence) -> Finding:
    """Run the check of a claim.

    Raises:
        LabError: it names a check that does not exist.
    """
    if claim.check is None:
        return Finding(verdict="not checkable", reason=claim.reason)
    if claim.check not in CHECKS:
        raise LabError(
            f"The claim {claim.id} names the check {claim.check!r}.",
            f"the checks are {', '.join(sorted(CHECKS))}",
            "correct book/claims.yml",
        )
    return CHECKS[claim.check](claim, evidence)


def gather_evidence(store: RecordStore | None = None, ledger: Ledger | None = None) -> Evidence:
    """The ledger as it stands and every record."""
    return Evidence(ledger or load_ledger(), (store or RecordStore()).load())


def _check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def judge(claimed: float, ours: float, tolerance: float) -> Verdict:
    """``holds``, ``slip`` or ``refuted``, by how far two values of one thing lie apart."""
    if math.isclose(claimed, ours, rel_tol=tolerance, abs_tol=1e-12):
        return "holds"
    if claimed * ours <= 0:
        return "refuted"
    factor = max(claimed / ours, ours / claimed)
    return "slip" if factor < SLIP_WITHIN else "refuted"


def _computed(value: Number | None, verdict: Verdict, reason: str) -> Finding:
    return Finding(value=value, verdict=verdict, reason=reason, origin="computed")


def _judged(claim: Claim, ours: float, reason: str) -> Finding:
    return _computed(ours, judge(claim.number, ours, claim.tolerance), reason)


# any claim whose formula stands with it

_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "below": lambda ours, claimed: ours < claimed,
    "at least": lambda ours, claimed: ours >= claimed,
}


@_check
def by_formula(claim: Claim, evidence: Evidence) -> Finding:
    """A formula of the ledger, or one for each value of the claim, and what its names stand for.

    ``figures`` names a table of the ledger, ``counters`` a profiled kernel, ``opcodes`` what to
    count in a kernel's machine code. With a ``relation`` the claim's value is a limit.
    """
    given = claim.given
    try:
        names, where, origin = _names_of(claim, evidence)
        formulas = [given["formula"]] if isinstance(given["formula"], str) else given["formula"]
        ours = [float(evaluate_expression(text, names)) for text in formulas]
    except MissingName as error:
        return _pending(f"{error.name}, for {given['formula']}")
    claimed = claim.value if isinstance(claim.value, tuple) else (claim.number,)
    fits = _RELATIONS.get(
        given.get("relation", ""),
        lambda mine, theirs: judge(theirs, mine, claim.tolerance) == "holds",
    )
    holds = all(fits(mine, theirs) for mine, theirs in zip(ours, claimed, strict=True))
    own = "figures" in given and "counters" not in given and "opcodes" not in given
    told = "; ".join(
        f"{text if text.isidentifier() else _with_numbers(text, names)} = {mine:.4g}"
        for text, mine in zip(formulas, ours, strict=True)
    )
    code = f"the machine code of {given['opcodes']['candidate']}" if "opcodes" in given else ""
    return Finding(
        value=ours[0] if len(ours) == 1 else tuple(ours),
        verdict="holds" if holds else "inconsistent" if own else "refuted",
        reason=f"by {'its own figures' if own else where or code}: {told}",
        origin=origin,
        where=where,
    )


def _names_of(
    claim: Claim, evidence: Evidence
) -> tuple[dict[str, Quantity | None], str, Literal["computed", "recorded"]]:
    """What the names of a formula stand for, where it was measured, and the word for that.

    Raises:
        MissingName: counters that nobody recorded, or machine code that is not there.
    """
    given = claim.given
    table = evidence.figures[given["figures"]] if "figures" in given else {}
    names: dict[str, Quantity | None] = {
        name: value for name, value in table.items() if isinstance(value, (int, float))
    }
    where = ""
    if "counters" in given:
        asked = given["counters"]
        workload = Workload.parse(asked["workload"])
        record = _profiled(evidence, asked["gpu"], workload).get(asked["candidate"])
        if record is None or record.counters is None:
            raise MissingName(f"the counters of {asked['candidate']} on {workload}")
        names |= record.counters.values
        where = describe_record(record)
    if "opcodes" in given:
        asked = given["opcodes"]
        names |= _count_opcodes(asked["candidate"], asked["gpu"], evidence.workload, asked["named"])
    return names, where, "recorded" if where else "computed"


def _count_opcodes(
    candidate: str, gpu: str, workload: Workload, named: Mapping[str, str]
) -> dict[str, int]:
    """How many instructions of a rung match each pattern, by name."""
    rung = load_rung(candidate)
    try:
        code = machine_code(rung, workload, load_gpu(gpu).limits)
    except LabError as error:
        raise MissingName(f"the machine code of {candidate}") from error
    texts = [one.text for sass in code.entries.values() for one in sass.executable]
    return {name: sum(bool(re.search(text, one)) for one in texts) for name, text in named.items()}


def _with_numbers(formula: str, names: Mapping[str, Quantity | None]) -> str:
    """A formula with the values of its names in their places."""

    def value_of(match: re.Match[str]) -> str:
        value = names.get(match[0])
        return match[0] if value is None else f"{value:g}"

    return re.sub(r"[A-Za-z_]\w*", value_of, formula)


# the headline


@_check
def speedup_over_sdpa(claim: Claim, evidence: Evidence) -> Finding:
    """The published ratio, and the ratio to SDPA as the author timed it later, fairly."""
    steps, fix = evidence.figures["ladder"], evidence.figures["correction"]
    printed = steps["sdpa_ms"] / steps["v3_ms"]
    fair = fix["sdpa_gqa_us"] / fix["v3_us"]
    verdict = judge(claim.number, fair, claim.tolerance)
    if verdict != "holds" and judge(claim.number, printed, claim.tolerance) == "holds":
        verdict = "misattributed"
    return _computed(
        fair,
        verdict,
        f"{printed:.2f}x is over SDPA with a copy of the KV heads in the timed call; over "
        f"SDPA with grouped heads, as the author found later, it is {fair:.2f}x",
    )


@_check
def count_versions(claim: Claim, evidence: Evidence) -> Finding:
    """Versions in the published table."""
    versions = [name for name in evidence.figures["ladder"] if _is_version(name)]
    return _judged(claim, len(versions), f"the table has v0 to v{len(versions) - 1}")


@_check
def count_reverts(claim: Claim, evidence: Evidence) -> Finding:
    """Versions of the published table that are slower than the best one before them."""
    ladder = evidence.figures["ladder"]
    best, slower = math.inf, []
    for name in filter(_is_version, ladder):
        ms = min(ladder[name], ladder.get(name.replace("_ms", "_prefetch_ms"), math.inf))
        if ms > best:
            slower.append(name.removesuffix("_ms"))
        best = min(best, ms)
    told = " and ".join(slower) or "none"
    return _judged(claim, len(slower), f"slower than the best one before: {told}")


def _is_version(name: str) -> bool:
    return name[0] == "v" and name.removesuffix("_ms")[1:].isdigit()


@_check
def kept_in_history(claim: Claim, evidence: Evidence) -> Finding:
    """The commits of the repository that the ledger names, beside what was slower in the table."""
    found = evidence.figures["history"]
    kept = [name for name, one in found.items() if name != "source" and len(set(one.values())) == 2]
    told = "; ".join(
        f"{name} {found[name]['tried']}, taken back in {found[name]['reverted']}" for name in kept
    )
    return _judged(claim, len(kept), f"the repository's history has {told}")


@_check
def heads_of_model(claim: Claim, evidence: Evidence) -> Finding:
    """The table of the model's own paper."""
    paper = evidence.figures["llama3"]
    ours = (paper["num_qo_heads"], paper["num_kv_heads"], paper["dim"] / paper["num_qo_heads"])
    same = tuple(claim.value) == ours if isinstance(claim.value, tuple) else False
    return _computed(
        ours,
        "holds" if same else "refuted",
        f"the paper's table gives {ours[0]} and {ours[1]} heads, and {paper['dim']} dims over "
        f"{ours[0]} heads are {ours[2]:.0f}",
    )


# times of the card that the source used


@_check
def time_on_their_card(claim: Claim, evidence: Evidence) -> Finding:
    """A published time against its floor, and against a record of our design on the same card."""
    workload = Workload.parse(claim.given["workload"])
    to_us = {"us": 1.0, "ms": 1e3}[claim.unit]
    floor = _low_bit_floor_us(claim, evidence, workload) / to_us
    if claim.number < floor:
        return _computed(
            floor,
            "refuted",
            "it is below the floor: these bytes take longer at the card's peak rate",
        )
    given = claim.given
    found = _records_of(evidence, given["gpu"], given["candidate"], workload, given.get("knobs"))
    if not found:
        possible = f", and possible, at {claim.number / floor:.1f} times its floor" if floor else ""
        kind, _, name = claim.given["candidate"].rpartition(":")
        command = f"labtools record r03 --baseline {name}" if kind else f"labtools record {name}"
        command += "".join(f" -k {knob}={value}" for knob, value in given.get("knobs", {}).items())
        return Finding(
            verdict="possible",
            reason=f"it is of an {load_gpu(claim.given['gpu']).title}{possible}. On such a card, "
            f"{command} makes the record that decides",
        )
    ours = found[0].median_us / to_us
    return Finding(
        value=ours,
        verdict=judge(claim.number, ours, claim.tolerance),
        reason="our rung of the same idea on the same kind of card",
        origin="recorded",
        where=describe_record(found[0]),
    )


def _low_bit_floor_us(claim: Claim, evidence: Evidence, workload: Workload) -> float:
    """Least time of the bytes that a candidate reads, microseconds; INT8 and INT4 read fewer."""
    scheme, name = None, claim.given["candidate"]
    if Variant(name).is_rung:
        scheme = load_rung(name).scheme(workload, claim.given.get("knobs"))
    moved = workload.minimal_bytes
    if scheme is not None:
        moved += scheme.stored_bytes(workload) - workload.kv_bytes
    if scheme is not None and moved <= evidence.card.l2_bytes:
        return 0.0  # it may come from the L2 if the same buffers are read again and again
    return moved / evidence.dram_gb_per_s / 1e3


@_check
def time_of_sdpa(claim: Claim, evidence: Evidence) -> Finding:
    """SDPA's published time against the bytes of the copy that was timed with it."""
    floor_ms = floors(evidence.workload, evidence.card).time_us / 1e3
    copy_ms = _copied_bytes(evidence.workload) / evidence.dram_gb_per_s / 1e6
    return _copy_finding(claim, floor_ms, copy_ms, "misattributed")


@_check
def time_of_expanded(claim: Claim, evidence: Evidence) -> Finding:
    """The corrected time of SDPA with the copy, against the first one of the same thing."""
    return _judged(
        claim,
        1e3 * evidence.figures["ladder"]["sdpa_ms"],
        "it is the headline's SDPA again, this time with the copy named",
    )


def _copied_bytes(workload: Workload) -> float:
    """Read the cache, write it once a query head of the group, read what was written."""
    return workload.kv_bytes * (1 + 2 * workload.group_size)


def _copy_finding(claim: Claim, floor_ms: float, copy_ms: float, of_copy: Verdict) -> Finding:
    """A time near the attention's floor is attention's; one that the copy's bytes fill is not."""
    share = copy_ms / claim.number
    if claim.number < floor_ms:
        verdict: Verdict = "refuted"
    else:
        verdict = of_copy if 0.5 < share <= 1 else "holds"
    return _computed(
        copy_ms,
        verdict,
        f"the bytes of that copy take {copy_ms:.2f} ms at the peak rate, "
        f"{share:.0%} of it; attention's own bytes take {floor_ms:.2f} ms",
    )


@_check
def time_of_repair(claim: Claim, evidence: Evidence) -> Finding:
    """The repaired split's rate must stay below the card's peak."""
    rate = evidence.workload.kv_bytes / claim.number / 1e3
    peak = evidence.dram_gb_per_s
    return _computed(
        None,
        "holds" if rate <= peak else "refuted",
        f"it reads K and V at {rate:.0f} GB/s, {rate / peak:.0%} of the peak",
    )


@_check
def same_as_before(claim: Claim, evidence: Evidence) -> Finding:
    """A time that was published twice."""
    other = {
        "correction.v3_us": 1e3 * evidence.figures["ladder"]["v3_ms"],
        "repair.sdpa_gqa_us": evidence.figures["correction"]["sdpa_gqa_us"],
    }[str(claim.figure)]
    return _judged(claim, other, "the same thing was published twice")


@_check
def saving_of_v2(claim: Claim, evidence: Evidence) -> Finding:
    """The difference of the two published times."""
    steps = evidence.figures["ladder"]
    ours = 1e3 * (steps["v1_prefetch_ms"] - steps["v2_ms"])
    return _judged(claim, ours, "the difference of the two published times")


@_check
def prediction_of_v2(claim: Claim, evidence: Evidence) -> Finding:
    """The prediction against the measurement, by the source's own rule."""
    steps, rule = evidence.figures["ladder"], evidence.figures["headline"]["rule"]
    ours = 1e3 * (steps["v1_prefetch_ms"] - steps["v2_ms"])
    factor = max(ours / claim.number, claim.number / ours)
    return _computed(
        ours,
        "direction only" if factor < rule else "inconsistent",
        f"the right sign, and off by {factor:.1f}; its own rule draws the line at {rule:g}",
    )


@_check
def data_sheet(claim: Claim, evidence: Evidence) -> Finding:
    """A field of a data sheet."""
    sheet = load_gpu(claim.given["gpu"])
    return _judged(
        claim, float(getattr(sheet, claim.given["field"])), f"the data sheet of {sheet.title}"
    )


# the mechanism


@_check
def gain_of_one_warp(claim: Claim, evidence: Evidence) -> Finding:
    """The published times before and after, and whether a lane's loads became wider as well."""
    steps, given = evidence.figures["ladder"], claim.given
    gain = steps["v2_ms"] / steps["v3_ms"]
    verdict = judge(claim.number, gain, claim.tolerance)
    row = evidence.workload.head_dim * 2
    before, after = row // given["threads_before"], row // given["threads_after"]
    if verdict == "holds" and before != after:
        verdict = "incomplete"
    return _computed(
        gain,
        verdict,
        f"v2 over v3, as published; with the threads of a block a lane's load of a row went from "
        f"{before} to {after} bytes, which is a second change",
    )


def _achieved(evidence: Evidence, warps_a_block: int) -> float:
    """Warps that the grid gives an SM over those that it could hold."""
    blocks = evidence.workload.batch * evidence.workload.num_qo_heads
    card = evidence.card
    return blocks * warps_a_block / card.sm_count / card.max_warps_per_sm


def _occupancy_finding(claim: Claim, evidence: Evidence) -> Finding:
    threads, registers = claim.given["threads"], claim.given["registers"]
    achieved = _achieved(evidence, threads // 32)
    own = occupancy(evidence.card, threads, registers, 0).theoretical
    next_to_it = occupancy(_NEIGHBOUR, threads, registers, 0).theoretical
    verdict = judge(claim.number, achieved, claim.tolerance)
    close = [judge(claim.number, other, claim.tolerance) == "holds" for other in (own, next_to_it)]
    if verdict != "holds" and any(close):
        verdict = "misattributed"
    return _computed(
        achieved,
        verdict,
        f"the grid fills {achieved:.1%}; the limit is {own:.0%} on this card and "
        f"{next_to_it:.0%} on its neighbour, {load_gpu(_NEIGHBOUR).title}",
    )


@_check
def occupancy_before(claim: Claim, evidence: Evidence) -> Finding:
    """Achieved and theoretical occupancy of the blocks of four warps."""
    return _occupancy_finding(claim, evidence)


@_check
def occupancy_after(claim: Claim, evidence: Evidence) -> Finding:
    """Achieved and theoretical occupancy of the blocks of one warp."""
    return _occupancy_finding(claim, evidence)


def _batches_of_whole_sms(evidence: Evidence) -> list[int]:
    """The published batches, smallest first, at which every block has an SM to itself."""
    heads, sms = evidence.workload.num_qo_heads, evidence.card.sm_count
    return [one for one in evidence.figures["ladder"]["by_batch"]["batch"] if one * heads <= sms]


def _cycles_of_rows(evidence: Evidence) -> list[float]:
    """Cycles between two rows, batch by batch, from the published times of v3."""
    clock = evidence.card.boost_clock_mhz
    times_ms = evidence.figures["ladder"]["by_batch"]["v3_ms"]
    return [ms * 1e3 * float(clock or math.nan) / evidence.workload.kv_len for ms in times_ms]


@_check
def cycles_of_a_row(claim: Claim, evidence: Evidence) -> Finding:
    """The published times over the rows, in cycles of the boost clock."""
    low, high = _pair(claim)
    batches = _batches_of_whole_sms(evidence)
    cycles = _cycles_of_rows(evidence)
    ours = min(cycles), max(cycles[: len(batches)])
    if low <= ours[0] and ours[1] <= high:
        verdict: Verdict = "holds"
    elif ours[0] <= high and low <= ours[1]:
        verdict = "slip"
    else:
        verdict = "refuted"
    return _computed(
        ours,
        verdict,
        f"{ours[0]:.0f} to {ours[1]:.0f} from the published times at batch {batches[0]} to "
        f"{batches[-1]}, "
        f"{ours[0] / high:.1f} times the upper figure: a load's latency is in it",
    )


@_check
def own_rule(claim: Claim, evidence: Evidence) -> Finding:
    """The rule applied to the guide's own chain."""
    high = evidence.figures["guide"]["chain_cycles_high"]
    factor = min(_cycles_of_rows(evidence)) / high
    return _computed(
        factor,
        "inconsistent" if factor > claim.number else "holds",
        f"a rule of thumb; by it the guide's own figure for the chain, off by "
        f"{factor:.1f}, was not understood",
    )


_LOADS = "long_scoreboard"
_STALL = re.compile(r"stall_(\w+)_cycles")
_NOT_WAITING = ("selected", "not_selected")


def _waits(record: Record) -> dict[str, float]:
    """By reason, the cycles that a warp of a profiled record waits between two instructions."""
    values = record.counters.values if record.counters else {}
    return {
        match[1]: value
        for name, value in values.items()
        if (match := _STALL.fullmatch(name)) and value is not None
        if match[1] not in _NOT_WAITING
    }


def _profiled(evidence: Evidence, gpu: str, workload: Workload) -> dict[str, Record]:
    """Of each shipped rung of the published ladder, the newest record with counters."""
    found: dict[str, Record] = {}
    records = select(evidence.records, gpu=gpu, workload=workload, kind="rung", shipped=True)
    for record in at_default_knobs(with_counters(records)):
        if record.candidate.startswith("r0") and _waits(record):
            found.setdefault(record.candidate, record)
    return dict(sorted(found.items()))


@_check
def bound_of_ladder(claim: Claim, evidence: Evidence) -> Finding:
    """The share of the rungs that wait longer for their own instructions than for loads.

    A chain of arithmetic, as the guide counts it, shows as waits for instructions, shared memory
    and barriers; a load that is on its way is another wait.
    """
    workload = Workload.parse(claim.given["workload"])
    profiled = _profiled(evidence, claim.given["gpu"], workload)
    if not profiled:
        return _pending(f"counters of the ladder's rungs on {workload}")
    by_loads = {
        name: waits.get(_LOADS, 0.0) / sum(waits.values())
        for name, record in profiled.items()
        if (waits := _waits(record))
    }
    share = sum(part < 0.5 for part in by_loads.values()) / len(by_loads)
    told = ", ".join(f"{name.split('_')[0]} {part:.0%}" for name, part in by_loads.items())
    return Finding(
        value=share,
        verdict="holds" if share > claim.number else "refuted",
        reason=f"the part of its waiting that is for loads, by its counters: {told}",
        origin="recorded",
        where=describe_records(profiled.values()),
    )


@_check
def share_of_waiting(claim: Claim, evidence: Evidence) -> Finding:
    """The part of a kernel's waiting that its counters put down to what is named."""
    workload = Workload.parse(claim.given["workload"])
    record = _profiled(evidence, claim.given["gpu"], workload).get(claim.given["candidate"])
    if record is None:
        return _pending(f"counters of {claim.given['candidate']} on {workload}")
    waits = _waits(record)
    parts = {name: value / sum(waits.values()) for name, value in waits.items()}
    share = sum(parts.get(name, 0.0) for name in claim.given["stalls"])
    return Finding(
        value=share,
        verdict="holds" if share > claim.number else "refuted",
        reason=f"of their waiting {share:.0%} is {claim.given['called']} and "
        f"{parts.get(_LOADS, 0.0):.0%} for loads, by the counters of {record.candidate}",
        origin="recorded",
        where=describe_record(record),
    )


@_check
def backend_of_sdpa(claim: Claim, evidence: Evidence) -> Finding:
    """Which named backend gives the default's output, by the errors of both."""
    workload, gpu = Workload.parse(claim.given["workload"]), claim.given["gpu"]
    records = measured_together(select(evidence.records, gpu=gpu, workload=workload))
    default = next((one for one in records if one.candidate == "baseline:sdpa"), None)
    if default is None:
        return _pending(f"SDPA beside its named backends on {workload}")
    same = [one.name for one in same_output(default, records) if one.name.startswith("sdpa_")]
    return Finding(
        verdict="holds" if set(same) & set(claim.given["named"]) else "refuted",
        reason=f"on this card the default's error is that of {' and '.join(same) or 'none'} "
        "to the last digit; on the source's card nothing says which it was",
        origin="recorded",
        where=describe_record(default),
    )


# the correction and the low-bit kernels


@_check
def factor_of_correction(claim: Claim, evidence: Evidence) -> Finding:
    """The two corrected times."""
    fix = evidence.figures["correction"]
    return _judged(claim, fix["v3_us"] / fix["sdpa_gqa_us"], "the two corrected times")


@_check
def bytes_of_cache(claim: Claim, evidence: Evidence) -> Finding:
    """Codes and fp16 scales of K and V, with what the source says shares a scale."""
    workload, bits = evidence.workload, claim.given["bits"]
    if bits == 16:
        return _judged(claim, workload.kv_bytes / MIB, "the shape of K and V")
    k, v = (TensorScheme(bits, **claim.given[name]) for name in ("k", "v"))
    ours = Scheme("as published", k, v).kv_bytes(workload) / MIB
    codes = workload.kv_bytes * bits / 16 / MIB
    told = " and ".join(
        f"{name} a channel over {part.group} tokens" if part.axis == "channel" else f"{name} a row"
        for name, part in (("K", k), ("V", v))
    )
    return _judged(claim, ours, f"{codes:.0f} MiB of codes, and one fp16 scale for {told}")


@_check
def shrinking(claim: Claim, evidence: Evidence) -> Finding:
    """Bytes before over bytes after."""
    low = evidence.figures["low_bit"]
    return _judged(
        claim,
        low["fp16_mib"] / low["int8_mib"],
        f"{low['fp16_mib']} MiB before, scales counted after",
    )


@_check
def gain_of_int8(claim: Claim, evidence: Evidence) -> Finding:
    """The published times, and whether the L2 held one cache and not the other."""
    low, steps = evidence.figures["low_bit"], evidence.figures["ladder"]
    gain = steps["v3_ms"] / low["int8_ms"]
    l2_mib = evidence.card.l2_bytes / MIB
    verdict = judge(claim.number, gain, claim.tolerance)
    if verdict == "holds" and low["int8_mib"] < l2_mib < low["fp16_mib"]:
        verdict = "incomplete"
    return _computed(
        gain,
        verdict,
        f"the {l2_mib:.0f} MiB L2 holds the {low['int8_mib']} MiB cache and not the "
        f"{low['fp16_mib']} MiB one, so where the bytes come from may have changed as well",
    )


@_check
def chain_of_int4(claim: Claim, evidence: Evidence) -> Finding:
    """The part of the time that INT4 saves which the model finds outside of waits for memory.

    On the source's card, with warm caches, since the source reads the same buffers in every call.
    """
    given, card = claim.given, evidence.card
    workload = evidence.workload.replace(cache_state="warm")
    knobs = given["second_knobs"]
    rung = load_rung(given["second"])
    try:
        before = forecast(load_rung(given["first"]), workload, card)
        after = forecast(rung, workload, card, knobs)
    except LabError as error:
        return Finding(verdict="pending", reason=f"it cannot be forecast here: {error.what}")
    (memory, rest), (memory_after, rest_after) = (
        _cycles_of_a_row(made, workload) for made in (before, after)
    )
    share = (rest - rest_after) / (memory + rest - memory_after - rest_after)
    gain = before.time_us / after.time_us
    fits = rung.scheme(workload, knobs).stored_bytes(workload) <= card.l2_bytes
    verdict: Verdict = "refuted"
    if _direction(gain) > 0:
        verdict = "holds" if share > claim.number else "misattributed"
    return Finding(
        value=share,
        verdict=verdict,
        reason=f"the forecast{'' if after.calibrated else ', uncalibrated for this card,'} is "
        f"{gain:.2f}x as fast; of a row's cycles the waits for memory go from {memory:.0f} to "
        f"{memory_after:.0f}, all others from {rest:.0f} to {rest_after:.0f}; the INT4 cache "
        f"{'fits' if fits else 'does not fit'} the L2",
        origin="forecast",
        where=card.title,
    )


def _cycles_of_a_row(made: Forecast, workload: Workload) -> tuple[float, float]:
    """Cycles that a row waits for memory, and those of everything else."""
    memory = sum(one.cycles for one in made.stack if one.name.startswith("memory"))
    total = sum(one.cycles for one in made.stack)
    return memory / workload.kv_len, (total - memory) / workload.kv_len


# the splits


@_check
def more_sms(claim: Claim, evidence: Evidence) -> Finding:
    """SMs that had no block before the split."""
    blocks = evidence.workload.batch * evidence.workload.num_qo_heads
    sms = evidence.card.sm_count
    return _judged(
        claim,
        sms / min(blocks, sms),
        f"at batch {evidence.workload.batch} there are {blocks} blocks for {sms} SMs before any "
        "split, so every SM had work; what grew is the number of blocks",
    )


@_check
def split_by_batch(claim: Claim, evidence: Evidence) -> Finding:
    """The published times at the headline's batch."""
    steps = evidence.figures["ladder"]
    return _judged(claim, steps["v3_ms"] / steps["v4_ms"], "v3 over v4, as published")


@_check
def rate_left(claim: Claim, evidence: Evidence) -> Finding:
    """The rate at which the kernel read K and V before the split, as a share of the peak."""
    rate = evidence.workload.kv_bytes / evidence.figures["ladder"]["v3_ms"] / 1e6
    share = rate / evidence.dram_gb_per_s
    return _judged(
        claim,
        share,
        f"it read K and V at {rate:.0f} GB/s of {evidence.dram_gb_per_s:.0f}, so most was left",
    )


@_check
def cost_of_a_call(claim: Claim, evidence: Evidence) -> Finding:
    """What the split added, batch by batch: the same at every batch is a cost of the call."""
    by_batch = evidence.figures["ladder"]["by_batch"]
    added = [1e3 * (b - a) for a, b in zip(by_batch["v3_ms"], by_batch["v4_ms"], strict=True)]
    batches = _batches_of_whole_sms(evidence)
    low, high = min(added[: len(batches)]), max(added[: len(batches)])
    constant = low > 0 and high / low < 1.1
    return _computed(
        low,
        "inconsistent" if constant and claim.number < low else "holds",
        f"batch {batches[0]} to {batches[-1]} pay {low:.0f} to {high:.0f} us more while the work "
        f"grows to {batches[-1] / batches[0]:g} times: "
        "something is paid once a call. That it is the allocation is an inference",
    )


@_check
def repaired_split(claim: Claim, evidence: Evidence) -> Finding:
    """The same author's later kernel: split, with loads in flight."""
    ours = evidence.figures["correction"]["v3_us"] / evidence.figures["repair"]["v6_us"]
    return _judged(claim, ours, "v3 over v6, as published: split-K with several rows in flight")


@_check
def cp_async(claim: Claim, evidence: Evidence) -> Finding:
    """The published times."""
    steps = evidence.figures["ladder"]
    return _judged(claim, steps["v3_ms"] / steps["v5_ms"], "v3 over v5, as published")


@_check
def hop_of_cp_async(claim: Claim, evidence: Evidence) -> Finding:
    """What asynchronous copies added to a row, from the published times, batch by batch."""
    by_batch = evidence.figures["ladder"]["by_batch"]
    to_cycles = 1e3 * float(evidence.card.boost_clock_mhz or math.nan) / evidence.workload.kv_len
    added = [
        (after - before) * to_cycles
        for before, after in zip(by_batch["v3_ms"], by_batch["v5_ms"], strict=True)
    ]
    low, high = min(added), max(added)
    same = judge(claim.number, low, claim.tolerance) == "holds"
    return _computed(
        low,
        "holds" if same else "inconsistent",
        f"by its own times a row took {low:.0f} to {high:.0f} cycles longer, of which such a hop "
        f"is {claim.number / high:.0%} to {claim.number / low:.0%}",
    )


# what our records say


@_check
def recorded_ratio(claim: Claim, evidence: Evidence) -> Finding:
    """Time of ``first`` over time of ``second`` on one GPU, paired within processes."""
    given = claim.given
    workload = Workload.parse(given["workload"])
    gpu = given.get("gpu", "h200")
    records = select(evidence.records, gpu=gpu, shipped=True, experiment=None)
    first, second = (
        Variant(given[side], given.get(f"{side}_knobs") or {}, given.get(f"{side}_as", ""))
        for side in ("first", "second")
    )
    try:
        found = pair(records, first, second, workload)
    except LabError:  # a rung that is not there has no records that belong to it
        found = None
    if found is None:
        both = " and ".join(
            one.candidate + (f" ({say_knobs(one.knobs)})" if one.knobs else "")
            for one in (first, second)
        )
        return _pending(f"{both} timed together on {workload}")
    return _ratio_finding(claim, *found)


def _ratio_finding(claim: Claim, above: Record, below: Record) -> Finding:
    found = paired_ratio(above, below)
    low, high = found.low, found.high
    margin = 1 + claim.tolerance
    ways = say_timed(above), say_timed(below)
    near = low <= claim.number * margin and claim.number / margin <= high
    if claim.number == 1.0:  # nothing changed, which the rule of predictions decides
        near = direction_of(found.ratio, (low, high)) == "same"
    if near:
        verdict: Verdict = "holds"
    elif _direction(claim.number) == _direction(found.ratio):
        verdict = "direction only"
    else:
        verdict = "refuted"
    return Finding(
        value=found.ratio,
        verdict=verdict,
        reason=f"{above.candidate}{_knobs(above)} {above.median_us:.1f} us, "
        f"{below.candidate}{_knobs(below)} {below.median_us:.1f} us, {found.processes} processes"
        + (f"; both by {ways[0]}" if ways[0] == ways[1] else f"; by {ways[0]}, and {ways[1]}"),
        origin="recorded",
        interval=(low, high),
        where=describe_record(above),
    )


def _direction(ratio: float) -> int:
    if 1 / SAME_WITHIN <= ratio <= SAME_WITHIN:
        return 0
    return 1 if ratio > 1 else -1


def _knobs(record: Record) -> str:
    """The knobs that differ from the defaults."""
    if record.kind != "rung":
        return ""
    usual = load_rung(record.candidate).resolve_knobs()
    changed = {name: value for name, value in record.knobs.items() if usual.get(name) != value}
    return f" ({say_knobs(changed)})" if changed else ""


def _pending(what: str) -> Finding:
    return Finding(verdict="pending", reason=f"there is no record yet: {what}")


def _records_of(
    evidence: Evidence,
    gpu: str,
    candidate: str,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
) -> list[Record]:
    """Records of a candidate with these knobs and the defaults of the others, newest first."""
    try:
        return timings_of(
            evidence.records, (candidate, knobs or {}), workload, gpu=gpu, shipped=True
        )
    except LabError:
        return []  # a rung that is not there has no records that belong to it


def _pair(claim: Claim) -> tuple[float, float]:
    if isinstance(claim.value, tuple) and len(claim.value) == 2:
        return float(claim.value[0]), float(claim.value[1])
    raise LabError(
        f"The claim {claim.id} needs two values.", f"it says {claim.value!r}", "correct claims.yml"
    )
