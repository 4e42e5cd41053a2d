"""The headline, said once and honestly: a baseline, an interval, a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labtools.problem import HEADLINE, Problem
from labtools.problem.text import three_digits

from .query import Standing, at_default_knobs, describe_record, measured_together, select, standings
from .schema import Record
from .statistics import Ratio, paired_ratio

PUBLISHED = "r03_one_warp"
"""The rung of the design that was announced."""
REPAIRED = "r09_inverted"
"""The rung that this guide ends with, with the cache in 16 bits."""
HANDICAPPED = "baseline:sdpa_expanded"
_ALONE = "has no record beside it yet"


@dataclass(frozen=True)
class Headline:
    """The announced design and the guide's own against the fastest fair library."""

    workload: Problem
    published: Standing  # of r03
    repaired: Standing | None  # of r09, where it was timed in the same processes
    handicapped: Ratio | None  # time of the baseline with the copy over r03's, same processes
    versions: str  # of the libraries

    @property
    def where(self) -> str:
        """GPU and date."""
        return describe_record(self.published.record)


def find_headline(
    records: Iterable[Record], gpu: str, workload: Problem = HEADLINE
) -> Headline | None:
    """The headline as recorded; None without a campaign that timed r03 beside a fair library."""
    fitting = at_default_knobs(select(records, gpu=gpu, workload=workload, experiment=None))
    found = standings(measured_together(fitting)) if fitting else []
    by_name = {standing.record.candidate: standing for standing in found}
    published = by_name.get(PUBLISHED)
    if published is None or published.against is None:
        return None
    handicapped = by_name.get(HANDICAPPED)
    source = published.record.provenance
    names = ("torch", "cudnn", "flashinfer", "driver")
    had = ", ".join(f"{name} {getattr(source, name)}" for name in names if getattr(source, name))
    copied = paired_ratio(handicapped.record, published.record) if handicapped else None
    return Headline(workload, published, by_name.get(REPAIRED), copied, had)


def say_headline(headline: Headline | None) -> list[str]:
    """The headline in plain sentences."""
    if headline is None:
        return ["There is no record yet that times r03 beside a fair library."]
    against = headline.published.against
    assert against is not None
    ran = f"workload {headline.workload}, {against.processes} processes, {headline.versions}"
    said = [
        f"{headline.where}, {ran}.",
        f"The one-warp kernel r03, the design of the 1.91x, {say_against(against)}, the fastest "
        "fair library there.",
    ]
    if headline.handicapped is not None:
        said.append(
            f"In the same processes it {say_against(headline.handicapped)}, which copies the KV "
            "heads in the timed call as the baseline of the 1.91x did."
        )
    ours = headline.repaired and headline.repaired.against
    beside = f"{say_against(ours)}, the fastest fair library there" if ours else _ALONE
    return [*said, f"{REPAIRED.split('_')[0]}, the guide's own kernel, {beside}."]


def say_against(ratio: Ratio) -> str:
    """``is 1.12 times (95 % interval 1.10 to 1.14) as fast as sdpa``, from a ratio peer / rung."""
    value, low, high, how = ratio.ratio, ratio.low, ratio.high, "as fast"
    if high < 1:
        value, low, high, how = 1 / value, 1 / high, 1 / low, "as long"
    verb = "takes" if how == "as long" else "is"
    ends = f"95 % interval {three_digits(low)} to {three_digits(high)}"
    equal = ", so they are equal" if ratio.equal else ""
    text = f"{verb} {three_digits(value)} times ({ends}) {how} as "
    return f"{text}{ratio.first.removeprefix('baseline:')}{equal}"


@dataclass(frozen=True)
class Compared:
    """A rung on a workload against the fastest fair libraries that were timed with it."""

    workload: Problem
    rung: str  # its id
    standing: Standing
    peers: tuple[Record, ...] = ()  # records of the libraries that its ratios are against


def compare_rungs(
    records: Iterable[Record], workloads: Sequence[Problem], rungs: Sequence[str], gpu: str
) -> list[Compared]:
    """Every rung on every workload that has records; what has none is left out."""
    mine = at_default_knobs(select(records, gpu=gpu, experiment=None))
    found = []
    for workload in workloads:
        here = select(mine, workload=workload, experiment=None)
        for rung in rungs:
            # A campaign with more rungs, but without this one, says nothing of it.
            together = measured_together(here, having=rung)
            by_name = {standing.record.candidate: standing for standing in standings(together)}
            mine_here = by_name.get(rung)
            if mine_here is not None and mine_here.against is not None:
                ratios = (mine_here.against, mine_here.against_low_bit)
                peers = tuple(by_name[one.first].record for one in ratios if one is not None)
                found.append(Compared(workload, rung, mine_here, peers))
    return found
