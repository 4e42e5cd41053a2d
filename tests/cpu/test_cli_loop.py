"""``labtools loop`` and ``labtools ablate`` as a script meets them; the steps' numbers are made up.

The loop of `loop_play` stands in for the library's, on the family that a stranger might bring.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import loop_play
import pytest

from labtools.cli import main
from labtools.optimize import loop as steps
from labtools.optimize.budget import Budget
from labtools.optimize.events import BudgetDone, LoopStopped
from labtools.optimize.family import Family
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.pick import Retry
from labtools.optimize.state import STEPS, FoundPoint, LoopResult, LoopState
from labtools.problem import LabError, Problem, repository_root

FAMILY = str(repository_root() / "tests" / "families" / "row_scale.py")


class PlayedLoop:
    """A loop whose numbers are made up; ``asked`` holds what its steps were given."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    @contextlib.contextmanager
    def open_loop(self, path: Path, family: Family, progress: Any) -> Iterator[PlayedLoop]:
        with LoopFolder.opened(path) as self.folder:
            yield self

    def init(self, folder: Path, family: Family, workload: Problem | None, *more: Any) -> None:
        named = dict(zip(("on", "seed", "branches", "rule"), more, strict=True))
        path, problem = str(family.path.with_suffix(".py")), workload or family.workloads[0]
        with LoopFolder.create(folder, loop_play.begin(family=path, workload=problem, **named)):
            pass

    @property
    def state(self) -> LoopState:
        return self.folder.state

    def take(self, step: str, **given: Any) -> LoopState:
        self.asked.append((step, given))
        self.folder.require(step)
        if step == "budget":
            rule = given["rule"] or self.state.rule
            slots = Budget(1, 1, 1, rule, "made up")
            return self.folder.keep(BudgetDone(self.state.round, slots))
        loop_play.step(self.folder, self.state.round, lambda text: None)
        return self.state

    def run(self, max_rounds: int, max_runs: int | None) -> LoopResult:
        while not self.state.stopped and self.state.rounds < max_rounds:
            loop_play.step(self.folder, self.state.round, lambda text: None)
        if not self.state.stopped:
            self.folder.keep(LoopStopped(self.state.round, "enough rounds"))
        state = self.state
        assert state.time_us is not None
        found = FoundPoint(state.point, state.knobs[state.point], state.time_us)
        best = FoundPoint("best", {"split": 9}, state.time_us / 1.02)
        leading = FoundPoint("leading", {"split": 8}, state.time_us / 1.01) if max_runs else best
        return LoopResult(found, state.rounds, state.runs, state.stopped, best, leading)

    def export(self, folder: Path, family: Family, target: Path) -> tuple[Path, ...]:
        target.mkdir()
        (target / "champion.cu").write_text("//")
        return (target / "champion.cu",)


@pytest.fixture
def played(monkeypatch):
    made = PlayedLoop()
    for name in ("open_loop", "init", "export"):
        monkeypatch.setattr(steps, name, getattr(made, name))
    return made


