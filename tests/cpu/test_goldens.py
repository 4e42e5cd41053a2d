"""The goldens: 60 drawn ones hold, and the comparison refuses what it must refuse."""

from __future__ import annotations

import copy
import os
import random
from pathlib import Path
from typing import Any

import pytest

from labtools.problem import LabError
from tools.goldens import store
from tools.goldens.__main__ import main
from tools.goldens.cases import draw, every_case, possible
from tools.goldens.changes import Change, find_change, read_changes
from tools.goldens.compare import ask_all, compare
from tools.goldens.masks import MASKED, mask
from tools.goldens.store import GOLDEN_KINDS
from tools.goldens.values import ABSENT, as_kept, column, differences

SEED = "LABTOOLS_GOLDENS_SEED"
"""Repeats a draw."""
DRAWN = 60

BEFORE: dict[tuple[str, str], Any] = {
    ("forecast", "h200 r03"): {"time_us": 100.0, "bound": "chain", "trips": [[8, 512, 40.5]]},
    ("median", "file r03"): {"median_us": 99.0, "samples": 50},
    ("json", "forecast r03 --json"): {"status": 0, "data": {"model": "old", "time_us": 100.0}},
}


def _verdict(change: Any = None, changes: tuple[Change, ...] = (), whole: bool = True) -> Any:
    """Compare with the goldens above after one change of what is said now."""
    now = copy.deepcopy(BEFORE)
    if change is not None:
        change(now)
    return compare(BEFORE, now.items(), changes, whole)


def test_sixty_drawn_goldens_hold(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get(SEED) or random.randrange(2**31))
    with capsys.disabled():
        print(f"\ngoldens drawn with {SEED}={seed}")
    goldens = {
        (kind, key): value
        for kind in GOLDEN_KINDS
        for key, value in store.read_goldens(kind).items()
    }
    cases = [case for case in possible()[0] if (case.kind, case.key) in goldens]
    drawn = draw(cases, DRAWN, seed)
    assert len(drawn) == DRAWN
    verdict = compare(goldens, ask_all(drawn), read_changes())
    assert verdict.ok, f"{SEED}={seed} draws these again\n{verdict}"
    assert verdict.compared == DRAWN


@pytest.mark.parametrize("kind", ["forecast", "hash", "median"])
def test_every_shipped_record_has_its_golden_or_is_listed_as_new(kind: str) -> None:
    """And every golden its record, or it is listed as measured anew."""
    shipped = {key for of, key in every_case() if of == kind}
    goldens = set(store.read_goldens(kind))
    assert len(shipped & goldens) > 1000
    changes = read_changes()
    unlisted = [
        key for key in shipped ^ goldens if find_change(changes, kind, key, "", ABSENT) is None
    ]
    assert unlisted == []


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in store.FOLDER.iterdir()) < 2 * 1024**2


# ------------------------------------------------------------------------------ what is refused


def test_equal_answers_pass() -> None:
    assert _verdict().ok


def test_a_changed_number_is_refused_and_named() -> None:
    def change(now: Any) -> None:
        now["forecast", "h200 r03"]["time_us"] *= 1 + 1e-8

    verdict = _verdict(change)
    assert not verdict.ok
    assert "differs: forecast: h200 r03" in str(verdict)
    assert "time_us: 100.0 -> 100.000001" in str(verdict)


def test_a_last_digit_is_no_change() -> None:
    def change(now: Any) -> None:
        now["forecast", "h200 r03"]["time_us"] *= 1 + 1e-12

    assert _verdict(change).ok


@pytest.mark.parametrize(
    ("path", "value"),
    [("bound", "issue"), ("bound", None), ("trips", [[8, 513, 40.5]]), ("trips", [])],
)
def test_a_changed_word_count_or_list_is_refused(path: str, value: Any) -> None:
    def change(now: Any) -> None:
        now["forecast", "h200 r03"][path] = value

    assert not _verdict(change).ok


def test_a_missing_and_a_new_field_are_refused() -> None:
    assert not _verdict(lambda now: now["median", "file r03"].pop("samples")).ok
    assert not _verdict(lambda now: now["median", "file r03"].update(more=1)).ok


def test_a_golden_without_an_answer_is_refused_in_a_whole_comparison_only() -> None:
    def forget(now: Any) -> None:
        del now["median", "file r03"]

    assert not _verdict(forget).ok
    assert _verdict(forget, whole=False).ok


def test_an_answer_without_a_golden_is_refused() -> None:
    assert not _verdict(lambda now: now.update({("json", "new --json"): {"status": 0}})).ok


