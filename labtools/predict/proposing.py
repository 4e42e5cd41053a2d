"""The space of proposals of a workload of any operation that is derived."""

from __future__ import annotations

from labtools.problem import LabError, Workload
from labtools.problem.prefill import Prefill

from .decode.inversion import derive
from .decode.proposals import decode_space
from .inversion.product import derive_product
from .inversion.proposals import DesignSpace, product_space, ring_space
from .inversion.tiles import TileModel
from .inversion.work import FORMS, read_work
from .prefill.inversion import derive_prefill
from .prefill.proposals import prefill_space
from .sheets import Gpu


def space_of(op: str, text: str, gpu: Gpu, bits: int = 16) -> DesignSpace:
    """Everything that can be proposed for a workload.

    Args:
        op: ``decode``, ``prefill``, ``gemm``, ``conv`` or ``moe``.
        text: the workload.
        gpu: a sheet.
        bits: of an element of K and V, of decode alone.

    Raises:
        LabError: there is no such operation, or nothing is derived there.
    """
    if op == "decode":
        return decode_space(derive(Workload.parse(text), gpu, bits), gpu)
    if op == "prefill":
        problem = Prefill.parse(text)
        return prefill_space(derive_prefill(problem, gpu, ask_compiler=False), problem, gpu)
    if op not in FORMS:
        raise LabError(
            f"There are no proposals for {op!r}.",
            f"there are some for decode, prefill, {', '.join(FORMS)}",
            "name one of them",
        )
    design = derive_product(op, text, gpu, ask_compiler=False, ask_library=False)
    if design.hopper is not None:
        return ring_space(design, gpu)
    return product_space(design, TileModel(read_work(op, text), gpu))
