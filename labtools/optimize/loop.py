"""The loop: trial, attribution, validation, learning, one step at a time. Every measurement is on
the disk before anything follows from it, so a step that was cut off goes on with what it has.
`TuningLoop.run` plays the automatic policy; anybody may take each step alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from labtools.predict import gpu_or_default, load_gpu
from labtools.problem import KernelError, LabError, Launch, Problem, kernels_dir
from labtools.problem.launched import LaunchesOf
from labtools.problem.rung import say_knobs
from labtools.problem.text import how_many
from labtools.record.expressions import Quantity
from labtools.record.whole import write_whole
from labtools.toolchain.progress import Progress, silent
from labtools.toolchain.sources import expand_includes

from . import events
from .ablation import TimeCall, ablate_methods, ablate_pairs, pair_variants, single_variants
from .attribution import (
    Attribution,
    MethodClass,
    classify,
    interacting,
    interactions,
    relative_gain,
)
from .bench import TimedOn, TimedPoints, TimingBench
from .branch import (
    MOST_OTHERS,
    Branch,
    Branching,
    held_forms,
    propose,
    rank_of_best,
    say_counted,
    say_methods,
    variants,
    why_not_tried,
    with_methods,
)
from .budget import Budget, allocate, rule_named
from .family import Family, Point, family_hash_of, load_family
from .gaps import NEAR_PEAK, fault_of_counters, gaps_of_counters, rising, say_gaps, trigger_values
from .grid import TunerEntry, export_kernel_tuner, grid_path, read_grid, write_kernel_tuner
from .log import disk, say_command
from .loop_folder import LoopFolder
from .opening import open_bench
from .pick import (
    Pick,
    Retry,
    Taken,
    fresh_form,
    is_on_for_good,
    launch_numbers,
    pick_methods,
    retried_form,
    retried_settings,
    why_not_again,
)
from .sass_check import Proof, SassVerdict, prove
from .source import START_KEY, AskedBranch, BranchSource, SourceText, check_fits, read_branch
from .state import (
    STEPS,
    AblatedPoint,
    FoundPoint,
    GivenRefused,
    LoopResult,
    LoopState,
    RoundKept,
    say_failures,
)

MOST_ROUNDS = 6  # rounds of an automatic run, where none are named
ROUNDS_WITHOUT_GAIN = 2
"""An automatic run stops after so many rounds running without a gain that can be told."""
NEAR_FLOOR = 1.02
"""An automatic run stops at this many times the floor: the bytes at the best rate of a plain read,
and an empty launch."""
MOST_SCORED = 8
"""Entries of the frontier that are timed on the family's other workloads, the fastest first."""
TIMED_BEFORE = "timed before"
WRONG_BEFORE = "found wrong before"
NO_TIME_BEFORE = "without a time before"  # as the two above: why a point is not tried again


