"""Lab 8's bench: what it shows is what the recorded grid says, and its counts are of that code."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_tables import unpack_tables

from labtools.notebook.labs.lab08_ablation import view
from labtools.notebook.labs.lab08_ablation.figures import draw_pairs
from labtools.notebook.labs.lab08_ablation.kernels import KERNELS, find_kernel, shown_points
from labtools.notebook.labs.lab08_ablation.panels import OUTCOMES, say_outcome
from labtools.notebook.labs.lab08_ablation.view import YOUR_OWN, AblationBench, recorded_bench
from labtools.notebook.packing import pack_tables
from labtools.optimize.attribution import Attribution, Interaction, outcome_of
from labtools.optimize.bench import RecordedBench
from labtools.optimize.family import Family, load_family
from labtools.optimize.loop import ablate_point, check_methods
from labtools.optimize.opcode_table import opcodes_path, read_opcodes
from labtools.optimize.sass_check import check_sass
from labtools.problem import LabError
from labtools.toolchain import find_compiler
from labtools.toolchain.listings import machine_code
from tools.write_opcodes import count_code

COMPILED = int(os.environ.get("LABTOOLS_OPCODES", "1"))
"""Points whose counts are made again; all of them by a large number."""
FASTEST = "the fastest at the headline"
FEW_REGISTERS = "few registers"


@pytest.fixture(scope="module")
def family() -> Family:
    return load_family("tunable")


@pytest.fixture(scope="module")
def recorded(family: Family) -> RecordedBench:
    return recorded_bench(family)


@pytest.fixture(scope="module")
def shown(recorded: RecordedBench) -> AblationBench:
    return AblationBench(recorded, FASTEST)


def attribution(low: float, high: float, threshold: float = 0.02) -> Attribution:
    decided = "above" if low > threshold else "below" if high < threshold else None
    middle = (low + high) / 2
    return Attribution("m", "start", middle, middle, low, high, threshold, decided)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- what it shows


def test_an_outcome_lies_wholly_on_one_side() -> None:
    for low, high, outcome in (
        *((0.03, 0.05, "slower"), (-0.05, -0.03, "faster"), (-0.01, 0.01, "same")),
        *((0.01, 0.03, "open"), (-0.03, -0.01, "open")),
    ):
        assert outcome_of(attribution(low, high)) == outcome
        said = say_outcome(attribution(low, high))
        assert said.startswith("Undecided") == (outcome == "open" and high > 0)


def test_the_bench_shows_what_an_ablation_says(shown: AblationBench, family: Family) -> None:
    for kernel in KERNELS[::3]:
        point = find_kernel(shown.recorded, kernel.name)
        found = ablate_point(family, None, "recorded", point.knobs)
        for one in found.attribution:
            cell = shown.cell(kernel.name, one.method)
            assert cell["ratio"] == pytest.approx(1 + one.relative, abs=1e-4)
            assert (cell["low"], cell["high"]) == (round(1 + one.low, 4), round(1 + one.high, 4))
            assert cell["class"] == found.classes[one.method].replace("_", " ")
            assert cell["outcome"] in OUTCOMES
            assert cell["change"]["known"], f"no opcodes of {kernel.name} without {one.method}"


def test_each_planted_case_is_there(shown: AblationBench) -> None:
    harmful = shown.cell(FEW_REGISTERS, "latency.room_for_32_warps")
    assert (harmful["outcome"], harmful["class"]) == ("faster", "ineffective")
    spilled = {name: (held, then) for name, held, then, _ in harmful["change"]["numbers"]}
    assert spilled["bytes spilled a thread"][1] == "0" != spilled["bytes spilled a thread"][0]
    dropped = shown.cell(FASTEST, "latency.known_block_size")
    assert (dropped["class"], dropped["change"]["same"]) == ("implementation failed", True)
    nothing = shown.cell("eight warps, two pieces", "memory.l2_prefetch")
    assert (nothing["outcome"], nothing["class"]) == ("same", "ineffective")
    assert shown.cell(FASTEST, "compute.tail_apart")["class"] == "undecided"
    mma = shown.cell(FASTEST, "compute.tensor_core")["change"]["opcodes"]
    assert any(name.startswith("HMMA") and held and not then for name, held, then in mma)
    for cells in (one["cells"] for one in shown.tables[0]["kernels"]):
        for name, *held, _ in (row for one in cells.values() for row in one["change"]["numbers"]):
            assert "-" not in held or name.startswith(("instructions that", "turns")), name
    pair = shown.cell(FASTEST, "compute.tensor_core + compute.lazy_rescaling")
    assert pair["outcome"] == "less"
    assert pair["ratio"] < pair["product_ratio"]


def test_a_pair_that_was_not_recorded_has_no_cell(shown: AblationBench) -> None:
    fastest = next(one for one in shown.tables[0]["kernels"] if one["name"] == FASTEST)
    pairs = [key for key in fastest["cells"] if "+" in key]
    assert 0 < len(pairs) < len(fastest["methods"]) * (len(fastest["methods"]) - 1) / 2
    for first, others in fastest["with"].items():
        assert not {f"{first}+{other}" for other in others} & set(pairs)


def test_the_drawing_of_pairs_says_what_was_timed_beside_the_product() -> None:
    pair = Interaction(("latency.split_sequences", "latency.async_copies"), 0.9, 0.25, False)
    told = "split sequences and async copies: product +25.0 %, both +90.0 %"
    assert told in draw_pairs([pair], "Pairs").text


def test_a_case_shows_what_its_proof_sees(shown: AblationBench) -> None:
    text = view.show_cases(shown, [("harms", FEW_REGISTERS, "latency.room_for_32_warps")]).text
    cell = shown.cell(FEW_REGISTERS, "latency.room_for_32_warps")
    registers = {name: both for name, *both, _ in cell["change"]["numbers"]}
    held, without = registers["registers per thread"]
    assert f"registers per thread: {held} with it, {without} without" in text
    assert cell["said"] in text and cell["class"] in text


def test_every_workload_has_its_own_times_and_threshold(
    shown: AblationBench, family: Family
) -> None:
    assert [one["workload"] for one in shown.tables] == [str(one) for one in family.workloads]
    point = find_kernel(shown.at[0], FASTEST)
    method = family.methods_on(point)[0]
    for number, workload in enumerate(family.workloads):
        found = ablate_point(family, workload, "recorded", point.knobs, [method])
        cell = shown.cell(FASTEST, method, number)
        assert cell["ratio"] == pytest.approx(1 + found.attribution[0].relative, abs=1e-4)
        assert shown.tables[number]["threshold"] == round(found.attribution[0].threshold, 4)
        assert cell["change"]["known"]
    assert len({one["threshold"] for one in shown.tables}) > 1


def test_what_a_static_page_carries_is_small(shown: AblationBench) -> None:
    packed = json.loads(json.dumps(shown.view.tables))
    assert len(json.dumps(packed)) < 300_000
    assert unpack_tables(packed) == json.loads(json.dumps(shown.tables))


@pytest.mark.parametrize(
    "tables",
    [
        {"$": 1, "other": "a text that is long enough"},
        [{"a": ["the same list of texts"] * 2, "b": last} for last in (None, 0.5)],
        ["", [], {}, ["short"], ["short"], True],
    ],
)
def test_packed_tables_are_the_same(tables: Any) -> None:
    packed = pack_tables(tables)
    assert unpack_tables(json.loads(json.dumps(packed))) == tables
    assert json.dumps(packed["parts"]).count("the same list of texts") <= 1


def test_a_point_of_the_readers_own_is_shown_without_opcodes(recorded: RecordedBench) -> None:
    bench = AblationBench(recorded, own="split=4")
    assert bench.chosen[0].key == "split=4"
    split = bench.cell(YOUR_OWN, "latency.split_sequences")["change"]
    assert not split["known"]
    numbers = {name: (held, then) for name, held, then, _ in split["numbers"]}
    assert numbers["instructions in the code"][0] == "-"
    assert float(numbers["blocks"][0]) == 4 * float(numbers["blocks"][1])
    for refused in ({"own": "exp2=0"}, {"kernel": "r99"}):
        with pytest.raises(LabError, match="not on this bench"):
            AblationBench(recorded, **refused)
    with pytest.raises(LabError):
        AblationBench(recorded, own="split=3")
    with pytest.raises(LabError, match="not on this bench"):
        find_kernel(recorded, "r99")


# ------------------------------------------------------------------------------------------ live


def test_a_live_ablation_stands_beside_the_record(
    shown: AblationBench, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def timed(of: Family, workload: Any, on: str, *rest: Any) -> Any:
        asked.append((on, *rest))
        return ablate_point(of, workload, "recorded", *rest)

    monkeypatch.setattr(view, "can_run_live", lambda: True)
    monkeypatch.setattr(view, "ablate_point", timed)
    shown.view.out = [0, 1]
    (table,) = view.show_live_ablation(shown)
    shown.view.out = []
    methods = family.methods_on(find_kernel(shown.recorded, FASTEST))[:2]
    both = [(on, methods, True) for on in ("gpu", "recorded")]
    assert [(one[0], one[2], one[3]) for one in asked] == both
    for told in ("identical kernels", " + ".join(methods), "a pair has none"):
        assert told in str(table)

    def refused(*_: Any) -> Any:
        raise LabError("The GPU is busy.", "another measurement", "later")

    monkeypatch.setattr(view, "ablate_point", refused)
    (said,) = view.show_live_ablation(shown)
    assert "The GPU is busy." in str(said)


# ------------------------------------------------------------------------------- opcodes, codes


def test_the_table_holds_the_points_that_are_shown_and_no_others(recorded: RecordedBench) -> None:
    table = read_opcodes(opcodes_path("tunable", "h200"))
    assert set(table.codes) == {recorded.code_hash(point) for point in shown_points(recorded)}
    assert table.nvrtc_version == recorded.grid.nvrtc_version


def test_counts_agree_with_those_of_the_grid(recorded: RecordedBench) -> None:
    """The grid counted signatures and registers when it was made, the table counts all opcodes."""
    table = read_opcodes(opcodes_path("tunable", "h200"))
    method = recorded.family.method("compute.tensor_core")
    for point in shown_points(recorded):
        number, entry = recorded.grid.number(point), recorded.entry(point)
        assert number is not None and entry is not None
        counts = table.codes[recorded.code_hash(point) or ""][entry]
        assert counts.registers == recorded.grid.registers[number]
        assert counts.spill_bytes == recorded.grid.spills[number]
        counted = recorded.grid.count_patterns(number, method.patterns)
        assert counted is not None
        ldsm = sum(n for name, n in counts.opcodes.items() if name.startswith("LDSM"))
        hmma = sum(n for name, n in counts.opcodes.items() if name.startswith("HMMA.16816"))
        assert [hmma, ldsm] == [n for _, n in counted]


def test_drawn_points_compile_to_the_counts_that_are_kept(recorded: RecordedBench) -> None:
    if find_compiler().version != recorded.grid.nvrtc_version:
        pytest.skip("another version of the compiler makes other code")
    table = read_opcodes(opcodes_path("tunable", "h200"))
    points = shown_points(recorded)
    drawn = np.random.default_rng(os.getpid()).permutation(len(points))[:COMPILED]
    for point in (points[number] for number in drawn):
        where = recorded.family.rung, recorded.problem, recorded.limits
        found, counts = count_code(*where, point.knobs)
        assert found == recorded.code_hash(point)
        assert counts == table.codes[found]


def test_a_damaged_table_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    with pytest.raises(LabError, match="cannot be read"):
        read_opcodes(path)
    path.write_bytes(gzip.compress(b'{"schema_version": 99}'))
    with pytest.raises(LabError, match="its schema is 99"):
        read_opcodes(path)


def test_a_recorded_check_needs_no_compiler(
    recorded: RecordedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "code", lambda point: pytest.fail(f"compiled {point}"))
    found = Counter[str]()
    for point in (find_kernel(recorded, kernel.name) for kernel in KERNELS):
        verdicts = check_methods(recorded, point, recorded.family.methods_on(point))
        found.update(one.verdict for one in verdicts)
    assert min(found["present"], found["no signature"]) > 20


def test_a_recorded_check_is_that_of_the_compiled_code(recorded: RecordedBench) -> None:
    """A drawn kernel of the bench and a signed method of it; two kernels are compiled."""
    if find_compiler().version != recorded.grid.nvrtc_version:
        pytest.skip("another version of the compiler makes other code")
    family, random = recorded.family, np.random.default_rng(os.getpid())
    point = find_kernel(recorded, KERNELS[random.integers(len(KERNELS))].name)
    signed = [name for name in family.methods_on(point) if family.method(name).signature]
    name = signed[random.integers(len(signed))]
    left = family.remove(point, name)
    where = family.rung, recorded.problem, recorded.limits
    codes = [machine_code(*where, one.knobs) for one in (point, left)]
    compiled = check_sass(family, [name], *codes, recorded.entry(point))
    (told,), (of_code,) = check_methods(recorded, point, [name]), compiled
    for one in ("verdict", "found", "without", "entry"):
        assert getattr(told, one) == getattr(of_code, one)
    assert "campaign" in told.origin and "compiled" in of_code.origin


def test_a_signature_that_nobody_counted_is_compiled(
    recorded: RecordedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    point, asked = find_kernel(recorded, "the start"), list[str]()

    def compiled(point: Any) -> Any:
        asked.append(point.key)
        raise LabError("There is no compiler here.", "", "")

    monkeypatch.setattr(recorded, "code", compiled)
    monkeypatch.setattr(type(recorded.grid), "count_patterns", lambda *_: None)
    with pytest.raises(LabError, match="no compiler"):
        check_methods(recorded, point, ["compute.exponent_base_2"])
    assert asked
