"""Every command line whose ``--json`` is a golden, in plain loops that say what is covered.

A word that begins with ``@`` names a file of `FILES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from labtools.problem import Workload

HEADLINE_SHORT = "8,32,8,4096,128"
SMALL = "2,8,2,65,128"
GPUS = "t4 l4 rtx3090 rtx4090 a10 a100-40gb a100-80gb h100 h100-pcie h200 b200 rtx5090".split()
COMPILED_FOR = "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120".split()
WORKLOADS = (
    "8,32,8,4096,64",
    "1,32,8,16384,128",
    "64,32,8,1024,128",
    "1,32,32,512,128",
    "16,64,8,2048,128",
    f"{HEADLINE_SHORT}/bf16",
    f"{HEADLINE_SHORT}/paged16",
    f"{HEADLINE_SHORT}/paged64",
    f"{HEADLINE_SHORT}/bf16/paged16",
    f"{HEADLINE_SHORT}/warm",
    "@ragged.json",
    "@paged.json",
)
"""Besides the headline, on the GPU of the records."""

RUNGS = """
    r00_two_passes r01_online_softmax r02_one_barrier r03_one_warp r04_split_first r05_cp_async
    r06_int8 r07_int4 r08_split_loads r09_inverted r10_inverted_int8 r11_inverted_int4
""".split()
STUDIES = """
    s00_block_rows s01_warp_rows s02_warp_int8 s03_warp_async s04_gqa_warp s05_head_parallel_block
""".split()
_ROWS = ("unroll=1", "unroll=2", "unroll=8", "launch_bounds=0")
_RING = ("warps=2", "warps=8", "stages=2", "stages=4", "cluster=1", "cluster=4", "split=3")
KNOBS: dict[str, tuple[str, ...]] = {
    "r00_two_passes": _ROWS,
    "r01_online_softmax": (*_ROWS, "prefetch_v=1"),
    "r02_one_barrier": (*_ROWS, "dims_per_thread=2", "dims_per_thread=4"),
    "r03_one_warp": _ROWS,
    "r04_split_first": (*_ROWS, "split=1", "split=32"),
    "r05_cp_async": (*_ROWS, "stages=4", "stages=8"),
    "r06_int8": _ROWS,
    "r07_int4": _ROWS,
    "r08_split_loads": ("rows=1", "rows=4", "warps=1", "warps=8", "split=3", "split=64", "sms=108"),
    "r09_inverted": (*_RING, "sms=108"),
    "r10_inverted_int8": (*_RING, "tile=64"),
    "r11_inverted_int4": (*_RING, "tile=32"),
    "s00_block_rows": (*_ROWS, "split=8"),
    "s01_warp_rows": ("rows=1", "rows=8", "launch_bounds=0", "split=8"),
    "s02_warp_int8": ("rows=1", "rows=2", "launch_bounds=0", "split=8"),
    "s03_warp_async": ("rows=2", "rows=8", "stages=2", "stages=4", "split=8"),
    "s04_gqa_warp": ("group=1", "group=8", "rows=2", "split=8"),
    "s05_head_parallel_block": ("warps=2", "warps=8", "rows=1", "rows=4", "split=8"),
}
"""Changes of one knob; the others keep their defaults."""
CLAIMS = """
    speedup speedup-h200 reverts v3-ms batch-4-v3 num-sms one-warp-gain-h200 chain-cycles int8-mib
    int4-gain-h200 split-does-nothing-h200 repair-h200
