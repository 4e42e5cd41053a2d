"""The loop's log, its state and its folder: nothing acknowledged is lost, whatever ends it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import loop_play
import pytest
from loop_play import begin, branch, gaps_of, pick_of, play, samples_of, step
from record_samples import make_record

from labtools.measure.profiler.counters import COUNTERS
from labtools.measure.worker import child_environment
from labtools.optimize import events, loop_folder
from labtools.optimize.budget import Budget
from labtools.optimize.changes import (
    COUNTER_NOISE,
    LEAST_PAIRS,
    NOTHING_CHANGED,
    compare_rounds,
    counter_noise,
    say_changes,
)
from labtools.optimize.events import (
    EVENT_KINDS,
    BranchDone,
    BranchTried,
    BudgetDone,
    CheckDone,
    GapsDone,
    PointTimed,
    UpdateDone,
)
from labtools.optimize.log import EventLog, say_command
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.pick import Retry
from labtools.optimize.state import MOST_RETRIES, STATE_VERSION, STEPS, OutOfOrder, StateFold
from labtools.optimize.telling import tell_steps
from labtools.problem import LabError
from labtools.record import Counters, Record, RecordStore, select, shipped_records_dir
from labtools.toolchain import Hashes


def nothing(text: str) -> None:
    """Acknowledge to nobody."""


@pytest.fixture(scope="module")
def played_once(tmp_path_factory):
    """A loop of three rounds, whole; only to be read."""
    path = tmp_path_factory.mktemp("played") / "loop"
    play(path)
    return path


@pytest.fixture
def played(played_once, tmp_path):
    """A loop of three rounds, whole, to do with as one likes."""
    return Path(shutil.copytree(played_once, tmp_path / "loop"))


@contextlib.contextmanager
def begun_at(path: Path, name: str) -> Iterator[LoopFolder]:
    """A loop in its first round, of which a step is the next."""
    with LoopFolder.create(path, begin()) as folder:
        while folder.state.next_steps != (name,):
            step(folder, 1, nothing)
        yield folder


def log_of(path: Path) -> Path:
    return path / loop_folder.LOG_NAME


def state_of(path: Path) -> Path:
    return path / loop_folder.STATE_NAME


# --------------------------------------------------------------------------------- the state


def test_a_whole_loop_has_the_sources_fields(played):
    body = json.loads(state_of(played).read_text())
    for name in (
        *("branches", "effective_methods", "ineffective_methods", "implementation_failed_methods"),
        *("selected_methods", "roofline_history", "frontier", "history", "time_us"),
    ):
        assert name in body
    assert body["schema_version"] == STATE_VERSION
    assert body["effective_methods"] == ["memory.wide", "latency.split", "compute.lazy"]
    assert len(body["roofline_history"]) == 3
    assert body["roofline_history"][0]["gaps"]["memory"] is None  # missing, and not 0
    assert [one["point"] for one in body["frontier"]] == [
        *(f"r{number}b{k}" for number in (1, 2, 3) for k in (1, 3)),
        body["point"],  # from which no round began, since the loop has stopped
    ]
    assert body["frontier"][0]["others_us"] == {"1,32,8,4096,128": 20.0}
    assert len(body["timed"]) == 3 * (4 + 3)
    assert body["stopped"] == "the rounds are over"


def test_effective_is_only_what_is_on_in_the_line_that_is_kept(played):
    """A champion that no round begins from leaves nothing on; so does a restart before it."""
    lines = LoopFolder.look(played).lines

    def fold(change: Callable[[Any], Any]) -> StateFold:
        made = StateFold()
        for line in lines:
            if line.kind != "stop":
                made.take(change(line.event))
        return made

    whole = fold(lambda event: event)
    assert whole._methods("effective") == ("memory.wide", "latency.split", "compute.lazy")

    def left(event: Any) -> Any:
        if isinstance(event, UpdateDone) and event.round == 3:
            return replace(event, point="r2b2")
        return event

    thrown = fold(left)
    assert thrown._methods("effective") == ("memory.wide", "latency.split")
    said = fold(lambda one: replace(one, on=("compute.lazy",)) if hasattr(one, "gain") else one)
    assert said._methods("effective") == ("compute.lazy",), "the log's own word comes first"
    whole.take(events.LoopRestarted(4, 0, "r1b1", 100.0))
    assert whole._methods("effective") == ("memory.wide",)


def test_a_folder_a_round_holds_what_was_found(played):
    for number in (1, 2, 3):
        folder = played / f"iterv{number}"
        for name in ("ncu_top.json", "methods.json", "attribution.json", "sass_check.json"):
            assert json.loads((folder / name).read_text())
        assert (folder / "kernel.cu").read_text() == f"// r{number}b2\n"
        for k in (1, 2, 3, 4):
            result = json.loads((folder / f"branches/{k}/result.json").read_text())
            times = result["measured"]["samples"]["processes"][0]["us"]
            assert sorted(times)[2] == pytest.approx(result["time_us"])
            assert (folder / f"branches/{k}/kernel.cu").is_file()
        ablations = sorted(one.name for one in (folder / "ablations").iterdir())
        assert ablations == sorted(loop_play.METHODS[number])
        analysis = (folder / "analysis.md").read_text()
        assert "wrong at row 3" in analysis
        assert "as wished" in analysis
    assert json.loads((played / "env.json").read_text())["gpu"] == "h200"


def test_the_audit_explains_every_step(played):
    entries = tell_steps(LoopFolder.look(played).lines)
    assert {entry.step for entry in entries} == {*STEPS, "init", "frontier", "stop"}
    for number in (1, 2, 3):
        assert [one.step for one in entries if one.round == number][:7] == list(STEPS)
    assert all(entry.decided and entry.rule for entry in entries)
    (first,) = [one for one in entries if one.step == "gaps" and one.round == 1]
    assert first.numbers["dram_throughput_pct"] is None
    assert "dram_throughput_pct missing" in str(first)
    assert str(first) in (played / "audit.md").read_text()


# ---------------------------------------------------------------------------- the step machine


def test_a_step_out_of_order_names_the_next_one(tmp_path):
    with LoopFolder.create(tmp_path, begin()) as folder:
        for name in STEPS[1:]:
            with pytest.raises(OutOfOrder) as raised:
                folder.require(name)
            assert raised.value.still_works == f"labtools loop gaps {tmp_path}"
        folder.keep(gaps_of(1))
        before = log_of(tmp_path).read_bytes()
        with pytest.raises(OutOfOrder, match="pick cannot come now"):
            folder.keep(pick_of(1))
        assert log_of(tmp_path).read_bytes() == before


def test_update_refuses_what_was_not_attributed_and_checked(tmp_path):
    with begun_at(tmp_path, "check") as folder:
        update = UpdateDone(1, {}, "r1b2", 90.0)
        with pytest.raises(OutOfOrder):
            folder.keep(update)
        folder.keep(CheckDone(1, ()))
        with pytest.raises(LabError, match=r"without SASS check of compute\.mma"):
            folder.keep(update)


def test_a_champion_must_be_a_right_branch(tmp_path):
    with begun_at(tmp_path, "branch") as folder:
        wrong = BranchTried(1, "a", 10.0, failure="wrong")
        with pytest.raises(LabError, match="a cannot be the champion"):
            folder.keep(BranchDone(1, (wrong,), "a"))


def test_without_a_right_branch_it_retries_and_then_stops_with_reasons(tmp_path):
    with begun_at(tmp_path, "branch") as folder:
        folder.keep(PointTimed(1, "start", loop_play.START, 9, samples_of(5.0)))
        for retry in range(MOST_RETRIES + 1):
            assert folder.state.next_steps == ("branch",)
            wrong = BranchTried(retry, f"p{retry}", None, failure="wrong everywhere")
            folder.keep(BranchDone(1, (wrong,), None))
        assert folder.state.next_steps == ()
        assert "no right branch after 3 retries: wrong everywhere" in folder.state.stopped
        assert folder.state.is_wrong
        last = tell_steps(folder.lines)[-1]
        assert (last.step, last.rule) == ("stop", folder.state.stopped)
        assert last.rule in (tmp_path / "audit.md").read_text()
        (start,) = folder.state.frontier
        assert start.point == loop_play.START
        with pytest.raises(OutOfOrder, match="branch cannot come now"):
            branch(folder, 1, nothing)
        folder.restart(0)
        assert (folder.state.point, folder.state.next_steps) == (loop_play.START, ("gaps",))


def test_a_restart_goes_on_from_any_frontier_entry(played):
    with LoopFolder.opened(played) as folder:
        assert folder.state.stopped
        folder.restart(2)
        state = folder.state
        assert (state.point, state.round, state.next_steps) == ("r2b1", 4, ("gaps",))
        assert state.current.start == "r2b1"
        folder.keep(replace(gaps_of(3), round=4))
        folder.restart(0)  # in the middle of a round
        assert folder.state.history[3].abandoned
        assert (folder.state.point, folder.state.round) == ("r1b1", 5)
        with pytest.raises(LabError, match="no entry 99"):
            folder.restart(99)


def test_an_abandoned_round_leaves_what_led_it_in_the_frontier(tmp_path):
    with begun_at(tmp_path, "ablate") as folder:
        led, before = folder.state.current.champion, folder.state.frontier
        folder.restart(0)
        assert folder.state.history[0].abandoned
        added = [one.point for one in folder.state.frontier[len(before) :]]
        assert added == [led]
        folder.restart(1)
        assert [one.point for one in folder.state.frontier[len(before) :]] == added


def test_a_restart_leaves_its_champion_in_the_frontier(played):
    """Otherwise the fastest point of a loop could not be had again."""
    with LoopFolder.opened(played) as folder:
        point, time_us, before = folder.state.point, folder.state.time_us, folder.state.frontier
        assert (before[-1].point, before[-1].time_us) == (point, time_us), "the loop has stopped"
        assert (played / before[-1].path).is_dir()
        folder.restart(0)
        assert folder.state.frontier == before, "an entry is not entered again"
        number = len(before) - 1
        folder.restart(number)
        assert (folder.state.point, folder.state.time_us) == (point, time_us)
        assert folder.state.frontier == before


def test_a_champion_that_a_restart_leaves_on_the_way_is_in_the_frontier(tmp_path):
    with LoopFolder.create(tmp_path, begin()) as folder:
        while folder.state.rounds < 1:
            step(folder, 1, nothing)
        point, time_us, before = folder.state.point, folder.state.time_us, folder.state.frontier
        assert point not in [one.point for one in before]
        folder.restart(0)
        *others, last = folder.state.frontier
        assert tuple(others) == before
        assert (last.point, last.time_us) == (point, time_us)
        assert (tmp_path / last.path).is_dir()


def test_a_champion_that_is_not_taken_stays_in_the_frontier(tmp_path):
    with begun_at(tmp_path, "update") as folder:
        assert [one.branch for one in folder.state.frontier] == [1, 3]
        classes: Any = dict.fromkeys(loop_play.METHODS[1], "undecided")
        folder.keep(UpdateDone(1, classes, loop_play.START, 120.0, 0.001))
        assert [(one.branch, one.point) for one in folder.state.frontier] == [
            *((1, "r1b1"), (3, "r1b3"), (2, "r1b2"))
        ]
        assert (folder.state.point, folder.state.time_us) == (loop_play.START, 120.0)
        reference = PointTimed(2, "reference", loop_play.START, 9, samples_of(5.0))
        runs = folder.state.runs
        assert folder.keep(reference).runs == runs  # it tries nothing new
        assert folder.measured(loop_play.START, round=2, purpose="reference") == reference


def test_two_processes_do_not_write_one_loop(played):
    code = (
        "import sys; from pathlib import Path; from labtools.optimize.loop_folder import LoopFolder"
        "\nwith LoopFolder.opened(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(played)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(LabError, match="Another process is working"), LoopFolder.opened(played):
            pass
        assert LoopFolder.look(played).state.rounds == 3  # reading needs no lock
        other.communicate("")
    with LoopFolder.opened(played) as folder:
        assert not folder.notices


def test_a_loop_is_not_begun_twice_nor_read_where_there_is_none(tmp_path):
    with pytest.raises(LabError, match="holds no loop"), LoopFolder.opened(tmp_path):
        pass
    with pytest.raises(LabError, match="holds no loop"):
        LoopFolder.look(tmp_path / "nowhere")
    play(tmp_path, rounds=1)
    with pytest.raises(LabError, match="a loop already"), LoopFolder.create(tmp_path, begin()):
        pass


# -------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("text", [None, "", "{", "[" * 100_000, '{"schema_version": 99}'])
def test_a_derived_file_that_differs_is_written_again(played, text):
    """Whatever stands there; only the log is judged."""
    paths = [state_of(played), played / "audit.md", played / "iterv1" / "methods.json"]
    before = [path.read_bytes() for path in paths]
    for path in paths:
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    assert LoopFolder.look(played).notices == ()
    with LoopFolder.opened(played, loop_play.source_of) as folder:
        assert folder.notices == ()
    assert [path.read_bytes() for path in paths] == before


def test_a_line_that_stands_twice_is_read_once(played):
    before = LoopFolder.look(played)
    log = played / "log.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:9], lines[8], *lines[9:]]) + "\n")
    after = LoopFolder.look(played)
    assert after.state == before.state
    assert after.notices == ("log.jsonl: line 10 stands there twice; one is read",)


def test_a_torn_last_line_loses_nothing_acknowledged(played):
    path, state = log_of(played), LoopFolder.look(played).state
    with path.open("ab") as file:
        file.write(b'{"version": 1, "n": 99, "at": "20')
    with LoopFolder.opened(played) as folder:
        assert "half written" in folder.notices[0]
        assert folder.state == state
        folder.restart(0)
    with LoopFolder.opened(played) as folder:  # now it stands in the middle
        assert "half written" in folder.notices[0]
        assert folder.state.point == "r1b1"


def test_a_loop_whose_beginning_was_cut_off_begins_again(tmp_path):
    for text in (b"", b'{"version": 1, "n"'):
        folder = tmp_path / str(len(text))
        folder.mkdir()
        log_of(folder).write_bytes(text)
        assert not LoopFolder.holds_loop(folder)
        play(folder, rounds=1)
        found = LoopFolder.look(folder)
        assert found.state.rounds == 1
        assert len(found.notices) == bool(text)


def test_every_cut_of_the_log_is_read(tmp_path):
    """Wherever the file ends, the lines before are kept, and the loop goes on to its end."""
    play(tmp_path / "whole", rounds=1)
    data = log_of(tmp_path / "whole").read_bytes()
    ends = [place + 1 for place, byte in enumerate(data) if byte == 10]
    path = tmp_path / "cut.jsonl"
    log = EventLog(path, EVENT_KINDS)
    for cut in range(1, len(data), 37):
        path.write_bytes(data[:cut])
        read = log.read()
        # One whole line may lack its newline alone.
        assert len(read.lines) - sum(end <= cut for end in ends) in (0, 1)
        assert not any("lost" in notice for notice in read.notices)


@pytest.mark.parametrize("line", [1, 5, 12])
@pytest.mark.parametrize("how", ["garbage", "nested", "a number", "a version", "gone"])
def test_a_damaged_middle_line_is_told_and_the_rest_kept(played, line, how):
    path = log_of(played)
    lines = path.read_bytes().splitlines(keepends=True)
    whole = len(lines)
    if how == "garbage":
        lines[line] = b"\xff\x00 not json\n"
    elif how == "nested":
        lines[line] = b'{"version": ' + b"[" * 100_000 + b"\n"
    elif how == "a number":
        assert b'"round": 1' in lines[line]
        lines[line] = lines[line].replace(b'"round": 1', b'"round": 2')
    elif how == "a version":
        lines[line] = lines[line].replace(b'"version": 1', b'"version": 7')
    else:
        del lines[line]
    path.write_bytes(b"".join(lines))
    with LoopFolder.opened(played) as folder:
        said = folder.notices[0]
        assert ("missing" if how == "gone" else f"line {line + 1} is damaged") in said
        assert f"the other {whole - 1} are kept" in said
        assert folder.state.rounds == 3
        assert folder.state.point == "r3b2"


@pytest.mark.parametrize("left", ["nothing", "an empty file", "half a line"])
def test_what_is_left_of_a_loop_without_its_log_is_not_begun_anew(played, left):
    log_of(played).unlink()
    if left != "nothing":
        log_of(played).write_bytes(b"" if left == "an empty file" else b'{"version": 1')
    before = {path: path.read_bytes() for path in played.rglob("*") if path.is_file()}
    with pytest.raises(LabError) as raised, LoopFolder.create(played, begin()):
        pass
    assert raised.value.what == f"{played} holds what is left of a loop."
    assert "state.json and the files of 3 rounds followed from it" in raised.value.why
    assert "another folder for a new loop" in raised.value.still_works
    with pytest.raises(LabError, match="what is left of a loop"):
        LoopFolder.look(played)
    with pytest.raises(LabError, match="what is left of a loop"), LoopFolder.opened(played):
        pass
    state_of(played).unlink()
    del before[state_of(played)]
    with (
        pytest.raises(LabError, match="and the files of 3 rounds followed from it"),
        LoopFolder.create(played, begin()),
    ):
        pass
    assert {path: path.read_bytes() for path in played.rglob("*") if path.is_file()} == before


def test_other_files_in_a_folder_are_not_taken_for_a_loop(tmp_path):
    (tmp_path / "state.json").write_text('{"mine": 1}')
    (tmp_path / "iterv.txt").write_text("notes on iterations")
    with LoopFolder.create(tmp_path, begin()) as made:
        assert made.state.next_steps == ("gaps",)


@pytest.mark.parametrize("ending", [b"", b'{"version": 2, "n": 99, "at": "20'])
def test_a_log_of_a_newer_version_is_not_called_damaged(played, ending):
    """Whatever a newer labtools makes its hashes of."""
    data = log_of(played).read_bytes().replace(b'"version": 1', b'"version": 2')
    log_of(played).write_bytes(data + ending)
    with pytest.raises(LabError, match="written by a newer labtools") as raised:
        LoopFolder.look(played)
    assert raised.value.why == "it is of version 2, and this labtools knows up to version 1"
    assert "damaged" not in str(raised.value)
    with pytest.raises(LabError, match="written by a newer"), LoopFolder.opened(played):
        pass
    assert log_of(played).read_bytes() == data + ending


def test_a_lost_beginning_and_a_newer_log_are_refused(played):
    path = log_of(played)
    data = path.read_bytes()
    path.write_bytes(b"".join(data.splitlines(keepends=True)[1:]))
    with pytest.raises(LabError, match="does not say how its loop began"):
        LoopFolder.look(played)
    path.write_bytes(data)
    log = EventLog(path, {**EVENT_KINDS, "later": Budget})
    log.read()
    log.append(Budget(1, 1, 1, "", ""))
    with pytest.raises(LabError, match="written by a newer labtools"):
        LoopFolder.look(played)


def test_what_is_not_finite_is_not_kept(tmp_path):
    with LoopFolder.create(tmp_path, begin()) as folder:
        whole = gaps_of(1)
        wrong = GapsDone(1, whole.point, whole.gaps, {"registers": float("nan")})
        with pytest.raises(LabError, match="cannot be kept"):
            folder.keep(wrong)
        folder.keep(whole)
    assert LoopFolder.look(tmp_path).state.current.gaps == whole.gaps


# ---------------------------------------------------------------------------------- resuming


def test_resuming_says_what_is_kept(tmp_path):
    with begun_at(tmp_path, "branch") as folder:
        points = [f"r1b{k}" for k in (1, 2, 3, 4)]
        assert folder.plan("branch", points) == tuple(points)
        folder.keep(PointTimed(1, "branch", "r1b3", 0, samples_of(3.0)))
    with LoopFolder.opened(tmp_path) as folder:
        assert folder.resumed == "resumed at round 1: 1 of 4 measurements kept; next is branch"
        lines = len(folder.lines)
        assert folder.plan("branch", points) == ("r1b1", "r1b2", "r1b4")
        assert len(folder.lines) == lines  # the same plan is not written twice
        assert folder.next_call == 1
    play(tmp_path)
    assert LoopFolder.look(tmp_path).resumed.startswith("stopped after round 3")


# ------------------------------------------------------------------------------- two rounds


def changes(before: Any, after: Any) -> list[str]:
    return list(say_changes(compare_rounds(before, after)))


def test_nothing_really_changed():
    before = {"registers": 64.0, "dram_throughput_pct": 3.0, "duration_us": 100.0}
    after = {"registers": 64.0, "dram_throughput_pct": 4.5, "duration_us": 101.0}
    (said,) = changes(before, after)
    assert said.startswith(NOTHING_CHANGED)
    assert "3 counters" in said
    for noise, moved in (({"duration_us": 0.05}, False), ({}, True)):
        (one,) = compare_rounds({"duration_us": 100.0}, {"duration_us": 104.0}, noise)
        assert one.moved is moved


def test_what_changed_is_told_first_and_missing_is_no_change():
    before = {"a_pct": 30.0, "duration_us": 100.0, "x": None, "y": 5.0}
    after = {"a_pct": 33.0, "duration_us": 50.0, "x": 7.0}
    said = changes(before, after)
    assert said[0] == "duration_us fell from 100 to 50 by 50%"
    assert said[1] == "a_pct rose from 30 to 33 by 10%"
    assert said[2:] == [
        "x: missing before, 7 after: cannot be compared",
        "y: 5 before, missing after: cannot be compared",
    ]
    assert "nothing can be said" in changes({"x": None}, {"x": 1.0})[0]


def test_a_part_too_small_to_matter_did_not_change():
    """Relative to itself whatever was nothing before has moved by all that it is."""
    whole = {"warp_latency_cycles": 20.0, "shared_load_wavefronts": 1e6}
    none = {"stall_wait_cycles": 0.0, "shared_load_conflicts": 0.0}
    few = {"stall_wait_cycles": 1e-4, "shared_load_conflicts": 1.0}
    (said,) = changes({**whole, **none}, {**whole, **few})
    assert said.startswith(NOTHING_CHANGED)
    many = {"stall_wait_cycles": 1.0, "shared_load_conflicts": 1e5}
    said, other, *_ = changes({**whole, **none}, {**whole, **many})
    assert {said.split()[0], other.split()[0]} == set(none)
    assert all(one.against in {"", *(two.name for two in COUNTERS)} for one in COUNTERS)


def profiled(us: float, code: str = "m", **knobs: int) -> Record:
    """A record with two counters; the rate of the peak is the time in percent."""
    values = {"duration_us": us, "dram_throughput_pct": us, "registers_per_thread": None}
    hashes = Hashes(source_hash="s", sass_hash=code, nvrtc_version="13.0")
    return make_record(counters=Counters(values=values), hashes=hashes, knobs=knobs)


def test_noise_of_a_counter_is_how_far_records_of_one_kernel_differ():
    pairs = [record for n in range(20) for record in (profiled(100, n=n), profiled(103, n=n))]
    found = counter_noise(pairs)
    assert found == {"duration_us": pytest.approx(3 / 103), "dram_throughput_pct": 3.0}
    changes = compare_rounds({"duration_us": 100.0}, {"duration_us": 102.5}, found)
    assert [(one.moved, one.noise) for one in changes] == [(False, found["duration_us"])]
    assert counter_noise(pairs[: 2 * (LEAST_PAIRS - 1)]) == {}, "too few pairs say nothing"
    other_code = [profiled(us, code=f"{us}", n=n) for n in range(20) for us in (100, 103)]
    assert counter_noise(other_code) == {}, "other machine code is another kernel"


def test_the_shipped_records_say_how_far_counters_differ():
    found = counter_noise(select(RecordStore([shipped_records_dir()]).load(), gpu="h200"))
    assert found["registers_per_thread"] == 0.0
    assert COUNTER_NOISE < found["duration_us"] < 0.1


def test_a_log_whose_retries_are_sentences_is_read(tmp_path):
    """As logs were written before a retry had fields: its hash is of the line as it stands."""
    with begun_at(tmp_path, "pick") as folder:
        folder.keep(replace(pick_of(1), acknowledged={"memory.wide": Retry(reason="form 1")}))
    path = log_of(tmp_path)
    *before, last = path.read_text().splitlines()
    body = json.loads(last)
    body["event"]["acknowledged"] = {"memory.wide": "form 1"}
    del body["hash"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["hash"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text("\n".join([*before, json.dumps(body)]) + "\n")
    looked = LoopFolder.look(tmp_path)
    assert looked.notices == ()
    assert looked.state.current.acknowledged == {"memory.wide": Retry(reason="form 1")}


def test_a_budget_before_its_gaps_is_no_step(tmp_path):
    with LoopFolder.create(tmp_path, begin()) as folder:
        folder.keep(gaps_of(1))
        folder.keep(BudgetDone(1, Budget(1, 1, 1, "hill", "")))
        with pytest.raises(OutOfOrder):
            folder.keep(BudgetDone(1, Budget(2, 0, 1, "hill", "")))
        folder.keep(pick_of(1))
        assert folder.state.selected_methods == loop_play.METHODS[1]
        stray = BranchDone(2, (BranchTried(1, "a", 1.0),), "a")
        with pytest.raises(LabError, match="step of round 2"):
            folder.keep(stray)


def test_a_command_on_a_folder_that_begins_with_a_dash_can_be_typed():
    assert say_command("status", Path("work/rows")) == "labtools loop status work/rows"
    assert say_command("restart", Path("-rows"), 3) == "labtools loop restart -- -rows 3"