class Said:
    """What one command left behind."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def loop_for_real(capsys):
    """Run ``labtools loop`` in this process."""

    def call(*arguments: object, command: str = "loop") -> Said:
        capsys.readouterr()
        status = main([command, *map(str, arguments)])
        captured = capsys.readouterr()
        return Said(int(status), captured.out, captured.err)

    return call


@pytest.fixture
def loop(played, loop_for_real):
    """The same with steps whose numbers are made up."""
    return loop_for_real


@pytest.fixture
def begun(loop, tmp_path):
    path = tmp_path / "loop"
    assert loop("init", path, "--kernel", FAMILY, "--on", "forecast").status == 0
    return path


def test_a_script_drives_a_round_by_what_each_step_answers(loop, played, tmp_path):
    path = tmp_path / "loop"
    said = loop(
        *("init", path, "--kernel", FAMILY, "--workload", "rows:64,4096", "--json"),
        *("--on", "forecast", "--seed", 7, "--branches", 3, "--rule", "hill"),
    )
    assert said.status == 0
    state = LoopFolder.look(path).state
    assert (str(state.workload), state.on, state.seed) == ("rows:64,4096", "forecast", 7)
    assert (state.branches, state.rule) == (3, "hill")
    for step in STEPS[1:]:
        early = loop(step, path, "--json")
        assert early.status == 2, "it is out of order"
        assert early.data["error"]["still_works"] == f"labtools loop gaps {path}"
    assert len(LoopFolder.look(path).lines) == 1
    taken = []
    following = said.data["next"]
    while (said.data["round"] == 1 and following != ["gaps"]) or not taken:
        (step,) = following
        said = loop(step, path, "--json")
        assert said.status == 0
        assert said.data["step"] == step
        assert said.data["explained"]["decided"]
        following = said.data["next"]
        taken.append((step, said.data["result"]))
    assert [step for step, _ in taken] == list(STEPS)
    results = dict(taken)
    assert results["gaps"]["gaps"]["memory"] is None
    assert results["budget"]["budget"]["rule"] == "hill"
    assert results["pick"]["pick"]["methods"] == list(loop_play.METHODS[1])
    assert results["branch"]["champion"] == "r1b2"
    assert len(results["ablate"]["attribution"]) == 3
    assert {one["verdict"] for one in results["check"]["sass_check"]} == {
        *("present", "absent", "no signature")
    }
    assert results["update"]["classes"]["memory.wide"] == "effective"


def test_what_is_given_reaches_the_step(loop, played, begun, tmp_path, monkeypatch):
    def put(value: Any) -> str:
        path = tmp_path / "input.json"
        path.write_text(json.dumps(value))
        return str(path)

    counters = {"dram_throughput_pct": 41.5, "issue_slot_pct": None}
    assert loop("gaps", begun, "--input", put({"counters": counters})).status == 0
    assert loop("budget", begun, "--rule", "squared").status == 0
    monkeypatch.setattr(
        "sys.stdin", io.StringIO('{"methods": ["a"], "acknowledged": {"a": {"form": 1}}}')
    )
    assert loop("pick", begun, "--input", "-").status == 0
    given = {"branches": [{"split": 2}, {"split": 4, "warps": 8}]}
    assert loop("branch", begun, "--input", put(given)).status == 0
    assert loop("ablate", begun, "--pairs").status == 0
    assert loop("check", begun).status == 0
    assert loop("update", begun, "--input", put({"analysis": "so it is"})).status == 0
    assert played.asked == [
        ("gaps", {"counters": counters}),
        ("budget", {"rule": "squared"}),
        ("pick", {"methods": ("a",), "acknowledged": {"a": Retry(form=1)}}),
        ("branch", {"branches": tuple(given["branches"])}),
        ("ablate", {"pairs": True}),
        ("check", {}),
        ("update", {"analysis": "so it is"}),
    ]


WRONG_INPUTS = [
    ("{", "Expecting"),
    ('{"method": ["a"]}', "methods: Field required"),
    ('{"methods": ["a"], "why": 1}', "why: "),
    ('{"methods": "a"}', "methods: "),
    ('{"methods": [1]}', "methods.0: "),
    ('{"methods": ["a"], "methods": ["b"]}', "methods is given twice"),
    ("", "Expecting value"),
    ('{"methods": ' + "[" * 100_000, "nested too deeply"),
    ('{"methods": ["a"], "acknowledged": {"a": "form 1"}}', "acknowledged.a: "),
    ('{"methods": ["a"], "acknowledged": {"a": {"form": "1"}}}', "acknowledged.a.form: "),
    ('{"methods": ["a"], "acknowledged": {"a": {"flag": 1}}}', "acknowledged.a.flag: "),
]
"""What a pick is given that is no input of it, and what is said of it."""


def test_a_wrong_input_ends_with_2(loop, begun, tmp_path):
    loop("gaps", begun)
    loop("budget", begun)
    path = tmp_path / "input.json"
    for text, said in WRONG_INPUTS:
        path.write_text(text)
        answer = loop("pick", begun, "--input", path)
        assert answer.status == 2, text[:80]
        assert said in answer.err
    assert loop("pick", begun, "--input", tmp_path / "nowhere.json").status == 2


def test_what_a_step_cannot_take_ends_with_2(tmp_path, loop_for_real):
    folder = tmp_path / "real"
    assert loop_for_real("init", folder, "--rule", "by-lot").status == 2
    assert loop_for_real("init", folder).status == 0
    path = tmp_path / "input.json"
    path.write_text('{"counters": {"dram_throughput": 41.5}}')
    answer = loop_for_real("gaps", folder, "--input", path)
    assert answer.status == 2
    assert "did you mean dram_throughput_pct?" in answer.err
    for loose in ('"41"', "true", "[41]"):
        path.write_text(f'{{"counters": {{"dram_throughput_pct": {loose}}}}}')
        answer = loop_for_real("gaps", folder, "--input", path)
        assert answer.status == 2 and "counters.dram_throughput_pct: " in answer.err
    assert loop_for_real("gaps", folder).status == 0
    assert loop_for_real("budget", folder, "--rule", "by-lot").status == 2


def test_the_line_that_plays_the_whole_policy(loop, tmp_path):
    path = tmp_path / "loop"
    said = loop(
        *("run", path, "--kernel", FAMILY, "--on", "recorded", "--seed", 5, "--json"),
        *("--max-rounds", 2),
    )
    assert said.status == 0
    data = said.data
    assert (data["rounds"], data["runs"], data["seed"]) == (2, 14, 5)
    for name in ("champion", "best", "best_leading"):
        assert set(data[name]) == {"point", "knobs", "time_us"}
        assert data[name]["time_us"] > 0
    assert data["stopped"] == "enough rounds"


def test_who_comes_second_to_a_new_folder_is_told_who_works_there(
    loop, played, tmp_path, monkeypatch
):
    """The other process began its loop after this one had looked for one."""
    path, begin_loop = tmp_path / "loop", played.init
    with contextlib.ExitStack() as other:

        def begin(folder: Path, *arguments: Any) -> None:
            begin_loop(folder, *arguments)
            try:
                begin_loop(folder, *arguments)
            finally:
                other.enter_context(LoopFolder.opened(folder))

        monkeypatch.setattr(steps, "init", begin)
        said = loop("run", path, "--kernel", FAMILY, "--on", "forecast", "--seed", 5)
    assert said.status == 3
    assert "Another process is working in" in said.err
    assert "already" not in said.err


def test_what_is_left_of_a_loop_is_not_begun_anew(loop, tmp_path):
    path = tmp_path / "loop"
    arguments = ("--kernel", FAMILY, "--on", "forecast", "--max-rounds", 1)
    assert loop("run", path, *arguments).status == 0
    (path / "log.jsonl").unlink()
    before = (path / "state.json").read_bytes()
    for command in (("run", path, *arguments), ("run", path), ("init", path), ("status", path)):
        said = loop(*command)
        assert said.status == 3
        assert "state.json and the files of 1 round followed from it" in said.err
        assert "labtools loop init" not in said.err
    assert (path / "state.json").read_bytes() == before
    assert not (path / "log.jsonl").exists()


def test_a_run_that_was_cut_off_goes_on(loop, begun):
    for step in ("gaps", "budget", "pick"):
        loop(step, begun)
    with LoopFolder.opened(begun) as folder:
        folder.plan("branch", ["r1b1", "r1b2", "r1b3", "r1b4"])
        loop_play.measure(folder, 1, "branch", ["r1b1"], lambda text: None)
    arguments = ("run", begun, "--kernel", FAMILY, "--max-rounds", 1, "--json")
    said = loop(*arguments, "--on", "forecast")
    assert said.status == 0
    assert said.data["resumed"].startswith("resumed at round 1: 1 of 4 measurements kept")
    assert loop(*arguments).status == 0  # what is not named is as it was
    other = loop(*arguments, "--on", "gpu", "--seed", 3, "--branches", 9, "--rule", "hill")
    assert other.status == 2
    said = "it has on forecast, not gpu; seed 0, not 3; branches 4, not 9; rule largest-remainder"
    assert said in other.err


def test_status_summary_diff_restart_and_export(loop, begun, tmp_path):
    assert loop("diff", begun).status == 2
    loop("run", begun, "--kernel", FAMILY, "--on", "forecast", "--max-rounds", 3)
    status = loop("status", begun, "--json").data
    assert (status["rounds"], status["runs"]) == (3, 21)
    assert len(status["state"]["frontier"]) == 6 + 1  # the champion, since the loop has stopped
    assert "r3b2" in loop("status", begun).out

    page = tmp_path / "page.html"
    summary = loop("summary", begun, "--html", page, "--json")
    assert [one["title"] for one in summary.data["tables"]][:2] == [
        *("Result", "Migration of the bottleneck")
    ]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "## Attribution" in loop("summary", begun).out

    diff = loop("diff", begun, "--json").data
    assert (diff["first"], diff["second"]) == (2, 3)
    assert diff["said"][0] == "dram_throughput_pct rose from 60 to 70 by 17%"
    assert "records of one kernel, on h200" in diff["noise_from"]
    noise = {one["name"]: one["noise"] for one in diff["counters"]}
    assert noise["dram_throughput_pct"] != noise["issue_slot_pct"]
    assert "nothing really changed" not in loop("diff", begun, 2, 3).out
    assert "nothing really changed" in loop("diff", begun, 2, 2).out
    assert loop("diff", begun, 1, 9).status == 2
    assert loop("diff", begun, 3, 2).out == loop("diff", begun, 2, 3).out, "later stands second"

    assert loop("gaps", begun).status == 2  # it has stopped
    assert loop("restart", begun, 99).status == 2
    again = loop("restart", begun, 0, "--json")
    assert again.status == 0
    assert (again.data["next"], again.data["result"]["start"]) == (["gaps"], "r1b1")

    exported = loop("export", begun, tmp_path / "out", "--json").data
    assert Path(exported["files"][0]).is_file()


def test_without_a_loop_every_command_says_so(loop, tmp_path):
    for command in (*STEPS, "status", "summary", "diff"):
        said = loop(command, tmp_path)
        assert said.status == 3
        assert "holds no loop" in said.err


def test_a_family_that_is_none_is_refused(loop, tmp_path):
    said = loop("run", tmp_path / "a", "--kernel", "r03")
    assert said.status == 2
    assert "no kernel family" in said.err
    (tmp_path / "x.py").write_text("import time\nwhile True: pass\n")
    said = loop("init", tmp_path / "b", "--kernel", tmp_path / "x.py")
    assert said.status != 0
    assert not (tmp_path / "b").exists()


@pytest.fixture
def ablate(loop_for_real):
    """Run ``labtools ablate`` in this process, on the recorded grid of the shipped family."""
    return partial(loop_for_real, command="ablate")


def test_ablate_says_what_counts_and_what_has_no_time(ablate):
    said = ablate("--knob", "gqa=1", "--knob", "split=4", "--pairs")
    assert said.status == 0
    assert "8,32,8,4096,128, recorded, h200" in said.out
    rows = {line.split("  ")[0]: line for line in said.out.splitlines()}
    assert "harms" in rows["memory.group_of_heads"]
    assert "proved" in rows["memory.group_of_heads"]
    assert "implementation failed" in rows["latency.known_block_size"]
    assert "yes" in rows["compute.exponent_base_2 + latency.split_sequences"].split()
    assert "without a time: " in said.out
    data = ablate("--knob", "gqa=1", "--knob", "split=4", "--pairs", "--json").data
    assert data["gpu"] == "h200"
    pairs = {one["method"] for one in data["pairs"]}
    assert {" + ".join(one["methods"]) for one in data["interactions"]} == pairs
    assert data["untimed"]
    assert not set(data["untimed"]) & pairs
    assert set(data["untimed"].values()) == {"the recorded grid does not have it"}


def test_ablate_says_that_a_knob_means_nothing(ablate):
    said = ablate("--knob", "math=1", "--method", "latency.unrolled_loop", "--json")
    (notice,) = said.data["notices"]
    assert notice.startswith("math=1 means nothing here, and is math=0: without a tile")
    assert notice in said.err
    assert said.data["of"]["point"] == "start"


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--method", "latency.async_copies"), 2, "is not on at start"),
        (("--method", "memory.int8_cache"), 2, "is no knob of tunable"),
        (("--knob", "split=3"), 2, "cannot run with split=3"),
        (("--knob", "merge=2", "--knob", "split=16"), 2, "at most eight blocks"),
        (("--knob", "lazy=1", "--knob", "ilp=1"), 3, "the recorded grid does not have it"),
        (("--workload", "8,32,8,2048,128"), 3, "was not measured on"),
    ],
)
def test_ablate_refuses_in_words(ablate, arguments, status, told):
    said = ablate(*arguments)
    assert said.status == status
    assert told in said.err


def test_a_loop_without_its_family_says_where_it_was(loop_for_real, tmp_path):
    there, path = tmp_path / "there", tmp_path / "loop"
    there.mkdir()
    for ending in (".py", ".cu", ".toml"):
        shutil.copy(Path(FAMILY).with_suffix(ending), there)
    said = loop_for_real("init", path, "--kernel", there / "row_scale.py", "--on", "forecast")
    assert said.status == 0
    shutil.rmtree(there)
    assert loop_for_real("status", path).status == 0, "what only reads does not need it"
    for command, *more in [("gaps",), ("run",), ("export", tmp_path / "out")]:
        said = loop_for_real(command, path, *more)
        assert said.status == 3, command
        assert f"The loop in {path} has lost its family, row_scale." in said.err
        assert f"the loop expects it at {there / 'row_scale.py'}" in said.err
        assert "row_scale.py, row_scale.cu and row_scale.toml, are in" in said.err


@pytest.fixture
def spy(tmp_path):
    """A family whose Python leaves a file when it runs: its path, and whether it ran since."""
    for ending in (".py", ".cu", ".toml"):
        shutil.copy(Path(FAMILY).with_suffix(ending), tmp_path / f"spy{ending}")
    path, trace = tmp_path / "spy.py", tmp_path / "ran"
    path.write_text(f"{path.read_text()}\nopen({str(trace)!r}, 'w').close()\n")

    def ran() -> bool:
        there = trace.exists()
        trace.unlink(missing_ok=True)
        return there

    return path, ran


def falsify(log: Path, **event: Any) -> None:
    """Change what the first line of a log says, and let its hash agree."""
    body = json.loads(log.read_text().splitlines()[0])
    del body["hash"]
    body["event"] |= event
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    log.write_text(json.dumps(body | {"hash": hashlib.sha256(text.encode()).hexdigest()}) + "\n")


def test_what_a_log_names_is_not_loaded_unless_the_caller_names_it(
    loop_for_real, tmp_path, spy, monkeypatch
):
    path, ran = spy
    loop, cache = tmp_path / "loop", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert loop_for_real("init", loop, "--kernel", path, "--on", "forecast").status == 0
    assert ran() and loop_for_real("export", loop, tmp_path / "out").status == 0 and ran()
    log = loop / "log.jsonl"
    first = log.read_text()
    workload = json.loads(first.splitlines()[0])["event"]["workload"]
    for operation, status in (("nobodys", 3), ("rows", 0)):
        log.write_text(first)
        falsify(log, workload={**workload, "operation": operation}, seed=7)
        for command, *more in [("status",), ("summary",), ("diff",), ("restart", 0)]:
            said = loop_for_real(command, loop, *more)
            assert said.status == (2 if command in ("diff", "restart") else 0), said.err
            assert "family" not in said.err and not ran(), command
        for command, *more in [("gaps",), ("run",), ("export", tmp_path / "out")]:
            said = loop_for_real(command, loop, *more)
            assert said.status == 2 and "was not begun here" in said.err and not ran(), command
        said = loop_for_real("gaps", loop, "--kernel", path)
        assert ran() and said.status == status, said.err
        assert ("operation nobodys" in said.err) == (operation == "nobodys")


def test_a_family_that_a_line_adds_later_is_not_trusted(loop_for_real, tmp_path, spy, monkeypatch):
    path, ran = spy
    loop = tmp_path / "loop"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert loop_for_real("init", loop, "--kernel", FAMILY, "--on", "forecast").status == 0
    log = loop / "log.jsonl"
    first = log.read_text()
    falsify(log, family=str(path))
    log.write_text(first + log.read_text())
    assert loop_for_real("gaps", loop).status == 2 and not ran()
    monkeypatch.chdir(tmp_path)
    for name in ("spy.py", "spy.toml", "spy.cu", "./spy", f"../{tmp_path.name}/spy"):
        log.write_text(first)
        falsify(log, family=name)
        assert loop_for_real("gaps", loop).status == 2 and not ran()


def test_a_log_that_names_a_file_elsewhere_writes_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setitem(loop_play.METHODS, 1, ("../../../../out", "latency.async", "compute.mma"))
    with LoopFolder.create(tmp_path / "in" / "loop", loop_play.begin()) as folder:

        def play() -> None:
            for _ in STEPS:
                loop_play.step(folder, 1, lambda text: None)

        with pytest.raises(LabError, match="is no file of this loop"):
            play()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_workload_of_another_operation_is_refused_wherever_it_is_timed(
    loop_for_real, ablate, tmp_path
):
    other = ("--workload", "rows:8192,4096")
    said = loop_for_real("init", tmp_path / "loop", *other).err
    assert "tunable cannot run rows:8192,4096" in said and "forecasts" not in said
    for on in ("forecast", "recorded"):
        said = ablate("--on", on, *other).err
        assert said.count("Why: it computes decode and not rows") == said.count("Why:") == 1
        assert "--on forecast" not in said


def test_status_tells_the_state_as_its_file_does(loop, tmp_path):
    path = tmp_path / "loop"
    with LoopFolder.create(path, loop_play.begin()):
        pass
    said = loop("status", path, "--json").data["state"]
    assert said == json.loads((path / "state.json").read_text())
    assert "page_size" in said["workload"]
