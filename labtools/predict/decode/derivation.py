"""The parts of a derivation: numbers with their sources, steps with what they reject, a design."""

from __future__ import annotations

from dataclasses import dataclass

from labtools.problem import Workload


@dataclass(frozen=True)
class Figure:
    """One number of a derivation.

    Attributes:
        name: what it is.
        value: the number.
        unit: ``bytes``, ``us``, ``GB/s``, ``B/cycle``, ``cycles``, ... or an empty string.
        source: where it comes from: a data sheet, a microbenchmark, a formula of this step.
    """

    name: str
    value: float
    unit: str
    source: str = ""


@dataclass(frozen=True)
class Rejected:
    """An alternative, and the number that speaks against it.

    Attributes:
        choice: the alternative.
        value, unit: the number.
        why: what the number is, and what it would have to be.
    """

    choice: str
    value: float
    unit: str
    why: str


@dataclass(frozen=True)
class DesignStep:
    """One step from the limits to the kernel.

    Attributes:
        name: short, for tables and tests: ``bytes``, ``arithmetic``, ``in_flight``, ``tile``,
            ``warps``, ``stages``, ``alignment``, ``residency``, ``division``, ``time``.
        question: what is decided.
        inputs: numbers that go in.
        formula: how they are joined, in words and symbols.
        results: numbers that come out; the first is the step's answer.
        decision: what follows for the kernel, one sentence.
        breaks: what would make it wrong.
        rejected: alternatives with their numbers.
    """

    name: str
    question: str
    inputs: tuple[Figure, ...]
    formula: str
    results: tuple[Figure, ...]
    decision: str
    breaks: str
    rejected: tuple[Rejected, ...] = ()

    @property
    def answer(self) -> Figure:
        """The first result."""
        return self.results[0]

    def result(self, name: str) -> float:
        """A result's value by name.

        Raises:
            KeyError: the step has no such result.
        """
        for one in self.results:
            if one.name == name:
                return one.value
        raise KeyError(name)


@dataclass(frozen=True)
class Design:
    """A decode kernel, derived.

    Attributes:
        workload: what is computed.
        gpu: short name of the GPU.
        calibrated: its latencies and rates were measured by this project.
        bits: of an element of K and V in memory.
        arithmetic: ``tensor cores`` or ``CUDA cores``.
        group_columns: columns of the product that heads fill, and columns that it has.
        tile_keys: keys that a warp takes at a time.
        tile_bytes: of K and V together, one tile.
        stages: tiles of a warp's ring in the launch; step ``stages`` has what is asked for.
        warps_per_sm: that step ``warps`` asks for; the launch may have fewer.
        warps: of a block.
        blocks_per_sm: resident at a time, of the launch; step ``residency`` has what fits.
        smem_bytes: of a block.
        registers: of a thread, estimated.
        layout: of rows in shared memory, see `labtools.predict.banks`.
        cluster: blocks that join through each other's shared memory, 1 for none.
        parts: most blocks that share one (sequence, KV head).
        blocks: of the grid.
        time_us: expected, the sum of ``time_stack``.
        time_stack: what it is made of, microseconds.
        steps: the derivation.
    """

    workload: Workload
    gpu: str
    calibrated: bool
    bits: int
    arithmetic: str
    group_columns: tuple[int, int]
    tile_keys: int
    tile_bytes: int
    stages: int
    warps_per_sm: int
    warps: int
    blocks_per_sm: int
    smem_bytes: int
    registers: int
    layout: str
    cluster: int
    parts: int
    blocks: int
    time_us: float
    time_stack: tuple[Figure, ...]
    steps: tuple[DesignStep, ...]

    def step(self, name: str) -> DesignStep:
        """A step by name.

        Raises:
            KeyError: there is no such step.
        """
        for one in self.steps:
            if one.name == name:
                return one
        raise KeyError(name)
