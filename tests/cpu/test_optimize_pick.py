"""What a round takes, what the machine code says of it, and which class follows."""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from devices import LIMITS
from test_optimize_family import EARLY, LARGER, ROWS, SHUFFLES, WIDE, stranger

from labtools.optimize.attribution import classify
from labtools.optimize.budget import Budget
from labtools.optimize.code_numbers import executed_by
from labtools.optimize.family import Point, load_family
from labtools.optimize.gaps import Gaps
from labtools.optimize.pick import (
    Considered,
    MethodChecks,
    Pick,
    Retry,
    Taken,
    launch_numbers,
    pick_methods,
    rank_methods,
    retried_form,
    retried_settings,
    why_not_again,
)
from labtools.optimize.sass_check import Proof, ProofValue, SassVerdict, check_sass, prove
from labtools.problem import LabError, Rows
from labtools.toolchain.listings import MachineCode, machine_code

PROBLEM = Rows(8192, 4096)
GAPS = Gaps(0.9, 0.5, 0.6, "counters", {})


def slots(compute=0, memory=0, latency=0) -> Budget:
    return Budget(compute, memory, latency, "largest-remainder", "")


def choose(
    budget,
    *,
    point=ROWS.start,
    taken=None,
    gaps=GAPS,
    family=ROWS,
    problem=PROBLEM,
    refuses=None,
    pass_on=False,
    **more,
):
    limits = dataclasses.replace(LIMITS, **more)
    return pick_methods(
        *(family, point, gaps, budget, {}, problem, limits, taken, refuses), pass_on=pass_on
    )


def why(found: Pick, method: str):
    return next(one for one in found.considered if one.method == method)


# -------------------------------------------------------------------------------------- pick


def test_one_slot_goes_by_priority_and_two_by_strength():
    assert choose(slots(latency=1)).methods == (SHUFFLES,)
    both = choose(slots(latency=2))
    assert set(both.methods) == {SHUFFLES, EARLY}
    assert both.unused == 0
    assert [one.method for one in both.considered] == [one.id for one in ROWS.methods]


def test_what_is_as_strong_as_the_first_is_drawn_and_mostly_the_first():
    passed = MethodChecks(True, True, True, True)
    known = {"first": 0.90, "alike": 0.97, "weaker": 0.5, "stronger": 1.0}
    some = [
        Considered(name, "latency", place, strength, passed, False, "")
        for place, (name, strength) in enumerate(known.items(), start=1)
    ]
    leads = Counter(rank_methods(some, "priority", random.Random(n))[0].method for n in range(400))
    assert set(leads) == {"first", "alike"}, "a difference of a tenth is one"
    assert 2.5 < leads["first"] / leads["alike"] < 6
    leads = Counter(rank_methods(some, "strength", random.Random(n))[0].method for n in range(400))
    assert set(leads) == {"stronger", "alike"}
    by_priority = [one.method for one in rank_methods(some, "priority")]
    assert by_priority == list(known)
    assert next(one.method for one in rank_methods(some, "strength")) == "stronger"


def test_strength_decides_between_two_for_two_slots(tmp_path):
    """The one of lower priority, but with the stronger trigger, comes before the other."""
    weaker = ("ramp(latency_gap, 0.1, 0.5)", "0.2")
    third = (
        "[[method]]\n",
        '[[method]]\nid = "latency.third"\naxis = "latency"\ntitle = "t"\nidea = "i"\n'
        'priority = 3\ntrigger = "0.9"\nproof = "p"\noff = { threads = 64 }\n'
        "on = [{ threads = 256 }]\n\n[[method]]\n",
    )
    family = load_family(stranger(tmp_path, third, weaker))
    found = choose(slots(latency=2), family=family)
    assert found.methods == ("latency.third", EARLY)
    assert why(found, SHUFFLES).why == "others of its axis stand before it"
    assert choose(slots(latency=1), family=family).methods == (SHUFFLES,)


