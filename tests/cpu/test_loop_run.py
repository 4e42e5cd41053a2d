"""The loop as a whole: its steps and its policy, with a small kernel that is no attention."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_play import take
from test_optimize_family import stranger

from labtools.cli.ablating import ablate_kernel
from labtools.cli.loop import LoopAsked, do_step, run_loop
from labtools.cli.outcome import Status
from labtools.optimize import loop
from labtools.optimize.ablation import pair_variants
from labtools.optimize.attribution import pair_name
from labtools.optimize.bench import ForecastBench, TimedPoints
from labtools.optimize.branch import (
    CHANGES_FORM,
    NEAR_FORECAST,
    NOT_AS_SAID,
    choose_branches,
    propose,
    variants,
)
from labtools.optimize.events import AblateDone, LoopStopped
from labtools.optimize.family import Family, Point, load_family
from labtools.optimize.gaps import Gaps
from labtools.optimize.loop import TuningLoop
from labtools.optimize.loop_folder import LOG_NAME, LoopFolder
from labtools.optimize.pick import Retry
from labtools.optimize.state import STEPS, GivenRefused, LoopState, RoundKept
from labtools.predict import load_gpu
from labtools.problem import KernelError, LabError, Rows, load_rung
from labtools.record import Samples
from labtools.toolchain import compile_cubin
from labtools.toolchain.progress import silent

FAMILY = Path(__file__).resolve().parents[1] / "families" / "row_scale.py"


@pytest.fixture(scope="module")
def family():
    return load_family(FAMILY)


@pytest.fixture(scope="module")
def bench(family):
    return ForecastBench(family, family.workloads[0])


@pytest.fixture(autouse=True)
def right(monkeypatch):
    """No point is run on the CPU, but for `whole` and `one_round`; the bench has its own tests."""
    monkeypatch.setattr(ForecastBench, "check", lambda _, points: dict.fromkeys(points))


def begin(folder: Path, family: Family, branches: int = 4) -> None:
    loop.init(folder, family, None, "forecast", 0, branches, "largest-remainder")


@pytest.fixture(scope="module")
def whole(family, tmp_path_factory):
    """The folder of a loop that was played to its end, only to be read, and what was found."""
    folder = tmp_path_factory.mktemp("whole")
    begin(folder, family)
    return folder, loop.run(folder, family)


@pytest.fixture(scope="module")
def one_round(family, tmp_path_factory):
    """The same after its first round."""
    folder = tmp_path_factory.mktemp("one_round")
    begin(folder, family)
    return folder, loop.run(folder, family, max_rounds=1)


def points_of(family: Family, point: Point, methods: Sequence[str], **demands: Any) -> list[Point]:
    """The variants of a point."""
    made = variants(family, point, methods, **demands)
    return [one for one in made if isinstance(one, Point)]


def begin_round(
    folder: Path,
    family: Family,
    methods: Sequence[str] | None = None,
    said: Mapping[str, Retry] | None = None,
) -> LoopState:
    """A round's first three steps."""
    take(folder, family, "gaps")
    take(folder, family, "budget")
    return take(folder, family, "pick", methods, said)


def test_the_policy_comes_near_the_best_point_of_a_small_grid(whole, family, bench):
    folder, found = whole
    times = bench.forecasts_us(family.grid())
    assert found.champion.time_us <= 1.10 * min(times.values())
    assert found.champion.time_us < times[family.start]
    assert found.stopped
    state = LoopFolder.look(folder).state
    assert found.runs == len(state.timed) < len(family.grid())
    assert state.knobs[found.champion.point] == found.champion.knobs


def test_every_candidate_counts_one_run_and_references_none(one_round):
    folder, found = one_round
    looked = LoopFolder.look(folder)
    (only,) = looked.state.history
    tried = [one for one in only.branches if one.time_us is not None]
    removed = {one.without for one in only.attribution or ()}
    assert found.runs == len(tried) + len(removed)  # the start is given, and is no candidate
    assert found.stopped == "the limit of 1 round is reached"
    assert not looked.state.stopped, "a limit ends a run and not the loop"


