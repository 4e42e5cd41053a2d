"""Run a rung on the CPU: right or wrong, and why. It never says how fast."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import mmap
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from labtools.problem import (
    Arrays,
    Comparison,
    Drawn,
    LabError,
    Launch,
    Limits,
    Problem,
    Rung,
    StoredAs,
    TensorMap,
    is_poison,
    operation_of,
    poisoned,
)
from labtools.problem.isolated import OtherValues
from labtools.problem.limits import MOST_FIXED_SMEM_BYTES
from labtools.problem.text import counted_lines, how_many
from labtools.toolchain import compile_rung, launched_entries, source_name
from labtools.toolchain.progress import Progress, silent
from labtools.toolchain.sources import normalise_source

from ..case import CheckCase, checked_limits
from ..resident import largest_resident
from .build import Executable, build_kernel
from .faults import CpuFault, KernelLine, explain_faults, line_table
from .memory import check_host_memory, most_bytes, too_large
from .report import MAX_COUNTED, REPORT, TRIPS, read_faults

# 0: all warps keep step. 1: the first warp runs as far ahead as it can. 2: the last one does. From
# 3 on: at random.
ORDERS = (0, 1, 2, 3)
OTHER_BLOCK_ORDERS = (2, 3)
"""Orders of warps in which blocks begin in descending and in a drawn order."""
WAITS_FOR_A_BLOCK_S = 5.0
CPU_TIME_LIMIT_S = 20.0
VISITS_PER_S, MOST_MORE_S = 2000, 60.0
"""One block may have all the work of a long case, on a slow processor."""
COUNT_LIMIT_S = 5.0
LARGEST_BUFFER = 2**32
MOST_PREPARING = 2**18
"""Threads of a preparation that is run whole where of other launches the last blocks are."""
_LOOK_S = 0.05
NEEDS_FINE, NEEDS_ALONE = 6, 7
"""A child's exit status: the kernel takes parts of a buffer's elements, or its blocks speak to each
other by volatile accesses, which have to be seen in one process."""


@dataclass(frozen=True)
class CpuRun(CheckCase):
    """What running a rung on the CPU gave."""

    faults: Sequence[CpuFault] = ()
    # by output; parts that were not reached hold poison, or what an in-out buffer was given
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    orders: tuple[int, ...] = ()  # the orders of warps that were run
    blocks: int = 0  # blocks that were run, over all orders

    @property
    def out(self) -> np.ndarray:
        """The first output."""
        return next(iter(self.outputs.values()))

    def __str__(self) -> str:
        orders = how_many(len(self.orders), "order")
        clean = f"; no fault under {orders} of warps" if self.ok else ""
        return f"CPU run: {self.told}{clean}"


def run_on_cpu(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    *,
    limits: Limits | None = None,
    orders: Sequence[int] = ORDERS,
    blocks: int | None = None,
    time_limit_s: float = CPU_TIME_LIMIT_S,
    progress: Progress = silent,
    inputs: Drawn | None = None,
    workers: int | None = None,
    laid_out: Problem | None = None,
) -> CpuRun:
    """Compile the rung's source for the CPU, run it and compare with the oracle.

    The same ``.cu`` text runs unedited: each CUDA thread is a fiber, blocks run one after another
    in a child process, and every access to memory is checked. The run stops at the first of the
    `ORDERS` of warps and blocks that shows something wrong.

    Args:
        limits: of the GPU whose launch is run; None takes `checked_limits`.
        blocks: run this many blocks, evenly spread over the grid, and compare what they wrote;
            None runs all. A rung of several launches is always run whole.
        time_limit_s: seconds of a processor that one block may take before it counts as hanging;
            some more where the workload is large.
        workers: processes to share the blocks; None takes two where there are two cores.
        laid_out: what is launched in place of the workload: the same but for buffers with longer
            axes, of which the workload's are a part, and the rest zeros. Where its outputs are
            longer, only blocks at the end of the grid are run: the workload's share and more.

    Raises LabError: no compiler, the source does not compile, the workload is not supported, or
    there is not enough memory. What the *kernel* does wrong is never an exception.
    """
    if inputs is None:
        check_host_memory(workload)
        inputs = operation_of(workload).draw(workload)
    if workers is None:
        workers = min(2, len(os.sched_getaffinity(0)))
    limits = limits or checked_limits()
    wanted = _Wanted(
        *(rung, knobs, limits, tuple(orders) or (0,), blocks, time_limit_s, workers),
        laid_out or inputs.problem,
    )
    try:
        return _run_built(wanted, inputs, progress)
    except FileNotFoundError:
        # Somebody deleted the cache between the build and the run.
        return _run_built(wanted, inputs, progress)


def build_for_cpu(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    limits: Limits | None = None,
    *,
    counted: bool = False,
) -> Executable:
    """What `run_on_cpu` runs, or `count_on_cpu` with ``counted``; its arguments and errors."""
    limits = limits or checked_limits()
    entries = launched_entries(rung, workload, limits, knobs)
    defines, name = rung.defines(workload, limits, knobs), source_name(rung)
    told = (rung.source_text, name, entries, defines, rung.include_dirs, counted)
    return build_kernel(*told, lambda: compile_rung(rung, workload, limits, knobs))


def count_on_cpu(
    rung: Rung,
    inputs: Drawn,
    knobs: Mapping[str, int] | None,
    limits: Limits,
    launch: int,
    blocks: Sequence[int],
    time_limit_s: float = COUNT_LIMIT_S,
) -> list[dict[tuple[str, int], np.ndarray]]:
    """How often each thread of some blocks comes by each line of the source, by running them.

    At most `MAX_COUNTED` blocks of the launch at one position are run, by number, after the whole
    of the launches before it; each may take ``time_limit_s`` seconds.

    Returns of each block the times of each thread, int64 [threads], by (name of the file, line).
    A line of several stretches has the times of the one gone through most.

    Raises LabError: as `run_on_cpu`; or a block does not end, or is stopped by a fault.
    """
    workload = inputs.problem
    executable = build_for_cpu(rung, workload, knobs, limits, counted=True)
    launches = rung.launches(workload, limits, knobs)
    with contextlib.ExitStack() as stack:
        given = _given_buffers(stack, inputs, launches, workload)
        page = stack.enter_context(_Buffer("trips", np.zeros(1, TRIPS), writable=True))
        counted = _Counted(launch, blocks[:MAX_COUNTED], page)
        job = CpuJob(
            *(executable, launches, 0, None, time_limit_s, 1, {}, workload), counted=counted
        )
        result = _run_order(job, given, inputs, 0, 1, silent)
        if result.death:
            raise LabError(
                f"{rung.id} was not counted on the CPU.",
                "; ".join(one.text for one in result.faults) or result.death,
                "it can be run there: labtools run --on cpu says where it stops",
            )
        found = page.array()[0]
        number = int(found["num_places"])
        places = [int(address) for address in found["places"][:number]]
        counts = found["counts"][: len(counted.blocks), :number].astype(np.int64)
    table = line_table(executable.path, source_name(rung), rung.include_dirs)
    table.resolve(places)
    lines = [table.innermost(address) for address in places]
    threads = int(np.prod(launches[launch].block))
    answer = []
    for of_block in counts[:, :, :threads]:
        by_line: dict[tuple[str, int], np.ndarray] = {}
        for line, times in zip(lines, of_block, strict=True):
            if line is not None:
                key = (Path(line.file).name, line.line)
                by_line[key] = np.maximum(by_line.get(key, 0), times)
        answer.append(by_line)
    return answer


@dataclass(frozen=True)
class _Wanted:
    rung: Rung
    knobs: Mapping[str, int] | None
    limits: Limits
    orders: tuple[int, ...]
    blocks: int | None
    time_limit_s: float
    workers: int
    laid_out: Problem


def _run_built(wanted: _Wanted, inputs: Drawn, progress: Progress) -> CpuRun:
    rung, workload, knobs, limits = wanted.rung, inputs.problem, wanted.knobs, wanted.limits
    orders, workers = wanted.orders, wanted.workers
    time_limit_s = wanted.time_limit_s
    if wanted.laid_out is workload:
        time_limit_s += min(workload.visits / VISITS_PER_S, MOST_MORE_S)
    launches = rung.launches(wanted.laid_out, limits, knobs)
    executable = build_for_cpu(rung, wanted.laid_out, knobs, limits)
    scheme = rung.scheme(workload, knobs)
    tolerance = rung.tolerance_for(workload, launches)
    if isinstance(inputs, OtherValues) and inputs.tolerance is not None:
        tolerance = max(tolerance, inputs.tolerance)
    blocks = wanted.blocks if len(launches) == 1 else None
    table = line_table(executable.path, source_name(rung), rung.include_dirs)
    expected: Arrays | None = None
    outputs: Arrays = _blank_outputs(workload)
    first: Arrays | None = None
    faults: list[CpuFault] = []
    comparison: Comparison | None = None
    refused = _refuse_shared(executable, rung.source_text)
    if refused:
        return CpuRun(workload, False, faults=[CpuFault("launch", refused)], outputs=outputs)
    done_blocks = 0
    printed = ""
    tried: list[int] = []
    last: list[int] = []
    if wanted.laid_out.outputs != workload.outputs:
        part, whole = (one.output.shape[0] for one in (workload, wanted.laid_out))
        # More, since a tile may have rows of it and others, and tiles may be taken in bands.
        times = 1 if part == 1 else 4
        # A preparation of few threads, which may go through any of the rows each, is run whole.
        last = [
            0
            if launch.prepare and launch.num_blocks * launch.num_threads <= MOST_PREPARING
            else times * -(-launch.num_blocks * part // whole)
            for launch in launches
        ]
    with contextlib.ExitStack() as stack:
        shared_inputs = _given_buffers(stack, inputs, launches, wanted.laid_out)
        others = {
            name: stack.enter_context(_Buffer(name, array, False))
            for name, array in _altered(executable, inputs).items()
            if wanted.laid_out is workload
        }
        for order in orders:
            tried.append(order)
            job = CpuJob(
                *(executable, launches, order, blocks, time_limit_s, workers, others),
                *(wanted.laid_out, last),
            )
            result = _run_any_order(
                job, shared_inputs, inputs, len(tried) - 1, len(orders), progress
            )
            done_blocks += result.blocks
            printed = printed or result.printed
            outputs = result.outputs
            block_dims = [_three(launch.block) for launch in launches]
            faults = explain_faults(result.faults, table, block_dims, order, _source_texts(rung))
            if result.death and not faults:
                faults.append(CpuFault("crash", result.death, order=order))
            if result.death:
                comparison = None
                break
            if not faults and first is not None and _same_bits(outputs, first):
                continue  # the same bits as the order before: already compared
            expected = _expect(inputs, scheme, outputs, blocks, expected)
            found = outputs if blocks is None else _complete(outputs, expected)
            comparison = workload.compare(found, expected, tolerance)
            if faults:
                break
            if not comparison.ok:
                if first is not None:
                    said = (
                        f"right under order {orders[0]} of the warps, wrong under order {order}: "
                        "the result depends on which warp or block runs first"
                    )
                    faults.append(CpuFault("order_dependent", said, order=order))
                break
            first = outputs
    ok = not faults and comparison is not None and comparison.ok
    told = CheckCase(workload, ok, comparison, faults, printed)
    return CpuRun(**vars(told), outputs=outputs, orders=tuple(tried), blocks=done_blocks)


# ---- buffers ----


class _Buffer:
    """An array in memory that the child can map; gone with its last user, whatever happens."""

    def __init__(
        self,
        name: str,
        array: np.ndarray,
        writable: bool,
        given: bool = False,
        shape: Sequence[int] | None = None,  # where the array is a part of a larger one
        first: int = 0,  # where in it that begins, on the first axis
    ) -> None:
        self.name = name
        self._shape, self._dtype = tuple(shape or array.shape), array.dtype
        self.bytes = math.prod(self._shape) * array.dtype.itemsize
        self.item_bytes = array.dtype.itemsize
        self.writable, self.given = writable, given
        self.fd = os.memfd_create(f"labtools-{name}")
        try:
            os.ftruncate(self.fd, max(self.bytes, 1))
            self._map = mmap.mmap(self.fd, max(self.bytes, 1))
        except OSError as error:
            os.close(self.fd)
            what = f"There is no memory for the buffer {name}."
            why = f"it needs {self.bytes / 1e9:.2f} GB: {error.strerror}"
            raise LabError(what, why, "try a smaller workload") from error
        self._part = (slice(first, None), tuple(map(slice, array.shape)))
        self.part()[...] = array

    def array(self) -> np.ndarray:
        count = math.prod(self._shape)
        flat = np.frombuffer(self._map, self._dtype, count)
        return flat.reshape(self._shape)

    def part(self) -> np.ndarray:
        """What was given."""
        rows, shape = self._part
        return self.array()[rows][shape]

    def __enter__(self) -> _Buffer:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.fd)
        with contextlib.suppress(BufferError):  # a view of it is still alive
            self._map.close()


def _given_buffers(
    stack: contextlib.ExitStack, drawn: Drawn, launches: Sequence[Launch], seen: Problem
) -> dict[str, _Buffer]:
    """The inputs that no kernel writes. Raises LabError: a buffer is too large to be run with."""
    inputs, workload = drawn.buffers(), drawn.problem
    sizes = {name: array.nbytes for name, array in inputs.items()}
    sizes.update({name: one.bytes for name, one in workload.outputs.items()})
    if seen is workload:
        sizes |= {space.name: space.bytes for launch in launches for space in launch.workspace}
    for name, size in sizes.items():
        if size > LARGEST_BUFFER:
            raise LabError(
                f"The buffer {name} is too large for the CPU runner.",
                f"it has {size / 2**30:.1f} GiB and the limit is {LARGEST_BUFFER / 2**30:.0f} GiB",
                "try a smaller workload",
            )
    check_host_memory(workload, sum(sizes[name] for name in sizes if name not in inputs))
    given = {}
    for name in [one for one in inputs if one not in workload.outputs]:
        array, first = seen.place(name, inputs[name])
        buffer = _Buffer(name, array, False, shape=seen.inputs[name].shape, first=first)
        given[name] = stack.enter_context(buffer)
    return given


def _altered(executable: Executable, inputs: Drawn) -> dict[str, np.ndarray]:
    """Inputs with a few elements changed, for a kernel that could keep an answer to them."""
    if not executable.device:
        return {}
    problem = inputs.problem
    altered = operation_of(problem).alter(inputs, np.random.default_rng(problem.seed))
    return {name: array for name, array in altered.items() if name not in problem.outputs}


def _blank_outputs(problem: Problem) -> dict[str, np.ndarray]:
    """The outputs before a launch, but for the content of in-out buffers."""
    return {name: poisoned(one.shape, one.dtype) for name, one in problem.outputs.items()}


def _same_bits(first: Arrays, second: Arrays) -> bool:
    return all(array.tobytes() == second[name].tobytes() for name, array in first.items())


def _expect(
    inputs: Drawn,
    scheme: StoredAs | None,
    outputs: Arrays,
    blocks: int | None,
    known: Arrays | None,
) -> Arrays:
    """The oracle's outputs; of a sample of blocks, for the parts that anything was written to.

    A rung that stores inputs in a scheme is held against the oracle of what that leaves of them.
    """
    if known is not None:
        return known
    operation = operation_of(inputs.problem)
    if blocks is None:
        return operation.expect(inputs, scheme)
    out = next(iter(outputs.values())).reshape(*inputs.problem.part_shape, -1)
    before = inputs.buffers().get(next(iter(outputs)))
    same = is_poison(out) if before is None else out == before.reshape(out.shape)
    written = ~same.all(axis=-1)
    parts = [tuple(int(i) for i in index) for index in np.argwhere(written)]
    return operation.expect(inputs, scheme, parts)


def _complete(outputs: Arrays, expected: Arrays) -> Arrays:
    """The outputs of a sample of blocks, where the other blocks of their parts are right."""
    return {
        name: np.where(is_poison(out), expected[name].astype(out.dtype), out)
        for name, out in outputs.items()
    }


def _refuse_shared(executable: Executable, source: str) -> str:
    """Why a GPU's assembler would refuse the arrays of fixed size, or nothing.

    Of several kernels in one source it is not known which uses what; then each array must fit.
    """
    sizes = {v.name: v.bytes for v in executable.shared if not v.dynamic and v.name != "(guard)"}
    one_kernel = len(re.findall(r"\b__global__\b", normalise_source(source))) == 1
    used = sum(sizes.values()) if one_kernel else max(sizes.values(), default=0)
    if used <= MOST_FIXED_SMEM_BYTES:
        return ""
    largest = max(sizes, key=sizes.__getitem__)
    return (
        f"{used} bytes of shared memory are declared with a fixed size, most of them `{largest}`; "
        f"a kernel may have {MOST_FIXED_SMEM_BYTES}, and more only as extern __shared__ with "
        "smem_bytes in the launch"
    )


def _three(dims: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*dims, 1, 1)[:3]
    return (int(x), int(y), int(z))


def _source_texts(rung: Rung) -> dict[str, list[str]]:
    name = source_name(rung)
    texts = {name: counted_lines(rung.source_text, name)}
    for folder in rung.include_dirs:
        for path in Path(folder).glob("*.cuh"):
            with contextlib.suppress(OSError):
                texts[str(path.resolve())] = path.read_text(errors="replace").splitlines()
    return texts


# ---- one order ----

_NEEDS: dict[int, set[Path]] = {NEEDS_FINE: set(), NEEDS_ALONE: set()}  # programs known to need it
_ASCENDING: set[Path] = set()  # hung where blocks began in another order
_CHAINED: set[Path] = set()  # of those, what then ended soon: it was no long block
_UNFENCED: dict[Path, int] = {}  # by program, where it reads what it learnt of without a fence


def needs_ascending(executable: Executable) -> bool:
    """Whether a run of this program was seen to hang only where blocks began in another order."""
    return executable.path in _CHAINED


def unfenced_line(executable: Executable, rung: Rung) -> KernelLine | None:
    """Where a run of this program read what another block had written, of which it had learnt by an
    atomic or a flag, without a fence between the two."""
    address = _UNFENCED.get(executable.path)
    table = line_table(executable.path, source_name(rung), rung.include_dirs)
    return table.innermost(address) if address else None


@dataclass(frozen=True)
class CpuJob:
    """One run: what is run, in which order, for how long."""

    executable: Executable
    launches: Sequence[Launch]
    order: int
    blocks: int | None
    time_limit_s: float
    workers: int
    others: Mapping[str, _Buffer]  # inputs that are a little different in one of several calls
    laid_out: Problem
    last: Sequence[int] = ()  # blocks of each launch to run, at the end of its grid; () means all
    counted: _Counted | None = None


@dataclass(frozen=True)
class _Counted:
    """Some blocks of one launch, where it is counted how often their threads come by what."""

    launch: int
    blocks: Sequence[int]
    page: _Buffer


@dataclass(frozen=True)
class _Result:
    outputs: dict[str, np.ndarray]
    faults: list[Any]
    blocks: int
    death: str  # how the child ended, if it did not end well
    printed: str


def _run_any_order(
    job: CpuJob,
    shared: Mapping[str, _Buffer],
    inputs: Drawn,
    index: int,
    count: int,
    progress: Progress,
) -> _Result:
    """As `_run_order`; where a block waits for one of a lower index, with ascending blocks.

    Nothing promises that the other has begun, but GPUs begin blocks so, and kernels rely on it.
    """
    if job.order in OTHER_BLOCK_ORDERS:
        short = dataclasses.replace(job, time_limit_s=min(job.time_limit_s, WAITS_FOR_A_BLOCK_S))
        if job.executable.path not in _ASCENDING:
            result = _run_order(short, shared, inputs, index, count, progress)
            if all(one.kind != "hang" for one in result.faults):
                return result
            _ASCENDING.add(job.executable.path)
            began, job = time.monotonic(), dataclasses.replace(job, order=1)
            result = _run_order(job, shared, inputs, index, count, progress)
            if time.monotonic() - began < WAITS_FOR_A_BLOCK_S:
                _CHAINED.add(job.executable.path)
            return result
        job = dataclasses.replace(job, order=1)
    return _run_order(job, shared, inputs, index, count, progress)


def _run_order(
    job: CpuJob,
    shared: Mapping[str, _Buffer],
    inputs: Drawn,
    index: int,
    count: int,
    progress: Progress,
) -> _Result:
    with contextlib.ExitStack() as stack:
        buffers = dict(shared)
        before = _blank_outputs(inputs.problem)
        for name in inputs.problem.in_out:
            before[name] = inputs.buffers()[name]
        for name, array in before.items():
            given = name in inputs.problem.inputs
            shape = job.laid_out.outputs[name].shape
            array, first = job.laid_out.place(name, array)
            buffer = _Buffer(name, array, writable=True, given=given, shape=shape, first=first)
            buffers[name] = stack.enter_context(buffer)
        for launch in job.launches:
            for space in launch.workspace:
                if space.name not in buffers:
                    # Of the zeros of a larger problem only what is used is there.
                    whole = job.laid_out is inputs.problem
                    shape = space.shape if whole else (0,) * len(space.shape)
                    array = poisoned(shape, space.dtype)
                    buffer = _Buffer(space.name, array, writable=True, shape=space.shape)
                    buffers[space.name] = stack.enter_context(buffer)
        page = stack.enter_context(_Buffer("report", np.zeros(1, REPORT), writable=True))
        printed = stack.enter_context(_Buffer("printed", np.zeros(0, np.uint8), writable=True))
        report = page.array()

        def tell() -> None:
            total = int(report["blocks_total"][0])
            done = index * total + int(report["blocks_done"][0])
            progress(f"order {job.order}", done, total * count)

        def run() -> str | int:
            fine, alone = (job.executable.path in _NEEDS[one] for one in (NEEDS_FINE, NEEDS_ALONE))
            os.ftruncate(printed.fd, 0)
            report[:] = 0
            for buffer in buffers.values():
                if buffer.writable and fine:
                    array = buffer.part()
                    given = before.get(buffer.name)
                    array[...] = poisoned(array.shape, array.dtype) if given is None else given
            how = dataclasses.replace(job, workers=1) if alone else job
            return _run_child(how, buffers, page.fd, printed.fd, report, tell, fine)

        while isinstance(death := run(), int):
            _NEEDS[death].add(job.executable.path)
        if address := int(report["unfenced"][0]):
            _UNFENCED[job.executable.path] = address
        return _Result(
            outputs={name: buffers[name].part().copy() for name in before},
            faults=read_faults(report.copy()),
            blocks=int(report["blocks_done"][0]),
            death=death,
            printed=os.pread(printed.fd, 65536, 0).decode(errors="replace"),
        )


def _run_child(
    job: CpuJob,
    buffers: Mapping[str, _Buffer],
    report_fd: int,
    printed_fd: int,
    report: np.ndarray,
    tell: Callable[[], None],
    fine: bool,
) -> str | int:
    """Run the executable to its end; returns how it died, or an empty string, or what of `_NEEDS`
    it has to begin anew with."""
    names = list(buffers)
    fds = [report_fd, *(buffers[name].fd for name in names)]
    fds += [one.fd for one in job.others.values()]
    fds += [job.counted.page.fd] if job.counted else []
    child = subprocess.Popen(
        [*job.executable.runs_with, str(job.executable.path)],
        stdin=subprocess.PIPE,
        stdout=printed_fd,
        stderr=subprocess.PIPE,
        pass_fds=fds,
        start_new_session=True,  # an interrupt in the notebook reaches us, and we end the child
    )
    try:
        assert child.stdin is not None
        assert child.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(job_text(job, buffers, names, report_fd, fine).encode())
            child.stdin.close()
        most = most_bytes() + sum(one.bytes for one in buffers.values())
        limit_s = 20 * job.time_limit_s + 10  # the machine may be busy with something else
        if _wait(child, limit_s, report, tell, most):
            return f"the child process made no progress for {limit_s:g} s and was ended"
        said = child.stderr.read(4096).decode(errors="replace").strip()
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for stream in (child.stdin, child.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
    code = child.returncode
    if code == 0:
        return ""
    if code in _NEEDS:
        return code
    if code == 3:
        return "the process that ran the kernel ended before the kernel had, without a word"
    if code == 4:
        raise LabError("The CPU runner could not set up the run.", said, "try a smaller workload")
    if code < 0:
        return f"the child process was ended by {signal.Signals(-code).name}"
    return f"the child process ended with status {code}"


def _wait(
    child: subprocess.Popen[bytes],
    limit_s: float,
    report: np.ndarray,
    tell: Callable[[], None],
    most: int,
) -> bool:
    """Wait for the child, and say whether it stood still for too long; it may have so many bytes.

    The child's own clock names a hanging thread; this one is for a child that cannot even do that.
    """
    pidfd = os.pidfd_open(child.pid)
    try:
        still_s, last = 0.0, -1
        while still_s < limit_s:
            ended, _, _ = select.select([pidfd], [], [], _LOOK_S)
            tell()
            if ended:
                child.wait()
                return False
            if largest_resident(child.pid) > most:
                what = "The kernel took too much memory to be checked on the CPU."
                why = "what it writes is watched, in 16 to 64 bytes for each byte"
                raise too_large(what, why, most_bytes())
            now = int(report["blocks_done"][0])
            still_s = still_s + _LOOK_S if now == last else 0.0
            last = now
        return True
    finally:
        os.close(pidfd)


def job_text(
    job: CpuJob, buffers: Mapping[str, Any], names: Sequence[str], report_fd: int, fine: bool
) -> str:
    """What a child reads: how it runs, its buffers by the numbers of their files, its launches."""
    lines = [
        f"report {report_fd} limit {job.time_limit_s!r} order {job.order} workers {job.workers}",
        f"fine {int(fine)} sample {job.blocks or 0}",
        f"largest {max(one.bytes for one in buffers.values())}",
    ]
    if wanted := job.counted:
        blocks = " ".join(map(str, (len(wanted.blocks), *wanted.blocks)))
        lines.append(f"trips {wanted.page.fd} {wanted.launch} {blocks}")
    # A module finds its own variables.
    shared, device = job.executable.shared, job.executable.device
    for variable in () if job.executable.runs_with else shared:
        word = "dynamic" if variable.dynamic else "shared"
        lines.append(f"{word} {variable.name} {variable.offset} {variable.bytes}")
    for one in () if job.executable.runs_with else device:
        lines.append(f"device {one.name} {int(one.set)} {one.offset} {one.bytes}")
    for name in names:
        buffer = buffers[name]
        other = job.others[name].fd if name in job.others else -1
        lines.append(
            f"buffer {name} {buffer.fd} {buffer.bytes} {buffer.item_bytes} "
            f"{int(buffer.writable)} {int(buffer.given)} {other}"
        )
    for launch, last in zip(job.launches, job.last or repeat(0), strict=False):
        arguments = [_argument_text(argument, names) for argument in launch.args]
        dims = (*_three(launch.grid), *_three(launch.block), launch.smem_bytes)
        sizes = " ".join(map(str, (*dims, int(launch.prepare), last, len(arguments))))
        lines.append(f"launch {launch.entry}\n{sizes} " + " ".join(arguments))
    return "\n".join([*lines, "go", ""])


def _argument_text(argument: Any, names: Sequence[str]) -> str:
    if isinstance(argument, str):
        return f"p 8 {names.index(argument)}"
    if isinstance(argument, TensorMap):
        words = argument.words
        return " ".join(map(str, ("t", 128, names.index(argument.buffer), len(words), *words)))
    value = np.asarray(argument)
    data = value.tobytes()
    if value.dtype.kind == "V":  # a structure
        starts = range(0, len(data), 8)
        parts = [int.from_bytes(data[at : at + 8], "little") for at in starts]
        return " ".join(map(str, ("s", len(data), len(parts), *parts)))
    bits = int.from_bytes(data, "little")
    kind = "u" if value.dtype.kind == "b" else value.dtype.kind
    return f"{kind} {value.dtype.itemsize} {bits}"