class TuningLoop:
    """A loop, opened for writing, and its bench, which a step that needs no time does not open."""

    def __init__(
        self,
        folder: LoopFolder,
        family: Family,
        bench: Callable[[], TimingBench],
        progress: Progress = silent,
    ) -> None:
        self.folder, self.family, self.progress = folder, family, progress
        self._open_bench = bench

    @cached_property
    def bench(self) -> TimingBench:
        """Where points are timed."""
        return self._open_bench()

    @property
    def state(self) -> LoopState:
        """What is known now."""
        return self.folder.state

    # ------------------------------------------------------------------------------- a round

    def take(self, step: str, **given: Any) -> LoopState:
        """A step of `STEPS` by its name; ``given`` are the arguments of its method."""
        state: LoopState = getattr(self, step)(**given)
        return state

    def gaps(self, counters: Mapping[str, float | None] | None = None) -> LoopState:
        """Step 1: how far the champion is from the peaks, by its ``counters`` by stable names; None
        asks the bench. Raises GivenRefused: they are no counters of a kernel."""
        state = self.folder.require("gaps")
        if counters is not None and (fault := fault_of_counters(counters)):
            raise GivenRefused(
                "These counters cannot be used.", fault, "null where a counter was not measured"
            )
        self._time_start()
        point = self.family.read_key(state.point)
        if counters is None:
            found, values = self.bench.gaps(point), self.bench.shares(point)
        else:
            found = gaps_of_counters(counters, self.bench.limits.max_warps_per_sm)
            values = counters
        history = [*(kept.gaps for kept in state.since_restart if kept.gaps is not None), found]
        ends = self.bench.score_ends()
        return self.folder.keep(
            events.GapsDone(state.round, point.key, found, dict(values), rising(history), ends)
        )

    def budget(self, rule: str | None = None) -> LoopState:
        """Step 2: slots for methods on each axis."""
        state = self.folder.require("budget")
        current = state.current
        assert current.gaps is not None
        with _given_by_somebody():
            chosen = rule_named(rule or state.rule)
        made = allocate(current.gaps, chosen, rising=current.rising)
        return self.folder.keep(events.BudgetDone(state.round, made))

    def pick(
        self, methods: Sequence[str] | None = None, acknowledged: Mapping[str, Retry] | None = None
    ) -> LoopState:
        """Step 3: the round's methods, those that the caller chose, or by the four checks and the
        budget. ``acknowledged`` says with what a method is tried again that the compiler dropped.
        Raises GivenRefused: a chosen method does not go with the champion, or was dropped by the
        compiler and nothing is different now."""
        state = self.folder.require("pick")
        current, point = state.current, self.family.read_key(state.current.start)
        assert current.gaps is not None and current.budget is not None
        retries = dict(acknowledged or {})
        taken = self._taken(state, retries)
        with _given_by_somebody():
            self._check_acknowledged(retries, taken, methods)
        chosen = pick_methods(
            self.family,
            point,
            current.gaps,
            current.budget,
            current.counters,
            self.bench.problem,
            self.bench.limits,
            taken,
            refuses=None if point.source else partial(self._cannot_branch, point, retries),
            entry=self.bench.entry(point),
            pass_on=True,
            rng=random.Random(f"{state.seed} {state.round} pick"),
        )
        if methods is not None:
            with _given_by_somebody():
                chosen = self._given(point, chosen, methods, taken, current.budget)
        used = {name: retry for name, retry in retries.items() if name in chosen.methods}
        return self.folder.keep(events.PickDone(state.round, chosen, used, methods is not None))

    def branch(
        self, branches: Sequence[AskedBranch | Mapping[str, int]] | None = None
    ) -> LoopState:
        """Step 4: the forecast's best of all, unless the caller picked the methods, and the same
        methods with several hyperparameters; the fastest right one leads, or what cannot be told
        from it and lets more methods be taken out. Where no branch is right the step may be taken
        again, with other settings. Of ``branches``, which the forecast chooses if None, knobs left
        out are as where the round began, with its methods. Of branches that are source each says
        which methods it claims; steps before this one are taken by the policy where they are not
        done, and more branches may follow until the round is ablated.
        Raises GivenRefused: there is none, or one of them cannot be a branch of this round."""
        written = [one for one in branches or () if isinstance(one, AskedBranch)]
        settings = [one for one in branches or () if not isinstance(one, AskedBranch)]
        if written:
            return self._branch_written(written, settings)
        state = self.folder.require("branch")
        if self.family.read_key(state.current.start).source or state.current.is_written:
            raise GivenRefused(
                "The branches of this round are source.",
                "its kernel has no knobs that switch methods, and nobody here writes CUDA C++",
                f"{say_command('branch', self.folder.path)} --source FILE.cu --method METHOD",
            )
        current, point = state.current, self.family.read_key(state.current.start)
        branching = self._branching(state, point, None if branches is None else settings)
        if not branching.branches:
            reason = _say_no_branch(current, branching.pruned)
            return self.folder.keep(events.LoopStopped(state.round, reason))
        points = [branch.point for branch in branching.branches]
        failures = _wrong_ones(self.bench, points)
        right = [point for point in points if point not in failures]
        times = self._time("branch", right, beside=point) if right else {}
        tried = []
        for branch in branching.branches:
            at, number = branch.point, len(current.branches) + branch.branch
            time_us, failure = None, failures.get(at, "")
            if at in times:
                time_us, failure = times[at].time_us, failure or times[at].failure
            told = (number, at.key, time_us, branch.forecast_us, branch.why, failure)
            tried.append(events.BranchTried(*told))
        champion = self._leader([one for one in tried if one.is_right])
        others = None
        if branches is None and champion is not None and champion not in branching.ordered:
            before = set(self.family.methods_on(point))
            others = tuple(one for one in self.family.methods_on(champion) if one not in before)
        return self.folder.keep(
            events.BranchDone(
                state.round,
                tuple(tried),
                champion.key if champion else None,
                branching.pruned,
                candidates=len(branching.ordered),
                best_rank=rank_of_best(self.bench, branching.ordered),
                other_methods=others,
            )
        )

    def _branch_written(
        self, asked: Sequence[AskedBranch], settings: Sequence[Mapping[str, int]]
    ) -> LoopState:
        """The branches that somebody wrote. Those of before are timed again beside them, so that
        the fastest is found in one call."""
        if self.state.stopped or self.state.next_steps[0] not in STEPS[:4]:
            self.folder.require("branch")
        with _given_by_somebody():
            if settings:
                why = "a branch is source or a setting of knobs, and these are both"
                raise LabError("These branches cannot be of one round.", why, "two rounds")
            made = self._read_written(asked)
        while self.state.next_steps[0] in STEPS[:3]:
            self.take(self.state.next_steps[0])
        state = self.state
        current, start = state.current, self.family.read_key(state.current.start)
        for one in made:
            self.family.sources[one.name] = one
            self.folder.keep(events.SourceGiven(state.round, one))
        points = [self.family.written(one.name) for one in made]
        forecasts = self.bench.forecasts_us(points)
        failures = _wrong_ones(self.bench, points)
        before = [one for one in current.branches if one.is_right]
        new = [one for one in points if one not in failures]
        again = [self.family.read_key(one.point) for one in before]
        times = self._time("branch", [*again, *new], beside=start) if new else {}
        tried = []
        for old, point in zip(before, again, strict=True):
            timed = times.get(point)
            tried.append(replace(old, time_us=timed.time_us) if timed else old)
        for number, point in enumerate(points, start=len(current.branches) + 1):
            time_us, failure = None, failures.get(point, "")
            if point in times:
                time_us, failure = times[point].time_us, failure or times[point].failure
            told = (number, point.key, time_us, forecasts.get(point), "written", failure)
            tried.append(events.BranchTried(*told))
        right = [one for one in tried if one.is_right]
        champion = self._leader(right)
        claimed = [self.family.sources[one.point].methods for one in right or tried]
        return self.folder.keep(
            events.BranchDone(
                state.round,
                tuple(tried),
                champion.key if champion else None,
                other_methods=tuple(dict.fromkeys(itertools.chain(*claimed))),
            )
        )

    def _read_written(self, asked: Sequence[AskedBranch]) -> list[BranchSource]:
        """Branches that somebody wrote, read, compiled and held against the loop's problem; nothing
        is kept of them yet. Raises LabError: one cannot be used."""
        state, family, bench = self.state, self.family, self.bench
        if bench.origin == "recorded":
            why = "a recorded grid has times of its own points alone"
            raise LabError("This loop takes no source.", why, "a loop --on forecast, or --on gpu")
        begun = state.current.round == state.round
        tried = {one.point for kept in state.history for one in kept.branches}
        given = [key for key in family.sources if f"@{state.round}." in key]
        here = [family.sources[key] for key in given if key not in tried]
        number = len(given)
        start = family.read_key(state.current.start if begun else state.point)
        base, knobs = family.rung, family.start.knobs
        begin = (
            family.sources[start.source].code
            if start.source
            else SourceText.read(base.source, base)
        )
        judged = list(state.latest_classes)
        made: list[BranchSource] = []
        for one in asked:
            stem = re.sub(r"[^\w.-]+", "_", Path(one.source).stem)[:40]
            name = f"{stem}@{state.round}.{number + 1}"
            found = read_branch(one, name, base, bench.problem, family.claimable, judged)
            cut_off = [
                other for other in here if other == replace(found, name=other.name)
            ]  # it was given and not tried: what was measured of it is kept
            found = cut_off[0] if cut_off else found
            number += not cut_off
            same = "" if found.code.words != begin.words or start.without else start.key
            for other in (*(family.sources[key] for key in family.sources if key in tried), *made):
                if other.code.words == found.code.words and {*found.methods} <= {*other.methods}:
                    same = other.name
            if same:
                why = f"it says what {same} says, but for comments"
                raise LabError(f"{one.source} is no new branch.", why, "other source, or claims")
            for method in (None, *found.methods):
                out = () if method is None else (method,)
                if out and found.why_not_without(out):
                    continue
                try:
                    check_fits(found.rung(base, out), bench.problem, bench.limits, knobs)
                except LabError as error:
                    if not out:
                        raise
                    what = f"{one.source} cannot be used without {method}."
                    raise LabError(what, f"{error.what} {error.why}", error.still_works) from error
            made.append(found)
        return made

    def _leader(self, right: Sequence[events.BranchTried]) -> Point | None:
        """The fastest of some branches; of those that cannot be told from it the one of which most
        methods can be taken out here."""
        if not right:
            return None
        us = {self.family.read_key(one.point): one.time_us or 0.0 for one in right}

        def stuck(point: Point) -> int:
            left = single_variants(self.family, point, self.family.methods_on(point)).points
            return sum(not self.bench.holds(one) for one in left.values())

        kept = {one: stuck(one) for one in us}
        limit = min(us.values())
        if any(kept.values()):
            limit *= 1 + self.bench.least_effect().effect
        near = [one for one in us if us[one] <= limit]
        return min(near, key=lambda one: (kept[one], us[one]))

    def ablate(self, pairs: bool = False) -> LoopState:
        """Step 5: the champion with one method out at a time, with ``pairs`` two as well."""
        state = self.folder.require("ablate")

        def beside(of: Point, points: Sequence[Point]) -> TimedPoints:
            others = [point for point in points if point != of]
            found = self._time("ablation", others, beside=of)
            return TimedPoints(
                {at: timed.samples for at, timed in found.items() if timed.samples is not None},
                {at: timed.failure for at, timed in found.items() if timed.samples is None},
            )

        single, both, untimed = list[Attribution](), list[Attribution](), dict[str, str]()
        judged = self._judged(state)
        if len(judged) > 1:  # whether they are right is found out together
            left = (single_variants(self.family, *one).points.values() for one in judged.items())
            self.bench.check([*itertools.chain.from_iterable(left)])
        for point, methods in judged.items():
            found = _ablate(self.bench, point, methods, pairs, partial(beside, point))
            single += found.single
            both += found.both
            untimed |= found.untimed
        told = (self.bench.least_effect(), tuple(single), tuple(both), untimed)
        return self.folder.keep(events.AblateDone(state.round, *told))

    def _judged(self, state: LoopState) -> dict[Point, list[str]]:
        """The round's methods by the point that each is taken out of: the champion, or of what it
        does not claim the fastest right branch that does."""
        champion = self._champion(state)
        found: dict[Point, list[str]] = {champion: []}
        branches = sorted(
            (one for one in state.current.branches if one.is_right),
            key=lambda one: one.time_us or 0.0,
        )
        others = [self.family.read_key(one.point) for one in branches]
        for name in state.current.methods:
            claims = (
                one
                for one in (champion, *others)
                if not one.source or name in self.family.sources[one.source].methods
            )
            found.setdefault(next(claims, champion), []).append(name)
        return found

    def check(self) -> LoopState:
        """Step 6: what of each method is in the champion's machine code."""
        state = self.folder.require("check")
        judged = self._judged(state).items()
        verdicts = [check_methods(self.bench, point, methods) for point, methods in judged]
        return self.folder.keep(
            events.CheckDone(state.round, tuple(itertools.chain.from_iterable(verdicts)))
        )

    def update(self, analysis: str = "") -> LoopState:
        """Step 7: class each method, and say where the next round begins; ``analysis`` are words of
        whoever drives the loop."""
        self.folder.require("update")
        self._time_start()
        state = self.state
        current = state.current
        found = {one.method: one for one in current.attribution or ()}
        met = interacting(current.interactions)
        classes = {
            verdict.method: classify(found.get(verdict.method), verdict, verdict.method in met)
            for verdict in current.sass_check or ()
            if verdict.method in found or verdict.method in current.untimed
        }
        if current.is_written:  # what was judged before stands where it was not taken out again
            for name, known in state.latest_classes.items():
                if classes.get(name) == "undecided" and name not in found:
                    classes[name] = known
        gain, point, time_us = self._next_point(state)
        on = self.family.methods_on(self.family.read_key(point))
        return self.folder.keep(
            events.UpdateDone(state.round, classes, point, time_us, gain, analysis, on)
        )

    # ------------------------------------------------------------------------ the whole loop

    def run(self, max_rounds: int = MOST_ROUNDS, max_runs: int | None = None) -> LoopResult:
        """Play the automatic policy until it stops, at most ``max_rounds`` since the last restart;
        no round begins once ``max_runs`` candidates were timed."""
        limit = ""
        while not (state := self.state).stopped:
            step = state.next_steps[0]
            if step == STEPS[0] and (limit := _limit_reached(state, max_rounds, max_runs)):
                break
            if step == "branch" and self.family.read_key(state.current.start).source:
                told = f"{say_command('branch', self.folder.path)} --source FILE.cu --method METHOD"
                limit = f"the next branch is source, which somebody has to write: {told}"
                break
            if reason := self._reason_to_stop(state, step):
                self.folder.keep(events.LoopStopped(state.round, reason))
                break
            done = state.rounds_since_restart * len(STEPS) + STEPS.index(step)
            self.progress(f"round {state.round}: {step}", done, max_rounds * len(STEPS))
            self.take(step, **({"acknowledged": self._acknowledge()} if step == "pick" else {}))
        self.score_frontier()
        return self.result(limit)

    def result(self, limit: str = "") -> LoopResult:
        """What the loop came to so far; ``limit`` is why a run ended that may go on."""
        state = self.state
        if state.time_us is None:
            again = say_command("run", self.folder.path)
            raise LabError("The loop has no champion yet.", "nothing was timed", again)
        return LoopResult(
            FoundPoint(state.point, state.knobs[state.point], state.time_us),
            state.rounds,
            state.runs,
            state.stopped or limit,
            best=_found(self.bench.best_of_grid()),
            best_leading=_found(self.bench.best_leading()),
            sol=state.sol,
            forecast=state.forecast_hits,
        )

    def score_frontier(self) -> None:
        """Time the fastest entries of the frontier on the family's other workloads; a kernel alone
        has none."""
        state = self.state
        if self.family.is_plain:
            return
        others = [problem for problem in self.family.workloads if problem != self.bench.problem]
        entries = sorted(state.frontier, key=lambda entry: entry.time_us)[:MOST_SCORED]
        missing = [self.family.read_key(entry.point) for entry in entries if not entry.others_us]
        found: dict[str, dict[str, float]] = {}
        for problem in others if missing else ():
            timed = self.bench.time(missing, problem)
            for point in timed.samples:
                found.setdefault(point.key, {})[str(problem)] = timed.median_us(point)
        if found:
            self.folder.keep(events.FrontierScored(found))

    # --------------------------------------------------------------------------- measurements

    def _time(
        self, purpose: events.Purpose, points: Sequence[Point], *, beside: Point
    ) -> dict[Point, events.PointTimed]:
        """Time points and keep each measurement; what this round has already is not timed again. A
        bench may compare only what it timed in one call. There a call of which the log has a part
        is made anew, and points come with what they were timed beside."""
        left = set(self.folder.plan(purpose, [point.key for point in points]))
        calls = self._calls(purpose, points)
        alone = self._kept("reference", beside, calls) is None
        if self.bench.one_call:
            if left or alone or len(calls) > 1:
                self._keep_call(purpose, points, beside)
        else:
            # Without what it is compared with a measurement is worth nothing: that comes first.
            if alone:
                self._keep_call("reference", [beside])
            for point in points:
                if point.key in left:
                    self._keep_call(purpose, [point])
        found = {point: self._kept(purpose, point) for point in points}
        found[beside] = self._kept("reference", beside, self._calls(purpose, points))
        return {point: timed for point, timed in found.items() if timed is not None}

    def _keep_call(
        self, purpose: events.Purpose, points: Sequence[Point], beside: Point | None = None
    ) -> None:
        named = [(point, purpose) for point in points]
        if beside is not None:
            named.insert(0, (beside, "reference"))
        timed = self.bench.time([point for point, _ in named])
        call, number = self.folder.next_call, self.state.round
        for at, why in named:
            found = (timed.samples.get(at), timed.failures.get(at, ""))
            kept = events.PointTimed(number, why, at.key, call, *found, knobs=dict(at.knobs))
            self.folder.keep(kept)

    def _kept(
        self, purpose: events.Purpose, point: Point, calls: Collection[int] = ()
    ) -> events.PointTimed | None:
        number = self.state.round
        return self.folder.measured(point.key, round=number, purpose=purpose, calls=calls)

    def _calls(self, purpose: events.Purpose, points: Sequence[Point]) -> set[int]:
        """The calls in which points were timed; none where the bench compares across calls."""
        kept = [self._kept(purpose, point) for point in points] if self.bench.one_call else []
        return {timed.call for timed in kept if timed is not None}

    def _time_start(self) -> None:
        """Time the point that the round begins from, where it has no time. It is no candidate."""
        if self.state.time_us is not None:
            return
        point = self.family.read_key(self.state.point)
        self.folder.plan("start", [point.key])
        self._keep_call("start", [point])
        if self.state.time_us is None:
            timed = self._kept("start", point)
            raise LabError(
                f"{point.key} has no time, so no round can begin from it.",
                timed.failure if timed else "",
                "the same step again; a restart from an entry of the frontier",
            )

    # ------------------------------------------------------------------------------- deciding

    def _champion(self, state: LoopState) -> Point:
        assert state.current.champion is not None
        return self.family.read_key(state.current.champion)

    def _branching(
        self, state: LoopState, point: Point, given: Sequence[Mapping[str, int]] | None
    ) -> Branching:
        """The branches of this attempt of the round."""
        current = state.current
        if given is not None:
            with _given_by_somebody():
                return self._given_branches(current, point, given)
        dropped = state.implementation_failed_methods
        return propose(
            self.bench,
            point,
            current.methods,
            count=state.branches,
            known=self._known_points(state),
            seed=f"{state.seed} {state.round} {current.retries}",
            forms=current.pick.forms if current.pick else {},
            fixed=dropped,
            settings=retried_settings(self.family, current.acknowledged),
            others=() if current.given else self._others(state, point, dropped),
        )

    def _others(self, state: LoopState, point: Point, dropped: Collection[str]) -> list[Point]:
        """The points that the forecast may put first, whatever their methods: all that may lead,
        or where a forecast takes time some that are drawn. None has a method in a form that the
        compiler may have dropped, nor methods of which no branch was right."""
        family, every = self.family, self.bench.leading
        if len(every) > MOST_OTHERS and not self.bench.forecasts_are_kept:
            every = random.Random(f"{state.seed} others").sample(every, MOST_OTHERS)
        return [
            one
            for one in every
            if all(family.form_of(one, n) in (None, family.form_of(point, n)) for n in dropped)
            and not any(set(some) <= set(family.methods_on(one)) for some in state.wrong_picks)
        ]

    def _given_branches(
        self, current: RoundKept, point: Point, given: Sequence[Mapping[str, int]]
    ) -> Branching:
        """Branches that the caller made. Each has the round's methods: they will be taken out."""
        if not given:
            why = "none was given"
            raise LabError("There is no branch.", why, "without input the policy chooses")
        forms = current.pick.forms if current.pick else {}
        base = with_methods(self.family, point, current.methods, forms)
        chosen: list[Point] = []
        for knobs in given:
            try:
                made = self.family.point({**base.knobs, **knobs})
                reason = self._why_no_branch(current, point, base, made)
                if made in chosen:
                    reason = reason or f"it is branch {chosen.index(made) + 1} already"
                if reason:
                    raise LabError(f"{made.key} cannot be a branch.", reason)
            except LabError as error:
                legal = self._name_legal(current, point, base, knobs, chosen)
                raise LabError(error.what, error.why, legal) from error
            chosen.append(made)
        return Branching(
            tuple(Branch(n, made, None, "given") for n, made in enumerate(chosen, start=1))
        )

    def _name_legal(
        self,
        current: RoundKept,
        point: Point,
        base: Point,
        given: Mapping[str, Any],
        others: Collection[Point],
    ) -> str:
        """The branch of the round that is most like what was given, as it can be given."""
        known = {name: given[name] for name in base.knobs if isinstance(given.get(name), int)}
        wanted = {**base.knobs, **known}
        forms = current.pick.forms if current.pick else {}
        fixed = self.state.implementation_failed_methods
        settings = retried_settings(self.family, current.acknowledged)
        made = variants(self.family, point, current.methods, forms, fixed, settings)
        left = [one for one in made if isinstance(one, Point) and one not in others]

        def apart(one: Point) -> tuple[int, int, str]:
            far = [abs(one.knobs[name] - value) for name, value in wanted.items()]
            return sum(map(bool, far)), sum(far), one.key

        for one in sorted(left, key=apart):
            if self._why_no_branch(current, point, base, one) is None:
                said = {n: v for n, v in one.knobs.items() if n in known or v != base.knobs[n]}
                return f"{json.dumps(said)}, the nearest that can be one; branch without input"
        return "another pick: this round has no other branch"

    def _why_no_branch(
        self, current: RoundKept, point: Point, base: Point, made: Point
    ) -> str | None:
        """Why a point is no branch of the round, or None; ``base``: its start, methods on."""
        family, methods = self.family, current.methods
        if without := [name for name in methods if not family.has(made, name)]:
            return f"{' and '.join(without)}, picked for this round, would be off there"
        on, there = set(family.methods_on(base)), set(family.methods_on(made))
        if other := sorted(on ^ there):
            word = "on" if other[0] in there else "off"
            return f"{other[0]}, not picked for this round, would be switched {word} there"
        forms = current.pick.forms if current.pick else {}
        dropped = self.state.implementation_failed_methods
        for name, form in {**held_forms(family, point, base, methods, dropped), **forms}.items():
            if family.form_of(made, name) != form:
                reason = f"{name}, which the compiler dropped, would have another form there, and "
                if name not in forms:
                    return reason + "is not picked for this round"
                return reason + f"is tried again with {say_knobs(family.method(name).on[form])}"
        for knob, value in retried_settings(family, current.acknowledged).items():
            if made.knobs[knob] != value:
                return (
                    f"{knob}={value} was said of a method that is tried again, and it would be "
                    f"{knob}={made.knobs[knob]} there"
                )
        for kept in self.state.history:
            for name, found in (kept.classes or {}).items() if kept.champion == made.key else ():
                if name in methods and found == "implementation_failed":
                    return f"there the compiler dropped {name}"
        return self.bench.refuses(made)

    def _known_points(self, state: LoopState) -> dict[Point, str]:
        """Points not tried again, and why; without those a cut-off attempt has timed."""
        branches = [tried for kept in state.history for tried in kept.branches]
        timed = [run.point for run in state.timed if run.round < state.round]
        timed += [kept.start for kept in state.history] + [tried.point for tried in branches]
        said = dict.fromkeys(timed, TIMED_BEFORE)
        said |= {tried.point: WRONG_BEFORE for tried in branches if not tried.is_right}
        untimed = [run.point for run in state.timed if run.time_us is None]
        said |= {key: NO_TIME_BEFORE for key in untimed if key in said}  # what is wrong never ran
        return {self.family.read_key(key): why for key, why in said.items()}

    def _cannot_branch(
        self,
        point: Point,
        retries: Mapping[str, Retry],
        methods: Sequence[str],
        forms: Mapping[str, int],
    ) -> str | None:
        """Why no setting of some methods can be tried on this bench, or None."""
        mine = {name: retry for name, retry in retries.items() if name in methods}
        try:
            settings = retried_settings(self.family, mine)
        except LabError as error:
            return error.clause
        known = self._known_points(self.state)
        reasons: Counter[str] = Counter()
        fixed = self.state.implementation_failed_methods
        for made in variants(self.family, point, methods, forms, fixed, settings):
            reason = made if isinstance(made, str) else why_not_tried(self.bench, made, known)
            if reason is None:
                return None
            reasons[reason] += 1
        return f"no setting {say_methods(methods)} can be tried: {say_counted(reasons)}"

    def _check_acknowledged(
        self, retries: Mapping[str, Retry], taken: Taken, methods: Sequence[str] | None
    ) -> None:
        """Refuse retries of methods for which they change nothing, or that name no knob's value."""
        for name, retry in retries.items():
            self.family.method(name)
            why = ""
            if name not in taken.failed:
                why = "the compiler did not drop it in an earlier round"
            elif methods is not None and name not in methods:
                why = "it is none of the methods that are given"
            elif bool(retry.knob) != (retry.value is not None):
                why = "a knob goes with its value"
            if why:
                raise LabError(
                    f"Nothing about {name} needs to be acknowledged.", why, "the pick without it"
                )

    def _given(
        self, point: Point, chosen: Pick, methods: Sequence[str], taken: Taken, budget: Budget
    ) -> Pick:
        """A pick that the caller made, beside what the checks said of each method. It may go beyond
        the budget; each method that does says so."""
        wanted = tuple(dict.fromkeys(methods))
        forms: dict[str, int] = {}
        for name in wanted:
            method = self.family.method(name)
            if is_on_for_good(self.family, point, method, taken):
                raise LabError(f"{name} cannot be taken.", "it is on already", "other methods")
            if point.source:  # other source is what is different
                continue
            if why := why_not_again(method, taken):
                raise LabError(
                    f"{name} cannot be tried again.",
                    why,
                    f'"acknowledged": {{"{name}": {{"form": 0}}}} names a form, counted from 0: '
                    f"{' or '.join(map(say_knobs, method.on))}; a knob; other methods",
                )
            forms |= retried_form(method, taken)
        if not point.source:
            self.family.apply(point, wanted, forms=forms)
            if reason := self._cannot_branch(point, taken.acknowledged, wanted, forms):
                raise LabError("This pick leads nowhere.", reason, "other methods")
        given = Counter(self.family.method(name).axis for name in wanted)
        considered = []
        for seen in chosen.considered:
            checked = "all four checks passed" if seen.checks.passed else seen.why
            why = f"given by the caller; {checked}"
            if given[seen.axis] > (slots := budget.of(seen.axis)):
                why += f"; beyond the budget, whose slots for {seen.axis} are {slots}"
            if seen.method not in wanted:
                why = f"the caller chose others; {checked}" if seen.taken else seen.why
            considered.append(replace(seen, taken=seen.method in wanted, why=why))
        return Pick(wanted, forms, tuple(considered), max(0, budget.total - len(wanted)))

    def _taken(self, state: LoopState, acknowledged: Mapping[str, Retry]) -> Taken:
        """What earlier rounds found out of methods. A restart leaves the way to a point, and the
        verdicts on it with it. What the compiler made of a form holds wherever the loop stands."""
        failed: dict[str, tuple[int, ...]] = dict.fromkeys(state.implementation_failed_methods, ())
        for kept in state.history:
            for name, found in (kept.classes or {}).items():
                if name in failed and found == "implementation_failed" and kept.champion:
                    form = self.family.form_of(self.family.read_key(kept.champion), name)
                    failed[name] += () if form is None else (form,)
        gains = {kept.round: self._champion_gain(kept) for kept in state.since_restart}
        unsaid = any(kept.classes and kept.aa is None for kept in state.since_restart)
        least = self.bench.least_effect().effect if unsaid else 0.0
        verdicts = settled(state.since_restart, gains, least)
        effective, ineffective = (
            tuple(name for name, verdict in verdicts.items() if verdict == wanted)
            for wanted in ("effective", "ineffective")
        )
        open_ = state.undecided_methods
        return Taken(effective, ineffective, failed, acknowledged, open_, state.wrong_picks)

    def _acknowledge(self) -> dict[str, Retry]:
        """With what the policy tries methods again that the compiler dropped: another form."""
        taken = self._taken(self.state, {})
        retries = {}
        for name in taken.failed:
            method = self.family.method(name)
            if (fresh := fresh_form(method, taken)) is not None:
                form = say_knobs(method.on[fresh])
                reason = f"another form, {form}: the compiler dropped the one before"
                retries[name] = Retry(fresh, reason=reason)
        return retries

    def _next_point(self, state: LoopState) -> tuple[float | None, str, float]:
        """Gain of the round, and the point that the next one begins from, with its time: the
        champion, or it without the method that harms most, where that is faster than the point
        before by more than can be told here."""
        current = state.current
        assert state.time_us is not None and current.champion is not None
        leader = self._kept("branch", self._champion(state))
        gain = self._champion_gain(current)
        harmed = [
            found
            for found in current.attribution or ()
            if found.high < -found.threshold
            and self.bench.crowns(left := self.family.read_key(found.without))
            and left.source == self._champion(state).source
        ]
        if harmed:
            worst = min(harmed, key=lambda found: found.relative)
            leader = self._kept("ablation", self.family.read_key(worst.without))
            if gain is not None:  # two ratios, each of one call
                gain = (1 + gain) / (1 + worst.relative) - 1
        least = (current.aa or self.bench.least_effect()).effect
        if gain is not None and gain > least and leader and leader.time_us is not None:
            return gain, leader.point, leader.time_us
        return gain, current.start, state.time_us

    def _champion_gain(self, kept: RoundKept) -> float | None:
        """Gain of a round's champion, with all of its methods, over the point that the round began
        from; None where the two were not both timed."""
        if kept.champion is None:
            return None
        after = self.folder.measured(kept.champion, round=kept.round, purpose="branch")
        calls = {after.call} if after is not None and self.bench.one_call else ()
        where: Any = {"round": kept.round, "purpose": "reference", "calls": calls}
        before = self.folder.measured(kept.start, **where)
        if before is None or after is None or before.samples is None or after.samples is None:
            return None
        return relative_gain(before.samples, after.samples)

    def _reason_to_stop(self, state: LoopState, step: str) -> str | None:
        """Why a run does not take a step, or None. Near the peak a round ends with its gaps. All
        else is asked before a round begins."""
        if step == STEPS[1] and (found := state.current.gaps) is not None and found.near_peak:
            return f"near the peak: all three gaps are below {NEAR_PEAK:g}, {say_gaps(found)}"
        if step != STEPS[0]:
            return None
        floor_us = self.bench.floor_us()
        if floor_us and state.time_us and state.time_us <= NEAR_FLOOR * floor_us:
            near = f"{NEAR_FLOOR:g} times the floor, {floor_us:.2f} us"
            return f"{state.time_us:.2f} us is within {near}"
        whole = [kept for kept in state.since_restart if kept.classes is not None]
        gains = [kept.gain for kept in whole[-ROUNDS_WITHOUT_GAIN:]]
        least = self.bench.least_effect().effect
        if len(gains) == ROUNDS_WITHOUT_GAIN and all(
            gain is not None and gain <= least for gain in gains
        ):
            said = f"{ROUNDS_WITHOUT_GAIN} rounds running without a gain"
            if self.bench.origin == "forecast":
                return f"{said} by the forecast, which may be wrong about them"
            return f"{said} above {least:.2%}, which is what can be told here"
        return None


