"""What a reader proposes for prefill, held against the limits one by one."""

from __future__ import annotations

from labtools.predict.sheets import Gpu
from labtools.problem.prefill import Prefill
from labtools.problem.rung import SWIZZLED_ROW_BYTES

from ..proposals import (
    L2_BUDGET,
    LATENCY_LIMIT,
    REGISTER_BUDGET,
    DesignSpace,
    Proposal,
    fates_of,
    make_space,
)
from ..sm import ELEMENT, busiest_cycles
from .costs import PrefillModel, PrefillTile
from .derivation import GROUP_WORDS, PAD, PrefillDesign


def prefill_space(design: PrefillDesign, gpu: Gpu) -> DesignSpace:
    """Tiles of prefill; warpgroups take turns where that is best."""
    chosen, problem = design.cost.tile, Prefill.parse(design.workload)
    model = PrefillModel(problem, gpu, chosen.kind)
    row = ELEMENT * problem.head_dim
    words = GROUP_WORDS[chosen.kind]
    boxes = chosen.kind == "wgmma"

    def propose(keys: int, groups: int, stages: int) -> Proposal:
        best = model.best({"block_n": keys, words: groups, "stages": stages})
        tile = best.tile if best else PrefillTile(chosen.kind, keys, groups, stages, 0)
        shares = model.shares(tile, 1)
        busiest = busiest_cycles(shares)
        ahead, waited = (stages - 1) * busiest, model.wait_cycles(tile, busiest)
        room = model.room_for_registers(tile, 1)
        loaded = 4 * keys * problem.head_dim
        figures = {
            REGISTER_BUDGET.name: (float(model.registers(tile)), float(room)),
            L2_BUDGET.name: (loaded / shares["tensor cores"], model.l2_rate),
            LATENCY_LIMIT.name: (ahead, ahead + waited),
        }
        held = (tile.queries + 2 * stages * keys) * row
        padding = 0 if boxes else held // row * ELEMENT * PAD
        fixed = model.launch(tile).smem_bytes - held - padding
        return Proposal(fixed, held, figures, "", best.time_us if best else None)

    accesses = ("matrix", "matrix_transposed")
    return make_space(
        design,
        {
            "keys of a tile": model.choices["block_n"],
            words: model.choices[words],
            "stages": model.choices["stages"],
        },
        propose,
        (chosen.keys, chosen.groups, chosen.stages),
        constraints=(REGISTER_BUDGET, L2_BUDGET, LATENCY_LIMIT),
        smem_limit=gpu.smem_per_block_bytes,
        layouts=fates_of(SWIZZLED_ROW_BYTES, accesses, boxes=True)
        if boxes
        else fates_of(row, ("copy", *accesses)),
        layout="chunks moved by xor" if boxes else "16 bytes behind each",
    )