def test_a_run_goes_on_after_a_limit(tmp_path, family, whole, one_round):
    parts = Path(shutil.copytree(one_round[0], tmp_path / "parts"))
    part = one_round[1]
    for _ in range(8):
        done = loop.run(parts, family, max_rounds=1).rounds  # it has that many already
        assert done == part.rounds
        part = loop.run(parts, family, max_rounds=done + 1)
        if LoopFolder.look(parts).state.stopped:
            break
    assert (part.champion, part.runs) == (whole[1].champion, whole[1].runs)


def test_steps_one_by_one_are_those_of_a_run(tmp_path, family, one_round):
    begin(tmp_path, family)
    for step in STEPS:
        take(tmp_path, family, step)
    played = LoopFolder.look(one_round[0]).state
    assert LoopFolder.look(tmp_path).state.history[0] == played.history[0]


def test_branches_keep_to_the_methods_that_were_picked(family, bench):
    for made in points_of(family, family.start, ["memory.wide_accesses"]):
        assert family.methods_on(made) == ("memory.wide_accesses",)


def said_forecasts(family: Family, step: float) -> dict[Point, float]:
    """Each point of the grid so much slower than the one before."""
    return {one: 10.0 * step**place for place, one in enumerate(family.grid())}


def test_half_of_the_branches_are_the_forecasts_first_and_half_are_drawn(family):
    forecasts = said_forecasts(family, 1.02)
    ordered, drawn = list(forecasts), set()
    for seed in range(12):
        found = choose_branches(ordered, forecasts, 4, random.Random(seed))
        assert [one.why for one in found] == ["forecast"] * 2 + ["drawn"] * 2
        assert [one.point for one in found[:2]] == ordered[:2]
        assert all(forecasts[one.point] <= NEAR_FORECAST * 10.0 for one in found)
        drawn.add(frozenset(one.point for one in found[2:]))
    assert len(drawn) > 1, "the seed draws"
    assert len(choose_branches(ordered, {}, 4, random.Random(0))) == 4, "without a forecast"
    best = ordered[-3:]
    led = choose_branches(ordered[:-3], forecasts, 4, random.Random(0), best)
    assert [one.point for one in led[:3]] == [*best[:2], ordered[0]], "of all points, then of these"
    slower = said_forecasts(family, 1.3)
    (only,) = choose_branches(list(slower), slower, 4, random.Random(0))
    assert only.why == "forecast", "what is held for much slower does not run"


def test_what_was_timed_before_is_no_branch(family, bench):
    first = propose(bench, family.start, ["compute.larger_blocks"], count=2, seed="a").branches[0]
    known = {first.point: "timed before"}
    again = propose(bench, family.start, ["compute.larger_blocks"], count=2, known=known)
    assert first.point not in [one.point for one in again.branches]
    assert again.pruned["timed before"] == 1


def test_a_verdict_counts_where_the_loop_went_on_from():
    rounds = [
        RoundKept(1, classes={"a": "effective", "b": "ineffective"}, gain=0.5),
        RoundKept(2, classes={"c": "effective", "d": "ineffective"}, gain=0.001),
        RoundKept(3, classes={"e": "effective", "f": "ineffective"}, gain=-0.4),
        RoundKept(4, classes={"g": "undecided", "h": "ineffective"}, gain=-0.4),
    ]
    gains = {1: 0.5, 2: 0.001, 3: -0.4, 4: -0.4, 5: 0.2}
    held = {"a": "effective", "b": "ineffective", "d": "ineffective", "f": "ineffective"}
    held["g"] = "undecided"
    assert loop.settled(rounds, gains, 0.02) == held
    again = RoundKept(5, classes={"h": "ineffective", "e": "effective"}, gain=0.2)
    found = loop.settled([*rounds, again], gains, 0.02)
    assert found == {**held, "h": "ineffective", "e": "effective"}
    # Without the method that harmed it a round lost nothing, so its gain says no more than that.
    harmed = RoundKept(1, classes={"a": "ineffective"}, gain=0.0)
    assert loop.settled([harmed], {1: -0.7}, 0.02) == {}
    taken_without_it = RoundKept(1, classes={"a": "ineffective"}, gain=0.3)
    assert loop.settled([taken_without_it], {1: -0.7}, 0.02) == {"a": "ineffective"}