@contextlib.contextmanager
def _given_by_somebody() -> Iterator[None]:
    """Inside, what is refused is what somebody decided for a step."""
    try:
        yield
    except LabError as error:
        raise GivenRefused(error.what, error.why, error.still_works) from error


def settled(
    rounds: Sequence[RoundKept], gains: Mapping[int, float | None], least: float
) -> dict[str, MethodClass]:
    """The latest verdict of each method, of those that later rounds have to believe. Where the
    round's champion was not faster than what the round began from, the loop did not go on from the
    judged point: a method effective there is not on, and an ineffective one may be taken again only
    where the champion was slower and no method of the round was effective (beside an effective one
    it stays ineffective, or the next round would be the same again). Whether the round was slower
    is asked of its champion with all methods. ``gains`` are of each round's champion over where it
    began, None where unknown; ``least`` is the smallest relative effect that can be told in a round
    that does not say."""
    found: dict[str, MethodClass] = {}
    for kept in rounds:
        gain = gains.get(kept.round)
        told = kept.aa.effect if kept.aa else least
        stayed = kept.gain is None or kept.gain <= told
        classes = kept.classes or {}
        lost = stayed and gain is not None and gain < -told and "effective" not in classes.values()
        for name, verdict in classes.items():
            found.pop(name, None)  # the latest stands, at the end
            if not ((verdict == "effective" and stayed) or (verdict == "ineffective" and lost)):
                found[name] = verdict
    return found


