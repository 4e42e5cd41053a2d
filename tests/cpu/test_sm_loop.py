"""The simulation's loop as machine code and as Python: one file, the same numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from labtools.predict import forecast, native, sm_loop, sm_model
from labtools.problem import Workload, load_rung
from tools.compile_loop import compile_loop, why_not


def test_it_is_compiled_where_this_machine_can() -> None:
    if why_not() or not (Path(sys.prefix) / ".stamps").is_dir():
        pytest.skip("no compiler or header, or an environment that make did not make")
    assert native.is_compiled(), "python -m tools.compile_loop says why not"


@pytest.mark.parametrize(
    ("rung", "gpu", "shape"),
    [
        ("r01", "l4", "1,32,8,256,128"),
        ("r08", "t4", "1,16,4,512,128"),
        ("r09", "a100-80gb", "2,32,8,512,64"),
    ],
)
def test_both_agree_to_the_last_digit(
    rung: str, gpu: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native.is_compiled():
        pytest.skip("the loop was not compiled into this environment")
    monkeypatch.setenv("LABTOOLS_CACHE_MIB", "0")
    said = []
    for loop in (sm_loop, native.sm_loop):
        monkeypatch.setattr(sm_model, "sm_loop", loop)
        said.append(forecast(load_rung(rung), Workload.parse(shape), gpu))
    assert said[0] == said[1]


def test_an_edited_loop_no_longer_finds_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = tmp_path / "sm_loop.py"
    edited.write_text(native.LOOP.read_text() + "# edited\n")
    monkeypatch.setattr(native, "LOOP", edited)
    assert native.compiled_name() not in sys.modules
    assert native.load_loop() is sm_loop


def test_a_loop_that_does_not_compile_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why_not():
        pytest.skip(str(why_not()))
    broken = tmp_path / "sm_loop.py"
    broken.write_text("def begin() -> int:\n    return 'text'\n")
    monkeypatch.setattr(native, "LOOP", broken)
    with pytest.raises(OSError, match="int"):
        compile_loop(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["sm_loop.py"]
