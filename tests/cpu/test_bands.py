"""The bands of forecasts: which family a kernel is of, and what its band was measured on."""

from __future__ import annotations

from pathlib import Path

import pytest

from labtools.predict import forecast, load_gpu, machine_of
from labtools.predict.bands import FAMILIES, SAID_BEFORE, UNMEASURED, band_of, family_of
from labtools.problem import load_rung, parse_problem
from labtools.record import read_records, shipped_records_dir
from labtools.toolchain.listings import machine_code

H200 = load_gpu("h200")
SMALL = {"decode": "2,8,2,256,128", "prefill": "prefill:1,2,2,128,64", "gemm": "gemm:64,64,64"}


def family_of_kernel(name: str, problem_text: str) -> str | None:
    rung, problem = load_rung(name), parse_problem(problem_text)
    launches = rung.launches(problem, H200.limits)
    code = machine_code(rung, problem, H200.limits, rung.resolve_knobs({}))
    return family_of(problem, launches, code.entries.values())


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("r03", "decode"),
        ("r05", "decode_copies"),
        ("r07", "decode_codes"),
        ("r09", "decode_copies"),
        ("r11", "decode_copies_codes"),
        ("s02", "decode_codes"),
        ("s03", "decode_copies"),
        ("p00", "prefill"),
        ("g00", "gemm"),
    ],
)
def test_a_family_follows_from_operation_storage_and_machine_code(name: str, family: str) -> None:
    problem = SMALL.get(family, SMALL["decode"])
    assert family_of_kernel(name, problem) == family


def test_norms_have_no_family() -> None:
    made = forecast(load_rung("n00"), parse_problem("rows:64,512"), H200)
    assert made.family is None and made.band_us is None
    assert any("nobody measured how far" in one for one in made.doubts)


def test_memory_that_a_call_allocates_is_not_forecast() -> None:
    made = forecast(load_rung("r04"), parse_problem(SMALL["decode"]), H200)
    assert made.family == "decode" and made.band_us is None
    assert any("allocates memory" in one for one in made.doubts)


@pytest.mark.parametrize("name", ["r09", "r10", "r11"])
@pytest.mark.parametrize("problem", ["1,32,8,8192,128", "4,32,8,4096,128", "3,8,2,777,128"])
def test_waits_at_an_mbarrier_and_rare_votes_forbid_no_band(name: str, problem: str) -> None:
    made = forecast(load_rung(name), parse_problem(problem), H200)
    assert not made.doubts and made.band_us is not None
    assert made.band_us[0] <= made.time_us <= made.band_us[1]


def test_every_family_was_measured_on_the_h200() -> None:
    machine = machine_of(H200)
    for family in FAMILIES:
        band = band_of(machine, family)
        assert 0.5 < band.low < 1 < band.high < 2 and band.fitted >= 40
        assert band.fresh >= 30 and band.held >= 0.9 * band.fresh


def test_what_held_is_counted_in_the_records() -> None:
    records, _ = read_records(Path(shipped_records_dir(), "h200", "families.jsonl.gz"))
    machine, counted = machine_of(H200), dict.fromkeys(FAMILIES, 0)
    for one in records:
        made = one.forecast
        if one.kind != "rung" or made is None or made.model not in SAID_BEFORE:
            continue
        band = band_of(machine, _family_by_name(one.name))
        counted[_family_by_name(one.name)] += band.low <= one.median_us / made.time_us <= band.high
    assert counted == {family: band_of(machine, family).held for family in FAMILIES}


def _family_by_name(name: str) -> str:
    if name[0] in "pg":
        return "prefill" if name[0] == "p" else "gemm"
    copies = "_copies" if name[:3] in ("r05", "r09", "r10", "r11", "s08") else ""
    codes = "_codes" if name[:3] in ("r06", "r07", "r10", "r11") else ""
    return f"decode{copies}{codes}"


def test_an_unmeasured_gpu_has_a_wide_band() -> None:
    other = machine_of(load_gpu("rtx4090"))
    assert all(band_of(other, family) == UNMEASURED for family in FAMILIES)
    measured = [band_of(machine_of(H200), family) for family in FAMILIES]
    assert max((band.high / band.low) ** 0.5 for band in measured) < 1.4
