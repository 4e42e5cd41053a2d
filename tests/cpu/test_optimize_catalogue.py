"""The catalogue of the decode family: every method is a real toggle, and its proof appears with it.

Each method is compiled with it and without it, at r03's point and at a fast one, so that a
signature that says nothing of its method is found.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from devices import LIMITS, some_of

from labtools.optimize.budget import allocate
from labtools.optimize.code_numbers import executed_by
from labtools.optimize.family import Point, load_family
from labtools.optimize.gaps import counters_of_forecast, gaps_of_counters, gaps_of_forecast
from labtools.optimize.method import CODE_NAMES, Method
from labtools.optimize.pick import launch_numbers, pick_methods
from labtools.optimize.sass_check import check_sass, count_signature, judge_counts, prove
from labtools.predict import forecast
from labtools.problem import HEADLINE, load_rung
from labtools.record import RecordStore, select
from labtools.toolchain.listings import MachineCode, machine_code

FAMILY = load_family("tunable")
ENTRY = "decode_tunable"
FAST = FAMILY.read_key(
    "gqa=1 math=1 load=2 width=16 unroll=1 stages=3 swizzle=1 warps=4 split=4 merge=1"
)
MANY_ROWS = FAMILY.read_key(
    "gqa=1 load=2 width=16 rows=8 unroll=1 stages=3 warps=4 split=4 merge=1"
)
FIRST = {"compute.tensor_core", "memory.group_of_heads", "latency.split_sequences"}


def with_method(base: Point, method: Method) -> Point:
    """The base, with the method in its default form."""
    return base if FAMILY.has(base, method.id) else FAMILY.apply(base, [method.id])


def base_of(method: Method) -> Point:
    """A point at which the method means something."""
    return MANY_ROWS if method.id == "compute.tail_apart" else FAMILY.start


@cache
def code_at(point: Point) -> MachineCode:
    return machine_code(FAMILY.rung, HEADLINE, LIMITS, point.knobs)


def numbers_at(point: Point, of_code: bool) -> dict[str, float | None]:
    found = launch_numbers(FAMILY.rung, point, HEADLINE, LIMITS)
    if of_code:
        code = code_at(point)
        found |= executed_by(FAMILY.rung, HEADLINE, LIMITS, point.knobs, code, ENTRY).numbers
    return found


def proof_at(method: Method, base: Point) -> bool | None:
    on = with_method(base, method)
    of_code = any(name in method.proof_when for name in CODE_NAMES)
    without = numbers_at(FAMILY.remove(on, method.id), of_code)
    return prove(method, numbers_at(on, of_code), without).said


# ---------------------------------------------------------------------------------- its extent


def test_there_are_enough_methods_on_three_axes():
    switched = FAMILY.switchable
    assert len(FAMILY.methods) >= 24
    assert len(switched) >= 16
    assert min(Counter(one.axis for one in FAMILY.methods).values()) >= 5
    places = [(one.axis, one.priority) for one in FAMILY.methods]
    assert len(set(places)) == len(places)


def test_every_method_of_the_knobs_is_on_somewhere_in_the_grid():
    on = {name for point in FAMILY.grid() for name in FAMILY.methods_on(point)}
    assert on == {one.id for one in FAMILY.switchable}


# ----------------------------------------------------------------------------------- its proofs

SIGNED = [one for one in FAMILY.switchable if one.signature]
PROVED = [one for one in FAMILY.switchable if not one.signature]


@pytest.mark.parametrize("method", some_of(SIGNED, 2), ids=lambda one: one.id)
def test_a_signature_appears_with_its_method(method):
    """At r03's point, and where most other methods are on too."""
    for base in (base_of(method), FAST):
        on = with_method(base, method)
        off = FAMILY.remove(on, method.id)
        (there,) = check_sass(FAMILY, [method.id], code_at(on), code_at(off), ENTRY)
        assert there.verdict == "present", (on.key, there)
        (gone,) = check_sass(FAMILY, [method.id], code_at(off), code_at(on), ENTRY)
        assert gone.verdict == "absent", (off.key, gone)


@pytest.mark.parametrize("method", some_of(PROVED, 3), ids=lambda one: one.id)
def test_a_method_without_a_signature_has_its_proof(method):
    assert proof_at(method, base_of(method)) is True
    on = with_method(base_of(method), method)
    of_code = any(name in method.proof_when for name in CODE_NAMES)
    same = numbers_at(on, of_code)
    assert prove(method, same, same).said is False


def test_what_the_compiler_makes_nothing_of_is_not_proved():
    """At the fast point the block size changes no register, and the swizzle ends the conflicts."""
    assert proof_at(FAMILY.method("latency.known_block_size"), FAST) is False
    assert proof_at(FAMILY.method("memory.swizzle"), FAST) is True
    plain = FAMILY.remove(FAST, "memory.swizzle")
    assert numbers_at(plain, True)["shared_read_turns"] > 16
    assert numbers_at(FAST, True)["shared_read_turns"] < 5


PAIRED = [one for one in FAMILY.methods if one.pair is not None]


@pytest.mark.parametrize("method", PAIRED, ids=lambda one: one.id)
def test_two_rungs_show_their_method(method):
    assert method.pair is not None
    counts, numbers = [], []
    for name in method.pair:
        rung = load_rung(name)
        assert rung.id == name
        made = forecast(rung, HEADLINE, "h200")
        code = machine_code(rung, HEADLINE, LIMITS)
        counts.append(count_signature(method, code.entries[made.main_launch.entry]))
        point = Point(name, rung.resolve_knobs())
        numbers.append(launch_numbers(rung, point, HEADLINE, LIMITS))
    without, found = counts
    if method.signature:
        assert judge_counts(method, found, without, "").verdict == "present", (found, without)
        assert judge_counts(method, without, found, "").verdict == "absent"
    else:
        assert prove(method, numbers[1], numbers[0]).said is True
        assert prove(method, numbers[0], numbers[1]).said is False


# --------------------------------------------------------------------------------- its triggers


def test_from_the_counters_of_r03_what_helps_most_fires_first():
    """Its record was made with every counter; one method an axis follows from its gaps."""
    records = select(RecordStore().load(), gpu="h200", candidate="r03", workload=HEADLINE)
    at_default = {"unroll": 4, "launch_bounds": 1}
    values = next(
        dict(one.counters.values)
        for one in records
        if one.every_knob == at_default
        and one.counters
        and one.counters.values.get("pipe_fma_pct") is not None
    )
    gaps = gaps_of_counters(values)
    assert gaps.missing == ()
    found = pick_methods(FAMILY, FAMILY.start, gaps, allocate(gaps), values, HEADLINE, LIMITS)
    assert set(found.methods) == FIRST
    assert all(one.strength is not None for one in found.considered)


def test_a_forecast_alone_leads_to_the_same_methods():
    made = forecast(FAMILY.rung, HEADLINE, "h200", FAMILY.start.knobs)
    gaps, values = gaps_of_forecast(made), counters_of_forecast(made)
    found = pick_methods(FAMILY, FAMILY.start, gaps, allocate(gaps), values, HEADLINE, LIMITS)
    assert set(found.methods) == FIRST
    assert all(one.strength is not None for one in found.considered)


def test_conflicts_call_for_the_swizzle():
    plain = FAMILY.remove(FAST, "memory.swizzle")
    made = forecast(FAMILY.rung, HEADLINE, "h200", plain.knobs)
    gaps, values = gaps_of_forecast(made), counters_of_forecast(made)
    found = pick_methods(FAMILY, plain, gaps, allocate(gaps), values, HEADLINE, LIMITS)
    assert "memory.swizzle" in found.methods
