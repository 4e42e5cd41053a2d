"""Benches and attribution: what identical kernels claim, what is found, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from live_fake import DEVICE, use_fake_gpu
from loop_play import noisy_samples, samples_of_rows
from test_optimize_family import stranger

from labtools.optimize import bench as bench_module
from labtools.optimize import live_bench
from labtools.optimize.ablation import ablate_methods, ablate_pairs
from labtools.optimize.accuracy import error_on
from labtools.optimize.attribution import (
    THRESHOLD,
    UNBOUNDED,
    interactions,
    least_effect_of,
    noise_of,
    outcome_of,
    ratio_of,
    relative_gain,
    say_attributed_interval,
    threshold_of,
)
from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import load_family, source_hash_of
from labtools.optimize.grid import (
    Grid,
    GridAt,
    GridPlan,
    TimedTwice,
    export_kernel_tuner,
    grid_contradictions,
)
from labtools.optimize.live_bench import LiveBench
from labtools.optimize.opening import open_bench
from labtools.predict import load_gpu
from labtools.predict.machine import machine_of
from labtools.problem import Comparison, LabError, Rows
from labtools.record import Provenance, Samples

FOLDER = Path(__file__).resolve().parents[1] / "families"
FAMILY = load_family(FOLDER / "row_scale.py")
WIDE, SHUFFLES, LARGER = (*("memory.wide_accesses", "latency.shuffle_sum"), "compute.larger_blocks")
HEADLINE = FAMILY.workloads[0]
SWEEP_GB_PER_S = 4800.0
EMPTY_US = machine_of(load_gpu("h200")).launch_us(1)


def true_us(point) -> float:
    """What a point takes in truth: wide accesses help, shuffles do nothing."""
    knobs = point.knobs
    time_us = {64: 60.0, 256: 50.0, 512: 48.0}[knobs["threads"]]
    return time_us * (0.8 if knobs["wide"] else 1.0)


def sweep_us(workload) -> float:
    """The read sweep: faster than the record of the GPU on the smaller workload alone."""
    gb_per_s = 4000.0 if workload == HEADLINE else SWEEP_GB_PER_S
    return workload.streamed_bytes / gb_per_s / 1e3 + EMPTY_US


def make_grid_of(
    seed: int = 0, noise: float = 0.004, drift: float = 0.002, pairs: int = 24
) -> Grid:
    """A grid whose times are known but for noise within a batch and drift between batches."""
    rng = np.random.default_rng(seed)
    closure = FAMILY.closure()
    points = [closure[place] for place in rng.permutation(len(closure))]
    plan = GridPlan(
        family=str(FAMILY.path),
        rung=FAMILY.rung.id,
        gpu="h200",
        source_hash=source_hash_of(FAMILY),
        model="a model",
        workloads=FAMILY.workloads,
        knobs={name: tuple(one.knobs[name] for one in points) for name in FAMILY.start.knobs},
        batch=4,
        pairs=tuple(TimedTwice(n, (n // 4 + 1) % 5) for n in range(len(points))),
        anchors=(),
        rounds=5,
    )
    count = len(points)
    moved = np.exp(drift * rng.standard_normal(plan.batches + 1))

    def measure(number: int, batch: int) -> tuple[float, ...]:
        times = true_us(points[number]) * moved[batch] * np.exp(noise * rng.standard_normal(5))
        return tuple(round(float(one), 4) for one in times)

    at = tuple(
        GridAt(
            workload=workload,
            samples=tuple(measure(n, plan.batch_of(n)) for n in range(count)),
            worst_error=(1e-4,) * count,
            failures={},
            forecast_us=tuple(1.1 * true_us(one) for one in points),
            band_us=(None,) * count,
            bound=("bandwidth",) * count,
            counters={
                "issue_slot_pct": (40.0,) * count,
                "dram_throughput_pct": (70.0,) * count,
                "stall_long_scoreboard_cycles": (30.0,) * count,
                "warp_latency_cycles": (40.0,) * count,
            },
            code=(0,) * count,
            again={one.point: measure(one.point, one.batch) for one in plan.pairs},
            anchors={"ceiling:read_sweep": {0: (sweep_us(workload),) * 5}},
            launches=(10,) * count,
            sets=4,
            set_bytes=2**29,
        )
        for workload in plan.workloads
    )
    grid = Grid(
        schema_version=1,
        plan=plan,
        options=(),
        nvrtc_version="13.0",
        arch="sm_90",
        provenance=Provenance(
            gpu="NVIDIA H200",
            gpu_slug="h200",
            arch="sm_90",
            date="2026-11-23T00:00:00Z",
            tree_hash="",
            command="a test",
        ),
        protocol="graph-1",
        codes=("0",),
        registers=(32,) * count,
        spills=(0,) * count,
        entries=("row_scale",) * count,
        patterns={},
        signatures={},
        numbers={},
        problems={},
        at=at,
    )
    assert grid_contradictions(grid) == []
    return grid


def recorded(seed: int = 0, **noise) -> RecordedBench:
    return RecordedBench(FAMILY, HEADLINE, make_grid_of(seed, **noise))


RIGHT = Comparison(True)
TOP = FAMILY.apply(FAMILY.start, [WIDE, SHUFFLES, LARGER])


# ------------------------------------------------------------------------------- the statistics


@pytest.mark.parametrize(
    ("processes", "rounds", "noise"), [(5, 10, 0.005), (5, 10, 0.02), (1, 5, 0.01)]
)
def test_identical_kernels_claim_nothing_and_twice_the_least_effect_is_found(
    processes, rounds, noise
):
    rng = np.random.default_rng(1)

    def kernel(time_us: float = 40.0) -> Samples:
        return noisy_samples(rng, time_us, processes, rounds, noise)

    pairs = [(kernel(), kernel()) for _ in range(40)]
    widen = noise_of(pairs) if processes == 1 else 0.0
    least = least_effect_of(pairs, "live", widen)
    assert least.pairs == 40
    assert least.effect > 0
    threshold = threshold_of(least)
    assert threshold >= THRESHOLD
    claims = found = seen = 0
    for _ in range(100):
        same = ratio_of(kernel(), kernel(), widen)
        claims += same.low - 1 > threshold or same.high - 1 < -threshold
        slower = ratio_of(kernel(40.0 * (1 + 2 * threshold)), kernel(), widen)
        found += slower.low - 1 > threshold
        told = ratio_of(kernel(40.0 * (1 + 2 * least.effect)), kernel(), widen)
        seen += told.low > 1
    assert claims <= 5
    assert found >= 95
    assert seen >= 95


def test_swapped_roles_are_caught_by_a_known_slower_kernel():
    rng = np.random.default_rng(2)
    slow, fast = (noisy_samples(rng, time_us, 5, 10, 0.005) for time_us in (60.0, 50.0))
    assert ratio_of(slow, fast).low > 1.15
    assert ratio_of(fast, slow).high < 0.87
    assert relative_gain(slow, fast) == pytest.approx(0.2, abs=0.02)
    assert relative_gain(fast, slow) < 0
    # On the bench: a method that slows is below the threshold, one that helps is above.
    (wide,) = ablate_methods(recorded(), TOP, [WIDE])
    assert wide.delta_us > 0
    assert wide.decided == "above"
    assert wide.relative == pytest.approx(0.25, abs=0.03)


def test_points_of_other_processes_are_not_compared_and_noise_widens():
    one, other = samples_of_rows([[40.0] * 5]), samples_of_rows([[40.4] * 5])
    assert ratio_of(other, one).low == ratio_of(other, one).high
    wider = ratio_of(other, one, noise=0.02)
    assert wider.low < 1.0 < wider.high, "no narrower than identical kernels in two batches"
    third = Samples(processes=(one.processes[0].model_copy(update={"process": 3}),))
    with pytest.raises(LabError, match="share no process"):
        ratio_of(one, third)


# --------------------------------------------------------------------------------- the recorded


@pytest.mark.parametrize("seed", range(4))
def test_methods_on_the_recorded_grid_are_judged_by_its_own_identical_kernels(seed):
    bench = recorded(seed)
    assert bench.least_effect().pairs >= 20
    assert bench.least_effect().origin == "recorded"
    found = {one.method: one for one in ablate_methods(bench, TOP, [WIDE, SHUFFLES, LARGER])}
    assert found[WIDE].decided == "above"
    assert found[LARGER].decided == "above"
    assert found[SHUFFLES].decided == "below"
    assert found[SHUFFLES].without == FAMILY.remove(TOP, SHUFFLES).key
    for one in found.values():
        assert one.low <= one.relative <= one.high
        assert one.threshold == threshold_of(bench.least_effect())
    again = ablate_methods(recorded(seed), TOP, [WIDE, SHUFFLES, LARGER])
    assert list(again) == list(found.values())


def test_a_machine_that_can_tell_little_decides_little():
    bench = recorded(noise=0.1, drift=0.1)
    assert bench.least_effect().effect > 0.1
    (shuffles,) = ablate_methods(bench, TOP, [SHUFFLES])
    assert shuffles.threshold == bench.least_effect().effect
    assert shuffles.high - shuffles.low > 0.2


def test_two_methods_are_measured_together_and_not_summed():
    bench = recorded()
    single = ablate_methods(bench, TOP, [WIDE, LARGER])
    pairs = ablate_pairs(bench, TOP, [WIDE, LARGER])
    (both,) = pairs
    assert both.method == f"{WIDE} + {LARGER}"
    assert both.relative == pytest.approx(60 / (0.8 * 50) - 1, abs=0.05)
    (said,) = interactions(single, pairs, bench.least_effect())
    assert said.additive and str(said) == "no"
    by_model = dataclasses.replace(bench.least_effect(), origin="forecast")
    (said,) = interactions(single, pairs, by_model)
    assert str(said) == "undecided", "a forecast does not show that nothing interacts"
    assert sum(one.relative for one in single) < both.relative - 0.02  # a sum is another number
    wrong = dataclasses.replace(both, relative=0.9, low=0.88, high=0.92)
    for least in (bench.least_effect(), by_model):
        assert str(interactions(single, [wrong], least)[0]) == "yes"


def test_the_recorded_bench_says_what_it_lacks():
    bench = recorded()
    assert bench.refuses(TOP) is None
    gone = dataclasses.replace(
        make_grid_of(),
        plan=dataclasses.replace(
            bench.grid.plan,
            knobs={name: column[:4] for name, column in bench.grid.plan.knobs.items()},
        ),
    )
    small = RecordedBench(FAMILY, HEADLINE, gone)
    outside = next(one for one in FAMILY.grid() if gone.number(one) is None)
    assert "no point of the recorded grid" in small.refuses(outside)
    assert outside in small.time([outside]).failures
    with pytest.raises(LabError, match="has no time"):
        small.time([outside]).median_us(outside)
    with pytest.raises(LabError, match="has no time"):
        ablate_methods(small, outside, [])
    with pytest.raises(LabError, match="was not measured on"):
        RecordedBench(FAMILY, HEADLINE.replace(rows=7), make_grid_of())


def test_the_recorded_bench_offers_gaps_forecasts_best_and_floor():
    bench = recorded()
    gaps = bench.gaps(TOP)
    assert gaps.origin == "forecast"
    assert (gaps.compute, gaps.memory, gaps.latency) == pytest.approx((0.6, 0.3, 0.75))
    assert bench.forecasts_us([TOP])[TOP] == pytest.approx(1.1 * true_us(TOP))
    best, time_us = bench.best_of_grid()
    assert time_us == min(bench.known_us(FAMILY.closure()).values())
    best, time_us = bench.best_leading()
    assert bench.crowns(best)
    assert true_us(best) == min(true_us(one) for one in FAMILY.grid())
    read_us = HEADLINE.streamed_bytes / SWEEP_GB_PER_S / 1e3
    assert bench.floor_us() == pytest.approx(read_us + EMPTY_US), "the best rate, one launch"
    assert bench.floor_us() < time_us
    assert bench.environment()["model"] == "a model"
    assert bench.entry(TOP) == "row_scale"
    assert bench.check([TOP]) == {TOP: None}
    assert not bench.one_call


def test_a_bench_of_another_kernel_or_without_a_file_is_refused():
    with pytest.raises(LabError, match="There is no recorded grid"):
        open_bench(FAMILY, HEADLINE, "recorded")
    grid = make_grid_of()
    other = dataclasses.replace(grid, plan=dataclasses.replace(grid.plan, rung="other"))
    with pytest.raises(LabError, match="The grid is of other"):
        RecordedBench(FAMILY, HEADLINE, other)


# --------------------------------------------------------------------------------- the forecast


def test_the_forecast_stands_for_times_and_says_so():
    with open_bench(FAMILY, FAMILY.workloads[1], "forecast") as bench:
        timed = bench.time([FAMILY.start, TOP])
        assert bench.origin == bench.least_effect().origin == "forecast"
        assert bench.forecasts_us([TOP])[TOP] == timed.median_us(TOP)
        assert bench.gaps(TOP).origin == "forecast"
        assert bench.shares(TOP)["issue_slot_pct"] > 0
        assert bench.floor_us() < timed.median_us(TOP)
        assert bench.best_of_grid() is None and bench.best_leading() is None
        (wide,) = ablate_methods(bench, TOP, [WIDE])
        assert (wide.decided, outcome_of(wide)) == (None, "open"), "norms have no band"
        assert wide.low < wide.relative < wide.high == UNBOUNDED
        for at in (TOP, FAMILY.remove(TOP, WIDE)):
            made = bench.forecast_of(at)
            width = (0.5 * made.time_us, 2 * made.time_us)
            bench._forecasts[at, bench.problem] = dataclasses.replace(made, band_us=width)
        (wide,) = ablate_methods(bench, TOP, [WIDE])
        assert (wide.decided, outcome_of(wide)) == (None, "open"), "its bands are wide"
        assert wide.low < wide.relative < wide.high < UNBOUNDED
        for at in (TOP, FAMILY.remove(TOP, WIDE)):
            blind = dataclasses.replace(bench.forecast_of(at), band_us=None)
            bench._forecasts[at, bench.problem] = blind
        (wide,) = ablate_methods(bench, TOP, [WIDE])
        assert (wide.decided, outcome_of(wide)) == (None, "open"), "nobody knows its error"
        assert say_attributed_interval(wide) == "not known"
        assert bench.check([FAMILY.start]) == {FAMILY.start: None}
        assert bench.code(TOP).entries
        assert bench.entry(TOP) == "row_scale"


def test_a_forecast_verdict_carries_the_error_of_its_family_on_the_grid(monkeypatch):
    """The share that is decided is of the grid, and falls as the forecasts get worse."""
    good, bad = make_grid_of(noise=0.001), make_grid_of(noise=0.001)
    rng = np.random.default_rng(3)
    worse = tuple(
        dataclasses.replace(
            at, forecast_us=tuple(us * float(np.exp(rng.normal())) for us in at.forecast_us)
        )
        for at in bad.at
    )
    little = error_on(good, FAMILY)
    much = error_on(dataclasses.replace(bad, at=worse), FAMILY)
    assert little.log_error < 0.05 < 0.5 < much.log_error
    assert little.agreed == 1.0 and little.decided > much.decided
    for error, decided in ((little, "above"), (much, None)):
        with open_bench(FAMILY, HEADLINE, "forecast") as bench:
            monkeypatch.setattr(type(bench), "error", error)
            times = {FAMILY.start: 100.0, TOP: 80.0}
            rows = {one: samples_of_rows([[us]]) for one, us in times.items()}
            timed = bench_module.TimedPoints(rows)
            ratio = bench.ratio(timed, FAMILY.start, TOP)
        assert ratio.low < ratio.ratio == 1.25 < ratio.high
        assert ("above" if ratio.low > 1 + THRESHOLD else None) == decided


def test_what_cannot_be_compiled_says_why_in_one_sentence(tmp_path):
    """Others tell it as their own reason, or its first line alone."""
    path = stranger(tmp_path)
    with path.with_suffix(".cu").open("a") as source:
        source.write("\nnonsense\n")
    family = load_family(path)
    with open_bench(family, HEADLINE, "forecast") as bench:
        said = bench.check([family.start])[family.start]
    assert "nonsense" in said.splitlines()[0]
    assert "Why:" not in said and "What still works:" not in said


# ----------------------------------------------------------------------- Kernel Tuner's format


def test_kernel_tuner_reads_the_grid_field_by_field(tmp_path):
    grid = make_grid_of()
    at = dataclasses.replace(
        grid.at[0],
        samples=((), *grid.at[0].samples[1:]),
        failures={0: "wrong"},
        launches=(0, *grid.at[0].launches[1:]),
    )
    grid = dataclasses.replace(grid, at=(at, *grid.at[1:]))
    path = tmp_path / "cache.json"
    export_kernel_tuner(grid, path)
    text = path.read_text()
    # What `correct_open_cache` of Kernel Tuner 1.5 takes for a file that was properly closed.
    assert text.strip()[-3:] == "}\n}"
    data = json.loads(text)
    assert set(data) == {
        *("device_name", "kernel_name", "problem_size", "tune_params_keys"),
        *("tune_params", "restrictions", "reasons_of_restrictions", "objective", "cache"),
    }
    assert data["device_name"] == "NVIDIA H200"
    assert data["kernel_name"] == "row_scale"
    assert data["problem_size"] == [HEADLINE.rows, HEADLINE.columns]
    assert data["tune_params_keys"] == list(grid.plan.knobs)
    assert data["objective"] == "time"
    assert data["tune_params"]["threads"] == [64, 256, 512]
    assert len(data["cache"]) == len(grid)
    for number in range(len(grid)):
        knobs = grid.plan.knobs_of(number)
        held = data["cache"][",".join(str(knobs[name]) for name in data["tune_params_keys"])]
        assert {name: held[name] for name in knobs} == knobs
        assert datetime.fromisoformat(held["timestamp"]) == grid.provenance.date
        if number == 0:
            assert held["__error__"] == held["time"] == "RuntimeFailedConfig"
            continue
        assert held["time"] == pytest.approx(grid.median(number) / 1e3)
        assert [1e3 * one for one in held["times"]] == pytest.approx(list(at.samples[number]))
        assert held["benchmark_time"] == pytest.approx(10 * sum(at.samples[number]) / 1e3)
        assert held["compile_time"] == held["verification_time"] == held["strategy_time"] == 0.0
    lines = text.splitlines()
    assert sum(line.startswith('"') and '"benchmark_time"' in line for line in lines) == len(grid)


# ------------------------------------------------------------------------------------- live


def test_the_live_bench_asks_for_several_points_at_once(monkeypatch):
    """One run of the checks and one of ncu; a point that does not compile costs itself alone."""
    narrow, asked = FAMILY.remove(TOP, LARGER), []

    def check(wanted, limits):
        asked.append(len(wanted))
        if any(one.knobs == dict(narrow.knobs) for one, _ in wanted.values()):
            raise LabError("It does not compile.", "a semicolon is missing", "what compiles")
        return dict.fromkeys(wanted, RIGHT)

    def profile(items):
        asked.append(len(items))
        raise LabError("There is no ncu.")

    monkeypatch.setattr(live_bench, "require_device", lambda: DEVICE)
    monkeypatch.setattr(live_bench, "check_batteries", check)
    monkeypatch.setattr(live_bench, "profile_batch", profile)
    with LiveBench(FAMILY, Rows(64, 256)) as bench:
        found = bench.check([TOP, FAMILY.start, narrow, TOP])
        assert list(found) == [TOP, FAMILY.start, narrow]
        assert found[TOP] is found[FAMILY.start] is None
        assert found[narrow] == "It does not compile: a semicolon is missing"
        assert bench.check([narrow, TOP])[TOP] is None
        assert asked == [3, 1, 1, 1]
        bench.look_ahead([TOP, narrow, TOP])
        assert bench.gaps(narrow).origin == "forecast"
        assert asked[4:] == [2]


def test_the_live_bench_times_a_call_together_and_tells_identical_kernels(monkeypatch, tmp_path):
    use_fake_gpu(monkeypatch, tmp_path, sample_us=100.0)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(live_bench, "require_device", lambda: DEVICE)
    monkeypatch.setattr(
        live_bench, "check_batteries", lambda wanted, limits: dict.fromkeys(wanted, RIGHT)
    )
    with LiveBench(FAMILY, Rows(64, 256), processes=2, rounds=5) as bench:
        narrow = FAMILY.remove(TOP, LARGER)
        timed = bench.time([TOP, narrow])
        assert timed.failures == {}
        assert timed.median_us(TOP) == pytest.approx(8.0)
        assert timed.median_us(narrow) == pytest.approx(12.0)
        assert [len(one.us) for one in timed.samples[TOP].processes] == [5, 5]
        least = bench.least_effect()
        assert (least.pairs, least.origin) == (live_bench.AA_PAIRS, "live")
        assert least.effect == pytest.approx(0.0, abs=1e-6)
        (larger,) = ablate_methods(bench, TOP, [LARGER])
        assert larger.relative == pytest.approx(0.5)
        assert larger.decided == "above"
        assert bench.gaps(TOP).origin == "forecast"  # there is no ncu
        assert bench.check([TOP]) == {TOP: None}
        assert bench.one_call
        assert bench.environment()["cupy"] == "fake"
    with LiveBench(FAMILY, Rows(64, 256), processes=1, rounds=5) as bench:
        monkeypatch.setenv("FAKE_GPU_BEHAVIOUR", json.dumps({"row_scale": "wrong"}))
        timed = bench.time([TOP])
        assert "so it is not timed" in timed.failures[TOP]
        with pytest.raises(LabError, match="Identical kernels could not be timed"):
            bench.least_effect()
