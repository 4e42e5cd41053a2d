"""The campaign of a grid on the fake GPU: whole, resumed, bounded, and what its table holds."""

from __future__ import annotations

import codecs
import dataclasses
import json
import shutil
import statistics
from pathlib import Path

import pytest
from filelock import FileLock
from live_fake import DEVICE, use_fake_gpu

from labtools.optimize.family import family_hash_of, load_family
from labtools.optimize.grid import (
    Grid,
    GridAt,
    changed_points,
    grid_contradictions,
    read_grid,
    write_grid,
)
from labtools.predict import limits_of
from labtools.problem import LabError
from research import measure_grid as campaign
from research.make_grid import (
    changed_codes,
    describe_grid,
    draw_points,
    make_grid,
    renew_forecasts,
)
from research.measure_grid import (
    Clock,
    GridFolder,
    Timer,
    make_plan,
    make_points,
    names_of,
)

FOLDER = Path(__file__).resolve().parents[1] / "families"
WORKLOADS = '["rows:16,64", "rows:2,128"]'
ANCHORS = ("n00_rms_norm",)


def use_fake(patch: pytest.MonkeyPatch, tmp_path: Path, behaviour: dict | None = None) -> None:
    """The fake GPU; what was compiled for one test serves the others."""
    use_fake_gpu(patch, tmp_path, behaviour, sample_us=100.0)
    patch.delenv("XDG_CACHE_HOME")


def small_family(folder: Path) -> Path:
    """The row-wise family on workloads that a test can compute."""
    for ending in ("cu", "py", "toml"):
        shutil.copy(FOLDER / f"row_scale.{ending}", folder / f"row_scale.{ending}")
    source = folder / "row_scale.toml"
    first, rest = source.read_text().split("[[constraint]]", 1)
    before = first.split("workloads =")[0]
    source.write_text(f"{before}workloads = {WORKLOADS}\n\n[[constraint]]{rest}")
    return source


def begin(tmp_path: Path, **settings) -> GridFolder:
    """A folder with a plan of the small family."""
    source = tmp_path / "row_scale.toml"
    if not source.exists():
        small_family(tmp_path)
    family = load_family(source)
    chosen = {"anchors": ANCHORS, "batch": 8, "pairs": 6, **settings}
    folder = GridFolder(tmp_path / "out")
    folder.settle(make_plan(family, "h200", name=str(source), **chosen))
    folder.begin_on(DEVICE)
    return folder


def made(folder: GridFolder, what: str, deadline_s: float | None = None) -> dict:
    clock = Clock(deadline_s)
    return make_points(folder, limits_of(DEVICE), what, processes=1, clock=clock)


def timer(folder: GridFolder, deadline_s: float | None = None) -> Timer:
    return Timer(folder, limits_of(DEVICE), Clock(deadline_s), folder.codes())


def anchor_of(at: GridAt) -> str:
    """The name of the anchor, with its knobs."""
    (name,) = (name for name in at.anchors if name.startswith(ANCHORS[0]))
    return name


@pytest.fixture(scope="module")
def measured_campaign(folder_of_this_run):
    """A whole campaign's folder; the first process that asks makes it."""
    shared = folder_of_this_run / "campaign"
    shared.mkdir(exist_ok=True)
    with FileLock(shared / "lock"):
        if not (shared / "made").exists():
            with pytest.MonkeyPatch.context() as patch:
                use_fake(patch, shared)
                folder = begin(shared)
                made(folder, "codes")
                timer(folder).time_all()
                timer(folder).time_best(4)
                made(folder, "models")
            (shared / "made").touch()
    return shared / "out"


@pytest.fixture
def grid(measured_campaign):
    return make_grid(GridFolder(measured_campaign))


