"""A stranger's kernels on a real GPU: five branches of an agent, each classed as it is, and a
stencil and a softmax with its eight largest from their first version to an exported champion. As a
script it plays them all or those that are named, and says what became of each and how long it took:
``python -m tests.gpu.test_gpu_written FOLDER [smooth] [heat] [top_k]``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.optimize import loop
from labtools.optimize.bench import TimedOn
from labtools.optimize.family import load_tuned
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.source import AskedBranch
from labtools.optimize.state import LoopState
from labtools.problem import load_rung, parse_problem, repository_root

FAMILIES = repository_root() / "tests" / "families"
LEAST_GAIN = 0.3
"""What the tile saves at least, of the time with it: lanes 64 bytes apart ask for 32 bytes each."""
LIMIT_S = 600
"""From nothing to a tuned champion."""
LAST_ROUND_S = 120
"""After so long no further round of the stencil begins, so that the script ends in minutes."""


@dataclass(frozen=True)
class Played:
    """A loop that came to its end."""

    state: LoopState
    champion: Path  # the exported rung
    seconds: float

    def say(self) -> None:
        """Each branch, each method with its class, each gain and the champion, in plain lines."""
        for kept in self.state.history:
            for one in kept.branches:
                took = "no time" if one.time_us is None else f"{one.time_us:.2f} us"
                print(
                    f"round {kept.round}: {one.point}, {took} {one.failure.partition(chr(10))[0]}"
                )
            found = {one.method: one for one in kept.attribution or ()}
            for method, verdict in (kept.classes or {}).items():
                said = found.get(method)
                effect = f", {said.low:+.1%} to {said.high:+.1%} without it" if said else ""
                print(f"round {kept.round}: {method} is {verdict}{effect}")
            if kept.gain is not None:
                print(f"round {kept.round}: gain {kept.gain:+.1%}")
        print(
            f"{self.state.problem}: {self.state.time_us:.2f} us of {self.state.point}, in "
            f"{self.seconds:.0f} s: {self.champion}",
            flush=True,
        )


def begin(folder: Path, path: Path, on: TimedOn, workload: str | None) -> Any:
    """A loop as ``labtools loop init`` begins it, and its family."""
    family = load_tuned(path)
    problem = parse_problem(workload) if workload else None
    loop.init(folder, family, problem, on, 0, 4, "largest-remainder")
    return family


def end(folder: Path, family: Any, began: float) -> Played:
    """Export the champion, and read it again."""
    written = loop.export(folder, family, folder / "champion")
    load_rung(written[0])
    return Played(LoopFolder.look(folder).state, written[0], time.perf_counter() - began)


def send(
    folder: Path,
    path: Path,
    rounds: Sequence[Sequence[AskedBranch]],
    on: TimedOn = "gpu",
    workload: str | None = None,
) -> Played:
    """A loop of one round for each of some collections of branches."""
    began = time.perf_counter()
    family = begin(folder, path, on, workload)
    with loop.open_loop(folder, family) as opened:
        for branches in rounds:
            opened.branch(branches)
            for step in ("ablate", "check", "update"):
                opened.take(step)
    return end(folder, family, began)


def tune(folder: Path, path: Path, on: TimedOn = "gpu", workload: str | None = None) -> Played:
    """The automatic policy with its defaults, round by round."""
    began = time.perf_counter()
    family = begin(folder, path, on, workload)
    with loop.open_loop(folder, family) as opened:
        for rounds in range(1, loop.MOST_ROUNDS + 1):
            opened.run(max_rounds=rounds)
            if opened.state.stopped or time.perf_counter() - began > LAST_ROUND_S:
                break
    return end(folder, family, began)


def play_smooth(folder: Path, families: Path = FAMILIES, **more: Any) -> Played:
    """One round with the five branches of an agent."""
    beside = families / "smooth"

    def asked(name: str, method: str, **told: Any) -> AskedBranch:
        return AskedBranch(str(beside / f"{name}.cu"), methods=(method,), **told)

    branches = (
        asked("faster", "memory.shared_tile", launch=str(beside / "faster.toml")),
        asked("equal", "compute.reversed_bits", describe={"compute.reversed_bits": "BREV"}),
        asked("wrong", "memory.read_only_loads"),
        asked("dropped", "latency.loads_in_flight"),
        asked(
            "decoy",
            "latency.warp_shuffle",
            without={"latency.warp_shuffle": str(beside / "plain.cu")},
        ),
    )
    return send(folder, beside / "smooth.py", [branches], **more)


def play_heat(folder: Path, families: Path = FAMILIES, **more: Any) -> Played:
    """The stencil, by the automatic policy."""
    return tune(folder, families / "heat" / "heat.py", **more)


def play_top_k(folder: Path, families: Path = FAMILIES, **more: Any) -> Played:
    """The softmax with its eight largest: a warp a row, and then fewer instructions of it."""
    beside = families / "top_k"
    rounds = [
        [
            AskedBranch(
                str(beside / f"{name}.cu"), launch=str(beside / "warp.toml"), methods=(method,)
            )
        ]
        for name, method in (
            ("warp", "latency.warp_shuffle"),
            ("redux", "compute.fewer_instructions"),
        )
    ]
    return send(folder, beside / "top_k.py", rounds, **more)


def hold_smooth(state: LoopState) -> None:
    """Each branch is what it is: the tile is why the fastest is fast, and no other claim is one."""
    current = state.current
    assert [one.point for one in current.branches if one.failure] == ["wrong@1.3"]
    assert state.point == "faster@1.1"
    assert current.gain is not None and current.gain > LEAST_GAIN
    classes = dict(current.classes or {})
    assert classes.pop("memory.shared_tile") == "effective"
    tile = next(one for one in current.attribution or () if one.method == "memory.shared_tile")
    assert tile.low > LEAST_GAIN, "the strided accesses are why it was slow"
    assert classes.pop("compute.reversed_bits") in ("ineffective", "undecided")
    assert set(classes.values()) == {"implementation_failed"}


def hold_tuned(played: Played) -> None:
    """A faster champion than what the loop began with, in time."""
    assert played.state.point != played.state.history[0].start
    assert played.seconds < LIMIT_S


def test_five_branches_of_an_agent_are_classed_as_they_are(tmp_path: Path) -> None:
    hold_smooth(play_smooth(tmp_path / "loop").state)


def test_a_strangers_stencil_is_tuned_in_minutes(tmp_path: Path) -> None:
    hold_tuned(play_heat(tmp_path / "loop"))


def test_a_softmax_with_its_eight_largest_is_tuned_in_minutes(tmp_path: Path) -> None:
    hold_tuned(play_top_k(tmp_path / "loop"))


PLAYS = {"smooth": play_smooth, "heat": play_heat, "top_k": play_top_k}


if __name__ == "__main__":
    into, *named = sys.argv[1:]
    found = {}
    for name in named or PLAYS:
        found[name] = PLAYS[name](Path(into) / name)
        found[name].say()
    for name, played in found.items():
        hold_smooth(played.state) if name == "smooth" else hold_tuned(played)
