"""The wording of what people read: a few dozen screens, kept as they are printed.

What is meant to be said otherwise: ``make accept WHAT=screens``; the difference stands in git.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from labtools.cli import main
from tools.goldens.cases import missing_here, own_journal
from tools.goldens.commands import FILES
from tools.goldens.values import without_paths

COMPILED = """
    forecast r03 --gpu h200
    forecast r09 --gpu h200
    forecast r10 --gpu h200 -w 1,32,8,4096,128/paged16
    forecast r01 --gpu rtx4090
    compile r03 --arch sm_80,sm_90
    compile r09
    derive --gpu h200
    derive --gpu h200 --op prefill
    derive --gpu h200 --op gemm
"""
PLAIN = """
    --help
    loop --help
    records --rung r09_inverted
    records -w @ragged.json
    claims --id speedup
    claims --id num-sms
    journal
    nothing
    forecast r99
    forecast sdpa --gpu h200
    forecast r03 --gpu gtx480
    forecast r03 --gpu h200 -w 8,32
    forecast r03 --gpu h200 -w @broken.json
    forecast r03 --gpu h200 -k unroll=3
    forecast r03 --gpu h200 --what-if 0
    forecast @wrong.py --gpu h200
    forecast @raises.py --gpu h200
    compile r03 --arch sm_30
    derive --gpu t4
    derive --gpu h200 --op fft
    derive --gpu h200 --bits 3
    records --rung unknown
    claims --id no_such_claim
    run r03 --on cpu -w 2,8,2,300,96
    record --plan no_such_plan
    bench r03 --baseline nothing
    sanitize r03 --tool nothing
    microbench --only nothing
    loop status no/such/folder
"""
LOOP = ("loop run @loop --max-rounds 1", "loop status @loop", "loop summary @loop")


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line; what it says and its status."""
    if why := missing_here().get("no own records"):
        pytest.skip(why)
    monkeypatch.setenv("COLUMNS", "100")
    for file, text in FILES.items():
        (tmp_path / file).write_text(text, "utf-8")

    def run(line: str) -> str:
        words = [
            str(tmp_path / word[1:]) if word.startswith("@") else word for word in shlex.split(line)
        ]
        with own_journal(tmp_path):
            status = int(main(words))
        out, err = capsys.readouterr()
        said = without_paths((out + err).replace(str(tmp_path), "<files>"))
        lines = [line.rstrip() for line in said.splitlines() if line.strip()]
        return "\n".join([*lines, f"status {status}"])

    return run


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("line", lines_of(PLAIN))
def test_screen(line: str, ask: Any, snapshot: Any) -> None:
    assert ask(line) == snapshot


@pytest.mark.parametrize("line", lines_of(COMPILED))
def test_screen_of_machine_code(line: str, ask: Any, snapshot: Any) -> None:
    if why := missing_here().get("compiler"):
        pytest.skip(why)
    assert ask(line) == snapshot


def test_screens_of_a_loop(ask: Any, snapshot: Any) -> None:
    for line in LOOP:
        assert ask(line) == snapshot(name=line)
