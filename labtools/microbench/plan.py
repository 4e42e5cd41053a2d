"""The microbenchmarks: what each measures, with which kernels, and what these must compile to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import lru_cache
from itertools import product

from labtools.problem import LabError

from .code import Benchmark, CodeCheck

LANE_BYTES = (2, 4, 8, 16)
PRODUCT_COLUMNS = (64, 128)
PRODUCT_BODIES = (1, 4, 16)
BOXES = ((8, 1), (32, 1), (64, 1), (128, 1), (256, 1), (64, 4), (128, 2), (128, 4))
"""(rows of 128 bytes, boxes on their way) of copies by a tensor map."""
STORE_BYTES, STORE_COUNTS, STORE_WARPS = (16, 32, 64, 128), (32, 96), 8
"""Bytes side by side of a warp's stores; stores of a warp; warps of an SM that store."""
CODE_KB = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Pipe:
    """One instruction, or a pair that only comes together."""

    name: str  # as in the names of the kernels
    counts: tuple[str, ...]  # opcodes of one step
    # latency, interval: lengths of the loop's body, in steps; empty where it is not measured
    latency: tuple[int, ...] = (32, 64)
    interval: tuple[int, ...] = (64, 128)
    chains: int = 8  # side by side for the interval
    width: int = 0  # bytes of a lane's cell in memory, 0 for no memory
    extra: float = 0  # other instructions a step may have
    oldest: tuple[int, int] = (7, 5)  # first compute capability
    # opcodes of a step that depend on one another in turn; None takes all of ``counts``
    links: tuple[str, ...] | None = None

    @property
    def chained(self) -> tuple[str, ...]:
        """Opcodes of the chain."""
        return self.counts if self.links is None else self.links


PIPES = (
    Pipe("ffma", ("FFMA",)),
    Pipe("fadd", ("FADD",)),
    Pipe("fmul", ("FMUL",)),
    Pipe("fmnmx", ("FMNMX",)),
    Pipe("hfma2", ("HFMA2",)),
    Pipe("imad", ("IMAD",)),
    Pipe("iadd3", ("IADD3",)),
    Pipe("lop3", ("LOP3",)),
    Pipe("prmt", ("PRMT",)),
    Pipe("shf", ("SHF",)),
    Pipe("isetp_sel", ("ISETP", "SEL")),
    Pipe("ex2", ("MUFU.EX2",)),
    Pipe("rcp_fadd", ("MUFU.RCP", "FADD")),
    Pipe("half_to_float", ("HADD2.F32",)),
    Pipe("float_to_half2", ("F2FP|F2F",), extra=1),
    Pipe("int_to_float", ("I2F|I2FP",)),
    Pipe("float_to_int", ("F2I",)),
    Pipe("byte_to_float", ("I2F.S8",)),
    Pipe("shfl", ("SHFL.BFLY",)),
    Pipe("vote", ("ISETP", "VOTE")),
    Pipe("redux", ("REDUX",), extra=1.2, oldest=(8, 0)),
    Pipe("movm", ("MOVM",), oldest=(8, 0)),
    Pipe("lds32", ("LDS",), width=4),
    Pipe("lds64", ("LDS.64|LDS.U.64",), width=8),
    Pipe("lds128", ("LDS.128|LDS.U.128",), width=16),
    Pipe("sts32", ("STS",), latency=(), width=4),
    Pipe("sts_lds", ("STS", "LDS"), interval=(), width=4),
    Pipe("ldsm", ("LDSM",), width=16),
    Pipe("ldg32", ("LDG.E",), width=4, extra=0.25),
    Pipe("ldg64", ("LDG.E.64",), width=8),
    Pipe(
        "ldg128", ("LDG.E.128", "LOP3"), (8, 16), (4, 8), chains=2, width=16, links=("LDG.E.128",)
    ),
    Pipe("ldc", ("LDC",)),
    Pipe("hmma", ("HMMA",)),
    Pipe("imma", ("IMMA",), oldest=(8, 0)),
)
PIPE_BY_NAME = {pipe.name: pipe for pipe in PIPES}


