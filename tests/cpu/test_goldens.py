"""The goldens: 60 drawn ones hold, and the comparison refuses what it must refuse."""

from __future__ import annotations

import copy
import os
import random
from pathlib import Path
from typing import Any

import pytest

from labtools.predict import forecasting
from labtools.problem import LabError
from tools.goldens import __main__ as tool
from tools.goldens import store
from tools.goldens.__main__ import main
from tools.goldens.cases import GoldenCase, draw, every_case, possible
from tools.goldens.changes import CHANGES, Change, begin_anew, find_change, read_changes
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
def test_every_shipped_record_has_its_golden_and_every_golden_its_record(kind: str) -> None:
    """And every golden its record, or it is listed as gone."""
    shipped = {key for of, key in every_case() if of == kind}
    goldens = set(store.read_goldens(kind))
    assert len(shipped & goldens) > 1000
    changes = read_changes()
    assert sorted(shipped - goldens) == []
    gone = [key for key in goldens - shipped if find_change(changes, kind, key, "", ABSENT) is None]
    assert gone == []


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


def _model_changed(now: str) -> Change:
    return Change("json", "forecast r03 --json", "data/model", now, "the name has another form")


def test_a_listed_change_passes_and_no_other_beside_it() -> None:
    listed = (_model_changed('"new name"'),)

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
    stale = (_model_changed('"other"'),)
    verdict = _verdict(changes=stale)
    assert not verdict.ok
    assert "lists what is no change any more" in str(verdict)
    assert _verdict(changes=stale, whole=False).ok


EXACT = {
    "kind": "json",
    "key": "forecast r03 --json",
    "path": "data/bound",
    "now": '"chain"',
    "reason": "a longer reason",
}


def _write_changes(path: Path, *entries: dict[str, str]) -> Path:
    blocks = [
        "\n".join(["[[change]]", *(f"{name} = {value!r}" for name, value in entry.items())])
        for entry in entries
    ]
    path.write_text("# What it is for.\n# [[change]]\n\n" + "\n\n".join(blocks) + "\n")
    return path


@pytest.mark.parametrize(
    "other",
    [
        *({name: None} for name in EXACT),
        {"reason": "so"},
        {"kind": "sass"},
        {"kind": "*"},
        {"key": "forecast *"},
        {"path": "*bound"},
        {"now": "*"},
        {"now": "chain"},
        {"why": "x"},
    ],
    ids=str,
)
def test_an_entry_that_says_too_little_or_is_too_wide_is_refused(
    tmp_path: Path, other: dict[str, str | None]
) -> None:
    path = tmp_path / CHANGES
    (change,) = read_changes(_write_changes(path, EXACT))
    assert change.fits("json", EXACT["key"], EXACT["path"], "chain")
    entry = {name: value for name, value in {**EXACT, **other}.items() if value is not None}
    with pytest.raises(LabError, match="cannot be read"):
        read_changes(_write_changes(path, entry))
    path.write_text("[[change]\n")
    with pytest.raises(LabError, match="cannot be read"):
        read_changes(path)


def test_what_is_gone_and_what_is_nothing_are_two_changes() -> None:
    gone = Change(**{**EXACT, "now": "nothing"})
    null = Change(**{**EXACT, "now": "null"})
    for change, now, other in ((gone, ABSENT, None), (null, None, ABSENT)):
        assert change.fits(change.kind, change.key, change.path, now)
        assert not change.fits(change.kind, change.key, change.path, other)


def test_a_changed_rule_of_bounds_is_seen_in_the_shipped_goldens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the shipped list of changes, whatever stands in it."""
    goldens = {("forecast", key): value for key, value in store.read_goldens("forecast").items()}
    cases = {(one.kind, one.key): one for one in possible(("forecast",))[0]}
    bound = sorted(one for one in cases if goldens.get(one, {}).get("bound") == "bandwidth")
    chosen = [cases[one] for one in bound[:: max(1, len(bound) // 3)]]
    # A forecast that was kept, of either rule, must not answer for the other.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def wrong_bounds() -> set[str]:
        verdict = compare(goldens, ask_all(chosen), read_changes())
        return {key for _, key, path, _, _ in verdict.unlisted if path == "bound"}

    assert wrong_bounds() == set()
    monkeypatch.setattr(forecasting, "decide_bound", lambda shares, launches=None: "launch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "planted"))
    assert wrong_bounds() == {one.key for one in chosen}


# ------------------------------------------------------------------------- what writing leaves


@pytest.fixture
def own_goldens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of their own for goldens, of questions that need nothing."""
    questions = [
        GoldenCase(kind, name, frozenset(), 0.0, None)
        for kind in GOLDEN_KINDS
        for name in ("one", "two")
    ]
    monkeypatch.setattr(
        tool, "possible", lambda kinds: ([x for x in questions if x.kind in kinds], {})
    )
    monkeypatch.setattr(
        tool, "ask_all", lambda cases, *_: (((one.kind, one.key), {"x": 1}) for one in cases)
    )
    return tmp_path


def _entries(folder: Path) -> list[tuple[str, str]]:
    return [(one.kind, one.key) for one in read_changes(folder / CHANGES)]


def test_after_writing_everything_the_list_begins_anew(own_goldens: Path) -> None:
    # With an entry of another form, which nothing can read.
    wide = {"kind": "*", "key": "*", "path": "*"}
    path = _write_changes(own_goldens / CHANGES, {**EXACT, "key": "one"}, wide)
    head = path.read_text().partition("\n\n")[0]
    assert main(["--write"], own_goldens) == 0
    assert path.read_text() == head + "\n"
    assert main([], own_goldens) == 0


def test_what_is_written_leaves_the_list_and_nothing_else(own_goldens: Path) -> None:
    entries = [
        {**EXACT, "kind": kind, "key": key} for kind in ("json", "hash") for key in ("one", "two")
    ]
    _write_changes(own_goldens / CHANGES, *entries)
    assert main(["--write", "--match", "one"], own_goldens) == 0
    assert _entries(own_goldens) == [("json", "two"), ("hash", "two")]
    assert main(["--write", "--only", "hash"], own_goldens) == 0
    assert _entries(own_goldens) == [("json", "two")]


def test_a_list_that_cannot_be_read_stops_a_part_from_being_written(own_goldens: Path) -> None:
    _write_changes(own_goldens / CHANGES, {**EXACT, "key": "*"})
    assert main(["--write", "--match", "one"], own_goldens) == 1
    assert not store.path_of("json", own_goldens).exists()


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


def test_a_comparison_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "json", "--match", "no such key"]) == 1
    assert "Nothing would be compared" in capsys.readouterr().err
    assert main(["--write", "--match", "no such key"]) == 1
    for few in ("0", "-3"):
        with pytest.raises(SystemExit):
            main(["--draw", few])


ENTRY = """kind = "json"
key = "forecast r03 --json"
path = "data/model"
now = '"other"'
reason = "a sentence long enough"
"""


@pytest.mark.parametrize(
    "text",
    [
        f"[[ change ]]\n{ENTRY}",
        f"  [[change]]\n{ENTRY}",
        f'[["change"]]\n{ENTRY}',
        f"[[chnage]]\n{ENTRY}",
        f'[[change]]\n{ENTRY[:-2]}\n[[change]]\n"""',
    ],
)
def test_an_entry_that_could_not_be_taken_out_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / CHANGES
    path.write_text(f"# what the list is\n\n{text}")
    with pytest.raises(LabError, match="cannot be read"):
        read_changes(path)
    begin_anew(path)
    assert path.read_text() == "# what the list is\n"
    assert read_changes(path) == ()
    begin_anew(tmp_path / "no list")
