"""The microbenchmarks as they run in the child.

What is measured crosses to the parent at once, so that a benchmark that kills the GPU's context, or
never ends, loses nothing but itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from labtools.measure.channel import Reporter
from labtools.measure.gpu.faults import cuda_fault
from labtools.measure.gpu.session import Session, use_gpu
from labtools.problem import LabError
from labtools.record import Clocks

from . import cycles, hopper, rates
from .rig import Rig, Sample

BENCHMARK_LIMIT_S = 60.0

RUNS: dict[str, Callable[[Rig], Iterator[Sample]]] = {
    "clock": cycles.run_clock,
    "tensor.clock": cycles.run_beside,
    "pipe.s2r": cycles.run_special,
    "pipe": cycles.run_pipe,
    "chase.l1": cycles.run_chase_l1,
    "chase.slices": cycles.run_chase_slices,
    "chase.l2": cycles.run_chase_l2,
    "chase.hbm": cycles.run_chase_hbm,
    "rows": cycles.run_rows,
    "async.copy": cycles.run_copy,
    "async.apart": cycles.run_apart,
    "async.bulk": cycles.run_bulk,
    "barrier.meet": cycles.run_meet,
    "barrier.skew": cycles.run_skew,
    "barrier.turns": hopper.run_named_turns,
    "phase": hopper.run_phases,
    "product.clock": hopper.run_product_clock,
    "product": hopper.run_products,
    "async.boxes": hopper.run_boxes,
    "store.pieces": cycles.run_stores,
    "branch.loop": cycles.run_turns,
    "branch.skip": cycles.run_skip,
    "code.size": cycles.run_code_size,
    "bandwidth.footprint": rates.run_footprint,
    "bandwidth.one_sm": rates.run_one_sm,
    "bandwidth": rates.run_bandwidth,
    "launch.shape": rates.run_launch_shape,
    "launch.kinds": rates.run_launch_kinds,
}


def find_run(name: str) -> Callable[[Rig], Iterator[Sample]]:
    """The function that measures a benchmark: by its name, else by its group."""
    return RUNS.get(name) or RUNS[name.split(".")[0]]


@dataclass(frozen=True)
class BenchmarkJob:
    """One microbenchmark, compiled."""

    name: str  # of the benchmark
    cubins: dict[str, str]  # files of its kernels, by the text of their definitions
    registers: dict[str, int]  # of each kernel
    settings: dict[str, Any]  # of the benchmark


@dataclass(frozen=True)
class MicrobenchRequest:
    """Benchmarks to be run one after the other; ``touch`` is the kernel that fills the L2."""

    jobs: tuple[BenchmarkJob, ...]
    touch: str


@dataclass(frozen=True)
class BenchmarkAnswer:
    """What one benchmark measured, or why it has no samples."""

    name: str  # of the benchmark
    samples: list[Sample] | None = None  # see `Sample`; None when there are none
    problem: str | None = None  # why
    dead: bool | None = None  # CUDA is dead after it
    clocks: Clocks | None = None  # of the GPU meanwhile
    seconds: float = 0.0  # it took

    def to_record(self) -> dict[str, Any]:
        """As the record keeps it: what there is, without the name."""
        names = ("samples", "problem", "dead", "clocks", "seconds")
        found = {name: getattr(self, name) for name in names}
        if self.clocks:
            found["clocks"] = self.clocks.model_dump(mode="json")
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class MicrobenchDone:
    """The machine that was measured: its versions, and numbers of its GPU."""

    environment: dict[str, str | None] = field(default_factory=dict)
    device: dict[str, int] = field(default_factory=dict)


def run_jobs(report: Reporter[BenchmarkAnswer], request: MicrobenchRequest) -> MicrobenchDone:
    """Run the jobs of a request, one after the other; runs in the child."""
    with use_gpu(report, "labtools microbench") as session:
        bench = Rig(session.device)
        for number, job in enumerate(request.jobs):
            report.progress(f"measuring {job.name}", number, len(request.jobs))
            answer = _measure(bench, session, job, request.touch, report)
            report.item(answer)
            if answer.dead:
                break
        facts = {"num_sms": bench.num_sms, "threads_per_sm": bench.threads_per_sm}
        return MicrobenchDone(session.device.environment(), facts)


def _measure(
    bench: Rig, session: Session, job: BenchmarkJob, touch: str, report: Reporter[BenchmarkAnswer]
) -> BenchmarkAnswer:
    """One benchmark: its samples, or why there are none."""
    bench.cubins = {**job.cubins, "touch": touch}
    bench.registers, bench.settings = job.registers, job.settings
    started = time.monotonic()
    answer = BenchmarkAnswer(job.name)
    session.clocks.start()
    try:
        with report.step(job.name, BENCHMARK_LIMIT_S, label=job.name):
            samples = list(find_run(job.name)(bench))
            bench.device.synchronize()
        answer = replace(answer, samples=samples)
    except LabError as error:
        answer = replace(answer, problem=str(error))
    except Exception as error:  # one benchmark that fails is reported, the rest goes on
        answer = replace(answer, problem=f"{type(error).__name__}: {error}")
        if (fault := cuda_fault(error)) is not None:
            answer = replace(answer, problem=f"{fault.message} ({error})", dead=fault.fatal)
    return replace(
        answer, clocks=session.clocks.stop(), seconds=round(time.monotonic() - started, 3)
    )