def test_every_point_of_the_closure_is_timed_at_every_workload(measured_campaign, grid):
    family = load_family(measured_campaign.parent / "row_scale.toml")
    assert {grid.number(point) for point in family.closure()} == set(range(len(grid)))
    assert [str(at.workload) for at in grid.at] == json.loads(WORKLOADS)
    for at in grid.at:
        assert not at.failures
        assert all(len(us) == campaign.GRID_ROUNDS for us in at.samples)
        for number in range(len(grid)):
            known = {64: 12.0, 256: 8.0, 512: 6.0}[grid.plan.knobs["threads"][number]]
            assert grid.median(number, at.workload) == pytest.approx(known)
            assert at.counters["issue_slot_pct"][number] is not None
        assert set(at.anchors[anchor_of(at)]) == {0, 1, 2}  # in every batch
    number, time_us = grid.best()
    assert grid.plan.knobs["threads"][number] == 512
    assert time_us == pytest.approx(6.0)
    samples = grid.samples(number)
    assert samples.processes[0].rotated_sets > 1
    assert all(one is not None for one in grid.registers)
    assert grid.provenance.cupy == "fake"
    assert grid.plan.model
    assert grid.numbers
    wide = grid.signatures["memory.wide_accesses"]
    for number, value in enumerate(grid.plan.knobs["wide"]):
        assert all(count > 0 for count in wide[number]) == (value == 1)


def test_identical_kernels_are_loaded_twice_and_timed_in_one_batch_and_in_two(
    measured_campaign, grid
):
    pairs = grid.identical()
    assert len(pairs) == 6
    assert {apart for _, _, apart in pairs} == {False, True}
    for first, second, _ in pairs:
        assert statistics.median(first) == pytest.approx(statistics.median(second))
    plan, folder = GridFolder(measured_campaign).plan(), GridFolder(measured_campaign)
    again = folder.cubins.glob("*.again.cubin")
    for path in again:
        first = path.with_name(path.name.replace(".again", ""))
        assert path.read_bytes() == first.read_bytes()
    labels = set(names_of(plan, load_family(plan.family)))
    timed = {label for one in folder.batches().values() for label in one.answers[0].timed}
    assert {label for label in timed if label.endswith(campaign.AGAIN)}
    assert labels <= timed


def test_the_best_points_are_timed_by_the_full_protocol(grid):
    full = grid.full
    assert len(full.samples) == 4
    assert all(len(rows) == 5 for rows in full.samples.values())
    assert all(len(us) == 10 for rows in full.samples.values() for us in rows)
    assert len(full.again) == 4
    assert any(name.startswith("ceiling:") for name in full.anchors) or full.anchors
    assert not full.failures


@pytest.mark.slow
def test_a_stopped_campaign_goes_on_where_it_was(monkeypatch, tmp_path):
    use_fake(monkeypatch, tmp_path)
    folder = begin(tmp_path)
    made(folder, "codes", 0.0)
    assert folder.codes() == {}
    codes = made(folder, "codes")
    assert len(codes) == len(folder.plan())
    timer(folder, deadline_s=0.0).time_all()
    assert folder.batches() == {}
    with campaign.LivePool(1) as pool:
        first = timer(folder).time_batch(pool, folder.plan().workloads[0], 0)
    folder.add("times", [first], campaign.TimedBatch)
    with (folder.folder / "times.jsonl").open("ab") as file:
        file.write(b'{"workload": "rows:16,64", "batch": 1, "answ')  # killed in mid-line
    again = timer(folder)
    asked = []
    monkeypatch.setattr(
        again, "time_batch", lambda _, of, batch: asked.append((str(of), batch)) or first
    )
    again.time_all()
    assert ("rows:16,64", 0) not in asked
    assert ("rows:16,64", 1) in asked
    assert len(asked) == len(folder.plan().workloads) * folder.plan().batches - 1
    assert len(list(folder.read("times", campaign.TimedBatch))) == len(asked) + 1


def test_a_folder_holds_one_plan(tmp_path):
    begin(tmp_path)
    begin(tmp_path)
    with pytest.raises(LabError, match="measurements of another grid"):
        begin(tmp_path, batch=16)


def test_a_limit_draws_few_points_and_keeps_the_start(tmp_path):
    source = small_family(tmp_path)
    family = load_family(source)
    plan = make_plan(family, "h200", name=str(source), limit=5)
    assert len(plan) == 5
    assert dict(family.start.knobs) in [plan.knobs_of(number) for number in range(5)]


