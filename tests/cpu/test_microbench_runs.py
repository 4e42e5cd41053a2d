"""The microbenchmarks' runs without a GPU: what is launched, kept, reported and made of it."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from devices import H200
from microbench_fake import FakeDevice

from labtools.measure.channel import Reporter, Step
from labtools.measure.worker import ChildResult, Finished, WorkerDied
from labtools.microbench import child as microbench_child
from labtools.microbench import hopper
from labtools.microbench import run as microbench
from labtools.microbench.child import (
    BenchmarkAnswer,
    BenchmarkJob,
    MicrobenchDone,
    MicrobenchRequest,
    run_jobs,
)
from labtools.microbench.plan import list_benchmarks
from labtools.microbench.rig import REPEATS, Rig
from labtools.microbench.run import run_microbench, write_record
from labtools.predict import measured
from labtools.predict.latencies import read_table, table_files
from labtools.predict.measured import read_record, table_from_record
from labtools.problem import LabError
from labtools.record import Clocks
from tools.join_microbench import join_runs

PROVENANCE = {
    "gpu": "NVIDIA H200",
    "gpu_slug": "h200",
    "arch": "sm_90",
    "num_sms": 4,
    "l2_bytes": 2**20,
    "date": "2026-01-02T03:04:05Z",
}


class Anything(dict):
    """Every key is there."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def __missing__(self, key: Any) -> Any:
        return self.value


@pytest.fixture(scope="module")
def samples() -> dict[str, Any]:
    bench = Rig(FakeDevice())
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        # The driver alone writes a tensor map.
        patch.setattr(hopper, "encode_tensor_map", lambda tensor_map, address: np.void(bytes(128)))
        for benchmark in list_benchmarks():
            bench.cubins, bench.registers = Anything("cubin"), Anything(32)
            bench.settings = benchmark.settings
            measured_by = microbench_child.find_run(benchmark.name)
            found[benchmark.name] = {"samples": list(measured_by(bench))}
    return found


@pytest.fixture(scope="module")
def record(samples) -> dict[str, Any]:
    return {"schema": 1, "kind": "microbench", "provenance": PROVENANCE, "benchmarks": samples}


def test_every_microbenchmark_repeats_its_measurement(samples) -> None:
    for name, one in samples.items():
        assert one["samples"], name
        for sample in one["samples"]:
            few = sample["what"]["test"] in ("slices",) or sample["what"].get("warmed")
            assert len(sample["values"]) >= (3 if few else REPEATS), (name, sample)


def test_the_record_is_json_and_comes_back(record, tmp_path: Path) -> None:
    path = tmp_path / "microbench.json.gz"
    write_record(path, record)
    assert read_record(path) == json.loads(json.dumps(record))
    again = tmp_path / "again.json.gz"
    write_record(again, record)
    assert again.read_bytes() == path.read_bytes()
    path.write_bytes(b"nonsense")
    with pytest.raises(LabError, match="could not be read"):
        read_record(path)


def test_the_table_takes_out_what_a_loop_adds(record, tmp_path: Path) -> None:
    """The fake takes 4 cycles a step and 50 for the loop: the table says 4."""
    path = tmp_path / "microbench.json.gz"
    write_record(path, record)
    table = read_table(path)
    assert table.calibrated
    assert table.latency("ffma") == pytest.approx(4.0)
    assert table.latency("shared.128") == pytest.approx(4.0)
    assert table.interval("xu") == table.interval("ex2")
    assert table.sm_mhz == pytest.approx(2000.0)
    assert table.interval("product_shared.64") == pytest.approx(4.0)
    assert table.latency("named_turn") == pytest.approx(2.0)
    assert set(table.by_number("latency.box_l2")) == {1024, 4096, 8192, 16384, 32768}
    assert set(table.by_number("latency.barrier")) == {1, 2, 4, 8, 16, 32}
    assert set(table.by_number("latency.hbm_row")) == {64, 128, 256, 512}
    for name in ("hbm", "l2", "l2_footprint", "launch", "code", "rows", "chase", "interval"):
        assert table.curve(name), name
    for point in table.curve("hbm"):
        expected = 32 * point["warps"] * point["loads"] * point["bytes_per_lane"]
        assert point["in_flight_bytes_per_sm"] == expected
    for name, entry in table.entries.items():
        assert entry.source, name
        assert entry.low <= entry.value <= entry.high, name


