"""The check that stands before every measurement: is this rung right, and on what was that tried?

Its operation's battery, each with two draws: an answer left from the first fails for the second.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from typing import TYPE_CHECKING, Any

from labtools.problem import (
    MOST_BIAS,
    Comparison,
    Drawn,
    Knob,
    LabError,
    Problem,
    Rung,
    kernels_dir,
    merge_comparisons,
    operation_of,
    timed_launches,
)
from labtools.problem.isolated import RISING, VALUES_UP_TO, IsolatedOperation
from labtools.problem.pairs import pair_cover, say_cover
from labtools.problem.text import read_given
from labtools.toolchain import (
    CompilerMissing,
    Cubin,
    compile_rung,
    launched_entries,
    source_name,
)
from labtools.toolchain.compiler import expanded_text
from labtools.toolchain.cubin import refuse_launch
from labtools.toolchain.progress import Progress, silent
from labtools.toolchain.ptx import assemble_ptx
from labtools.toolchain.sources import gpu_only_lines, normalise_source, parameters_in

from .case import CheckCase, Fault, checked_limits, why_not_launched
from .knob_values import (
    MOST_NEW_CODES,
    MOST_WHOLE,
    NEW_CODE_COST,
    Packed,
    cheap_cases,
    cheapest_cover,
    cost_of_case,
    few_of_each_level,
    pack_values,
    say_values,
)
from .own_sizes import not_of_author, of_author, with_several_blocks
from .residency import refuse_kept_lines

if TYPE_CHECKING:
    from .cpu.build import Executable
    from .cpu.runner import CpuRun
    from .gpu.runner import LivePool

ENOUGH_WRONG = 3  # after so many wrong cases the rest would teach nothing
MANY_VISITS = 200_000
"""`Problem.visits` above which the CPU runs every block once only, and the adversarial
orders of warps on a sample of blocks."""
LONG_VISITS, MANY_PARTS = 500, 60
"""`Problem.part_visits`, and parts of the output, above which a case is there for its length or for
its many parts, and runs in one order a draw; the others show what the order of warps does."""
ONE_DRAW_VISITS, ONE_DRAW_PARTS = 2000, 1000
"""`Problem.visits` and parts, above which a case runs with one draw only, in a drawn order."""
SAMPLED_BLOCKS = 8
OTHER_SMS = (108, 8)
"""Multiprocessors that the second draws of cases are launched for, in turn; those of many parts for
the fewest, where a block of a persistent kernel has several parts one after the other."""
QUICK_VISITS = 2100
"""`Problem.visits` of a short case, at most."""
QUICK_CASES, OF_OTHER_KINDS = 6, 2
"""Cases behind the first, of the type and layout asked for and of each other one; of which there
are those at the ends of its range, too, and those that are `_far_longer`."""
TIMES_AS_LONG, MOST_LONG_VISITS, LONG_VISITS_LAIN = 4, 400, 15_000
"""`Problem.part_visits` of those against the few; their `Problem.visits`, and where they are the
first of another layout: a page may be wrong from a warp's third tile on."""
CASES_AT_ONCE = COMPILED_AT_ONCE = 2  # one alone keeps no more than a core busy
ALL_ORDERS = (0, 1, 2, 3)
DRAWN = 4  # cases that are drawn anew for each check: no kernel is written for the others alone
MOST_DRAWN_VISITS = 5000
_CANDIDATES = 24
FEW_ROWS = 1024
"""A size from which on a grid grows in proportion, up to its end."""
PERSISTENT = 4  # blocks a multiprocessor: of such grids the battery reaches the end
MOST_BEHIND, MOST_WRITTEN = 600_000, 2**24 + 2**20
"""Size, and elements of the output, of a problem behind the end of a grid."""
MOST_FAR_THREADS, FAR_LIMIT_S = 2**17, 2.0
"""Of a case whose inputs lie far apart: threads, those of preparations too, which write as much as
the inputs have; and seconds of a block."""
NOT_FAR = "buffers of 2^31 elements and more"
FAR = f"with {NOT_FAR} an index is too narrow, or computed in floats"
LARGEST_SIZE = 2**20
"""Of a field, up to which the largest that a kernel takes is looked for."""
ASCENDING = (
    "a block waits for one of a lower index, and is right if that one has begun. GPUs begin blocks "
    "in ascending order, but nothing promises it: a number that every block draws with atomicAdd() "
    "is sure, in place of blockIdx"
)
UNFENCED = (
    "{} reads what another block wrote and an atomic or a flag told of, without a __threadfence() "
    "between the two: CUDA orders them only with a fence on both sides"
)
ALIASED = (
    "{} is launched with `{}` as {}, of which one is __restrict__: where both reach an element "
    "that is written, what is read is undefined"
)
MOST_ASKED_PARTS = 100  # of other values a reader's reference is asked part by part
MOST_PRINTED = 12  # lines of what a kernel prints that are shown