def _limit_reached(state: LoopState, max_rounds: int, max_runs: int | None) -> str:
    """The limit of a run that is reached, or nothing."""
    if (whole := state.rounds_since_restart) >= max_rounds:
        since = " since the restart" if whole < state.rounds else ""
        return f"the limit of {how_many(max_rounds, 'round')}{since} is reached"
    if max_runs is not None and state.runs >= max_runs:
        asked = "was" if max_runs == 1 else "were"
        timed = how_many(state.runs, "candidate")
        were = "was" if state.runs == 1 else "were"
        return f"{timed} {were} timed, and {max_runs} {asked} asked for"
    return ""


def _say_no_branch(current: RoundKept, pruned: Mapping[str, int]) -> str:
    """Why a round has nothing left to try."""
    why = ""
    if current.pick is not None and not current.methods:
        considered = current.pick.considered
        why = "no method was picked"
        if unknown := sum(seen.checks.is_open for seen in considered):
            why += f", {unknown} of {len(considered)} because a value is missing or cannot be "
            why += "computed"
        why += ", and "
    why += f"no setting is left to try {say_methods(current.methods)}: {say_counted(pruned)}"
    if tried := current.branches:
        count = "one was tried" if len(tried) == 1 else f"{len(tried)} were tried"
        why += f"; {count}: {say_failures(tried)}"
    return why


