"""Cheats that a rung's code or its Python may try: each is tried for real, and refused."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from devices import LIMITS
from live_fake import use_fake_gpu
from test_judge import ENTRY, R03, STORE, edited

from labtools.measure import check_rung
from labtools.measure.check import CheckReport
from labtools.measure.gpu import timing
from labtools.measure.gpu.job import Candidate, Job, make_job
from labtools.measure.gpu.measure import time_candidates
from labtools.measure.residency import refuse_kept_lines
from labtools.problem import (
    KernelError,
    LabError,
    Rung,
    Workload,
    kernels_dir,
    load_rung,
    parse_problem,
)
from labtools.toolchain import CompileError, compile_cubin, compile_rung
from labtools.toolchain.compiler import CompilerName
from labtools.toolchain.hints import kept_lines
from labtools.toolchain.listings import machine_code

WORKLOAD = Workload(2, 4, 2, 64, 64)


def cheating_rung(folder: Path, before: str = "", within: str = "") -> Path:
    """r03 in a folder of its own, with more Python when it is loaded or in its launch."""
    shipped = kernels_dir() / "decode"
    shutil.copy(shipped / "r03_one_warp.cu", folder / "r03_one_warp.cu")
    text = (shipped / "r03_one_warp.py").read_text()
    for marker, more in (("from labtools.problem import", before), ("    return [", within)):
        assert text.count(marker) == 1
        text = text.replace(marker, f"{more}\n{marker}" if more else marker)
    path = folder / "r03_one_warp.py"
    path.write_text(text)
    return path


def make_job_of(rung: Rung) -> Job:
    return make_job(Candidate(rung, "rung", rung.resolve_knobs()), WORKLOAD, LIMITS)


def check_quickly(rung: Rung) -> CheckReport:
    return check_rung(rung, WORKLOAD, quick=True)


CHEATS = {
    "the norm": "import numpy; numpy.linalg.norm = lambda *given, **more: numpy.zeros(1)",
    "the tolerances": """
from labtools.problem import compare
for held in (compare.TOLERANCE, compare.MOST_TOLERANCE):
    held.update(dict.fromkeys(held, 0.9))
""",
    "the code of the comparison": """
from labtools.problem import compare
def right(out, expected, tolerance=None, axes=None):
    return Comparison(True, 0.0, (0, 0), 1.0)
compare.compare_output.__code__ = right.__code__
""",
    "a comparison that is right": """
from labtools.problem import Comparison
Comparison.ok = property(lambda self: True, lambda self, value: None)
""",
    "the battery": """
from labtools.problem import DecodeAttention
DecodeAttention.battery = lambda self, problem, supports=None: []
""",
    "another operation of that name": """
from labtools.problem import DecodeAttention, register_operation
class Mine(DecodeAttention):
    def oracle(self, inputs, parts=None):
        return super().oracle(inputs, parts) * 1.05
register_operation(Mine())
""",
    "the report": """
from labtools.measure.check import CheckReport
CheckReport.summary = CheckReport.ok = property(lambda self: True)
""",
    "the clock": "import time; time.perf_counter = time.monotonic = lambda: 0.0",
    "the timer": """
from labtools.measure.gpu import timing
timing.time_group = lambda *given, **more: {}
""",
    "a GPU's library": "import sys; sys.modules['cupy'] = sys.modules['torch'] = object()",
    "what is refused": "from labtools.problem import Rung; Rung.tolerance_for = lambda *given: 0.9",
    "every frame above": """
import sys
frame = sys._getframe()
while frame:
    frame.f_globals.update(compare_output=None, check_rung=None)
    frame = frame.f_back
""",
    "what memory holds": """
import gc
for held in gc.get_objects():
    if type(held) is dict and "compare_output" in held:
        held.update(compare_output=None, TOLERANCE={}, MOST_TOLERANCE={})
""",
    "a module that is found first": """
import os, pathlib, sys
folder = pathlib.Path(__file__).parent
(folder / "cupy.py").write_text("raise SystemExit(0)")
sys.path.insert(0, str(folder))
os.environ["PYTHONPATH"] = str(folder)
""",
    "what children inherit": """
