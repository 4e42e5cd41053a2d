"""Play other searches on the recorded grid, to be held beside the loop.

At the headline of ``tunable``; each candidate that is timed counts one run. ``make
search-baselines`` installs Optuna and Kernel Tuner. What ``--only`` leaves out is kept from the
file that is there, where that is of the same grid.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from labtools.measure.channel import adapter_of
from labtools.optimize import loop
from labtools.optimize.ablation import ablate_methods
from labtools.optimize.attribution import Attribution
from labtools.optimize.bench import RecordedBench
from labtools.optimize.branch import propose, rank_of_best, variants
from labtools.optimize.budget import DEFAULT_BRANCHES, DEFAULT_RULE
from labtools.optimize.family import Family, Point, load_family
from labtools.optimize.grid import Grid, digits, export_kernel_tuner, grid_path, read_grid
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.pick import Taken
from labtools.optimize.searches import (
    MOST_RUNS,
    NEAR_FACTORS,
    SEARCHES_SCHEMA,
    GroupCount,
    LoopSpread,
    RidingMethod,
    Runs,
    RunsUntil,
    Searches,
    SearchesAt,
    SearchResult,
    StrategyTrial,
    best_after_runs,
    read_searches,
    searches_path,
)
from labtools.optimize.state import BEST_FORECASTS, ForecastHits, LoopResult, LoopState
from labtools.optimize.v1 import GroupVerdict, judge_group, pick_one_an_axis
from labtools.predict import DEFAULT_GPU
from labtools.problem import LabError, Problem
from labtools.record.trust import hash_file
from labtools.record.whole import write_whole

FAMILY = "tunable"
SEEDS = {
    "random": 1000,
    "random_leading": 1000,
    "forecast": 1,
    "tpe": 200,
    "kernel_tuner": 50,
    "loop": 20,
    "old_policy": 50,
}
TITLES = {
    "random": "random search over all points of the grid",
    "random_leading": "random search over the points that a round may lead with",
    "forecast": "the points that a round may lead with, in the order of their forecast",
    "tpe": "TPE of Optuna",
    "kernel_tuner": "Kernel Tuner: {strategy}",
    "loop": "the loop: gaps, budget, branches, ablation",
    "old_policy": "the old policy: one method an axis, judged as a group",
}
ELSEWHERE = ("random", "random_leading", "forecast", "loop")
"""Searches that are played at the other workloads too, beside the loop there."""
OF_THE_FAMILY = ("random_leading", "forecast", "loop", "old_policy")
"""Searches that read the family's file; the others know the grid's points alone."""
STRATEGIES = tuple(
    """
    minimize basinhopping diff_evo genetic_algorithm greedy_mls ordered_greedy_mls greedy_ils
    dual_annealing mls pso simulated_annealing firefly_algorithm bayes_opt hybrid_vndx
    adaptive_tabu_greywolf nsga2 nsga3
    """.split()
)
LEFT_OUT = {
    "skopt": "its package, scikit-optimize, is not installed with Kernel Tuner",
    "pyatf_strategies": "its package, pyatf, is not installed with Kernel Tuner",
    "brute_force": "it takes the grid in order and is no search",
    "random_sample": "random search is played by itself",
}
CHOSEN_AFTER = 40
"""Runs after which the best of two strategies is compared, where they come near equally soon."""
MOST_SUGGESTIONS = 200
"""Suggestions of TPE for one seed; most of the later ones repeat a point, which is no run."""
FIRST_DRAWN = 10
"""Points that TPE is given before it suggests, as many as its own start-up draws."""
DRAWN_ROUNDS = 200
"""Points with methods at which the forecast's order is looked at, at each workload."""
QUARTILES = (25, 50, 75)
OLD_ROUNDS = 12
EXAMPLES = 6
LIBRARIES = ("optuna", "kernel-tuner", "numpy", "scipy", "scikit-learn", "pymoo")

Row = tuple[int, ...]