def _found(best: tuple[Point, float] | None) -> FoundPoint | None:
    """A point with its time, where there is one."""
    return FoundPoint(best[0].key, dict(best[0].knobs), best[1]) if best is not None else None


def _wrong_ones(bench: TimingBench, points: Sequence[Point]) -> dict[Point, str]:
    """Of some points those whose answers are wrong, and what is wrong with them."""
    return {point: why for point, why in bench.check(points).items() if why is not None}


@dataclass(frozen=True)
class _Ablated:
    """A point with one method out at a time, or two."""

    single: tuple[Attribution, ...]
    both: tuple[Attribution, ...]
    untimed: dict[str, str]  # why a method or a pair has no time, by its name
    time_us: float | None  # of the point, where it was timed


def _ablate(
    bench: TimingBench, point: Point, methods: Sequence[str], pairs: bool, time: TimeCall
) -> _Ablated:
    """Time a point without some methods; variants whose answers are wrong have no time."""
    failures: dict[Point, str] = {}
    time_us: list[float] = []

    def right_ones(points: Sequence[Point]) -> TimedPoints:
        wrong = _wrong_ones(bench, [one for one in points if one != point])
        found = time([one for one in points if one not in wrong])
        failures.update({**found.failures, **wrong})
        if point in found.samples:
            time_us.append(found.median_us(point))
        return found

    single = ablate_methods(bench, point, methods, right_ones) if methods else ()
    both = ablate_pairs(bench, point, methods, right_ones) if methods and pairs else ()
    timed = {found.method for found in (*single, *both)}
    untimed: dict[str, str] = {}
    for remove in (single_variants, pair_variants) if pairs else (single_variants,):
        some = remove(bench.family, point, methods)
        untimed |= some.refused
        untimed |= {name: failures[one] for name, one in some.points.items() if one in failures}
    left = {name: why for name, why in untimed.items() if name not in timed}
    return _Ablated(single, both, left, time_us[0] if time_us else None)