import os
os.environ.update(LD_PRELOAD="nothing.so", CUDA_VISIBLE_DEVICES="", PYTHONSTARTUP=__file__)
""",
    "the exit status": "import atexit, os; atexit.register(os._exit, 0)",
    "its starter": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
}
IN_LAUNCH = {
    "the source that is compiled next": "    open(__file__[:-2] + 'cu', 'w').write(RIGHT)",
    "launches that are not what they say": """
    from labtools.problem import Launch as Real
    globals()["Launch"] = type("Mine", (Real,), {"args": property(lambda self: ("q",) * 9)})
""",
}


def wrong_rung(folder: Path, before: str = "", within: str = "") -> Path:
    """`cheating_rung` of a kernel that is wrong by 5 %."""
    path = cheating_rung(folder, before, within)
    source = path.with_suffix(".cu")
    right = source.read_text()
    assert right.count("1.f / weight_sum") == 1
    source.write_text(right.replace("1.f / weight_sum", "1.05f / weight_sum"))
    path.write_text(f"{path.read_text()}\nRIGHT = {right!r}\n")
    return path


@pytest.fixture(scope="module")
def one_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for sources that are alike: they compile once."""
    return tmp_path_factory.mktemp("cheats")


def judged_rung(folder: Path, name: str) -> Rung:
    """A wrong rung whose Python is one of `CHEATS` or of `IN_LAUNCH`."""
    text = CHEATS.get(name, "")
    lines = text.strip().splitlines()
    within = IN_LAUNCH.get(name, "\n".join(f"    {line}" for line in lines))
    return load_rung(wrong_rung(folder, text, within))


@pytest.mark.parametrize("name", [*CHEATS, *IN_LAUNCH])
def test_the_python_of_a_rung_decides_nothing(one_place: Path, name: str) -> None:
    """It runs elsewhere, when the file is loaded and when a launch is asked for."""
    rung = judged_rung(one_place, name)
    if name == "launches that are not what they say":
        with pytest.raises(LabError):
            check_quickly(rung)
    else:
        assert not check_quickly(rung).ok


def test_what_is_asked_twice_is_answered_once(tmp_path: Path) -> None:
    """What was checked is what is timed: another answer later does not come."""
    count = "    CALLS.append(1)\n    if len(CALLS) > 1:\n        return []"
    rung = load_rung(cheating_rung(tmp_path, before="CALLS = []", within=count))
    first = make_job_of(rung)
    assert make_job_of(rung).launches == first.launches
    (tmp_path / "r03_one_warp.cu").write_text("wrong")
    assert make_job_of(rung).cubin == first.cubin


OWN = """
from labtools.problem import RowNorm, register_operation
from labtools.problem.rows import Rows
import dataclasses, numpy

@dataclasses.dataclass(frozen=True)
class Mine(Rows):
    operation = "mine"
    tolerance = 0.9
    def compare(self, out, expected, tolerance=None):
        return super().compare(expected, expected, 1.0)

class Op(RowNorm):
    problem, headline, small, watched = Mine, Mine(64, 512), Mine(4, 64), Mine(3, 33)
    def battery(self, problem, supports=None):
        return []
    def oracle(self, inputs, parts=None):
        return super().oracle(inputs, parts){}

register_operation(Op())
"""


@pytest.mark.parametrize("oracle", ["", " * numpy.nan"])
def test_an_operation_of_ones_own_is_compared_by_the_judge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, oracle: str
) -> None:
    family = Path(__file__).parents[1] / "families" / "row_scale.py"
    source = family.with_suffix(".cu").read_text()
    text = family.read_text().replace('operation="rows"', 'operation="mine"')
    mine = tmp_path / "row_scale.py"
    mine.write_text(OWN.format(oracle) + text.partition('"""\n')[2])
    for wrong in (False, True):
        assert source.count("value += partial_smem[warp];") == 1
        plain = source.replace("value += partial", "value = partial") if wrong else source
        mine.with_suffix(".cu").write_text(plain)
        rung = load_rung(mine)
        if oracle:
            with pytest.raises(KernelError, match="says no answer"):
                check_rung(rung, parse_problem("mine:7,700"), quick=True)
            return
        problem = parse_problem("mine:8,702")
        report = check_rung(rung, problem, {"shuffle": 1}, quick=True)
        assert report.verdict == ("wrong" if wrong else "undecided"), report  # it may prefetch
        assert wrong or "by its own reference" in report.summary
    # Whoever times knows the operation too, from a process of its own.
    use_fake_gpu(monkeypatch, tmp_path)
    timing = time_candidates([rung], problem, processes=1, rounds=3, ceiling=False)
    assert timing.records, timing.failures


