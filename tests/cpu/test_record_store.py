"""The store: atomic, locked, and of use when files are damaged."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import stat
import time
import warnings

import pytest
from record_samples import make_record

from labtools.problem import HEADLINE, LabError
from labtools.record import DamagedRecordWarning, RecordStore, append_records, read_records
from labtools.record.store import shipped_records_dir


@pytest.fixture
def file(tmp_path):
    return tmp_path / "h200" / "ladder.jsonl.gz"


def test_what_is_appended_comes_back(file, tmp_path):
    append_records(file, [make_record(), make_record("baseline:sdpa")])
    append_records(file, [make_record("r02_one_barrier")])
    store = RecordStore([tmp_path])
    names = [record.candidate for record in store.load()]
    assert names == ["r03_one_warp", "baseline:sdpa", "r02_one_barrier"]
    assert store.load()[0].file == str(file)
    assert not [path for path in file.parent.iterdir() if path != file]  # no litter
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_queries(file, tmp_path):
    store = RecordStore([tmp_path])
    store.append(
        "h200/ladder.jsonl.gz",
        [
            make_record(knobs={"unroll": 1}),
            make_record(knobs={"unroll": 4}, days=1.0),
            make_record(knobs={"unroll": 4}, days=2.0),
            make_record("baseline:sdpa"),
            make_record(
                "r02_one_barrier",
                gpu="NVIDIA GeForce RTX 4090",
                slug="rtx-4090",
                workload=HEADLINE.replace(batch=1),
            ),
        ],
    )
    assert len(store.query()) == 4
    assert len(store.query(latest=False)) == 5
    assert len(store.query(rung="r03")) == 2
    assert len(store.query(rung="r03_one_warp", knobs={"unroll": 4})) == 1
    assert store.query(rung="r03", knobs={"unroll": 4})[0].provenance.date.day == 23
    assert [one.candidate for one in store.query(rung="sdpa")] == ["baseline:sdpa"]
    assert [one.candidate for one in store.query(kind="baseline")] == ["baseline:sdpa"]
    assert len(store.query(gpu="h200")) == 3
    for name in ("rtx4090", "rtx-4090", "NVIDIA GeForce RTX 4090"):
        assert len(store.query(gpu=name)) == 1
    assert store.query(gpu="h100") == []
    assert store.query(gpu="h20") == []
    for workload in (HEADLINE, "8,32,8,4096,128", HEADLINE.to_dict()):
        assert len(store.query(workload=workload)) == 3
    assert store.query(workload=HEADLINE.replace(cache_state="warm")) == []
    assert RecordStore([tmp_path / "nowhere"]).query() == []


def test_superseding_replaces_the_same_thing_only(file):
    append_records(file, [make_record(), make_record("baseline:sdpa")])
    append_records(file, [make_record(days=1.0)], supersede=True)
    records, problems = read_records(file)
    assert problems == []
    assert [one.candidate for one in records] == ["baseline:sdpa", "r03_one_warp"]


def test_a_damaged_line_is_named_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "own.jsonl"
    append_records(path, [make_record(), make_record("baseline:sdpa")])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '{"candidate": "r0', "not json", lines[1]]))
    store = RecordStore([tmp_path])
    with pytest.warns(DamagedRecordWarning, match=r"Line 2 of .*own\.jsonl"):
        records = store.query()
    assert len(records) == 2
    assert len(store.problems) == 2
    assert "What still works" in str(store.problems[0])
    assert "Line 3" in store.problems[1].what


@pytest.mark.parametrize(
    ("damage", "says", "left"),
    [
        (lambda data: data[: len(data) // 2], "breaks off", 1),
        (lambda data: data[: len(data) * 95 // 100], "breaks off", 1),
        (lambda data: data[:900] + bytes([data[900] ^ 0x10]) + data[901:], "", 0),
        (lambda data: b"hello", "compression is damaged", 0),
        (lambda data: b"", None, 0),
    ],
)
def test_damage_is_told_and_what_stands_before_it_is_kept(file, damage, says, left):
    append_records(file, [make_record(days=float(day)) for day in range(200)])
    file.write_bytes(damage(file.read_bytes()))
    records, problems = read_records(file)
    assert left <= len(records) < 200
    assert bool(problems) == (says is not None)
    assert all(says in problem.why and str(file) in problem.what for problem in problems[:1])


def test_appending_to_a_damaged_file_keeps_a_copy_of_it(file):
    append_records(file, [make_record(days=float(day)) for day in range(200)])
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.warns(DamagedRecordWarning, match="is kept in"):
        append_records(file, [make_record("r02_one_barrier")])
    records, problems = read_records(file)
    assert problems == []
    assert records[-1].candidate == "r02_one_barrier"
    assert len(records) > 1
    assert file.with_name(f".{file.name}.damaged").exists()


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(LabError, match="no name for a file of records"):
        append_records(tmp_path / "records.txt", [make_record()])


def _append_some(path, number):
    for index in range(5):
        append_records(path, [make_record(f"r{number}{index}")])


def test_writers_at_once_lose_nothing(file):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_some, args=(file, n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    records, problems = read_records(file)
    assert problems == []
    assert len({record.candidate for record in records}) == 15


def test_equal_records_give_an_equal_file_and_files_may_be_joined(tmp_path):
    one, two = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    for path in (one, two):
        append_records(path, [make_record()])
    assert one.read_bytes() == two.read_bytes()
    assert gzip.decompress(one.read_bytes()).count(b"\n") == 1
    one.write_bytes(one.read_bytes() + two.read_bytes())
    records, problems = read_records(one)
    assert (len(records), problems) == (2, [])


def test_the_shipped_records_are_small_enough_and_whole():
    files = shipped_records_dir().rglob("*.gz")
    assert 0 < sum(path.stat().st_size for path in files) < 15 * 2**20
    store = RecordStore([shipped_records_dir()])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamagedRecordWarning)
        store.load()


@pytest.fixture
def parses(monkeypatch):
    """The paths that were parsed, in order."""
    from labtools.record import store

    seen = []
    parse = store._parse_records

    def counted(path, data, signed):
        seen.append(path.name)
        return parse(path, data, signed)

    monkeypatch.setattr(store, "_parse_records", counted)
    return seen


def settle(path):
    """Make a file look as if nobody had touched its contents for a minute; waits for the rest."""
    then = time.time() - 60
    os.utime(path, (then, then))
    time.sleep(0.2)


def test_a_file_is_read_once(file, tmp_path, parses):
    append_records(file, [make_record(), make_record("baseline:sdpa")])
    settle(file)
    parses.clear()
    first = RecordStore([tmp_path]).load()
    again = RecordStore([tmp_path])
    assert [a is b for a, b in zip(first, again.load(), strict=True)] == [True, True]
    assert len(again.query(rung="sdpa")) == 1
    first.clear()  # a list of one's own
    assert len(again.load()) == 2
    assert parses == [file.name]
    assert again.load()[0].problem is again.load()[0].problem


def test_a_changed_file_is_read_again(file, tmp_path, parses):
    store = RecordStore([tmp_path])
    store.append(file, [make_record()])
    settle(file)
    assert len(store.load()) == 1
    store.append(file, [make_record("baseline:sdpa")])  # by this process: seen at once
    assert len(store.load()) == 2
    settle(file)
    assert len(store.load()) == 2
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # and by another one
        pool.apply(append_records, (file, [make_record("r02_one_barrier")]))
    assert [one.candidate for one in store.load()][-1] == "r02_one_barrier"
    file.unlink()
    assert store.load() == []


def test_a_file_edited_in_place_is_read_again(tmp_path):
    path = tmp_path / "own.jsonl"
    append_records(path, [make_record("r03_one_warp")])
    settle(path)
    before = path.stat()
    assert read_records(path)[0][0].candidate == "r03_one_warp"
    text = path.read_text().replace("r03_one_warp", "r03_one_wasp")
    with path.open("r+") as same:  # the same inode, size and time of writing
        same.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size and path.stat().st_ino == before.st_ino
    assert read_records(path)[0][0].candidate == "r03_one_wasp"


def test_damage_is_told_each_time_though_it_was_read_once(file, tmp_path, parses):
    append_records(file, [make_record()])
    file.write_bytes(file.read_bytes()[:-9])
    settle(file)
    parses.clear()
    for _ in range(2):
        store = RecordStore([tmp_path])
        with pytest.warns(DamagedRecordWarning):
            store.load()
        assert len(store.problems) == 1
    assert parses == [file.name]