def _check_right(bench: TimingBench, point: Point) -> None:
    """Refuse to begin from a point whose answers are wrong."""
    if wrong := _wrong_ones(bench, [point]):
        raise KernelError(
            f"{bench.family.rung.id} is wrong at {point.key}.",
            wrong[point],
            "labtools run shows each case; a kernel that is right can be tuned",
        )


def check_methods(
    bench: TimingBench, point: Point, methods: Sequence[str]
) -> tuple[SassVerdict, ...]:
    """What of some methods is in a point's machine code, each against the code without it."""
    family = bench.family
    left = single_variants(family, point, methods).points
    left = {name: one for name, one in left.items() if bench.holds(one)}
    unsigned = [name for name in left if not family.method(name).signature]
    proved: dict[str, Proof] = {}
    if unsigned:
        bench.look_ahead([point, *(left[name] for name in unsigned)])
        values, origins = proof_values(bench, point), proof_origins(bench, point)
        for name in unsigned:
            without = proof_values(bench, left[name])
            proved[name] = prove(family.method(name), values, without, origins)
    found = bench.look_for(point, {name: left.get(name) for name in methods}, proved)
    return tuple(
        replace(one, removed=family.dependents(point, one.method)) if one.method in left else one
        for one in found
    )


def proof_values(bench: TimingBench, point: Point) -> dict[str, Quantity | None]:
    """What a proof may ask of a point: counters, stalls, gaps, its launches and its code."""
    return {name: value for part in _proof_parts(bench, point).values() for name, value in part}


