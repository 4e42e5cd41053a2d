"""The command line as a person or a script meets it: stdout, stderr and exit status."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labtools.cli import main, predictions
from labtools.cli.given import choose_workload
from labtools.cli.outcome import Answer, UsageProblem, plain, show_error, write_json
from labtools.cli.recorded import _columns
from labtools.measure.cpu.faults import CpuFault
from labtools.measure.cpu.runner import CpuRun
from labtools.measure.worker import child_environment
from labtools.notebook import pages
from labtools.optimize.state import STEPS
from labtools.problem import (
    KernelError,
    LabError,
    Workload,
    kernel_supports,
    load_rung,
    repository_root,
)
from labtools.record.journal import Journal
from labtools.toolchain import CompileError
from labtools.toolchain.cache import SIZE_VARIABLE, kept

COMMANDS = """
    doctor run forecast adopt compile profile sanitize bench record records journal reset sync
    claims derive microbench ablate
""".split()
OF_A_LOOP = (*STEPS, "init", "run", "status", "summary", "diff", "restart", "export")


class Ended:
    """What one command left behind."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def data(self) -> Any:
        """Stdout as strict JSON."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process."""

    def call(*arguments: str) -> Ended:
        capsys.readouterr()
        status = main(arguments)
        captured = capsys.readouterr()
        return Ended(int(status), captured.out, captured.err)

    return call


@pytest.fixture(autouse=True)
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may touch the reader's own journal."""
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "journal.sqlite"))


def _run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, env=child_environment(), timeout=120, cwd=cwd
    )


def _process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return _run(sys.executable, "-m", "labtools", *arguments, cwd=cwd)


def test_help_lists_every_command_and_the_exit_statuses(cli: Any) -> None:
    ended = cli("--help")
    assert ended.status == 0
    for command in COMMANDS:
        assert command in ended.out
    words = " ".join(ended.out.split())
    for text in ("0 right", "1 the kernel is wrong", "2 the command line", "3 something needed"):
        assert text in words


def test_a_kernel_for_another_type_is_asked_about_that_type() -> None:
    rung = dataclasses.replace(load_rung("r03"), supports=kernel_supports(dtypes=("bfloat16",)))
    assert choose_workload(None, rung, small=True).dtype == "bfloat16"


@pytest.mark.parametrize("command", [*COMMANDS, *(f"loop {one}" for one in OF_A_LOOP)])
def test_every_command_explains_itself_and_has_json(cli: Any, command: str) -> None:
    ended = cli(*command.split(), "--help")
    assert ended.status == 0
    assert "--json" in ended.out
    assert "Exit status" in ended.out


def test_help_starts_quickly() -> None:
    """Typer takes at least half of it; heavy packages are for the commands that need them."""
    help_s = min(_seconds_of("-m", "labtools", "--help") for _ in range(4))
    assert help_s < 2 * min(_seconds_of("-c", "import typer.rich_utils") for _ in range(4))
    # The time depends on the machine; what is imported does not.
    code = (
        "import sys; from labtools.cli import main; main(['--help']); "
        "heavy = {'numpy', 'pydantic', 'sqlalchemy', 'cupy', 'torch', 'matplotlib'}; "
        "found = heavy & set(sys.modules); main(['loop', 'run', '--help']); "
        "heavy = heavy - {'pydantic'} | {'labtools.optimize'}; "
        "found |= heavy & set(sys.modules); sys.exit(str(found) if found else 0)"
    )
    done = _run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


