"""What a reader proposes for decode, held against the limits one by one."""

from __future__ import annotations

from labtools.problem.decode.block_plan import join_bytes, tile_bytes
from labtools.problem.limits import MOST_REGISTERS

from ..inversion.parts import WARP
from ..inversion.proposals import (
    FLIGHT_BUDGET,
    REGISTER_BUDGET,
    RING_LENGTHS,
    DesignLimit,
    DesignSpace,
    Proposal,
    fates_of,
    make_space,
)
from ..machine import machine_of
from ..sheets import Gpu
from .derivation import Design
from .inversion import (
    RUNG_OF_BITS,
    SLACK,
    TARGET_SHARE,
    TILE_CHOICES,
    WARP_CHOICES,
    group_work,
    share_in_flight,
)

SPEED = DesignLimit(
    *("speed", "times the rate at which tiles come", False),
    *("the warps work faster than memory brings", "the warps are busy and memory waits for them"),
)


def decode_space(design: Design, gpu: Gpu) -> DesignSpace:
    """Tiles, warps of an SM and ring of a decode kernel, one block on an SM.

    Args:
        design: the derivation.
        gpu: its sheet.
    """
    workload, bits, machine = design.workload, design.bits, machine_of(gpu)
    rate = machine.dram_bytes_per_cycle / gpu.sm_count
    needed = machine.bytes_in_flight(TARGET_SHARE)
    floor_us = design.step("bytes").answer.value
    stream_us = next(one.value for one in design.time_stack if one.name == "stream")
    chosen = (design.tile_keys, design.warps_per_sm, int(design.step("stages").answer.value))

    def reached(keys: int, warps: int, stages: int) -> tuple[float, float]:
        """The speed over the memory's rate, and the share of that rate that comes of it."""
        size = tile_bytes(keys, workload.head_dim, bits)
        work = group_work(keys, workload.head_dim, workload.group_size, bits, machine)
        speed = warps * size / work.cycles / rate
        return speed, min(share_in_flight(warps * (stages - 1) * size, machine), speed)

    _, own = reached(*chosen)

    def propose(keys: int, warps: int, stages: int) -> Proposal:
        size = tile_bytes(keys, workload.head_dim, bits)
        rows = warps * stages * size
        joining = join_bytes(warps, workload.group_size, workload.head_dim)
        on_the_way = warps * (stages - 1) * size
        speed, share = reached(keys, warps, stages)
        room = min(MOST_REGISTERS, gpu.registers_per_block // (WARP * warps))
        return Proposal(
            max(0, joining - rows),
            rows,
            {
                REGISTER_BUDGET.name: (float(design.registers), float(room)),
                FLIGHT_BUDGET.name: (float(on_the_way), needed),
                SPEED.name: (speed, SLACK),
            },
            "",
            design.time_us - stream_us + stream_us * own / share,
        )

    row = workload.head_dim * bits // 8
    codes = bits < 16
    accesses = ("codes_of_k", "codes_of_v") if codes else ("matrix", "matrix_transposed")
    rung = RUNG_OF_BITS[bits]
    return make_space(
        {"keys of a tile": TILE_CHOICES[bits], "warps": WARP_CHOICES, "stages": RING_LENGTHS},
        propose,
        chosen,
        constraints=(REGISTER_BUDGET, FLIGHT_BUDGET, SPEED),
        smem_limit=gpu.smem_per_block_bytes,
        layouts=fates_of(row, ("copy", *accesses), moved="codes" if codes else "xor"),
        layout="chunks moved by xor",
        design=design,
        specified=(rung, {}),
        bound="memory",
        floor_us=floor_us,
    )