@pytest.mark.parametrize("listed", ["effective", "ineffective"])
def test_what_is_settled_is_not_taken_again(listed):
    found = choose(slots(latency=1), taken=Taken(**{listed: (SHUFFLES,)}))
    assert found.methods == (EARLY,)
    assert why(found, SHUFFLES).checks.not_taken is False
    assert choose(slots(latency=1), taken=Taken(undecided=(SHUFFLES,))).methods == (SHUFFLES,)
    on = ROWS.apply(ROWS.start, [SHUFFLES])
    assert choose(slots(latency=1), point=on).methods == (EARLY,)


def test_a_failed_method_needs_an_acknowledgement_and_takes_another_form():
    failed = {EARLY: (0,)}
    silent = choose(slots(latency=2), taken=Taken(failed=failed))
    assert silent.methods == (SHUFFLES,)
    assert silent.unused == 1
    said = Taken(failed=failed, acknowledged={EARLY: Retry(form=1, reason="a prefetch")})
    again = choose(slots(latency=2), taken=said)
    assert EARLY in again.methods
    assert again.forms == {EARLY: 1}


@pytest.mark.parametrize(
    ("retry", "enough"),
    [
        (Retry(form=1), True),
        (Retry(knob="early", value=2), True),
        (Retry(knob="threads", value=256), True),
        (Retry(form=0), False),
        (Retry(form=7), False),
        (Retry(knob="early", value=1), False),
        (Retry(reason="once more, with form 1 and early=2"), False),
    ],
)
def test_a_retry_gives_a_form_that_is_left_or_another_knob(retry, enough):
    taken = Taken(failed={EARLY: (0,)}, acknowledged={EARLY: retry})
    found = choose(slots(latency=2), taken=taken)
    assert (EARLY in found.methods) == enough
    assert enough == (why_not_again(ROWS.method(EARLY), taken) == "")


def test_a_failed_method_that_is_on_does_not_come_with_another():
    """It is on in the form that was dropped; the first slot is another method's."""
    point = ROWS.point({"early": 1})
    taken = Taken(failed={EARLY: (0,)}, acknowledged={EARLY: Retry(knob="early", value=2)})
    found = choose(slots(latency=2), point=point, taken=taken, pass_on=True)
    assert found.methods == (SHUFFLES, EARLY)
    assert found.forms == {EARLY: 1}


def test_whether_a_pick_can_be_tried_is_asked_of_its_forms():
    taken = Taken(failed={EARLY: (0,)}, acknowledged={EARLY: Retry(form=1)})
    asked = []

    def refuses(methods, forms):
        asked.append((tuple(methods), dict(forms)))
        return "nowhere" if EARLY in methods else None

    found = choose(slots(latency=2), taken=taken, refuses=refuses)
    assert found.methods == (SHUFFLES,)
    assert why(found, EARLY).why == "nowhere"
    assert asked == [((SHUFFLES,), {}), ((SHUFFLES, EARLY), {EARLY: 1})]


def test_a_dropped_form_beside_another_knob_is_that_form():
    """The knob makes another kernel of it."""
    retries = {EARLY: Retry(0, "threads", 256)}
    taken = Taken(failed={EARLY: (0,)}, acknowledged=retries)
    assert retried_form(ROWS.method(EARLY), taken) == {EARLY: 0}
    assert retried_settings(ROWS, retries) == {"threads": 256}
    assert why_not_again(ROWS.method(EARLY), taken) == ""


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (Retry(knob="threads", value=512), "threads cannot be 256 and 512"),
        (Retry(knob="nonsense", value=1), "nonsense"),
        (Retry(knob="threads", value=300), "threads=300"),
    ],
)
def test_retries_that_no_point_can_have_are_refused(other, says):
    with pytest.raises(LabError, match=says):
        retried_settings(ROWS, {EARLY: Retry(knob="threads", value=256), WIDE: other})


