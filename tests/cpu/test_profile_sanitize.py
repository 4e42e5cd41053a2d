"""compute-sanitizer: its reports are read, and nothing is clean that it did not call clean."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tomllib
from pathlib import Path

import pytest
from devices import H200

from labtools.cli.outcome import plain
from labtools.measure.profiler import sanitize as sanitize_module
from labtools.measure.profiler.sanitize import TOOLS, find_sanitizer, parse_sanitizer, sanitize_rung
from labtools.problem import LabError, Workload, load_rung

WORKLOAD = Workload(1, 2, 1, 8, 64)

SAID = tomllib.loads(Path(__file__).with_name("sanitizer_outputs.toml").read_text("utf-8"))
CLEAN = SAID["clean"]


def test_misaligned_shared_address_ending_in_82() -> None:
    errors, count = parse_sanitizer(SAID["misaligned"])
    assert count == 450  # what the tool counted, not what it printed
    first, second = errors
    assert first.kind == "misaligned"
    assert first.address == 0x82
    assert hex(second.address or 0).endswith("82")
    assert (first.thread, first.block) == ((1, 0, 0), (3, 2, 0))
    assert (first.space, first.size_bytes) == ("shared", 16)
    (place,) = first.places
    assert (place.access, place.kernel) == ("write", "decode")
    assert (place.file, place.line) == ("p01_as_written.cu", 97)
    assert second.places[0].kernel == "cp_async_16"
    assert "p01_as_written.cu:97" in str(first)
    assert "0x82" in str(first)


def test_out_of_bounds_with_a_path_that_has_a_space() -> None:
    ((error,), count) = parse_sanitizer(SAID["out_of_bounds"])
    assert (count, error.kind, error.address) == (1, "out_of_bounds", 0x7F2B4A200800)
    assert error.places[0].file == "/home/reader/my kernels/mine.cu"
    assert error.places[0].line == 12
    assert error.thread == (31, 0, 0)


def test_race_names_both_lines_and_counts_hazards() -> None:
    ((error,), count) = parse_sanitizer(SAID["race"])
    assert count == 1
    assert error.kind == "race"
    assert error.hazards == 4_194_304 + 508
    assert [(p.access, p.kernel, p.line) for p in error.places] == [
        ("write", "decode", 27),
        ("read", "decode", 30),
        ("write", "decode", 27),
    ]


def test_a_racecheck_warning_is_not_clean() -> None:
    ((error,), count) = parse_sanitizer(SAID["race_template_warning"])
    assert count == 1
    assert [place.kernel for place in error.places] == ["reverse", "reverse"]


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [(SAID["barrier"], "barrier", 18), (SAID["uninitialized"], "uninitialized", 41)],
)
def test_barriers_and_uninitialized_reads(text: str, kind: str, line: int) -> None:
    ((error,), count) = parse_sanitizer(text)
    assert (error.kind, error.places[0].line, count) == (kind, line, 1)


@pytest.mark.parametrize(
    "text",
    [
        "========= COMPUTE-SANITIZER\nhello\n",
        "Invalid __shared__ write of size 16 bytes\nERROR SUMMARY: 0 errors\n",
    ],
    ids=["no summary", "the program's own lines"],
)
def test_without_a_summary_of_the_tool_there_is_no_count(text: str) -> None:
    assert parse_sanitizer(text) == ([], None)


FAKE = r"""
import json, os, sys, time
from multiprocessing.connection import Client
args = sys.argv[1:]
tool = args[args.index("--tool") + 1]
open(os.environ["FAKE_LOG"], "a").write(json.dumps(args) + "\n")
plan = json.loads(os.environ["FAKE_PLAN"]).get(tool, {})
if plan.get("hang"):
    time.sleep(600)
sys.stdout.write(plan.get("text", ""))
if "answer" in plan:
    channel = Client(args[-1])
    channel.recv_bytes()
    channel.send_bytes(json.dumps(plan["answer"]).encode())
    try:
        channel.recv_bytes()
    except EOFError:
        pass  # the parent has hung up
