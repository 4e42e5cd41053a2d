"""What a reader proposes for prefill, held against the limits one by one."""

from __future__ import annotations

from labtools.problem.prefill import Prefill
from labtools.problem.rung import SWIZZLED_ROW_BYTES

from ..inversion.proposals import (
    L2_BUDGET,
    LATENCY_LIMIT,
    REGISTER_BUDGET,
    DesignSpace,
    Proposal,
    fates_of,
    make_space,
)
from ..inversion.work import ELEMENT
from ..sheets import Gpu
from .costs import PrefillModel, PrefillTile
from .inversion import GROUP_WORDS, PAD, PrefillDesign


def prefill_space(design: PrefillDesign, problem: Prefill, gpu: Gpu) -> DesignSpace:
    """Tiles of prefill; warpgroups take turns where the derivation has them take turns.

    Args:
        design: the derivation.
        problem: that it was made for.
        gpu: its sheet.
    """
    chosen = design.cost.tile
    model = PrefillModel(problem, gpu, chosen.kind)
    row = ELEMENT * problem.head_dim
    words = GROUP_WORDS[chosen.kind]
    boxes = chosen.kind == "wgmma"

    def propose(keys: int, groups: int, stages: int) -> Proposal:
        best = model.best({"block_n": keys, words: groups, "stages": stages})
        tile = best.tile if best else PrefillTile(chosen.kind, keys, groups, stages, 0)
        shares = model.shares(tile, 1)
        units = shares["matrix units"]
        busiest = max(value for name, value in shares.items() if name != "waiting for K and V")
        waited = model.wait_cycles(tile, busiest)
        ahead = (stages - 1) * busiest
        figures = {
            REGISTER_BUDGET.name: (
                float(model.registers(tile)),
                float(model.room_for_registers(tile, 1)),
            ),
            L2_BUDGET.name: (4 * keys * problem.head_dim / units, model.l2_rate),
            LATENCY_LIMIT.name: (ahead, ahead + waited),
        }
        held = (tile.queries + 2 * stages * keys) * row
        padding = 0 if boxes else held // row * ELEMENT * PAD
        fixed = model.launch(tile).smem_bytes - held - padding
        return Proposal(fixed, held, figures, "", best.time_us if best else None)

    knobs = {knob.name: tuple(map(int, knob.choices)) for knob in model.rung.knobs}
    accesses = ("matrix", "matrix_transposed")
    return make_space(
        {"keys of a tile": knobs["block_n"], words: knobs[words], "stages": knobs["stages"]},
        propose,
        (chosen.keys, chosen.groups, chosen.stages),
        constraints=(REGISTER_BUDGET, L2_BUDGET, LATENCY_LIMIT),
        smem_limit=gpu.smem_per_block_bytes,
        layouts=fates_of(SWIZZLED_ROW_BYTES, accesses, boxes=True)
        if boxes
        else fates_of(row, ("copy", *accesses)),
        layout="chunks moved by xor" if boxes else "16 bytes behind each",
        design=design,
        specified=design.specified,
        bound=design.bound,
        floor_us=design.floor_us,
    )
