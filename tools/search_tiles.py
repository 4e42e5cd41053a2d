"""Time derived tiles beside those of a search, on drawn problems.

    python -m tools.search_tiles --out FOLDER

Run on a GPU. Of each problem the derived tile and others of the same kernel are timed in the same
processes, and every one is checked against the oracle as all timing does. What comes of it is the
table that `labtools.record.tile_search` reads.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from labtools.measure.gpu.job import require_device
from labtools.predict import DEFAULT_GPU, limits_of
from labtools.predict.inversion.product import TileDesign, derive_product
from labtools.predict.prefill.inversion import derive_prefill
from labtools.problem import Gemm, LabError, Prefill, Problem, Workload, load_rung
from labtools.record import Record
from labtools.record.tile_search import (
    SearchedProblem,
    TileSearch,
    TimedTile,
    search_path,
    text_hash,
)
from tools.compare_layouts import LayoutBench, TriedLayout, Wanted

DRAW_SEED = 14
COUNT = 40
DECODE_KERNEL = "r09_inverted"
MOST_TRIED = 9
"""Other tiles of a product: the model's best of as many shapes."""
DRAWN_HEADS = ((8, 8), (16, 4), (32, 8), (32, 32), (16, 2))
"""Query heads and KV heads of a drawn problem of attention."""
MOST_MOVED_BYTES = 600_000_000
MOST_FLOPS = 1.2e12
DECODE_TRIED = (
    *({"warps": warps, "stages": stages} for warps, stages in ((8, 2), (4, 2), (4, 4), (2, 5))),
    *({"cluster": 1, "split": split} for split in (1, 2, 4, 8, 16)),
)
PREFILL_TRIED = tuple(
    {"block_n": keys, "warpgroups": groups, "stages": stages, "pingpong": turns}
    for keys, groups, stages, turns in (
        *((keys, groups, 2, int(groups > 1)) for groups in (1, 2, 3) for keys in (64, 96, 128)),
        *((128, 2, 2, 0), (176, 2, 2, 1), (80, 1, 2, 0), (80, 2, 2, 1), (128, 1, 1, 0)),
    )
)


def drawn_problems(count: int = COUNT, seed: int = DRAW_SEED) -> list[Problem]:
    """Decode, prefill and products in turn, of sizes that models have and of sizes between."""
    rng = np.random.default_rng([seed, 14])
    made: list[Problem] = []
    while len(made) < count:
        draw = (_draw_decode, _draw_prefill, _draw_gemm)[len(made) % 3]
        one = draw(rng)
        if one.minimal_bytes < MOST_MOVED_BYTES and one.flops < MOST_FLOPS and one not in made:
            made.append(one)
    return made


def _between(rng: np.random.Generator, low: int, high: int, step: int = 1) -> int:
    """Log-uniform, and in half of the cases a power of two."""
    value = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    if rng.integers(2):
        return int(2 ** round(np.log2(value)))
    return max(step, round(value / step) * step)


def _draw_decode(rng: np.random.Generator) -> Workload:
    heads = DRAWN_HEADS[rng.integers(len(DRAWN_HEADS))]
    return Workload(int(2 ** rng.integers(0, 7)), *heads, _between(rng, 512, 65536), _dims(rng))


def _draw_prefill(rng: np.random.Generator) -> Prefill:
    heads = DRAWN_HEADS[rng.integers(len(DRAWN_HEADS))]
    batch, causal = int(2 ** rng.integers(0, 4)), bool(rng.integers(2))
    return Prefill(batch, *heads, _between(rng, 256, 8192), _dims(rng), causal=causal)


def _draw_gemm(rng: np.random.Generator) -> Gemm:
    return Gemm(_between(rng, 1, 8192), _between(rng, 512, 8192, 8), _between(rng, 512, 8192, 8))


def _dims(rng: np.random.Generator) -> int:
    return int(rng.choice((64, 128)))