def proof_origins(bench: TimingBench, point: Point) -> dict[str, str]:
    """Where each of `proof_values` comes from."""
    return {name: said for said, part in _proof_parts(bench, point).items() for name, _ in part}


def _proof_parts(bench: TimingBench, point: Point) -> dict[str, list[tuple[str, Quantity | None]]]:
    rung, entry, gaps = bench.family.rung_at(point), bench.entry(point), bench.gaps(point)
    measured = trigger_values(bench.shares(point), gaps)
    launched = launch_numbers(rung, point, bench.problem, bench.limits, entry)
    return {
        f"{gaps.origin} of {point.key}": list(measured.items()),
        f"the launches at {bench.problem}": list(launched.items()),
        f"one block of {entry} followed, and its cubin": list(bench.numbers(point).items()),
    }


# ----------------------------------------------------------------------------------- a folder


def init(
    folder: Path,
    family: Family,
    workload: Problem | None,
    on: TimedOn,
    seed: int,
    branches: int,
    rule: str,
) -> LoopState:
    """Begin a loop in a folder that holds none; without a workload at the family's headline."""
    if branches < 1:
        what = f"A round of {branches} branches tries nothing."
        raise LabError(what, "it needs at least 1", "4 is usual")
    bench = open_bench(family, workload or family.workloads[0], on)
    start, what = family.start, f"{family.rung.id} cannot begin here."
    if not bench.crowns(start):
        raise LabError(
            what,
            "its start is no point of its own grid",
            f"a [[grid]] that holds the start, or a [start] that the grid holds, in "
            f"{family.path.with_suffix('.toml')}; --on gpu, where any point may lead",
        )
    if reason := bench.refuses(start):
        raise LabError(
            what, reason, "another workload" + (", or --on forecast" if on == "recorded" else "")
        )
    event = events.InitDone(
        family=family_name(family),
        family_hash=family_hash_of(family),
        workload=bench.problem,
        on=on,
        gpu=bench.gpu,
        seed=seed,
        branches=branches,
        rule=rule_named(rule),
        env=bench.environment(),
        start=start.key,
        start_knobs=dict(start.knobs),
        source=family.sources.get(START_KEY),
    )
    _check_right(bench, start)
    with LoopFolder.create(folder, event, _source_of(family)) as opened:
        return opened.state


def family_name(family: Family) -> str:
    """How a later step finds the family: a shipped one by its id, another by its path."""
    with contextlib.suppress(LabError):
        if load_family(family.rung.id).path == family.path:
            return family.rung.id
    return str(family.path.resolve())


def _source_of(family: Family) -> Callable[[str, LoopState], str]:
    """The text of a point's kernel, see `standalone_source`."""

    def text(key: str, state: LoopState) -> str:
        family.sources.update(state.sources)
        return standalone_source(family, family.read_key(key), state)

    return text


def standalone_source(family: Family, point: Point, state: LoopState) -> str:
    """A point's kernel as one file that nvcc compiles alone: how it is launched at the loop's
    workload in a comment, its definitions, then the source with its own headers laid in."""
    rung = family.rung_at(point)
    try:
        limits = load_gpu(state.gpu).limits
    except LabError:  # a live GPU without a data sheet
        limits = gpu_or_default().limits
    try:
        problem = state.problem
        launched = list(_say_launches(rung.launches(problem, limits, point.knobs)))
        defined = rung.defines(problem, limits, point.knobs)
    except LabError as error:
        launched = [f"it cannot be launched there: {error.clause}"]
        defined = {k.name.upper(): str(point.knobs[k.name]) for k in rung.knobs if k.compiled}
    command = f"nvcc -std=c++17 -ftz=true -arch={limits.arch} -cubin FILE.cu"
    told = (f"{rung.id} at {point.key} for {state.workload}", command, *launched)
    head = "".join(f"// {line}\n" for line in told)
    text = "".join(f"#define {name} {value}\n" for name, value in defined.items())
    own = (*map(Path, rung.include_dirs), kernels_dir() / "include")
    source = re.sub(r"^#pragma once\n", "", expand_includes(rung.source_text, own), flags=re.M)
    # nvcc expands no definition behind this pragma, as NVRTC does.
    source = re.sub(
        r"^([ \t]*#pragma unroll[ (]+)(\w+)",
        lambda found: found[1] + defined.get(found[2], found[2]),
        source,
        flags=re.M,
    )
    return f"{head}\n{text}\n{source}"


def _say_launches(launches: Sequence[Launch]) -> Iterator[str]:
    """Each launch as CUDA C++ has it, and the buffers that it needs beside those of the problem."""
    for one in launches:
        grid, block = (", ".join(map(str, size)) for size in (one.grid, one.block))
        shared = f"{one.smem_bytes} /* bytes of dynamic shared memory */"
        said = ", ".join(
            arg if isinstance(arg, str) else f"{type(arg).__name__} {arg}" for arg in one.args
        )
        once = "  once for each set of buffers, not timed" if one.prepare else ""
        yield f"{one.entry}<<<dim3({grid}), dim3({block}), {shared}>>>({said}){once}"
    for space in dict.fromkeys(space for one in launches for space in one.workspace):
        yield f"{space.name}: a workspace of {space.shape}, {space.dtype}, zero at first"


@contextlib.contextmanager
def open_loop(folder: Path, family: Family, progress: Progress = silent) -> Iterator[TuningLoop]:
    """The loop of a folder, to go on with; no other process does so until the end of the block."""
    with LoopFolder.opened(folder, _source_of(family)) as opened, contextlib.ExitStack() as held:
        state = opened.state
        family.sources.update(state.sources)
        if state.family_hash != family_hash_of(family):
            raise LabError(
                f"{family.rung.id} is no longer what this loop began with.",
                "its source, its Python or its methods have changed, so what was found earlier is "
                "of another kernel",
                f"{say_command('summary', folder)} reads it; a new folder for the kernel as it is "
                "now",
            )

        def bench() -> TimingBench:
            opening = open_bench(
                family,
                state.problem,
                cast(TimedOn, state.on),
                progress=progress,
                points_known=True,  # they were compared when the loop began, with this family
            )
            return held.enter_context(opening)

        yield TuningLoop(opened, family, bench, progress)