@dataclass(frozen=True)
class CheckReport:
    """What a check found."""

    rung: str  # id of the rung
    on: str  # ``cpu`` or ``gpu``
    ok: bool  # all planned cases are right, not off to one side; all is run
    cases: list[CheckCase]  # those that were run, in order
    planned: int  # how many cases there were to run
    seed: int | None = None  # the last `DRAWN` cases were drawn with it; None where none was run
    not_checked: tuple[str, ...] = ()  # what this check cannot say
    remarks: tuple[str, ...] = ()  # what the verdict does not count
    gpu_only: str = ""  # lines of the kernel that only a GPU runs; empty where it is wrong anyway
    by_ptx: bool = False  # what the CPU ran was made of the kernel's PTX, and not of its C++

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        names = """
            rung on ok verdict planned worst_error summary cases faults covered cover not_checked
            seed printed remarks
        """.split()
        return {name: getattr(self, name) for name in names}

    @property
    def verdict(self) -> str:
        """``right``, ``wrong``, or ``undecided``: nothing is wrong, but a GPU runs other lines."""
        return "right" if self.ok else "undecided" if self.gpu_only else "wrong"

    @property
    def faults(self) -> list[Fault]:
        """The faults of all cases, one for each kind and line."""
        seen: dict[tuple[str, str | None, int | None], Fault] = {}
        for case in self.cases:
            for fault in case.faults:
                seen.setdefault((fault.kind, fault.file, fault.line), fault)
        return list(seen.values())

    @property
    def worst_error(self) -> float | None:
        """Largest relative error of one part of the output over the cases that ran to their end."""
        found = [case.comparison for case in self.cases if case.comparison]
        return merge_comparisons(found).worst_error if found else None

    @property
    def bias(self) -> float:
        """By how much the outputs are too large on average over the cases of one type, relative; 0
        where that is within what rounding of any kind may do."""
        of_type: dict[str, list[Comparison]] = {}
        for case in self.cases:
            if case.comparison:
                of_type.setdefault(case.workload.dtype, []).append(case.comparison)
        for known in of_type.values():
            mean = sum(one.bias or 0.0 for one in known) / len(known)
            most = MOST_BIAS * max(one.tolerance or 0.0 for one in known)
            if abs(mean) > most:
                return mean
        return 0.0

    @property
    def covered(self) -> list[str]:
        """What the cases that were run cover, each in a few words."""
        workloads = [case.workload for case in self.cases]
        return operation_of(workloads[0]).covered(workloads) if workloads else []

    @property
    def cover(self) -> list[dict[str, Any]]:
        """Which levels met in the cases that were run, as `pair_cover` says."""
        all_of = [(case.workload, operation_of(case.workload)) for case in self.cases]
        return pair_cover([its.levels_of(one) for one, its in all_of if its.tells(one)] or [{}])

    @property
    def printed(self) -> str:
        """What the kernel printed in the first case in which it printed something."""
        return next((case.printed for case in self.cases if case.printed), "")

    @property
    def summary(self) -> str:
        """The verdict in plain text, and what it speaks for."""
        return "\n".join([*self.found, *self.scope(), *self.said_by_kernel])

    @property
    def in_full(self) -> str:
        """`summary` with the table of `cover`."""
        cover = [f"  {line}" for line in say_cover(self.cover)] if self.cases else []
        return "\n".join([*self.found, *self.scope(cover), *self.said_by_kernel])

    @property
    def found(self) -> list[str]:
        """The lines of the verdict, its faults and remarks."""
        return [*self._first_lines.splitlines(), *(f"remark: {one}" for one in self.remarks)]

    def scope(self, cover: Sequence[str] = ()) -> list[str]:
        """The lines that say for what the verdict speaks, with those of its ``cover``."""
        lines = [f"covered: {'; '.join(self.covered)}", *cover]
        if self.seed is not None:
            lines.append(f"the last cases are drawn: --seed {self.seed} draws the same again")
        if self.not_checked:
            lines.append(f"not checked: {'; '.join(self.not_checked)}")
        return lines

    @property
    def said_by_kernel(self) -> list[str]:
        """The lines that show the first of `printed`."""
        shown = self.printed.splitlines()
        more = len(shown) - MOST_PRINTED
        lines = ["the kernel printed:"] if shown else []
        lines += [f"  {line}" for line in shown[:MOST_PRINTED]]
        return lines + ([f"  and {more} lines more"] if more > 0 else [])

    @property
    def _first_lines(self) -> str:
        by_ptx = " by its PTX" if self.by_ptx else ""
        cpu = f"the CPU{by_ptx}, launched as on {checked_limits().name}"
        where = cpu if self.on == "cpu" else "the GPU"
        wrong = [case for case in self.cases if not case.ok]
        ours = not self.cases or operation_of(self.cases[0].workload).is_ours
        by = "" if ours else " by its own reference"
        every = f"all {len(self.cases)} cases" if len(self.cases) > 1 else "the one case"
        if self.verdict == "undecided":
            return (
                f"{self.rung} on {where}: undecided: only a GPU runs {self.gpu_only}; what the CPU "
                f"runs instead is right in {every}{by}"
            )
        if self.ok:
            limits = [case.comparison.tolerance for case in self.cases if case.comparison]
            limit = max(one for one in limits if one is not None)
            return (
                f"{self.rung} on {where}: right in {every}{by}, "
                f"worst relative error {self.worst_error:.1e} (limit {limit:g})"
            )
        if self.bias and not wrong:
            side = "large" if self.bias > 0 else "small"
            return (
                f"{self.rung} on {where}: wrong: in {every} together the "
                f"outputs are {abs(self.bias):.1e} too {side} on average, which is no rounding"
            )
        lines = [f"{self.rung} on {where}: wrong in {len(wrong)} of {len(self.cases)} cases"]
        if len(self.cases) < self.planned:
            lines[0] += f" ({self.planned - len(self.cases)} more were not run)"
        lines += [str(fault) for fault in self.faults[:4]]
        if len(self.faults) > 4:
            lines.append(f"and {len(self.faults) - 4} more faults")
        numbers = [case for case in wrong if case.comparison and not case.comparison.ok]
        lines += [f"{case.workload}: {case.comparison}" for case in numbers[:ENOUGH_WRONG]]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary


