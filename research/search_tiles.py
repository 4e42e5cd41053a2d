"""Time derived tiles beside those of a search, on drawn problems.

    python -m research.search_tiles --out FOLDER                  the table, whole
    python -m research.search_tiles --out FOLDER --again TABLE    what a changed derivation asks for
    python -m research.search_tiles --out FOLDER --seed 15 --count 16 --op prefill --op gemm

Run on a GPU; `labtools.record.tile_search` reads the table. Rows that ``--again`` has no time left
for say which tile is the derived one now; ``--seconds 0`` does that alone, without a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from labtools.derive import derive
from labtools.measure.gpu.job import require_device
from labtools.predict import DEFAULT_GPU, limits_of
from labtools.problem import Gemm, LabError, Prefill, Problem, Workload, load_rung, parse_problem
from labtools.record import Record
from labtools.record.tile_search import (
    WITHIN,
    SearchedProblem,
    TileSearch,
    TimedTile,
    read_search,
    search_path,
    text_hash,
)
from research.compare_layouts import LayoutBench, TriedLayout, Wanted

DRAW_SEED = 14
COUNT = 40
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
        *((160, 1, 2, 0), (176, 1, 2, 0), (160, 2, 2, 1)),
    )
)


def drawn_problems(
    count: int = COUNT, seed: int = DRAW_SEED, operations: Sequence[str] = ()
) -> list[Problem]:
    """Problems of the operations in turn, all of `SEARCHED` where none is named, of sizes that
    models have and of sizes between.
    """
    rng = np.random.default_rng([seed, 14])
    draws = itertools.cycle([SEARCHED[name].draw for name in operations or SEARCHED])
    made: list[Problem] = []
    draw = next(draws)
    while len(made) < count:
        one = draw(rng)
        if one.minimal_bytes < MOST_MOVED_BYTES and one.flops < MOST_FLOPS and one not in made:
            made.append(one)
            draw = next(draws)
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


@dataclass(frozen=True)
class Searched:
    """How an operation is searched."""

    draw: Callable[[np.random.Generator], Problem]
    others: Callable[[Any], Sequence[Mapping[str, int]]]  # knobs beside those of a design


SEARCHED = {
    "decode": Searched(_draw_decode, lambda design: DECODE_TRIED),
    "prefill": Searched(_draw_prefill, lambda design: PREFILL_TRIED),
    "gemm": Searched(
        _draw_gemm, lambda design: [one.knobs for one in design.hopper.near[:MOST_TRIED]]
    ),
}


@cache
def _derived(problem: Problem) -> Any:
    return derive(problem, DEFAULT_GPU, quick=True)


def derived_tile(problem: Problem) -> Wanted:
    """The kernel and the knobs that the derivation specifies on an NVIDIA H200."""
    specified: Wanted | None = _derived(problem).specified
    if specified is None:
        raise LabError(f"No kernel is specified for {problem}.", "none is shipped", "others")
    return specified


def tried_tiles(
    problem: Problem, derived: Wanted, before: Sequence[TimedTile] = ()
) -> list[Wanted]:
    """What is timed: the derived tile, then others of the same kernel, among them those of an
    earlier search.
    """
    kernel = derived[0]
    others = SEARCHED[problem.operation].others(_derived(problem))
    rung = load_rung(kernel)
    chosen = [derived]
    for one in (*(tile.knobs for tile in before if tile.kernel == kernel), *others):
        if rung.resolve_knobs(one) not in (rung.resolve_knobs(knobs) for _, knobs in chosen):
            chosen.append((kernel, dict(one)))
    return chosen


def search(
    bench: LayoutBench, wanted: Sequence[tuple[Problem, Sequence[Wanted]]], until: float
) -> tuple[SearchedProblem, ...]:
    """Time each problem's tiles until the monotonic clock says so, and print how the first, the
    derived one, stands.
    """
    compiling = [bench.compile(*one) for one in wanted]
    found: list[SearchedProblem] = []
    for (problem, tiles), pending in zip(wanted, compiling, strict=True):
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


def rederived(table: TileSearch) -> tuple[dict[str, SearchedProblem], list[Problem]]:
    """The rows of a table by the problem, each with the tile that is derived now where that has a
    time; and the problems whose derived tile is another, those first that have no time of it.
    """
    if table.stale:
        raise LabError(
            "Rows of this table cannot be kept.",
            f"the text of {', '.join(table.stale)} is another than was timed",
            "a whole search, without --again",
        )
    kept: dict[str, SearchedProblem] = {}
    missing: list[Problem] = []
    changed: list[Problem] = []
    for row in table.problems:
        problem = parse_problem(row.problem)
        known = row.deriving(*derived_tile(problem))
        kept[row.problem] = known or row
        if known != row:
            (missing if known is None else changed).append(problem)
    return kept, [*missing, *changed]


def merged(table: TileSearch, kept: Mapping[str, SearchedProblem], new: TileSearch) -> TileSearch:
    """A table with new rows in place of old ones, each with its own date and driver. A row whose
    problem got no new time is that of ``kept``. They must be of one GPU and of the same kernels.
    """
    changed = [name for name in new.sources if table.sources.get(name) != new.sources[name]]
    if new.gpu != table.gpu or changed:
        raise LabError(
            "The new rows do not belong into this table.",
            f"they are of {new.gpu}, the table is of {table.gpu}; other texts: {changed}",
            "a whole search, without --again",
        )
    rows = {
        one.problem: dataclasses.replace(one, date=new.date, driver=new.driver)
        for one in new.problems
    }
    every = tuple(rows.get(one.problem, kept[one.problem]) for one in table.problems)
    return dataclasses.replace(table, problems=every)


def write_table(table: TileSearch, folder: Path, seed: int) -> Path:
    """Write a table under the name that its place has."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / search_path(DEFAULT_GPU, None if seed == DRAW_SEED else seed).name
    path.write_text(json.dumps(dataclasses.asdict(table), indent=1) + "\n", "utf-8")
    near, far = (len(table.problems) - len(table.misses(within)) for within in WITHIN)
    print(
        f"{len(table.problems)} problems, {near} within {WITHIN[0]:.2f} and {far} within "
        f"{WITHIN[1]:.2f} of the best; written: {path}"
    )
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    parser.add_argument("--seconds", type=float, default=280.0, help="no problem starts later")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=DRAW_SEED, help="of the drawn problems")
    parser.add_argument("--count", type=int, default=COUNT, help="problems that are drawn")
    parser.add_argument("--op", action="append", choices=tuple(SEARCHED), help="draw these alone")
    parser.add_argument("--again", type=Path, help="a table: time what is derived otherwise now")
    parser.add_argument("--problem", action="append", help="with --again: time this row too")
    chosen = parser.parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    drawn_anew = (chosen.seed, chosen.count, chosen.op) != (DRAW_SEED, COUNT, None)
    if chosen.again and drawn_anew:
        parser.error("--again has the problems of its table: leave out --seed, --count and --op")
    if chosen.problem and not chosen.again:
        parser.error("--problem names a row of the table of --again")
    if chosen.seed == DRAW_SEED and drawn_anew:
        parser.error("a part of the table's own draw is no table: give another --seed")
    try:
        if not chosen.again:
            problems = drawn_problems(chosen.count, chosen.seed, chosen.op or ())
            write_table(_measured(chosen, problems, until), chosen.out, chosen.seed)
            return 0
        table = read_search(chosen.again)
        kept, anew = rederived(table)
        print(f"{len(anew)} of {len(kept)} problems have another derived tile now")
        before = {one.problem: one for one in table.problems}
        asked = [parse_problem(one) for one in chosen.problem or ()]
        unknown = [one.short() for one in asked if one.short() not in before]
        if unknown:
            raise LabError(
                f"This table has no row of {', '.join(unknown)}.",
                "only its own problems are timed again",
                "another --seed, for problems of another draw",
            )
        anew = list(dict.fromkeys((*anew, *asked)))
        new = dataclasses.replace(table, problems=())
        if anew and chosen.seconds > 0:
            new = _measured(chosen, anew, until, before)
        write_table(merged(table, kept, new), chosen.out, table.seed)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _measured(
    chosen: argparse.Namespace,
    problems: Sequence[Problem],
    until: float,
    before: Mapping[str, SearchedProblem] | None = None,
) -> TileSearch:
    """Beside the best and derived tiles of an earlier search, if there was one."""
    device = require_device()
    rows = [(before or {}).get(one.short()) for one in problems]
    wanted = [
        (one, tried_tiles(one, derived_tile(one), (row.best, row.derived) if row else ()))
        for one, row in zip(problems, rows, strict=True)
    ]
    with LayoutBench(limits_of(device), chosen.processes, chosen.rounds) as bench:
        found = search(bench, wanted, until)
    kernels = {tile.kernel for one in found for tile in (one.derived, *one.others)}
    return TileSearch(
        gpu=device.name,
        driver=device.driver_version or "",
        date=datetime.now(UTC).date().isoformat(),
        seed=chosen.seed,
        sources={name: text_hash(name) for name in sorted(kernels)},
        problems=found,
    )


if __name__ == "__main__":
    raise SystemExit(main())