""".split()

_SHAPE = (4, 32, 8, 3000, 128)


def _file(shape: Sequence[int], lengths: Sequence[int], **more: Any) -> str:
    """The long form of a decode workload, as a file holds it."""
    make: Any = Workload
    return json.dumps(make(*shape, tuple(lengths), **more).to_dict())


FILES: dict[str, str] = {
    "ragged.json": _file(_SHAPE, (3000, 17, 1, 2048)),
    "paged.json": _file(_SHAPE, (3000, 1, 64, 999), layout="paged", page_size=16, dtype="bfloat16"),
    "broken.json": "{",
    "no_field.json": json.dumps({"batch": 4}),
    "wrong.py": "RUNG = None\n",
    "raises.py": "raise ValueError('no')\n",
    "small.json": _file((4, 8, 2, 70, 128), (70, 1, 64, 33)),
}
GUESSES = "# with guesses"
"""Behind a command line: the journal holds `GUESSED`."""
_ENTRY = {"reader": "reader", "question_id": "first"}
GUESSED: tuple[dict[str, Any], ...] = (
    {
        **_ENTRY,
        "kind": "prediction",
        "entry_id": "1",
        "at": "2026-01-02T03:04:05Z",
        "page": "book/ladder/r03_one_warp",
        "direction": "faster",
        "ratio": 2.0,
    },
    {
        **_ENTRY,
        "kind": "reveal",
        "entry_id": "2",
        "at": "2026-01-02T03:05:05Z",
        "measured_ratio": 3.5,
        "source": "recorded",
        "interval": [3.4, 3.6],
    },
    {
        **_ENTRY,
        "kind": "prediction",
        "entry_id": "3",
        "at": "2026-01-02T03:06:05Z",
        "page": "book/ladder/r03_one_warp",
        "direction": "faster",
        "ratio": 3.5,
        "after_reveal": True,
    },
    {
        **_ENTRY,
        "kind": "prediction",
        "question_id": "second",
        "entry_id": "4",
        "at": "2026-01-02T03:07:05Z",
        "page": "book/ladder/r04_split_first",
        "direction": "slower",
        "ratio": 0.5,
        "note": "more blocks",
    },
)


@dataclass(frozen=True)
class Command:
    """One command line."""

    text: str  # what follows ``labtools``
    # what the answer depends on besides the project: ``compiler`` (the pinned one), ``host`` (a C++
    # compiler), ``no gpu``, ``no own records``
    needs: frozenset[str] = frozenset()
    seconds: float = 0.1  # that it takes, about; a sample is drawn with them in mind
    whole: bool = False  # long lists are kept as they are


def _line(text: str, *needs: str, seconds: float = 0.1, whole: bool = False) -> Command:
    return Command(f"{text} --json", frozenset(needs), seconds, whole)


def commands() -> dict[str, Command]:
    """Every case by its text."""
    return {command.text: command for command in _every()}


def _every() -> Iterator[Command]:
    yield _line("doctor")
    yield from _compiling()
    yield from _forecasting()
    yield from _deriving()
    yield from _kept()
    yield from _running()
    yield from _refused()
    yield _line("sync --check")


def _compiling() -> Iterator[Command]:
    for kernel in (*RUNGS, *STUDIES):
        for arch in COMPILED_FOR:
            yield _line(f"compile {kernel} --arch {arch}", "compiler", seconds=0.5)
        for knob in KNOBS[kernel]:
            yield _line(f"compile {kernel} -k {knob}", "compiler", seconds=0.5)
        for workload in ("8,32,8,4096,64", f"{HEADLINE_SHORT}/bf16", f"{HEADLINE_SHORT}/paged16"):
            yield _line(f"compile {kernel} -w {workload}", "compiler", seconds=0.5)
            yield _line(f"compile {kernel} -w {workload} --arch sm_80", "compiler", seconds=0.5)
        yield _line(f"compile {kernel} --sass", "compiler", seconds=0.5)
    yield _line("compile r03 --arch sm_80,sm_90,sm_120", "compiler", seconds=0.5)


def _forecasting() -> Iterator[Command]:
    for kernel in (*RUNGS, *STUDIES):
        for gpu in GPUS:
            yield _line(f"forecast {kernel} --gpu {gpu}", "compiler", seconds=1.5)
        for workload in WORKLOADS:
            yield _line(f"forecast {kernel} --gpu h200 -w {workload}", "compiler", seconds=1.5)
        for knob in KNOBS[kernel]:
            yield _line(f"forecast {kernel} --gpu h200 -k {knob}", "compiler", seconds=1.5)
        for gpu in ("rtx4090", "a100-80gb"):
            workload = f"4,32,8,2048,128/bf16/paged{16 if gpu == 'rtx4090' else 64}"
            yield _line(f"forecast {kernel} --gpu {gpu} -w {workload}", "compiler", seconds=1.5)
    for kernel in RUNGS:
        text = f"forecast {kernel} --gpu h200 -w 4,32,8,2048,128 --what-if"
        yield _line(f"{text} 0.5", "compiler", seconds=8)
    yield _line("forecast r03 --gpu rtx4090 --what-if 2", "compiler", seconds=8)
    yield _line("forecast r03", "compiler", "no gpu")
    for kernel in ("r03", "r09"):
        text = f"forecast {kernel} --gpu h200 -w 4,32,8,1024,128"
        yield _line(text, "compiler", seconds=1.5, whole=True)


def _deriving() -> Iterator[Command]:
    for gpu in GPUS:
        for bits in (16, 8, 4):
            yield _line(f"derive --gpu {gpu} --bits {bits}")
    for workload in ("1,32,8,16384,128", "64,32,8,1024,128", "2,8,2,300,64", "16,64,8,2048,128"):
        for gpu in ("h200", "a100-80gb", "rtx4090"):
            yield _line(f"derive --gpu {gpu} -w {workload}")
    for suffix in ("/bf16", "/paged16", "/paged64", "/warm"):
        for bits in (16, 8, 4):
            yield _line(f"derive --gpu h200 -w {HEADLINE_SHORT}{suffix} --bits {bits}")
    yield _line("derive --gpu h200 -w @ragged.json")
    yield _line("derive", "no gpu")
    yield _line("derive --gpu h200", whole=True)


def _kept() -> Iterator[Command]:
    own = "no own records"
    for kernel in (*RUNGS, *STUDIES, "sdpa", "baseline:flashinfer", "read_sweep", "r03", "unknown"):
        yield _line(f"records --rung {kernel}", own, seconds=3)
        yield _line(f"records --rung {kernel} -w {HEADLINE_SHORT} --all", own)
    yield _line("records", own, seconds=30)
    yield _line("records --all", own, seconds=40)
    for gpu in ("h200", "H200", "a100", "unknown"):
        yield _line(f"records --gpu {gpu} --rung r05", own)
    for workload in (
        HEADLINE_SHORT,
        "1,32,8,16384,128",
        "64,32,8,1024,128",
        f"{HEADLINE_SHORT}/paged16",
    ):
        yield _line(f"records -w {workload}", own, seconds=3)
    yield _line("records -w @ragged.json", own)
    yield _line(f"records --rung r03 -w {HEADLINE_SHORT} --gpu h200", own, whole=True)
    yield _line("claims", own, seconds=3, whole=True)
    for claim in CLAIMS:
        yield _line(f"claims --id {claim}", own)
    yield _line("claims --id no_such_claim")
    yield _line("journal")
    yield _line("journal --question nothing")
    for text in ("journal", "journal --question first", "journal --question second"):
        yield Command(f"{text} --json {GUESSES}")


def _running() -> Iterator[Command]:
    for kernel in (*RUNGS, *STUDIES):
        yield _line(f"run {kernel} --on cpu --quick -w {SMALL}", "host", seconds=6)
    for kernel in ("r03", "r08"):
        for suffix in ("/bf16", "/paged16"):
            yield _line(f"run {kernel} --on cpu --quick -w {SMALL}{suffix}", "host", seconds=6)
    yield _line("run r01 --on cpu -w 1,4,4,33,64 --seed 5", "host", seconds=6)
    yield _line("run r05 --on cpu --quick -w @small.json -k stages=2", "host", seconds=6)


def _refused() -> Iterator[Command]:
    """What does not work: the status and the message."""
    for text in (
        "",
        "nothing",
        "forecast",
        "forecast r99",
        "forecast r03 --gpu gtx480",
        "forecast r03 --gpu h200 -w 8,32",
        "forecast r03 --gpu h200 -w 8,32,7,4096,128",
        "forecast r03 --gpu h200 -w 0,32,8,4096,128",
        "forecast r03 --gpu h200 -w 8,32,8,4096,128/fp8",
        "forecast r03 --gpu h200 -w @broken.json",
        "forecast r03 --gpu h200 -w @no_field.json",
        "forecast r03 --gpu h200 -w /no/such/file.json",
        "forecast r03 --gpu h200 -k unroll",
        "forecast r03 --gpu h200 -k unroll=3",
        "forecast r03 --gpu h200 -k nothing=1",
        "forecast r03 --gpu h200 --what-if 0",
        "forecast r03 --gpu h200 --what-if x",
        "forecast r09 --gpu h200 -w 8,32,8,4096,96",
        "forecast sdpa --gpu h200",
        "forecast @wrong.py --gpu h200",
        "forecast @raises.py --gpu h200",
        "forecast /no/such/rung.py --gpu h200",
        "compile r03 --arch sm_30",
        "compile r03 --arch ,",
        "compile r03 --arch sm_9",
        "compile r99",
        "compile r03 --nothing",
        "derive --gpu gtx480",
        "derive --gpu h200 --bits 3",
        "derive --gpu h200 -w 8,32,8,4096,96",
        "records -w 8,32",
        "records --nothing",
        "run r99 --on cpu",
        "run r03 --on tpu",
        "run r03 --on cpu -w 2,8,2,300,96",
        "run r03 --on cpu -w 64,64,64,1000000,128",
        "reset no_such_page",
        "record --plan no_such_plan",
        "record r99",
        "bench r99",
        "bench --processes 0",
        "bench r03 --baseline nothing",
        "profile r99",
        "sanitize r03 --tool nothing",
        "microbench --only nothing",
    ):
        yield _line(text)
    for text in (
        "run r03 --on gpu",
        "bench",
        "bench r03 sdpa -w 1,32,8,4096,128",
        "record --plan quick",
        "record r03",
        "profile r03",
        "sanitize r03",
        "microbench",
    ):
        yield _line(text, "no gpu")