@dataclass(frozen=True)
class SearchTable:
    """A grid at one workload as searches without knowledge of the kernel see it."""

    names: tuple[str, ...]  # of the knobs
    rows: tuple[Row, ...]  # their values, one row a point
    times_us: tuple[float, ...]  # of each point; infinite where it has none

    @property
    def best_us(self) -> float:
        """The fastest time, microseconds."""
        return min(self.times_us)

    @cached_property
    def by_row(self) -> dict[Row, float]:
        """Times by the values of the knobs."""
        return dict(zip(self.rows, self.times_us, strict=True))


def table_of(grid: Grid, workload: Problem) -> SearchTable:
    """The table of a grid at a workload."""
    times = (grid.median(number, workload) for number in range(len(grid)))
    return SearchTable(
        tuple(grid.plan.knobs),
        tuple(zip(*grid.plan.knobs.values(), strict=True)),
        tuple(math.inf if one is None else one for one in times),
    )


def leading_table(bench: RecordedBench) -> SearchTable:
    """Of a grid's table the points that a round may lead with."""
    whole = table_of(bench.grid, bench.problem)
    leading = {bench.grid.number(one) for one in bench.leading}
    kept = [
        row
        for number, row in enumerate(zip(whole.rows, whole.times_us, strict=True))
        if number in leading
    ]
    rows, times_us = zip(*kept, strict=True)
    return SearchTable(whole.names, rows, times_us)


# ------------------------------------------------------------------------------------ random


def play_random(table: SearchTable, seed: int) -> Runs:
    """Points in random order, none twice."""
    count = min(MOST_RUNS, len(table.rows))
    return random.Random(seed).sample(table.times_us, count)


# ---------------------------------------------------------------------------------- forecast


def play_forecast(bench: RecordedBench) -> Runs:
    """The points that a round may lead with, in the order of their forecast."""
    forecasts, known = bench.forecasts_us(bench.leading), bench.known_us(bench.leading)
    ordered = sorted(forecasts, key=lambda one: (forecasts[one], one.key))
    return [known[one] for one in ordered]


# --------------------------------------------------------------------------------------- TPE


def questions_of(table: SearchTable, choose: Callable[[str, list[int]], int]) -> Row:
    """A point of the table, knob by knob.

    A knob is asked for among the values that the table has with the knobs before it, so every
    answer is a point. What is asked is named by knob and values: the same values are one question,
    whatever came before.
    """
    left: Sequence[Row] = table.rows
    row: list[int] = []
    for place, name in enumerate(table.names):
        values = sorted({one[place] for one in left})
        if len(values) > 1:
            row.append(choose(f"{name} of {', '.join(map(str, values))}", values))
            left = [one for one in left if one[place] == row[-1]]
        else:
            row.append(values[0])
    return tuple(row)


def answers_to(table: SearchTable, wanted: Row) -> dict[str, int]:
    """The answers that lead to a point, by question."""
    places = {name: place for place, name in enumerate(table.names)}
    answers: dict[str, int] = {}

    def choose(question: str, values: list[int]) -> int:
        answers[question] = wanted[places[question.split(" of ")[0]]]
        return answers[question]

    questions_of(table, choose)
    return answers


