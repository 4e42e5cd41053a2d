"""The benches show what `labtools.predict` says, and the tables and diffs say where from."""

from __future__ import annotations

import itertools
import math
import random
import re

import pytest

from labtools.notebook import (
    Bar,
    Measured,
    Movement,
    Speedup,
    TimedCall,
    Word,
    badge,
    baseline_bench,
    diff_rungs,
    make_table,
    occupancy_bench,
    show_bars,
    show_comparison,
    show_diff,
)
from labtools.notebook.claims import show_claims
from labtools.notebook.labs.lab01_occupancy.view import Choices, occupancy_tables
from labtools.notebook.tables import Shown
from labtools.predict import achieved_occupancy, floors, list_gpus, load_gpu, occupancy
from labtools.problem import HEADLINE, LabError, Workload, load_rung

GPUS = tuple(load_gpu(name) for name in list_gpus())
CHOICES = Choices(GPUS)
TABLES = occupancy_tables(CHOICES)


def look_up(gpu: int, threads: int, registers: int, smem: int, most: int, grid: int) -> dict:
    """What occupancy_view.js does, in the same steps."""
    sheet = TABLES["gpus"][gpu]
    limits = [
        sheet["warps"][threads],
        sheet["blocks"],
        TABLES["register_limits"][sheet["register_limits"]][threads][registers],
        sheet["shared_memory"][smem],
        TABLES["max_blocks"][most],
    ]
    blocks = min(limit for limit in limits if limit is not None)
    share = sheet["occupancy"][str(TABLES["warps"][threads])][blocks]
    return {
        "blocks": blocks,
        "theoretical": share["theoretical"] if share else 0,
        "achieved": share["achieved"][grid] if share else 0,
        "spread": sheet["spread"][blocks][grid],
    }


def cases(count: int) -> list[tuple[int, ...]]:
    offered = (CHOICES.threads, CHOICES.registers, CHOICES.smem_bytes, CHOICES.max_blocks)
    sizes = [len(one) for one in (GPUS, *offered, CHOICES.grid)]
    draw = random.Random(0)
    corners = itertools.product(*((0, size - 1) for size in sizes))
    return [*corners, *(tuple(draw.randrange(n) for n in sizes) for _ in range(count))]


def test_the_picture_agrees_with_the_calculator() -> None:
    launched = 0
    for case in cases(3000):
        g, t, r, s, m, n = case
        block = CHOICES.threads[t], CHOICES.registers[r], CHOICES.smem_bytes[s]
        fits = occupancy(GPUS[g], *block, CHOICES.max_blocks[m])
        seen = look_up(*case)
        assert seen["blocks"] == fits.blocks_per_sm, case
        if fits.blocks_per_sm == 0:
            continue
        launched += 1
        real = achieved_occupancy(GPUS[g], fits, CHOICES.grid[n])
        assert seen["theoretical"] == pytest.approx(fits.theoretical, abs=1e-4)
        assert seen["achieved"] == pytest.approx(real.achieved, abs=1e-4)
        most, least, count = seen["spread"]
        sms = GPUS[g].sm_count
        assert most * count + least * (sms - count) == real.resident_blocks
        assert most - least in (0, 1)
    assert launched > 1000


def test_the_published_kernel_is_at_four_percent_not_a_third() -> None:
    bench = occupancy_bench("rtx4090", 32, 40, 0, 256)
    tables, view = bench.view.tables, bench.view
    sheet = tables["gpus"][view.gpu_index]
    shares = sheet["occupancy"]["1"]
    blocks = min(sheet["blocks"], sheet["warps"][view.threads_index])
    assert shares[blocks]["achieved"][view.grid_index] == pytest.approx(2 / 48, abs=1e-4)
    assert shares[16]["theoretical"] == pytest.approx(1 / 3, abs=1e-4)
    assert bench.controls["grid"].label == "256"


# -- timed calls ---------------------------------------------------------------------------