def test_near_the_peak_a_round_ends_with_its_own_gaps(tmp_path, family, monkeypatch, one_round):
    """The champion is judged by its own gaps, and not by those of what it replaced."""
    measured, peak = ForecastBench.gaps, list[Point]()

    def gaps(self: ForecastBench, point: Point) -> Gaps:
        found = measured(self, point)
        return replace(found, near_peak=True) if point in peak else found

    monkeypatch.setattr(ForecastBench, "gaps", gaps)
    shutil.copytree(one_round[0], tmp_path / "loop")
    state = LoopFolder.look(tmp_path / "loop").state
    assert state.point != family.start.key and not state.stopped
    peak.append(family.read_key(state.point))
    found = loop.run(tmp_path / "loop", family)
    state = LoopFolder.look(tmp_path / "loop").state
    assert found.stopped.startswith("near the peak") and state.round == 2
    assert state.current.gaps is not None and state.current.budget is None
    assert found.runs == len(state.timed) and not state.current.branches
    peak[:] = [family.start]
    begin(tmp_path / "at once", family)
    assert loop.run(tmp_path / "at once", family).runs == 0


def test_a_branch_by_hand_that_stops_the_loop_says_so(tmp_path, family, monkeypatch):
    """It answers with its own round, and ends as a run would."""

    def wrong(self: ForecastBench, points: Sequence[Point]) -> dict[Point, str | None]:
        return dict.fromkeys(points, "the answers are off:\nelement 7\nelement 8")

    folder = tmp_path / "loop"
    begin(folder, family, branches=1000)
    play_round(folder, family, [WIDE], [{}])
    begin_round(folder, family, [LARGER])
    monkeypatch.setattr(ForecastBench, "check", wrong)
    first = do_step(folder, "branch", None, silent)
    assert (first.round, first.status, first.stopped) == (2, Status.WRONG, "")
    assert first.explained is not None and first.explained.decided.startswith("no branch is right")
    last = do_step(folder, "branch", None, silent)
    assert last.stopped and last.explained is not None
    assert (last.round, last.explained.step, last.explained.rule) == (2, "stop", last.stopped)
    assert last.result["champion"] is None and last.result["branches"] == first.result["branches"]
    assert last.stopped.endswith("the answers are off"), "the first line of what was found"
    assert last.status == run_loop(folder, LoopAsked(), 9, None, silent).status == Status.WRONG


def test_what_was_found_wrong_is_not_tried_after_a_restart(tmp_path, family, monkeypatch):
    checked: list[Point] = []

    def wrong(self: ForecastBench, points: Sequence[Point]) -> dict[Point, str | None]:
        checked.extend(points)
        return dict.fromkeys(points, "wrong")

    folder = tmp_path / "loop"
    begin(folder, family, branches=1000)
    monkeypatch.setattr(ForecastBench, "check", wrong)
    begin_round(folder, family, ["memory.wide_accesses"])
    take(folder, family, "branch")
    said = take(folder, family, "branch").stopped
    assert f"{len(checked)} were tried: wrong" in said or "; one was tried: wrong" in said
    assert "found wrong before" in said and "timed before" not in said
    with LoopFolder.opened(folder) as opened:
        opened.restart(0)
    before = list(checked)
    take(folder, family, "gaps")
    take(folder, family, "budget")
    with pytest.raises(GivenRefused, match="found wrong before"):
        take(folder, family, "pick", ["memory.wide_accesses"])
    assert checked == before


def wrong_where(monkeypatch: pytest.MonkeyPatch, is_wrong: Callable[[Point], bool]) -> None:
    """Let the bench find answers wrong."""

    def check(self: ForecastBench, points: Sequence[Point]) -> dict[Point, str | None]:
        return {one: "its answers are wrong" if is_wrong(one) else None for one in points}

    monkeypatch.setattr(ForecastBench, "check", check)