def play_tpe(table: SearchTable, seed: int) -> Runs:
    """Optuna's TPE with its own settings; its first points are drawn as random search draws them.

    A point that it suggests again is no run: it is told the time that is known.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    for row in random.Random(seed).sample(table.rows, min(FIRST_DRAWN, len(table.rows))):
        study.enqueue_trial(answers_to(table, row))
    runs: dict[Row, float] = {}
    for _ in range(MOST_SUGGESTIONS):
        if len(runs) == min(MOST_RUNS, len(table.rows)):
            break
        trial = study.ask()
        row = questions_of(table, trial.suggest_categorical)
        time_us = runs.setdefault(row, table.by_row[row])
        if math.isfinite(time_us):
            study.tell(trial, time_us)
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return list(runs.values())


# ------------------------------------------------------------------------------ Kernel Tuner


def membership(names: Sequence[str], rows: Iterable[Row]) -> Any:
    """The restriction of Kernel Tuner that lets the points of a table through and nothing else.

    It looks at what is assigned so far, so that the space is built without all products.
    """
    from constraint import FunctionConstraint

    known = tuple(rows)

    @cache
    def projected(assigned: tuple[str, ...]) -> frozenset[Row]:
        places = [list(names).index(name) for name in assigned]
        return frozenset(tuple(row[place] for place in places) for row in known)

    class InTable(FunctionConstraint):  # type: ignore[misc]
        def __call__(
            self,
            variables: Sequence[str],
            domains: Any,
            assignments: Mapping[str, int],
            forwardcheck: bool = False,
            _unassigned: Any = None,
        ) -> bool:
            assigned = tuple(name for name in variables if name in assignments)
            return tuple(assignments[name] for name in assigned) in projected(assigned)

    return InTable(lambda *values: values in projected(tuple(names)))


def play_strategy(cache_file: Path, strategy: str, seeds: Sequence[int]) -> list[Runs]:
    """A strategy of Kernel Tuner with its own settings, simulated; points seen again are no runs.

    The seeds are of `random` and of numpy. What SciPy draws for ``diff_evo`` and scikit-learn for
    ``bayes_opt`` is seeded by neither.
    """
    import kernel_tuner

    head = json.loads(cache_file.read_text())
    names = head["tune_params_keys"]
    only = membership(names, (tuple(one[n] for n in names) for one in head["cache"].values()))
    plays: list[Runs] = []
    for seed in seeds:
        random.seed(seed)
        np.random.seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, _ = kernel_tuner.tune_kernel(
                head["kernel_name"],
                f"void {head['kernel_name']}() {{}}",  # only its name is looked at
                tuple(head["problem_size"]),
                [],
                head["tune_params"],
                restrictions=[only],
                strategy=strategy,
                strategy_options={"max_fevals": MOST_RUNS},
                simulation_mode=True,
                cache=str(cache_file),
                objective="time",
                lang="C",
                quiet=True,
                seed=seed,
            )
        runs: dict[Row, float] = {}
        for one in found:
            time_ms = one.get("time")
            timed = isinstance(time_ms, (int, float)) and "__error__" not in one
            row = tuple(one[name] for name in names)
            if timed or row not in runs:
                runs[row] = 1e3 * time_ms if timed else math.inf
        plays.append(list(runs.values()))
    return plays


def try_strategy(
    name: str, plays: Mapping[str, list[Runs]], best: Mapping[str, float]
) -> StrategyTrial:
    """A strategy on the workloads by which one is chosen; ``best`` is in microseconds."""
    after: dict[str, float | None] = {}
    for workload, seeds in plays.items():
        middle = float(np.median([best_after_runs(runs, CHOSEN_AFTER)[-1] for runs in seeds]))
        after[workload] = round(middle / best[workload], 4) if math.isfinite(middle) else None
    runs = {
        workload: runs_until(seeds, best[workload], NEAR_FACTORS[0]).median_runs
        for workload, seeds in plays.items()
    }
    return StrategyTrial(name, runs, after)


def rank_strategy(one: StrategyTrial) -> tuple[float, float]:
    """What strategies are chosen by, the smallest first: runs to come near, summed over the
    workloads, one above the limit where it did not; then the best after `CHOSEN_AFTER`."""
    runs = sum(MOST_RUNS + 1 if n is None else n for n in one.median_runs.values())
    return runs, math.prod(math.inf if t is None else t for t in one.best_after.values())


# ------------------------------------------------------------------------------- the policies


def play_loop(workload: Problem, seed: int) -> tuple[LoopResult, LoopState]:
    """The loop's automatic policy, in a folder of its own."""
    family = load_family(FAMILY)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "loop"
        loop.init(folder, family, workload, "recorded", seed, DEFAULT_BRANCHES, DEFAULT_RULE)
        return loop.run(folder, family), LoopFolder.look(folder).state