def test_a_timed_call_is_cut_into_its_steps() -> None:
    ada = load_gpu("rtx4090")

    def steps(workload: Workload) -> list[Movement]:
        return [Movement("read", workload.kv_bytes), Movement("write", 4 * workload.kv_bytes)]

    def measured(gpu: object, workload: Workload) -> list[Measured]:
        return [Measured(1360.0, "claimed", "as published")] if workload == HEADLINE else []

    sizes = {"short": HEADLINE.replace(kv_len=64), "long": HEADLINE}
    bench = baseline_bench([TimedCall("copy", steps, measured)], [ada], sizes, start="long")
    assert bench.view.size_index == 1
    short, long = (cell["candidates"][0] for cell in bench.view.tables["cells"][0])
    assert long["steps"][1]["start_us"] == pytest.approx(HEADLINE.kv_bytes / 1008e3, rel=1e-4)
    assert long["total_us"] == pytest.approx(5 * HEADLINE.kv_bytes / 1008e3, rel=1e-4)
    assert long["measured"][0]["word"] == "claimed"
    assert short["measured"] == []
    assert any("no measurement" in note for note in short["notes"])
    cell = bench.view.tables["cells"][0][1]
    assert cell["floor_us"] == pytest.approx(floors(HEADLINE, ada).time_us)
    assert cell["longest_us"] == 1360.0


# -- words, tables, diffs ------------------------------------------------------------------


def test_other_words_are_refused() -> None:
    for refused in (lambda: badge("measured"), lambda: Speedup(2.0, "somewhere")):
        with pytest.raises(LabError):
            refused()
    with pytest.raises(LabError):
        Speedup(math.nan, "live")
    candidate = TimedCall(
        "x", lambda w: [Movement("read", 1)], lambda g, w: [Measured(1.0, "guessed", "")]
    )
    with pytest.raises(LabError):
        baseline_bench([candidate], [load_gpu("l4")], {"only": HEADLINE})


def test_a_comparison_says_what_is_missing() -> None:
    shown = show_comparison(recorded=(90.0, 60.0), baseline="old", candidate="new")
    for told in ("no prediction", "not measured here", "1.50x faster"):
        assert told in shown.text
    assert "no record yet" in show_comparison(measured=2.0).text


def test_the_diff_counts_its_lines() -> None:
    parent, rung = load_rung("r02"), load_rung("r03")
    diff = diff_rungs(parent, rung)
    assert diff.added == sum(line.startswith("+") for line in diff.lines)
    assert diff.removed == sum(line.startswith("-") for line in diff.lines)
    assert diff.added > 0 < diff.removed
    shown = show_diff(rung)
    assert shown.html.count('class="lt-added"') == diff.added
    assert shown.html.count('class="lt-removed"') == diff.removed
    assert f"{diff.added} lines added, {diff.removed} removed" in shown.text
    edited = diff_rungs(rung, rung.with_source(rung.source_text + "\n// one more line\n"))
    assert "+// one more line" in edited.lines and edited.removed == 0
    assert diff_rungs(rung, rung).lines == ()
    assert '<details open class="lt-diff">' in shown.html
    long = show_diff("r09")
    assert '<details class="lt-diff">' in long.html and "New functions: `swizzled`" in long.text
    with pytest.raises(LabError):
        show_diff("r00")  # has no parent


def test_bars_have_alt_text_and_words() -> None:
    bars = [Bar("old", 20.0, "claimed"), Bar("new", 10.0, "recorded", 9.5, 10.5)]
    shown = show_bars(bars, "Two kernels", floor_us=5.0)
    alt = re.search('alt="([^"]*)"', shown.html)[1]
    for text in ("old 20.0 us (claimed)", "new 10.0 us (recorded)", "floor 5.0 us (computed)"):
        assert text in alt
    assert "no record yet" in show_bars([], "Nothing").text