def test_an_older_architecture_is_refused(tmp_path):
    edit = ('signature = ["CCTL"]', 'signature = ["CCTL"]\nmin_arch = "sm_90"')
    family = load_family(stranger(tmp_path, edit))
    assert EARLY in choose(slots(latency=2), family=family, arch="sm_90").methods
    found = choose(slots(latency=2), family=family, arch="sm_89")
    assert EARLY not in found.methods
    assert why(found, EARLY).checks.architecture is False


@pytest.mark.parametrize(
    ("how", "checks"),
    [
        ({"problem": Rows(100, 4095)}, {"not_skipped": False}),
        ({"gaps": Gaps(0.9, 0.05, 0.6, "counters", {})}, {"trigger": False}),
        ({"gaps": Gaps(None, None, None, "counters", {})}, {"trigger": None}),
    ],
)
def test_a_condition_that_does_not_hold_or_misses_its_value_leaves_the_method(how, checks):
    assert choose(slots(memory=1)).methods == (WIDE,)
    found = choose(slots(memory=1), **how)
    assert found.methods == ()
    seen = vars(why(found, WIDE).checks)
    assert {name: seen[name] for name in checks} == checks
    assert (why(found, WIDE).strength is None) == (checks.get("trigger", 0) is None)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (("ramp(memory_gap, 0.1, 0.6)", "memory_gap * 3"), "gives a strength of"),
        (
            ("ramp(memory_gap, 0.1, 0.6)", "memory_gap / (latency_gap - latency_gap)"),
            f"The trigger of {WIDE} cannot be computed: .*zero",
        ),
        (("columns % 8 != 0", "columns % (latency_gap - latency_gap) > 0"), f"The skip of {WIDE}"),
    ],
)
def test_a_condition_that_cannot_be_computed_leaves_its_method_alone(tmp_path, edit, says):
    """The others are taken as before; the method says what is wrong with it."""
    slot = slots(memory=1, latency=2)
    whole = choose(slot)
    found = choose(slot, family=load_family(stranger(tmp_path, edit)))
    assert WIDE in whole.methods
    assert set(found.methods) >= set(whole.methods) - {WIDE} != set()
    assert re.search(says, why(found, WIDE).why)
    assert why(found, WIDE).checks.is_open and not why(found, WIDE).checks.passed


def test_what_does_not_go_together_is_passed_over(tmp_path):
    edit = ("not (early > 0 and", "not (early > 0 and shuffle == 1) and not (early > 0 and")
    family = load_family(stranger(tmp_path, edit))
    found = choose(slots(latency=2), family=family)
    assert len(found.methods) == 1
    assert sum("go together" in one.why for one in found.considered) == 1


def test_a_slot_that_nobody_can_take_passes_on():
    gaps, odd = Gaps(0.9, 0.5, 0.6, "counters", {}), Rows(100, 4095)  # no wide accesses there

    def picked(**more):
        return pick_methods(
            *(ROWS, ROWS.start, gaps, slots(memory=1, latency=1), {}, odd, LIMITS), **more
        )

    assert picked().methods == (SHUFFLES,)
    assert picked().unused == 1
    passed = picked(pass_on=True)
    assert passed.unused == 0
    (other,) = set(passed.methods) - {SHUFFLES}
    assert "no strong method of its axis" in why(passed, other).why
    narrow = Gaps(0.05, 0.5, 0.05, "counters", {})  # a negligible gap gets no slot this way either
    left = pick_methods(*(ROWS, ROWS.start, narrow, slots(memory=1), {}, odd, LIMITS), pass_on=True)
    assert left.methods == ()


