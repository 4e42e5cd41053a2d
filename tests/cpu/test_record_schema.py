"""What a record may hold, and what it must not."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from pydantic import ValidationError
from record_samples import make_record

from labtools.problem import HEADLINE, Launch
from labtools.record import (
    Counters,
    Record,
    SanitizerVerdict,
    at_default_knobs,
    select,
    shipped_records_dir,
    slug_of_gpu,
    timings_of,
)
from labtools.toolchain.cubin import Resources
from tools.compare_records import differences


def test_a_record_survives_json_whole():
    record = make_record(
        counters=Counters(tool="ncu 2025.3.1", values={"dram_read_bytes": 1.0, "l2_hit_pct": None}),
        sanitizer=(SanitizerVerdict(tool="memcheck", verdict="clean"),),
        knobs={"unroll": 4},
    )
    again = Record.model_validate_json(record.model_dump_json())
    assert again == record
    assert again.counters.missing == ["l2_hit_pct"]
    assert again.counters.values["l2_hit_pct"] is None
    assert again.problem == HEADLINE


def test_missing_counters_are_none_or_explained_and_never_empty_without_a_reason():
    assert Counters(reason="ncu was not found").values == {}
    with pytest.raises(ValidationError, match="need a reason"):
        Counters()


@pytest.mark.parametrize(
    ("verdict", "text"), [("clean", "something"), ("errors", ""), ("not run", "")]
)
def test_a_verdict_says_what_it_must(verdict, text):
    with pytest.raises(ValidationError):
        SanitizerVerdict(tool="memcheck", verdict=verdict, text=text)


def test_the_rate_counts_k_and_v_once():
    record = make_record(lists=[[100.0]])
    assert record.gb_per_s == pytest.approx(HEADLINE.kv_bytes / 100e-6 / 1e9)


def test_names_and_slugs():
    assert make_record("baseline:sdpa").name == "sdpa"
    assert make_record().name == "r03_one_warp"
    assert slug_of_gpu("NVIDIA H200") == "h200"
    assert slug_of_gpu("NVIDIA GeForce RTX 4090") == "rtx4090"
    assert slug_of_gpu("Tesla T4") == "t4"
    assert slug_of_gpu("") == "unknown"


def test_identity_tells_knobs_workloads_and_paths_apart():
    base = make_record()
    assert base.identity() == make_record(days=3.0).identity()
    others = [
        make_record(knobs={"unroll": 1}),
        make_record(workload=HEADLINE.replace(cache_state="warm")),
        make_record(rung_path="/somewhere/r03_one_warp.py"),
        make_record(slug="l4"),
        make_record("r02_one_barrier"),
    ]
    assert len({base.identity(), *(one.identity() for one in others)}) == 6


def test_a_knob_that_came_later_has_its_default():
    kept = {"unroll": 4, "launch_bounds": 1}
    before = make_record("r07_int4", knobs=kept)
    default, other = (make_record("r07_int4", knobs={**kept, "k_group": n}) for n in (0, 32))
    assert before.knobs == kept and before.every_knob == default.knobs
    assert before.identity() == default.identity() != other.identity()
    records = [before, default, other]
    assert timings_of(records, "r07") == at_default_knobs(records) == [before, default]
    assert timings_of(records, ("r07", {"k_group": 32})) == [other]
    assert select(records, knobs={"k_group": 0}) == [before, default]
    for alone in (
        make_record("r07_int4", knobs=kept, rung_path="/somewhere/r07_int4.py"),
        make_record("r99_gone", knobs=kept),
        make_record("baseline:sdpa"),
    ):
        assert alone.every_knob == alone.knobs


@pytest.mark.parametrize("field", ["hashes", "comparison", "resources", "launches"])
def test_a_misspelt_field_is_refused_wherever_it_stands(field: str) -> None:
    data = make_record(
        resources=(Resources(32, 0, 0, 0, 0, entry="a"),),
        launches=(Launch("a", (1,), (32,), args=("q", np.int32(3))),),
    ).model_dump(mode="json")
    assert Record.model_validate(data)
    part = data[field]
    (part[0] if isinstance(part, list) else part)["mispelt"] = 1
    with pytest.raises(ValidationError, match="mispelt"):
        Record.model_validate(data)


@pytest.mark.parametrize(
    ("candidate", "bits", "codec"),
    [
        ("r03_one_warp", 16, "none"),
        ("r06_int8", 8, "int8"),
        ("r07_int4", 4, "int4"),
        ("baseline:flashinfer_fp8", 8, "fp8-e4m3"),
        ("r06_int8", 6, None),
    ],
)
def test_the_bits_of_an_older_record_are_a_codec(candidate: str, bits: int, codec: str) -> None:
    data = make_record(candidate).model_dump(mode="json")
    del data["codec"]
    data |= {"schema_version": 2, "kv_bits": bits}
    if codec is None:
        with pytest.raises(ValidationError, match="6 bits"):
            Record.model_validate(data)
        return
    read = Record.model_validate(data)
    assert (read.codec, read.kv_bits) == (codec, bits)
    assert Record.model_validate_json(read.model_dump_json()) == read


def test_records_that_changed_are_told() -> None:
    one, other = {"median_us": 1.0}, {"median_us": 2.0}
    assert differences({"a": one, "b": one}, {"a": one, "b": one}) == []
    found = differences({"a": one, "b": one, "gone": one}, {"a": one, "b": other, "new": one})
    assert found == ["b: median_us was 1.0, is 2.0", "gone: gone", "new: new"]


def test_every_shipped_record_is_written_as_it_was_read() -> None:
    """A record that a type reads differently from what stands on disk would change when kept."""
    for path in sorted(shipped_records_dir().glob("*/*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines()[::25]:
            kept, told = json.loads(line), Record.model_validate_json(line)
            again = json.loads(told.model_dump_json())
            for name in ("launches", "resources", "hashes", "comparison", "samples"):
                assert again[name] == kept[name]
