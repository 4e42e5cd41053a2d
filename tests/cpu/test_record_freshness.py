"""Freshness: a comment stales nothing, an instruction does."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import random
import sys
import tokenize

import numpy as np
import pytest
from devices import LIMITS, needs_locked
from record_samples import make_record, record_of_rung

from labtools.problem import (
    LabError,
    Workload,
    kernels_dir,
    list_rungs,
    list_studies,
    load_rung,
    operations,
)
from labtools.record import (
    Record,
    RecordStore,
    freshness,
    hash_python_file,
    rung_freshness,
    same_launches,
    shipped_records_dir,
)
from labtools.record.python_hash import python_hashes, take_apart
from labtools.record.staleness import (
    CodeNow,
    limits_of_record,
    read_pending,
    stale_records,
    unmeasured,
)
from labtools.toolchain import (
    Hashes,
    kernel_hashes,
    launched_entries,
    shipped_hash,
)
from tools.write_listings import locked_nvrtc, needed_codes

WORKLOAD = Workload(2, 4, 2, 64, 64)


@pytest.fixture(scope="module")
def rung():
    return load_rung("r03")


def hashes_of(rung):
    return kernel_hashes(rung, WORKLOAD, LIMITS, rung.resolve_knobs(), "sm_90")


@pytest.fixture(scope="module")
def record(rung):
    return record_of_rung(rung, WORKLOAD, hashes=hashes_of(rung))


def test_an_unchanged_rung_is_fresh(record):
    assert freshness(record) == freshness(record)
    assert freshness(record).fresh
    assert stale_records([record]) == []


def test_a_comment_stales_nothing_and_an_instruction_does(record, rung):
    launches = rung.launches(WORKLOAD, LIMITS)
    commented = rung.with_source("// a remark\n" + rung.source_text)
    assert rung_freshness(record, commented, launches).fresh
    # Another name for a variable is another text, but the same instructions.
    renamed = rung.with_source(rung.source_text.replace("weight_sum", "total"))
    answer = rung_freshness(record, renamed, launches)
    assert answer.fresh
    assert "machine code is the same" in answer.reason
    changed = rung.with_source(rung.source_text.replace("1.f / weight_sum", "2.f / weight_sum"))
    assert not rung_freshness(record, changed, launches).fresh
    assert not rung_freshness(record, rung.with_source("no kernel"), launches).fresh


def test_a_changed_launch_or_argument_is_stale(record, rung):
    (launch,) = rung.launches(WORKLOAD, LIMITS)
    assert Record.model_validate_json(record.model_dump_json()).launches == record.launches
    assert same_launches(record.launches, [launch])
    *first, last = launch.args
    for other in (
        [dataclasses.replace(launch, block=(64, 1, 1))],
        [dataclasses.replace(launch, args=(*first, np.float32(0.5)))],
        [dataclasses.replace(launch, args=(*first, np.float64(last)))],  # another type
        [launch, launch],
    ):
        answer = rung_freshness(record, rung, other)
        assert not answer.fresh
        assert "launch" in answer.reason


def test_another_compiler_compares_sources(record, rung, monkeypatch):
    import labtools.toolchain as toolchain

    launches = rung.launches(WORKLOAD, LIMITS)
    renamed = rung.with_source(rung.source_text.replace("weight_sum", "total"))
    for now in (
        Hashes("other text", record.hashes.sass_hash, "99.9"),  # equal code says nothing then
        Hashes("other text"),
    ):
        monkeypatch.setattr(toolchain, "kernel_hashes", lambda *_, now=now: now)
        assert rung_freshness(record, rung, launches).fresh  # the text is the same
        answer = rung_freshness(record, renamed, launches)
        assert not answer.fresh
        assert (now.nvrtc_version or "no compiler") in answer.reason


def test_a_rung_that_is_gone_and_an_old_protocol_are_stale(record):
    gone = record.model_copy(update={"candidate": "r99_nothing"})
    assert "cannot be loaded" in freshness(gone).reason
    old = record.model_copy(update={"protocol": "graph-0"})
    assert "protocol" in freshness(old).reason
    unknown = record.model_copy(update={"knobs": {"nonsense": 1}})
    assert not freshness(unknown).fresh


def test_a_baseline_belongs_to_its_file():
    path = kernels_dir() / "baselines" / "sdpa.py"
    fresh = make_record(
        "baseline:sdpa", workload=WORKLOAD, hashes=Hashes(source_hash=hash_python_file(path))
    )
    assert freshness(fresh).fresh
    stale = fresh.model_copy(update={"hashes": Hashes(source_hash="else")})
    assert "changed since" in freshness(stale).reason
    assert not freshness(fresh.model_copy(update={"candidate": "baseline:none"})).fresh


def test_the_hash_of_a_python_file_is_about_its_code(tmp_path):
    path = tmp_path / "a.py"

    def hashed(text):
        path.write_text(text)
        return hash_python_file(path)

    base = hashed('"""Doc."""\n\ndef f(x):\n    """Says."""\n    return x + 1\n')
    assert base == hashed(
        "def f(x):  # why\n    # how\n\n    return (x + 1)\n".replace("(x + 1)", "x + 1")
    )
    assert base != hashed("def f(x):\n    return x + 2\n")
    assert base != hashed("def f(x):\n    pass\nreturn_ = 1\n")
    assert hashed("def f():\n    if a:\n        b()\n    c()\n") != hashed(
        "def f():\n    if a:\n        b()\n        c()\n"
    )


F_STRINGS = (
    ('f"no {PACKAGE})"', ['f"', "no ", "{", "PACKAGE", "}", ")", '"']),
    (
        'f"{a!r:>4}{{b}}c{d != e}"',
        ['f"', "{", "a", "!", "r", ":", ">4", "}", "{", "b}", "c", "{", "d", "!=", "e", "}", '"'],
    ),
    ('rf"""{x[1:2]}{f("a:")=}"""', 'rf"""|{|x|[|1|:|2|]|}|{|f|(|"a:"|)|=|}|"""'.split("|")),
    ("f\"{f'{a}'} b\"", ['f"', "{", "f'", "{", "a", "}", "'", "}", " b", '"']),
    ("f\"{'}'}\"", ['f"', "{", "'}'", "}", '"']),
    ('f""', ['f"', '"']),
    ('b"{a}"', ['b"{a}"']),
)
"""F-strings, and the words that `tokenize` of Python 3.12 makes of them."""


@pytest.mark.parametrize(("text", "words"), F_STRINGS, ids=[text for text, _ in F_STRINGS])
def test_an_f_string_is_hashed_whole_and_in_the_words_of_python_3_12(tmp_path, text, words):
    """Under every Python, so that its records stay fresh when Python is another one."""
    path = tmp_path / "a.py"
    path.write_text(f"# why\nx = {text}\n", "utf-8")

    def hash_of(*parts):
        return hashlib.sha256("\0".join(["x", "=", *parts, "\n"]).encode()).hexdigest()

    assert python_hashes(path) == (hash_of(text), hash_of(*words))
    assert python_hashes(path)[0] == hash_python_file(path)
    if sys.version_info >= (3, 12):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        assert words == [token.string for token in tokens][:-2]


@pytest.mark.parametrize("text", ['f"{a:{b}}"', 'f"{"', 'f"{a"', 'f"}"', 'f"{a)}"', 'f"{a!"'])
def test_an_f_string_that_cannot_be_taken_apart_stays_whole(text):
    assert "".join(take_apart(text)) == text


def test_the_records_of_a_baseline_with_an_f_string_are_fresh():
    records = [
        one
        for one in RecordStore([shipped_records_dir()]).load()
        if one.candidate == "baseline:flash_attention_3"
    ]
    assert len(records) >= 5
    assert stale_records(records) == []


def test_a_ceiling_is_found_among_the_microbenchmarks():
    rung = load_rung(kernels_dir() / "microbench" / "read_sweep.py")
    hashes = hashes_of(rung)
    assert freshness(
        record_of_rung(rung, WORKLOAD, candidate="ceiling:read_sweep", hashes=hashes)
    ).fresh


def test_an_edit_that_is_listed_stales_nothing_and_the_next_one_does(tmp_path, monkeypatch):
    import labtools.record.staleness as staleness

    path = tmp_path / "mine.py"
    hashes = []
    for text in ("a = 1\n", "a = 2\n", "a = 3\n"):
        path.write_text(text)
        hashes.append(hash_python_file(path))
    listed = [{"recorded": hashes[0], "now": hashes[1]}]
    monkeypatch.setattr(staleness, "_same_code", lambda: listed)
    path.write_text("a = 2\n")
    assert {*hashes[:2]} <= {*CodeNow().baseline_hashes(path)}
    path.write_text("a = 3\n")
    assert {*CodeNow().baseline_hashes(path)} == {hashes[2]}


def test_a_record_keeps_what_runs_and_not_where_its_scratch_lies() -> None:
    launches = load_rung("r08").launches(WORKLOAD, LIMITS)
    record = record_of_rung(load_rung("r08"), WORKLOAD)
    for told, launch in zip(record.model_dump(mode="json")["launches"], launches, strict=True):
        assert list(told) == ["entry", "grid", "block", "smem_bytes", "args"]
        assert told["grid"] == list(launch.grid)
    assert same_launches(record.launches, launches)


# ------------------------------------------------------------- codes that travel with the project


def test_no_shipped_record_needs_a_compiler_to_be_found_fresh(monkeypatch):
    def compiled(rung, *_):
        raise AssertionError(f"{rung.id} was compiled: run make regen")

    monkeypatch.setattr("labtools.toolchain.kernel_hashes", compiled)
    now = CodeNow()
    for record in RecordStore([shipped_records_dir()]).load():
        freshness(record, now)


@needs_locked
def test_the_shipped_codes_are_what_would_be_compiled():
    drawn = random.Random().sample(
        [
            (compiler, source_hash, *found)
            for compiler, codes in needed_codes().items()
            for source_hash, found in codes.items()
        ],
        2,
    )
    for compiler, source_hash, rung, record in drawn:
        arch = record.provenance.arch
        assert compiler == f"{arch}, NVRTC {locked_nvrtc()}"
        made = kernel_hashes(rung, record.problem, limits_of_record(record), record.knobs, arch)
        entries = launched_entries(rung, record.problem, limits_of_record(record), record.knobs)
        assert made.source_hash == source_hash
        assert made.sass_hash == shipped_hash(source_hash, entries, arch, locked_nvrtc())


def test_a_shipped_code_counts_for_its_own_source_compiler_and_kernels_only(tmp_path, monkeypatch):
    path = tmp_path / "codes.json"
    monkeypatch.setattr("labtools.toolchain.compiler.codes_path", lambda: path)
    known = {"sm_90, NVRTC 13.0": {"abc": {"one": "1", "two": "2"}}}
    path.write_text(json.dumps(known))
    first = shipped_hash("abc", ["one"], "sm_90", "13.0")
    assert first and first != shipped_hash("abc", ["one", "two"], "sm_90", "13.0")
    assert shipped_hash("abc", ["one", "one"], "sm_90", "13.0") == first
    for other in (
        ("abd", ["one"], "sm_90", "13.0"),
        ("abc", ["three"], "sm_90", "13.0"),
        ("abc", ["one"], "sm_80", "13.0"),
        ("abc", ["one"], "sm_90", "13.5"),
        ("abc", ["one"], "sm_90", None),
    ):
        assert shipped_hash(*other) is None
    for damaged in ("nothing", ""):
        path.write_text(damaged)
        assert shipped_hash("abc", ["one"], "sm_90", "13.0") is None
    path.unlink()
    assert shipped_hash("abc", ["one"], "sm_90", "13.0") is None


def test_a_changed_source_with_a_shipped_code_is_judged_by_it(record, rung, monkeypatch):
    """Also where there is no compiler, or another one."""
    launches = rung.launches(WORKLOAD, LIMITS)
    renamed = rung.with_source(rung.source_text.replace("weight_sum", "total"))
    version = record.hashes.nvrtc_version

    def shipped(*given):
        return record.hashes.sass_hash if given[2:] == ("sm_90", version) else None

    monkeypatch.setattr("labtools.toolchain.shipped_hash", shipped)
    monkeypatch.setattr("labtools.toolchain.kernel_hashes", lambda *_: Hashes("else"))
    assert rung_freshness(record, renamed, launches).fresh
    monkeypatch.setattr("labtools.toolchain.shipped_hash", lambda *_: "another")
    answer = rung_freshness(record, renamed, launches)
    assert not answer.fresh and "no compiler" in answer.reason


def test_many_records_read_each_rung_once_and_get_the_same_answers(record, rung, monkeypatch):
    loads = []
    module = sys.modules[CodeNow.__module__]
    monkeypatch.setattr(module, "load_rung", lambda name: loads.append(name) or load_rung(name))
    records = [record, record.model_copy(update={"knobs": {"nonsense": 1}}), record]
    now = CodeNow()
    together = [freshness(one, now) for one in records]
    assert loads == ["r03_one_warp"]
    assert together == [freshness(one) for one in records]
    assert [answer.fresh for answer in together] == [True, False, True]


def test_a_shipped_rung_has_a_fresh_record_or_is_listed_as_pending() -> None:
    records = RecordStore([shipped_records_dir()]).query()
    found = [one for name in operations() for one in (*list_rungs(name), *list_studies(name))]
    assert set(unmeasured(found, records)) == set(read_pending())


def test_an_entry_without_a_reason_and_one_of_no_rung_are_refused(tmp_path) -> None:
    path = tmp_path / "pending.toml"
    path.write_text('[[pending]]\nrung = "r03_one_warp"\nsince = 2026-01-02\n')
    with pytest.raises(LabError, match="incomplete"):
        read_pending(path)
    path.write_text('[[pending]]\nrung = "r99"\nsince = 2026-01-02\nreason = "x"\n')
    with pytest.raises(LabError, match="no rung 'r99'"):
        read_pending(path)