def test_a_start_that_is_wrong_is_no_beginning(tmp_path, family, monkeypatch):
    wrong_where(monkeypatch, lambda one: one == family.start)
    with pytest.raises(KernelError, match="is wrong at start"):
        begin(tmp_path / "loop", family)
    assert not LoopFolder.holds_loop(tmp_path / "loop")
    with pytest.raises(KernelError, match="its answers are wrong"):
        loop.ablate_point(family, None, "forecast", dict(family.start.knobs))


@pytest.mark.parametrize("every", [False, True])
def test_what_is_wrong_without_a_method_leads_nowhere(tmp_path, family, monkeypatch, every):
    """A variant of the ablation is checked as a branch is: a wrong one has no time and no class."""
    wide, larger = "memory.wide_accesses", "compute.larger_blocks"
    folder, knobs = tmp_path / "loop", {"wide": 1, "threads": 256}
    champion = family.point(knobs)
    wrong = [family.remove(champion, wide)] + [family.remove(champion, larger)] * every
    begin(folder, family)
    wrong_where(monkeypatch, lambda one: one in wrong)
    begin_round(folder, family, [wide, larger])
    take(folder, family, "branch", [knobs])
    kept = take(folder, family, "ablate", pairs=True).current
    untimed = [wide, larger] if every else [wide]
    assert {name: kept.untimed[name] for name in untimed} == dict.fromkeys(
        untimed, "its answers are wrong"
    )
    assert [one.method for one in kept.attribution or ()] == ([] if every else [larger])
    take(folder, family, "check")
    state = take(folder, family, "update")
    classes = state.current.classes or {}
    assert {classes[name] for name in untimed} <= {"undecided", "implementation_failed"}
    assert state.point not in [one.key for one in wrong]
    found = loop.ablate_point(family, None, "forecast", knobs, pairs=True)
    assert {name for name in found.untimed if name in (wide, larger)} == set(untimed)
    assert list(found.classes) == [one.method for one in found.sass_check]
    assert set(found.classes) == {wide, larger} - set(untimed)
    assert found.interactions == (), "what one of the two does alone is not known"


def test_a_dropped_method_that_stayed_on_changes_its_form_in_the_open(tmp_path):
    """It is picked with what is different, and has a verdict again."""
    family = load_family(stranger(tmp_path, ("early = [0, 2]", "early = [0, 1, 2]")))
    early, wide = "latency.early_weights", "memory.wide_accesses"
    folder, first = tmp_path / "loop", {"early": 1, "wide": 1}
    begin(folder, family, branches=1)
    begin_round(folder, family, [early, wide])
    take(folder, family, "branch", [first])
    for step in ("ablate", "check", "update", "gaps", "budget"):
        state = take(folder, family, step)
    assert early in state.implementation_failed_methods
    point = family.read_key(state.point)
    assert family.form_of(point, early) == 0, "the champion has it on"
    for fixed, forms in (([early], {0}), ([], {0, 1})):
        made = points_of(family, point, ["latency.shuffle_sum"], fixed=fixed)
        assert {family.form_of(one, early) for one in made} == forms
    with pytest.raises(GivenRefused, match="nobody said with what"):
        take(folder, family, "pick", [early])
    with pytest.raises(GivenRefused, match="no form that is left to try"):
        take(folder, family, "pick", [early], {early: Retry(knob="early", value=1)})
    with pytest.raises(GivenRefused, match=NOT_AS_SAID):
        take(folder, family, "pick", [early], {early: Retry(1, "threads", 256)})
    take(folder, family, "pick", [early], {early: Retry(knob="early", value=2)})
    state = take(folder, family, "branch")
    assert family.form_of(family.read_key(state.current.champion or ""), early) == 1
    for step in ("ablate", "check", "update"):
        state = take(folder, family, step)
    assert [one.method for one in state.current.attribution or ()] == [early]
    assert early not in state.implementation_failed_methods


