"""The goldens refuse what changed, let a last digit pass, and are kept when asked."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labtools.predict import MODEL_VERSION
from labtools.problem import LabError
from tools.goldens.__main__ import main
from tools.goldens.cases import draw, every_case
from tools.goldens.kept import GOLDEN_KINDS, path_of, read_goldens, write_goldens
from tools.goldens.values import (
    MASKED,
    WORDED,
    as_kept,
    changed_paths,
    column,
    mask,
    with_places_of,
)

ROOT = Path(__file__).resolve().parents[2]
KEPT: Any = {"time_us": 100.0, "bound": "chain", "trips": [[8, 512, 40.5]], "samples": 50}


def paths(change: Any) -> list[str]:
    """Where an answer differs from `KEPT` after one change."""
    now = copy.deepcopy(KEPT)
    change(now)
    return [path for path, _, _ in changed_paths(KEPT, now)]


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"time_us": 100.0 * (1 + 1e-8)}, "time_us"),
        ({"bound": None}, "bound"),
        ({"trips": [[8, 513, 40.5]]}, "trips/0/1"),
        ({"trips": []}, "trips/0"),
        ({"samples": True}, "samples"),
        ({"samples": 50.0 + 1e-3}, "samples"),
        ({"more": 1}, "more"),
    ],
    ids=str,
)
def test_a_changed_value_is_found_and_named(changed: dict[str, Any], path: str) -> None:
    assert paths(lambda now: now.update(changed)) == [path]


def test_a_missing_field_is_found_and_a_last_digit_is_no_change() -> None:
    assert paths(lambda now: now.pop("samples")) == ["samples"]
    assert paths(lambda now: now.update(time_us=100.0 * (1 + 1e-12))) == []
    assert list(changed_paths({"ok": True}, {"ok": 1}))


def test_a_sentence_is_kept_as_one_and_none_as_none() -> None:
    assert as_kept({"why": "it is so", "note": "", "bound": "issue"}) == {
        "why": WORDED,
        "note": "",
        "bound": "issue",
    }


def test_a_long_list_becomes_columns_that_notice_each_change() -> None:
    rows = [{"name": f"n{i}", "us": 1.5 * i, "parts": {"a": i}} for i in range(20)]
    before = column(rows)
    assert before["#count"] == 20
    for field, value in (("name", "other"), ("us", 3.00001), ("parts", {"a": 3})):
        changed = copy.deepcopy(rows)
        changed[2][field] = value
        found = {path.split("/")[0] for path, _, _ in changed_paths(before, column(changed))}
        assert found == {field}
    assert list(changed_paths(before, column(rows[1:] + rows[:1])))
    assert as_kept(rows, whole=True) == rows


def test_masks_hide_the_machine_and_nothing_else() -> None:
    links = [{"name": "disk", "ok": 1}]
    answer = {"status": 0, "data": {"python": "3.12.1", "labtools": "0.1.0", "links": links}}
    assert mask("doctor --json", answer) == {
        "status": 0,
        "data": {"python": MASKED, "labtools": "0.1.0", "links": [{"name": "disk", "ok": MASKED}]},
    }
    assert mask("derive --json", answer) == answer


def test_a_fault_may_be_told_of_any_thread_and_of_nothing_else() -> None:
    before = [{"said": "reads 8 bytes at element 128 of `k`, block (0, 0, 1), thread (0, 0, 0)"}]
    other = [{"said": "reads 8 bytes at element 236 of `k`, block (0, 0, 0), thread (27, 0, 0)"}]
    assert with_places_of(before, other) == before
    for changed in ("16 bytes at element 236 of `k`", "8 bytes at element 236 of `v`"):
        said = [{"said": other[0]["said"].replace("8 bytes at element 236 of `k`", changed)}]
        assert with_places_of(before, said) == said


def test_goldens_are_equal_bytes_when_equal(tmp_path: Path) -> None:
    goldens = {"b": {"x": 1.5}, "a": [1, None]}
    path = path_of("json", tmp_path)
    write_goldens(path, goldens)
    first = path.read_bytes()
    assert read_goldens(path) == goldens
    write_goldens(path, dict(reversed(goldens.items())))
    assert path.read_bytes() == first
    path.write_bytes(b"nothing")
    read_goldens.cache_clear()
    with pytest.raises(LabError, match="cannot be read"):
        read_goldens(path)


def test_the_same_seed_draws_the_same_goldens_of_every_kind() -> None:
    cases = list(every_case().values())
    assert draw(cases, 20, 7) == draw(cases, 20, 7)
    assert draw(cases, 20, 7) != draw(cases, 20, 8)
    assert {case.kind for case in draw(cases, 40, 7)} == set(GOLDEN_KINDS)


def ask(folder: Path, kind: str, match: str, *more: str) -> tuple[int, str]:
    """What a run says of the goldens of a folder."""
    asked = ["--goldens", kind, "--match", match, "--draw", "0", "--goldens-folder", str(folder)]
    command = [sys.executable, "-m", "pytest", "-q", "tests/goldens/test_values.py", *asked]
    done = subprocess.run(
        [*command, "-k", "test_golden", "-p", "no:cacheprovider", "-p", "no:xdist", *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


def plant(folder: Path, kind: str, key: str, **changes: Any) -> Path:
    """A folder whose golden of that key was another one."""
    path = path_of(kind, folder)
    write_goldens(path, {key: {**read_goldens(path_of(kind))[key], **changes}})
    return path


def test_a_golden_that_differs_is_refused_named_and_kept_when_asked(tmp_path: Path) -> None:
    key = next(key for kind, key in every_case() if kind == "median")
    path = plant(tmp_path, "median", key, median_us=1.0)
    status, said = ask(tmp_path, "median", key)
    assert status == 1
    assert f"median {key}" in said
    assert "median_us: 1.0 -> " in said
    assert ask(tmp_path, "median", key, "--snapshot-update")[0] == 0
    read_goldens.cache_clear()
    assert read_goldens(path)[key] == read_goldens(path_of("median"))[key]


@pytest.mark.parametrize("model", [MODEL_VERSION, MODEL_VERSION - 1])
def test_a_forecast_that_moved_is_kept_under_a_raised_number_alone(
    tmp_path: Path, model: int
) -> None:
    pytest.importorskip("cuda.core")
    key = next(key for kind, key in every_case() if kind == "forecast")
    path = plant(tmp_path, "forecast", key, time_us=1.0, model=model)
    status, said = ask(tmp_path, "forecast", key, "--snapshot-update")
    refused = model == MODEL_VERSION
    assert (status == 1) == refused
    assert ("raise MODEL_VERSION" in said) == refused
    read_goldens.cache_clear()
    assert (read_goldens(path)[key]["time_us"] == 1.0) == refused


@pytest.mark.parametrize("arguments", ["--draw 5 --accept", "--draw 5 --only screens"])
def test_a_sample_is_never_kept_and_never_of_screens(arguments: str) -> None:
    with pytest.raises(SystemExit):
        main(arguments.split())


def test_screens_are_asked_for_by_a_part_of_their_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    assert main(["--only", "screens", "--match", "forecast r9*", "--jobs", "1"]) == 0
    said = capfd.readouterr().out
    assert [line for line in said.splitlines() if "::" in line] == [
        "tests/goldens/test_screens.py::test_screen[forecast r99]"
    ]