def _seconds_of(*arguments: str) -> float:
    """Processor time of Python, which another process on this machine does not lengthen."""
    before = os.times()
    assert _run(sys.executable, *arguments).returncode == 0
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def test_no_arguments_shows_help_and_is_a_usage_error() -> None:
    done = _process()
    assert done.returncode == 2
    assert "Commands" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("compile",),
        ("compile", "r03", "--no-such-option"),
        ("run", "r03", "--on", "tpu"),
        ("compile", "r03", "--workload", "1,5,3,16,64"),
        ("compile", "r03", "--workload", "1,2,1,16,72"),
        ("compile", "r03", "--knob", "unrol=4"),
        ("compile", "r03", "--arch", "sm90"),
        ("profile", "sdpa", "--knob", "unroll=4"),
        ("sanitize", "r03", "--tool", "memchek"),
        ("compile", "r08", "-k", "unroll=4", "-k", "unroll=8"),
        ("compile", "r08", "-k", "unroll=4", "--knob", "unroll=4"),
        ("compile", "r08", "--arch", "sm_80", "--arch", "sm_90"),
        ("loop", "run", "nowhere", "--seed", "1", "--seed", "2"),
        ("forecast", "r03", "--gpu", "../h200"),
        ("derive", "--gpu", "h200 "),
    ],
)
def test_what_was_typed_wrong_is_a_usage_error_with_a_plain_message(
    cli: Any, arguments: tuple[str, ...]
) -> None:
    ended = cli(*arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert "Why:" in ended.err
    assert "Traceback" not in ended.err
    as_json = cli(*arguments, "--json")
    assert as_json.status == 2
    assert as_json.data["exit_status"] == 2
    assert as_json.data["error"]["what"]
    assert as_json.data["error"]["why"]


def test_debug_shows_where_it_happened() -> None:
    plain, debug = _process("compile", "r99"), _process("compile", "r99", "--debug")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


def test_compile_shows_resources(cli: Any) -> None:
    ended = cli("compile", "r03", "--arch", "sm_75,sm_90", "--knob", "unroll=2", "--json")
    assert ended.status == 0
    data = ended.data
    assert data["knobs"]["unroll"] == 2
    assert [row["arch"] for row in data["kernels"]] == ["sm_75", "sm_90"]
    for row in data["kernels"]:
        assert row["registers"] > 0
        assert {"shared_bytes", "spill_store_bytes", "spill_load_bytes"} <= set(row)
    assert "compiling" in ended.err
    assert "sass" not in data
    (listing,) = cli("compile", "r03", "--sass", "--json").data["sass"].values()
    assert "EXIT" in listing


def test_compile_takes_a_gpu_as_the_other_commands_do(cli: Any) -> None:
    data = cli("compile", "r03", "--gpu", "a100-80gb", "--json").data
    assert data["limits"] == "a100-80gb" and [row["arch"] for row in data["kernels"]] == ["sm_80"]
    assert cli("compile", "r03", "--gpu", "nothing").status == 2


def test_a_forecast_without_a_band_says_so_once_and_why_where_it_is_asked(cli: Any) -> None:
    asked = ("forecast", "r04", "--gpu", "h200")
    short, whole = cli(*asked).out, cli(*asked, "--verbose").out
    assert short.count("no band") == 2 and "allocates" not in short  # beside the time, and the line
    assert "--verbose says why" in short
    assert "the call allocates memory" in whole


def test_a_derivation_begins_with_what_it_derives(cli: Any) -> None:
    first, second, *more = cli("derive", "--gpu", "h200").out.splitlines()
    assert "h200" in first and second.startswith("derived: ") and more


def test_an_unknown_option_names_the_help_of_its_command(cli: Any) -> None:
    said = cli("compile", "r03", "--no-such-option").err
    assert "Why: No such option: --no-such-option" in said
    assert "labtools compile --help" in said and "Usage:" not in said


def test_doctor_says_why_and_what_still_works(cli: Any) -> None:
    ended = cli("doctor", "--json")
    assert ended.status == 0
    data = ended.data
    for link in data["links"]:
        if not link["ok"]:
            assert link["why"], link
            assert link["still_works"], link
    names = {link["name"] for link in data["links"]}
    assert {"nvrtc", "driver", "gpu", "cupy", "ncu", "c++", "records", "journal", "cache"} <= names
    person = cli("doctor").out
    for link in data["links"]:
        assert link["name"] in person


def test_doctor_leads_from_windows_to_wsl2(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def systems() -> list[dict[str, str]]:
        return [one for one in cli("doctor", "--json").data["links"] if one["name"] == "system"]

    assert systems() == []
    monkeypatch.setattr("platform.system", lambda: "Windows")
    (system,) = systems()
    assert "WSL2" in system["fix"]
    assert "wsl --install" in cli("doctor").out.replace("\n", " ")
    assert "WSL2" in (repository_root() / "README.md").read_text()


def test_doctor_says_where_the_cache_is_and_how_large(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link() -> Any:
        return next(one for one in cli("doctor", "--json").data["links"] if one["name"] == "cache")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(SIZE_VARIABLE, "64")
    kept("thing", (1,), lambda: random.Random(0).randbytes(2**20))
    found = link()
    assert found["ok"] and found["found"].startswith("1.0 MiB of at most 64 MiB in all")
    assert str(tmp_path / "labtools" / "kept") in found["found"]
    assert str(tmp_path / "labtools" / "cpu") in found["found"]
    monkeypatch.setenv(SIZE_VARIABLE, "0")
    found = link()
    assert not found["ok"] and SIZE_VARIABLE in found["why"] and found["still_works"]


def test_the_table_of_records_is_folded_and_not_cut() -> None:
    cells = [
        ("rung", "knobs", "median us"),
        ("r03", "one=1 two=2 three=3", "5.5"),
        ("r0", "", "16"),
    ]
    assert list(_columns(cells, 80)) == [
        "rung  knobs                median us",
        "r03   one=1 two=2 three=3        5.5",
        "r0                                16",
    ]
    narrow = list(_columns(cells, 28))
    assert max(map(len, narrow)) <= 28
    assert narrow[1:3] == ["r03   one=1 two=2        5.5", "      three=3"]
    assert "abcdefghijklmnopqrst" in "".join(_columns([("a",), ("abcdefghijklmnopqrst",)], 9))


@pytest.mark.parametrize("command", ["claims", "doctor", "records"])
def test_an_answer_is_short_unasked(cli: Any, command: str) -> None:
    ended = cli(command)
    assert ended.status == 0
    assert len(ended.out.splitlines()) <= 60
    if command == "records":
        *_, last, left_out = ended.out.splitlines()
        held = re.search(r"\d+ records", cli("doctor").out)
        known = [int(number) for number in re.findall(r"\d+", f"{last.split(';')[0]} {left_out}")]
        assert held and f"{sum(known[1:])} records" == held[0], "of all some are shown"
        assert "state" in ended.out.splitlines()[1] and "hash of the source" not in ended.out
    if command == "claims":
        assert "The finished kernel is this many times" in ended.out and "cp-async" not in ended.out
        assert len(cli(command, "--verdict", "refuted").out.splitlines()) <= 60
        shown = cli(command, "--verdict", "slip").out
        assert "l2-bytes" in shown and "v0-ms" not in shown
        assert cli(command, "--verdict", "nonsense").status == 2


def test_records_of_a_name_that_nothing_has_are_refused(cli: Any) -> None:
    """With what there is; a kernel that is shipped and was not measured so is no mistake."""
    for wanted in ("nonsense", "r99", "baseline:nothing"):
        ended = cli("records", "--rung", wanted)
        assert ended.status == 2
        assert f"There is no rung, baseline or ceiling '{wanted}'" in ended.err
        assert "r03_one_warp" in ended.err
        assert "baseline:sdpa" in ended.err
    for wanted in ("r03", "sdpa", "baseline:sdpa", "read_sweep", "tunable"):
        unmeasured = ("--workload", "3,2,1,77,64", "--json")
        assert cli("records", "--rung", wanted, *unmeasured).data["records"] == []
    for dirty in ("no-such-gpu", "../h200", "h200;"):
        assert cli("records", "--gpu", dirty).status == 2
    assert cli("records", "--gpu", "b200", "--json").data["records"] == []


def test_a_gpu_without_a_clock_says_so_and_its_floor(cli: Any) -> None:
    """B200: no document states its clock, so there is no forecast, and memory's rate is known."""
    ended = cli("forecast", "r03", "--gpu", "b200", "-w", "8,32,8,4096,128")
    assert ended.status == 3
    assert "The SM clock of NVIDIA B200 is not known here." in ended.err
    assert "16.79 us for 134,348,832 bytes at 8,000 GB/s" in ended.err


@pytest.mark.parametrize("value", ["abc", "nan", "-1", "0", "inf", "5s"])
def test_a_limit_that_is_no_number_is_refused(
    cli: Any, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("LABTOOLS_COMPILE_LIMIT_S", value)
    ended = cli("compile", "r03")
    assert ended.status == 2
    assert f"LABTOOLS_COMPILE_LIMIT_S is '{value}'." in ended.err


def test_journal_shows_predictions_with_their_scores(cli: Any) -> None:
    journal = Journal()
    journal.commit("q1", "labs/lab01", "faster", 2.0)
    journal.reveal("q1", 1.6, "recorded")
    journal.commit("q2", "labs/lab01", "slower", 0.5)
    journal.commit_answer("q3", "labs/lab05", (32, 1000))
    journal.reveal_answer("q3", (32, 1056), "computed")
    journal.commit("q1", "labs/lab01", "slower", 0.05)
    data = cli("journal", "--json").data
    first, second, third, late = data["predictions"]
    assert first["score"]["direction_right"] is True
    assert first["score"]["off_by"] == pytest.approx(1.25)
    assert second["score"] is None
    assert third["prediction"]["said"] == [32, 1000] and third["score"] == {"right": False}
    assert len(cli("journal", "--question", "q2", "--json").data["predictions"]) == 1
    assert late["prediction"]["after_reveal"] is True and late["score"] is None
    person = cli("journal").out
    assert re.search(r"q1 .*2\.00x faster .*1\.60x faster .*recorded .*1\.25x off", person)
    assert re.search(r"q2 .*2\.00x slower .*no answer shown yet", person)
    last = person.rpartition("20.00x slower")[2]
    assert "Made after the answer was shown" in last and "no answer shown yet" not in last
    assert re.search("q3 .*32, 1000 .*32, 1056 .*computed .*Wrong", person)


def test_an_edited_environment_does_not_reach_stdout(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that prints must not break --json."""
    original = predictions.list_predictions

    def chatty(question: str | None, page: Path | None) -> Any:
        print("a library says hello")
        return original(question, page)

    monkeypatch.setattr(predictions, "list_predictions", chatty)
    ended = cli("journal", "--json")
    assert ended.data["predictions"] == []
    assert "hello" in ended.err


def test_numbers_that_are_not_finite_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"a": float("nan"), "b": (np.float32(1.5), np.int64(2)), "c": float("inf")})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, 2], "c": None}


def test_an_unforeseen_error_is_not_a_traceback(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(question: str | None, page: Path | None) -> Any:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(predictions, "list_predictions", broken)
    ended = cli("journal", "--json")
    assert ended.status == 4
    assert "ZeroDivisionError" in ended.data["error"]["why"]
    assert "--debug" in ended.data["error"]["still_works"]
    with pytest.raises(ZeroDivisionError):
        main(["journal", "--debug"])


@pytest.mark.parametrize("extra", ["--json", "--sass"])
def test_a_closed_pipe_ends_quietly_and_keeps_the_status(extra: str) -> None:
    command = (
        f"'{sys.executable}' -m labtools compile r03 {extra} | head -1; exit ${{PIPESTATUS[0]}}"
    )
    done = _run("bash", "-c", command)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_the_console_script_and_the_module_are_the_same() -> None:
    pyproject = tomllib.loads((repository_root() / "pyproject.toml").read_text())
    assert pyproject["project"]["scripts"]["labtools"] == "labtools.cli:main"
    assert _process("--version").stdout.startswith("labtools ")


def test_reset_keeps_the_readers_copy(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "lab09.md").write_text("the original\n")
    monkeypatch.setattr(pages, "repository_root", lambda: tmp_path)
    pages.make_copies(tmp_path)
    copy = tmp_path / "work" / "labs" / "lab09.md"
    copy.write_text("what a reader wrote\n")
    data = cli("reset", "lab09", "--json").data
    assert copy.read_text() == "the original\n"
    assert Path(data["backup"]).read_text() == "what a reader wrote\n"


def test_sync_check_reports_a_difference_with_status_1(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_module = importlib.import_module("labtools.notebook.sync")
    (tmp_path / "kernels" / "decode").mkdir(parents=True)
    (tmp_path / "kernels" / "decode" / "x.cu").write_text("int a;\n")
    (tmp_path / "book").mkdir()
    page = tmp_path / "book" / "page.md"
    page.write_text("```{code-cell}\n%%cuda x\n```\n")
    monkeypatch.setattr(sync_module, "repository_root", lambda: tmp_path)
    assert cli("sync", "--check", "--json").status == 1
    assert cli("sync", "--json").data["written"] == ["book/page.md"]
    assert cli("sync", "--check", "--json").status == 0
    page.write_text(page.read_text().replace("int a;", "int b;"))
    edited = cli("sync", "--json")
    assert edited.status == 1
    assert "kernels/decode/x.cu" in edited.data["error"]["why"]


def test_python_dash_m_runs_from_anywhere(tmp_path: Path) -> None:
    done = _process("compile", "r03", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["rung"] == "r03_one_warp"
    assert os.listdir(tmp_path) == []


@dataclasses.dataclass(frozen=True)
class _Inner:
    rate: float
    where: Path


@dataclasses.dataclass(frozen=True)
class _Found(Answer):
    workload: Workload
    inner: tuple[_Inner, ...]
    error: LabError
    unsaid: int = dataclasses.field(default=4, repr=False)
    missing: str | None = None
    _hidden: int = 3


def test_an_answer_is_its_fields_in_json() -> None:
    inner = (_Inner(float("nan"), Path("a/b")), _Inner(np.float32(0.5), Path("c")))
    found = _Found(Workload(1, 2, 1, 16, 64), inner, LabError("what", "why", "still"))
    assert plain(found) == {
        "workload": Workload(1, 2, 1, 16, 64).to_dict(),
        "inner": [{"rate": None, "where": "a/b"}, {"rate": 0.5, "where": "c"}],
        "error": {"what": "what", "why": "why", "still_works": "still"},
        "missing": None,
    }


def test_what_only_one_machine_knows_is_not_in_the_json() -> None:
    """A check's JSON is the same of either."""
    fault = CpuFault("race", "two threads", order=3, places=(("a.cu", 1),))
    run = CpuRun(Workload(1, 1, 1, 4, 64), False, faults=[fault], printed="a word")
    assert list(plain(run)) == ["workload", "ok", "comparison", "faults"]
    (told,) = plain(run)["faults"]
    assert list(told) == ["kind", "message", "file", "line", "block", "thread"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LabError("what", "why", "still"), 3),
        (KernelError("what", "why", "still"), 1),
        (CompileError("what", "why", "still"), 1),
        (UsageProblem(LabError("what", "why", "still")), 2),
        (MemoryError(), 3),
        (KeyError("x"), 4),
    ],
)
def test_an_exit_status_follows_from_the_kind_of_error(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_error(error, as_json=True) == status
    ended = json.loads(capsys.readouterr().out)
    assert ended["exit_status"] == status
    assert set(ended["error"]) == {"what", "why", "still_works"}
