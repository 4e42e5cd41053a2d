"""The README: the packages it needs, its commands, and a table that nobody typed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from devices import LIMITS

from labtools.problem import HEADLINE, Workload, list_rungs, load_rung
from labtools.record import Record, RecordStore
from tools.readme_table import (
    BEGIN,
    END,
    ROOT,
    TEXTS,
    against_peers,
    final_table,
    peers_tables,
    replace_table,
    results_plot,
    results_table,
    say_losses,
    wanted_files,
    whole_results,
)

README = (ROOT / "README.md").read_text()


def test_the_packages_stand_above_the_commands() -> None:
    above = README.split("\n\n```bash\nmake lab")[0].splitlines()[-1]
    for package in ("python3", "python3-venv", "git", "make", "g++", "python3-dev"):
        assert package in above.strip("`").split()


def test_every_make_target_it_names_exists() -> None:
    lines = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {name for line in lines for name in line.split()}
    named = set(
        re.findall(
            r"(?:`|^)make ([\w-]+)", README + (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
        )
    )
    assert named - targets == set()
    ci = (ROOT / ".ci/run").read_text()
    assert "make test" in ci


def test_the_results_are_what_the_records_say() -> None:
    """When this fails: make regen."""
    for path, text in wanted_files().items():
        assert path.read_text() == text, path


def record(candidate: str, us: float, **changes: object) -> Record:
    """A measured candidate with three samples in each of two processes."""
    baseline = candidate.startswith("baseline:")
    knobs = {} if baseline else next(r for r in list_rungs() if r.id == candidate).resolve_knobs()
    fields = {
        "candidate": candidate,
        "kind": "baseline" if baseline else "rung",
        "knobs": knobs,
        "workload": HEADLINE.to_dict(),
        "hashes": {"source_hash": "0"},
        "protocol": "test",
        "comparison": {"ok": True},
        "samples": {
            "processes": [
                {"process": p, "us": [us, us * 1.001, us * 0.999], "launches_per_sample": 1,
                 "rotated_sets": 1, "rotated_bytes": 1}
                for p in range(2)
            ]
        },
        "median_us": us,
        "campaign": "one",
        "provenance": {
            "gpu": "NVIDIA Test", "gpu_slug": "test", "arch": "sm_90", "tree_hash": "0",
            "date": datetime(2026, 1, 2, tzinfo=UTC), "command": "test",
        },
    }  # fmt: skip
    return Record.model_validate({**fields, **changes})


def table(tmp_path: Path, *records: Record) -> str:
    store = RecordStore([tmp_path])
    store.append("test.jsonl", records)
    return results_table(store, list_rungs())


def test_rows_and_ratios(tmp_path: Path) -> None:
    text = table(tmp_path, record("baseline:sdpa", 40.0), record("r03_one_warp", 100.0))
    assert "Recorded on NVIDIA Test, 2026-01-02" in text
    assert re.search(r"`r03_one_warp`.*\| 100\.0 us \|.*\| 0\.40 x \(0\.\d\d to 0\.\d\d\) \|", text)
    assert re.search(r"`sdpa` \(baseline\) \| 40\.0 us \|.*\| 1\.00 x \|", text)


def test_what_does_not_belong_is_left_out(tmp_path: Path) -> None:
    other_knobs = {**record("r03_one_warp", 1.0).knobs, "unroll": 1}
    text = table(
        tmp_path,
        record("baseline:sdpa", 40.0),
        record("r03_one_warp", 777.0, knobs=other_knobs),
        record("r02_one_barrier", 888.0, workload=Workload(1, 8, 8, 64, 64).to_dict()),
        record("r00_two_passes", 999.0, rung_path="elsewhere/r00_two_passes.py"),
    )
    assert not re.search("777|888|999", text)


def test_times_of_two_campaigns_are_not_set_side_by_side(tmp_path: Path) -> None:
    text = table(
        tmp_path, record("baseline:sdpa", 40.0, campaign="older"), record("r03_one_warp", 100.0)
    )
    assert text.count(" us |") == 1


def test_the_fastest_fair_fp16_library_is_the_reference(tmp_path: Path) -> None:
    """A handicapped baseline and one with an FP8 cache may be faster and are no reference."""
    text = table(
        tmp_path,
        record("baseline:sdpa", 40.0),
        record("baseline:flashinfer", 38.0),
        record("baseline:sdpa_expanded", 30.0),
        record("baseline:flashinfer_fp8", 20.0, codec="int8"),
        record("r03_one_warp", 100.0),
    )
    assert "times as fast as `flashinfer` |" in text
    assert re.search(r"`flashinfer` \(baseline\) \|.*\| 1\.00 x \|", text)
    assert re.search(r"`sdpa_expanded` \(handicapped baseline\)", text)
    assert re.search(r"`r03_one_warp`.*\| 0\.38 x", text)


def final(tmp_path: Path, **changes: object) -> RecordStore:
    """A store in which r03 stands in for the quantised rung: 8 bits beside two libraries."""
    store = RecordStore([tmp_path])
    gpu = {
        "provenance": {**record("r03_one_warp", 1.0).provenance.model_dump(), "gpu_slug": "h200"}
        | {"gpu": "NVIDIA H200"}
    }
    store.append(
        "final.jsonl",
        [
            record("baseline:sdpa", 40.0, **gpu),
            record("baseline:flashinfer_fp8", 30.0, codec="int8", **gpu),
            record("r03_one_warp", 20.0, codec="int8", **gpu, **changes),
        ],
    )
    return store


def test_the_last_rungs_by_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tools import readme_table

    monkeypatch.setattr(readme_table, "FINAL_RUNGS", ("r03_one_warp", "r10_none", "r11_none"))
    text = final_table(final(tmp_path))
    row = next(line for line in text.splitlines() if line.startswith("| `8,32,8,4096,128`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "`sdpa`"
    assert cells[2].startswith("2.00 x (")
    assert cells[3:5] == ["-", "-"]
    assert float(cells[5]) == pytest.approx(20.0 / (HEADLINE.kv_bytes / 4800e3), abs=0.01)
    # Libraries with an FP8 cache have pages, so that a contiguous rung does not stand beside one.
    assert "FP8 library" not in text


def test_an_fp8_library_stands_beside_the_same_pages_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tools import readme_table

    monkeypatch.setattr(readme_table, "FINAL_RUNGS", ("r09_none", "r03_one_warp", "r11_none"))
    paged = HEADLINE.replace(layout="paged", page_size=64).to_dict()
    store = final(tmp_path, workload=paged)
    changed = {"workload": paged, "campaign": "pages"}
    gpu = {"provenance": store.load()[0].provenance.model_dump()}
    store.append(
        "pages.jsonl",
        [
            record("baseline:flashinfer", 60.0, **gpu, **changed),
            record("baseline:flashinfer_fp8", 45.0, codec="int8", **gpu, **changed),
            record("r03_one_warp", 30.0, codec="int8", **gpu, **changed),
        ],
    )
    text = final_table(RecordStore([tmp_path]))
    row = next(line for line in text.splitlines() if line.startswith("| `8,32,8,4096,128/paged64`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3].startswith("2.00 x (")
    assert cells[5] == "`flashinfer_fp8`" and cells[6].startswith("1.50 x (")


def test_what_differs_besides_the_kernel_has_a_column(tmp_path: Path) -> None:
    """Protocol, cache layout and both errors stand beside the ratios, and what is left out."""
    wrong = {"ok": True, "worst_error": 5e-2, "tolerance": 0.1}
    right = {"ok": True, "worst_error": 3e-4, "tolerance": 1e-3}
    text = table(
        tmp_path,
        record("baseline:sdpa", 40.0, comparison=right, protocol="graph-1"),
        record("baseline:sdpa_flash", 42.0, comparison=right, protocol="graph-1"),
        record("baseline:flashinfer_fp8", 30.0, codec="int8", comparison=wrong, protocol="graph-1"),
        record(
            "r04_split_first", 100.0, comparison=right, protocol="stream-1",
            launches=load_rung("r04").launches(HEADLINE, LIMITS),
        ),
        record("r10_inverted_int8", 20.0, codec="int8", comparison=right, protocol="graph-1"),
    )  # fmt: skip
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    by_name = {row[0].split("`")[1]: dict(zip(heads, row, strict=True)) for row in rows[1:]}
    assert by_name["r04_split_first"]["timed"] == "call by call, allocation in the call"
    assert "graph replay" in by_name["sdpa"]["timed"]
    fp8, r10 = by_name["flashinfer_fp8"], by_name["r10_inverted_int8"]
    assert (fp8["cache layout"], r10["cache layout"]) == ("pages of 16", "contiguous")
    assert (fp8["error: arithmetic"], r10["error: arithmetic"]) == ("-", "3e-04")
    of_scheme = "error: of the scheme"
    assert by_name["sdpa"][of_scheme] == "0"
    normal, outliers = (float(part) for part in fp8[of_scheme].split("/"))
    assert 0.02 < normal < outliers < 0.2  # e4m3 has three bits after the point
    assert float(r10[of_scheme].split("/")[0]) < normal / 2
    assert "(5e-02, normal inputs) is against the unquantised cache" in text
    for said in ("`plan`", "half a group on average", "chose", "between two protocols", "floors"):
        assert said in text


def peers(tmp_path: Path, r09_us: float, r10_us: float) -> RecordStore:
    """A store in which r09 and r10 stand beside a library of 16 bits and one of 8."""
    store = RecordStore([tmp_path])
    source = record("r03_one_warp", 1.0).provenance.model_dump()
    gpu = {"provenance": source | {"gpu_slug": "h200", "gpu": "NVIDIA H200"}}
    workload = Workload.parse("12,64,16,264,128/paged64").to_dict()
    gpu |= {"campaign": "peers-20260101T000000-a", "workload": workload}
    store.append(
        "peers.jsonl",
        [
            record("baseline:flashinfer", 40.0, **gpu),
            record("baseline:xqa_fp8", 30.0, codec="int8", **gpu),
            record("r09_inverted", r09_us, **gpu),
            record("r10_inverted_int8", r10_us, codec="int8", **gpu),
        ],
    )
    return store


def test_a_loss_is_said_before_the_results_are_opened(tmp_path: Path) -> None:
    found = against_peers(peers(tmp_path, r09_us=20.0, r10_us=60.0))
    said = say_losses(found)
    assert (
        "lose 1, " in said
        and "`xqa_fp8` on `12,64,16,264,128/paged64` against r10, 0.50 x (" in said
    )
    assert "Of 2 comparisons" in said and "on 1 workloads" in said
    assert "r09" not in said
    text = peers_tables(found)
    row = next(
        line for line in text.splitlines() if line.startswith("| `12,64,16,264,128/paged64`")
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "`flashinfer`" and cells[2].startswith("2.00 x (")
    assert cells[3] == "`xqa_fp8`" and cells[4].startswith("0.50 x (")
    assert cells[5:] == ["-", "-"]
    results = README.partition(BEGIN)[2]
    assert results.index(TEXTS["losses"][:20]) < results.index("<details>")


def test_no_loss_is_said_to_be_none(tmp_path: Path) -> None:
    found = against_peers(peers(tmp_path, r09_us=20.0, r10_us=20.0))
    assert "lose none" in say_losses(found)
    assert say_losses([]) == peers_tables([]) == ""


def test_the_last_rungs_without_records(tmp_path: Path) -> None:
    assert final_table(RecordStore([tmp_path])) == ""


def test_the_plot_is_one_file_for_one_set_of_records() -> None:
    records = [record("baseline:sdpa", 40.0), record("baseline:sdpa_expanded", 400.0)]
    records.append(record("r03_one_warp", 100.0))
    svg, alt = results_plot(records)
    assert (svg, alt) == results_plot(records[::-1])
    for text in ("r03_one_warp", "100.0", "sdpa_expanded", "400.0"):
        assert text in svg
        assert text in alt
    widths = [float(n) for n in re.findall(r'<rect x="190" y="\d+" width="([\d.]+)"', svg)]
    assert widths[1] < widths[0] < widths[2]  # sdpa, r03, sdpa_expanded
    assert svg.count('fill="url(#hatch)"') == 1  # the handicapped one, told without colour


def test_the_headline_is_said_where_there_are_records(tmp_path: Path) -> None:
    text, plot = whole_results(RecordStore([tmp_path]), list_rungs())
    assert "no record yet" in text and plot is None
    assert "<details>" not in text
    assert TEXTS["nothing_yet"] in text
    text, plot = whole_results(final(tmp_path), list_rungs())
    assert "is 2.00 times" in text and "as fast as sdpa" in text
    # A guess comes first: nothing of it is seen before it is opened.
    assert text.startswith(f"<details>\n<summary>{TEXTS['guess_first']}</summary>\n\n")
    assert text.endswith("\n\n</details>") and not re.search(r"\d", TEXTS["guess_first"])
    assert plot


def test_no_records(tmp_path: Path) -> None:
    assert results_table(RecordStore([tmp_path]), list_rungs()) == TEXTS["nothing_yet"]


@pytest.mark.parametrize("text", ["no markers", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_missing_markers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="markers"):
        replace_table(text, "table")
