"""From samples to numbers: medians, spreads, paired ratios. All of it recomputes from samples."""

from __future__ import annotations

import re
import statistics
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from labtools.problem import LabError
from labtools.toolchain.cache import code_digest, kept

from .prediction import Direction, direction_of
from .schema import Record, Run, Samples

RESAMPLES = 2000
CONFIDENCE = 0.95

_CODE = code_digest("record")
"""The code that makes a ratio, as it was when this was imported."""


@dataclass(frozen=True)
class Summary:
    """A time and how much it moved."""

    median_us: float  # median over processes of each process's median
    iqr_us: tuple[float, float]  # first and third quartile of all samples together
    range_us: tuple[float, float]  # least and most of the processes' medians
    processes: int
    samples: int  # in all

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        return (self.iqr_us[1] - self.iqr_us[0]) / self.median_us


@dataclass(frozen=True)
class Ratio:
    """How many times longer one candidate takes than another, timed in the same processes."""

    ratio: float  # median over the processes of (first / second)
    low: float  # lower end of the 95 % interval
    high: float  # upper end
    processes: int  # how many pairs
    first: str  # what stands above the line
    second: str  # what stands below it

    @property
    def direction(self) -> Direction:
        """What it says of the second candidate."""
        return direction_of(self.ratio, (self.low, self.high))

    @property
    def equal(self) -> bool:
        """Whether the interval spans 1."""
        return self.direction == "same"

    def __str__(self) -> str:
        text = f"{self.ratio:.3f} (95 % interval {self.low:.3f} to {self.high:.3f})"
        return f"{text}: equal" if self.equal else text


def median_us(samples: Samples) -> float:
    """Median over processes of each process's median, microseconds."""
    return float(statistics.median(statistics.median(process.us) for process in samples.processes))


def summary(run: Run | Samples) -> Summary:
    """Median and spread of a run's samples."""
    samples = run.samples if isinstance(run, Run) else run
    pooled = [time for process in samples.processes for time in process.us]
    middles = [float(statistics.median(process.us)) for process in samples.processes]
    low, high = np.percentile(pooled, (25, 75))
    middle, ends = float(statistics.median(middles)), (min(middles), max(middles))
    return Summary(middle, (float(low), float(high)), ends, len(middles), len(pooled))


def paired_ratio(first: Record, second: Record, seed: int = 0) -> Ratio:
    """Time of ``first`` over time of ``second``: median of the per-process ratios.

    The interval is a bootstrap in two stages: processes are drawn with replacement, then rounds
    within each. With five processes its ends reach the least and the largest of the five ratios,
    which is as much as five processes can say.
    """
    names = f"{first.candidate} and {second.candidate}"
    if first.campaign != second.campaign or first.workload != second.workload:
        why = (
            "a ratio needs the same workload and the same processes; two GPUs of one kind, or one "
        )
        why += "GPU on two days, differ by several percent"
        still = "compare records of one campaign, or measure both now"
        raise LabError(f"{names} were not measured together.", why, still)
    above = {process.process: np.asarray(process.us) for process in first.samples.processes}
    below = {process.process: np.asarray(process.us) for process in second.samples.processes}
    shared = sorted(set(above) & set(below))
    if not shared:
        why = "each process of the campaign timed only one of them"
        raise LabError(f"{names} share no process.", why, "measure both again together")
    both = [above[k] for k in shared], [below[k] for k in shared]
    own_seed = zlib.crc32(f"{seed} {first.candidate} {second.candidate}".encode())
    ratio, low, high = kept(
        "ratio", (_CODE, both, own_seed), lambda: ratio_of_samples(*both, seed=own_seed)
    )
    return Ratio(ratio, low, high, len(shared), first.candidate, second.candidate)


def ratio_of_samples(
    above: list[np.ndarray], below: list[np.ndarray], seed: int = 0
) -> tuple[float, float, float]:
    """Median of the per-process ratios and the ends of its 95 % interval, by a bootstrap.

    ``above`` and ``below`` hold an array of times a process, in the same order.
    """
    rng = np.random.default_rng(seed)
    both = list(zip(above, below, strict=True))
    ratios = [float(np.median(a) / np.median(b)) for a, b in both]
    # One column of resampled ratios a process, then a draw of columns for every resample.
    columns = [_resample_medians(a, rng) / _resample_medians(b, rng) for a, b in both]
    resampled = np.stack(columns, axis=1)
    drawn = rng.integers(len(ratios), size=(RESAMPLES, len(ratios)))
    # A resampled process carries its own resampled rounds.
    medians = np.median(np.take_along_axis(resampled, drawn, axis=1), axis=1)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(medians, (tail, 100 - tail))
    return float(np.median(ratios)), float(low), float(high)


def _resample_medians(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[RESAMPLES] medians of draws with replacement; found among ranks, which sort faster."""
    count = len(values)
    order = np.argsort(values)
    ranks = np.empty(count, np.min_scalar_type(count - 1))
    ranks[order] = np.arange(count)
    drawn = ranks[rng.integers(count, size=(RESAMPLES, count))]
    below, above = (count - 1) // 2, count // 2
    drawn.partition((below, above), axis=1)
    ordered = np.asarray(values)[order]
    return (ordered[drawn[:, below]] + ordered[drawn[:, above]]) / 2


def best_read_gb_per_s(records: Iterable[Record]) -> float | None:
    """Best rate at which anything read the problem's bulk, cold, 10^9 bytes a second; None without
    a cold record. Nothing can beat a floor made from it."""
    best = best_reader(records)
    return None if best is None else best.gb_per_s


def best_reader(records: Iterable[Record]) -> Record | None:
    """The record with that rate, the read sweep or a kernel with the bytes as it keeps them. Study
    kernels are left out: their records do not say in how many bits they keep them."""
    cold = (
        record
        for record in records
        if record.workload["cache_state"] == "cold"
        and record.comparison.ok
        and not (record.kind == "rung" and re.match(r"s\d\d_", record.candidate))
    )
    return max(cold, key=lambda record: record.gb_per_s, default=None)


def median_problems(record: Record) -> list[str]:
    """What does not recompute from the record's own samples; empty when all is well."""
    recomputed = median_us(record.samples)
    if abs(recomputed - record.median_us) > 1e-6 * recomputed:
        return [f"median_us says {record.median_us}, its samples give {recomputed}"]
    return []
