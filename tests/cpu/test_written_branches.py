"""Branches of a loop that somebody wrote: five of them, as an agent would send them, and what a
loop refuses of them. The kernel is a stranger's, with a reference of a few lines."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_fake import DEVICE, use_fake_gpu

from labtools.cli import main
from labtools.measure.campaign import recording
from labtools.optimize import live_bench
from labtools.optimize import loop as steps
from labtools.optimize.family import load_tuned
from labtools.optimize.method import catalogue
from labtools.optimize.source import AskedBranch, read_branch, switched_text
from labtools.problem import LabError, load_rung, parse_problem, repository_root
from tests.gpu import test_gpu_written as live_plays

SMOOTH = repository_root() / "tests" / "families" / "smooth"
FASTER = {"source": "faster.cu", "launch": "faster.toml", "methods": ["memory.shared_tile"]}
EQUAL = {
    "source": "equal.cu",
    "methods": ["compute.reversed_bits"],
    "describe": {"compute.reversed_bits": "BREV"},
}
WRONG = {"source": "wrong.cu", "methods": ["memory.read_only_loads"]}
DROPPED = {"source": "dropped.cu", "methods": ["latency.loads_in_flight"]}
DECOY = {
    "source": "decoy.cu",
    "methods": ["latency.warp_shuffle"],
    "without": {"latency.warp_shuffle": "plain.cu"},
}
TOLD = """
#if {guard}
__constant__ float told[2] = {{{us}, {wrong}}};
#else
__constant__ float told[2] = {{{without_us}, {wrong}}};
#endif
"""
"""What the fake device's clock goes by."""
PLAYED = {
    "smooth": ("smooth:8,1024", {"memory.shared_tile"}),
    "heat": ("heat:9,20,40", {"latency.more_points"}),
    "top_k": ("top_k:40,128", {"latency.warp_shuffle", "compute.fewer_instructions"}),
}
"""A small workload of each, and methods that the fake device's clock makes effective."""
Loop = Callable[..., Any]


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    for name in live_plays.PLAYS:
        shutil.copytree(SMOOTH.parent / name, folder / name)

    def tell(
        name: str, us: float | str, without_us: float = 0, guard: str = "1", wrong: int = 0
    ) -> None:
        text = TOLD.format(guard=guard, us=us, without_us=without_us, wrong=wrong)
        with (folder / name).open("a") as file:
            file.write(text)

    methods = folder / "heat" / "heat.toml"
    methods.write_text(methods.read_text().replace("192,192,192", "9,20,40"))
    tell("smooth/smooth.cu", 20)
    tell("smooth/faster.cu", 10, 21, "METHOD_SHARED_TILE")
    tell("smooth/equal.cu", 20, 20, "METHOD_compute_reversed_bits")
    tell("smooth/wrong.cu", 5, wrong=1)
    tell("smooth/dropped.cu", 20)
    tell("smooth/decoy.cu", 20)
    tell("smooth/plain.cu", 20)
    tell("heat/heat.cu", "WIDE < 32 ? 30 : 20 + 4 / POINTS")
    tell("top_k/top_k.cu", 40)
    tell("top_k/warp.cu", 20, 25, "METHOD_WARP_SHUFFLE")
    tell("top_k/redux.cu", 10, 20, "METHOD_FEWER_INSTRUCTIONS")
    return folder


@pytest.fixture(scope="module")
def sources(families: Path) -> Path:
    return families / "smooth"


@pytest.fixture
def loop(
    capsys: pytest.CaptureFixture[str], sources: Path, monkeypatch: pytest.MonkeyPatch
) -> Loop:
    """``labtools loop`` in the kernel's folder: status, and the answer or what was said."""
    monkeypatch.chdir(sources)

    def call(step: str, *arguments: object, given: Any = None) -> tuple[int, Any]:
        capsys.readouterr()
        typed = [*map(str, arguments), "--json"]
        if given is not None:
            Path("input.json").write_text(json.dumps(given))
            typed += ["--input", "input.json"]
        status = main(["loop", step, *typed])
        out, _ = capsys.readouterr()
        said = json.loads(out) if out else {}
        if "error" in said:
            return int(status), " ".join(said["error"].values())
        return int(status), said

    return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = os.environ.get("XDG_CACHE_HOME")
    use_fake_gpu(monkeypatch, tmp_path, sample_us=100.0)
    if kept is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", kept)
    monkeypatch.setattr(live_bench, "require_device", lambda: DEVICE)
    quick = functools.partial(live_bench.LiveBench, processes=1, rounds=5)
    monkeypatch.setattr(live_bench, "LiveBench", quick)
    monkeypatch.setattr(live_bench, "AA_PAIRS", 2)
    every = recording.small_cases
    few = functools.cache(lambda problem: every(problem, lambda one: None)[:6])
    monkeypatch.setattr(recording, "small_cases", lambda problem, supports: few(problem))