sys.exit(plan.get("status", 0))
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, object]]:
    """What the stand-in does for each tool; clean unless a test changes it."""
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!{sys.executable}\n{FAKE}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.delenv("LABTOOLS_SANITIZER", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The stand-in needs no GPU; only what to compile for.
    monkeypatch.setattr(sanitize_module, "require_device", lambda: H200)
    monkeypatch.setattr(sanitize_module, "share_this_gpu", lambda *_: contextlib.nullcontext())
    steps: dict[str, dict[str, object]] = {
        tool: {"text": text, "answer": ["reply", None]} for tool, text in CLEAN.items()
    }

    original = sanitize_module.run_watched

    def run(*args: object, **options: object) -> object:
        given = {"FAKE_PLAN": json.dumps(steps)}
        return original(*args, extra_env=given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sanitize_module, "run_watched", run)
    return steps


Plan = dict[str, dict[str, object]]
rung = load_rung("r03")


def test_clean_only_when_every_tool_says_so(plan: Plan) -> None:
    reports = sanitize_rung(rung, WORKLOAD)
    assert [(one.tool, one.verdict) for one in reports] == [(tool, "clean") for tool in TOOLS]
    assert all(not report.reason for report in reports)
    rows = plain(reports)
    assert json.loads(json.dumps(rows))[0]["verdict"] == "clean"
    assert {report.record_verdict(WORKLOAD).verdict for report in reports} == {"clean"}


def test_errors(plan: Plan) -> None:
    plan["memcheck"] = {"text": SAID["misaligned"], "status": 1}
    plan["racecheck"] = {"text": SAID["race"], "answer": ["reply", None]}
    memcheck, racecheck = sanitize_rung(rung, WORKLOAD, tools=("memcheck", "racecheck"))
    assert (memcheck.verdict, memcheck.error_count) == ("errors", 450)
    assert (racecheck.verdict, racecheck.error_count) == ("errors", 1)
    kept = memcheck.record_verdict(WORKLOAD)
    assert kept.verdict == "errors"
    assert "450 errors" in kept.text
    assert "p01_as_written.cu:97" in kept.text


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"hang": True}, "time limit of 3 s"),
        ({"text": "", "status": 0, "answer": ["reply", None]}, "status 0"),
        ({"text": CLEAN["memcheck"], "status": 1}, "status 1"),
        (
            {"text": CLEAN["memcheck"],
             "answer": ["refusal", {"what": "no GPU", "why": "none", "still_works": ""}]},
            "no GPU",
        ),
        (
            {"text": "========= Error: Device not supported. Please refer to the documentation.\n"
             + CLEAN["memcheck"], "answer": ["reply", None]},
            "Device not supported",
        ),
        (
            {"text": "========= Error: Target application terminated before first instrumented API "
             "call\n" + CLEAN["memcheck"]},
            "terminated before first instrumented",
        ),
        (
            {"text": "========= Internal Sanitizer Error: it broke.\n" + CLEAN["memcheck"],
             "answer": ["reply", None]},
            "Internal Sanitizer Error",
        ),
    ],
)  # fmt: skip
def test_a_tool_that_did_not_finish_is_not_clean(
    plan: Plan, step: dict[str, object], words: str
) -> None:
    plan["memcheck"] = step
    (report,) = sanitize_rung(rung, WORKLOAD, tools=("memcheck",), time_limit_s=3)
    assert report.verdict == "not run"
    assert words in report.reason
    assert words in report.record_verdict(WORKLOAD).text


def test_a_report_without_a_summary_still_counts_as_errors(plan: Plan) -> None:
    plan["memcheck"] = {"text": SAID["misaligned"].split("========= Target")[0], "status": 1}
    (report,) = sanitize_rung(rung, WORKLOAD, tools=("memcheck",))
    assert (report.verdict, report.error_count) == ("errors", 2)
    assert report.reason


def test_unknown_tool_is_refused(plan: Plan) -> None:
    with pytest.raises(LabError) as caught:
        sanitize_rung(rung, WORKLOAD, tools=("memchek",))
    assert "memchek" in caught.value.what
    assert "racecheck" in caught.value.why


def test_no_sanitizer_points_to_the_cpu_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("LABTOOLS_SANITIZER", raising=False)
    monkeypatch.setattr(sanitize_module, "find_tool", lambda name: None)
    with pytest.raises(LabError) as caught:
        find_sanitizer()
    assert "--on cpu" in caught.value.still_works