LARGER, WIDE, EARLY = "compute.larger_blocks", "memory.wide_accesses", "latency.early_weights"
"""Of row_scale; the forms of the first are 256 and 512 threads, which the branches vary as well."""


def play_round(
    folder: Path,
    family: Family,
    methods: Sequence[str],
    branches: Sequence[Mapping[str, int]] | None,
    said: Mapping[str, Retry] | None = None,
) -> LoopState:
    """A whole round with given methods."""
    begin_round(folder, family, methods, said)
    take(folder, family, "branch", branches)
    for step in ("ablate", "check", "update"):
        state = take(folder, family, step)
    return state


def play_to_dropped(folder: Path, family: Family, patch: pytest.MonkeyPatch) -> LoopState:
    """A round after which the compiler is held to have dropped `LARGER` with 256 threads, where the
    loop stands."""
    begin(folder, family)
    with patch.context() as only:
        only.setattr(
            loop,
            "classify",
            lambda _, one, *__: "implementation_failed" if one.method == LARGER else "effective",
        )
        only.setattr(
            TuningLoop,
            "_next_point",
            lambda _, state: (0.5, state.current.champion, state.current.time_us),
        )
        state = play_round(folder, family, [WIDE, LARGER], [{"threads": 256}])
    assert state.implementation_failed_methods == (LARGER,)
    assert family.form_of(family.read_key(state.point), LARGER) == 0
    return state


def test_a_form_that_a_hyperparameter_is_keeps_to_what_was_asked(tmp_path, family, monkeypatch):
    folder = tmp_path / "loop"
    point = family.read_key(play_to_dropped(folder, family, monkeypatch).point)

    def forms(methods: Sequence[str], **more: Any) -> set[int | None]:
        return {family.form_of(one, LARGER) for one in points_of(family, point, methods, **more)}

    assert forms(["latency.shuffle_sum"]) == {0, 1}
    assert forms(["latency.shuffle_sum"], fixed=[LARGER]) == {0}
    assert forms([LARGER], forms={LARGER: 1}) == {1}
    assert CHANGES_FORM in variants(family, point, ["latency.shuffle_sum"], fixed=[LARGER])
    state = begin_round(folder, family, [LARGER], {LARGER: Retry(knob="threads", value=512)})
    assert state.current.pick is not None and state.current.pick.forms == {LARGER: 1}
    with pytest.raises(GivenRefused, match="is tried again with threads=512"):
        take(folder, family, "branch", [{"threads": 256}])
    state = take(folder, family, "branch")
    assert {state.knobs[one.point]["threads"] for one in state.current.branches} == {512}


def test_a_pick_whose_only_form_leads_nowhere_is_refused(tmp_path, family, monkeypatch):
    """Weights asked for early do not go with 512 threads, the form that is left."""
    folder = tmp_path / "loop"
    play_to_dropped(folder, family, monkeypatch)
    monkeypatch.setattr(
        TuningLoop, "_next_point", lambda _, state: (0.5, family.point({"early": 2}).key, 50.0)
    )
    play_round(folder, family, [EARLY], [{"early": 2}])
    take(folder, family, "gaps")
    take(folder, family, "budget")
    with pytest.raises(GivenRefused, match="has a rule for its points"):
        take(folder, family, "pick", [LARGER], {LARGER: Retry(knob="threads", value=512)})
    state = take(folder, family, "pick", None, {LARGER: Retry(knob="threads", value=512)})
    assert LARGER not in state.current.methods


def test_a_pair_of_which_one_needs_the_other_is_none_in_either_order():
    """A ring of tiles is filled by copies that need no register."""
    family = load_family("tunable")
    copies, ring = "latency.async_copies", "latency.ring_of_tiles"
    point = family.apply(family.start, ["memory.group_of_heads", copies, ring])
    assert ring in family.dependents(point, copies)
    for methods in ([copies, ring], [ring, copies]):
        assert pair_variants(family, point, methods).points == {}