@pytest.mark.slow
def test_a_wrong_point_has_a_reason_and_costs_the_others_nothing(monkeypatch, tmp_path):
    use_fake(monkeypatch, tmp_path, {"row_scale": "wrong"})
    folder = begin(tmp_path, limit=3, pairs=1)
    made(folder, "codes")
    timer(folder).time_all()
    made(folder, "models")
    grid = make_grid(folder)
    for at in grid.at:
        assert not any(at.samples)
        assert all("so it is not timed" in text for text in at.failures.values())
        assert at.anchors[anchor_of(at)]
    with pytest.raises(LabError, match="No point"):
        grid.best()


@pytest.mark.slow
def test_a_point_that_does_not_compile_is_kept_as_one(monkeypatch, tmp_path):
    use_fake(monkeypatch, tmp_path)
    source = small_family(tmp_path)
    text = source.with_suffix(".cu").read_text()
    source.with_suffix(".cu").write_text(text + "\n#if WIDE == 1\n#error no wide one\n#endif\n")
    folder = begin(tmp_path, limit=6, pairs=1)
    codes = made(folder, "codes")
    timer(folder).time_all()
    models = made(folder, "models")
    grid = make_grid(folder)
    wide = {number for number, value in enumerate(grid.plan.knobs["wide"]) if value == 1}
    assert set(grid.problems) == wide
    for said in (grid.problems[min(wide)], models[min(wide)].problem):
        assert "no wide one" in said and "What still works:" not in said
    assert codes[min(wide)].at == {}
    assert all(grid.samples(number) is None for number in wide)
    assert changed_codes(grid, load_family(source), [min(wide)]) == {}


@pytest.mark.slow
def test_a_process_that_has_loaded_much_makes_room(monkeypatch, tmp_path):
    use_fake(monkeypatch, tmp_path)
    monkeypatch.setattr(campaign, "BATCHES_A_PROCESS", 2)
    folder = begin(tmp_path, limit=2, pairs=1, batch=1)
    made(folder, "codes")
    pools, one = [], timer(folder)
    time_batch = one.time_batch
    monkeypatch.setattr(
        one, "time_batch", lambda pool, *of: pools.append(pool) or time_batch(pool, *of)
    )
    one.time_all()
    assert [pools.count(pool) for pool in dict.fromkeys(pools)] == [2, 2]


# ------------------------------------------------------------------------------- the table


def test_a_grid_is_read_back_as_it_was_written(tmp_path, grid):
    path = tmp_path / "row_scale.h200.jsonl.gz"
    write_grid(path, grid)
    assert read_grid(path) == grid
    before = path.read_bytes()
    write_grid(path, read_grid(path))
    assert path.read_bytes() == before
    assert path.stat().st_size < 60_000
    assert "points of row_scale" in describe_grid(grid)


def replan(grid: Grid, **change) -> dict:
    return {"plan": dataclasses.replace(grid.plan, **change)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda grid: {"registers": grid.registers[1:]}, "column registers"),
        (lambda grid: {"problems": {999: "none"}}, "no point 999"),
        (lambda grid: {"codes": ()}, "code that is not there"),
        (
            lambda grid: replan(grid, knobs={name: (1,) * len(grid) for name in grid.plan.knobs}),
            "the same knobs",
        ),
        (lambda grid: replan(grid, pairs=()), "is in no pair"),
    ],
)
def test_a_grid_that_contradicts_itself_is_refused(tmp_path, grid, change, says):
    wrong = dataclasses.replace(grid, **change(grid))
    assert any(says in text for text in grid_contradictions(wrong))
    with pytest.raises(LabError, match="contradicts itself"):
        write_grid(tmp_path / "wrong.jsonl.gz", wrong)


@pytest.mark.parametrize("damage", [b"", b"no gzip", b"\x1f\x8b\x08\x00"])
def test_a_damaged_or_future_grid_is_named(tmp_path, grid, damage):
    path = tmp_path / "grid.jsonl.gz"
    path.write_bytes(damage)
    with pytest.raises(LabError, match=r"grid\.jsonl\.gz cannot be read"):
        read_grid(path)


def test_a_grid_of_a_later_schema_is_refused(tmp_path, grid):
    path = tmp_path / "grid.jsonl.gz"
    write_grid(path, dataclasses.replace(grid, schema_version=2))
    with pytest.raises(LabError, match="its schema is 2"):
        read_grid(path)


