"""The bench of budgets: what it looks up is what the models say, and what it builds is believed
only above the floor."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from packed_tables import unpack_tables

from labtools.derive import space_of
from labtools.derive.parts import NOT_TOLD_APART
from labtools.derive.prefill.costs import PrefillModel, PrefillTile
from labtools.derive.proposals import (
    ALIGNMENT_LIMIT,
    PADDINGS,
    SMEM_BUDGET,
    DesignLimit,
    DesignSpace,
    fates_of,
)
from labtools.notebook.labs.lab10_inversion import view
from labtools.notebook.labs.lab10_inversion.view import BudgetBench, choice_tables
from labtools.predict import load_gpu
from labtools.problem import LabError, load_rung, parse_problem
from labtools.problem.gemm.tiling import ProductTile
from labtools.problem.prefill import Prefill

H200, L4 = load_gpu("h200"), load_gpu("l4")
FEW: dict[str, tuple[str, ...]] = {
    "decode": ("8,32,8,1024,128",),
    "prefill": ("prefill:1,8,2,512,64/causal",),
    "gemm": ("gemm:256,256,256",),
    "moe": ("moe:64,4,2,128,128",),
}


@pytest.fixture(scope="module")
def bench() -> BudgetBench:
    return BudgetBench(("h200", "l4"), FEW)


def block_bytes(space: DesignSpace, at: tuple[int, ...], layout: str) -> int:
    one, fate = space.proposals[at], space.layouts[layout]
    return round(one.fixed_bytes + one.row_bytes * fate.row_share)


# ------------------------------------------------------------------------------------ proposals


def test_layouts_are_what_copies_and_reads_make_of_them() -> None:
    threads = fates_of(128, ("copy", "matrix"))
    assert list(threads) == list(PADDINGS)
    assert threads["one after another"].turns == 8 and threads["one after another"].beside == 0
    for name in ("2 bytes behind each", "4 bytes behind each"):
        assert threads[name].turns is None
        assert not ALIGNMENT_LIMIT.kept(threads[name].beside, 0)
    assert threads["16 bytes behind each"].turns == 1
    assert threads["16 bytes behind each"].row_share == 144 / 128
    assert threads["chunks moved by xor"].turns == 1
    boxes = fates_of(128, ("matrix",), boxes=True)
    refused = {name for name, fate in boxes.items() if fate.refused}
    assert refused == {name for name, padding in PADDINGS.items() if padding}
    with pytest.raises(LabError, match="no proposals for 'rows'"):
        space_of("rows", "rows:8,8", H200)


def test_a_number_holds_its_limit_from_its_own_side() -> None:
    most, least = (DesignLimit("a", "", at_most, "", "") for at_most in (True, False))
    assert most.kept(1, 1) and not most.kept(2, 1)
    assert least.kept(1, 1) and not least.kept(0, 1)


@pytest.mark.parametrize("gpu", [H200, L4])
def test_of_prefill_each_proposal_is_the_kernels_own_launch(gpu: Any) -> None:
    text = FEW["prefill"][0]
    problem, space = Prefill.parse(text), space_of("prefill", text, gpu)
    kind = "wgmma" if gpu is H200 else "mma"
    model = PrefillModel(problem, gpu, kind)
    taken = space.derived[1]
    lists = list(space.sizes.values())
    fitting = 0
    for at, one in space.proposals.items():
        keys, groups, stages = (values[n] for values, n in zip(lists, at, strict=True))
        tile = PrefillTile(kind, keys, groups, stages)
        assert block_bytes(space, at, taken) == model.launch(tile).smem_bytes
        hard = [limit for limit in space.constraints if limit.hard]
        holds = all(limit.kept(*one.figures[limit.name]) for limit in hard)
        if one.time_us is not None:
            fitting += 1
            assert holds and SMEM_BUDGET.kept(block_bytes(space, at, taken), space.smem_limit)
            turns = (0, 1) if kind == "wgmma" and groups > 1 else (0,)
            ways = [PrefillTile(kind, keys, groups, stages, turn) for turn in turns]
            times = [model.cost(way).time_us for way in ways]
            assert one.time_us in times and one.time_us <= NOT_TOLD_APART * min(times)
    assert fitting > 5


def test_of_a_product_each_proposal_has_the_ring_that_its_launch_asks_for() -> None:
    text = FEW["gemm"][0]
    space = space_of("gemm", text, L4)
    assert space.specified is not None and space.specified[0] == "g01_ring"
    depth = ProductTile.of(space.specified[1]).k
    lists = list(space.sizes.values())
    for at in space.proposals:
        rows, columns, stages = (values[n] for values, n in zip(lists, at, strict=True))
        made = ProductTile(rows, columns, depth, 1, 1, stages)
        assert block_bytes(space, at, "chunks moved by xor") == made.ring_bytes
        padded = ProductTile(rows, columns, depth, 1, 1, stages, pad=8)
        assert block_bytes(space, at, "16 bytes behind each") == padded.ring_bytes


@pytest.mark.parametrize("operation", ["decode", "prefill"])
def test_what_is_derived_for_a_measured_gpu_holds_every_limit(operation: str) -> None:
    space = space_of(operation, view.BENCH_WORKLOADS[operation][0], load_gpu("h200"))
    figures = space.proposals[space.derived[0]].figures
    for limit in space.constraints:
        value, bound = figures[limit.name]
        assert value <= bound if limit.at_most else value >= bound, limit


def test_what_is_derived_breaks_no_limit_that_refuses(bench: BudgetBench) -> None:
    for choice, space in zip(bench.choices, bench.spaces, strict=True):
        at, layout = space.derived
        own, fate = space.proposals[at], space.layouts[layout]
        assert own.time_us is not None and not own.cannot, choice
        if choice.op == "decode":
            assert own.time_us == pytest.approx(space.design.time_us)
        elif choice.op != "gemm" or choice.gpu.name != "h200":  # there g02 is specified
            # Warps and turns are the best of these sizes, which the derivation may tie-break.
            assert 0.93 * space.design.time_us <= own.time_us <= space.design.time_us * (1 + 1e-9)
        assert SMEM_BUDGET.kept(block_bytes(space, at, layout), space.smem_limit)
        assert fate.beside == 0 and fate.turns == 1 and not fate.refused
        if space.specified is not None:
            kernel, knobs = space.specified
            load_rung(kernel).launches(parse_problem(choice.workload), choice.gpu.limits, knobs)


# ---------------------------------------------------------------------------------------- bench


def test_the_picture_gets_every_proposal(bench: BudgetBench) -> None:
    tables = unpack_tables(json.loads(json.dumps(bench.tables)))
    assert len(tables) == len(bench.choices) == 2 * (3 + 2 + 1 + 1)
    for table, choice, space in zip(tables, bench.choices, bench.spaces, strict=True):
        assert (table["shape"], table["precision"]) == (choice.shape, choice.precision)
        assert table == json.loads(json.dumps(choice_tables(choice, space)))
        for (a, b, c), one in space.proposals.items():
            cell = table["cells"][a][b][c]
            assert cell[:2] == [one.fixed_bytes, one.row_bytes]
            for limit, (value, most) in zip(table["constraints"], cell[4:], strict=True):
                assert one.figures[limit["name"]] == pytest.approx((value, most), rel=1e-3)


def test_a_build_says_what_compiler_and_forecast_say(bench: BudgetBench) -> None:
    number = bench.number_of("h200", "decode", FEW["decode"][0])
    bench.choice = number
    bench._receive(None, {"kind": "build"}, None)
    assert bench.wait(60)
    found = bench.built[str(number)]
    assert bench.busy == ""
    if not found["not_compiled"]:
        assert found["registers"] > 0 and found["spilled"] == 0
    assert found["time"] is None or found["time"] > bench.spaces[number].floor_us * 0.95
    with pytest.raises(LabError, match="No shipped kernel"):
        bench.build(bench.number_of("l4", "moe", FEW["moe"][0]))
    with pytest.raises(LabError, match="not on this bench"):
        bench.number_of("t4", "moe", FEW["moe"][0])


def test_what_goes_wrong_in_the_thread_is_told(
    bench: BudgetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(number: int) -> None:
        raise LabError("The compiler stopped.", "it was asked to")

    monkeypatch.setattr(bench, "build", broken)
    bench.choice = 1
    bench._receive(None, {"kind": "build"}, None)
    assert bench.wait(60)
    assert bench.built["1"] == {"failed": "The compiler stopped. Why: it was asked to"}


def test_a_forecast_below_the_floor_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    said = SimpleNamespace(time_us=4.0, bound="launch", calibrated=True)
    monkeypatch.setattr(view, "forecast", lambda *_: said)
    text = FEW["gemm"][0]
    low = view.compile_and_forecast("g01_ring", {}, text, L4, 5.0)
    assert low["time"] is None and "does not understand" in low["not_forecast"]
    assert view.compile_and_forecast("g01_ring", {}, text, L4, 4.1)["time"] == 4.0

    def refuses(*_: Any) -> None:
        raise LabError("This cannot be followed.", "a loop depends on data")

    monkeypatch.setattr(view, "forecast", refuses)
    refused = view.compile_and_forecast("g01_ring", {}, text, L4, 1.0)
    assert refused["not_forecast"] == "This cannot be followed. Why: a loop depends on data"