def check_rung(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None = None,
    on: str = "cpu",
    progress: Progress = silent,
    quick: bool = False,
    pool: LivePool | None = None,
    seed: int | None = None,
    every_kind: bool = False,
    asked: Collection[str] | None = None,
) -> CheckReport:
    """Run a rung on the workload and on small ones that cover what the workload leaves out.

    On ``cpu`` all memory accesses and barriers are watched; on ``gpu`` the first child of a pool
    checks, or a new one. Every other type and layout that the rung supports has a few cases, with
    ``every_kind`` as many as the given one, and with ``quick``, which takes a few cases, none. On
    ``cpu`` each other value of each knob has some too, but for those of the knobs in ``asked``, all
    of ``knobs`` where it is None. The seed draws the last cases, another one each time where it is
    None.

    Raises LabError: the rung cannot run at all: it does not compile, does not support the workload,
    or the machine lacks what ``on`` needs.
    """
    if on not in ("cpu", "gpu"):
        raise LabError(f"A check cannot run on {on!r}.", "it runs on cpu or on gpu", "choose one")
    # Of a launch that is kept for another problem by some of its sizes alone, that one comes first.
    for other in workload.smaller():
        with contextlib.suppress(LabError):
            rung.launches(other, checked_limits(), knobs)
    # Refuses an unsupported workload before anything runs.
    rung.launches(workload, checked_limits(), knobs)
    operation = operation_of(workload)
    others = [one for one in operation.kinds(workload)[1:] if rung.supports(one) is None]
    kinds = (workload, *(others if every_kind or not quick else ()))
    cases_of = quick_cases if quick else _battery_of
    with _begun_to_build(rung, workload, knobs, on) as begun:
        batteries = [cases_of(rung, one) for one in kinds]
    if quick:
        seed = None
    else:
        if not every_kind:
            layouts = [battery[0].layout for battery in batteries]
            for place, battery in enumerate(batteries[1:], 1):
                known = battery[0].layout in layouts[:place]
                most = MOST_LONG_VISITS if known else LONG_VISITS_LAIN
                few = _few_of_kind(battery, operation.extreme, most)
                batteries[place] = [*few, *_other_ends(rung, few, battery, knobs)]
        behind = _behind_the_grid(rung, workload, knobs)
        batteries[0] = [*batteries[0], *(one for one in behind if _is_short(one))]
        if not operation.is_ours:
            batteries[0] += _last_blocks(rung, workload, knobs)
    unsaid: list[str] = []
    if not operation.is_ours:
        tried = _battery_of(rung, workload)
        more, unsaid = with_several_blocks(rung, workload, batteries[0], tried, knobs)
        batteries[0] = [*batteries[0], *more]
        unsaid += not_of_author(rung, workload, batteries[0], knobs)
    fixed = list(chain.from_iterable(batteries))
    cases = fixed.copy()
    if not quick:
        seed = secrets.randbelow(2**31) if seed is None else seed
        for battery in batteries if every_kind else batteries[:1]:
            cases += _draw_cases(rung, battery[0], battery, knobs, seed)
    asked = (knobs or ()) if asked is None else asked
    free = [one for one in rung.knobs if one.name not in asked] if on == "cpu" else []
    not_checked = [*_not_checked(rung, () if every_kind else others, quick, on), *unsaid]
    if not quick:
        ends = (one for one in behind if not _is_short(one))
        not_checked += [f"{one} and more, where its grid grows no further" for one in ends]
    gpu_only, never, by_ptx = "", None, False
    remarks: list[str] = []
    if on == "cpu":
        from .cpu.runner import needs_ascending, unfenced_line

        built = (begun, *repeat(None, len(batteries) - 1))
        both = zip(batteries, built, strict=True)
        compiled = [_compile_for_gpu(rung, battery, knobs, one) for battery, one in both]
        by_ptx = all(one.by_ptx for _, one in compiled)
        gpu_only = "" if by_ptx else _gpu_only(rung, batteries, knobs)
        if not all(told for told, _ in compiled):
            not_checked.append("whether a GPU's compiler takes it: there is none here")
        # Each case calls it twice, on one problem.
        kept = (one.name for one in compiled[0][1].device if not one.set)
        not_checked += [f"what `{name}` carries to a call of another problem" for name in kept]
        done = _check_on_cpu(rung, cases, knobs, free, progress)
        if not quick and len(done) == len(cases) and all(case.ok for case in done):
            done += (others_done := _check_other_values(rung, batteries[0], knobs))
            cases += [case.workload for case in others_done]
            if all(case.ok for case in done):
                values, never, remarks = _check_other_knobs(
                    rung, batteries[0], knobs, free, progress
                )
                done, cases = [*done, *values], [*cases, *(case.workload for case in values)]
            if all(case.ok for case in done):
                remarks += _remarks(rung, batteries[0], knobs)
        if all(case.ok for case in done):
            programs = [one for _, one in compiled]
            remarks += [ASCENDING] * any(map(needs_ascending, programs))
            read = [line for one in programs if (line := unfenced_line(one, rung))]
            remarks += [UNFENCED.format(line.told_beside(source_name(rung))) for line in read[:1]]
            remarks += _aliased(rung, workload, knobs)
        whole = not quick and len(done) == len(cases)
        # The given kind, and others that lie otherwise in memory: in pages.
        lain = {battery[0].layout: battery[0] for battery in reversed(batteries)}
        found = [_check_far_apart(rung, one, knobs) for one in lain.values()] if whole else [None]
        far = [case for case in found if case and not case.ok]
        not_checked += [NOT_FAR] if None in found and not far else []
        if operation.is_ours:
            done, cases = [*done, *far], [*cases, *(case.workload for case in far)]
        else:  # its author may mean smaller ones
            remarks += [str(case) for case in far]
    else:
        done = _check_on_gpu(rung, cases, knobs, progress, pool)
    not_checked += _say_values(rung, free, never)
    ok = len(done) == len(cases) and all(case.ok for case in done)
    seed = seed if len(done) > len(fixed) else None
    said = tuple(not_checked), tuple(remarks)
    report = CheckReport(rung.id, on, ok, done, len(cases), seed, *said, by_ptx=by_ptx)
    ok = ok and not report.bias
    return dataclasses.replace(report, ok=ok and not gpu_only, gpu_only=gpu_only if ok else "")


@contextlib.contextmanager
def _begun_to_build(
    rung: Rung, workload: Problem, knobs: Mapping[str, int] | None, on: str
) -> Iterator[Future[Executable] | None]:
    """What the CPU runs first, compiled while something else is done; None on a GPU."""
    from .cpu import build_for_cpu

    with ThreadPoolExecutor(1) as beside:
        told = rung, workload, knobs, checked_limits()
        yield beside.submit(build_for_cpu, *told) if on == "cpu" else None


def compiled_code(rung: Rung, workload: Problem, knobs: Mapping[str, int] | None) -> object:
    """Equal for workloads that run the same code; the workload where that cannot be told."""
    limits = checked_limits()
    try:
        entries = launched_entries(rung, workload, limits, knobs)
        return (*entries, *rung.defines(workload, limits, knobs).items())
    except LabError:
        return workload  # why is told where it is run


