"""The ``%%cuda`` cell in a real IPython shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from devices import LIMITS, needs_compiler

from labtools.measure import check_rung
from labtools.notebook.magic import (
    PAGE,
    cell_rung,
    load_ipython_extension,
    page_rung,
    run_cuda_cell,
)
from labtools.problem import HEADLINE, LabError, load_rung, parse_problem
from labtools.toolchain import kernel_hashes

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")

pytestmark = needs_compiler


@pytest.fixture
def shell(tmp_path: Any) -> Iterator[Any]:
    PAGE.clear()
    made = interactiveshell.InteractiveShell(ipython_dir=str(tmp_path))
    made.history_manager.enabled = False
    load_ipython_extension(made)
    yield made
    made.history_manager.end_session()
    PAGE.clear()


def run_cell(shell: Any, line: str, text: str) -> Any:
    return shell.run_cell(f"%%cuda {line}\n{text}")


def test_a_cell_compiles_and_tells_its_cost(shell: Any, capsys: Any) -> None:
    rung = load_rung("r03")
    result = run_cell(shell, "r03 --arch sm_90", rung.source_text)
    assert result.success
    said = capsys.readouterr().out
    entry = PAGE.kernel("r03").cubin.entries["decode_r03"]
    told = ["0 bytes of static shared memory", "no spills", "computed by NVRTC", "sm_90"]
    told.append(f"decode_r03: {entry.registers} registers per thread")
    assert [words for words in told if words not in said] == []


def test_the_shipped_text_is_not_an_edit_and_an_edited_cell_is_what_runs(shell: Any) -> None:
    rung = load_rung("r03")
    run_cell(shell, "r03_one_warp --arch sm_90", rung.source_text)
    shipped = kernel_hashes(rung, HEADLINE, LIMITS)
    assert not page_rung("r03").edited
    assert kernel_hashes(page_rung("r03"), HEADLINE, LIMITS) == shipped
    edited = rung.source_text.replace("fmaxf", "fminf", 1)
    run_cell(shell, "r03 --arch sm_90", edited)
    page = page_rung("r03_one_warp")
    assert page.edited and page.source_text.strip() == edited.strip()
    assert kernel_hashes(page, HEADLINE, LIMITS).sass_hash != shipped.sass_hash

    def launch(workload: Any, limits: Any, knobs: Any) -> Any:
        return rung.launch(workload, limits, knobs)

    assert page_rung("r03", launch=launch).launch is launch


def test_a_kernel_of_the_pages_own_is_reported_by_its_own_name(shell: Any) -> None:
    rung = load_rung("r03")
    run_cell(shell, "all_alike --arch sm_90", rung.source_text)
    own = cell_rung("all_alike", rung, rung.launch)
    report = check_rung(own, parse_problem("1,2,1,4,64"), quick=True)
    assert report.summary.startswith("all_alike on the CPU")
    assert report.ok, report.summary


def test_a_broken_cell_shows_its_line_and_no_older_kernel_runs(shell: Any, capsys: Any) -> None:
    rung = load_rung("r03")
    run_cell(shell, "r03 --arch sm_90", rung.source_text)
    broken = rung.source_text.replace("warp_sum(", "warp_summ(", 1)
    line = 1 + broken[: broken.index("warp_summ(")].count("\n")
    result = run_cell(shell, "r03 --arch sm_90", broken)
    assert not result.success
    said = "".join(capsys.readouterr())
    told = (f"r03_one_warp (cell) does not compile: line {line}", "warp_summ", "^")
    assert all(words in said for words in (*told, "Lines count from the one below %%cuda."))
    assert "Traceback" not in said
    with pytest.raises(LabError, match="does not compile"):
        kernel_hashes(page_rung("r03"), HEADLINE, LIMITS)


def test_knobs_change_the_code(shell: Any) -> None:
    rung = load_rung("r03")
    codes = set()
    for value in (1, 8):
        run_cell(shell, f"r03 --arch sm_90 --knob unroll={value}", rung.source_text)
        codes.add(PAGE.kernel("r03").cubin.entries["decode_r03"].code_hash)
    assert len(codes) == 2


def test_a_free_kernel_needs_no_rung(shell: Any, capsys: Any) -> None:
    text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= N; }\n'
    assert run_cell(shell, "my_own --arch sm_75 --define N=2", text).success
    assert "twice:" in capsys.readouterr().out
    assert PAGE.kernel("my_own").cubin.arch == "sm_75"
    assert not run_cell(shell, "my_own --knob n=2", text).success
    with pytest.raises(LabError, match="no %%cuda cell called other"):
        PAGE.kernel("other")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", "not understood"),
        ("r03 --knob unroll", "not understood"),
        ("r03 --knob unroll=many", "whole number"),
        ("r03 --knob no_such=1", "no knob"),
        ("r03 --unknown 1", "not understood"),
        ('r03 --define "N', "not understood"),
        ("r03 --workload 1,2", "not a workload"),
        ("r03 --arch 90", "not a GPU architecture"),
    ],
)
def test_a_wrong_line_is_told_plainly(line: str, word: str) -> None:
    with pytest.raises(LabError, match=word):
        run_cuda_cell(line, load_rung("r03").source_text)
    PAGE.clear()