def test_a_table_that_may_be_stacked_names_the_column_of_each_cell() -> None:
    shown = make_table(["what is <said>", "why"] * 3, [["a sentence that is long", "x"] * 3])
    assert 'data-column="what is &lt;said&gt;"' in shown.html
    assert "lt-stacked" not in make_table(["a"], [["b"]]).html


def widths(shown: Shown) -> tuple[float, float]:
    """Of the column of a page: where the letters become smaller, and where rows become lists."""
    found = re.findall(r"@container \(max-width:(\d+)em\)", shown.html)
    return float(found[0]), float(found[1])


def test_a_table_is_a_list_on_a_telephone_alone() -> None:
    few = make_table(["workload"] * 3, [["8,32,8,4096,128"] * 3])
    many = make_table(["workload"] * 8, [["8,32,8,4096,128"] * 8])
    for shown in (few, many):
        fits, compact = widths(shown)
        assert compact < fits and compact <= 37  # 592 px of a page's letters
        assert shown.html.count('data-column="workload"') == shown.html.count("<td ")
        assert 'tabindex="0" role="region" aria-label="table"' in shown.html
    assert all(more > less for more, less in zip(widths(many), widths(few), strict=True))


def test_what_all_rows_say_of_their_origin_stands_in_the_caption() -> None:
    where, other = "NVIDIA H200, 2026-01-02", "NVIDIA H200, 2026-01-03"
    one = make_table(["a", "from"], [["x", Word("recorded", where)]] * 3, "A caption")
    assert one.html.count(where) == 2  # once to be seen, once for who hears the table
    assert one.html.count("prov-recorded") == 1 and ">from<" not in one.html
    assert one.text.count(where) == 1 and f"A caption; {where} [recorded]" in one.text
    two = make_table(["a", "from"], [["x", Word("recorded", day)] for day in (where, other)])
    assert two.text.count("2026-01-02") == two.text.count("2026-01-03") == 1
    assert two.text.count("NVIDIA H200") == two.text.count("recorded") == 1
    rows = [[day, Word("recorded", f"{where}; {day}")] for day in (where, other)]
    assert make_table(["a", "kind"], rows).text.splitlines()[0] == "NVIDIA H200 [recorded]"
    said = [["x", Word("computed", doubt)] for doubt in ("", "rates not measured here")]
    heads, *cells = make_table(["a", "kind"], said, "A caption").text.splitlines()[1:]
    assert "kind" not in heads and "note" in heads and "rates not measured here" in cells[-1]
    mixed = make_table(["a", "from"], [["x", Word(word)] for word in ("recorded", "forecast")])
    assert mixed.html.count("prov ") == 2 and ">from<" in mixed.html
    single = make_table(["a", "from"], [["x", Word("recorded", where)]], "A caption")
    assert f"A caption; {where}" not in single.text and where in single.text
    bare = make_table(["a", "kind"], [["x", Word("computed")]])
    assert bare.text.splitlines()[0] == "[computed]" and ">kind<" not in bare.html


def test_claims_are_a_list_whose_reasons_open() -> None:
    shown = show_claims("loop-slots", "full-occupancy")
    assert shown.html.count('<details class="lt-reason">') == 2 and "<table" not in shown.html
    statement, reason = re.search(
        r"<summary[^>]*>(.*?)</summary>(.*?)</details>", shown.html
    ).groups()
    assert "<strong>" in statement and "ours" in statement and "Why:" in reason
    assert "Claimed:" in reason and "[computed]" in shown.text


@pytest.mark.parametrize(("reader", "ending"), [("0", "html"), ("1", "md")])
def test_a_claim_leads_to_the_cell_that_redoes_it(
    monkeypatch: pytest.MonkeyPatch, reader: str, ending: str
) -> None:
    monkeypatch.setenv("LABTOOLS_READER", reader)
    shown = show_claims("loop-slots", book="../").html
    assert f'href="../reproduce.{ending}#claims-loop"' in shown
