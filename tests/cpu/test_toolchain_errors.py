"""Sources that do not compile: one plain message with file, line, text and caret."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from devices import needs_compiler

from labtools.problem import LabError
from labtools.toolchain import CompileError, CompilerMissing, compile_cubin, find_compiler
from labtools.toolchain import compiler as compiler_module
from labtools.toolchain.errors import parse_compile_log

pytestmark = needs_compiler

HEAD = 'extern "C" __global__ void k(float* out, int n) {\n'


def failure(source: str, **options: object) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_cubin(source, "sm_90", name="my_kernel.cu", **options)  # type: ignore[arg-type]
    return caught.value


def caret_word(error: CompileError, length: int) -> str:
    """What stands above the caret."""
    line, caret = error.excerpt.split("\n")
    return line[caret.index("^") :][:length]


@pytest.mark.parametrize(
    ("body", "line", "what", "why", "above_caret"),
    [
        ("  int i = 0;\n\t\tout[i] = foo * 2;\n}\n", 3, "line 3: identifier", "", "foo"),
        ("  int i = 0;\tint j = 1;\tout[i + j] = foo;\n}\n", 2, '"foo" is undefined', "", "foo"),
        ("  int i = threadIdx.x\n  out[i] = n;\n}\n", 3, "", "line before", None),
        ("  out[0] = first_bad;\n  out[1] = more;\n}\n", 2, "2 errors", "", "first_bad"),
        ("  int unused = 3;\n  out[0] = bad;\n}\n", 3, "bad", "", "bad"),  # after a warning
        ('  asm volatile("no.such %0;" :: "r"(n));\n}\n', None, "", "assembler refused", None),
        ("  __shared__ float s[20000];\n  s[n] = n;\n  __syncthreads();\n  out[0] = s[1];\n}",
         None, "80000 bytes of static shared memory", "49152", None),
    ],
)  # fmt: skip
def test_the_first_error_is_told_with_its_line(
    body: str, line: int | None, what: str, why: str, above_caret: str | None
) -> None:
    error = failure(HEAD + body)
    assert (error.file, error.line) == ("my_kernel.cu", line)
    assert what in error.what and why in error.why and "more" not in error.what.split("(")[0]
    if above_caret is not None:
        assert caret_word(error, len(above_caret)) == above_caret


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('#include "nowhere.cuh"\n' + HEAD + "}\n", "kernels/include"),
        ('extern "C" __global__ void k(half* out) {}\n', "cuda_fp16.h"),
        ("__device__ int f() { return 1; }\n", "holds no kernel"),
    ],
)
def test_a_missing_header_and_a_missing_kernel_are_told(source: str, says: str) -> None:
    error = failure(source)
    assert says in error.what + error.why


def test_error_inside_an_own_header(tmp_path: Path) -> None:
    (tmp_path / "common.cuh").write_text("#pragma once\n__device__ int f() { return oops; }\n")
    error = failure('#include "common.cuh"\n' + HEAD + "}\n", include_dirs=[tmp_path])
    assert Path(error.file).name == "common.cuh"
    assert error.line == 2
    assert caret_word(error, 4) == "oops"


def test_definitions_reach_the_source() -> None:
    text = HEAD + '#if N != 4\n#error "N must be 4"\n#endif\n  out[0] = N;\n}\n'
    assert compile_cubin(text, "sm_90", {"N": "4"}).entries
    assert "N must be 4" in failure(text, defines={"N": "5"}).what


def test_unknown_architectures() -> None:
    with pytest.raises(LabError, match="does not know the architecture sm_91") as caught:
        compile_cubin(HEAD + "}\n", "sm_91")
    assert "sm_90" in caught.value.why
    with pytest.raises(LabError, match="is not a GPU architecture"):
        compile_cubin(HEAD + "}\n", "9.0")


def test_no_compiler_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(compiler_module, "_nvrtc_version", fail)
    with pytest.raises(CompilerMissing) as caught:
        compile_cubin(HEAD + "}\n", "sm_90")
    error = caught.value
    assert "cuda-core: ImportError" in error.why
    assert "cupy: ImportError" in error.why
    assert "CPU runner" in error.still_works
    assert "macOS" in error.still_works


def test_cupy_takes_over_without_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    real = compiler_module._nvrtc_version

    def only_cupy(name: str) -> str:
        if name == "cuda-core":
            raise ImportError("No module named 'cuda'")
        return real(name)

    assert find_compiler("live").name == "cupy"
    monkeypatch.setattr(compiler_module, "_nvrtc_version", only_cupy)
    assert find_compiler().name == "cupy"
    assert compile_cubin(HEAD + "  out[0] = n;\n}\n", "sm_90").entries


def test_an_error_survives_the_way_between_processes() -> None:
    error = failure(HEAD + "  out[0] = bad;\n}\n")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is CompileError
    assert (str(copy), copy.line, copy.excerpt, copy.file) == (
        str(error),
        error.line,
        error.excerpt,
        error.file,
    )


def test_a_log_of_unknown_form_is_shown() -> None:
    error = parse_compile_log("something quite different", "x", "a.cu")
    assert "something quite different" in error.why
    assert error.line is None
