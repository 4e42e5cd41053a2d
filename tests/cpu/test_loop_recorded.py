"""The loop on the recorded grid of the decode family: how near it comes, how soon, and the grid."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from devices import some_of
from loop_play import take

from labtools.cli.loop import (
    LoopAsked,
    export_loop,
    restart_loop,
    run_loop,
    show_status,
    summarise_loop,
)
from labtools.optimize import loop
from labtools.optimize.accuracy import forecast_error
from labtools.optimize.bench import RecordedBench
from labtools.optimize.branch import variants
from labtools.optimize.family import Point, load_family
from labtools.optimize.grid import changed_points, grid_path, read_grid
from labtools.optimize.loop import TuningLoop
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.page import summary_html
from labtools.optimize.pick import Retry
from labtools.optimize.searches import MOST_RUNS, read_searches, searches_path
from labtools.optimize.state import STEPS, GivenRefused, LoopState
from labtools.optimize.summary import summary_text
from labtools.predict import load_gpu
from labtools.problem import LabError
from labtools.problem.rung import say_knobs
from labtools.record.bound import largest_stall, stall_shares
from labtools.toolchain import find_compiler
from labtools.toolchain.progress import silent
from research.make_grid import changed_codes, draw_points
from tools.slow_list import EVERY_CASE

NEAREST, NEAR, FAR = 1.02, 1.05, 1.10
SEEDS = int(os.environ.get("LABTOOLS_LOOP_SEEDS", "2"))
RECOMPILED = 64 if EVERY_CASE else 8
DRAWS = 2000


@pytest.fixture(scope="module")
def family():
    return load_family("tunable")


@pytest.fixture(scope="module")
def grid():
    return read_grid(grid_path("tunable", "h200"))


@pytest.fixture(scope="module")
def played(family, tmp_path_factory):
    found = []
    for seed in range(SEEDS):
        folder = tmp_path_factory.mktemp("loops") / str(seed)
        loop.init(folder, family, None, "recorded", seed, 4, "largest-remainder")
        result = loop.run(folder, family, max_rounds=6)
        found.append((result, LoopFolder.look(folder).state))
    return found


def runs_to(state: LoopState, limit_us: float) -> float:
    """Runs until a time is at most a limit."""
    times = [one.time_us for one in state.timed]
    near = (n for n, us in enumerate(times, start=1) if us is not None and us <= limit_us)
    return next(near, float("inf"))


def test_the_grid_is_of_the_kernel_that_is_there(grid, family):
    assert changed_points(grid, family) == {}
    assert 1500 <= len(grid) <= 3000
    held = {grid.number(point) for point in family.closure()}
    assert None not in held
    assert len(held) == len(grid)
    for at in grid.at:
        assert all(len(us) == 5 for us in at.samples)


@pytest.mark.slow
def test_drawn_points_compile_to_the_code_that_was_timed(grid, family):
    if find_compiler("live").version != grid.nvrtc_version:
        pytest.skip("another version of the compiler makes other code")
    drawn = draw_points(grid, RECOMPILED, seed=os.getpid())
    assert len(drawn) == RECOMPILED
    assert changed_codes(grid, family, drawn) == {}


def test_a_form_that_the_point_forbids_is_tried_with_other_sizes(family):
    """A cluster has at most eight blocks, so 16 pieces cannot join in one; fewer can."""
    many = {"gqa": 1, "math": 1, "load": 2, "unroll": 1, "stages": 2, "split": 16}
    point = family.point({**family.start.knobs, **many})
    made = list(variants(family, point, ["memory.swizzle", "latency.join_in_the_launch"]))
    clusters = [one for one in made if isinstance(one, Point) and one.knobs["merge"] == 2]
    assert clusters
    assert all(1 < one.knobs["split"] <= 8 for one in clusters)


def test_the_start_is_near_r03_and_the_best_point_near_r09(grid, family):
    held = {name[:3]: rows.values() for name, rows in grid.at[0].anchors.items()}
    r03_us, r09_us = (
        statistics.median(us for times in held[name] for us in times) for name in ("r03", "r09")
    )
    start_us = grid.median(grid.number(family.start))
    assert abs(start_us / r03_us - 1) <= 0.03
    assert grid.best()[1] <= 1.15 * r09_us


def test_at_least_twelve_methods_change_the_time_somewhere(grid, family):
    bench = RecordedBench(family, family.workloads[0], grid)
    least = max(0.02, bench.least_effect().effect)
    moved = set()
    for point in family.grid():
        mine = grid.median(grid.number(point))  # type: ignore[arg-type]
        for name in family.methods_on(point):
            without = grid.median(grid.number(family.remove(point, name)))  # type: ignore[arg-type]
            if mine and without and abs(without / mine - 1) > least:
                moved.add(name)
    assert len(moved) >= 12, moved


def test_the_best_of_the_grid_is_told_beside_the_best_that_may_lead(grid, family, tmp_path):
    """With many sequences a point is the fastest that is there to take a method out alone."""
    _, alone, many = family.workloads
    folder = tmp_path / "loop"
    loop.init(folder, family, many, "recorded", 0, 4, "largest-remainder")
    found = loop.run(folder, family, max_rounds=1)
    times = [grid.median(number, many) for number in range(len(grid))]
    assert found.best is not None and found.best_leading is not None
    assert found.best.time_us == min(one for one in times if one is not None)
    bench = RecordedBench(family, many, grid)
    assert not bench.crowns(family.read_key(found.best.point))
    assert found.best_leading.time_us == min(bench.known_us(bench.leading).values())
    assert found.best.time_us < found.best_leading.time_us <= found.champion.time_us
    told = run_loop(folder, LoopAsked(), 1, None, silent)
    assert told.best == found.best
    there = RecordedBench(family, alone, grid)
    assert there.best_leading() == there.best_of_grid()
    assert there.best_leading()[0].knobs["bounds"] == 0, "a round may lead without a launch bound"


def test_the_policy_is_sooner_there_than_random_search(played, grid):
    times = np.array([grid.median(number) for number in range(len(grid))], dtype=float)
    best = played[0][0].best
    assert best is not None
    limit = NEAR * best.time_us
    rng = np.random.default_rng(0)
    drawn = [int(np.argmax(rng.permutation(times) <= limit)) + 1 for _ in range(DRAWS)]
    runs = [runs_to(state, limit) for _, state in played]
    assert statistics.median(runs) <= 0.7 * statistics.median(drawn)


def test_a_played_loop_comes_near_the_best_and_leaves_nothing_open(played, family):
    others = {str(one) for one in family.workloads[1:]}
    for result, state in played:
        assert result.best is not None
        assert result.champion.time_us <= NEAR * result.best.time_us
        assert result.rounds <= 6 and result.runs == len(state.timed)
        assert state.stopped or result.stopped
        scored = [one for one in state.frontier if one.others_us]
        assert scored and all(set(one.others_us) == others for one in scored)
        for one in state.history:
            if one.classes is not None:
                checked = {found.method for found in one.sass_check or ()}
                assert set(one.classes) == checked == set(one.methods)
                every = [found.decided for found in one.attribution or ()]
                assert every.count(None) <= 1
        assert result.forecast == state.forecast_hits
        assert result.forecast is not None
        assert 0 < result.forecast.best_four <= result.forecast.known <= result.forecast.rounds
        for one in state.history:
            assert one.champion is None or 1 <= (one.best_rank or 0) <= one.candidates
        assert result.sol is not None
        assert result.sol.time_us == result.champion.time_us
        assert result.sol.floor_us < result.sol.time_us < result.sol.baseline_us
        assert 0.5 < result.sol.score < 1


def test_the_seeds_that_were_written_down_came_near_at_every_workload(family):
    """Against the whole grid, and beside the points in the order of their forecast."""
    found = read_searches(searches_path("tunable", "h200"))
    assert list(found.spread) == [str(one) for one in family.workloads]
    for workload, one in found.spread.items():
        assert one.seeds >= 20
        assert one.farthest <= (NEAREST if workload == found.workload else NEAR)
        assert one.most_rounds <= 6
        assert one.drawn.best_four <= one.drawn.known
        there = found.at(workload)
        order, drawn = (there.named(name).near[0] for name in ("forecast", "random"))
        assert order.factor == NEAR and one.latest is not None
        assert order.median_runs is not None and one.latest <= order.median_runs + 1
        assert one.latest <= 0.7 * (drawn.median_runs or MOST_RUNS)
    assert max(one.paths for one in found.spread.values()) > 1, "the seeds play differently"


def test_the_floor_is_the_best_read_and_a_launch_below_every_time(grid, family):
    for at in grid.at:
        bench = RecordedBench(family, at.workload, grid)
        floor_us = bench.floor_us()
        assert floor_us is not None
        every = [*at.samples, *(us for rows in at.anchors.values() for us in rows.values())]
        least_us = min(statistics.median(us) for us in every if us)
        assert floor_us <= least_us * (1 + 1e-9), "one of the sweeps may be the best read itself"
        # It knows of no point: with all of them twice as fast it is the same.
        faster = tuple(tuple(one / 2 for one in us) for us in at.samples)
        others = tuple(
            dataclasses.replace(one, samples=faster) if one is at else one for one in grid.at
        )
        halved = RecordedBench(family, at.workload, dataclasses.replace(grid, at=others))
        assert halved.floor_us() == floor_us


def test_after_a_restart_it_is_said_where_a_faster_point_is(family, tmp_path):
    folder, asked = tmp_path / "loop", LoopAsked("tunable")
    first = run_loop(folder, asked, 2, None, silent)
    assert not first.notices
    frontier = LoopFolder.look(folder).state.frontier
    slow = max(enumerate(frontier), key=lambda one: one[1].time_us)
    fastest = min(frontier, key=lambda one: one.time_us)
    assert fastest.time_us <= first.champion.time_us
    restart_loop(folder, slow[0])
    answers = [
        run_loop(folder, asked, 2, 1, silent),  # so many runs are made already
        show_status(folder),
        summarise_loop(folder, None),
        export_loop(folder, tmp_path / "out"),
    ]
    (said,) = {note for one in answers for note in one.asides}
    assert all(one.asides == (said,) for one in answers)
    assert f"{fastest.time_us:.2f} us" in said
    number = int(said.split()[1])
    assert f"labtools loop restart {folder} {number} " in said
    restart_loop(folder, number)
    assert LoopFolder.look(folder).state.point == fastest.point
    assert not show_status(folder).asides


def test_a_step_under_way_is_not_held_against_what_the_round_began_from(family, tmp_path):
    """Its branches stand in the frontier before the round is over."""
    folder = tmp_path / "loop"
    loop.init(folder, family, None, "recorded", 0, 8, "largest-remainder")
    for step in ("gaps", "budget", "pick", "branch"):
        take(folder, family, step)
    state = LoopFolder.look(folder).state
    assert state.time_us is not None
    assert min(one.time_us for one in state.frontier) < state.time_us
    assert not show_status(folder).asides


@pytest.mark.parametrize("entry", some_of([0, 1], 1))
def test_a_restart_is_not_bound_by_what_the_line_that_it_leaves_found(family, tmp_path, entry):
    """Methods that helped on another way are off at the entry, and the policy takes them again."""
    folder = tmp_path / "loop"
    loop.init(folder, family, None, "recorded", 0, 4, "largest-remainder")
    first = loop.run(folder, family)
    with LoopFolder.opened(folder) as opened:
        opened.restart(entry)
    again = loop.run(folder, family, max_rounds=30)
    assert first.best is not None
    assert again.champion.time_us <= FAR * first.best.time_us
    state = LoopFolder.look(folder).state
    taken = {name for one in state.since_restart for name in one.methods}
    before = state.history[: -len(state.since_restart)]
    judged = {
        name
        for one in before
        for name, found in (one.classes or {}).items()
        if found in ("effective", "ineffective")
    }
    assert taken & judged


def test_the_grid_is_exported_with_the_champion(family, grid, tmp_path):
    loop.init(tmp_path / "loop", family, None, "recorded", 0, 4, "largest-remainder")
    found = loop.run(tmp_path / "loop", family, max_rounds=1)
    _, runs, *_, every = loop.export(tmp_path / "loop", family, tmp_path / "out")
    held, whole = (json.loads(path.read_text())["cache"] for path in (runs, every))
    assert len(held) == found.runs
    assert len(whole) == len(grid)
    assert held.keys() <= whole.keys()
    devices = {json.loads(path.read_text())["device_name"] for path in (runs, every)}
    assert devices == {grid.provenance.gpu}
    dates = {one["timestamp"] for one in (*held.values(), *whole.values())}
    assert dates == {grid.provenance.date.isoformat()}, "the replay measured nothing"
    for key, one in held.items():
        assert whole[key]["time"] == pytest.approx(one["time"])
        assert whole[key]["benchmark_time"] == pytest.approx(one["benchmark_time"])


# ------------------------------------------------------------------- what somebody decides


def test_a_given_branch_goes_on_from_its_round(family, tmp_path):
    picked = ["compute.tensor_core", "memory.group_of_heads", "latency.split_sequences"]
    loop.init(tmp_path, family, None, "recorded", 0, 4, "largest-remainder")
    with loop.open_loop(tmp_path, family) as opened:
        opened.gaps()
        opened.budget()
        opened.pick(picked)
        state = opened.branch([{"split": 8}, {"split": 4}])
        for one, split in zip(state.current.branches, (8, 4), strict=True):
            knobs = family.read_key(one.point).knobs
            assert (knobs["split"], knobs["math"], knobs["gqa"]) == (split, 1, 1)
        for step in ("ablate", "check", "update", "gaps", "budget"):
            opened.take(step)
        begun = family.read_key(LoopFolder.look(tmp_path).state.point)
        assert begun != family.start
        opened.pick(["memory.swizzle", "latency.more_warps"])
        (tried,) = opened.branch([{"warps": 4}]).current.branches
    wanted = {**begun.knobs, "swizzle": 1, "warps": 4}
    assert family.read_key(tried.point) == family.point(wanted), "not as at the family's start"


def test_methods_that_interact_have_a_class_of_their_own(family, tmp_path):
    picked = ("compute.tensor_core", "latency.split_sequences", "latency.more_warps")
    loop.init(tmp_path, family, None, "recorded", 0, 4, "largest-remainder")
    with loop.open_loop(tmp_path, family) as opened:
        opened.gaps()
        opened.budget()
        opened.pick(picked)
        for refused in ([{"split": 4}, {"split": 3}], [{"split": 4}] * 2, [{"exp2": 0}]):
            with pytest.raises(GivenRefused) as caught:
                opened.branch(refused)
        legal, _ = json.JSONDecoder().raw_decode(caught.value.still_works)
        state = opened.branch([legal])
        state = opened.ablate(pairs=True)
        opened.check()
        state = opened.update()
    (met,) = [one for one in state.current.interactions if not one.additive]
    assert met.methods == state.interacts_methods == picked[1:]
    assert state.ineffective_methods == picked[:1]
    for text in (summary_text(state), summary_html(state)):
        assert "interacts" in text


# ------------------------------------------------------------------- a method that was dropped

_RING = "gqa=1 math=1 load=2 width=16 unroll=1 stages=3"
DROPPED = "compute.tail_apart"
TO_DROPPED = (
    (("compute.tensor_core",), "math=1 load=2 unroll=1 stages=3"),
    (
        ("memory.group_of_heads", "memory.wide_accesses", "latency.split_sequences"),
        f"{_RING} split=2",
    ),
    (
        ("memory.swizzle", "latency.more_warps", "latency.join_in_the_launch"),
        f"{_RING} swizzle=1 warps=4 split=2 merge=2",
    ),
    ((DROPPED,), f"{_RING} swizzle=1 warps=4 split=2 merge=2 tail=1"),
)
"""Rounds from the start, each with its methods and its one branch; the compiler drops the last."""
OTHER_FORM = f"{_RING} swizzle=1 warps=8 split=2 merge=2 tail=1"
"""Where the compiler does what the same method asks for."""
SAID = Retry(knob="warps", value=8, reason="with 4 warps the copy of the body costs too much")


def play_given(played: TuningLoop, methods: Sequence[str], branch: str) -> LoopState:
    """A whole round with given methods and one given branch."""
    if played.state.next_steps[0] == "gaps":
        played.gaps()
        played.budget()
    played.pick(methods)
    played.branch([played.family.read_key(branch).knobs])
    played.ablate()
    played.check()
    return played.update()


@pytest.mark.parametrize(
    ("retry", "same"),
    [
        (SAID, "warps=8 was said"),
        (Retry(knob="split", value=2, reason="as before"), f"there the compiler dropped {DROPPED}"),
    ],
)
def test_what_the_compiler_dropped_is_tried_in_another_form(family, grid, tmp_path, retry, same):
    folder = tmp_path / "loop"
    loop.init(folder, family, None, "recorded", 0, 4, "largest-remainder")
    with LoopFolder.opened(folder) as opened:
        game = TuningLoop(opened, family, lambda: RecordedBench(family, family.workloads[0], grid))
        for methods, branch in TO_DROPPED:
            state = play_given(game, methods, branch)
        assert state.implementation_failed_methods == (DROPPED,)
        game.gaps()
        game.budget()
        for said, why in (
            ({}, "nobody said"),
            ({DROPPED: Retry(reason="please")}, "gives neither"),
        ):
            with pytest.raises(LabError, match=f"cannot be tried again.*\\n.*{why}") as refused:
                game.pick([DROPPED], said)
            forms = map(say_knobs, family.method(DROPPED).on)
            assert " or ".join(forms) in refused.value.still_works
        game.pick([DROPPED], {DROPPED: retry})
        with pytest.raises(GivenRefused, match=same):
            game.branch([family.read_key(TO_DROPPED[-1][1]).knobs])
        game.branch([family.read_key(OTHER_FORM).knobs])
        for step in (game.ablate, game.check, game.update):
            state = step()
    assert (state.history[-1].classes or {})[DROPPED] != "implementation_failed"
    assert state.implementation_failed_methods == ()
    assert retry.reason in (folder / "iterv5" / "analysis.md").read_text()


def test_a_warp_is_not_passed_over_more_than_others_issue(grid, family):
    """What a forecast calls "not selected" is time in which the scheduler issues for another."""
    schedulers = load_gpu(grid.plan.gpu).sub_partitions
    seen = 0
    for at in grid.at:
        bench = RecordedBench(family, at.workload, grid)
        for point in family.grid():
            if (number := grid.number(point)) is None or at.forecast_us[number] is None:
                continue
            values = bench.shares(point)
            shares = stall_shares(values)
            warps = values["achieved_occupancy_pct"] / 100 * bench.limits.max_warps_per_sm
            busy = values["issue_slot_pct"] / 100 * schedulers / min(schedulers, max(1, warps))
            assert shares["not_selected"] <= max(0.0, busy - shares["selected"]) + 0.01, point.key
            seen += 1
    assert seen == len(grid.at) * len(family.grid())


def test_bank_conflicts_stand_at_the_short_scoreboard(grid, family):
    """As the counters of an H200 say of these points, and without a swizzle alone."""
    bench = RecordedBench(family, family.workloads[0], grid)
    plain = family.read_key("gqa=1 math=1 load=2 width=16 unroll=1 stages=3 warps=4")
    found = largest_stall(bench.shares(plain))
    assert found is not None and found[0] == "short_scoreboard" and found[1] > 0.5
    without = family.apply(plain, ["memory.swizzle"])
    assert stall_shares(bench.shares(without))["short_scoreboard"] < found[1] / 3


# ------------------------------------------------------------------- what a step refuses

PICKED = "compute.tensor_core"
REFUSED = {
    "gaps": [
        ([{"dram_troughput_pct": 41.5}], "did you mean dram_throughput_pct?"),
        ([{"dram_throughput_pct": -1.0}], "from 0 on"),
        ([{"dram_throughput_pct": float("nan")}], "from 0 on"),
        ([{"pipe_fma_pct": 500.0}], "at most 100 percent"),
        ([{"warp_latency_cycles": 10.0, "stall_wait_cycles": 61.0}], "more than warp_latency"),
    ],
    "pick": [([methods, {DROPPED: SAID}], "did not drop it") for methods in (None, [DROPPED])],
    "branch": [
        ([[]], "none was given"),
        ([[{"math": 0, "load": 0, "stages": 1}]], f"{PICKED}, picked for this round"),
        ([[{}, {"split": 1}]], "it is branch 1 already"),
        (
            [[{"split": 8}]],
            "latency.split_sequences, not picked for this round, would be switched on",
        ),
        ([[{"warps": 5}]], "warps may be"),
        ([[{"warp": 4}]], "its knobs are"),
    ],
}
"""What each step is given that it refuses, and why: counters of no kernel, an acknowledgement of
what was not dropped, branches without the round's methods, which could not be ablated."""


def test_what_a_step_refuses_changes_nothing_and_the_round_goes_on(family, tmp_path):
    loop.init(tmp_path, family, None, "recorded", 0, 4, "largest-remainder")
    with loop.open_loop(tmp_path, family) as opened:
        for step in STEPS[: STEPS.index("ablate")]:
            before, take_step = LoopFolder.look(tmp_path).state, getattr(opened, step)
            assert before.next_steps == (step,)
            for given, says in REFUSED.get(step, ()):
                with pytest.raises(GivenRefused) as refused:
                    take_step(*given)
                assert says in refused.value.why
                assert LoopFolder.look(tmp_path).state == before
            take_step(*([[PICKED]] if step == "pick" else []))
    assert LoopFolder.look(tmp_path).state.next_steps == ("ablate",)


def test_verdicts_of_forecasts_that_are_decided_agree_with_the_grid(family):
    """Each workload is judged by the error at the others."""
    found = forecast_error(family, "h200")
    assert found is not None and found.pairs > 20000
    assert found.agreed is not None and found.agreed >= 0.95
    assert found.decided_large is not None and found.decided_large >= 0.5
    assert forecast_error(family, "h100-sxm5") is None, "no grid was recorded there"