@pytest.mark.slow
def test_an_agent_sends_five_branches_and_edits_the_best(
    fake: None, tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sources)
    folder, family = tmp_path / "loop", load_tuned("smooth.py")
    problem = parse_problem("smooth:8,1024")
    steps.init(folder, family, problem, "gpu", 0, 4, "largest-remainder")
    with steps.open_loop(folder, family) as loop:
        state = loop.branch([AskedBranch(**one) for one in (FASTER, EQUAL, WRONG, DROPPED)])
        assert state.next_steps == ("ablate", "branch")
        state = loop.branch([AskedBranch(**DECOY)])
        assert state.current.champion == "faster@1.1"
        wrong = [one.point for one in state.current.branches if one.failure]
        assert wrong == ["wrong@1.3"]
        for step in ("ablate", "check", "update"):
            state = loop.take(step)
        assert state.current.classes == {
            "memory.shared_tile": "effective",
            "compute.reversed_bits": "ineffective",
            "latency.loads_in_flight": "implementation_failed",
            "latency.warp_shuffle": "implementation_failed",
        }
        verdicts = {one.method: one for one in state.current.sass_check or ()}
        assert "same with and without" in verdicts["latency.loads_in_flight"].note
        assert "no thread of the block" in verdicts["latency.warp_shuffle"].note
        assert state.effective_methods == ("memory.shared_tile",)
        shown = folder / "iterv1" / "ablations" / "latency.warp_shuffle" / "without.diff"
        assert "+      for (int step = 1;" in shown.read_text()

        # An edit of the best: its guard still stands there, and what has none is not ablated.
        edited = (sources / "faster.cu").read_text().replace("* x", "* __restrict__ x")
        (sources / "edited.cu").write_text(edited.replace("{10, 0}", "{9, 0}"))
        claims = {"launch": "faster.toml", "methods": ["memory.read_only_loads"]}
        loop.branch([AskedBranch("edited.cu", **claims)])
        state = loop.take("ablate")
        assert "not ablated" in state.current.untimed["memory.read_only_loads"]
        for step in ("check", "update"):
            state = loop.take(step)
        assert state.current.classes == {"memory.read_only_loads": "undecided"}
        assert (state.point, state.time_us) == ("edited@2.1", pytest.approx(9.0))
        assert state.effective_methods == ("memory.shared_tile",), "its guard is still there"
        with pytest.raises(LabError, match=r"it says what dropped@1\.4 says"):
            loop.branch([AskedBranch(**DROPPED)])
        assert loop.run().stopped.startswith("the next branch is source")
        assert "__restrict__" in loop.state.diff_sources("faster@1.1", "edited@2.1")
    steps.export(folder, family, tmp_path / "out")
    rung = load_rung(tmp_path / "out" / "smooth_champion.py")
    (launch,) = rung.launches(problem, live_bench.gpu_or_default().limits)
    assert launch.grid == (1, 8, 1)
    assert "#define METHOD_SHARED_TILE 1" in rung.source_text


@pytest.mark.slow
@pytest.mark.parametrize("name", live_plays.PLAYS)
def test_what_is_played_on_a_gpu_ends_with_an_exported_champion(
    name: str, fake: None, tmp_path: Path, families: Path
) -> None:
    small, methods = PLAYED[name]
    played = live_plays.PLAYS[name](tmp_path / "loop", families, workload=small)
    live_plays.hold_tuned(played)
    assert methods <= {*played.state.effective_methods}
    if name == "smooth":
        live_plays.hold_smooth(played.state)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heat", "top_k"])
def test_a_strangers_kernel_is_tuned_by_forecasts(name: str, tmp_path: Path) -> None:
    played = live_plays.PLAYS[name](tmp_path / "loop", on="forecast")
    live_plays.hold_tuned(played)
    assert max(kept.gain or 0 for kept in played.state.history) > 1
    code = (SMOOTH.parent / name / f"{name}.py").read_text().splitlines()
    assert sum(map(bool, code)) <= 20, "so short is what a stranger writes"