def test_what_takes_the_place_of_a_dropped_method_can_be_tried():
    """Both are values of one knob, so the dropped one is off then, and has no form to keep."""
    family = load_family("tunable")
    for taken, dropped in (
        ("latency.async_copies", "memory.staged_tiles"),
        ("compute.tensor_core", "compute.rows_together"),
    ):
        point = family.apply(family.start, ["memory.group_of_heads", dropped])
        assert family.has(point, dropped)
        made = points_of(family, point, [taken], fixed=[dropped])
        assert made
        assert not any(family.has(one, dropped) for one in made)


def test_methods_that_were_right_later_are_no_longer_wrong(tmp_path, family, monkeypatch):
    folder = tmp_path / "loop"
    begin(folder, family)
    play_round(folder, family, ["latency.shuffle_sum"], [{"threads": 64}])
    with monkeypatch.context() as only:
        only.setattr(ForecastBench, "check", lambda _, points: dict.fromkeys(points, "off"))
        begin_round(folder, family, [WIDE])
        state = take(folder, family, "branch", [{}])
    assert state.wrong_picks == {(WIDE,): 2}
    with LoopFolder.opened(folder) as opened:
        opened.keep(LoopStopped(2, "enough"))
        opened.restart(0)
    state = play_round(folder, family, [WIDE, LARGER], None)
    assert state.current.champion is not None
    assert state.wrong_picks == {}


@pytest.mark.parametrize("on_a_gpu", [False, True])
def test_a_resumed_ablation_compares_what_was_timed_in_one_call(
    tmp_path, family, monkeypatch, on_a_gpu
):
    """Each call of a bench finds other clocks; the cut comes after the pairs were timed."""
    timed, calls = ForecastBench.time, [0]

    def drifting(self: ForecastBench, points: Sequence[Point], *rest: Any) -> TimedPoints:
        found = timed(self, points, *rest)
        calls[0] += on_a_gpu
        factor = 1.1 ** calls[0]

        def slower(one: Samples) -> Samples:
            processes = [
                each.model_copy(update={"us": tuple(us * factor for us in each.us)})
                for each in one.processes
            ]
            return one.model_copy(update={"processes": tuple(processes)})

        return TimedPoints({one: slower(held) for one, held in found.samples.items()})

    monkeypatch.setattr(ForecastBench, "time", drifting)
    monkeypatch.setattr(ForecastBench, "one_call", on_a_gpu)
    begin(tmp_path / "whole", family)
    begin_round(tmp_path / "whole", family, [WIDE, LARGER])
    take(tmp_path / "whole", family, "branch")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    whole = take(tmp_path / "whole", family, "ablate", pairs=True).current
    keep = LoopFolder.keep

    def cut(self: LoopFolder, event: Any) -> LoopState:
        if isinstance(event, AblateDone):
            raise KeyboardInterrupt
        return keep(self, event)

    with monkeypatch.context() as only:
        only.setattr(LoopFolder, "keep", cut)
        with pytest.raises(KeyboardInterrupt):
            take(tmp_path / "cut", family, "ablate", pairs=True)
    runs = LoopFolder.look(tmp_path / "cut").state.runs
    resumed = take(tmp_path / "cut", family, "ablate", pairs=True)
    for mine, other in zip(
        (*(resumed.current.attribution or ()), *resumed.current.pairs),
        (*(whole.attribution or ()), *whole.pairs),
        strict=True,
    ):
        assert mine.relative == pytest.approx(other.relative)
    assert resumed.runs == runs


