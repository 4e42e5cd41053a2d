"""Bad inputs: each ends with its documented status and one clear paragraph, and costs little."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from labtools.cli import main
from labtools.cli.given import read_workload
from labtools.cli.outcome import UsageProblem
from labtools.derive.gemm.work import read_work
from labtools.measure.cpu import build
from labtools.measure.worker import child_environment, run_child
from labtools.problem import LabError, Workload, kernels_dir, load_rung
from labtools.problem.text import mend_text, read_given, shorten
from labtools.toolchain import CompileError, compile_cubin
from labtools.toolchain.apart import Stopped, work_apart
from labtools.toolchain.cache import cache_dir

RIGHT, WRONG, USAGE, MISSING = 0, 1, 2, 3
Told = Callable[..., tuple[int, str]]
Write = Callable[..., str]
DIGITS = "9" * 5000
SHAPE = '"batch":1,"num_qo_heads":1,"num_kv_heads":1,"kv_len":8,"head_dim":64'

WORKLOADS = (
    *("", " ", ",", "1", "1,2,3,4,5,6", "a,b,c,d,e", "1,1,1,1,0", "-1,1,1,1,64", "1,3,2,5,64"),
    *("1.5,1,1,1,64", "nan,1,1,1,64", f"{DIGITS},1,1,1,64", f"1,1,1,{DIGITS[:4000]},64"),
    *("2147483647,1,1,1,128", "1,2147483647,1,1,64", "1,1,1,2147483648,1"),
    *("8,32,8,4096,128/", "1,1,1,1,64/fp8", "1,1,1,1,64/warm/cold", "1,1,1,1,64/paged16/paged64"),
    *("rows:", "rows:1,2,3", "rows:2147483647,2147483647", "nope:1,2", "decode:", "\ud83d"),
    *("1,1,1,1,64/paged32", "1,1,1,1,64/paged", "1,1,1,1,64/bf16/fp16"),
    *("1_0,1,1,1,64", "+8,1,1,1,64", "\u0668,1,1,1,64", "rows:1_0,8", "rows:\uff18,8", ":8,8"),
    *("/dev/zero.json", "x" * 5000, "x" * 5000 + ".json", "~nobody/x.json", ".json", "1,1\x001"),
)
CHANGED = (
    *('"layout":{}', '"layout":"ring"', '"layout":"paged"', '"page_size":16'),
    *(f'"layout":"paged","page_size":{size}' for size in ("-16", "32", "true")),
    *('"dtype":"float80"', '"distribution":"zeros"', '"cache_state":"tepid"'),
    *(f'"seq_lens":{given}' for given in ("[9]", "[-1]", "[1,2]", "5", '["a"]', "[1.5]")),
    *('"seed":"x"', '"seed":-1', f'"batch":{10**23}'),
)
JSON = {
    **{"empty": "", "brace": "{", "list": "[1, 2]", "null": "null", "text": '"x"', "number": "3"},
    **{"nested": "[" * 100_000, "nested objects": '{"a":' * 5000 + "1" + "}" * 5000},
    **{"digits": f'{{"batch":{DIGITS}}}', "operation": '{"operation":[1]}'},
    **{"half a character": '{"\\ud83d":"\\ud83d"}', "true": f'{{{SHAPE},"seed":true}}'},
    **{"endless": f'{{{SHAPE},"seed":1e999}}', "no number": f'{{{SHAPE},"seed":NaN}}'},
    **{"no lengths": f'{{{SHAPE},"seq_lens":[]}}', "lengths": f'{{{SHAPE},"seq_lens":[1e308]}}'},
    **{"named lengths": f'{{{SHAPE},"seq_lens":{{"a":1}}}}', "type": f'{{{SHAPE},"dtype":[]}}'},
    **{f"field {number}": f"{{{SHAPE},{changed}}}" for number, changed in enumerate(CHANGED)},
}
ARGUMENTS: tuple[tuple[str, ...], ...] = (
    *(("compile", "r03", "-k", knob) for knob in ("unroll", "=4", "unroll=3", "nope=1")),
    *(("compile", "r03", "-k", f"unroll={n}") for n in (DIGITS, "²", "--4", "4.0", "\ud83d", "")),
    *(("forecast", "r03", "--what-if", n) for n in ("0", "-1", "nan", "inf", "1e400", "x", DIGITS)),
    *(("forecast", "r03", "--gpu", n) for n in ("", "nope", "\ud83d", "x" * 5000, "../../x")),
    *(("compile", "r03", "--arch", n) for n in ("", "sm_", "sm_90,", f"sm_{DIGITS}", "\ud83d")),
    *(("compile", n) for n in ("", "r99", "/", ".", "..", "x" * 5000, "x" * 5000 + ".py", ".py")),
    *(("compile", n) for n in ("/dev/zero", "/dev/zero.py", "~nobody/x", "\ud83d.py", "a\x00.py")),
    *(("derive", "--bits", n) for n in ("0", "-1", "5", "x", DIGITS)),
    *(("reset", n) for n in ("", "../../etc/passwd", "/etc/passwd", "x" * 5000, "\ud83d")),
    *((("record", "--plan", "nope"), ("bench", "r03", "--processes", "0"), ("nope",), ("--nope",))),
)  # fmt: skip


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command; its status and what it says on stderr, which is one clear paragraph."""

    def call(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main(arguments)
        said = capsys.readouterr().err
        assert "mistake in labtools" not in said and "Traceback" not in said, (arguments, said)
        assert len(said) < 2500 and said.strip(), arguments
        return int(status), said

    return call


def test_what_was_typed_wrong_ends_with_status_2(told: Told, tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    (tmp_path / "itself.json").symlink_to("itself.json")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "utf16.json").write_bytes(f"{{{SHAPE}}}".encode("utf-16"))
    (tmp_path / "latin.json").write_bytes(b'{"batch":"\xe9"}')
    for name, text in JSON.items():
        (tmp_path / f"{name}.json").write_text(text)
    files = map(str, sorted(tmp_path.glob("*.json")))
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for text in (*WORKLOADS, *files):
        with pytest.raises(UsageProblem) as refused:
            read_workload(text)
        assert 40 < len(str(refused.value.error)) < 1500, text
    for arguments in ARGUMENTS:
        assert told(*arguments)[0] == USAGE, arguments
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < 2**20


def test_a_link_to_itself_is_told(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, page, journal = tmp_path / "loop", tmp_path / "page.html", tmp_path / "mine.sqlite"
    loop.mkdir()
    for link in (loop / "log.jsonl", page, journal):
        link.symlink_to(link.name)
    assert told("loop", "init", str(loop))[0] == MISSING
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(tmp_path / "other.sqlite"))
    for path in (page, "/dev/full"):
        status, said = told("journal", "--html", str(path))
        assert status == MISSING and "it is no file" in said
    assert page.is_symlink() and Path("/dev/full").is_char_device()
    monkeypatch.setenv("LABTOOLS_JOURNAL_URL", str(journal))
    assert main(["journal"]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(page))
    assert cache_dir("kept") is None


def test_adopting_what_has_no_kernel_is_told(told: Told, tmp_path: Path) -> None:
    (tmp_path / "none.cu").write_text("__device__ int one() { return 1; }")
    (tmp_path / "one.cu").write_text("__global__ void k(int* x) { *x = 1; }")
    status, said = told("adopt", str(tmp_path / "none.cu"))
    assert status == USAGE and "has no kernel" in said
    status, said = told("adopt", str(tmp_path / "one.cu"), "--entry", "k<")
    assert status == USAGE and "no name of a kernel" in said
    assert not (tmp_path / "one.launch.toml").exists()


def test_space_and_capital_letters_of_a_workload_do_not_matter() -> None:
    for text, same in (
        (" ROWS: 8 , 264 / BF16", "rows:8,264/bf16"),
        ("2,4, 2,64,64 /Paged16/WARM ", "2,4,2,64,64/paged16/warm"),
        ("Decode:2,4,2,64,64", "2,4,2,64,64"),
        ("Gemm:64,64,64", "gemm:64,64,64"),
    ):
        assert read_workload(text) == read_workload(same)
    assert read_work("conv", "Conv: 1,8,8,4,4,3,3,1") == read_work("conv", "conv:1,8,8,4,4,3,3,1")


def test_a_workload_that_is_none_is_refused_by_every_command(
    told: Told,
) -> None:
    for command in (("run", "r03", "--on", "cpu"), ("forecast", "r03"), ("compile", "r03")):
        for text in ("", "2147483647,1,1,1,128", "1,2147483647,1,1,64"):
            assert told(*command, "-w", text)[0] == USAGE
    assert told("derive", "-w", "")[0] == USAGE


# ------------------------------------------------------------------------------ a rung's two files

SOURCE = (kernels_dir() / "decode" / "r03_one_warp.cu").read_text()
PYTHON = (kernels_dir() / "decode" / "r03_one_warp.py").read_text()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a rung's two files; the path of the first."""

    def call(python: str = PYTHON, source: str | bytes = SOURCE) -> str:
        (tmp_path / "mine.py").write_text(python)
        data = source if isinstance(source, bytes) else source.encode()
        (tmp_path / "mine.cu").write_bytes(data)
        return str(tmp_path / "mine.py")

    return call


def test_python_of_a_rung_that_goes_wrong_is_told(
    told: Told, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labtools.problem.isolated.LIMIT_S", 0.6)
    in_launch = PYTHON.replace("    return [", "    {}\n    return [", 1)
    wrong = ("1 / 0", "raise SystemExit(0)", "raise GeneratorExit", "raise BaseException('x')",
             "while True: pass", "__import__('time').sleep(3600)", "bytearray(1 << 40)",
             "raise Exception('\\ud83d')", "(lambda f: f(f))(lambda f: f(f))",
             "raise KeyboardInterrupt", "import os; os._exit(0)",
             "import os; os.kill(os.getpid(), 9)",
             "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})()")  # fmt: skip
    for text in (*wrong, "def (", "x = 1\x00", "x = 1", "RUNG = 3"):
        assert told("compile", write(text))[0] in (WRONG, USAGE), text
    for text in wrong:
        assert told("compile", write(in_launch.replace("{}", text)))[0] == WRONG, text
    assert told("compile", write(source=SOURCE.encode("utf-16")))[0] == USAGE
    assert told("compile", write(source=SOURCE.encode() + b"// \xe9"))[0] == USAGE
    assert told("compile", write(source=b"//" + b"x" * 2**24))[0] == USAGE
    assert load_rung(write(source=b"\xef\xbb\xbf" + SOURCE.encode())).source_text == SOURCE


GIVEN = tomllib.loads(Path(__file__).with_name("wrong_fields.toml").read_text("utf-8"))


def with_field(name: str, value: str) -> str:
    """The rung's Python with one field changed."""
    made = 'GIVEN = dict(id="mine", source=Path(__file__).with_suffix(".cu"),'
    changed = PYTHON.replace("RUNG = Rung.beside(\n    __file__,", made)
    whole = f"{changed}\nRUNG = Rung(**{{**GIVEN, {name!r}: {value}}})\n"
    return "from pathlib import Path\n" + whole.partition('"""\n')[2]


def test_every_field_of_a_rung_and_of_a_launch_is_held_against_what_it_must_be(
    told: Told, write: Write
) -> None:
    for name, texts in GIVEN["fields"].items():
        for text in texts:
            status, said = told("compile", write(with_field(name, text)))
            assert status in (WRONG, USAGE) and (name in said or "called" in said), said
    for name, texts in GIVEN["launches"].items():
        for text in texts:
            given = {"entry": "'mine'", "grid": "(1,)", "block": "(32,)", name: text}
            made = ", ".join(f"{one}={value}" for one, value in given.items())
            wrong = PYTHON.replace("    return [", f"    return [Launch({made})]\n    return [", 1)
            wrong = "from labtools.problem import Workspace\n" + wrong.partition('"""\n')[2]
            assert told("compile", write(wrong))[0] == WRONG, (name, text)


@pytest.mark.parametrize("form", GIVEN["forms"])
def test_a_function_of_another_form_is_told_the_form(told: Told, write: Write, form: str) -> None:
    """Old ones too, which take three arguments as well and mean others."""
    name = form.partition("(")[0]
    for text in GIVEN["forms"][form]:
        status, said = told("compile", write(with_field(name, text)))
        said = " ".join(said.split())
        assert status in (WRONG, USAGE), said
        assert f"The function {name} of mine is not written as {form}" in said, (text, said)
    more = PYTHON.replace("def launch(problem, limits, knobs)", "def launch(a, b, c, *, sms=132)")
    assert load_rung(write(more.replace("problem.", "a.").replace("knobs[", "c["))).id == "mine"


def test_what_fails_is_said_by_the_line_of_the_readers_own_file(told: Told, write: Write) -> None:
    """Where a function of labtools refuses what it was handed, and where one in C does."""
    helper = "from labtools.problem.rung import say_knobs\n" + PYTHON.partition('"""\n')[2]
    for text in ("say_knobs(3)", "int('x')"):
        wrong = helper.replace("    return [", f"    {text}\n    return [", 1)
        line = wrong[: wrong.index(text)].count("\n") + 1
        said = " ".join(told("compile", write(wrong))[1].split())
        assert f"mine.py line {line}" in said, said
        assert "rung.py" not in said, said
    said = " ".join(told("compile", write(with_field("stores", "max")))[1].split())
    assert "TypeError" in said and "isolated" not in said and "rung.py" not in said, said


def test_a_check_that_wants_too_much_memory_is_refused(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The parts of a split are kept in a buffer of the kernel's own.
    many = ("run", "r08", "--on", "cpu", "-w", "8,32,8,512,128")
    monkeypatch.setenv("LABTOOLS_CHECK_GIB", "0.0001")
    status, said = told(*many)
    assert status == MISSING and "LABTOOLS_CHECK_GIB" in said
    monkeypatch.setenv("LABTOOLS_CHECK_GIB", "x")
    said = " ".join(told(*many)[1].split())
    assert "LABTOOLS_CHECK_GIB is 'x'" in said and "in GiB, a number above 0" in said
    assert told("run", "r03", "--on", "cpu", "-w", "64,64,64,1000000,128")[0] == MISSING


def run_labtools(*arguments: str, redirect: str = "") -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'"$@" {redirect}', "sh", sys.executable, "-m", "labtools", *arguments]
    env = child_environment()
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_told() -> None:
    for redirect, why in (("> /dev/full", "No space left"), (">&-", "it is closed")):
        done = run_labtools("journal", "--question", "none", redirect=redirect)
        assert done.returncode == MISSING and why in done.stderr
        assert "mistake" not in done.stderr and "Traceback" not in done.stderr
    done = run_labtools("journal", "--question", "none", redirect="2> /dev/full")
    assert done.returncode == RIGHT and done.stdout


# ------------------------------------------------------------------------------------- compilers

ODD_INCLUDES = ('"/dev/zero"', "</dev/zero>", '"pipe.cuh"', '"."')
BOMB = "#define A0 x\n" + "".join(f"#define A{i + 1} {f'A{i} ' * 8}\n" for i in range(12)) + "A12\n"


def test_an_include_of_what_is_no_file_is_refused(write: Write) -> None:
    path = write()
    os.mkfifo(Path(path).with_name("pipe.cuh"))
    for name in ODD_INCLUDES:
        rung = load_rung(path).with_source(f"#include {name}\n{SOURCE}")
        text, folders = rung.source_text, rung.include_dirs
        with pytest.raises(CompileError, match="no file"):
            compile_cubin(text, "sm_90", include_dirs=folders)
        with pytest.raises(CompileError, match="no file"):
            build.build_kernel(text, "mine", ["decode_r03"], {}, folders)


def test_a_compiler_that_takes_too_much_is_stopped() -> None:
    began = time.monotonic()
    with pytest.raises(CompileError, match="too much for the compiler"):
        compile_cubin(BOMB + SOURCE, "sm_90", limit_s=1.0)
    assert time.monotonic() - began < 20


def test_the_host_compiler_is_stopped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "KERNEL_LIMIT_S", 1.0)
    with pytest.raises(CompileError, match="too much for the compiler"):
        build.build_kernel(BOMB + SOURCE, "bomb", ["decode_r03"], {"HEAD_DIM": "64"}, ())


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda: bytes(2**31), "ran out of memory"),
        (lambda: exec("while True: pass"), "did not end"),
        (lambda: os._exit(0), "ran out of memory"),
        (lambda: os.abort(), "ran out of memory"),
        (lambda: 1 / 0, "ran out of memory"),
    ],
)
def test_work_apart_is_stopped(work: Callable[[], bytes], why: str) -> None:
    with pytest.raises(Stopped, match=why):
        work_apart(work, limit_s=0.5, limit_bytes=2**28)


