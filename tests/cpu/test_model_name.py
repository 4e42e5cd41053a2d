"""The model's name: of what it says, and of nothing else."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from labtools.measure.worker import child_environment
from labtools.microbench.run import write_record
from labtools.predict import occupancy, version
from labtools.predict.forecasting import MODEL_ROOMS
from labtools.predict.frozen import FROZEN, read_frozen, write_frozen
from labtools.predict.measured import RECORD_NAME, read_record
from labtools.predict.streams import block_streams
from labtools.problem import LabError
from labtools.record import RecordStore, shipped_records_dir
from labtools.toolchain.sass import parse_listings

FEW = slice(6, 9)
"""Frozen listings that the quick tests forecast: of r03, with shuffles and several blocks an SM."""
NAME_OF_FEW = (
    "from labtools.predict.version import compute_name; "
    "from labtools.predict.frozen import read_frozen; "
    f"print(compute_name(read_frozen()[{FEW.start}:{FEW.stop}]))"
)


@pytest.fixture(scope="module")
def name_of_few() -> str:
    """The name that a few listings give here."""
    return version.compute_name(read_frozen()[FEW])


@pytest.fixture
def copied(tmp_path: Path, repository: Path) -> Path:
    """A copy of labtools and of our own microbenchmarks: no kernels, no other records."""
    hidden = shutil.ignore_patterns("__pycache__", "listings", "*.pyc")
    shutil.copytree(repository / "labtools", tmp_path / "labtools", ignore=hidden)
    for path in (repository / "kernels" / "records").glob(f"*/{RECORD_NAME}"):
        copy = tmp_path / path.relative_to(repository)
        copy.parent.mkdir(parents=True)
        shutil.copy(path, copy)
    return tmp_path


def _name_in(folder: Path) -> str:
    return _said_in(folder, NAME_OF_FEW)


def _said_in(folder: Path, program: str) -> str:
    """What a program prints that imports the labtools of a folder."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=child_environment({"PYTHONPATH": str(folder)}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _file_of(thing: Callable[..., object], root: Path, repository: Path) -> Path:
    """The file in a copy that defines something here; tests must not know where things stand."""
    return root / Path(inspect.getsourcefile(thing) or "").relative_to(repository)


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text("utf-8") + text, "utf-8")


# ------------------------------------------------------------------------ what changes the name


def test_the_kept_name_was_computed_with_this_code() -> None:
    kept = version.read_kept()
    assert kept.get("digest") == version.model_digest(), (
        f"{version.KEPT_NAME.name} is of other code or tables than those here: run make name"
    )
    assert version.model_name() == kept["name"]


@pytest.mark.slow
def test_the_kept_name_is_the_computed_one() -> None:
    assert version.read_kept()["name"] == version.compute_name()


def test_comments_and_a_renamed_file_change_nothing(
    copied: Path, repository: Path, name_of_few: str
) -> None:
    _append(_file_of(occupancy, copied, repository), "\n# A remark.\n")
    _append(_file_of(parse_listings, copied, repository), "\n# A remark.\n")
    _append(copied / "labtools" / "predict" / "gpus.toml", "\n# A remark.\n")
    moved = _file_of(block_streams, copied, repository)
    old, new = moved.stem, f"other_{moved.stem}"
    moved.rename(moved.with_name(f"{new}.py"))
    for path in (copied / "labtools").rglob("*.py"):
        text = path.read_text("utf-8")
        path.write_text(re.sub(rf"(?<=[.\w]){old}(?= import)|\b{old}(?= import)", new, text))
    assert _name_in(copied) == name_of_few


def test_a_corrected_title_changes_nothing(
    copied: Path, repository: Path, name_of_few: str
) -> None:
    sheets = copied / "labtools" / "predict" / "gpus.toml"
    text = sheets.read_text("utf-8")
    assert 'title = "Tesla T4"' in text
    sheets.write_text(text.replace('title = "Tesla T4"', 'title = "NVIDIA T4"'), "utf-8")
    assert _name_in(copied) == name_of_few


def _another_count(root: Path) -> None:
    path = root / "labtools" / "predict" / "gpus.toml"
    text = path.read_text("utf-8")
    assert text.count("sm_count = 40\n") == 1
    path.write_text(text.replace("sm_count = 40\n", "sm_count = 41\n"), "utf-8")


def _a_slower_shuffle(root: Path) -> None:
    path = root / "kernels" / "records" / "h200" / RECORD_NAME
    record = read_record(path)
    for one in record["benchmarks"]["pipe.shfl"]["samples"]:
        if one["what"]["test"] == "latency":
            one["values"] = [1.1 * value for value in one["values"]]
    write_record(path, record)


@pytest.mark.parametrize("change", [_a_slower_shuffle, _another_count])
def test_a_changed_number_of_a_table_is_another_model(
    copied: Path, name_of_few: str, change: Callable[[Path], None]
) -> None:
    change(copied)
    assert _name_in(copied) != name_of_few