def test_the_table_does_without_what_failed(record) -> None:
    kept = {name: one for name, one in record["benchmarks"].items() if name.startswith("pipe.")}
    kept["chase.l1"] = {"problem": "a fault"}
    table = table_from_record({**record, "benchmarks": kept})
    assert "l1_row" in table["latency"]
    assert "l1" not in table["latency"]
    with pytest.raises(LabError, match="nothing to make a table of"):
        table_from_record({**record, "benchmarks": {"clock": {"problem": "x"}}})
    with pytest.raises(LabError, match="another layout"):
        table_from_record({**record, "schema": 99})


def test_a_run_of_some_joins_the_record_with_its_own_provenance(record) -> None:
    some = {name: one for name, one in record["benchmarks"].items() if name.startswith("pipe.")}
    run = {**record, "benchmarks": some, "provenance": {**PROVENANCE, "driver": "1.2"}}
    joined = join_runs(record, run)
    assert joined["provenance"] == record["provenance"]
    assert set(joined["benchmarks"]) == set(record["benchmarks"])
    for name, one in joined["benchmarks"].items():
        assert one["samples"] == record["benchmarks"][name]["samples"]
        assert ("provenance" in one) == (name in some)
        assert one.get("provenance", run["provenance"]) == run["provenance"]
    other = {**run, "provenance": {**run["provenance"], "gpu": "NVIDIA H100"}}
    with pytest.raises(LabError, match="cannot be joined"):
        join_runs(record, other)
    with pytest.raises(LabError, match="cannot be joined"):
        join_runs(record, {**run, "schema": 99})
    with pytest.raises(LabError, match="has no samples"):
        join_runs(record, {**run, "benchmarks": {"pipe.x": {"problem": "a fault"}}})


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        *((4, 4), (4.0, 4.0), (16.99612, 16.996), (23.9996, 24.0), (4814.304, 4814.3)),
        *((123456.78, 123456.8), (0.000012, 0.0), (0.91234567, 0.91235), ("every SM", "every SM")),
    ],
)
def test_a_table_has_five_digits(value: object, kept: object) -> None:
    rounded = measured._rounded(value)
    assert (rounded, type(rounded)) == (kept, type(kept))


def test_the_committed_record_is_the_source_of_the_forecasts() -> None:
    """Numbers that forecasts were made of when their table was committed as a file."""
    table = read_table(table_files()["h200"])
    assert table.calibrated
    assert table.about["date"] == "2026-11-21"
    assert table.num_sms == 132
    for name, value, source in (
        ("latency.ex2", 16.996, "pipe.ex2"),
        ("latency.shared.128", 32.0, "pipe.lds128"),
        ("latency.hbm_row.512", 740.21, "rows.hbm: contiguous rows, every SM, less 2 latency.lop3"),
        ("launch.one_load", 1.0534, "launch.kinds: one load, 132 blocks"),
        ("latency.phase_own", 46.0, "phase.own: an arrival and the wait for its phase"),
        ("clock.tensor", 1800.0, "tensor.clock: a warp of each SM multiplies matrices"),
        ("latency.l2_sm", 137.98, "tensor.clock: of an L2 hit, those of the SM's clock"),
        ("launch.block.128", 0.60172, "launch.shape: an empty block more, 16896 to 67584 blocks"),
    ):
        entry = table.entry(name)
        assert (entry.value, entry.source) == (value, source)
    assert len(table.entries) == 276
    assert {name: len(points) for name, points in table.curves.items()} == {
        **{"interval": 256, "chase": 47, "rows": 96, "barrier_skew": 12, "code": 44, "hbm": 111},
        **{"l2": 222, "one_sm_hbm": 20, "one_sm_l2": 20, "l2_footprint": 13, "launch": 80},
        "boxes": 32,
        "apart": 45,
    }