def test_a_slot_goes_where_it_is_called_for_most_and_weak_methods_wait(tmp_path):
    """Its axis has the wider gap, and one method, for which hardly anything calls."""
    weak = ('trigger = "ramp(memory_gap', 'trigger = "0.2 * ramp(memory_gap')
    family = load_family(stranger(tmp_path, weak))
    both = slots(memory=1, latency=1)

    def picked(**more):
        return pick_methods(*(family, ROWS.start, GAPS, both, {}, PROBLEM, LIMITS), **more).methods

    assert set(picked()) == {SHUFFLES, WIDE}, "by the source's rule every slot is its axis'"
    assert set(picked(pass_on=True)) == {SHUFFLES, LARGER}
    settled = Taken(ineffective=(EARLY, LARGER))
    assert set(picked(pass_on=True, taken=settled)) == {SHUFFLES, WIDE}, "nothing stronger is left"


def test_what_a_chosen_method_brings_along_takes_no_slot():
    family = load_family("tunable")
    problem, gaps = family.workloads[0], Gaps(0.9, 0.5, 0.6, "counters", {})
    counters = {"stall_long_scoreboard_cycles": 6.0, "warp_latency_cycles": 10.0}
    found = pick_methods(
        *(family, family.start, gaps, slots(compute=1, latency=2), counters, problem, LIMITS),
        pass_on=True,
    )
    assert "compute.tensor_core" in found.methods
    for brought in ("latency.async_copies", "latency.ring_of_tiles"):
        assert brought not in found.methods
        assert why(found, brought).why == "it comes with compute.tensor_core"


def test_the_launch_is_known_to_triggers():
    numbers = launch_numbers(ROWS.rung, ROWS.point({"threads": 256}), PROBLEM, LIMITS)
    assert numbers["blocks"] == 8192
    assert (numbers["threads"], numbers["launches"]) == (256, 1)
    assert numbers["blocks_per_sm"] == pytest.approx(8192 / LIMITS.num_sms)


# ------------------------------------------------------------------------------ machine code


CODES: dict[tuple[str, str], MachineCode] = {}


def code_of(point: Point, family=ROWS) -> MachineCode:
    """Families that differ in their .toml alone have one code."""
    key = family.rung.source_text, point.key
    if key not in CODES:
        CODES[key] = machine_code(family.rung, PROBLEM, LIMITS, point.knobs)
    return CODES[key]


def look(method: str, form: int = 0) -> SassVerdict:
    on = ROWS.apply(ROWS.start, [method], forms={method: form} if form else {})
    (found,) = check_sass(ROWS, [method], code_of(on), code_of(ROWS.remove(on, method)))
    return found


@pytest.mark.parametrize("method", [WIDE, SHUFFLES])
def test_a_compiled_method_shows_its_signature(method):
    found = look(method)
    assert (found.verdict, found.entry) == ("present", "row_scale")
    assert all(count > 0 for _, count in found.found)
    assert all(count == 0 for _, count in found.without)
    (plain,) = check_sass(ROWS, [method], code_of(ROWS.start))
    assert plain.verdict == "absent"


def test_a_dropped_form_is_absent_and_another_form_present():
    dropped, kept = look(EARLY), look(EARLY, form=1)
    assert dropped.verdict == "absent"
    assert dropped.note == "the machine code is the same with and without it"
    assert kept.verdict == "present"


def test_a_method_without_a_signature_says_so():
    assert look(LARGER) == SassVerdict(
        LARGER, "no signature", (), "row_scale", ROWS.method(LARGER).proof
    )


def test_a_signature_that_was_there_before_proves_nothing(tmp_path):
    """The prefetch changes the code, but loads were there without it."""
    family = load_family(stranger(tmp_path, ('signature = ["CCTL"]', 'signature = ["LDG"]')))
    on = family.apply(family.start, [EARLY], forms={EARLY: 1})
    (found,) = check_sass(family, [EARLY], code_of(on, family), code_of(family.start, family))
    assert found.verdict == "absent"
    assert "without it" in found.note


TWO = """
extern "C" __global__ void other(float* out) {
  out[threadIdx.x] = __shfl_xor_sync(~0u, out[threadIdx.x + 32], 1);
}
"""


