"""The check that stands before every measurement: is this rung right, and on what was that tried?

One rung, many workloads (`labtools.problem.battery`), each with two draws of the inputs, so that
an answer left over from the first cannot pass for the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from labtools.problem import Comparison, LabError, Rung, Workload, battery

Progress = Callable[[int, int, str], None]
"""Called with cases done, cases in all, and a few words."""

SECOND_DRAW = 7919
"""Added to a workload's seed for the second draw."""
ENOUGH_WRONG = 3
"""After this many wrong cases the rest would teach nothing."""
MANY_ROWS = 200_000
"""(query head, key) pairs above which the CPU runs every block once only, and the adversarial
orders of warps on a sample of blocks."""
SAMPLED_BLOCKS = 8
QUICK_CASES = 6
ALL_ORDERS = (0, 1, 2, 3)


class FaultLike(Protocol):
    """What a fault of either machine has."""

    @property
    def kind(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def file(self) -> str | None: ...
    @property
    def line(self) -> int | None: ...
    @property
    def block(self) -> tuple[int, int, int] | None: ...
    @property
    def thread(self) -> tuple[int, int, int] | None: ...


@dataclass(frozen=True)
class CheckCase:
    """One workload of a check.

    Args:
        workload: what was computed; of two draws the one that is wrong, if one is.
        ok: right in both draws, and no fault.
        comparison: with the oracle, the worse of the two draws; None when a fault ended the run.
        faults: what the kernel did besides computing wrong numbers.
    """

    workload: Workload
    ok: bool
    comparison: Comparison | None
    faults: list[FaultLike] = field(default_factory=list)

    def __str__(self) -> str:
        if self.ok:
            return f"{self.workload}: {self.comparison}"
        parts = [str(fault) for fault in self.faults]
        if self.comparison is not None and not self.comparison.ok:
            parts.append(str(self.comparison))
        return f"{self.workload}: " + "\n".join(parts or ["it was not run to its end"])


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Args:
        rung: id of the rung.
        on: ``cpu`` or ``gpu``.
        ok: every planned case was run and is right.
        cases: those that were run, in order.
        planned: how many cases there were to run.
    """

    rung: str
    on: str
    ok: bool
    cases: list[CheckCase]
    planned: int

    @property
    def faults(self) -> list[FaultLike]:
        """The faults of all cases, one for each kind and line."""
        seen: dict[tuple[str, str | None, int | None], FaultLike] = {}
        for case in self.cases:
            for fault in case.faults:
                seen.setdefault((fault.kind, fault.file, fault.line), fault)
        return list(seen.values())

    @property
    def worst_error(self) -> float | None:
        """Largest relative error of one (sequence, head) over the cases that ran to their end."""
        errors = [case.comparison.worst_error for case in self.cases if case.comparison]
        return max(errors, default=None)

    @property
    def summary(self) -> str:
        """The verdict in plain text."""
        where = "the CPU" if self.on == "cpu" else "the GPU"
        wrong = [case for case in self.cases if not case.ok]
        if self.ok:
            limit = max(case.comparison.tolerance for case in self.cases if case.comparison)
            return (
                f"{self.rung} on {where}: right in all {len(self.cases)} cases, worst relative "
                f"error {self.worst_error:.1e} (limit {limit:g})"
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

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; infinite errors become None."""
        return {
            "rung": self.rung,
            "on": self.on,
            "ok": self.ok,
            "planned": self.planned,
            "worst_error": _finite(self.worst_error),
            "summary": self.summary,
            "cases": [
                {
                    "workload": case.workload.to_dict(),
                    "ok": case.ok,
                    "comparison": _comparison_dict(case.comparison),
                    "faults": [_fault_dict(fault) for fault in case.faults],
                }
                for case in self.cases
            ],
        }


def check_rung(
    rung: Rung,
    workload: Workload,
    knobs: Mapping[str, int] | None = None,
    on: str = "cpu",
    progress: Progress | None = None,
    quick: bool = False,
) -> CheckReport:
    """Run a rung on the workload and on small ones that cover what the workload leaves out.

    Args:
        rung: shipped, edited on a page, or from any folder.
        workload: the problem it is wanted for; always among the cases.
        knobs: compile-time choices.
        on: ``cpu`` (all memory accesses and barriers are watched) or ``gpu``.
        progress: called after each case.
        quick: only the first few cases; for pages that check often.

    Raises:
        LabError: the rung cannot run at all: it does not compile, does not support the workload,
            or the machine lacks what ``on`` needs.
    """
    if on not in ("cpu", "gpu"):
        raise LabError(f"A check cannot run on {on!r}.", "it runs on cpu or on gpu", "choose one")
    rung.launches(workload, knobs)  # refuses an unsupported workload before anything runs
    cases = battery(workload, rung.supports)
    if quick:
        cases = _quick_choice(cases)
    run = _check_on_cpu if on == "cpu" else _check_on_gpu
    done = run(rung, cases, knobs, progress)
    ok = len(done) == len(cases) and all(case.ok for case in done)
    return CheckReport(rung.id, on, ok, done, len(cases))


def _quick_choice(cases: Sequence[Workload]) -> list[Workload]:
    """The given workload and a few of the others, evenly spread."""
    others = cases[1:]
    step = max(1, len(others) // QUICK_CASES)
    return [cases[0], *others[::step][:QUICK_CASES]]


def _check_on_cpu(
    rung: Rung,
    cases: Sequence[Workload],
    knobs: Mapping[str, int] | None,
    progress: Progress | None,
) -> list[CheckCase]:
    from .cpu import run_on_cpu

    done: list[CheckCase] = []
    for index, workload in enumerate(cases):
        if progress is not None:
            progress(index, len(cases), str(workload))
        # The wanted workload meets every order of warps; each small one the even order and one
        # of the adversarial ones in turn. The second draw comes in a random order.
        orders = ALL_ORDERS if index == 0 else (0, 1 + index % 3)
        second = workload.replace(seed=workload.seed + SECOND_DRAW)
        plan: list[tuple[Workload, tuple[int, ...], int | None]]
        if workload.kv_row_visits > MANY_ROWS:
            plan = [
                (workload, orders[1:], SAMPLED_BLOCKS),
                (workload, orders[:1], None),
                (second, (3,), SAMPLED_BLOCKS),
            ]
        else:
            plan = [(workload, orders, None), (second, (3,), None)]
        results = []
        for drawn, some_orders, blocks in plan:
            run = run_on_cpu(rung, drawn, knobs, orders=some_orders, blocks=blocks)
            results.append(CheckCase(drawn, run.ok, run.comparison, list(run.faults)))
            if not run.ok:
                break
        case = _worse_of(results, workload)
        done.append(case)
        if _is_enough(done):
            break
    if progress is not None:
        progress(len(done), len(cases), "done")
    return done


def _check_on_gpu(
    rung: Rung,
    cases: Sequence[Workload],
    knobs: Mapping[str, int] | None,
    progress: Progress | None,
) -> list[CheckCase]:
    from .live import run_cases_on_gpu

    drawn = [
        workload.replace(seed=workload.seed + extra)
        for workload in cases
        for extra in (0, SECOND_DRAW)
    ]

    def hear(text: str) -> None:
        if progress is not None:
            progress(0, len(cases), text)

    runs = run_cases_on_gpu(rung, drawn, knobs, progress=hear)
    done = []
    for index, workload in enumerate(cases):
        pair = runs[2 * index : 2 * index + 2]
        if not pair:
            break
        results = [
            CheckCase(run.workload, run.ok, run.comparison, list(run.faults)) for run in pair
        ]
        if len(pair) < 2 and results[0].ok:
            break  # the second draw was never run: not a case that may count as right
        done.append(_worse_of(results, workload))
    if progress is not None:
        progress(len(done), len(cases), "done")
    return done


def _worse_of(results: Sequence[CheckCase], workload: Workload) -> CheckCase:
    """One case out of the draws of one workload: the first wrong one, else the less exact."""
    for result in results:
        if not result.ok:
            return result
    worst = max(results, key=lambda r: r.comparison.worst_error if r.comparison else 0.0)
    return CheckCase(workload, True, worst.comparison, [])


def _is_enough(done: Sequence[CheckCase]) -> bool:
    """Stop at a block that hangs, and when several cases are wrong."""
    wrong = [case for case in done if not case.ok]
    hangs = any(fault.kind == "hang" for case in wrong for fault in case.faults)
    return hangs or len(wrong) >= ENOUGH_WRONG


def _fault_dict(fault: FaultLike) -> dict[str, Any]:
    return {
        name: getattr(fault, name)
        for name in ("kind", "message", "file", "line", "block", "thread")
    }


def _comparison_dict(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    return {**asdict(comparison), "worst_error": _finite(comparison.worst_error)}


def _finite(value: float | None) -> float | None:
    return None if value is None or not _is_finite(value) else value


def _is_finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")