def derived_tile(problem: Problem) -> Wanted:
    """The kernel and the knobs that the derivation specifies on an NVIDIA H200.

    Raises:
        LabError: it specifies none.
    """
    if isinstance(problem, Workload):
        return DECODE_KERNEL, {}  # its layout is the derivation's, by the rule that both ask
    made = (
        derive_prefill(problem, DEFAULT_GPU, ask_compiler=False)
        if isinstance(problem, Prefill)
        else _derived_product(problem)
    )
    if made.specified is None:
        raise LabError(f"No kernel is specified for {problem}.", "none is shipped", "others")
    return made.specified


@cache
def _derived_product(problem: Problem) -> TileDesign:
    text = problem.short()
    return derive_product("gemm", text, DEFAULT_GPU, ask_compiler=False, ask_library=False)


def tried_tiles(problem: Problem, derived: Wanted) -> list[Wanted]:
    """What is timed: the derived tile, then others of the same kernel."""
    kernel = derived[0]
    others: Sequence[Mapping[str, int]]
    if isinstance(problem, Workload):
        others = DECODE_TRIED
    elif isinstance(problem, Prefill):
        others = PREFILL_TRIED
    else:
        design = _derived_product(problem)
        assert design.hopper is not None
        others = [one.knobs for one in design.hopper.near[:MOST_TRIED]]
    rung = load_rung(kernel)
    chosen = [derived]
    for one in others:
        if rung.resolve_knobs(one) not in (rung.resolve_knobs(knobs) for _, knobs in chosen):
            chosen.append((kernel, dict(one)))
    return chosen


def search(
    bench: LayoutBench, problems: Sequence[Problem], until: float
) -> tuple[SearchedProblem, ...]:
    """Time every problem's tiles while there is time, and print how the derived one stands."""
    wanted = [tried_tiles(one, derived_tile(one)) for one in problems]
    compiling = [bench.compile(one, tiles) for one, tiles in zip(problems, wanted, strict=True)]
    found: list[SearchedProblem] = []
    for problem, tiles, pending in zip(problems, wanted, compiling, strict=True):
        if time.monotonic() > until:
            print(f"{problem} and what follows it: no time was left")
            break
        timed = bench.time(problem, tiles, pending)
        failures = {f"{one.rung} {one.named}": one.failure for one in timed if one.failure}
        good = [_timed(one, one.record) for one in timed if one.record is not None]
        if timed[0].record is None:
            print(f"{problem}: the derived tile has no time: {timed[0].failure[:300]}", flush=True)
            continue
        one = SearchedProblem(problem.short(), good[0], tuple(good[1:]), failures)
        found.append(one)
        print(
            f"{one.problem:32} derived {one.derived.median_us:9.2f} us, "
            f"{one.ratio:.3f} x the best, {one.best.kernel} {one.best.knobs}",
            flush=True,
        )
    return tuple(found)


def _timed(tried: TriedLayout, record: Record) -> TimedTile:
    samples = record.samples.processes if record.samples else ()
    return TimedTile(tried.rung, tried.knobs, tuple(us for one in samples for us in one.us))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    parser.add_argument("--seconds", type=float, default=280.0, help="no problem starts later")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    try:
        device = require_device()
        problems = drawn_problems()
        with LayoutBench(limits_of(device), chosen.processes, chosen.rounds) as bench:
            found = search(bench, problems, until)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    kernels = {tile.kernel for one in found for tile in (one.derived, *one.others)}
    table = TileSearch(
        gpu=device.name,
        driver=device.driver_version or "",
        date=datetime.now(UTC).date().isoformat(),
        seed=DRAW_SEED,
        sources={name: text_hash(name) for name in sorted(kernels)},
        problems=found,
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / search_path(DEFAULT_GPU).name
    path.write_text(json.dumps(dataclasses.asdict(table), indent=1) + "\n", "utf-8")
    near = sum(one.ratio <= 1.10 for one in found)
    print(f"{len(found)} problems, {near} within 1.10 of the best; written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