class Report(Reporter[BenchmarkAnswer]):
    """A reporter that keeps the items."""

    def __init__(self) -> None:
        self.items: dict[str, BenchmarkAnswer] = {}

    def progress(self, text: str, done: int = 0, total: int = 0, /) -> None:
        pass

    def item(self, value: BenchmarkAnswer) -> None:
        self.items[value.name] = value

    def step(self, name: str, limit_s: float, label: str = "") -> Any:
        return contextlib.nullcontext()


def child_request(*names: str) -> MicrobenchRequest:
    jobs = [
        BenchmarkJob(one.name, {"": "x"}, {}, dict(one.settings))
        for one in list_benchmarks()
        if one.name in names
    ]
    return MicrobenchRequest(tuple(jobs), "touch.cubin")


@pytest.fixture
def report(monkeypatch) -> Report:
    """The child's side of a call, on a fake device with clocks that nobody reads."""
    device = FakeDevice()
    device.environment = lambda: {"cuda": "13.0"}
    clocks = SimpleNamespace(start=lambda: None, stop=Clocks)
    session = SimpleNamespace(device=device, clocks=clocks)
    monkeypatch.setattr(
        microbench_child, "use_gpu", lambda report, purpose: contextlib.nullcontext(session)
    )
    return Report()


def test_one_that_fails_leaves_the_others(report, monkeypatch) -> None:
    def fail(bench: Rig) -> list[Any]:
        raise RuntimeError("cudaErrorLaunchOutOfResources: too many resources requested")

    monkeypatch.setitem(microbench_child.RUNS, "chase.l1", fail)
    done = run_jobs(report, child_request("clock", "chase.l1", "branch.skip"))
    assert done.environment == {"cuda": "13.0"}
    assert list(report.items) == ["clock", "chase.l1", "branch.skip"]
    assert report.items["clock"].samples
    assert report.items["branch.skip"].samples
    failed = report.items["chase.l1"].to_record()
    assert "samples" not in failed
    assert "registers or shared memory" in failed["problem"]


def test_a_dead_context_ends_the_child(report, monkeypatch) -> None:
    def fault(bench: Rig) -> list[Any]:
        raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    monkeypatch.setitem(microbench_child.RUNS, "chase.l1", fault)
    run_jobs(report, child_request("clock", "chase.l1", "branch.skip"))
    assert list(report.items) == ["clock", "chase.l1"]


def play_children(monkeypatch, children: list[Any]) -> list[list[str]]:
    """Each call of the parent gets the next child; returns what each was asked to run."""
    asked: list[list[str]] = []

    def run(function: Any, request: MicrobenchRequest, **more: Any) -> Finished[MicrobenchDone]:
        names = [job.name for job in request.jobs]
        asked.append(names)
        done, ending = children[len(asked) - 1]
        for name in names:
            if name in done:
                sample = {"what": {"test": "clock"}, "unit": "MHz", "values": [1.0]}
                more["on_item"](BenchmarkAnswer(name, [sample]))
        child = ChildResult(("x",), int(ending != "well"), "", "it broke", 1.0, False, 9.0)
        if ending == "well":
            return Finished(child, True, MicrobenchDone())
        left = [name for name in names if name not in done]
        step = Step(left[0], 60.0, left[0]) if ending == "hang" else None
        return Finished(child, died=WorkerDied(child, step, hung=ending == "hang"))

    monkeypatch.setattr(microbench, "run_call", run)
    monkeypatch.setattr(microbench, "require_device", lambda: H200)
    return asked