def runs_of(state: LoopState) -> Runs:
    """The times of a loop, in the order in which they were measured."""
    return [math.inf if one.time_us is None else one.time_us for one in state.timed]


def spread_of(bench: RecordedBench, played: Sequence[tuple[LoopResult, LoopState]]) -> LoopSpread:
    """How much some seeds of the loop differ."""
    states = [state for _, state in played]
    best = bench.best_of_grid()
    assert best is not None
    each = [runs_until([runs_of(one)], best[1], NEAR_FACTORS[0]).median_runs for one in states]
    reached = [int(runs) for runs in each if runs is not None]
    hits = [found for one in states if (found := one.forecast_hits) is not None]
    return LoopSpread(
        seeds=len(played),
        paths=len({tuple(one.point for one in state.timed) for state in states}),
        picks=len({tuple(frozenset(one.methods) for one in state.history) for state in states}),
        champions=len({result.champion.point for result, _ in played}),
        farthest=round(max(result.champion.time_us for result, _ in played) / best[1], 4),
        latest=max(reached) if len(reached) == len(each) else None,
        most_rounds=max(result.rounds for result, _ in played),
        played=ForecastHits(*map(sum, zip(*(astuple(one) for one in hits), strict=True))),
        drawn=drawn_hits(bench),
    )