def run(
    folder: Path,
    family: Family,
    max_rounds: int = MOST_ROUNDS,
    max_runs: int | None = None,
    progress: Progress = silent,
) -> LoopResult:
    """The automatic policy on a folder, see `TuningLoop.run`."""
    with open_loop(folder, family, progress) as loop:
        return loop.run(max_rounds, max_runs)


def export(folder: Path, family: Family, target: Path) -> tuple[Path, ...]:
    """Write a loop's champion as a rung of its own and as one .cu that compiles alone, beside it
    the fastest right point that was timed where that is another, and what was timed for Kernel
    Tuner: the loop's runs, and the whole grid where it was played on it. A loop on forecasts names
    another device than the GPU."""
    looked = LoopFolder.look(folder)
    state = looked.state
    family.sources.update(state.sources)
    rung, cache = target / f"{family.rung.id}_champion.py", target / "kernel_tuner_cache.json"
    sources = {rung.with_suffix(".cu"): state.point}
    timed = {run.point: run.time_us for run in state.timed if run.time_us is not None}
    best = min(timed, key=lambda key: timed[key], default=state.point)
    if best != state.point:
        sources[target / f"{family.rung.id}_fastest.cu"] = best
    device = str(state.env.get("gpu", state.gpu))
    if state.on == "forecast":  # what is measured must not be added to it
        device = f"forecast of {device}"
    knobs = {knob.name: knob.choices for knob in family.rung.knobs}
    rules = [(one.require, one.reason) for one in family.constraints]
    written = [rung, cache, *sources]
    with disk(f"{target} cannot be written.", "another folder"):
        target.mkdir(parents=True, exist_ok=True)
        write_whole(rung, _champion_rung(family, state).encode())
        for path, key in sources.items():
            point = family.read_key(key)
            text = standalone_source(family, point, state)
            if point.source and path == rung.with_suffix(".cu"):  # its rung has the others
                own = family.sources[point.source]
                defined = own.definitions(point.without).items()
                text = "".join(f"#define {name} {value}\n" for name, value in defined)
                text += own.source_without(point.without).text
            write_whole(path, text.encode())
        write_kernel_tuner(
            *(cache, family.rung.id, device, state.problem, list(_tuner_entries(looked)), knobs),
            rules,
        )
        if state.on == "recorded":
            written.append(target / "kernel_tuner_grid.json")
            grid = read_grid(grid_path(family.rung.id, state.gpu))
            export_kernel_tuner(grid, written[-1], state.problem, rules)
    return tuple(written)


def _tuner_entries(looked: LoopFolder) -> Iterator[TunerEntry]:
    """What a loop timed."""
    state = looked.state
    when = {
        line.event.point: line.at
        for line in looked.lines
        if isinstance(line.event, events.PointTimed)
    }
    for key in dict.fromkeys(run.point for run in state.timed):
        timed = looked.measured(key)
        processes = timed.samples.processes if timed and timed.samples else ()
        us = tuple(one for process in processes for one in process.us)
        spent_us = sum(sum(process.us) * process.launches_per_sample for process in processes)
        at = state.env.get("measured", when[key])  # recorded times are as old as their campaign
        yield TunerEntry(state.knobs[key], us, at, "" if us else "RuntimeFailedConfig", spent_us)


_CHAMPION = '''\
"""The champion of a loop on {rung} for {workload}.

Idea: {point}
"""

import dataclasses

from labtools.problem import load_rung

FAMILY = load_rung({base!r})
KNOBS = {knobs!r}

RUNG = dataclasses.replace(
    FAMILY,
    id={name!r},
    knobs=tuple(
        dataclasses.replace(knob, default=KNOBS[knob.name]) for knob in FAMILY.knobs
    ),
)
'''


def _champion_rung(family: Family, state: LoopState) -> str:
    """The text of a rung that is the family's, with the champion's knobs for defaults."""
    name = family_name(family)
    point = family.read_key(state.point)  # nothing else goes into Python that will be loaded
    if point.source:
        return _written_rung(family, point, state, name)
    return _CHAMPION.format(
        rung=family.rung.id,
        workload=state.problem,
        point=point.key,
        base=name if name == family.rung.id else str(family.path.with_suffix(".py").resolve()),
        knobs=dict(point.knobs),
        name=family.rung.id + "_champion",
    )


_WRITTEN = '''\
"""The champion of a loop on {rung} for {workload}, as somebody wrote it: {point}.

Idea: {methods}
"""

import dataclasses
from pathlib import Path

from labtools.problem import load_rung
from labtools.problem.launched import AskedLaunch, LaunchesOf

RUNG = dataclasses.replace(
    load_rung({base!r}),
    id={name!r},
    source=Path(__file__).with_suffix(".cu"),
    read_text=None,{launch}
)
'''


def _written_rung(family: Family, point: Point, state: LoopState, base: str) -> str:
    """The text of a rung of what somebody wrote, whose definitions stand in its source."""
    source = family.sources[point.source]
    code, launch = source.source_without(point.without), ""
    if code.launches:
        sizes = source.switches(point.without)
        told = LaunchesOf(code.launches, dict(code.workspace), dict(code.numbers), sizes)
        launch = f"\n    launch={told!r},"
    return _WRITTEN.format(
        rung=family.rung.id,
        workload=state.problem,
        point=point.key,
        methods=", ".join(family.methods_on(point)) or "none",
        base=base if base == family.rung.id else str(family.path.with_suffix(".py").resolve()),
        name=family.rung.id + "_champion",
        launch=launch,
    )


def ablate_point(
    family: Family,
    workload: Problem | None,
    on: TimedOn,
    knobs: Mapping[str, int],
    methods: Sequence[str] = (),
    pairs: bool = False,
    progress: Progress = silent,
) -> AblatedPoint:
    """A point with one method out at a time, outside of any loop: of its knobs what is not named is
    as at the start, and without methods all that are on there are taken out."""
    point = family.point(knobs)
    chosen = tuple(dict.fromkeys(methods)) or family.methods_on(point)
    single_variants(family, point, chosen)  # before anything is timed: each of them is on
    problem = workload or family.workloads[0]
    with open_bench(family, problem, on, progress=progress) as bench:
        if bench.refuses(point) is None:
            _check_right(bench, point)
        found = _ablate(bench, point, chosen, pairs, bench.time)
        timed_us = found.time_us if chosen else bench.time([point]).median_us(point)
        assert timed_us is not None  # else taking methods out of it was refused
        timed = [one.method for one in found.single]
        verdicts = {one.method: one for one in check_methods(bench, point, timed)}
        aa = bench.least_effect()
        met = interactions(found.single, found.both, aa)
        return AblatedPoint(
            of=FoundPoint(point.key, dict(point.knobs), timed_us),
            origin=bench.origin,
            aa=aa,
            attribution=found.single,
            pairs=found.both,
            sass_check=tuple(verdicts.values()),
            classes={
                one.method: classify(one, verdicts[one.method], one.method in interacting(met))
                for one in found.single
            },
            gpu=bench.gpu,
            interactions=met,
            untimed=found.untimed,
        )
