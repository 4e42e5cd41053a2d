"""The study kernels on a real GPU: right with every knob, and timed as prepared."""

from __future__ import annotations

import pytest
from knob_cases import hold_right

from labtools.measure import time_candidates
from labtools.measure.campaign.plan import FAMILY_OF, expand_plan, load_plan
from labtools.measure.gpu.runner import run_jobs_on_gpu
from labtools.problem import Workload, draw_workloads, list_studies, load_rung

STUDIES = [rung.id for rung in list_studies()]
DRAWN = 40
SMALL = Workload(2, 8, 2, 65, 128)
SHORT = Workload(3, 6, 2, 45, 64, seq_lens=(3, 1, 45), distribution="late_peaked")


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("split", [1, 8])
def test_a_study_is_right_on_drawn_workloads(name: str, split: int) -> None:
    rung = load_rung(name)
    cases = draw_workloads(DRAWN, 4, rung.supports)
    hold_right(run_jobs_on_gpu([(rung, one, {"split": split}) for one in cases]), cases)


def test_every_value_of_every_knob_is_right() -> None:
    jobs = [
        (rung, case, {knob.name: value})
        for rung in list_studies()
        for knob in rung.knobs
        for value in knob.choices
        for case in (SMALL, SHORT)
    ]
    hold_right(run_jobs_on_gpu(jobs), [(rung.id, knobs) for rung, _, knobs in jobs])


def test_a_prepared_cache_is_read_cold_and_is_not_written_in_the_timed_region() -> None:
    """Quantising reads all of k and v: inside the timed region it would cost twice the reading."""
    workload = Workload(64, 32, 32, 512, 128)
    timing = time_candidates(
        [("s02", {"split": 2}), ("s01", {"split": 2})], workload, processes=2, rounds=6
    )
    assert timing.failures == {}
    codes, halves = timing.find("s02"), timing.find("s01")
    assert codes.comparison.tolerance == load_rung("s02").tolerance
    one, other = codes.samples.processes[0], halves.samples.processes[0]
    assert one.rotated_sets == other.rotated_sets
    assert 0.5 < one.rotated_bytes / other.rotated_bytes < 0.6
    assert codes.median_us < halves.median_us
    # No faster than its own bytes can be read; the ceiling's rate is that of the same processes.
    code_bytes = workload.kv_bytes / 2 * (1 + 4 / 128)
    assert timing.best_read_gb_per_s is not None
    assert codes.median_us > 0.9 * code_bytes / (timing.best_read_gb_per_s * 1e3)


@pytest.mark.parametrize("plan", FAMILY_OF)
def test_every_point_of_the_plans_launches_and_is_right(plan) -> None:
    """Each kernel and knobs of a plan once on the smallest of its workloads."""
    smallest: dict[tuple[str, int], tuple] = {}
    groups, _ = expand_plan(load_plan(plan))
    for group in sorted(groups, key=lambda one: one.workload.kv_bytes):
        for label, one in group.candidates.items():
            job = (one.target, group.workload, one.knobs)
            smallest.setdefault((label, group.workload.head_dim), job)
    hold_right(run_jobs_on_gpu(list(smallest.values())), list(smallest))