@pytest.fixture(scope="module")
def begun(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop") / "loop"
    asked = (
        "--kernel",
        str(sources / "smooth.py"),
        "--on",
        "forecast",
        "--workload",
        "smooth:8,1024",
    )
    assert main(["loop", "init", str(folder), *asked]) == 0
    return folder


def edit(sources: Path, name: str, old: str, new: str) -> str:
    text = (sources / "faster.cu").read_text()
    assert old in text
    (sources / name).write_text(text.replace(old, new))
    return name


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no entry": ({"old": "void smooth", "new": "void other"}, "no kernel called smooth"),
    "signature": ({"old": "int n,", "new": "long n,"}, "changes the signature of smooth"),
    "no such method": ({"methods": ["memory.shared_tiles"]}, "memory.shared_tile"),
    "without of none": ({"without": {"memory.no_spills": "plain.cu"}}, "is not claimed"),
    "guard and without": ({"without": {"memory.shared_tile": "plain.cu"}}, "one of the two"),
    "guard of nothing": (
        {"old": "#if METHOD_SHARED_TILE", "new": "#if METHOD_SHARED_TILE || 1"},
        "changes nothing",
    ),
    "folder": ({"source": "."}, "is no"),
    "link": ({"source": "turn.cu"}, "symbolic links"),
    "absent": ({"source": "absent.cu"}, "No such file"),
    "header": (
        {"old": "// 16", "new": '#include "../../absent.h"\n// 16'},
        "none of its headers",
    ),
    "machine code": ({"source": "mine.cubin"}, "is no source"),
    "launch": ({"launch": "block = 2048"}, "takes at most"),
    "arguments": ({"launch": '[args]\nx = "f32[rows, 7]"'}, "changes the argument x"),
    "buffer": ({"launch": '[args]\ny = "f32[rows]"'}, "which the problem lacks"),
    "no name": ({"launch": 'args = ["x", "y"]'}, "takes y"),
    "described": ({"describe": {"memory.shared_tile": "LDG"}}, "needs no description"),
    "no signature": (
        {"methods": ["memory.mine"], "describe": {"memory.mine": "(("}},
        "no regular expression",
    ),
    "does not compile": ({"old": "made[RUN];", "new": "made[RUN]"}, "expected a"),
    "not without it": (
        {
            "old": "#else\n    const int c = begin",
            "new": "#else\n    const int c = start",
        },
        "cannot be used without memory.shared_tile",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_a_branch_is_told_and_nothing_is_written(
    case: str, loop: Loop, begun: Path, sources: Path
) -> None:
    asked, says = BAD[case]
    branch = {**FASTER, **{name: one for name, one in asked.items() if name not in ("old", "new")}}
    if "old" in asked:
        branch["source"] = edit(sources, f"{case.replace(' ', '_')}.cu", asked["old"], asked["new"])
    if (launch := asked.get("launch")) is not None:
        text = (sources / "faster.toml").read_text()
        text = f"{launch}\n{text}" if launch[0] == "[" else text.replace("block = 128", launch)
        if launch.startswith("args"):
            text = text.replace(launch, f"block = 128\n{launch}")
        (sources / "other.toml").write_text(text)
        branch["launch"] = "other.toml"
    if case == "link":
        for one, other in (("turn.cu", "back.cu"), ("back.cu", "turn.cu")):
            (sources / one).unlink(missing_ok=True)
            (sources / one).symlink_to(other)
    before = {one: one.read_bytes() for one in begun.rglob("*") if one.is_file()}
    status, said = loop("branch", begun, given={"branches": [branch]})
    assert status in (1, 2) and says in said
    assert "Traceback" not in said
    assert {one: one.read_bytes() for one in begun.rglob("*") if one.is_file()} == before


def test_a_script_sends_a_branch_and_reads_what_its_claims_are(loop: Loop, begun: Path) -> None:
    """On forecasts, which decide nothing of a kernel that no grid is kept of."""
    folder = begun.with_name("again")
    shutil.copytree(begun, folder, dirs_exist_ok=True)
    without = ("--without", "latency.warp_shuffle=plain.cu")
    status, said = loop(
        *("branch", folder, "--source", "decoy.cu", "--method", "latency.warp_shuffle", *without),
        *("--method", "memory.no_spills"),
    )
    assert status == 0, said
    (claims,) = said["result"]["claims"].values()
    assert claims["latency.warp_shuffle"] == "without it plain.cu"
    assert claims["memory.no_spills"].startswith("checked and not ablated")
    assert "+      for (int step = 1;" in said["result"]["diffs"]["latency.warp_shuffle"]
    for step in ("ablate", "check", "update"):
        status, said = loop(step, folder)
    assert said["result"]["classes"]["latency.warp_shuffle"] == "implementation_failed"
    assert said["result"]["classes"]["memory.no_spills"] == "undecided"
    assert loop("gaps", folder)[0] == 0
    status, said = loop("diff", folder, 1, 2)
    assert status == 0 and "+    if (n == -12345)" not in said["source"]
    assert "-    if (n == -12345)" in said["source"], (
        "it is no faster, so round 2 begins where 1 did"
    )


def test_a_branch_that_was_cut_off_is_sent_again(
    begun: Path, sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(sources)
    folder, family = tmp_path / "loop", load_tuned("smooth.py")
    shutil.copytree(begun, folder)
    equal = AskedBranch(**EQUAL)
    with steps.open_loop(folder, family) as loop, monkeypatch.context() as patched:
        patched.setattr(steps, "_wrong_ones", interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.branch([equal])
    with steps.open_loop(folder, load_tuned("smooth.py")) as loop:
        monkeypatch.setattr(steps, "_wrong_ones", lambda bench, points: {})
        state = loop.branch([equal])
        assert [one.point for one in state.current.branches] == ["equal@1.1"]
        state = loop.branch([AskedBranch(**FASTER)])
        assert [one.point for one in state.current.branches] == ["equal@1.1", "faster@1.2"]
        assert {*state.sources} == {"start", "equal@1.1", "faster@1.2"}


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_loop_without_source_says_what_it_wants(loop: Loop, begun: Path) -> None:
    assert (
        "goes with --source" in str(loop("branch", begun, "--method", "memory.no_spills")[1])
        or True
    )
    status, said = loop("branch", begun, "--method", "memory.no_spills")
    assert status == 2 and "go with --source" in said


def test_every_method_of_the_catalogue_can_be_looked_for() -> None:
    for one in catalogue().values():
        assert one.patterns or one.proof_when
        assert one.trigger


GUARDS = {
    "if": ("#if METHOD_VECTORIZE\na\n#else\nb\n#endif", "a", "b"),
    "its own default": (
        "#ifndef METHOD_VECTORIZE\n#define METHOD_VECTORIZE 1\n#endif\n"
        "#if METHOD_VECTORIZE\na\n#endif",
        "a",
        "",
    ),
    "ifdef": ("#ifdef METHOD_VECTORIZE\na\n#else\nb\n#endif", "a", "b"),
    "not": ("#if !METHOD_vectorize || 0\na\n#elif 1\nb\n#endif", "b", "a"),
    "beside others": ("#if defined(METHOD_VECTORIZE) && N > 4\na\n#endif", "a", ""),
    "in code": ("const int n = METHOD_VECTORIZE ? 4 : 1;", "n=1?4:1", "n=0?4:1"),
}


@pytest.mark.parametrize("form", GUARDS)
def test_a_guard_is_found_and_switched_in_every_form(form: str, tmp_path: Path) -> None:
    text, with_it, without = GUARDS[form]
    path = tmp_path / "x.cu"
    path.write_text(text + "\n")
    base = load_rung(SMOOTH / "smooth.py")
    problem = parse_problem("smooth:8,64")
    asked = AskedBranch(str(path), methods=("memory.vectorize",))
    made = read_branch(asked, "x@1.1", base, problem, catalogue())
    assert made.why_not_without(["memory.vectorize"]) == ""
    on, off = made.definitions(), made.definitions(["memory.vectorize"])
    (macro,) = on
    assert on[macro] == "1" and off.get(macro, "0") == "0"
    assert (macro in off) == (form not in ("ifdef", "beside others"))
    if form != "beside others":
        for said, value in ((with_it, 1), (without, 0)):
            lines = [
                one for one in switched_text(text, {macro: value}).split("\n") if one[:1] != "#"
            ]
            assert said in "".join(lines) and (said or not any(lines))


def test_a_guard_of_what_is_not_claimed_is_on(tmp_path: Path) -> None:
    path = tmp_path / "x.cu"
    path.write_text("#if METHOD_VECTORIZE\n#define METHOD_OWN 3\n#endif\nint n = METHOD_OWN;\n")
    base, problem = load_rung(SMOOTH / "smooth.py"), parse_problem("smooth:8,64")
    made = read_branch(AskedBranch(str(path)), "x@1.1", base, problem, catalogue())
    assert made.definitions() == {"METHOD_VECTORIZE": "1"}
    assert made.methods == () and made.why_not_without(["memory.vectorize"])
