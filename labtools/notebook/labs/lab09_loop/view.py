"""The game of the loop as a widget: the picture looks up what Python wrote down once."""

from __future__ import annotations

from typing import Any

import traitlets

from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import load_family
from labtools.optimize.grid import grid_path
from labtools.optimize.searches import Searches, read_searches, searches_path
from labtools.record.trust import hash_file
from labtools.toolchain.cache import code_digest, kept

from ...bench import View
from ...packing import pack_tables
from ..lab08_ablation.view import recorded_bench
from .game import game_tables

_CODE = code_digest(
    "problem", "toolchain", "record", "predict", "optimize", "notebook/labs/lab09_loop"
)


_BEFORE = ["../lab08_ablation/effects", "play", "parts"]


class LoopGame(View, script="view", before=_BEFORE, guesses=True):
    """The game, which plays where no kernel is too: the ``moves`` that were played, as text, and
    the time of each run, microseconds. Of its ``plain`` tables the browser gets the packed ones.
    """

    tables = traitlets.Dict().tag(sync=True)
    moves = traitlets.Unicode("").tag(sync=True)
    runs_us = traitlets.List(traitlets.Float()).tag(sync=True)

    def __init__(self, plain: dict[str, Any]) -> None:
        self.plain = plain
        super().__init__(tables=pack_tables(plain))


def read_game(rung: str = "tunable") -> tuple[RecordedBench, Searches]:
    """The recorded grid of a shipped family at its headline, and the searches played on it."""
    bench = recorded_bench(load_family(rung))
    return bench, read_searches(searches_path(rung, bench.gpu))


def open_game(bench: RecordedBench, searches: Searches) -> LoopGame:
    """The game on a recorded grid, from its start."""
    grid = bench.grid.plan
    recorded = [grid_path(grid.rung, grid.gpu), searches_path(grid.rung, grid.gpu)]
    files = [*recorded, bench.family.path, bench.family.path.with_suffix(".py")]
    hashes = [hash_file(path.read_bytes()) for path in files]
    parts = (_CODE, str(bench.problem), *hashes)
    return LoopGame(kept("game", parts, lambda: game_tables(bench, searches)))
