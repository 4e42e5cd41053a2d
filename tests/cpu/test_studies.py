"""The study kernels, the launches that prepare, and the tolerance that a kernel states."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from devices import LIMITS, some_of
from live_fake import DEVICE, FAKE_GPU, use_fake_gpu
from pydantic import TypeAdapter

from labtools.measure import check_rung
from labtools.measure.cpu import run_on_cpu
from labtools.measure.gpu.job import Job, fill_cubin, make_job, rung_candidate
from labtools.measure.gpu.measure import time_candidates
from labtools.measure.gpu.plan import Rotation
from labtools.measure.gpu.runner import run_on_gpu
from labtools.measure.gpu.timing import Player, _refuse_half_cold
from labtools.measure.profiler.watched import WatchedItem, WatchRequest
from labtools.predict import limits_of
from labtools.problem import (
    HEADLINE,
    MOST_TOLERANCE,
    LabError,
    Launch,
    Rung,
    Workload,
    Workspace,
    list_rungs,
    list_studies,
    load_rung,
    timed_launches,
)
from labtools.toolchain.listings import listings_dir, read_stored

STUDIES = {rung.id: rung for rung in list_studies()}
CUT = {**STUDIES, **{one.id: one for one in map(load_rung, ("r04", "r05", "r08"))}}
"""Kernels that cut a sequence into pieces or tiles, and are short enough for every knob here."""
STEPS = ("s07_tensor_product", "s08_tensor_ring")
"""The steps from r08 to r09, whose pieces are those of r09."""
SPLITS = (1, 2, 3, 4, 16, 32, 64)
SMALL = Workload(3, 8, 2, 97, 128)
# One sequence shorter than there are pieces, one of a single row, one that is full.
SHORT = Workload(3, 6, 2, 45, 64, seq_lens=(3, 1, 45), distribution="late_peaked")


def test_studies_are_found_and_stand_beside_the_ladder() -> None:
    numbers = ["s00", "s01", "s02", "s03", "s04", "s05", "s07", "s08"]
    assert [one[:3] for one in STUDIES] == numbers
    assert not set(STUDIES) & {rung.id for rung in list_rungs()}
    assert load_rung("s01").id == load_rung("s01_warp_rows").id == "s01_warp_rows"
    for rung in STUDIES.values():
        assert rung.parent is None and rung.idea and rung.limiter and rung.cost
        reason = rung.supports(SMALL.replace(head_dim=96))
        assert reason is not None and "96" in reason


@pytest.mark.parametrize(
    ("name", "head_dim"),
    some_of([(name, dim) for name in CUT for dim in (64, 128)], 2),
    ids=str,
)
def test_what_is_cut_into_pieces_is_right_on_the_battery(name: str, head_dim: int) -> None:
    pieces = {"split": 4} if "split" in CUT[name].resolve_knobs() else {}
    knobs = {"split": 5} if name.startswith("r08") else pieces if head_dim == 64 else {}
    report = check_rung(CUT[name], SMALL.replace(head_dim=head_dim), knobs, on="cpu")
    assert report.ok, report.summary


def _each_choice() -> list[tuple[str, dict[str, int]]]:
    """Every value of every knob, the others at their defaults; of splits some."""
    return [
        (rung.id, {**({"split": 3} if rung.id.startswith("r08") else {}), knob.name: value})
        for rung in CUT.values()
        for knob in rung.knobs
        for value in knob.choices
        if value != knob.default and (knob.name != "split" or value in SPLITS)
    ]


@pytest.mark.parametrize(("name", "knobs"), some_of(_each_choice(), 6), ids=str)
def test_every_knob_is_right_where_pieces_and_tiles_end(name: str, knobs: dict[str, int]) -> None:
    for workload in (SHORT, SHORT.replace(head_dim=128)):
        run = run_on_cpu(CUT[name], workload, knobs, orders=(0, 2))
        assert run.ok, f"{knobs} on {workload}: {run}"


@pytest.mark.parametrize("name", sorted(set(STUDIES) - set(STEPS)))
def test_a_split_has_a_second_launch_and_its_workspace(name: str) -> None:
    rung = STUDIES[name]
    (whole,) = timed_launches(rung.launches(SMALL, LIMITS))
    assert "out" in whole.args
    first, second = timed_launches(rung.launches(SMALL, LIMITS, {"split": 8}))
    assert first.num_blocks == 8 * whole.num_blocks
    assert "out" not in first.args
    assert second.entry == "merge_pieces"
    assert second.workspace[0] in first.workspace
    assert second.workspace[0].shape == (3, 8, 8, 130)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("workload", [HEADLINE, HEADLINE.replace(batch=64, kv_len=2048), SMALL])
def test_a_step_has_the_blocks_of_r09_and_the_merge_of_r08(name: str, workload: Workload) -> None:
    (inverted,) = timed_launches(load_rung("r09").launches(workload, LIMITS))
    first, *others = timed_launches(STUDIES[name].launches(workload, LIMITS))
    assert (first.grid, first.block) == (inverted.grid, inverted.block)
    pieces = first.grid[0]
    assert (pieces > 1) == (workload.batch < 64)
    assert [one.entry for one in others] == ["merge_pieces"] * (pieces > 1)
    assert first.workspace[0].shape == (
        *(workload.batch, workload.num_qo_heads, pieces, workload.head_dim + 2),
    )
    defines, of_r09 = (one.defines(workload, LIMITS) for one in (STUDIES[name], load_rung("r09")))
    differs = {key for key in of_r09 if defines.get(key) != of_r09[key]}
    assert differs <= ({"CLUSTER", "STAGES"} if name.startswith("s07") else {"CLUSTER"})
    assert defines["CLUSTER"] == "1"  # or the compiler would start them in clusters


def test_what_a_warp_does_with_a_tile_is_the_same_in_the_steps_and_in_r09() -> None:
    texts = [rung.source_text for rung in (*(STUDIES[name] for name in STEPS), load_rung("r09"))]
    work = [text[text.index("void take_q(") : text.index("// A lane's rows of")] for text in texts]
    assert "fold_tile" in work[0] and work[0] == work[1] == work[2]
    rings = ["close_copies" in text for text in texts]
    merges = ["join_and_store" in text for text in texts]
    assert (rings, merges) == ([False, True, True], [False, False, True])


def test_no_stored_code_of_them_spills() -> None:
    """What is stored is held against what is compiled elsewhere."""
    for name in CUT:
        paths = listings_dir().glob(f"*/{name}.json.gz")
        stored = [one for path in paths for one in read_stored(path)]
        for resources in (used for one in stored for used in one.resources.values()):
            assert resources.spill_store_bytes == resources.spill_load_bytes == 0, name
        assert stored


def test_a_warp_serves_the_heads_that_its_knob_says() -> None:
    rung = STUDIES["s04_gqa_warp"]
    blocks = {g: rung.launches(SMALL, LIMITS, {"group": g})[0].grid[0] for g in (1, 2, 4, 8)}
    assert blocks == {1: 8, 2: 4, 4: 2, 8: 2}  # 8 query heads over 2 KV heads
    odd = Workload(2, 6, 2, 33, 128)  # 3 query heads a KV head: no multiple of the knob
    for group in (2, 4):
        assert run_on_cpu(rung, odd, {"group": group}, orders=(0,)).ok


# ---- preparation and tolerance ----


def test_codes_are_written_by_a_preparation_and_held_to_their_bound() -> None:
    rung = STUDIES["s02_warp_int8"]
    first, *others = rung.launches(SMALL, LIMITS, {"split": 2})
    assert first.prepare
    assert not any(launch.prepare for launch in others)
    assert {"k", "v"} <= set(first.args)
    assert not {"k", "v"} & {arg for launch in others for arg in launch.args}
    run = run_on_cpu(rung, SMALL, orders=(0,))
    assert run.ok
    assert run.comparison is not None
    assert run.comparison.tolerance == rung.tolerance
    assert 1e-3 < run.comparison.worst_error < 0.05
    strict = run_on_cpu(dataclasses.replace(rung, tolerance=None), SMALL, orders=(0,))
    assert not strict.ok
    assert "limit 0.001" in str(strict)
    with pytest.raises(LabError, match="eight bits"):
        rung.launches(SMALL.replace(distribution="large"), LIMITS)


def test_a_preparation_stands_before_the_rest() -> None:
    rung = load_rung("r03")
    (decode,) = rung.launches(SMALL, LIMITS)
    inputs = tuple(arg for arg in decode.args if arg not in ("q", "out"))
    prepare = dataclasses.replace(decode, prepare=True, args=inputs)
    for hidden in ("q", "out"):
        seen = dataclasses.replace(prepare, args=(*inputs, hidden))
        with pytest.raises(LabError, match=f"prepares with {hidden}"):
            rung.with_launch(lambda w, g, k, one=seen: [one, decode]).launches(SMALL, LIMITS)
    for launches in ([prepare], [decode, prepare], [prepare, decode, prepare]):
        with pytest.raises(LabError, match="prepares too late"):
            rung.with_launch(lambda w, g, k, launches=launches: launches).launches(SMALL, LIMITS)
    good = rung.with_launch(lambda w, g, k: [prepare, decode]).launches(SMALL, LIMITS)
    assert timed_launches(good) == [decode]
    job = Job("one", "rung", launches=tuple(good))
    assert [len(job.preparation), len(job.timed)] == [1, 1]


def test_only_what_a_preparation_names_is_kept_apart() -> None:
    knobs = {"split": 2}
    launches = STUDIES["s02_warp_int8"].launches(SMALL, LIMITS, knobs)
    prepared = Job("one", "rung", launches=tuple(launches)).prepared
    assert prepared == ["k_codes", "v_codes", "k_scale", "v_scale"]
    launches = STUDIES["s01_warp_rows"].launches(SMALL, LIMITS, knobs)
    assert Job("one", "rung", launches=tuple(launches)).prepared == []


# ---- on the fake GPU, whose preparation takes a hundred times as long as its kernel ----

WORKLOAD = Workload(2, 4, 2, 64, 64)


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rung:
    """On the fake GPU a rung that reads copies of k and v, made by a preparation."""
    use_fake_gpu(monkeypatch, tmp_path)
    source = tmp_path / "keeping.cu"
    source.write_text(
        "#include <cuda_fp16.h>\n"
        'extern "C" __global__ void copy_cache(const half* k, const half* v, half* kk, half* vv)'
        " {}\n"
        'extern "C" __global__ void decode_kept(const half* q, const half* k, const half* v, '
        "const int* n, half* out) {}\n"
    )

    def launch(workload: Workload, limits: object, knobs: object) -> list[Launch]:
        shape = (workload.batch, workload.num_kv_heads, workload.kv_len, workload.head_dim)
        spaces = (Workspace("kk", shape, "float16"), Workspace("vv", shape, "float16"))
        return [
            Launch("copy_cache", (1,), (32,), 0, ("k", "v", "kk", "vv"), spaces, prepare=True),
            Launch("decode_kept", (1,), (32,), 0, ("q", "kk", "vv", "seq_lens", "out"), spaces),
        ]

    return Rung("keeping", "", source, "", "", "", launch, tolerance=0.02)  # more than it may have


def test_a_preparation_is_not_timed_and_every_set_has_its_own(keeping: Rung) -> None:
    # The comparison takes two of the sets: workspaces shared by all would be wrong for one.
    timing = time_candidates([keeping, "r03"], WORKLOAD, processes=2, rounds=5, ceiling=False)
    assert timing.failures == {}
    record = timing.find("keeping")
    assert record.median_us == pytest.approx(25.0)
    assert record.comparison.tolerance == MOST_TOLERANCE["float16"]
    assert timing.find("r03").comparison.tolerance == 1e-3
    assert [one.entry for one in record.launches] == ["copy_cache", "decode_kept"]
    one, other = record.samples.processes[0], timing.find("r03").samples.processes[0]
    assert one.rotated_sets == other.rotated_sets > 1
    assert one.rotated_bytes == other.rotated_bytes  # copies are as large as what they replace


def test_a_check_prepares_first(keeping: Rung) -> None:
    run = run_on_gpu(keeping, WORKLOAD)
    assert run.ok, str(run)
    assert run.comparison is not None
    assert run.comparison.tolerance == MOST_TOLERANCE["float16"]
    (_, decode) = keeping.launches(WORKLOAD, LIMITS)
    unprepared = run_on_gpu(keeping.with_launch(lambda w, g, k: [decode]), WORKLOAD)
    assert not unprepared.ok


def test_a_watched_call_finds_its_workspaces_prepared(keeping: Rung) -> None:
    job = make_job(rung_candidate(keeping), WORKLOAD, limits_of(DEVICE))
    item = WatchedItem(0, job, WORKLOAD)
    request = WatchRequest((item,), str(fill_cubin(DEVICE.arch)), "ncu", 60.0)
    code = (
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from pydantic import TypeAdapter\n"
        "from labtools.measure.gpu.device import LiveDevice\n"
        "from labtools.measure.profiler import watched as child\n"
        "request = TypeAdapter(child.WatchRequest).validate_json(sys.argv[2])\n"
        "item, device = request.items[0], LiveDevice(0, False)\n"
        "buffers = child._make_buffers(device, item.workload, request)\n"
        "call = child.prepare_call(device, item.job, buffers, item.workload)\n"
        "from cupy.cuda._state import state\n"
        "before = state.clock_us\n"
        "call()\n"
        "print(before, state.clock_us - before)\n"
    )
    told = TypeAdapter(WatchRequest).dump_json(request).decode()
    command = [sys.executable, "-c", code, str(FAKE_GPU), told]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before_us, call_us = map(float, done.stdout.split())
    assert before_us >= 1000.0
    assert call_us == pytest.approx(25.0)


def test_a_small_prepared_cache_that_stays_in_the_l2_is_not_called_cold() -> None:
    rotation = Rotation(4, 4 * 1000, True)
    player = Player(
        *("x", "rung", WORKLOAD, lambda i: None, lambda i: None, lambda: None), read_bytes=500
    )
    with pytest.raises(LabError, match="not be a cold one"):
        _refuse_half_cold(player, WORKLOAD, rotation, 1000)
    _refuse_half_cold(player, WORKLOAD.replace(cache_state="warm"), rotation, 1000)
    _refuse_half_cold(player, WORKLOAD, rotation, 600)
    player.read_bytes = None
    _refuse_half_cold(player, WORKLOAD, rotation, 1000)