NAMES = ["clock", "branch.loop", "branch.skip"]


def test_a_run_leaves_a_record_and_a_table(monkeypatch, tmp_path: Path) -> None:
    play_children(monkeypatch, [(NAMES, "well")])
    report = run_microbench(tmp_path, NAMES)
    assert report.failures == {}
    assert report.record_path.is_file()
    assert report.table_path == tmp_path / "latencies" / "h200.json"
    table = table_from_record(read_record(report.record_path))
    assert json.loads(report.table_path.read_text()) == table
    assert read_record(report.record_path)["provenance"]["gpu"] == "NVIDIA H200"
    assert report.measured == tuple(NAMES)


@pytest.mark.parametrize(
    ("ending", "said"), [("hang", "it did not end within 60 s"), ("crash", "it broke")]
)
def test_after_an_early_end_another_child_goes_on(
    ending: str, said: str, monkeypatch, tmp_path: Path
) -> None:
    asked = play_children(monkeypatch, [(["clock"], ending), (["branch.skip"], "well")])
    report = run_microbench(tmp_path, NAMES)
    assert asked == [NAMES, ["branch.skip"]]
    assert list(report.failures) == ["branch.loop"] and said in report.failures["branch.loop"]


def test_it_gives_up_after_many_children(monkeypatch, tmp_path: Path) -> None:
    play_children(monkeypatch, [([], "crash")] * microbench.MOST_CHILDREN)
    report = run_microbench(tmp_path, NAMES)
    assert set(report.failures) == set(NAMES)
    assert report.table_path is None
    assert "no table of latencies" in report.notes[0]


def test_a_folded_kernel_is_not_run(monkeypatch, tmp_path: Path) -> None:
    asked = play_children(monkeypatch, [(["clock", "branch.skip"], "well")])
    real = microbench.check_machine_code

    def check(benchmark: Any, arch: str, cubins: Any) -> list[str]:
        if benchmark.name == "branch.loop":
            return ["turn_4: 0 FFMA, not 4"]
        return real(benchmark, arch, cubins)

    monkeypatch.setattr(microbench, "check_machine_code", check)
    report = run_microbench(tmp_path, NAMES)
    assert asked == [["clock", "branch.skip"]]
    assert "0 FFMA" in report.failures["branch.loop"]


def test_the_kernels_get_as_many_arguments_as_they_have(samples) -> None:
    """Each launch's arguments are those of the kernel's parameters, by their sizes."""
    from labtools.microbench.code import compile_benchmark

    sizes = {
        one.source: compile_benchmark(one, "sm_90", dict(one.defines[0]))
        for one in list_benchmarks()
    }
    seen = defaultdict(set)
    for entry, shape in FakeDevice.arguments.items():
        seen[entry] |= shape
    known = {entry: cubin for cubin in sizes.values() for entry in cubin.entries}
    assert set(seen) <= set(known)
    assert seen
    for entry, shapes in seen.items():
        assert shapes == {parameter_sizes(known[entry].image, entry)}, entry


def parameter_sizes(image: bytes, entry: str) -> tuple[int, ...]:
    """Bytes of each parameter, from the cubin's own description of the kernel."""
    import io
    import struct

    from elftools.elf.elffile import ELFFile

    section = ELFFile(io.BytesIO(image)).get_section_by_name(f".nv.info.{entry}")
    data = section.data()
    found = {}
    at = 0
    while at < len(data):
        form, attribute = data[at], data[at + 1]
        size = struct.unpack_from("<H", data, at + 2)[0] if form == 4 else 0
        if form == 4 and attribute == 0x17:  # EIATTR_KPARAM_INFO
            _, ordinal, _, flags = struct.unpack_from("<IHHI", data, at + 4)
            found[ordinal] = flags >> 18
        at += 4 + size
    return tuple(found[ordinal] for ordinal in sorted(found))
