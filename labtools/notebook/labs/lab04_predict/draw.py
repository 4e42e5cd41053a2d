"""Rounds of a prediction game: pairs of recorded measurements, drawn so that anybody can redraw.
How one came out is read from the records by `recorded_answer` and nowhere else.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from labtools.predict import load_gpu, occupancy, waves
from labtools.problem import HEADLINE, LabError, Rung, Workload, load_rung
from labtools.problem.rung import say_knobs
from labtools.record import Record, RecordStore, Variant
from labtools.record.prediction import direction_of
from labtools.record.query import every_pair

from ...ratios import Speedup
from ...records import recorded_speedup

LEVELS = {
    1: "one knob, a large effect",
    2: "one step, any effect or none",
    3: "a step that goes another way elsewhere, or a grid with a tail",
}
"""What each level holds."""

_SAME_BELOW = 1.03
_CLEAR_FROM = 1.08
_LARGE_FROM = 1.5


@dataclass(frozen=True)
class Side:
    """One of the two kernels of a round."""

    rung: str  # its id
    knobs: tuple[tuple[str, int], ...]  # every knob with its value

    def __str__(self) -> str:
        return f"{self.rung}({say_knobs(self.knobs)})"


@dataclass(frozen=True)
class Round:
    """One question: from ``baseline`` to ``candidate``, by what factor does the time change?"""

    baseline: Side
    candidate: Side
    workload: Workload  # what both compute
    gpu: str  # short name of the GPU that was or will be measured on
    level: int  # 1, 2 or 3, see `LEVELS`

    @property
    def id(self) -> str:
        """A short fixed name, for a list of rounds."""
        text = f"{self.baseline}>{self.candidate}@{self.workload.key()}"
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def question_id(self) -> str:
        """Its name in the journal; another GPU makes another question of it."""
        return f"predict-{self.id}-{self.gpu}"

    @property
    def changed(self) -> dict[str, tuple[int | str, int | str]]:
        """What differs: knob to (before, after); ``kernel`` where the kernels differ."""
        found: dict[str, tuple[int | str, int | str]] = {}
        if self.baseline.rung != self.candidate.rung:
            found["kernel"] = (self.baseline.rung, self.candidate.rung)
        before, after = dict(self.baseline.knobs), dict(self.candidate.knobs)
        for name in sorted(before.keys() & after.keys()):
            if before[name] != after[name]:
                found[name] = (before[name], after[name])
        return found

    def __str__(self) -> str:
        return f"{self.baseline} to {self.candidate}, {self.workload}"


@dataclass(frozen=True)
class _Pair:
    """Two records of one campaign that differ in one step."""

    first: Record
    second: Record
    step: tuple[str, ...]
    ratio: float


def draw_rounds(
    seed: int = 0, per_level: int = 3, *, gpu: str = "h200", levels: Sequence[int] = (1, 2, 3)
) -> list[Round]:
    """Rounds from the records, from easy to hard; the same seed and records give the same ones."""
    for level in set(levels) - set(LEVELS):
        raise LabError(f"There is no level {level}.", f"the levels are {[*LEVELS]}", "name one")
    pool = all_rounds(gpu)
    chance = random.Random(f"rounds {seed}")
    drawn: list[Round] = []
    for level in levels:
        here = [round_ for round_ in pool if round_.level == level]
        chance.shuffle(here)
        # Each change and each workload comes as seldom as the pool allows.
        seen: Counter[object] = Counter()
        for _ in range(min(per_level, len(here))):
            best = min(here, key=lambda one: seen[_change_of(one)] * 2 + seen[one.workload.key()])
            here.remove(best)
            seen.update((_change_of(best), best.workload.key()))
            drawn.append(best if chance.random() < 0.5 else _turned(best))
    return drawn


def find_rounds(ids: Iterable[str], *, gpu: str = "h200") -> list[Round]:
    """The rounds with these names, in this order, as a teacher lists them."""
    pool = {round_.id: round_ for round_ in all_rounds(gpu)}
    pool |= {turned.id: turned for turned in map(_turned, list(pool.values()))}
    ids = list(ids)
    for name in (one for one in ids if one not in pool):
        why = f"the records of {gpu} make {len(pool)} rounds, and none has this name"
        raise LabError(f"There is no round {name!r}.", why, "take a name of all_rounds")
    return [pool[name] for name in ids]


def all_rounds(gpu: str = "h200") -> list[Round]:
    """Every round that the records of a GPU can answer, in a fixed order."""
    pairs = _pairs(RecordStore().query(gpu=gpu, kind="rung"))
    ways: dict[tuple[str, ...], list[float]] = {}
    for pair in pairs:
        ways.setdefault(pair.step, []).append(pair.ratio)
    rounds: dict[str, Round] = {}
    example = example_round(gpu)
    for pair in pairs:
        if _unclear(pair.ratio):
            continue
        workload = pair.first.problem
        assert isinstance(workload, Workload)  # `_pairs` takes no others
        level = _level(pair, ways[pair.step])
        round_ = Round(_side(pair.first), _side(pair.second), workload, gpu, level)
        if not _share_a_side(round_, example):
            rounds[str(round_)] = round_
    return [rounds[name] for name in sorted(rounds)]


def example_round(gpu: str = "h200") -> Round:
    """A finished round to look at; the draw leaves out every round that shares a time with it."""
    before, after = (
        Side(rung.id, tuple(sorted(rung.resolve_knobs().items())))
        for rung in (load_rung("r02"), load_rung("r03"))
    )
    return Round(before, after, HEADLINE, gpu, 2)


def recorded_answer(round_: Round) -> Speedup | None:
    """What the records say to a round: baseline time / candidate time, paired by process."""
    before, after = (
        Variant(one.rung, dict(one.knobs)) for one in (round_.baseline, round_.candidate)
    )
    found = recorded_speedup(before, after, round_.workload, gpu=round_.gpu)
    return None if found is None else interval_in_words(found)


def interval_in_words(measured: Speedup) -> Speedup:
    """The interval goes into words, so that the game's own rule says what "the same" is."""
    if measured.interval is None:
        return measured
    low, high = measured.interval
    told = f"{measured.what}; 95 %: {low:.3f} to {high:.3f}".strip("; ")
    return replace(measured, what=told, interval=None)


