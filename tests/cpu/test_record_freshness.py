"""Freshness: a comment stales nothing, an instruction does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from record_samples import make_record

from labtools.problem import Workload, load_rung
from labtools.record import (
    CodeHashes,
    RecordStore,
    freshness,
    hash_python_file,
    launch_shapes,
    median_problems,
    rung_freshness,
    shipped_records_dir,
)
from labtools.record.freshness import _same_launches, stale_records
from labtools.toolchain import Hashes, kernel_hashes

WORKLOAD = Workload(2, 4, 2, 64, 64)


@pytest.fixture(scope="module")
def rung():
    return load_rung("r03")


@pytest.fixture(scope="module")
def record(rung):
    hashes = kernel_hashes(rung, WORKLOAD, rung.resolve_knobs(), "sm_90")
    return make_record(
        workload=WORKLOAD,
        knobs=rung.resolve_knobs(),
        launches=launch_shapes(rung.launches(WORKLOAD)),
        hashes=CodeHashes(
            source_hash=hashes.source_hash,
            sass_hash=hashes.sass_hash,
            nvrtc_version=hashes.nvrtc_version,
        ),
    )


def test_an_unchanged_rung_is_fresh(record):
    assert freshness(record) == freshness(record)
    assert freshness(record).fresh
    assert stale_records([record]) == []


def test_a_comment_stales_nothing_and_an_instruction_does(record, rung):
    launches = rung.launches(WORKLOAD)
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


def test_a_changed_launch_is_stale(record, rung):
    (launch,) = rung.launches(WORKLOAD)
    other = dataclasses.replace(launch, block=(64, 1, 1))
    answer = rung_freshness(record, rung, [other])
    assert not answer.fresh
    assert "launch" in answer.reason


def test_another_compiler_compares_sources(record, rung, monkeypatch):
    import labtools.toolchain as toolchain

    launches = rung.launches(WORKLOAD)
    renamed = rung.with_source(rung.source_text.replace("weight_sum", "total"))
    for now in (
        Hashes(record.hashes.sass_hash, "other text", "99.9"),  # equal code says nothing then
        Hashes(None, "other text", None),
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


def test_a_baseline_belongs_to_its_file(tmp_path):
    from labtools.problem import kernels_dir

    path = kernels_dir() / "baselines" / "sdpa.py"
    fresh = make_record(
        "baseline:sdpa", workload=WORKLOAD, hashes=CodeHashes(source_hash=hash_python_file(path))
    )
    assert freshness(fresh).fresh
    stale = fresh.model_copy(update={"hashes": CodeHashes(source_hash="else")})
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


def test_a_ceiling_is_found_among_the_microbenchmarks():
    from labtools.problem import kernels_dir

    rung = load_rung(kernels_dir() / "microbench" / "read_sweep.py")
    knobs = rung.resolve_knobs()
    hashes = kernel_hashes(rung, WORKLOAD, knobs, "sm_90")
    record = make_record(
        "ceiling:read_sweep",
        workload=WORKLOAD,
        knobs=knobs,
        launches=launch_shapes(rung.launches(WORKLOAD, knobs)),
        hashes=CodeHashes(
            source_hash=hashes.source_hash,
            sass_hash=hashes.sass_hash,
            nvrtc_version=hashes.nvrtc_version,
        ),
    )
    assert freshness(record).fresh


def test_every_shipped_median_recomputes_from_its_samples():
    for record in RecordStore([shipped_records_dir()]).query(latest=False):
        assert median_problems(record) == []


def test_a_changed_argument_makes_a_record_stale() -> None:
    workload = Workload(2, 8, 2, 65, 128)
    launches = load_rung("r03").launches(workload)
    shapes = launch_shapes(launches)
    assert _same_launches(shapes, launch_shapes(launches))
    other = dataclasses.replace(launches[0], args=(*launches[0].args[:-1], np.float32(0.5)))
    assert not _same_launches(shapes, launch_shapes([other]))
    assert not _same_launches(shapes, launch_shapes(launches * 2))
    # A record made before arguments were kept is compared by the rest.
    older = tuple(shape.model_copy(update={"args": None}) for shape in shapes)
    assert _same_launches(older, launch_shapes([other]))