FEWER_BLOCKS = """

_as_it_was = occupancy


def occupancy(*given, **named):
    import dataclasses

    found = _as_it_was(*given, **named)
    return dataclasses.replace(found, blocks_per_sm=1)
"""
LONGER_STALLS = """

_as_it_was = parse_listings


def parse_listings(text):
    found = _as_it_was(text)
    for sass in found.values():
        for one in sass.instructions:
            object.__setattr__(one.control, "stall", min(15, one.control.stall + 1))
    return found
"""


@pytest.mark.parametrize(
    ("rule", "text"), [(occupancy, FEWER_BLOCKS), (parse_listings, LONGER_STALLS)]
)
def test_a_changed_rule_is_another_model_in_whatever_room(
    copied: Path, repository: Path, name_of_few: str, rule: Callable[..., object], text: str
) -> None:
    _append(_file_of(rule, copied, repository), text)
    assert _name_in(copied) != name_of_few


# ---------------------------------------------------------------------------- where it is kept


@pytest.fixture
def own_name_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A name file of this test's own, and a cache on disk of its own."""
    monkeypatch.setattr(version, "KEPT_NAME", tmp_path / "model_name.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    version.model_name.cache_clear()
    yield version.KEPT_NAME
    version.model_name.cache_clear()


def _count(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Compute nothing, give a name, and count how often it was asked for."""
    asked: list[str] = []

    def compute() -> str:
        asked.append(name)
        return name

    monkeypatch.setattr(version, "compute_name", compute)
    return asked


def test_the_name_is_read_where_the_digest_fits(
    own_name_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _count(monkeypatch, "chain model 1, 00000001")
    assert version.write_name(own_name_file) == "chain model 1, 00000001"
    asked = _count(monkeypatch, "chain model 1, 00000002")
    assert version.model_name() == "chain model 1, 00000001"
    assert not asked


@pytest.mark.parametrize("damage", ["", '{"name": ', "[]", '{"name": "x", "digest": "0"}'])
def test_the_name_is_computed_once_where_the_file_does_not_fit(
    own_name_file: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    own_name_file.write_text(damage)
    asked = _count(monkeypatch, "chain model 1, 00000003")
    for _ in range(2):
        version.model_name.cache_clear()
        assert version.model_name() == "chain model 1, 00000003"
    assert len(asked) == 1  # the second time it comes from the cache on disk


@pytest.mark.parametrize(
    "changed", ["toolchain/sass.py", "predict/gpus.toml", f"kernels/records/h200/{RECORD_NAME}"]
)
def test_a_digest_of_other_code_tables_or_records_does_not_fit(copied: Path, changed: str) -> None:
    """What `test_the_kept_name_was_computed_with_this_code` must refuse."""
    ask = "from labtools.predict.version import model_digest; print(model_digest())"
    before = _said_in(copied, ask)
    assert before == version.model_digest()
    if changed.endswith(".gz"):
        _a_slower_shuffle(copied)
    else:
        _append(copied / "labtools" / changed, "\n# A remark.\n")
    assert _said_in(copied, ask) != before


def test_every_file_whose_code_runs_in_a_forecast_is_in_the_digest(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABTOOLS_CACHE_MIB", "0")
    ran: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        version.say_forecast(read_frozen()[FEW.start])
    finally:
        sys.setprofile(None)
    ours = {Path(name) for name in ran if name.startswith(str(repository / "labtools"))}
    assert len(ours) > 10
    rooms = {path.relative_to(repository / "labtools").parts[0] for path in ours}
    assert rooms - {"__init__.py"} <= set(MODEL_ROOMS)


# ------------------------------------------------------------------------- the frozen listings


def test_the_frozen_listings_cover_what_there_is() -> None:
    frozen = read_frozen()
    assert len(frozen) == 40
    assert {one.arch for one in frozen} >= {
        *("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
    }
    assert len({one.kernel for one in frozen}) == 18
    assert len({one.gpu for one in frozen}) >= 10
    assert {one.workload.head_dim for one in frozen} == {64, 128}
    for wanted in (
        *(lambda one: one.workload.is_paged, lambda one: one.workload.dtype == "bfloat16"),
        *(lambda one: one.workload.seq_lens, lambda one: one.workload.cache_state == "warm"),
        lambda one: any(launch.prepare for launch in one.launches),
    ):
        assert any(wanted(one) for one in frozen)


def test_frozen_listings_are_written_as_they_were_read(tmp_path: Path) -> None:
    path = tmp_path / "frozen.json.gz"
    write_frozen(path, read_frozen())
    assert path.read_bytes() == FROZEN.read_bytes()


def test_damaged_frozen_listings_are_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "frozen.json.gz"
    path.write_bytes(FROZEN.read_bytes()[:1000])
    with pytest.raises(LabError, match="frozen listings"):
        read_frozen(path)


def test_sealed_forecasts_keep_the_name_they_were_made_under() -> None:
    sealed = {
        record.forecast.model
        for record in RecordStore([shipped_records_dir()]).query(latest=False, experiment=None)
        if record.forecast is not None
    }
    assert {"roofline floor", "chain model 1", "chain model 1, 3fa5da01"} <= sealed
