"""``run --on gpu``, ``bench`` and ``record`` through the command line, on the fake GPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from live_fake import DEVICE, use_fake_gpu

from labtools.cli import main, running
from labtools.measure.campaign import recording as campaign
from labtools.measure.gpu import job as live_job
from labtools.measure.profiler import ncu as profile
from labtools.measure.profiler import profile as profiler
from labtools.measure.profiler import sanitize
from labtools.problem import (
    LabError,
    Workload,
    kernels_dir,
    list_baselines,
    load_rung,
    parse_problem,
)
from labtools.toolchain import compiler, progress

SMALL = ("--workload", "2,4,2,64,64", "--quick")


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    use_fake_gpu(monkeypatch, tmp_path)
    monkeypatch.setenv("FAKE_GPU_TORCH", "1")
    for module in (live_job, profiler, sanitize, running):
        monkeypatch.setattr(module, "require_device", lambda: DEVICE)

    def none(*_: object) -> str:
        raise LabError("The tool was not found.", "the fake GPU has none", "timing")

    monkeypatch.setattr(profile, "find_ncu", none)
    monkeypatch.setattr(sanitize, "find_sanitizer", none)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str, json_too: bool = True) -> tuple[int, Any, str]:
        capsys.readouterr()
        status = main([*arguments, "--json"] if json_too else arguments)
        captured = capsys.readouterr()
        return int(status), json.loads(captured.out) if json_too else captured.out, captured.err

    return call


def _behave(monkeypatch: pytest.MonkeyPatch, **kernels: str) -> None:
    monkeypatch.setenv("FAKE_GPU_BEHAVIOUR", json.dumps(kernels))


def test_run_checks_and_then_times(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SAY_EVERY_S", 0.0)  # every line, not one now and then
    status, data, err = cli("run", "r03", "--on", "gpu", *SMALL)
    assert status == 0, data
    assert data["on"] == "gpu"
    assert data["ok"] is True
    timing = data["timing"]
    assert timing["origin"] == "live"
    assert timing["median_us"] > 0
    assert timing["gpu"] == DEVICE.name
    assert timing["provenance"]["tree_hash"]
    assert "case 1 of" in err
    assert "timing 2,4,2,64,64, process 1" in err


def test_run_compiles_once_draws_once_and_starts_each_child_once(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled = tmp_path / "compiled"  # a file: the compiler works in a process of its own
    for name in ("_compile_with_bindings", "_compile_with_cupy"):
        real = getattr(compiler, name)

        def count(source: str, *rest: Any, real: Any = real) -> Any:
            with compiled.open("a") as file:
                file.write(json.dumps(source) + "\n")
            return real(source, *rest)

        monkeypatch.setattr(compiler, name, count)
    draws = tmp_path / "draws"
    monkeypatch.setenv("FAKE_DRAW_LOG", str(draws))
    # Another text than that of any other test: nothing of it is kept yet.
    own = tmp_path / "mine"
    own.mkdir()
    for ending in (".py", ".cu"):
        shutil.copy(kernels_dir() / "decode" / f"r03_one_warp{ending}", own / f"mine{ending}")
    source = (own / "mine.cu").read_text() + f"// {tmp_path}\n__device__ int mine_alone;\n"
    (own / "mine.cu").write_text(source)
    status, data, _ = cli(
        *("run", str(own / "mine.py"), "--on", "gpu", "--workload", "2,4,2,72,64", "--quick")
    )
    assert status == 0, data
    assert data["timing"]["processes"] == 1
    texts = [json.loads(line) for line in compiled.read_text().splitlines()]
    assert sum(text.endswith(source) for text in texts) == 1
    drawn = [json.loads(line) for line in draws.read_text().splitlines()]
    assert len({one["pid"] for one in drawn}) == 1  # the child that checks is the one that times
    caches = [one["digest"] for one in drawn if one["shape"] == [2, 2, 72, 64]]
    assert len(caches) > 4
    assert len(set(caches)) == len(caches)


def test_run_for_a_person_gives_the_rate_of_what_the_operation_streams(cli: Any) -> None:
    status, out, _ = cli("run", "r03", "--on", "gpu", *SMALL, json_too=False)
    assert status == 0
    for said in ("right in all", "live", " GB/s of K and V, on "):
        assert said in out
    rows = ("run", "n00", "--on", "gpu", "--workload", "rows:6,40", "--quick")
    assert " GB/s of x and out, on " in cli(*rows, json_too=False)[1]


@pytest.mark.parametrize(
    ("rung", "workload", "baseline"),
    [("n00", "rows:6,40", "baseline:torch_rms_norm"), ("r03", "2,4,2,64,64", "baseline:sdpa")],
)
def test_a_record_is_beside_what_its_operation_is_held_against(
    rung: str, workload: str, baseline: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Asked(Exception):
        pass

    def measure(_: object, groups: Any, left_out: Any) -> None:
        raise Asked(list(groups[0].candidates))

    monkeypatch.setattr(campaign._Campaign, "measure", measure)
    with pytest.raises(Asked) as caught:
        campaign.record_rung(load_rung(rung), parse_problem(workload), out_dir=tmp_path)
    assert caught.value.args[0][1:] == [baseline]


@pytest.mark.parametrize("behaviour", ["wrong", "misaligned", "hang"])
def test_a_kernel_that_is_wrong_is_never_timed(
    cli: Any, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    from labtools.measure.gpu import runner as live

    _behave(monkeypatch, decode_r03=behaviour)
    monkeypatch.setattr(live, "GPU_TIME_LIMIT_S", 2.0)
    if behaviour == "hang":
        # The default is bound when the function is made.
        original = live.run_jobs_on_gpu
        monkeypatch.setattr(
            live, "run_jobs_on_gpu", lambda jobs, **o: original(jobs, **{**o, "time_limit_s": 2.0})
        )
    status, data, _ = cli("run", "r03", "--on", "gpu", *SMALL)
    assert status == 1
    assert data["ok"] is False
    assert data["timing"] is None
    if behaviour != "wrong":
        assert behaviour in {fault["kind"] for fault in data["faults"]}


def test_bench_names_its_baseline_and_gives_intervals_and_from_one_process_no_verdict(
    cli: Any,
) -> None:
    status, data, _ = cli("bench", "r02", "r03", "sdpa_expanded", *SMALL)
    assert status == 0, data
    rows = {row["candidate"]: row for row in data["candidates"]}
    assert {"r02_one_barrier", "r03_one_warp", "baseline:sdpa", "baseline:sdpa_expanded"} <= set(
        rows
    )
    for row in rows.values():
        assert row["origin"] == "live"
        assert row["times_as_fast"]["against"] == "baseline:sdpa"
        low, high = row["times_as_fast"]["interval"]
        assert low <= row["times_as_fast"]["ratio"] <= high
    assert rows["baseline:sdpa"]["times_as_fast"]["ratio"] == 1.0
    assert rows["r03_one_warp"]["times_as_fast"]["ratio"] == pytest.approx(
        rows["baseline:sdpa"]["median_us"] / rows["r03_one_warp"]["median_us"]
    )
    assert data["fastest_fair_baseline"] != "baseline:sdpa_expanded"
    assert "too few" in rows["r03_one_warp"]["against_fastest_fair"]["verdict"]
    status, out, err = cli("bench", "r03", *SMALL, json_too=False)
    assert status == 0, err
    assert "times as fast as baseline:sdpa" in out


def test_bench_stands_each_against_its_fastest_fair_peer_and_its_floor(cli: Any) -> None:
    status, data, _ = cli("bench", "r03", "sdpa", "sdpa_expanded", *SMALL, "--processes", "5")
    assert status == 0, data
    rows = {row["candidate"]: row for row in data["candidates"]}
    r03, fastest = rows["r03_one_warp"], data["fastest_fair_baseline"]
    assert fastest == "baseline:sdpa"
    assert r03["against_fastest_fair"]["against"] == fastest
    assert r03["against_fastest_fair"]["verdict"] in ("faster", "slower", "equal")
    assert r03["processes"] == 5
    assert rows[fastest]["against_fastest_fair"] is None
    assert rows["baseline:sdpa_expanded"]["against_fastest_fair"]["against"] == fastest
    for row in rows.values():
        assert row["to_floor"]["ratio"] >= 1 - 1e-9
        assert row["read_bytes"] == Workload.parse("2,4,2,64,64").kv_bytes
        assert row["worst_error"] < row["tolerance"]
        assert row["error_arithmetic"] == row["worst_error"] and row["error_of_scheme"] == {}
        assert row["cache_layout"] == "contiguous" and row["timed"]
    assert data["versions"]["torch"]


def test_bench_of_a_rung_brings_the_libraries(cli: Any) -> None:
    _, data, _ = cli("bench", "r03", *SMALL)
    named = {row["candidate"] for row in data["candidates"]} | set(data["not_timed"])
    assert {f"baseline:{one.id}" for one in list_baselines()} <= named
    assert "r02_one_barrier" not in named


def test_bench_checks_what_takes_long_and_times_it_only_where_asked(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def time_candidates(candidates: list[Any], workload: Workload, **how: Any) -> Any:
        asked.append(how["patience_us"])
        raise LabError("Enough.", "what was asked is seen", "nothing")

    monkeypatch.setattr(running, "time_candidates", time_candidates)
    for words in ((), ("--peers", "all"), ("r03",), ("r03", "--peers", "all")):
        _, _, err = cli("bench", *words, *SMALL)
        assert ("all calls together take about" in err) == ("all" in words)
    assert asked == [running.PATIENCE_US, 0.0, 0.0, 0.0]


def test_bench_says_what_it_could_not_time(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _behave(monkeypatch, decode_r02="wrong")
    status, data, _ = cli("bench", "r02", "r03", *SMALL)
    assert status == 1
    assert any("r02" in label for label in data["not_timed"])
    assert any(row["candidate"] == "r03_one_warp" for row in data["candidates"])


@pytest.mark.parametrize(
    ("asked", "unknown"),
    [(("bench", "r03", "--baseline", "cudnn"), "cudnn"), (("record", "--plan", "none"), "none")],
)
def test_an_unknown_name_is_refused(cli: Any, asked: tuple[str, ...], unknown: str) -> None:
    status, data, _ = cli(*asked)
    assert status == 2
    assert unknown in data["error"]["what"]


def test_record_keeps_a_rung_from_anywhere_and_records_shows_it(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labtools.record import store

    own = tmp_path / "own"
    own.mkdir()
    for ending in (".py", ".cu"):
        shutil.copy(kernels_dir() / "decode" / f"r03_one_warp{ending}", own / f"mine{ending}")
    out = tmp_path / "out"
    status, data, _ = cli("record", str(own / "mine.py"), "--out", str(out), *SMALL)
    assert status == 0, data
    assert data["measured"] == 1
    assert Path(data["file"]).is_relative_to(out)
    assert {"mine", "baseline:sdpa"} <= {row["candidate"] for row in data["records"]}
    status, again, _ = cli("record", str(own / "mine.py"), "--out", str(out), *SMALL)
    assert status == 0
    assert (again["measured"], again["resumed"]) == (0, 1)
    monkeypatch.setattr(store, "shipped_records_dir", lambda: out)
    monkeypatch.setattr(store, "own_records_dir", lambda: tmp_path / "none")
    status, data, _ = cli("records", "--gpu", "fake", "--rung", "mine")
    assert status == 0
    (row,) = data["records"]
    assert row["stale"] is False
    assert row["source_hash"]
    assert row["processes"] == 1
    assert row["workload_short"].startswith("2,4,2,64,64")
    assert row["forecast"]["model"]
    status, person, _ = cli("records", "--gpu", "fake", json_too=False)
    assert status == 0
    for text in ("recorded", "mine", "fresh", "2,4,2,64,64"):
        assert text in person
    assert cli("records", "--workload", "1,1,1,8,64")[1]["records"] == []


def test_record_of_a_wrong_kernel_keeps_nothing_of_it(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _behave(monkeypatch, decode_r03="wrong")
    status, data, _ = cli("record", "r03", "--out", str(tmp_path / "out"), *SMALL)
    assert status == 1
    assert "r03" in json.dumps(data)