def test_another_function_of_the_file_proves_nothing(tmp_path):
    path = stranger(tmp_path, (">=5 SHFL", "SHFL"))
    source = Path(tmp_path / "mine.cu")
    source.write_text(source.read_text() + TWO)
    family = load_family(path)
    code = code_of(family.start, family)
    assert set(code.entries) == {"row_scale", "other"}
    (found,) = check_sass(family, [SHUFFLES], code, entry="row_scale")
    assert found.verdict == "absent"
    assert check_sass(family, [SHUFFLES], code, entry="other")[0].verdict == "present"
    for entry in (None, "neither"):
        with pytest.raises(LabError, match="cannot be looked at"):
            check_sass(family, [SHUFFLES], code, entry=entry)


@pytest.mark.parametrize(
    ("signature", "verdict"),
    [
        ("more SHFL", "present"),
        ('more SHFL", "fewer BAR', "present"),
        ("fewer SHFL", "absent"),
        ('more SHFL", "more BAR', "absent"),
        ("fewer EXIT", "absent"),
        (">=5 SHFL\\\\.BFLY", "present"),
        (">=500 SHFL\\\\.BFLY", "absent"),
        ('SHFL", "!EXIT', "absent"),
        ('SHFL", "!HMMA', "present"),
    ],
)
def test_counts_are_kept_to_and_a_comparison_needs_the_code_without_the_method(
    tmp_path, signature, verdict
):
    family = load_family(stranger(tmp_path, (">=5 SHFL\\\\.BFLY", signature)))
    with_it, without = code_of(ROWS.apply(ROWS.start, [SHUFFLES])), code_of(ROWS.start)
    assert check_sass(family, [SHUFFLES], with_it, without)[0].verdict == verdict
    assert check_sass(family, [SHUFFLES], with_it, {SHUFFLES: without})[0].verdict == verdict
    (open_one,) = check_sass(family, [SHUFFLES], with_it)
    if "more" not in signature and "fewer" not in signature:
        assert open_one.verdict == verdict
        return
    assert (open_one.verdict, str(open_one)) == ("no signature", "cannot be told")
    assert "compares" in open_one.note
    assert classify(Told("above"), open_one) == "undecided"


DECOYS = """
  if (columns == -12345) value = warp_sum(value);
  if (blockIdx.x > 1000000) value = warp_sum(value);
  if (threadIdx.x > 1000) value = warp_sum(value);
  for (int trip = columns; trip < 3; ++trip) value = warp_sum(value);
"""
ON_DATA = "\n  if (value == 12345.f) value = warp_sum(value);\n"


@pytest.mark.parametrize("text", [DECOYS, ON_DATA], ids=["never", "on data"])
def test_what_no_thread_executes_proves_nothing(tmp_path, text):
    stranger(tmp_path)
    source = tmp_path / "mine.cu"
    held = source.read_text().replace(
        "sum_of_block(float value", "sum_of_block(int columns, float value"
    )
    begin, end = held.index("  value = warp_sum(value);\n  if"), held.index("#else\n  partial_smem")
    tree = held[end + len("#else") : held.index("#endif", end)]
    held = (
        held[:begin] + text + tree + held[end:].replace("sum_of_block(", "sum_of_block(columns, ")
    )
    source.write_text(held)
    family = load_family(tmp_path / "mine.py")
    on = family.apply(family.start, [SHUFFLES])
    points = {None: on, SHUFFLES: family.start}

    def ran(without):
        point = points[without]
        code = code_of(point, family)
        return executed_by(family.rung, PROBLEM, LIMITS, point.knobs, code, "row_scale")

    codes = code_of(on, family), code_of(family.start, family)
    assert check_sass(family, [SHUFFLES], *codes)[0].verdict == "present", "it stands there"
    (found,) = check_sass(family, [SHUFFLES], *codes, ran=ran)
    never = text is DECOYS
    assert found.found == ((">=5 SHFL\\.BFLY", 0),)
    assert classify(Told("above"), found) == ("implementation_failed" if never else "undecided")