def _draw_cases(
    rung: Rung,
    workload: Problem,
    cases: Sequence[Problem],
    knobs: Mapping[str, int] | None,
    seed: int,
) -> list[Problem]:
    """Problems like the given one in type and layout; first those whose code is compiled anyway."""
    limits = checked_limits()
    key = workload.code_key()

    def refuse(one: Problem) -> str | None:
        if one.code_key() != key or one.layout != workload.layout:
            return "other types"
        return "too long" if one.visits > MOST_DRAWN_VISITS else rung.supports(one)

    try:
        drawn = operation_of(workload).draw_problems(_CANDIDATES, seed, refuse)
    except LabError:
        return []  # it takes hardly anything: the battery covers that
    code = {tuple(rung.defines(one, limits, knobs).items()) for one in cases}
    known = [one for one in drawn if tuple(rung.defines(one, limits, knobs).items()) in code]
    others = [one for one in drawn if one not in known]
    new = others[: max(1, DRAWN - len(known))] if others else []
    return [*known[: DRAWN - len(new)], *new]


def _behind_the_grid(
    rung: Rung, workload: Problem, knobs: Mapping[str, int] | None
) -> list[Problem]:
    """Of a grid that grows in proportion to its problem up to some size, an odd problem just past
    that size: there a block does what several did, or begins to do more."""
    found: list[Problem] = []
    for narrow, along in operation_of(workload).widening(workload, rung.supports):
        size = _end_of_grid(rung, narrow, along, knobs)
        if size is None:
            continue
        past = narrow.replace(**{along: (size + 4) | 1})
        if rung.supports(past) is None:
            found.append(past)
    return found


def _last_blocks(rung: Rung, workload: Problem, knobs: Mapping[str, int] | None) -> list[Problem]:
    """By field of the shape, where a block takes many of it, the workload with as many as leave one
    for the last of several blocks."""
    found = []
    for field in workload.shape_fields:
        few = _blocks_of(rung, workload, field, FEW_ROWS - 1, knobs)

        def has_more(size: int, field: str = field, few: list[int] = few) -> bool:
            return _blocks_of(rung, workload, field, size, knobs) > few

        sizes = range(FEW_ROWS, 3 * FEW_ROWS)
        place = bisect.bisect_left(sizes, True, key=has_more) if few else 0
        if 0 < place < len(sizes):
            found.append(workload.replace(**{field: sizes[place]}))
    return [one for one in found if rung.supports(one) is None]


def _blocks_of(
    rung: Rung, problem: Problem, field: str, size: int, knobs: Mapping[str, int] | None
) -> list[int]:
    """Blocks of each launch with another size; nothing where there is none."""
    with contextlib.suppress(LabError):
        resized = problem.replace(**{field: size})
        return [one.num_blocks for one in rung.launches(resized, checked_limits(), knobs)]
    return []


def _is_short(past: Problem) -> bool:
    return past.output.elements <= MOST_WRITTEN


def _end_of_grid(
    rung: Rung, narrow: Problem, along: str, knobs: Mapping[str, int] | None
) -> int | None:
    """The least size of a field at which a grid has left its proportion; None where none has."""
    limits = checked_limits()

    def blocks(size: int) -> list[int]:
        return _blocks_of(rung, narrow, along, size, knobs)  # nothing of what it does not take

    few = blocks(FEW_ROWS)

    def has_left(size: int) -> bool:
        return any(
            now != before
            and now > PERSISTENT * limits.num_sms
            and abs(now - before * size / FEW_ROWS) > 1 + now / 100
            for before, now in zip(few, blocks(size), strict=False)
        )

    sizes = range(FEW_ROWS, MOST_BEHIND)
    place = bisect.bisect_left(sizes, True, key=has_left)
    return sizes[place] if place < len(sizes) else None


def quick_cases(rung: Rung, workload: Problem) -> list[Problem]:
    """The cases of a quick check, all of what is compiled for the workload: a few, the sizes that a
    reader named, and a short one of each further kind of values."""
    code = workload.code_key()
    battery = [one for one in _battery_of(rung, workload) if one.code_key() == code]
    few = _few_of(battery, QUICK_CASES)
    few = list(dict.fromkeys([*few, *of_author(workload, battery)]))
    known = {one.distribution for one in few}
    short = {one.distribution: one for one in battery[::-1] if one.visits <= QUICK_VISITS}
    return [*few, *(one for name, one in short.items() if name not in known)]


def _battery_of(rung: Rung, workload: Problem) -> list[Problem]:
    return [*_made_once(operation_of(workload).battery, workload, rung.supports)]


@functools.lru_cache(maxsize=16)
def _made_once(
    battery: Callable[..., list[Problem]],
    workload: Problem,
    supports: Callable[[Any], str | None],
) -> tuple[Problem, ...]:
    return (*battery(workload, supports),)