def test_work_apart_brings_back_what_it_made() -> None:
    made = os.urandom(3 * 2**20)
    assert work_apart(lambda: made, limit_s=5, limit_bytes=2**28) == made


def test_a_child_has_the_limits_that_it_is_given() -> None:
    asked = "import resource as r; print(r.getrlimit(r.RLIMIT_CPU)[0], r.getrlimit(r.RLIMIT_AS)[0])"
    limits = {"time_limit_s": 30, "limit_cpu_s": 2.5, "limit_bytes": 2**30}
    done = run_child([sys.executable, "-c", asked], **limits)
    assert done.stdout.split() == ["3", str(2**30)]


# ------------------------------------------------------------------------------ killed and resumed

BUILDS = """
import sys
from labtools.measure.cpu.runner import build_for_cpu
from labtools.problem import Workload, load_rung
print("begun", flush=True)
build_for_cpu(load_rung(sys.argv[1]), Workload(1, 2, 1, 8, 64))
"""


def test_a_killed_build_leaves_no_compiler_and_its_folder_goes(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = tmp_path / "cache" / "labtools" / "cpu"
    command, env = [sys.executable, "-c", BUILDS, write()], child_environment()
    building = subprocess.Popen(command, stdout=subprocess.PIPE, env=env)
    end = time.monotonic() + 60
    while not (left := compilers_in(cache)) and time.monotonic() < end:
        time.sleep(0.02)
    assert left, "no compiler was started"
    building.kill()
    building.wait()
    while compilers_in(cache) and time.monotonic() < end:
        time.sleep(0.02)
    assert not compilers_in(cache)
    dead = list(cache.glob("build-*"))
    assert dead
    monkeypatch.setattr(build, "_YOUNG_S", -1.0)
    with build.folder_to_build_in(cache) as mine, build.folder_to_build_in(cache) as another:
        assert {*cache.glob("build-*")} == {mine, another}  # those alive stay


def compilers_in(cache: Path) -> set[str]:
    """Processes that name a file in the cache."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(cache).encode() in place.read_bytes():
                found.add(place.parent.name)
        except OSError:
            continue
    return found


# ------------------------------------------------------------------------------------------- text


def test_text_is_mended_and_endless_words_are_cut(tmp_path: Path) -> None:
    assert mend_text("a\ud83d\ude00b\ud83dc") == "a\U0001f600b\ufffdc"
    short = f"why {'x' * 80}[... 4840 characters ...]{'x' * 80} so"
    assert shorten("why " + "x" * 5000 + " so") == short
    error = LabError("x" * 5000, "\ud83d", "y")
    assert len(str(error)) < 400 and str(error).encode()
    assert len(error.to_dict()["what"]) < 300
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_given(tmp_path / "a") == "a\nb"
    with pytest.raises(ValueError, match="larger"):
        read_given(tmp_path / "a", 3)
    for odd in ("/dev/zero", str(tmp_path)):
        with pytest.raises(OSError):
            read_given(Path(odd))


def test_no_gpu_holds_an_endless_workload() -> None:
    assert Workload(1, 8, 8, 2**20, 128)
    for shape in ((2**12, 64, 64, 2**20, 128), (2**25, 1, 1, 1, 1), (2**20, 64, 64, 4096, 128)):
        with pytest.raises(LabError, match="not a workload"):
            Workload(*shape)