def test_what_else_comes_or_goes_with_a_method_is_told():
    """Shuffles take the place of a tree in shared memory, and of its reads of one number."""
    found = look(SHUFFLES)
    assert {one.opcode: bool(one.count) for one in found.others}["LDS"] is False
    assert "row_scale" in found.origin


def numbers_of(point: Point):
    asked = ROWS.rung, PROBLEM, LIMITS, point.knobs, code_of(point), "row_scale"
    return executed_by(*asked).numbers


def test_numbers_of_the_code_are_those_of_one_block():
    plain, wide = numbers_of(ROWS.start), numbers_of(ROWS.apply(ROWS.start, [WIDE]))
    assert plain["shared_read_turns"] == 1
    assert plain["spill_bytes"] == 0
    assert 0 < plain["registers_per_thread"] <= 255
    assert wide["issued_instructions"] < 0.75 * plain["issued_instructions"]


def test_a_proof_is_asked_of_values():
    method = ROWS.method(LARGER)
    more, less = {"achieved_occupancy_pct": 50.0}, {"achieved_occupancy_pct": 12.0}
    name = "achieved_occupancy_pct"
    said = prove(method, more, less, {name: "counters"})
    assert said == Proof(True, values=(ProofValue(name, 50.0, 12.0, "counters"),))
    assert prove(method, less, more).said is False
    assert prove(method, more, {}).said is None
    assert prove(ROWS.method(WIDE), more, less).said is None


def test_a_proof_that_cannot_be_computed_proves_nothing_and_says_why(tmp_path):
    whole = "achieved_occupancy_pct > achieved_occupancy_pct_without"
    part = "achieved_occupancy_pct / achieved_occupancy_pct_without > 1"
    family = load_family(stranger(tmp_path, (whole, part)))
    zero = {"achieved_occupancy_pct": 0.0}
    found = prove(family.method(LARGER), zero, zero)
    assert found.said is None and "zero" in found.why
    (verdict,) = check_sass(family, [LARGER], code_of(family.start, family), proved={LARGER: found})
    assert verdict.note == found.why
    assert classify(Told("above"), verdict) == "undecided"


# ------------------------------------------------------------------------------------ classes


@dataclass(frozen=True)
class Told:
    decided: str | None


@pytest.mark.parametrize("decided", ["above", "below", None])
def test_a_method_is_classed_by_its_code_and_then_by_its_time(decided):
    by_time = {"above": "effective", "below": "ineffective", None: "undecided"}[decided]
    bare = look(LARGER)
    for verdict, expected in (
        (look(WIDE), by_time),
        (look(EARLY), "implementation_failed"),
        (bare, "undecided"),
        (dataclasses.replace(bare, proved=True), by_time),
        (dataclasses.replace(bare, proved=False), "implementation_failed"),
    ):
        assert classify(Told(decided), verdict) == expected
        in_its_code = expected == by_time and verdict is not bare
        together = "interacts" if in_its_code else expected
        assert classify(Told(decided), verdict, interacts=True) == together


def test_what_was_wrong_in_every_branch_is_not_picked_again():
    alone = choose(slots(latency=1), taken=Taken(wrong={(SHUFFLES,): 3}))
    assert alone.methods == (EARLY,)
    assert why(alone, SHUFFLES).why == "no branch with it was right in round 3"
    both = {(SHUFFLES, EARLY): 2}
    together = choose(slots(latency=2), taken=Taken(wrong=both))
    assert len(together.methods) == 1 and set(together.methods) < {SHUFFLES, EARLY}
    (left,) = {SHUFFLES, EARLY} - set(together.methods)
    (taken,) = together.methods
    assert why(together, left).why == f"no branch with it and {taken} was right in round 2"
    assert choose(slots(latency=1), taken=Taken(wrong=both)).methods == (SHUFFLES,)