def test_a_method_that_cannot_be_taken_out_alone_has_no_time_and_stops_nothing(tmp_path):
    """A constraint forbids larger blocks with narrow accesses."""
    rule = '[[constraint]]\nrequire = "not (wide == 0 and threads == 256)"\nreason = "by rule"\n\n'
    cuts = (
        ("[[hyper]]", rule + "[[hyper]]"),
        ("[64, 256, 512] }", '[64, 256] }\nonly = "wide or threads == 64"'),
    )
    family = load_family(stranger(tmp_path, *cuts))
    folder = tmp_path / "loop"
    begin(folder, family, branches=1)
    state = play_round(folder, family, [WIDE, LARGER], [{"threads": 256}])
    why = {WIDE: "it cannot be taken out alone: by rule"}
    assert state.current.untimed == why
    assert [one.method for one in state.current.attribution or ()] == [LARGER]
    assert (state.current.classes or {})[WIDE] == "undecided"
    assert {one.method: one.verdict for one in state.current.sass_check or ()}[WIDE] == "present"
    assert loop.run(folder, family, max_rounds=2).rounds == 2, "the loop goes on"
    knobs = {"wide": 1, "threads": 256}
    found = loop.ablate_point(family, None, "forecast", knobs, pairs=True)
    assert found.untimed == why
    assert [one.method for one in found.pairs] == [pair_name(WIDE, LARGER)], "larger blocks first"
    asked = LoopAsked(str(family.path), on="forecast")
    typed = ["wide=1", "threads=256"]
    assert ablate_kernel(asked, typed, [WIDE, LARGER], False, silent).untimed == why
    with pytest.raises(LabError, match=f"{WIDE} cannot be switched off at wide=1 threads=256"):
        family.remove(family.point(knobs), WIDE)


def lose(folder: Path, kind: str, purpose: str = "", point: str = "") -> None:
    """Take lines out of a loop's log, as a damaged disk does."""
    path = folder / LOG_NAME
    kept = []
    for line in path.read_text().splitlines():
        body = json.loads(line)
        event = body["event"]
        lost = body["kind"] == kind and purpose in ("", event.get("purpose"))
        if not lost or point not in ("", event.get("point")):
            kept.append(line)
    assert len(kept) < len(path.read_text().splitlines())
    path.write_text("\n".join(kept) + "\n")


@pytest.mark.parametrize("before", ["budget", "update"])
def test_a_loop_that_lost_the_time_of_its_start_goes_on(tmp_path, family, before):
    folder = tmp_path / "loop"
    begin(folder, family)
    for step in STEPS[: STEPS.index(before)]:
        take(folder, family, step)
    lose(folder, "timed", "start")
    assert loop.run(folder, family, max_rounds=1).rounds == 1


def test_a_champion_has_its_own_time_though_the_line_that_chose_it_is_lost(tmp_path, family):
    folder = tmp_path / "loop"
    begin(folder, family)
    first = play_round(folder, family, [WIDE], [{}])
    take(folder, family, "gaps")
    lose(folder, "update")
    state = LoopFolder.look(folder).state
    assert (state.point, state.time_us) == (first.point, pytest.approx(first.time_us))
    assert first.point != family.start.key


def test_an_ablation_of_which_no_variant_is_right_needs_no_line_of_before(
    tmp_path, family, monkeypatch
):
    folder = tmp_path / "loop"
    begin(folder, family)
    for step in STEPS[: STEPS.index("ablate")]:
        state = take(folder, family, step)
    champion = state.current.champion or ""
    lose(folder, "timed", "branch", champion)
    monkeypatch.setattr(
        ForecastBench,
        "check",
        lambda _, points: {one: None if one.key == champion else "off" for one in points},
    )
    state = take(folder, family, "ablate")
    assert state.current.attribution == ()
    assert set(state.current.untimed) == set(state.current.methods)


def test_a_step_that_is_done_again_unmakes_what_followed_from_it(tmp_path, family):
    """The line of the branches is lost, and other branches are given: nothing that was found out of
    the first champion is believed of the second, and no measurement is lost."""
    folder = tmp_path / "loop"
    begin(folder, family)
    begin_round(folder, family, [WIDE])
    take(folder, family, "branch", [{"threads": 64}])
    take(folder, family, "ablate")
    first = take(folder, family, "check")
    lose(folder, "branch")
    assert LoopFolder.look(folder).state.next_steps == ("branch",)
    state = take(folder, family, "branch", [{"threads": 64, "early": 0}])
    assert (state.current.attribution, state.current.sass_check) == (None, None)
    assert state.next_steps == ("ablate",)
    again = take(folder, family, "ablate")
    assert again.current.attribution == first.current.attribution
    assert again.runs == first.runs


