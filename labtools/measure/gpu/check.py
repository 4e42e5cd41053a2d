"""The check on the GPU, as it runs in the child: inputs, red zones, poisoned output, oracle."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from labtools.problem import (
    Arrays,
    Comparison,
    Drawn,
    Part,
    Problem,
    StoredAs,
    operation_of,
    poisoned,
)
from labtools.record.fields import ArrayField, ProblemField
from labtools.toolchain.apart import copies_at_once, each_apart, installed_bytes

from ..case import CheckCase, Fault
from ..channel import Reporter
from ..worker import NOTEBOOK_ALIVE
from .device import RED_BYTE, BufferSet, LiveDevice, RedZoned, bind_launches, host_view
from .faults import ASK_SANITIZER, cuda_fault
from .job import Job
from .session import use_gpu

HOST_ELEMENTS = 2**24  # up to so many the inputs are drawn on the CPU, with every bit checked
ORACLE_VISITS = 2**21  # up to so many `Problem.visits` every part is computed; beyond, a sample
APART_VISITS = 2**17  # from so many the cores share what is computed
APART_LIMIT_S = 600.0


def can_fill(problem: Problem) -> bool:
    """Whether the device can draw the inputs: normal ones, if the operation says how."""
    fills = operation_of(problem).fills(problem, problem.seed)
    return problem.distribution == "normal" and fills is not None


def drawn_on_host(problem: Problem) -> bool:
    """Whether the CPU draws the inputs; the device draws only large ones, where it can."""
    return problem.streamed_elements <= HOST_ELEMENTS or not can_fill(problem)


@dataclass(frozen=True)
class GpuRun(CheckCase):
    """What one run on the GPU gave."""

    # by output, of its shape and type; empty when the kernel did not get that far
    outputs: dict[str, ArrayField] = field(default_factory=dict)
    seconds: float = 0.0  # in the child, inputs and oracle included
    environment: dict[str, str | None] = field(default_factory=dict, compare=False)  # versions

    @property
    def out(self) -> np.ndarray | None:
        """The first output, if there is one."""
        return next(iter(self.outputs.values()), None)


@dataclass(frozen=True)
class Case:
    """One rung, compiled, on one workload."""

    job: Job
    workload: ProblemField


@dataclass(frozen=True)
class CheckRequest:
    """Cases for one child."""

    purpose: str  # shown to whoever waits for the GPU
    cases: tuple[Case, ...]  # in order
    fill_cubin: str  # the compiled kernel that fills buffers with random numbers
    time_limit_s: float  # for each kernel; past it the child ends
    stop_at_first: bool = False  # leave out what stands behind the first wrong case


def check_cases(report: Reporter[GpuRun], request: CheckRequest) -> None:
    """Run each case and compare it with the oracle; runs in the child.

    A step that runs a kernel carries the kernel's label. After an error that kills the CUDA context
    the rest is left out.
    """
    with use_gpu(report, request.purpose) as session:
        for index, case in enumerate(request.cases, start=1):
            total = len(request.cases)
            report.progress(f"case {index} of {total}: {case.workload}", index - 1, total)
            run, fatal = _check_case(session.device, case, request, report)
            report.item(run)
            if fatal or (request.stop_at_first and not run.ok):
                break


def _check_case(
    device: LiveDevice, case: Case, request: CheckRequest, report: Reporter[GpuRun]
) -> tuple[GpuRun, bool]:
    started = time.monotonic()
    outputs: dict[str, np.ndarray] = {}
    comparison, fatal = None, False
    faults: list[Fault] = []
    try:
        outputs, comparison, faults = _run_case(device, case, request, report)
    except Exception as error:
        fault = cuda_fault(error)
        if fault is None:
            raise
        faults, fatal = [Fault(fault.kind, fault.message)], fault.fatal
    ok = comparison is not None and comparison.ok and not faults
    advised = [_advise(fault) for fault in faults]
    seconds, versions = time.monotonic() - started, device.environment()
    return GpuRun(case.workload, ok, comparison, advised, "", outputs, seconds, versions), fatal


def _advise(fault: Fault) -> Fault:
    """Say of a fault that ends a program that it ended none, and who can name the line."""
    if fault.kind not in ("misaligned", "out_of_bounds", "trap", "cuda"):
        return fault
    return replace(fault, message=f"{fault.message}; {NOTEBOOK_ALIVE}; {ASK_SANITIZER}")


def _run_case(
    device: LiveDevice, case: Case, request: CheckRequest, report: Reporter[GpuRun]
) -> tuple[dict[str, np.ndarray], Comparison, list[Fault]]:
    job, workload = case.job, case.workload
    operation = operation_of(workload)
    zones = {name: RedZoned(device, one.shape, one.dtype) for name, one in workload.buffers.items()}
    buffers = BufferSet({name: zone.array for name, zone in zones.items()}, workload)
    host = operation.draw(workload) if drawn_on_host(workload) else None
    if host is not None:
        upload_inputs(device, buffers, host)
        expected = operation.expect(host, job.scheme, _parts_on_host(workload))
    else:
        draw_on_device(device, request.fill_cubin, buffers, workload.seed)
        parts = workload.sample_parts(16, np.random.default_rng(1))
        ((found,),) = expect_on_device(device, [AskedParts(buffers, parts)], {job.scheme})
        expected = dict(found[job.scheme])
    for name, one in job.workspaces.items():
        zones[name] = RedZoned(device, one.shape, one.dtype)
        device.set_bytes(zones[name].array, RED_BYTE)
    poison_outputs(device, buffers)
    device.synchronize()
    named = {name: zone.array for name, zone in zones.items()}
    with report.step(f"running on {workload}", request.time_limit_s, job.label):
        bind_launches(device, job.cubin, job.launches, named)()
        device.synchronize()
    outputs = outputs_on_host(device, buffers)
    comparison = workload.compare(outputs, expected, job.tolerance)
    faults = []
    for name, zone in zones.items():
        if damage := zone.damage():
            message = f"the kernel wrote outside the buffer {name!r}: {damage}"
            faults.append(Fault("out_of_bounds", message))
    if host is not None:
        faults += _changed_inputs(device, host, zones)
    return outputs, comparison, faults


def _changed_inputs(device: LiveDevice, host: Drawn, zones: Mapping[str, RedZoned]) -> list[Fault]:
    faults = []
    for name, array in host.buffers().items():
        if name in host.problem.outputs:
            continue
        now = device.download(zones[name].array)
        if now.tobytes() != np.ascontiguousarray(array).tobytes():
            message = f"the kernel wrote into its input {name!r}"
            faults.append(Fault("out_of_bounds", message))
    return faults


def _parts_on_host(problem: Problem) -> list[Part] | None:
    """The parts to compare where the inputs were drawn on the CPU; None for all of them."""
    if problem.visits <= ORACLE_VISITS:
        return None
    return problem.sample_parts(16, np.random.default_rng([problem.seed, 1]))


def draw_on_device(device: LiveDevice, fill_cubin: str, buffers: BufferSet, seed: int) -> None:
    """Make normal inputs on the device, of a problem that `can_fill`; ``seed`` replaces its own."""
    problem = buffers.problem
    for one in operation_of(problem).fills(problem, seed) or ():
        target = buffers.given[one.buffer]
        if one.array is not None:
            device.upload(target, one.array)
            continue
        lengths = None
        if one.lengths is not None:
            lengths = device.empty(one.lengths.shape, one.lengths.dtype)
            device.upload(lengths, one.lengths)
        device.fill_normal(fill_cubin, target, one.seed, heads=one.heads, lengths=lengths)


def upload_inputs(device: LiveDevice, buffers: BufferSet, inputs: Drawn) -> None:
    """Copy inputs that were drawn on the CPU to the device."""
    for name, array in inputs.buffers().items():
        device.upload(buffers.given[name], array)


def poison_outputs(device: LiveDevice, buffers: BufferSet) -> None:
    """Fill the outputs that are no inputs with `poisoned`."""
    for name, one in buffers.problem.outputs.items():
        if name not in buffers.problem.inputs:
            device.upload(buffers[name], poisoned(one.shape, one.dtype))


def outputs_on_host(device: LiveDevice, buffers: BufferSet) -> dict[str, np.ndarray]:
    """What lies in the outputs, by name."""
    return {
        name: host_view(device.download(buffers[name]), one.dtype)
        for name, one in buffers.problem.outputs.items()
    }


@dataclass(frozen=True)
class AskedParts:
    """Parts of a set of buffers that the oracle is asked about, as often as there are changes: in
    the context of each the inputs are read."""

    buffers: BufferSet
    parts: Sequence[Part]
    changes: Sequence[AbstractContextManager[None]] = (nullcontext(),)


def expect_on_device(
    device: LiveDevice, asked: Sequence[AskedParts], schemes: Collection[StoredAs | None]
) -> list[list[dict[StoredAs | None, Arrays]]]:
    """What the oracle gives, by scheme, float64 of the outputs' shapes; NaN for the parts that were
    not asked for. Of each that is asked a list, by change.

    With a scheme, of what the inputs are after they were stored in it. Of an operation of ours the
    cores answer for parts and schemes side by side, in copies of this process: threads would wait
    for each other between the short steps of a quantisation.
    """
    problem = asked[0].buffers.problem
    operation = operation_of(problem)
    given: dict[tuple[int, Part], list[Drawn]] = {}
    for index, one in enumerate(asked):

        def fetch(name: str, place: Any, buffers: BufferSet = one.buffers) -> np.ndarray:
            array = device.download(buffers.given[name][place])
            return host_view(array, problem.inputs[name].dtype)

        most = max(2, problem.parts_affordable(most=len(one.parts)))
        for change in one.changes:
            with change:
                for part in dict.fromkeys(one.parts[:most]):
                    read = operation.read_part(problem, part, fetch)
                    given.setdefault((index, part), []).append(read)
    jobs = [(scheme, *key) for key in given for scheme in schemes]

    def answer(job: tuple[StoredAs | None, int, Part]) -> list[dict[str, np.ndarray]]:
        return operation.expect_alike(given[job[1:]], job[0])

    if operation.is_ours and len(jobs) * problem.part_visits >= APART_VISITS:
        limit_bytes = installed_bytes() // copies_at_once()
        found = each_apart(answer, jobs, limit_s=APART_LIMIT_S, limit_bytes=limit_bytes)
    else:
        found = [answer(job) for job in jobs]
    answers = dict(zip(jobs, found, strict=True))

    def join(index: int, place: int) -> dict[StoredAs | None, Arrays]:
        mine = [part for which, part in given if which == index]
        return {
            scheme: operation.join_parts(
                problem, ((part, answers[scheme, index, part][place]) for part in mine)
            )
            for scheme in schemes
        }

    return [
        [join(index, place) for place in range(len(one.changes))] for index, one in enumerate(asked)
    ]