def test_true_is_not_one() -> None:
    assert list(differences({"ok": True}, {"ok": 1}))


def test_a_listed_change_passes_and_no_other_beside_it() -> None:
    listed = (Change("json", "forecast *", "data/model", "the name has another form", "new*"),)

    def rename(now: Any) -> None:
        now["json", "forecast r03 --json"]["data"]["model"] = "new name"

    def rename_wrongly(now: Any) -> None:
        now["json", "forecast r03 --json"]["data"]["model"] = "other name"

    def rename_and_more(now: Any) -> None:
        rename(now)
        now["json", "forecast r03 --json"]["data"]["time_us"] = 101.0

    assert not _verdict(rename).ok
    assert _verdict(rename, listed).ok
    assert not _verdict(rename_wrongly, listed).ok
    verdict = _verdict(rename_and_more, listed)
    assert [path for _, _, path, _, _ in verdict.unlisted] == ["data/time_us"]


def test_a_listed_change_that_fits_nothing_is_refused_in_a_whole_comparison_only() -> None:
    stale = (Change("json", "forecast *", "data/model", "the name has another form"),)
    verdict = _verdict(changes=stale)
    assert not verdict.ok
    assert "lists what is no change any more" in str(verdict)
    assert _verdict(changes=stale, whole=False).ok


@pytest.mark.parametrize(
    "text",
    [
        "[[change]\n",
        '[[change]]\nkind = "json"\nkey = "*"\n',
        '[[change]]\nkind = "json"\nkey = "*"\npath = "*"\nreason = "so"\n',
        '[[change]]\nkind = "sass"\nkey = "*"\npath = "*"\nreason = "a longer reason"\n',
        '[[change]]\nkind = "*"\nkey = "*"\npath = "*"\nreason = "a longer reason"\nwhy = "x"\n',
    ],
)
def test_a_list_of_changes_that_says_too_little_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "changes.toml"
    path.write_text(text)
    with pytest.raises(LabError):
        read_changes(path)


# ------------------------------------------------------------------------------- how it is kept


def test_a_long_list_becomes_columns_that_notice_each_change() -> None:
    rows = [{"name": f"n{i}", "us": 1.5 * i, "parts": {"a": i}} for i in range(20)]
    before = column(rows)
    assert before["#count"] == 20
    for field, value in (("name", "other"), ("us", 3.00001), ("parts", {"a": 3})):
        changed = copy.deepcopy(rows)
        changed[2][field] = value
        paths = {path.split("/")[0] for path, _, _ in differences(before, column(changed))}
        assert paths == {field}
    assert list(differences(before, column(rows[1:] + rows[:1])))
    assert as_kept(rows, whole=True) == rows


def test_goldens_are_equal_bytes_when_equal(tmp_path: Path) -> None:
    goldens = {"b": {"x": 1.5}, "a": [1, None]}
    assert store.write("json", goldens, tmp_path)
    first = store.path_of("json", tmp_path).read_bytes()
    assert store.read_goldens("json", tmp_path) == goldens
    assert not store.write("json", dict(reversed(goldens.items())), tmp_path)
    assert store.path_of("json", tmp_path).read_bytes() == first


def test_damaged_goldens_are_said_to_be_damaged(tmp_path: Path) -> None:
    store.path_of("json", tmp_path).write_bytes(b"nothing")
    with pytest.raises(LabError, match="cannot be read"):
        store.read_goldens("json", tmp_path)


def test_masks_hide_the_machine_and_nothing_else() -> None:
    answer = {"status": 0, "data": {"python": "3.12.1", "labtools": "0.1.0", "links": [{"ok": 1}]}}
    assert mask("doctor --json", answer) == {
        "status": 0,
        "data": {"python": MASKED, "labtools": "0.1.0", "links": [{"ok": MASKED}]},
    }
    assert mask("derive --json", answer) == answer


def test_the_same_seed_draws_the_same_goldens() -> None:
    cases, _ = possible(("median", "json"))
    assert draw(cases, 20, 7) == draw(cases, 20, 7)
    assert draw(cases, 20, 7) != draw(cases, 20, 8)
    assert {case.kind for case in draw(cases, 20, 7)} == {"median", "json"}


def test_the_tool_says_its_seed_and_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "median", "--draw", "5", "--seed", "3", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "--seed 3" in out
    assert "5 goldens compared: 0 differ" in out


def test_a_sample_is_never_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "median", "--draw", "5", "--write"]) == 1
    assert "not written" in capsys.readouterr().err
