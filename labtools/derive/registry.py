"""Every operation that can be derived. A new one is a folder beside this file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from labtools.predict.sheets import Gpu, load_gpu
from labtools.problem import Gemm, LabError, Prefill, Problem, Rung
from labtools.problem.gemm.tiling import ProductTile, RingTile

from .decode.derivation import derive_decode
from .decode.space import decode_space
from .engine import Asked, Derivable, check_copies, check_target
from .gemm.derivation import derive_product
from .gemm.rings import KERNEL, RingModel, takes_ring
from .gemm.space import product_space
from .gemm.tiles import TileModel
from .gemm.work import FORMS, read_work
from .prefill.costs import KERNEL_OF_KIND, PrefillModel, PrefillTile
from .prefill.derivation import WGMMA_ARCH, derive_prefill
from .prefill.space import prefill_space
from .proposals import DesignSpace
from .rows.derivation import derive_rows
from .sm import TARGET_SHARE

_AIM = f"it aims at {TARGET_SHARE:.0%} of the read ceiling"
DERIVABLE = {
    one.name: one
    for one in (
        Derivable("decode", derive_decode, decode_space, few_bits=True, aims_at=_AIM),
        Derivable("prefill", derive_prefill, prefill_space),
        *(Derivable(op, partial(derive_product, op), product_space) for op in FORMS),
        *(Derivable(op, partial(derive_rows, op), aims_at=_AIM) for op in ("rows", "add_norm")),
    )
}
"""By name, in the order in which they are listed."""
LAUNCHED_AS_DERIVED = {FORMS["gemm"].kernel, KERNEL, *KERNEL_OF_KIND.values()}
"""Ids of the shipped kernels whose knobs a derivation gives."""


def _model_of(rung: Rung, problem: Problem, gpu: Gpu) -> tuple[Any, Callable[..., Any]] | None:
    """The model whose best tile is a shipped kernel's derived launch, and what makes such a tile of
    the kernel's knobs; None where there is none."""
    if isinstance(problem, Prefill):
        for kind, name in KERNEL_OF_KIND.items():
            if name == rung.id and (kind == "mma" or gpu.arch == WGMMA_ARCH):
                return PrefillModel(problem, gpu, kind), partial(PrefillTile.of, kind)
    if isinstance(problem, Gemm):
        work = read_work("gemm", problem.short())
        if rung.id == FORMS["gemm"].kernel:
            return TileModel(work, gpu), ProductTile.of
        if rung.id == KERNEL and takes_ring(work, gpu):
            return RingModel(work, gpu), RingTile.of
    return None


def find_derivable(op: str) -> Derivable:
    """The derivation of an operation; a LabError where there is none."""
    if op not in DERIVABLE:
        raise LabError(
            f"There is no derivation of {op!r}.",
            f"what can be derived is {', '.join(DERIVABLE)}",
            "name one of them",
        )
    return DERIVABLE[op]


def operation_named(text: str) -> str:
    """The operation that a workload names, ``decode`` where it names none."""
    named, colon, _ = text.partition(":")
    return named if colon and named.isidentifier() else "decode"


def derive(
    work: Problem | str | None,
    gpu: Gpu | str,
    bits: int = 16,
    target: float | None = None,
    *,
    op: str | None = None,
    quick: bool = False,
) -> Any:
    """Derive a kernel for a workload, or the usual one of the operation, on a GPU, whose own
    microbenchmarks are used where there are some; `Asked` says what ``bits``, ``target`` and
    ``quick`` are. The design of the operation comes back, such as `decode.derivation.Design`; a
    LabError where there is no such operation, workload or GPU, or nothing can be derived."""
    if op is None:
        op = work.operation if isinstance(work, Problem) else operation_named(work or "")
    gpu = load_gpu(gpu) if isinstance(gpu, str) else gpu
    derivable = find_derivable(op)
    if target is not None and derivable.aims_at:
        takes = ", ".join(one.name for one in DERIVABLE.values() if not one.aims_at)
        what = f"{op} is derived for no target."
        raise LabError(what, derivable.aims_at, f"a target with {takes}")
    if bits != 16 and not derivable.few_bits:
        what = f"There is no {op} of {bits} bits here."
        raise LabError(what, "its elements have 16 bits", "bits of decode")
    check_target(target)
    return derivable.derive(work, gpu, Asked(bits, target, quick))


def derived_knobs(rung: Rung, problem: Problem, gpu: Gpu) -> dict[str, int] | None:
    """Every knob of a shipped kernel as the derivation of that very kernel gives it for a problem
    on a GPU; None where there is no derivation of it, or no design fits."""
    try:
        check_copies(gpu)
        found = None if rung.supports(problem) else _model_of(rung, problem, gpu)
        best = found and found[0].best()
    except LabError:
        return None
    return rung.resolve_knobs(best.tile.knobs) if best else None


def modelled_us(rung: Rung, problem: Problem, gpu: Gpu, knobs: Mapping[str, int]) -> float | None:
    """The time of a shipped kernel with some knobs by the model that derives it, microseconds; None
    where there is none."""
    found = _model_of(rung, problem, gpu)
    if found is None:
        return None
    model, tile_of = found
    time_us: float = model.cost(tile_of(rung.resolve_knobs(knobs))).time_us
    return time_us


def space_of(op: str, text: str, gpu: Gpu, bits: int = 16) -> DesignSpace:
    """Everything that can be proposed for a workload; a LabError where nothing is derived."""
    derivable = DERIVABLE.get(op)
    if derivable is None or derivable.space is None:
        known = ", ".join(one.name for one in DERIVABLE.values() if one.space is not None)
        what = f"There are no proposals for {op!r}."
        raise LabError(what, f"there are some for {known}", "name one of them")
    return derivable.space(derive(text, gpu, bits, op=op, quick=True), gpu)