def drawn_hits(bench: RecordedBench) -> ForecastHits:
    """How often the forecast's first hold the fastest candidate, at drawn points and methods."""
    rng = random.Random(0)
    family = bench.family
    found: list[int] = []
    while len(found) < DRAWN_ROUNDS:
        point = rng.choice(bench.leading)
        off = [one.id for one in family.switchable if not family.has(point, one.id)]
        methods = rng.sample(off, min(len(off), rng.randint(1, 3)))
        made = propose(bench, point, methods, count=DEFAULT_BRANCHES)
        rank = rank_of_best(bench, made.ordered)
        if rank is not None and len(made.ordered) > DEFAULT_BRANCHES:  # else nothing is pruned
            found.append(rank)
    led = sum(rank <= DEFAULT_BRANCHES - DEFAULT_BRANCHES // 2 for rank in found)
    within = sum(rank <= BEST_FORECASTS for rank in found)
    return ForecastHits(len(found), led, len(found), within)


class OldPolicy:
    """The old policy on a recorded grid: one candidate a round, with drawn hyperparameters."""

    def __init__(self, bench: RecordedBench) -> None:
        self.bench, self.family = bench, bench.family
        self._candidates: dict[tuple[Point, tuple[str, ...]], list[Point]] = {}

    def candidates(self, point: Point, methods: Sequence[str]) -> list[Point]:
        """Points of the grid with some methods, in every setting of the hyperparameters."""
        key = (point, tuple(methods))
        if key not in self._candidates:
            made = variants(self.family, point, methods)
            self._candidates[key] = [
                one for one in made if isinstance(one, Point) and self.bench.refuses(one) is None
            ]
        return self._candidates[key]

    def play(self, seed: int) -> tuple[Runs, list[tuple[Point, Point, tuple[str, ...]]]]:
        """Rounds until nothing is left to take.

        Returns:
            The times, the start's first; and of each round the point before, the candidate and its
            methods.
        """
        rng = random.Random(seed)
        point, taken = self.family.start, Taken()
        time_us = self._time_us(point)
        runs, judged = [time_us], []
        for _ in range(OLD_ROUNDS):
            picked = self._pick(point, taken)
            if not picked:
                break
            candidate = rng.choice(self.candidates(point, picked))
            after_us = self._time_us(candidate)
            runs.append(after_us)
            judged.append((point, candidate, picked))
            verdict = judge_group(picked, time_us, after_us)
            taken = _learn(taken, verdict)
            if verdict.keeps:
                point, time_us = candidate, after_us
        return runs, judged

    def _time_us(self, point: Point) -> float:
        return self.bench.time([point]).median_us(point)

    def _pick(self, point: Point, taken: Taken) -> tuple[str, ...]:
        """One method an axis, of those that the grid has together."""
        bench = self.bench
        return pick_one_an_axis(
            self.family,
            point,
            bench.gaps(point),
            bench.shares(point),
            bench.problem,
            bench.limits,
            taken,
            entry=bench.entry(point),
            refuses=lambda methods, _: (
                None if self.candidates(point, methods) else "the grid has no point with them"
            ),
        ).methods


def _learn(taken: Taken, verdict: GroupVerdict) -> Taken:
    methods = tuple(verdict.classes)
    if verdict.keeps:
        return replace(taken, effective=(*taken.effective, *methods))
    return replace(taken, ineffective=(*taken.ineffective, *methods))


def count_groups(
    bench: RecordedBench, judged: Sequence[tuple[Point, Point, tuple[str, ...]]]
) -> GroupCount:
    """Hold each verdict on a group against the ablation of its methods, one at a time.

    ``judged`` has the point before, the point with the group, and the group, of each round.
    """
    count = dict.fromkeys(("contradicted", "rides_along", "harmful", "dropped", "methods"), 0)
    found: dict[tuple[str, str], RidingMethod] = {}
    ablated: dict[tuple[Point, tuple[str, ...]], tuple[Attribution, ...]] = {}
    for before, point, methods in judged:
        timed = bench.time([before, point])
        verdict = judge_group(methods, timed.median_us(before), timed.median_us(point))
        key = (point, methods)
        if key not in ablated:
            ablated[key] = ablate_methods(bench, point, methods)
        wrong = [one for one in ablated[key] if _contradicts(verdict, one)]
        count["contradicted"] += bool(wrong)
        count["methods"] += sum(one.decided is not None for one in ablated[key])
        for one in wrong:
            count["rides_along" if verdict.keeps else "dropped"] += 1
            count["harmful"] += verdict.keeps and one.high < -one.threshold
            found[point.key, one.method] = RidingMethod(
                before.key,
                point.key,
                methods,
                round(verdict.gain, 4),
                one.method,
                round(one.relative, 4),
                round(one.low, 4),
                round(one.high, 4),
            )
    return GroupCount(len(judged), **count, examples=_most_telling(found.values()))


def _contradicts(verdict: GroupVerdict, one: Attribution) -> bool:
    alone = {"above": "effective", "below": "ineffective"}.get(one.decided or "")
    return alone is not None and alone != verdict.classes[one.method]


def _most_telling(found: Iterable[RidingMethod]) -> tuple[RidingMethod, ...]:
    """The largest contradiction of each method, the largest first."""
    ordered = sorted(found, key=lambda one: (-abs(one.group_gain - one.relative), one.point))
    first = {one.method: one for one in reversed(ordered)}
    return tuple(one for one in ordered if first[one.method] is one)[:EXAMPLES]


# -------------------------------------------------------------------------------- all of them


class Baselines:
    """All searches on the recorded grid of a shipped family, in ``jobs`` processes."""

    def __init__(self, family: Family, jobs: int) -> None:
        self.family = family
        self.path = grid_path(family.rung.id, DEFAULT_GPU)
        self.grid = read_grid(self.path)
        self.headline, *self.others = family.workloads
        self.table = table_of(self.grid, self.headline)
        self.jobs = jobs
        self.strategies: tuple[StrategyTrial, ...] = ()
        self.groups: GroupCount | None = None
        self.spread: dict[str, LoopSpread] = {}

    def play(self, name: str, workload: Problem | None = None) -> SearchResult:
        """One search with all of its seeds; at another workload one of `ELSEWHERE`."""
        plays = getattr(self, f"_{name}")(*([workload] if workload else []))
        title = TITLES[name].format(strategy=self.strategies[0].name if self.strategies else "")
        best_us = table_of(self.grid, workload or self.headline).best_us
        return sum_up(name, title, plays, best_us)

    def play_elsewhere(self) -> dict[str, SearchesAt]:
        """The searches of `ELSEWHERE` at the other workloads."""
        return {
            str(one): SearchesAt(
                table_of(self.grid, one).best_us, tuple(self.play(name, one) for name in ELSEWHERE)
            )
            for one in self.others
        }

    def _bench(self, workload: Problem | None = None) -> RecordedBench:
        return RecordedBench(self.family, workload or self.headline, self.grid)

    def _each(self, play: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
        with ProcessPoolExecutor(self.jobs) as pool:
            return list(pool.map(play, *columns))

    def _random(self, workload: Problem | None = None) -> list[Runs]:
        table = table_of(self.grid, workload or self.headline)
        return [play_random(table, n) for n in range(SEEDS["random"])]

    def _random_leading(self, workload: Problem | None = None) -> list[Runs]:
        """Random search that knows as much of the points as the loop: the others are there so that
        methods can be taken out of these."""
        table = leading_table(self._bench(workload))
        return [play_random(table, n) for n in range(SEEDS["random_leading"])]

    def _forecast(self, workload: Problem | None = None) -> list[Runs]:
        return [play_forecast(self._bench(workload))]

    def _tpe(self) -> list[Runs]:
        seeds = range(SEEDS["tpe"])
        return self._each(play_tpe, [self.table] * len(seeds), seeds)

    def _loop(self, workload: Problem | None = None) -> list[Runs]:
        seeds, at = range(SEEDS["loop"]), workload or self.headline
        played = self._each(play_loop, [at] * len(seeds), seeds)
        self.spread[str(at)] = spread_of(self._bench(at), played)
        return [runs_of(state) for _, state in played]

    def _old_policy(self) -> list[Runs]:
        bench = self._bench()
        policy = OldPolicy(bench)
        played = [policy.play(seed) for seed in range(SEEDS["old_policy"])]
        self.groups = count_groups(bench, [one for _, judged in played for one in judged])
        return [runs for runs, _ in played]

    def _kernel_tuner(self) -> list[Runs]:
        """The best strategy on the other workloads, on the headline."""
        seeds = range(SEEDS["kernel_tuner"])
        with tempfile.TemporaryDirectory() as parent:
            files = {}
            for number, workload in enumerate(self.family.workloads):
                files[workload] = Path(parent) / f"{number}.json"
                export_kernel_tuner(self.grid, files[workload], workload)
            tasks = [(name, workload) for name in STRATEGIES for workload in self.others]
            played = self._each(
                play_strategy,
                [files[workload] for _, workload in tasks],
                [name for name, _ in tasks],
                [seeds] * len(tasks),
            )
            by_task = dict(zip(tasks, played, strict=True))
            best = {str(one): table_of(self.grid, one).best_us for one in self.others}
            tried = [
                try_strategy(name, {str(one): by_task[name, one] for one in self.others}, best)
                for name in STRATEGIES
            ]
            self.strategies = tuple(sorted(tried, key=rank_strategy))
            return play_strategy(files[self.headline], self.strategies[0].name, seeds)


def kept_from(path: Path, wanted: Iterable[str], baselines: Baselines) -> Searches | None:
    """The file that is there, to keep of it what is not played; None where all is played."""
    left = set(SEEDS) - set(wanted)
    if not left:
        return None
    found = read_searches(path)
    same_family = found.family_sha256 == hash_file(baselines.family.path.read_bytes())
    if found.grid_sha256 != hash_file(baselines.path.read_bytes()) or not (
        same_family or left.isdisjoint(OF_THE_FAMILY)
    ):
        raise LabError(
            f"{', '.join(sorted(left))} cannot be kept.",
            f"the grid or the family is another than {path.name} was made with",
            "without --only all are played",
        )
    return found


def play_all(wanted: Sequence[str], jobs: int) -> Searches:
    """Play searches, and keep the others from the file that is there."""
    baselines = Baselines(load_family(FAMILY), jobs)
    family = baselines.family
    path = searches_path(family.rung.id, DEFAULT_GPU)
    kept = kept_from(path, wanted, baselines)
    results = []
    for name in SEEDS:
        if kept is not None and name not in wanted:
            results.append(kept.named(name))
            continue
        results.append(baselines.play(name))
        print(say_result(results[-1]), flush=True)
    elsewhere = kept.elsewhere if kept is not None else {}
    if not set(ELSEWHERE).isdisjoint(wanted):
        elsewhere = baselines.play_elsewhere()
    groups = kept.groups if baselines.groups is None and kept is not None else baselines.groups
    assert groups is not None  # the old policy was played or is kept
    versions = {name: _version(name) for name in LIBRARIES} | {"python": platform.python_version()}
    keeps_libraries = kept is not None and {"tpe", "kernel_tuner"} - set(wanted)
    return Searches(
        schema_version=SEARCHES_SCHEMA,
        rung=family.rung.id,
        gpu=DEFAULT_GPU,
        workload=str(baselines.headline),
        grid_sha256=hash_file(baselines.path.read_bytes()),
        family_sha256=hash_file(family.path.read_bytes()),
        date=datetime.now(UTC).replace(microsecond=0),
        versions=kept.versions if kept is not None and keeps_libraries else versions,
        best_us=baselines.table.best_us,
        points=len(baselines.table.rows),
        searches=tuple(results),
        strategies=baselines.strategies or (kept.strategies if kept else ()),
        left_out=LEFT_OUT,
        groups=groups,
        spread={**(kept.spread if kept else {}), **baselines.spread},
        elsewhere=elsewhere,
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def runs_until(plays: Sequence[Runs], best_us: float, factor: float) -> RunsUntil:
    """How soon the seeds of a search came within a factor of the fastest time."""
    needed = [
        next((n for n, us in enumerate(runs[:MOST_RUNS], 1) if us <= factor * best_us), math.inf)
        for runs in plays
    ]
    middle = float(np.median(needed))
    reached = sum(math.isfinite(one) for one in needed)
    return RunsUntil(factor, middle if math.isfinite(middle) else None, reached)


def sum_up(name: str, title: str, plays: Sequence[Runs], best_us: float) -> SearchResult:
    """One search from its seeds."""
    curves = np.array([best_after_runs(runs, MOST_RUNS) for runs in plays])
    # Of a real run each: between a time and none there is no middle.
    rows = np.percentile(curves, QUARTILES, axis=0, method="inverted_cdf")
    low, middle, high = (
        tuple(digits(float(us), 5) if math.isfinite(us) else None for us in row) for row in rows
    )
    near = tuple(runs_until(plays, best_us, factor) for factor in NEAR_FACTORS)
    return SearchResult(name, title, len(plays), low, middle, high, near, max(map(len, plays)))


def write_searches(path: Path, found: Searches) -> None:
    """Write the file, whole or not at all."""
    write_whole(path, adapter_of(Searches).dump_json(found) + b"\n")


def why_stale(found: Searches, family: Family, grid: Path) -> str | None:
    """Why searches are not about the grid and the family as they stand, or None."""
    if hash_file(grid.read_bytes()) != found.grid_sha256:
        return "the grid is another than they were played on"
    if hash_file(family.path.read_bytes()) != found.family_sha256:
        return f"{family.path.name} has changed since they were played"
    return None


def say_result(found: SearchResult) -> str:
    """One line of a search."""
    near = "; ".join(
        f"within {one.factor - 1:.0%} after {one.median_runs or f'over {MOST_RUNS}'} runs, "
        f"{one.reached} of {found.seeds}"
        for one in found.near
    )
    return f"{found.name} ({found.title}): {near}; at most {found.longest} runs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(SEEDS), help="names, with commas between")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    wanted = options.only.split(",")
    if strange := sorted(set(wanted) - set(SEEDS)):
        parser.error(f"no search is called {', '.join(strange)}; there are {', '.join(SEEDS)}")
    found = play_all(wanted, options.jobs)
    path = searches_path(found.rung, found.gpu)
    write_searches(path, found)
    print(path.name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
