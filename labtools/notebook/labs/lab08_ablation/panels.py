"""What the bench says of a kernel with one method out, or two, from the recorded grid and the
opcode counts beside it. Nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labtools.optimize import attribution
from labtools.optimize.ablation import ablate_methods, ablate_pairs
from labtools.optimize.attribution import (
    Attribution,
    Interaction,
    MethodClass,
    Outcome,
    classify,
    outcome_of,
)
from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import Point
from labtools.optimize.loop import check_methods, proof_values
from labtools.optimize.method import WITHOUT, Method
from labtools.optimize.opcode_table import KernelCounts, OpcodeTable
from labtools.optimize.pick import launch_numbers
from labtools.optimize.sass_check import SassVerdict
from labtools.problem import timed_launches
from labtools.record.expressions import names_in

from ...tables import format_value

FOLLOWED = ("issued_instructions", "shared_read_turns")
"""Numbers of a proof that the forecast follows; the others were counted or compiled."""

MOST_ONE_SIDED, MOST_CHANGED = 8, 6
"""Opcodes that a list names: those that only one of the two kernels has, and those of both."""

OUTCOMES: Mapping[Outcome, str] = {
    "slower": "slower by the threshold or more",
    "same": "no difference that counts",
    "faster": "faster by the threshold or more",
    "open": "cannot be told",
}
"""What taking a method out may do; a reader guesses one of the first three."""

CLASS_WORDS: Mapping[MethodClass, str] = {
    "effective": "it is there, and its whole interval lies above the threshold",
    "ineffective": "it is there, and its whole interval lies below the threshold",
    "implementation_failed": "the machine code lacks what the method promises, whatever the time"
    " did",
    "undecided": "the measurement, or the proof, does not tell",
}


def say_outcome(found: Attribution) -> str:
    """What follows from where the interval lies."""
    said: Mapping[Outcome, str] = {
        "slower": "Decided: the whole interval lies above the threshold.",
        "faster": "Decided: the whole interval lies on the other side. The method harms.",
        "same": "Decided: the whole interval lies within the threshold. Nothing that counts.",
    }
    if (outcome := outcome_of(found)) in said:
        return said[outcome]
    if found.decided == "below":
        return "Decided that it does not help. Whether it harms is open."
    return "Undecided: the interval holds the threshold."


def say_factor(ratio: float) -> str:
    """A ratio of two times: three digits after the point below 2, two above."""
    return f"{ratio:.3f}" if ratio < 2 else f"{ratio:.2f}"


def say_interval(found: Attribution) -> str:
    """The factor of an effect, with the ends of its interval."""
    middle, low, high = (say_factor(1 + one) for one in (found.relative, found.low, found.high))
    return f"{middle} ({low} to {high})"


def say_percent(relative: float) -> str:
    """A relative effect with its sign."""
    return f"{100 * relative:+.1f} %"


def say_count(value: float | None) -> str:
    """A number of a kernel; a whole one, as most are, without a point."""
    whole = isinstance(value, float) and value.is_integer()
    return format_value(int(value) if whole and value is not None else value)


def _timed(found: Attribution) -> dict[str, Any]:
    """The numbers of an attribution, for the picture and in words."""
    ends = {"ratio": found.relative, "low": found.low, "high": found.high}
    said = {"said": say_interval(found), "percent": say_percent(found.relative)}
    return {**{name: round(1 + value, 4) for name, value in ends.items()}, **said}


def _numbers_of(
    bench: RecordedBench, point: Point, counts: KernelCounts | None
) -> list[tuple[str, str, float | None]]:
    """What is compared of two kernels: its name, where it comes from, its value if it has one."""
    entry, rung = bench.entry(point), bench.family.rung
    launches = timed_launches(rung.launches(bench.problem, bench.limits, dict(point.knobs)))
    largest = next((one for one in launches if one.entry == entry), launches[0])
    launched = launch_numbers(rung, point, bench.problem, bench.limits, entry)
    shared = counts.shared_bytes + largest.smem_bytes if counts else None
    of_code, number = bench.numbers(point), bench.grid.number(point)
    assert number is not None  # it has a time
    instructions = sum(counts.opcodes.values()) if counts else None
    return [
        ("registers per thread", "recorded", bench.grid.registers[number]),
        ("bytes spilled a thread", "recorded", bench.grid.spills[number]),
        ("instructions in the code", "recorded", instructions),
        ("shared memory per block, bytes", "computed", shared),
        ("threads per block", "computed", launched["threads"]),
        ("blocks", "computed", launched["blocks"]),
        ("launches of a call", "computed", launched["launches"]),
        ("instructions that a block issues", "forecast", of_code.get("issued_instructions")),
        ("turns of shared memory for one read", "forecast", of_code.get("shared_read_turns")),
    ]


def _change(bench: RecordedBench, table: OpcodeTable, point: Point, left: Point) -> dict[str, Any]:
    """How the machine code of the longest kernel changes when methods are taken out."""
    before, after = (
        table.codes.get(bench.code_hash(one) or "", {}).get(bench.entry(one) or "")
        for one in (point, left)
    )
    both = zip(_numbers_of(bench, point, before), _numbers_of(bench, left, after), strict=True)
    numbers = [
        [name, say_count(held), say_count(then), word] for (name, word, held), (*_, then) in both
    ]
    same = bench.code_hash(point) == bench.code_hash(left)
    if before is None or after is None:
        return {"same": same, "numbers": numbers, "known": False}
    differing = [
        (name, held, then)
        for name in {**before.opcodes, **after.opcodes}
        for held, then in [(before.opcodes.get(name, 0), after.opcodes.get(name, 0))]
        if held != then
    ]
    differing.sort(key=lambda one: (-abs(one[2] - one[1]), one[0]))
    one_sided = [one for one in differing if not (one[1] and one[2])][:MOST_ONE_SIDED]
    changed = [one for one in differing if one[1] and one[2]][:MOST_CHANGED]
    named = [list(one) for one in (*one_sided, *changed)]
    told = {"opcodes": named, "others": len(differing) - len(named)}
    return {"same": same, "numbers": numbers, "known": True, **told}


def proof_rows(
    bench: RecordedBench, method: Method, verdict: SassVerdict, point: Point, left: Point
) -> dict[str, Any]:
    """What was looked for in the machine code, and what was found.

    ``kind`` is ``signature`` or ``proof``; of ``rows`` each is a line or a number with its values
    with and without the method; ``said`` is what follows.
    """
    if method.signature:
        kind, note, without = "signature", verdict.note, dict(verdict.without)
        rows = [[text, str(count), say_count(without.get(text))] for text, count in verdict.found]
    else:
        kind, note = "proof", method.proof
        values, others = proof_values(bench, point), proof_values(bench, left)
        asked = sorted({name.removesuffix(WITHOUT) for name in names_in(method.proof_when)})
        rows = [[name, say_count(values.get(name)), say_count(others.get(name))] for name in asked]
    return {"kind": kind, "rows": rows, "said": str(verdict), "note": note}


def _out(bench: RecordedBench, table: OpcodeTable, point: Point, found: Attribution) -> Any:
    """What is shown of any removal, of one method or of two."""
    left = bench.family.read_key(found.without)
    return {
        **_timed(found),
        "time": f"{bench.time([left]).median_us(left):.2f}",
        "turns": bench.in_turns(point, left),
        "change": _change(bench, table, point, left),
    }


def _removal(
    bench: RecordedBench, table: OpcodeTable, point: Point, found: Attribution, verdict: SassVerdict
) -> dict[str, Any]:
    family = bench.family
    method = family.method(found.method)
    left = family.remove(point, found.method)
    kind = classify(found, verdict)
    return {
        **_out(bench, table, point, found),
        "goes": [family.method(name).title for name in family.dependents(point, found.method)],
        "outcome": outcome_of(found),
        "verdict": say_outcome(found),
        "class": kind.replace("_", " "),
        "why": CLASS_WORDS[kind],
        "proof": proof_rows(bench, method, verdict, point, left),
    }


def _together(single: Mapping[str, Attribution], met: Interaction) -> dict[str, Any]:
    """What two methods cost together, held against each alone."""
    first, second = (single[name].relative for name in met.methods)
    return {
        "alone": [say_percent(first), say_percent(second)],
        "sum": say_percent(first + second),
        "product": say_percent(met.product),
        "product_ratio": round(1 + met.product, 4),
        "outcome": "as" if met.additive else "less" if met.together < met.product else "more",
    }


def make_kernel(
    bench: RecordedBench, table: OpcodeTable, name: str, about: str, point: Point
) -> dict[str, Any]:
    """All that the bench shows of a kernel, as JSON can hold it.

    ``cells`` are what is shown with some of its ``methods`` out, by their numbers, ``3`` or
    ``3+5``. A pair that the grid does not have, or of which one method goes with the other, has no
    cell.
    """
    family = bench.family
    methods = family.methods_on(point)
    single = {one.method: one for one in ablate_methods(bench, point, methods)}
    pairs = {one.method: one for one in ablate_pairs(bench, point, methods)}
    verdicts = {one.method: one for one in check_methods(bench, point, methods)}
    place = {method: str(number) for number, method in enumerate(methods)}
    cells = {
        place[one]: _removal(bench, table, point, found, verdicts[one])
        for one, found in single.items()
    }
    for met in attribution.interactions(
        tuple(single.values()), tuple(pairs.values()), bench.least_effect()
    ):
        first, second = met.methods
        out = _out(bench, table, point, pairs[f"{first} + {second}"])
        cells[f"{place[first]}+{place[second]}"] = {**out, **_together(single, met)}
    return {
        "name": name,
        "about": about,
        "key": point.key,
        "time": f"{bench.time([point]).median_us(point):.2f}",
        "methods": [
            {name: getattr(family.method(one), name) for name in ("id", "title", "idea", "axis")}
            for one in methods
        ],
        "with": {  # methods that go with another: a pair of the two is the other alone
            place[one]: [place[other] for other in family.dependents(point, one)] for one in methods
        },
        "cells": cells,
    }


def identical_ratios(bench: RecordedBench) -> list[float]:
    """Time of a kernel over that of the same kernel under another name, of each pair."""
    return [
        round(attribution.ratio_of(second, first).ratio, 4) for first, second in bench.identical
    ]
