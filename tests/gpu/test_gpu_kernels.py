"""The rungs on a real GPU: right on drawn workloads, and every way to be wrong is told."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest
from knob_cases import SEED, fits, hold_right, knob_choices

from labtools.measure.gpu.queue import hold_gpu
from labtools.measure.gpu.runner import run_jobs_on_gpu, run_on_gpu
from labtools.problem import (
    HEADLINE,
    LabError,
    Rung,
    Workload,
    draw_workloads,
    list_rungs,
    load_rung,
)

RUNGS = tuple(rung.id for rung in list_rungs())
SMALL = Workload(2, 8, 2, 65, 128)
DRAWN = 200
ALWAYS = (1, 2, 31, 32, 33, 4097)
"""Lengths that every rung meets whatever is drawn."""
KNOB_CASES = (
    SMALL,
    Workload(3, 4, 4, 33, 64, seq_lens=(33, 1, 17), distribution="large"),
    Workload.parse("3,8,2,300,128/bf16/paged16").replace(seq_lens=(300, 1, 160)),
    Workload.parse("2,8,1,700,64/paged64").replace(distribution="rising"),
)


def edit(rung: Rung, old: str, new: str) -> Rung:
    """The rung with a piece of its source replaced; the piece must be there."""
    assert old in rung.source_text
    return rung.with_source(rung.source_text.replace(old, new))


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_is_right_on_drawn_workloads(name: str) -> None:
    rung = load_rung(name)
    cases = [Workload(2, 6, 2, n, 128, distribution="late_peaked", seed=n) for n in ALWAYS]
    cases += draw_workloads(DRAWN, SEED, rung.supports)
    hold_right(run_jobs_on_gpu([(rung, one, None) for one in cases]), cases)


@pytest.mark.parametrize("name", RUNGS)
def test_every_value_of_every_knob_is_right(name: str) -> None:
    rung = load_rung(name)
    jobs = [
        (rung, case, knobs)
        for knobs in knob_choices(rung)
        for case in KNOB_CASES
        if rung.supports(case) is None and fits(rung, case, knobs)
    ]
    values = {item for _, _, knobs in jobs for item in rung.resolve_knobs(knobs).items()}
    assert len(values) > len(rung.knobs)
    hold_right(run_jobs_on_gpu(jobs), [knobs for _, _, knobs in jobs])


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_is_right_at_the_headline(name: str) -> None:
    run = run_on_gpu(load_rung(name), HEADLINE)
    assert run.ok, str(run)
    assert run.out is not None
    assert run.out.shape == (8, 32, 128)


def test_a_misaligned_kernel_leaves_this_process_alive() -> None:
    rung = edit(load_rung("r03"), "kv_len * HEAD_DIM + dim;", "kv_len * HEAD_DIM + dim + 1;")
    run = run_on_gpu(rung, SMALL)
    assert not run.ok
    assert run.faults[0].kind == "misaligned"
    assert "misaligned address" in run.faults[0].message
    assert "this notebook is alive" in run.faults[0].message
    assert "compute-sanitizer" in run.faults[0].message
    assert run_on_gpu(load_rung("r03"), SMALL).ok  # and the GPU serves the next one


def test_an_endless_loop_is_ended() -> None:
    loop = "  for (volatile const int* wait = seq_lens; *wait > 0;) {}\n  float score_max"
    rung = edit(load_rung("r03"), "  float score_max", loop)
    run = run_on_gpu(rung, SMALL, time_limit_s=3.0)
    assert not run.ok
    assert run.faults[0].kind == "hang"
    assert "did not end within 3 s" in run.faults[0].message
    assert run_on_gpu(load_rung("r03"), SMALL).ok


def test_a_wild_read_is_told() -> None:
    rung = edit(load_rung("r03"), "(k_head + (size_t)n", "(k_head + (1ull << 38) + (size_t)n")
    run = run_on_gpu(rung, SMALL)
    assert run.faults[0].kind == "out_of_bounds"
    assert "illegal" in run.faults[0].message.lower()


def test_a_write_past_the_output_is_seen_by_the_red_zone() -> None:
    rung = edit(
        load_rung("r03"),
        "  store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);",
        "  store_row(out + qo_row * HEAD_DIM + dim, acc, 1.f / weight_sum);\n"
        "  if (dim == 0) out[(size_t)gridDim.y * gridDim.x * HEAD_DIM] = q[0];",
    )
    run = run_on_gpu(rung, SMALL)
    assert not run.ok
    assert "outside the buffer 'out'" in str(run)


def test_a_write_into_an_input_is_seen() -> None:
    rung = edit(
        load_rung("r03"),
        "  float score_max",
        "  if (dim == 0) const_cast<half*>(v)[0] = __float2half(7.f);\n  float score_max",
    )
    run = run_on_gpu(rung, SMALL)
    assert not run.ok
    assert "into its input 'v'" in str(run)


def test_too_many_threads_are_refused_before_they_are_launched() -> None:
    rung = load_rung("r03")

    def launch(workload, limits, knobs):
        return [
            dataclasses.replace(one, block=(2048, 1, 1))
            for one in rung.launch(workload, limits, knobs)
        ]

    with pytest.raises(LabError, match="a GPU takes at most"):
        run_on_gpu(rung.with_launch(launch), SMALL)


def test_a_block_larger_than_the_kernel_was_compiled_for_is_told_and_the_process_lives_on() -> None:
    rung = edit(load_rung("r03"), "BOUNDED(NUM_THREADS)", "__launch_bounds__(NUM_THREADS / 2)")
    refused, right = run_jobs_on_gpu([(rung, SMALL, {}), (load_rung("r03"), SMALL, {})])
    assert not refused.ok
    assert [fault.kind for fault in refused.faults] == ["launch"]
    assert right.ok, str(right)


def test_more_memory_than_there_is_is_told() -> None:
    run = run_on_gpu(load_rung("r03"), Workload(64, 32, 8, 2_000_000, 128))
    assert not run.ok
    assert run.faults[0].kind == "out_of_memory"


def test_a_second_measurement_waits_for_the_first_and_says_so() -> None:
    import cupy

    gpus = [
        str(cupy.cuda.runtime.deviceGetPCIBusId(i))
        for i in range(cupy.cuda.runtime.getDeviceCount())
    ]
    if len(gpus) > 1:
        pytest.skip("with several GPUs the second measurement takes another one")
    said: list[str] = []
    waiting = threading.Event()

    def hear(text: str, done: int = 0, total: int = 0) -> None:
        said.append(text)
        if "waiting" in text:
            waiting.set()

    runs = []
    thread = threading.Thread(
        target=lambda: runs.append(run_on_gpu(load_rung("r03"), SMALL, progress=hear))
    )
    with hold_gpu(gpus, "a long measurement"):
        thread.start()
        assert waiting.wait(60)
        assert not runs
    thread.join(120)
    assert runs[0].ok
    assert any("a long measurement" in text for text in said)


def test_the_fill_kernel_is_normal_and_puts_nan_past_each_length(tmp_path) -> None:
    from labtools.measure.gpu import check as live_check

    # Drawn on the device, ragged: rows past a length are NaN, or the answer would not be right.
    workload = Workload(4, 32, 8, 8192, 128, seq_lens=(8192, 1, 5000, 4097))
    assert not live_check.drawn_on_host(workload)
    for name in ("r02", "r03"):
        run = run_on_gpu(load_rung(name), workload)
        assert run.ok, str(run)
    # A kernel that ignores the lengths meets the NaN.
    rung = edit(load_rung("r03"), "= seq_lens[sequence]", "= kv_len")
    run = run_on_gpu(rung, workload)
    assert not run.ok
    assert "NaN" in str(run)


def test_pages_and_bfloat16_are_drawn_on_the_device() -> None:
    from labtools.measure.gpu import check as live_check

    rung = load_rung(Path(__file__).parents[1] / "cpu" / "split_merge.py")
    lengths = (8192, 1, 5000, 4097)
    for form in ("bf16", "paged16", "bf16/paged64"):
        workload = Workload.parse(f"4,32,8,8192,128/{form}").replace(seq_lens=lengths)
        assert not live_check.drawn_on_host(workload)
        run = run_on_gpu(rung, workload)
        assert run.ok, str(run)
    # Pages in another order hold other numbers; rows past a length hold NaN.
    wrong = edit(rung, "page_table[sequence * max_pages + n / PAGE_SIZE];", "n / PAGE_SIZE;")
    assert not run_on_gpu(wrong, workload).ok
    wrong = edit(
        rung, "length = seq_lens[sequence]", "length = min(seq_lens[sequence] | 63, kv_len)"
    )
    assert "NaN" in str(run_on_gpu(wrong, workload))