def _few_of(battery: Sequence[Problem], count: int, extreme: Sequence[str] = ()) -> list[Problem]:
    """So many of it behind the first, and the first of each of these distributions."""
    others = battery[1:]
    step = max(1, len(others) // count)
    few = [battery[0], *others[::step][:count]]
    for name in extreme:
        few += [one for one in others if one.distribution == name][:1]
    return list(dict.fromkeys(few))


def _few_of_kind(
    battery: Sequence[Problem], extreme: Sequence[str], most_visits: int = MOST_LONG_VISITS
) -> list[Problem]:
    """Those of another type or layout than the one asked for."""
    few = _few_of(battery, OF_OTHER_KINDS, extreme)
    return list(dict.fromkeys([*few, *_far_longer(few, battery, most_visits)]))


def _other_ends(
    rung: Rung,
    few: Sequence[Problem],
    battery: Sequence[Problem],
    knobs: Mapping[str, int] | None,
) -> list[Problem]:
    """Small cases of a battery that with the few have every `Problem.size_ends` of such, rather
    those whose code is compiled for the few anyway."""
    limits = checked_limits()

    def code(one: Problem) -> tuple[tuple[str, str], ...]:
        return tuple(rung.defines(one, limits, knobs).items())

    known, small = {code(one) for one in few}, cheap_cases(battery)
    costs = [cost_of_case(one) + NEW_CODE_COST * (code(one) not in known) for one in small]
    ends = [one.size_ends for one in small]
    missing = set().union(*ends).difference(*(one.size_ends for one in few))
    return cheapest_cover(small, costs, ends, missing)


def _far_longer(
    few: Sequence[Problem], battery: Sequence[Problem], most_visits: int
) -> list[Problem]:
    """Of a battery those that are many times as long as each of the few, and not costly: of each
    distribution the longest, with rows of an even and of an odd length. What adds up in too narrow
    a type, or is wrong in a later trip of a loop, shows there alone."""
    least = TIMES_AS_LONG * max(one.part_visits for one in few)
    found: dict[tuple[int, str], Problem] = {}
    for one in sorted(battery, key=lambda one: -one.part_visits):
        if one.part_visits > least and one.visits <= most_visits:
            found.setdefault((one.output.shape[-1] % 2, one.distribution), one)
    return list(found.values())


def _not_checked(
    rung: Rung,
    others: Sequence[Problem],
    quick: bool,
    on: str,
) -> list[str]:
    said = [f"{name}: {why}" for name, why in rung.refuses.items()]
    said.append("other sizes than these")
    if others:
        kinds = ", ".join(f"{one.dtype} {one.layout}" for one in others)
        few, also = ("", "too") if quick else ("more than a few cases of ", "as much")
        said.append(f"{few}{kinds}, which --all checks {also}")
    if on == "cpu":
        said.append("a pointer past the end of a thread's own array")
        said.append("how a GPU orders what no barrier orders; how fast it is")
    return said


def _gpu_only(
    rung: Rung, batteries: Sequence[Sequence[Problem]], knobs: Mapping[str, int] | None
) -> str:
    """The lines of a kernel's own that only a GPU runs, in words; "" for none."""
    from .cpu import build_for_cpu

    for path in sorted(rung.source.parent.glob("*.cuh")):
        named = re.search(rf'#\s*include\s*"{re.escape(path.name)}"', rung.source_text)
        ours = kernels_dir() / "include" / path.name
        if not named or (ours.is_file() and read_given(ours) == read_given(path)):
            continue
        if hidden := gpu_only_lines(read_given(path)):
            return f"lines {_say_lines(hidden)} of {path.name}, under __CUDA_ARCH__"
    hidden = gpu_only_lines(rung.source_text)
    firsts = [battery[0] for battery in batteries] if hidden else []
    if all(build_for_cpu(rung, one, knobs, checked_limits()).as_gpu for one in firsts):
        return ""
    return f"its lines {_say_lines(hidden)}, under __CUDA_ARCH__"


def _say_lines(parts: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{first} to {last}" for first, last in parts)


def _aliased(rung: Rung, workload: Problem, knobs: Mapping[str, int] | None) -> list[str]:
    """Buffers that a kernel gets under two names, of which one is restricted and one is written."""
    told = []
    words = normalise_source(expanded_text(rung))
    for launch in rung.launches(workload, checked_limits(), knobs):
        parameters = parameters_in(words, launch.entry)
        named = [one if isinstance(one, str) else None for one in launch.args]
        if len(parameters) != len(named):
            continue
        for name in dict.fromkeys(filter(None, named)):
            used = [one for one, of in zip(parameters, named, strict=True) if of == name]
            written = any("const" not in one.split("*")[0].split() for one in used)
            if len(used) > 1 and written and any("__restrict" in one for one in used):
                both = " and ".join(re.findall(r"\w+", one)[-1] for one in used)
                told.append(ALIASED.format(launch.entry, name, both))
    return list(dict.fromkeys(told))


def _compile_for_gpu(
    rung: Rung,
    cases: Sequence[Problem],
    knobs: Mapping[str, int] | None,
    begun: Future[Executable] | None,
) -> tuple[bool, Executable]:
    """Refuse what a GPU or its compiler refuses, before anything runs here; whether that could be
    told, and what the CPU runs, which may have ``begun`` to be compiled."""
    from .cpu import build_for_cpu

    limits, workload = checked_limits(), cases[0]
    with ThreadPoolExecutor(1) as beside:
        compiling = beside.submit(_compiled, rung, workload, knobs)
        told = rung, workload, knobs, limits
        executable = begun.result() if begun else build_for_cpu(*told)
        try:
            cubin = compiling.result()
        except CompilerMissing:
            return False, executable
    refuse_kept_lines(rung, cubin)
    defines = rung.defines(workload, limits, knobs)
    most = 0
    large = [one for one in operation_of(workload).large(workload) if not rung.supports(one)]
    for case in [*cases, *large, *_largest(rung, workload)]:
        same = rung.defines(case, limits, knobs) == defines
        try:
            for launch in rung.launches(case, limits, knobs):
                # Other code is compiled where it has more threads: it may be bound to fewer.
                if same or launch.num_threads > most:
                    known = same and launch.entry in cubin.entries  # else another of a template
                    code = cubin if known else _compiled(rung, case, knobs)
                    refuse_launch(code, launch, limits)
                most = max(most, launch.num_threads)
        except LabError as error:
            if case == workload:
                raise
            what = f"{rung.id} cannot run {case}, which its supports() takes."
            raise LabError(
                what, f"{error.what} {error.why}", "a supports() that says so"
            ) from error
    return True, executable


def _compiled(rung: Rung, workload: Problem, knobs: Mapping[str, int] | None) -> Cubin:
    """What a GPU runs: PTX is assembled, and any other source compiled."""
    limits = checked_limits()
    if rung.source.suffix == ".ptx":
        return assemble_ptx(rung.source_text, rung.target(limits.arch), source_name(rung))
    return compile_rung(rung, workload, limits, knobs)


def _largest(rung: Rung, problem: Problem) -> list[Problem]:
    """By field of the shape the largest problem that a kernel takes, where it says a limit."""
    found = []
    for field in problem.shape_fields:
        sizes = range(getattr(problem, field), LARGEST_SIZE)

        def is_refused(size: int, field: str = field) -> bool:
            return rung.supports(problem.replace(**{field: size})) is not None

        with contextlib.suppress(LabError):  # what limits it is that there is no such problem
            place = bisect.bisect_left(sizes, True, key=is_refused)
            if 0 < place < len(sizes):
                found.append(problem.replace(**{field: sizes[place - 1]}))
    return found


def _check_on_cpu(
    rung: Rung,
    cases: Sequence[Problem],
    knobs: Mapping[str, int] | None,
    free: Sequence[Knob],
    progress: Progress,
) -> list[CheckCase]:
    done: list[CheckCase] = []
    with contextlib.ExitStack() as stack:
        later: Callable[[int], CheckCase] | None = None
        for index, workload in enumerate(cases):
            progress(f"check {index} of {len(cases)}: {workload}", index, len(cases))
            case = later(index) if later else _check_case_on_cpu(rung, index, workload, knobs, free)
            done.append(case)
            if _is_enough(done):
                break
            if index == 0 and done[0].ok:
                # A wrong kernel mostly shows in its first case, and may end with the next one. A
                # right one goes through all of them, so that it pays to begin with later ones.
                later = stack.enter_context(_side_by_side(rung, cases, knobs, free))
    progress("checked", len(done), len(cases))
    return done


def _own_problems(battery: Sequence[Problem]) -> tuple[IsolatedOperation, Any, Any] | None:
    """Of a reader's own operation: it, and the problems behind the first with most parts of many
    inputs and with most inputs; None for an operation of ours, whose battery has all values."""
    operation: Any = operation_of(battery[0])
    if not isinstance(operation, IsolatedOperation):
        return None
    others = battery[1:] or battery

    def inputs(one: Any) -> int:
        return sum(each.elements for each in one.inputs.values())

    def both(one: Any) -> tuple[bool, int]:
        few = one.num_parts <= MOST_ASKED_PARTS
        return few, min(one.num_parts, inputs(one) // one.num_parts)

    return operation, max(others, key=both), max(others, key=inputs)


def _check_other_values(
    rung: Rung, battery: Sequence[Problem], knobs: Mapping[str, int] | None
) -> list[CheckCase]:
    """Numbers that the operation's author did not draw."""
    from .cpu import run_on_cpu

    if (own := _own_problems(battery)) is None:
        return []
    operation, largest, widest = own
    done: list[CheckCase] = []
    given = [(largest, *one) for one in operation.other_values(largest)]
    if widest != largest:
        given += [(widest, *one) for one in operation.other_values(widest, [RISING])]
    for problem, kind, inputs in given:
        run = run_on_cpu(rung, problem, knobs, orders=(0,), inputs=inputs)
        done.append(_worse_of([_with_words(run, "", kind)], problem))
    return done


def _remarks(rung: Rung, battery: Sequence[Problem], knobs: Mapping[str, int] | None) -> list[str]:
    """Of a reader's own operation: sizes that `supports` takes and no GPU launches, and integers
    and large numbers that its author never drew, and may have ruled out, with which the kernel is
    wrong; of ours the largest numbers. The verdict does not count them."""
    from .cpu import run_on_cpu

    if (own := _own_problems(battery)) is None:
        plain = (one for one in battery if rung.scheme(one, knobs) is None)
        found = (operation_of(one).other_values(one) for one in plain)
        for kind, inputs in next((one for one in found if one), []):
            run = run_on_cpu(rung, inputs.problem, knobs, orders=(0,), inputs=inputs)
            if not run.ok:
                return [f"{kind}, with which it is wrong: {run.told}"]
        return []
    operation, *problems = own
    told: dict[str, str] = {}
    for narrow, field in operation.widening(problems[0], rung.supports):
        with contextlib.suppress(LabError):  # there is no such problem
            vast = narrow.replace(**{field: LARGEST_SIZE})
            if rung.supports(vast) is None:
                told[field] = why_not_launched(rung, vast, checked_limits(), knobs)
    for problem in dict.fromkeys(problems):
        large = operation.other_values(problem, VALUES_UP_TO)
        for kind, inputs in [*operation.other_integers(problem), *large]:
            run = run_on_cpu(rung, problem, knobs, orders=(0,), inputs=inputs)
            if not run.ok:
                why = run.faults[0] if run.faults else run.comparison
                said = f"{kind}, which its author does not draw, and where it is wrong: {why}"
                told.setdefault(kind, said)
    return [*filter(None, told.values())]


def _check_other_knobs(
    rung: Rung,
    battery: Sequence[Problem],
    knobs: Mapping[str, int] | None,
    free: Sequence[Knob],
    progress: Progress = silent,
) -> tuple[list[CheckCase], list[str], list[str]]:
    """Each other value of the knobs that are free, on few and small problems and a long one: cases
    up to the first that is wrong, ``name=value`` of what was not run, since there is no such
    kernel, and what is wrong with several together alone."""
    few, limits = few_of_each_level(battery[1:] or battery), checked_limits()
    used = rung.resolve_knobs(knobs or {})

    def takes(values: Mapping[str, int]) -> bool:
        with contextlib.suppress(LabError):
            every = (rung.launches(one, limits, {**used, **values}) for one in few)
            return all(one.smem_bytes <= limits.smem_per_block_bytes for one in chain(*every))
        return False

    packs, never = pack_values(free, used, takes)
    wrong, known = threading.Event(), {compiled_code(rung, one, used) for one in battery}
    fewest = sorted(few[:-1], key=lambda one: one.num_parts)[1:] or few  # where the code is known
    whole: set[object] = set()
    told: list[str] = []

    def choose(place: int, together: Mapping[str, int]) -> list[Problem]:
        """The last, which is the longest, then the others from another one on for each pack, while
        not too many of them have to be compiled."""
        code = compiled_code(rung, few[-1], together)
        if code in known | whole or len(whole) >= MOST_WHOLE:
            of_known = (one for one in fewest if compiled_code(rung, one, together) in known)
            known_two = [*islice(of_known, 2)] or fewest[:1]
            return [known_two[place % len(known_two)]]
        whole.add(code)
        turn = place * MOST_NEW_CODES % len(few)
        cases, new = [], set()
        for one in (few[-1], *few[turn:-1], *few[:turn]):
            code = compiled_code(rung, one, together)
            new |= {code} - known
            if len(new) > MOST_NEW_CODES:
                new.discard(code)
            else:
                cases.append(one)
        known.update(new)
        return cases

    def check(place: int, pack: Packed, cases: Sequence[Problem]) -> list[CheckCase] | None:
        if wrong.is_set():
            return []
        with contextlib.suppress(LabError):
            progress(f"check with {say_values(_together(pack))}", place, len(packs))
            found = _check_values(rung, cases, used, pack, told)
            if not all(case.ok for case in found or ()):
                wrong.set()
            return found
        return None

    chosen = [choose(place, {**used, **_together(pack)}) for place, pack in enumerate(packs)]
    with ThreadPoolExecutor(CASES_AT_ONCE) as running:
        found = list(running.map(check, count(), packs, chosen))
        undecided = [one for one, cases in zip(packs, found, strict=True) if cases is None]
        apart = [[one] for pack in undecided if len(pack) > 1 for one in pack]
        each = list(running.map(check, count(), apart, repeat(few)))
    refused = [pack for pack in undecided if len(pack) == 1]
    refused += [one for one, cases in zip(apart, each, strict=True) if cases is None]
    never += [say_values(one) for (one,) in refused]
    return [case for cases in (*found, *each) for case in cases or ()], never, told


def _together(pack: Packed) -> dict[str, int]:
    return dict(chain.from_iterable(one.items() for one in pack))


def _check_values(
    rung: Rung,
    cases: Sequence[Problem],
    used: Mapping[str, int],
    pack: Packed,
    told: list[str],
) -> list[CheckCase] | None:
    """Problems with other values of some knobs, up to the first that is wrong with one alone; None
    where they are wrong together alone, which nobody promised to be right: then what is wrong is
    ``told``, with as few of them as show it."""
    from .cpu import run_on_cpu

    together = _together(pack)
    done: list[CheckCase] = []
    for place, problem in enumerate(cases):
        how: dict[str, Any] = {"orders": (ALL_ORDERS[place % len(ALL_ORDERS)],), "workers": 1}
        run, said = run_on_cpu(rung, problem, {**used, **together}, **how), together
        if not run.ok and len(pack) > 1:
            for said in pack:
                with contextlib.suppress(LabError):
                    run = run_on_cpu(rung, problem, {**used, **said}, **how)
                    if not run.ok:
                        break
            else:
                told.append(_wrong_together(rung, problem, used, pack, how))
                return None
        done.append(_worse_of([_with_words(run, f"with {say_values(said)}")], problem))
        if not run.ok:
            break
    return done


def _wrong_together(
    rung: Rung,
    problem: Problem,
    used: Mapping[str, int],
    pack: Packed,
    how: Mapping[str, Any],
) -> str:
    """What is wrong with these values of knobs, without those that it is wrong without."""
    from .cpu import run_on_cpu

    least, said = pack, ""
    for one in (None, *pack):
        fewer = [other for other in least if other is not one]
        with contextlib.suppress(LabError):
            run = run_on_cpu(rung, problem, {**used, **_together(fewer)}, **how)
            if not run.ok:
                least, said = fewer, run.told
    return f"with {say_values(_together(least))} together, each of them right alone: {said}"


def _say_values(rung: Rung, free: Sequence[Knob], never: Sequence[str] | None) -> list[str]:
    """Which values of knobs were not run; ``never`` is None where of the free ones only those were
    that leave the code as it is."""
    in_turn = [one for one in free if never is not None or not one.compiled]
    names = [one.name for one in rung.knobs if one not in in_turn]
    said = [f"other values of {', '.join(names)}"] if names else []
    if never is not None and len(free) > 1:
        said.append(f"other values of {', '.join(one.name for one in free)} together")
    return [*said, *([f"{', '.join(never)}, of which there is no launch"] if never else [])]


def _check_far_apart(
    rung: Rung, workload: Problem, knobs: Mapping[str, int] | None
) -> CheckCase | None:
    """A case with inputs that are larger than an int or an unsigned counts, a wrong one if there is
    one; None where that was not looked at."""
    kinds = operation_of(workload).far_apart(workload)
    cases = [case for problems in kinds if (case := _reach(rung, knobs, *problems))]
    return min(cases, key=lambda case: case.ok, default=None)


def _reach(
    rung: Rung, knobs: Mapping[str, int] | None, near: Problem, *larger: Problem
) -> CheckCase | None:
    """Of one row of `Operation.far_apart`."""
    from .cpu import run_on_cpu

    if any(rung.supports(one) for one in (near, *larger)):
        return None
    far = larger[-1]
    try:
        every = rung.launches(far, checked_limits(), knobs)
        threads = sum(one.num_blocks * one.num_threads for one in every)
        if far.outputs == near.outputs and threads > MOST_FAR_THREADS:
            return None
        launches = timed_launches(every)
        for one in larger[:-1]:
            # The last rows are computed by the last blocks only where blocks grow with rows.
            least = 0.5 * far.output.shape[0] / one.output.shape[0]
            nearer = timed_launches(rung.launches(one, checked_limits(), knobs))
            if len(nearer) != len(launches) or any(
                ours.num_blocks < least * theirs.num_blocks
                for ours, theirs in zip(launches, nearer, strict=True)
            ):
                return None
        for one in larger:
            told = run_on_cpu(
                rung, near, knobs, orders=(0,), time_limit_s=FAR_LIMIT_S, laid_out=one
            )
            if any(fault.kind in ("hang", "crash") for fault in told.faults):
                return None
            if not told.ok and one != far:
                return None
    except LabError:
        return None
    return _worse_of([_with_words(dataclasses.replace(told, workload=far), "", FAR)], far)


class _Stopped(Exception):
    """A case that nobody waits for any more."""


@contextlib.contextmanager
def _side_by_side(
    rung: Rung, cases: Sequence[Problem], knobs: Mapping[str, int] | None, free: Sequence[Knob]
) -> Iterator[Callable[[int], CheckCase]]:
    """The cases behind the first one, two at a time, each compiled while those before it run."""
    from .cpu import build_for_cpu

    stop = threading.Event()
    compiling, running = ThreadPoolExecutor(COMPILED_AT_ONCE), ThreadPoolExecutor(CASES_AT_ONCE)
    built: dict[object, Future[Executable]] = {}

    def go_on(text: str, done: int = 0, total: int = 0, /) -> None:
        if stop.is_set():
            raise _Stopped

    def check(index: int, executable: Future[Executable]) -> CheckCase:
        executable.exception()  # waits; why it fails is told where it is run
        return _check_case_on_cpu(rung, index, cases[index], knobs, free, go_on)

    results: list[Future[CheckCase]] = []
    try:
        for case in cases[1:]:
            code = compiled_code(rung, case, knobs)
            if code not in built:
                built[code] = compiling.submit(build_for_cpu, rung, case, knobs)
            results.append(running.submit(check, len(results) + 1, built[code]))
        yield lambda index: results[index - 1].result()
    finally:
        stop.set()
        compiling.shutdown(cancel_futures=True)
        running.shutdown(cancel_futures=True)


def _in_turn(
    rung: Rung,
    workload: Problem,
    knobs: Mapping[str, int] | None,
    free: Sequence[Knob],
    turn: int,
) -> Mapping[str, int] | None:
    """Knobs of which those that are free and that leave the code as it is have their values in
    turn; the given ones where there is no launch with these."""
    taken = {
        one.name: one.choices[turn % len(one.choices)]
        for one in free
        if not (one.compiled or one.broken)
    }
    other, limits = {**(knobs or {}), **taken}, checked_limits()
    with contextlib.suppress(LabError):
        launches = rung.launches(workload, limits, other)
        if compiled_code(rung, workload, other) == compiled_code(rung, workload, knobs):
            fits = (one.smem_bytes <= limits.smem_per_block_bytes for one in launches)
            return other if all(fits) else knobs
    return knobs


def _check_case_on_cpu(
    rung: Rung,
    index: int,
    workload: Problem,
    knobs: Mapping[str, int] | None,
    free: Sequence[Knob] = (),
    progress: Progress = silent,
) -> CheckCase:
    """One case of the battery, with two draws of its inputs; the first wrong run ends it."""
    from .cpu import run_on_cpu

    # The wanted workload meets every order of warps; each small one the even order and one
    # of the adversarial ones in turn. The second draw comes in a random order.
    orders: tuple[int, ...] = ALL_ORDERS if index == 0 else (0, 1 + index % 3)
    if index and (workload.part_visits > LONG_VISITS or workload.num_parts > MANY_PARTS):
        orders = orders[:1]
    second = workload.second_draw()
    plan: list[tuple[Problem, tuple[int, ...], int | None]] = [
        (workload, orders, None),
        (second, (3,), None),
    ]
    if index and (workload.visits > ONE_DRAW_VISITS or workload.num_parts > ONE_DRAW_PARTS):
        plan = plan[1:]
    elif workload.visits > MANY_VISITS:
        plan = [
            (workload, orders[1:], SAMPLED_BLOCKS),
            (workload, orders[:1], None),
            (second, (3,), SAMPLED_BLOCKS),
        ]
    results: list[CheckCase] = []
    inputs: Drawn | None = None
    for drawn, some_orders, blocks in plan:
        if inputs is None or inputs.problem != drawn:
            inputs = operation_of(drawn).draw(drawn)
        workers = 1 if index else None  # the cases behind the first one share the cores
        how: dict[str, Any] = {"progress": progress, "inputs": inputs, "workers": workers}
        used, said, with_values = knobs, [], ""
        if drawn is second:
            used = knobs if blocks else _in_turn(rung, drawn, knobs, free, index)
            others = (used or {}).items() - (knobs or {}).items()
            said = [f"with {say_values(dict(sorted(others)))}"] if others else []
            with_values = ", ".join(said)
            # As on another GPU, where that changes the launch alone.
            many = workload.num_parts > ONE_DRAW_PARTS
            sms = min(OTHER_SMS) if many else OTHER_SMS[index % len(OTHER_SMS)]
            other = dataclasses.replace(checked_limits(), num_sms=sms)
            if rung.defines(drawn, other, knobs) == rung.defines(drawn, checked_limits(), knobs):
                how["limits"] = other
                said.append(f"launched as for {sms} multiprocessors")
        run = run_on_cpu(rung, drawn, used, orders=some_orders, blocks=blocks, **how)
        run = _with_words(run, with_values, ", ".join(said))
        results.append(run)
        if not run.ok:
            break
    return _worse_of(results, workload)


def _with_words(run: CpuRun, values: str, said: str = "") -> CpuRun:
    """The same, whose faults say which values of knobs it had, and whose wrong numbers that or
    ``said``."""
    faults, comparison = run.faults, run.comparison
    if values:
        faults = [
            dataclasses.replace(one, message=f"{one.message} ({values})") for one in run.faults
        ]
    if comparison and (said or values):
        comparison = comparison.of_output(said or values)
    return dataclasses.replace(run, faults=faults, comparison=comparison)


def _check_on_gpu(
    rung: Rung,
    cases: Sequence[Problem],
    knobs: Mapping[str, int] | None,
    progress: Progress,
    pool: LivePool | None,
) -> list[CheckCase]:
    from .gpu.runner import run_jobs_on_gpu

    drawn = [one for workload in cases for one in (workload, workload.second_draw())]
    runs = run_jobs_on_gpu([(rung, one, knobs) for one in drawn], progress=progress, pool=pool)
    done = []
    for index, workload in enumerate(cases):
        pair = runs[2 * index : 2 * index + 2]
        if not pair or (len(pair) < 2 and pair[0].ok):
            break  # the second draw was never run: not a case that may count as right
        done.append(_worse_of(pair, workload))
    progress("checked", len(done), len(cases))
    return done


def _worse_of(results: Sequence[CheckCase], workload: Problem) -> CheckCase:
    """One case out of the draws of one workload: the first wrong one, else the less exact."""
    for case in results:
        if not case.ok:
            return CheckCase(case.workload, False, case.comparison, list(case.faults), case.printed)
    worst = max(results, key=lambda case: (case.comparison and case.comparison.worst_error) or 0.0)
    return CheckCase(workload, True, worst.comparison, [], worst.printed)


def _is_enough(done: Sequence[CheckCase]) -> bool:
    wrong = [case for case in done if not case.ok]
    hangs = any(fault.kind == "hang" for case in wrong for fault in case.faults)
    return hangs or len(wrong) >= ENOUGH_WRONG