def _pairs(records: Iterable[Record]) -> list[_Pair]:
    def fits(record: Record) -> bool:
        own = isinstance(record.problem, Workload) and record.rung_path is None
        return own and record.comparison.ok and _shipped(record.candidate) is not None

    found = []
    for first, second in every_pair(filter(fits, records)):
        step = _step(first, second)
        if step is not None:
            found.append(_Pair(first, second, step, first.median_us / second.median_us))
    return found


@functools.lru_cache(maxsize=256)
def _shipped(name: str) -> Rung | None:
    """The shipped rung of a record, or None where it is gone."""
    try:
        return load_rung(name)
    except LabError:
        return None


def _step(first: Record, second: Record) -> tuple[str, ...] | None:
    """What leads from one record to the other, if it is one knob or one rung; None otherwise."""
    before, after = first.every_knob, second.every_knob
    if first.candidate == second.candidate:
        names = [name for name in before if before[name] != after.get(name)]
        if len(names) != 1 or before.keys() != after.keys():
            return None
        (name,) = names
        return first.candidate, name, str(before[name]), str(after[name])
    rung = _shipped(second.candidate)
    parent = _shipped(first.candidate)
    if rung is None or parent is None or rung.parent != parent.id:
        return None
    shared = before.keys() & after.keys()
    # What they share is equal; what only one has stands as its rung has it.
    expected = {**parent.resolve_knobs(), **rung.parent_knobs}
    own = rung.resolve_knobs()
    fits = (
        all(before[name] == after[name] for name in shared)
        and all(before[name] == expected.get(name) for name in before.keys() - shared)
        and all(after[name] == own.get(name) for name in after.keys() - shared)
    )
    return (first.candidate, "kernel", second.candidate) if fits else None


def _side(record: Record) -> Side:
    return Side(record.candidate, tuple(sorted(record.every_knob.items())))


def _level(pair: _Pair, everywhere: Sequence[float]) -> int:
    """How hard a round is. The ratios decide, so a level says a little about the answer."""
    seen = {direction_of(ratio) for ratio in everywhere if not _unclear(ratio)}
    usual = statistics.median([abs(math.log2(ratio)) for ratio in everywhere])
    unlike = abs(abs(math.log2(pair.ratio)) - usual) > math.log2(_LARGE_FROM)
    if len(seen) > 1 or unlike or _has_tail(pair.first) or _has_tail(pair.second):
        return 3
    large = max(pair.ratio, 1 / pair.ratio) >= _LARGE_FROM
    return 1 if large and pair.step[1] != "kernel" else 2


def _unclear(ratio: float) -> bool:
    """Neither clearly the same nor clearly not."""
    return _SAME_BELOW < max(ratio, 1 / ratio) < _CLEAR_FROM


def _has_tail(record: Record) -> bool:
    """Ragged lengths, or a full wave followed by one that is not."""
    if record.problem.uneven:
        return True
    used = {resources.entry: resources for resources in record.resources}
    gpu = load_gpu(record.provenance.gpu_slug)
    for launch in record.launches:
        own = used.get(launch.entry)
        if own is None or own.registers is None:
            continue
        threads, blocks = math.prod(launch.block), math.prod(launch.grid)
        fits = occupancy(gpu, threads, own.registers, (own.shared_bytes or 0) + launch.smem_bytes)
        if fits.blocks_per_sm:
            grid = waves(gpu, fits, blocks)
            if grid.full_waves and grid.tail_blocks and grid.waves < 4:
                return True
    return False


def _change_of(round_: Round) -> tuple[str, ...]:
    """The change without its sizes: which kernel, which knob."""
    return (round_.baseline.rung, *round_.changed)


def _turned(round_: Round) -> Round:
    return replace(round_, baseline=round_.candidate, candidate=round_.baseline)


def _share_a_side(round_: Round, other: Round) -> bool:
    """Does a measured time of one stand in the other?"""
    sides = {round_.baseline, round_.candidate} & {other.baseline, other.candidate}
    return bool(sides) and round_.workload.key() == other.workload.key()
