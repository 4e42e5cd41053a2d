"""What the project said is what it says: values, forecasts, hashes and medians."""

from __future__ import annotations

from typing import Any

import pytest

from labtools.notebook.exercises import exercise_files
from labtools.predict import MODEL_VERSION
from tools.goldens.cases import GoldenCase, every_case, missing_here
from tools.goldens.kept import GOLDEN_KINDS, path_of, read_goldens
from tools.goldens.storage import GoldenStorage
from tools.goldens.values import changed_paths, with_places_of


@pytest.fixture
def kept(snapshot: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if folder := request.config.getoption("--goldens-folder", None):
        monkeypatch.setattr(GoldenStorage, "folder", folder)
    return snapshot.use_extension(GoldenStorage)


def test_golden(golden: GoldenCase, kept: Any) -> None:
    """Where it differs on purpose: ``make accept WHAT=KIND MATCH=KEY``."""
    if lacking := sorted(golden.needs & missing_here().keys()):
        pytest.skip(missing_here()[lacking[0]])
    now = golden.answer()
    before = read_goldens(path_of(golden.kind, GoldenStorage.folder)).get(golden.key)
    if golden.kind == "prepared":
        now = with_places_of(before, now)
    if golden.kind == "forecast":
        moved = before and [path for path, _, _ in changed_paths(before, now)]
        if moved and before["model"] == MODEL_VERSION:
            pytest.fail(
                f"{golden.key} moved ({', '.join(moved[:4])}) under model {MODEL_VERSION}: raise "
                "MODEL_VERSION in labtools/predict/result.py, then make accept WHAT=forecast",
                pytrace=False,
            )
    assert now == kept


@pytest.mark.parametrize("kind", GOLDEN_KINDS)
def test_every_question_has_its_golden_and_every_golden_its_question(kind: str) -> None:
    asked = {key for of, key in every_case() if of == kind}
    assert len(asked) > (1000 if kind != "prepared" else 4 * len(exercise_files()))
    assert sorted(asked ^ read_goldens(path_of(kind)).keys()) == []


def test_the_files_are_small() -> None:
    assert sum(path_of(kind).stat().st_size for kind in GOLDEN_KINDS) < 2 * 1024**2