def test_an_honest_rung_may_import_and_compute(tmp_path: Path) -> None:
    line = "    import fractions, numpy.fft, statistics; statistics.median([1, 2, 3])"
    rung = load_rung(cheating_rung(tmp_path, before="import decimal", within=line))
    assert make_job_of(rung).launches


def test_a_patch_that_got_by_reaches_no_process_that_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Children that time are started anew, and get launch data alone."""
    use_fake_gpu(monkeypatch, tmp_path)
    monkeypatch.setattr(timing, "time_group", lambda *args, **kwargs: {})
    found = time_candidates([R03], WORKLOAD, processes=1, rounds=3, ceiling=False)
    (record,) = found.records
    assert record.median_us == pytest.approx(10.0), "the fake GPU's time of this kernel"


DECLARED = """struct CUstream_st;
extern "C" __device__ void* cudaGetParameterBufferV2(void*, dim3, dim3, unsigned);
extern "C" __device__ int cudaLaunchDeviceV2(void*, CUstream_st*);
"""


GRAPHS = """struct CUstream_st; struct CUgraphExec_st;
extern "C" __device__ CUgraphExec_st* cudaGetCurrentGraphExec();
extern "C" __device__ int cudaGraphLaunch(CUgraphExec_st*, CUstream_st*);
"""
LATE = "late<<<1, 1>>>(out);"
LAUNCHED_LATE = {
    "": LATE,
    DECLARED: LATE,
    GRAPHS: "cudaGraphLaunch(cudaGetCurrentGraphExec(), (CUstream_st*)3);",  # behind this graph
}


def late_rung(declared: str) -> Rung:
    """r03, which starts another kernel that would answer in its place."""
    late = f"{declared}{ENTRY} void late(half* out) {{ out[0] = __float2half(1.f); }}\n{ENTRY}"
    return edited((ENTRY, late), (STORE, f"{LAUNCHED_LATE[declared]}\n{STORE}"))


@pytest.mark.parametrize("declared", LAUNCHED_LATE)
def test_a_kernel_starts_no_other_that_would_answer_late(declared: str) -> None:
    """A launch names no stream, and device code cannot launch: nothing would link it."""
    cheat = late_rung(declared)
    with pytest.raises(CompileError):
        machine_code(cheat, WORKLOAD, LIMITS, cheat.resolve_knobs())
    begins = edited((LATE, ""), base=late_rung(""))
    assert "late" in machine_code(begins, WORKLOAD, LIMITS, begins.resolve_knobs()).entries


ASKED = """unsigned word;
  asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;"
               : "=r"(word) : "l"(out), "l"(policy));
  """
MADE = 'asm volatile("createpolicy.{form}.b64 %0, {of};" : "=l"(policy){more});'
POLICY = f"unsigned long long policy;\n  {MADE}\n  {ASKED}"
FRACTION = "fractional.L2::evict_{}"
FIRST = MADE.format(form=FRACTION.format("first"), of="1.0", more="")
IN_BRACES = """asm volatile("{{ .reg .b64 p; createpolicy.fractional.L2::evict_{}.b64 p, 1.0;"
               " prefetch.global.L2 [%0]; .reg .b32 w; ld.global.L2::cache_hint.u32 w, [%0], p; }}"
               : : "l"(out));
  """
U64 = "unsigned long long"
KEPT = {
    "a policy": POLICY.format(form=FRACTION.format("last"), of="1.0", more=""),
    "a policy on the line of others": IN_BRACES.format("last"),
    "a policy, by its number": f"unsigned long long policy = 0x14F0000000000000ull;\n  {ASKED}",
    "a number that is computed": f"{U64} policy = 0x14F0ull << (kv_len > 0 ? 48 : 47);\n  {ASKED}",
    "a policy from memory": f"{U64} policy = *(const {U64}*)seq_lens;\n  {ASKED}",
    "an argument": f"{U64} policy = ({U64})kv_len << 40;\n  {ASKED}",
    "an access property": POLICY.format(form="cvt.L2", of="%1", more=' : "l"((long long)kv_len)'),
    "one of two policies": f"{U64} policy = seq_lens[0];\n  if (kv_len > 5) {FIRST}\n  {ASKED}",
    "a bulk prefetch": POLICY.format(form=FRACTION.format("last"), of="1.0", more="").replace(
        ASKED,
        'asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], 16, %1;"'
        ' : : "l"(k), "l"(policy));\n  ',
    ),
    "a store": POLICY.format(form=FRACTION.format("last"), of="1.0", more="").replace(
        ASKED,
        'asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;"'
        ' : : "l"(out), "r"(0), "l"(policy));\n  ',
    ),
    "an atomic": POLICY.format(form=FRACTION.format("last"), of="1.0", more="").replace(
        ASKED,
        'asm volatile("red.relaxed.gpu.global.add.L2::cache_hint.u32 [%0], %1, %2;"'
        ' : : "l"(out), "r"(0), "l"(policy));\n  ',
    ),
    "a prefetch": 'asm volatile("prefetch.global.L2::evict_" "last [%0];" : : "l"(out));\n  ',
}
WELCOME = {
    "evict_first": f"unsigned long long policy;\n  {FIRST}\n  {ASKED}",
    "a half": POLICY.format(form=FRACTION.format("first.L2::evict_unchanged"), of="0.5", more=""),
    "a range of addresses": POLICY.format(
        form="range.global.L2::evict_normal", of="[%1], 256, 512", more=' : "l"(out)'
    ),
    "a number": f"unsigned long long policy = 0x12F0000000000000ull;\n  {ASKED}",
    "on the line of others": IN_BRACES.format("first"),
    "none": "",
}


def keeping_rung(kept: str) -> Rung:
    """r03, which asks for lines to stay in L2 in one of the ways of `KEPT`."""
    return edited((STORE, f"\n#ifdef __CUDA_ARCH__\n{KEPT[kept]}\n#endif\n{STORE}"))


@pytest.mark.parametrize("kept", KEPT)
def test_a_kernel_that_keeps_lines_in_l2_is_refused(kept: str) -> None:
    cheat = keeping_rung(kept)
    for judge in (check_quickly, make_job_of):
        with pytest.raises(KernelError, match="can keep lines in L2"):
            judge(cheat)


@pytest.mark.parametrize("policy", WELCOME)
def test_a_kernel_may_say_that_lines_go_first(policy: str) -> None:
    honest = edited((STORE, f"{WELCOME[policy]} {STORE}"))
    refuse_kept_lines(honest, compile_rung(honest, WORKLOAD, LIMITS))


def test_registers_are_those_of_one_function() -> None:
    """The same name in another function is another register."""
    made = "createpolicy.fractional.L2::evict_first.b64 %rd1, 0f3F800000;"
    hinted = "ld.global.L2::cache_hint.u32 %r1, [%rd2], %rd1;"
    loaded = "ld.param.u64 %rd1, [a];"
    apart = f".entry a() {{ {made} {hinted} }} .func b() {{ {loaded} }}"
    assert kept_lines(apart) == ""
    for before in ("", f"{made} {loaded} ", "mov.b64 %rd1, %rd3; "):
        function = f"{before}{hinted} }}"
        assert "L2::cache_hint" in kept_lines(f".entry a() {{ {made} }} .func b() {{ {function}")
    vector = f"ld.global.v2.u64 {{%rd4, %rd1}}, [%rd2]; {hinted}"
    assert "that ld.global.v2.u64 makes" in kept_lines(f".func b() {{ {made} {vector} }}")


@pytest.mark.parametrize("name", ["cuda-core", "cupy"])
def test_both_ways_to_the_compiler_see_a_hint(name: CompilerName) -> None:
    pytest.importorskip("cupy" if name == "cupy" else "cuda.core")
    fresh = f"// {time.time_ns()}\n"  # no cache has it
    for kept, seen in ((KEPT["a policy"], True), ("", False)):
        body = f"void* out = x;\n  {kept}*x = 1;"
        source = f"{fresh}{ENTRY} void k(int* x) {{ {body} }}"
        assert bool(compile_cubin(source, "sm_90", compiler=name).keeps_lines) is seen


def test_no_shipped_kernel_has_a_hint_for_l2() -> None:
    texts = [path for path in kernels_dir().rglob("*.cu*") if path.is_file()]
    assert len(texts) > 20
    words = ("evict_last", "cache_hint", "access_property", "createpolicy")
    assert [path.name for path in texts if any(w in path.read_text() for w in words)] == []
