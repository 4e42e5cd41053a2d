"""Branches of source on a real GPU: five of an agent, each classed as it is. As a script
it plays them, and says what became of each: ``python -m tests.gpu.test_gpu_written FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from labtools.optimize import loop
from labtools.optimize.family import load_tuned
from labtools.optimize.source import AskedBranch
from labtools.optimize.state import LoopState
from labtools.problem import repository_root

SMOOTH = repository_root() / "tests" / "families" / "smooth"


LEAST_GAIN = 0.3
"""What the tile saves at least, of the time with it: lanes 64 bytes apart ask for 32 bytes each."""


def asked(name: str, *methods: str, **more: object) -> AskedBranch:
    """One of the branches beside the kernel; paths of ``more`` are beside it too."""
    return AskedBranch(str(SMOOTH / f"{name}.cu"), methods=methods, **more)  # type: ignore[arg-type]


BRANCHES = (
    asked("faster", "memory.shared_tile", launch=str(SMOOTH / "faster.toml")),
    asked("equal", "compute.reversed_bits", describe={"compute.reversed_bits": "BREV"}),
    asked("wrong", "memory.read_only_loads"),
    asked("dropped", "latency.loads_in_flight"),
    asked(
        "decoy",
        "latency.warp_shuffle",
        without={"latency.warp_shuffle": str(SMOOTH / "plain.cu")},
    ),
)


def play(folder: Path) -> LoopState:
    """One round with the five, on this machine's GPU."""
    family = load_tuned(SMOOTH / "smooth.py")
    loop.init(folder, family, None, "gpu", 0, 4, "largest-remainder")
    with loop.open_loop(folder, family) as opened:
        opened.branch(BRANCHES)
        for step in ("ablate", "check", "update"):
            state = opened.take(step)
    return state


def hold(state: LoopState) -> None:
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


def test_five_branches_of_an_agent_are_classed_as_they_are(tmp_path: Path) -> None:
    hold(play(tmp_path / "loop"))


if __name__ == "__main__":
    found = play(Path(sys.argv[1]))
    for one in found.current.branches:
        print(one.point, f"{one.time_us} us", one.failure.partition("\n")[0])
    for tried in found.current.attribution or ():
        print(tried.method, f"{tried.low:+.1%} to {tried.high:+.1%} without it")
    for method, verdict in (found.current.classes or {}).items():
        print(method, verdict)
    hold(found)
