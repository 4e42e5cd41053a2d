"""The arithmetic of timing: how many buffer sets, launches and rounds. Pure, so that it is tested
without a GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labtools.problem import Problem

COLD_FOOTPRINT = 8  # times the L2 are the sets together: hardly any line survives a round
COLD_LEAST = 3  # below this many times the L2 a measurement may not be called cold
MOST_SETS = 2048
MOST_LAUNCHES = 4096
SAMPLE_US = 2000.0  # the least length of a sample: the ends of a graph then do not count
LEAST_ROUNDS = 5
SLICE_ALIGNMENT = 512
LONGEST_CUT = 16  # calls of a replay that is cut off, at most
SAMPLES_BESIDE = 4
"""Of a candidate beside its rounds: after each capture, to warm up, and after all times."""
SAMPLES_ALTERED = 8
"""Of a rung whose inputs change: five times a sample and then a replay, one as long and the others
half as long on average."""


@dataclass(frozen=True)
class Rotation:
    """How the buffers go round."""

    sets: int  # different sets of the inputs and the output
    total_bytes: int  # size of the sets together
    cold: bool  # the sets together are at least `COLD_LEAST` times the L2


def plan_rotation(
    workload: Problem, l2_bytes: int, free_bytes: int, read_bytes: int | None = None
) -> Rotation:
    """Number of buffer sets for a workload's cache state.

    Warm takes one set. Cold takes enough to be `COLD_FOOTPRINT` times the L2, at least two, and
    never more than half of the free device memory. ``read_bytes`` are what the candidate that reads
    least finds in one set, such as a cache of four bits (None: what the problem needs): it asks for
    more sets; whether the rotation is cold is said for one that reads the inputs as they are.
    """
    one = workload.set_bytes
    if workload.cache_state == "warm":
        return Rotation(1, one, False)
    # A call reads no padding, so ragged sets must be more for what is read to pass the L2.
    read = min(one, workload.minimal_bytes)
    least = max(1, read if read_bytes is None else min(read, read_bytes))
    wanted = max(2, math.ceil(COLD_FOOTPRINT * l2_bytes / least))
    fitting = max(1, (free_bytes // 2) // one)
    sets = min(wanted, fitting, MOST_SETS)
    return Rotation(sets, sets * one, sets * read >= COLD_LEAST * l2_bytes)


def plan_launches(launch_us: float, sets: int, sample_us: float = SAMPLE_US) -> int:
    """Launches behind one sample: whole turns through the sets, at least ``sample_us`` long."""
    turns = max(1, math.ceil(sample_us / max(launch_us, 1e-3) / sets))
    most_turns = max(1, MOST_LAUNCHES // sets)
    return sets * min(turns, most_turns)


def plan_rounds(sample_us: float, rounds: int, budget_s: float) -> int:
    """Rounds that one candidate takes part in: all of them unless its samples are long."""
    affordable = int(budget_s * 1e6 / max(sample_us, 1.0))
    return max(min(LEAST_ROUNDS, rounds), min(rounds, affordable))


def planned_us(
    call_us: float, sets: int, rounds: int, budget_s: float, is_rung: bool, sample_us: float
) -> float:
    """What the calls of one candidate take in a process, about."""
    launches = plan_launches(call_us, sets, sample_us)
    samples = plan_rounds(launches * call_us, rounds, budget_s) + SAMPLES_BESIDE
    calls = launches * (samples + SAMPLES_ALTERED * is_rung) + 2 * LONGEST_CUT * is_rung
    return calls * call_us


def takes_part(round_index: int, own_rounds: int, rounds: int) -> bool:
    """Spread a candidate's own rounds evenly over all rounds."""
    return (round_index + 1) * own_rounds // rounds > round_index * own_rounds // rounds