@pytest.mark.parametrize("ending", [".py", ".toml", ".cu"])
def test_a_family_that_changes_is_no_longer_the_loops(tmp_path, ending):
    whole = stranger(tmp_path)
    path = whole.with_suffix(ending)
    begin(tmp_path / "loop", load_family(whole))
    text = path.read_text()
    path.write_text(text + ("" if ending == ".cu" else "\n# a remark\n"))
    take(tmp_path / "loop", load_family(whole), "gaps")
    added = {".py": "A = 3\n", ".cu": "\n__global__ void other() {}\n", ".toml": ""}[ending]
    path.write_text(text.replace("priority = 2", "priority = 9") + added)
    with pytest.raises(LabError, match="its Python or its methods have changed"):
        take(tmp_path / "loop", load_family(whole), "budget")


def test_the_champion_is_exported_as_a_rung_of_its_own(tmp_path, family, one_round):
    begin(tmp_path / "loop", family)
    _, cache, *_ = loop.export(tmp_path / "loop", family, tmp_path / "none")
    kept = json.loads(cache.read_text())
    assert kept["device_name"] == f"forecast of {load_gpu('h200').title}", "no measurement"
    knobs = {one.name: sorted(one.choices) for one in family.rung.knobs}
    assert (kept["cache"], kept["tune_params"]) == ({}, knobs)
    assert kept["tune_params_keys"] == list(knobs)
    folder, found = one_round
    rung_path, cache, source, *others = loop.export(folder, family, tmp_path / "out")
    rung = load_rung(rung_path)
    assert rung.resolve_knobs() == dict(found.champion.knobs)
    assert rung.launches(family.workloads[0], load_gpu("h200").limits, None)
    kept = json.loads(cache.read_text())
    state = LoopFolder.look(folder).state
    assert len(kept["cache"]) == len({run.point for run in state.timed})
    assert kept["restrictions"] == [one.require for one in family.constraints]
    text = source.read_text()
    for one in rung.launches(family.workloads[0], load_gpu("h200").limits, None):
        assert f"{one.entry}<<<dim3({', '.join(map(str, one.grid))})" in text
    alone = compile_cubin(text, "sm_90")  # without a definition and without a header of ours
    assert '#include "warp.cuh"' not in text and alone.entries
    fastest = min((run for run in state.timed if run.time_us), key=lambda run: run.time_us)
    assert bool(others) == (fastest.point != state.point)
    kernel = next(folder.glob("iterv*/kernel.cu"))
    assert kernel.read_text() == text or kernel.parent.name != f"iterv{state.rounds}"


def test_a_restart_tries_on_after_rounds_without_a_gain(tmp_path, family, monkeypatch):
    timed = ForecastBench.time

    def nothing_gains(self: ForecastBench, points: Sequence[Point], *rest: Any) -> TimedPoints:
        found = timed(self, [family.start], *rest).samples[family.start]
        slower = timed(self, [family.start], Rows(16384, 4096)).samples[family.start]
        return TimedPoints({one: found if one == family.start else slower for one in points})

    monkeypatch.setattr(ForecastBench, "time", nothing_gains)
    begin(tmp_path / "loop", family, branches=1)
    first = loop.run(tmp_path / "loop", family)
    assert "without a gain" in first.stopped
    with LoopFolder.opened(tmp_path / "loop") as folder:
        state = folder.restart(0)
    assert [one.restarted for one in state.since_restart] == [True]
    again = loop.run(tmp_path / "loop", family)
    state = LoopFolder.look(tmp_path / "loop").state
    assert any(one.branches for one in state.since_restart) or "no setting is left" in again.stopped


def test_a_pick_answers_with_what_a_branch_may_set(tmp_path, family):
    folder = tmp_path / "loop"
    begin(folder, family)
    for step in ("gaps", "budget"):
        do_step(folder, step, None, silent)
    found = do_step(folder, "pick", None, silent).result
    assert list(found["forms"]) == list(found["pick"].methods)
    for name, forms in found["forms"].items():
        assert forms == family.method(name).on
    assert found["hyperparameters"] == {one.knob: one.values for one in family.hypers}