def test_points_whose_code_is_another_are_named(measured_campaign, tmp_path, grid):
    source = small_family(tmp_path)
    family = load_family(source)
    drawn = draw_points(grid, 3)
    assert len(drawn) == 3
    assert changed_points(grid, family) == {}
    assert changed_codes(grid, family, drawn) == {}
    text = source.with_suffix(".cu").read_text()
    source.with_suffix(".cu").write_text(text.replace("\n", "\n// a remark\n", 1))
    family = load_family(source)
    assert changed_points(grid, family) == {}
    changed = text.replace("1.f", "2.f")
    assert changed != text
    source.with_suffix(".cu").write_text(changed)
    family = load_family(source)
    assert len(changed_points(grid, family)) == len(grid)
    found = changed_codes(grid, family, drawn)
    assert set(found) == set(drawn)
    assert "machine code" in found[drawn[0]]
    other = dataclasses.replace(grid, nvrtc_version="12.4")
    with pytest.raises(LabError, match=r"made by NVRTC 12\.4"):
        changed_codes(other, family, drawn)


def test_a_forecast_of_other_code_than_was_timed_is_refused(measured_campaign, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(measured_campaign, folder, ignore=shutil.ignore_patterns("cubins"))
    lines = (folder / "models.jsonl").read_text().splitlines()
    (folder / "models.jsonl").write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(LabError, match="missing among its models"):
        make_grid(GridFolder(folder))
    wrong = json.loads(lines[0])
    wrong["hashes"]["sass_hash"] = "0" * 64
    (folder / "models.jsonl").write_text("\n".join([json.dumps(wrong), *lines[1:]]) + "\n")
    with pytest.raises(LabError, match="other machine code than was timed"):
        make_grid(GridFolder(folder))


def test_forecasts_are_renewed_and_what_was_measured_stays(measured_campaign, grid):
    """By a campaign's own models a grid is what it was; another's forecasts stand in its place."""
    models = GridFolder(measured_campaign).models()
    assert renew_forecasts(grid, models, grid.plan.model) == grid
    one = next(number for number, held in models.items() if held.forecasts)
    key = str(grid.at[0].workload)
    other = dataclasses.replace(
        models[one].forecasts[key], time_us=77.0, counters={"duration_us": 77.0}
    )
    changed = dataclasses.replace(models[one], forecasts={**models[one].forecasts, key: other})
    found = renew_forecasts(grid, {**models, one: changed}, "another model")
    assert found.plan.model == "another model"
    assert found.at[0].forecast_us[one] == found.at[0].counters["duration_us"][one] == 77.0
    assert found.at[0].samples == grid.at[0].samples and found.at[1:] == grid.at[1:]
    with pytest.raises(LabError, match=f"forecast of point {one} is missing"):
        renew_forecasts(grid, {n: held for n, held in models.items() if n != one}, "")


def test_no_forecast_of_a_grid_is_lost_when_it_is_renewed(measured_campaign, grid):
    """A model that follows less of the same code leaves the grid as it is; it may follow more."""
    models = GridFolder(measured_campaign).models()
    blank = {n: dataclasses.replace(held, forecasts={}) for n, held in models.items()}
    last, key = len(grid) - 1, str(grid.at[1].workload)
    one = dataclasses.replace(
        models[last], forecasts={w: of for w, of in models[last].forecasts.items() if w != key}
    )
    with pytest.raises(LabError, match=f"{len(grid)} forecasts would be lost, of point 0 first"):
        renew_forecasts(grid, blank, "")
    with pytest.raises(LabError, match=f"At {key} 1 forecast would be lost, of point {last} first"):
        renew_forecasts(grid, {**models, last: one}, "")
    less = renew_forecasts(
        dataclasses.replace(
            grid,
            at=tuple(
                dataclasses.replace(at, forecast_us=(*at.forecast_us[:-1], None)) for at in grid.at
            ),
        ),
        {**models, last: one},
        grid.plan.model,
    )
    assert less.at[0] == grid.at[0] and less.at[1].forecast_us[last] is None


def test_a_family_has_one_hash_with_a_byte_order_mark_and_without(tmp_path):
    source = small_family(tmp_path)
    plain = family_hash_of(load_family(source))
    source.write_bytes(codecs.BOM_UTF8 + source.read_bytes())
    assert family_hash_of(load_family(source)) == plain