def _pipe_benchmark(pipe: Pipe) -> Benchmark:
    checks = []
    for kind, bodies in (("lat", pipe.latency), ("thr", pipe.interval)):
        for body in bodies:
            check = CodeCheck(
                f"{kind}_{pipe.name}_{body}",
                dict.fromkeys(pipe.counts, body),
                chained=pipe.chained,
                # The loop's own comparison is one more.
                depth=body * len(pipe.chained) // (pipe.chains if kind == "thr" else 1),
                others=20 + int(pipe.extra * body),
            )
            checks.append(replace(check, depth=None) if pipe.name == "sts32" else check)
    doc = f"{' and '.join(pipe.counts)}: cycles to the result, and cycles between two of them"
    return Benchmark(
        f"pipe.{pipe.name}", doc, "pipes.cu", tuple(checks), oldest=pipe.oldest,
        settings={"pipe": pipe.name},
    )  # fmt: skip


_LOADS = {2: "LDG.E.U16", 4: "LDG.E", 8: "LDG.E.64", 16: "LDG.E.128"}
"""Opcodes by bytes a lane."""


def _walk_checks(cache: str) -> tuple[CodeCheck, ...]:
    return tuple(
        CodeCheck(
            f"walk_{cache}_{width}_{loads}",
            {_LOADS[width]: 8 * loads},
            chained=(_LOADS[width],),
            depth=8,
            others=20 + 8 * (6 + loads * max(1, width // 4)),
            in_flight=loads,
        )
        for width in LANE_BYTES
        for loads in (1, 2, 4)
    )


def _read_checks(cache: str) -> tuple[CodeCheck, ...]:
    return tuple(
        CodeCheck(
            f"read_{cache}_{width}_{loads}",
            {_LOADS[width]: loads},
            where="trip",
            others=14 + loads * max(1, width // 4),
            in_flight=loads,
        )
        for width in LANE_BYTES
        for loads in (1, 2, 4, 8)
    )


def _copy_checks() -> tuple[CodeCheck, ...]:
    return tuple(
        CodeCheck(f"copy_{width}_{copies}", {"LDGSTS": copies, "DEPBAR": 1}, others=32)
        for width, copies in ((4, 0), (4, 1), (8, 1), (16, 1), (4, 16), (8, 16), (16, 16))
    )


def _meet_checks(extra: int) -> tuple[CodeCheck, ...]:
    return tuple(
        CodeCheck(
            f"meet_{barriers}_{extra}",
            {"BAR": barriers} | ({"FFMA": barriers * extra} if extra else {}),
            others=20 + 6 * barriers,
        )
        for barriers in (8, 16)
    )


def _product_checks(source: str) -> tuple[CodeCheck, ...]:
    # What comes from registers is moved there before the loop, and the products say so each time.
    checks = []
    for columns, body in product(PRODUCT_COLUMNS, PRODUCT_BODIES):
        counts, name = {f"HGMMA.64x{columns}x16.F32": body}, f"{source}_{body}_{columns}"
        waited = counts | {"WARPGROUP.DEPBAR": 1}
        checks.append(CodeCheck(f"product_{name}", waited, others=20 + 4 * body))
        if body > 1:
            checks.append(CodeCheck(f"start_{name}", counts, "trip", others=30 + 4 * body))
    return tuple(checks)


def _phase_checks(kind: str) -> tuple[CodeCheck, ...]:
    return tuple(
        CodeCheck(
            f"phase_{kind}_{body}",
            {"SYNCS.PHASECHK": body * (2 if kind == "turn" else 1)},
            others=20 + 16 * body,
        )
        for body in (2, 4)
    )


@lru_cache(maxsize=1)
def list_benchmarks() -> tuple[Benchmark, ...]:
    """All microbenchmarks, in the order in which they run."""
    sizes = tuple((("CODE_KB", str(size)),) for size in CODE_KB)
    chase = (
        CodeCheck("chase_ca", {"LDG.E.64": 16}, chained=("LDG",), depth=16),
        CodeCheck("chase_cg", {"LDG.E.64": 16}, chained=("LDG",), depth=16),
    )
    turns = tuple(
        CodeCheck(f"turn_{body}", {"FFMA": body}, chained=("FFMA",), depth=body // 4)
        for body in (4, 8, 16, 64, 128)
    )
    clock = (CodeCheck("clock_rate", {"FFMA": 64}, where="kernel"),)
    return (
        Benchmark("clock", "the SM's clock while it works, in MHz", "launch.cu", clock),
        Benchmark("tensor.clock", "the clock and an L2 hit beside busy tensor cores", "tensor.cu",
                  (CodeCheck("beside_products", {"LDG.E.64.STRONG.GPU": 17, "HMMA": 8}, "kernel"),
                   CodeCheck("beside_sums", {"LDG.E.64.STRONG.GPU": 17, "FFMA": 8}, "kernel")),
                  oldest=(8, 0)),
        *map(_pipe_benchmark, PIPES),
        Benchmark(
            "pipe.s2r", "reading a special register, in issue order", "pipes.cu",
            (
                CodeCheck("special_0", {"LOP3": 1, "S2R": 0}),
                CodeCheck("special_1", {"LOP3": 1, "S2R": 1}),
            ),
        ),
        Benchmark("chase.l1", "one load after another that hits the L1", "chase.cu", chase),
        Benchmark("chase.slices", "one line over and over: near and far L2", "chase.cu", chase),
        Benchmark("chase.l2", "one load after another by footprint: L2", "chase.cu", chase),
        Benchmark("chase.hbm", "the same beyond the L2, to the TLB's reach", "chase.cu", chase),
        Benchmark("rows.l1", "a warp's dependent rows from the L1", "chase.cu",
                  _walk_checks("ca"), settings={"level": "l1"}),
        Benchmark("rows.l2", "a warp's dependent rows from the L2", "chase.cu",
                  _walk_checks("cg"), settings={"level": "l2"}),
        Benchmark("rows.hbm", "a warp's dependent rows from DRAM", "chase.cu",
                  _walk_checks("ca"), settings={"level": "hbm"}),
        Benchmark("async.copy", "cp.async from issue to the end of the wait", "async.cu",
                  _copy_checks(), oldest=(8, 0)),
        Benchmark("async.apart", "cp.async of several rows that lie anywhere", "apart.cu",
                  tuple(CodeCheck(f"apart_{width}_{rows}", {"LDGSTS": rows, "DEPBAR": 1},
                                  others=32 + 20 * rows)
                        for width in (4, 8, 16) for rows in (1, 2, 4, 8, 16)), oldest=(8, 0)),
        Benchmark("async.bulk", "cp.async.bulk from issue to the end of the wait", "async.cu",
                  (CodeCheck("bulk", {"UBLKCP": 1, "SYNCS": 2}, where="kernel"),), oldest=(9, 0)),
        Benchmark("barrier.meet", "__syncthreads by the warps that meet", "barrier.cu",
                  _meet_checks(0)),
        Benchmark("barrier.skew", "__syncthreads with one warp that is late", "barrier.cu",
                  (*_meet_checks(0), *_meet_checks(16), *_meet_checks(64))),
        Benchmark("barrier.turns", "named barriers by which two warpgroups take turns", "hopper.cu",
                  tuple(CodeCheck(f"named_turn_{body}", {"BAR.SYNC": body, "BAR.ARV": body})
                        for body in (4, 8)), target="sm_90a"),
        Benchmark("phase.own", "an mbarrier by the lane that arrives and waits", "hopper.cu",
                  _phase_checks("own"), target="sm_90a", settings={"kind": "own"}),
        Benchmark("phase.ended", "waiting for a phase of an mbarrier that has ended", "hopper.cu",
                  _phase_checks("ended"), target="sm_90a", settings={"kind": "ended"}),
        Benchmark("phase.turns", "mbarriers by which two warps take turns", "hopper.cu",
                  _phase_checks("turn"), target="sm_90a", settings={"kind": "turn"}),
        Benchmark("product.shared", "wgmma with A in shared memory", "hopper.cu",
                  _product_checks("shared"), target="sm_90a", settings={"source": "shared"}),
        Benchmark("product.registers", "wgmma with A in registers", "hopper.cu",
                  _product_checks("registers"), target="sm_90a",
                  settings={"source": "registers"}),
        Benchmark("product.clock", "the SM's clock while all tensor cores work, in MHz",
                  "hopper.cu", (CodeCheck("product_clock", {"HGMMA": 16}, where="kernel"),),
                  target="sm_90a"),
        Benchmark("async.boxes", "copies by a tensor map, alone and several on their way",
                  "hopper.cu",
                  tuple(CodeCheck(f"boxes_{rows}_{depth}", {"UTMALDG.3D": depth}, where="kernel")
                        for rows, depth in BOXES), target="sm_90a"),
        Benchmark("store.pieces", "stores of 16 to 128 bytes side by side by all SMs", "stores.cu",
                  tuple(CodeCheck(f"stores_{size}_{count}", {"STG": count}, where="kernel")
                        for size in STORE_BYTES for count in STORE_COUNTS)),
        Benchmark("branch.loop", "what a trip of a loop costs besides its body", "barrier.cu",
                  turns),
        Benchmark("branch.skip", "instructions whose predicate is false", "barrier.cu",
                  tuple(CodeCheck(f"skip_{body}", {"FFMA": body}, predicated=True)
                        for body in (32, 64))),
        Benchmark("code.size", "straight-line code by its size: instruction caches",
                  "code_size.cu", (CodeCheck("straight", {"FFMA": 1}, where="kernel"),),
                  defines=sizes),
        Benchmark("bandwidth.hbm", "reading 1 GiB once by bytes in flight", "bandwidth.cu",
                  _read_checks("ca"), settings={"level": "hbm"}),
        Benchmark("bandwidth.l2", "reading 16 and 32 MiB again and again by bytes in flight",
                  "bandwidth.cu", _read_checks("cg"), settings={"level": "l2"}),
        Benchmark("bandwidth.footprint", "reading 4 to 128 MiB again and again", "bandwidth.cu",
                  _read_checks("cg")),
        Benchmark("bandwidth.one_sm", "one SM alone", "bandwidth.cu",
                  (*_read_checks("cg"), *_read_checks("ca"))),
        Benchmark("launch.shape", "an empty kernel in a graph by grid and block", "launch.cu",
                  (CodeCheck("empty", {"EXIT": 1}, where="kernel"),)),
        Benchmark(
            "launch.kinds", "small kernels in a graph: registers, shared memory, one load",
            "launch.cu",
            (
                CodeCheck("empty_too", {"EXIT": 1}, where="kernel"),
                CodeCheck("shared_1_kb", {"STS": 1}, where="kernel", shared_bytes=1024),
                CodeCheck("shared_48_kb", {"STS": 1}, where="kernel", shared_bytes=48 * 1024),
                CodeCheck("registers_32", {"LDG": 22}, where="kernel", registers=24),
                CodeCheck("registers_128", {"LDG": 112}, where="kernel", registers=113),
                CodeCheck("parameters", {"S2R|S2UR": 1, "EXIT": 1}, where="kernel"),
                CodeCheck("one_load", {"LDG": 1, "EXIT": 1}, where="kernel"),
            ),
        ),
    )  # fmt: skip


def find_benchmarks(only: Sequence[str] | None = None) -> list[Benchmark]:
    """The microbenchmarks that some names mean: whole names, their beginnings, or patterns."""
    known = list_benchmarks()
    if only is None:
        return list(known)
    chosen: list[Benchmark] = []
    for name in only:
        begins = f"{name}."
        found = [one for one in known if one.name.startswith(begins) or fnmatch(one.name, name)]
        if not found:
            why = "the names are " + ", ".join(one.name for one in known)
            what = f"There is no microbenchmark called {name}."
            raise LabError(what, why, "name one of these, or a group such as pipe")
        chosen += [one for one in found if one not in chosen]
    return [one for one in known if one in chosen]
