"""The study of a tile's layouts: right in each, refused where rows are not aligned; its table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from devices import LIMITS
from record_samples import make_record

from labtools.measure.campaign.plan import expand_plan, load_plan
from labtools.measure.cpu import run_on_cpu
from labtools.notebook.layouts import (
    ACCESS_NAMES,
    LAYOUT_STUDY,
    S06,
    show_layouts,
    turns_of,
    worst_read,
)
from labtools.problem import Gemm, LabError, load_rung, operation_of
from labtools.record import Counters, RecordStore, append_records
from labtools.toolchain import compile_rung
from labtools.toolchain.listings import machine_code

RUNG = load_rung(S06)
ALIGNED_TO = {64: 128, 65: 2, 66: 4, 72: 16, 0: 128}
"""Bytes that every row of the tile begins at a multiple of, by layout."""
FITTING = [
    {"layout": layout, "access": access}
    for access in ACCESS_NAMES
    for layout, aligned in ALIGNED_TO.items()
    if aligned % (access or 16) == 0
]


@pytest.mark.parametrize("knobs", [FITTING[1], FITTING[6], FITTING[-4], FITTING[-1]], ids=str)
def test_it_is_right_where_tiles_end(knobs: dict[str, int]) -> None:
    for one in (Gemm(70, 130, 100), Gemm(33, 5, 67, dtype="bfloat16")):
        assert run_on_cpu(RUNG, one, knobs, orders=(0,)).ok, one


@pytest.mark.parametrize("access", ACCESS_NAMES)
def test_the_launch_refuses_exactly_what_the_addresses_refuse(access: int) -> None:
    for layout, aligned in ALIGNED_TO.items():
        knobs = {"layout": layout, "access": access}
        assert worst_read(layout, access).faults == bool(aligned % (access or 16)), knobs
        if knobs in FITTING:
            assert RUNG.launches(LAYOUT_STUDY, LIMITS, knobs)
            continue
        with pytest.raises(LabError, match=f"{layout} elements apart are not read") as refused:
            RUNG.launches(LAYOUT_STUDY, LIMITS, knobs)
        assert f"row 1 begins at byte {2 * layout}" in str(refused.value)


def test_the_plan_times_every_layout_that_can_run_and_reads_its_counters() -> None:
    (group,), _ = expand_plan(load_plan("layouts"))
    assert [one.knobs for one in group.candidates.values()] == FITTING
    assert set(group.profile) == set(group.candidates)
    assert not group.sanitize


@pytest.mark.parametrize(("access", "width"), [(2, "LDS.U16"), (4, "LDS"), (16, "LDS.128")])
def test_the_machine_code_reads_as_wide_as_its_knob_says(access: int, width: str) -> None:
    """No compiler joins or keeps a read: a chunk of 16 rows of A by 4 of B has all of them."""
    knobs = {"layout": 72, "access": access}
    (sass,) = machine_code(RUNG, LAYOUT_STUDY, LIMITS, knobs).entries.values()
    reads = [
        re.findall(r"\bLDS[.\w]*", one.text)[0] for one in sass.executable if one.base == "LDS"
    ]
    assert reads.count(width) == 64 * 16 // access + (16 if access == 16 else 0)
    assert len(reads) == 64 * 16 // access + 16  # and A's, of 16 bytes
    assert (
        compile_rung(RUNG, LAYOUT_STUDY, LIMITS, knobs, "sm_90")
        .entries["gemm_s06"]
        .spill_store_bytes
        == 0
    )


def test_turns_are_those_of_a_count_by_hand() -> None:
    """2048 x 2048 x 512 in tiles of 128 x 128 x 64: 256 blocks, 8 slices, 8 warps."""
    turns = turns_of(72, 0)
    assert turns.reads == 256 * 8 * 8 * 8 * 4
    assert turns.of_a_read == turns.least / turns.reads == 4
    assert turns_of(64, 0).of_a_read == 32  # eight rows of 128 bytes begin in one bank
    assert turns_of(65, 2).of_a_read == 2
    assert turns_of(66, 4).of_a_read == 1
    assert turns_of(64, 2).reads == 256 * 8 * 8 * 16 * 4 * 64


def _counted(knobs: dict[str, int], wavefronts: float | None, us: float):
    return make_record(
        S06,
        [[us, us]] * 5,
        LAYOUT_STUDY,
        knobs=knobs,
        counters=Counters(tool="ncu 1", values={"shared_load_wavefronts": wavefronts}),
    )


def test_the_table_shows_what_was_counted_beside_what_was_predicted(tmp_path: Path) -> None:
    elsewhere = 1e6  # what A's reads take, in every layout
    records = [
        _counted(knobs, turns_of(knobs["layout"], 0).wavefronts + elsewhere, us)
        for knobs, us in (({"layout": 64, "access": 0}, 60.0), ({"layout": 72, "access": 0}, 20.0))
    ]
    records.append(_counted({"layout": 0, "access": 0}, None, 20.0))
    append_records(tmp_path / "h200" / "layouts.jsonl.gz", records)
    text = str(show_layouts(store=RecordStore([tmp_path])))
    (plain,) = [
        line for line in text.splitlines() if line.startswith("ldmatrix") and " 64  " in line
    ]
    assert plain.split()[1:6] == ["64", "32.00", "32.00", "60.0", "3.00"]
    (moved,) = [line for line in text.splitlines() if line.startswith("ldmatrix") and "XOR" in line]
    assert moved.split()[1:5] == ["64,", "XOR", "4.00", "-"]  # missing is not zero
    assert "faults at 0x82" in text
    assert "There is no record" not in text


def test_the_shipped_records_counted_what_the_addresses_say() -> None:
    """The case study's page says so of every layout and every kind of read."""
    found = {
        (one.knobs["layout"], one.knobs["access"]): one.counters.values["shared_load_wavefronts"]
        for one in RecordStore().query("h200", S06)
        if one.counters
    }
    assert set(found) == {(one["layout"], one["access"]) for one in FITTING}
    for access in ACCESS_NAMES:
        layouts = [layout for layout, of in found if of == access]
        best = min(layouts, key=lambda layout: turns_of(layout, access).wavefronts)
        for layout in layouts:
            said = turns_of(layout, access).wavefronts - turns_of(best, access).wavefronts
            assert found[layout, access] - found[best, access] == pytest.approx(said, rel=1e-3)


def test_its_operation_has_a_problem_that_it_can_be_watched_on() -> None:
    assert RUNG.supports(operation_of("gemm").watched) is None
