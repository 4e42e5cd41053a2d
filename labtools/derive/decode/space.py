"""What a reader proposes for decode, held against the limits one by one."""

from __future__ import annotations

from labtools.predict.machine import machine_of
from labtools.predict.sheets import Gpu
from labtools.problem.decode.block_plan import join_bytes, tile_bytes
from labtools.problem.limits import MOST_REGISTERS

from ..parts import WARP
from ..proposals import (
    FLIGHT_BUDGET,
    REGISTER_BUDGET,
    RING_LENGTHS,
    SPEED,
    DesignSpace,
    Proposal,
    fates_of,
    make_space,
)
from ..sm import TARGET_SHARE, share_in_flight
from .derivation import Design
from .facts import SLACK, TILE_CHOICES, WARP_CHOICES, tile_work


def decode_space(design: Design, gpu: Gpu) -> DesignSpace:
    """Tiles, warps of an SM and ring of a decode kernel, one block on an SM."""
    workload, bits, machine = design.workload, design.bits, machine_of(gpu)
    dim, group = workload.head_dim, workload.group_size
    rate = machine.dram_bytes_per_cycle / gpu.sm_count
    needed = machine.bytes_in_flight(TARGET_SHARE)
    stream_us = design.step("time").input("stream")
    chosen = (design.tile_keys, design.warps_per_sm, int(design.step("stages").answer.value))

    def reached(keys: int, warps: int, stages: int) -> tuple[float, float]:
        """The speed over the memory's rate, and the share of that rate that comes of it."""
        size = tile_bytes(keys, dim, bits)
        speed = warps * size / tile_work(keys, dim, bits, machine, group).cycles / rate
        return speed, min(share_in_flight(warps * (stages - 1) * size, machine), speed)

    _, own = reached(*chosen)

    def propose(keys: int, warps: int, stages: int) -> Proposal:
        size = tile_bytes(keys, dim, bits)
        rows = warps * stages * size
        speed, share = reached(keys, warps, stages)
        room = min(MOST_REGISTERS, gpu.registers_per_block // (WARP * warps))
        return Proposal(
            max(0, join_bytes(warps, group, dim) - rows),
            rows,
            {
                REGISTER_BUDGET.name: (float(design.registers), float(room)),
                FLIGHT_BUDGET.name: (float(warps * (stages - 1) * size), needed),
                SPEED.name: (speed, SLACK),
            },
            "",
            design.time_us - stream_us + stream_us * own / share,
        )

    codes = bits < 16
    accesses = ("codes_of_k", "codes_of_v") if codes else ("matrix", "matrix_transposed")
    return make_space(
        design,
        {"keys of a tile": TILE_CHOICES[bits], "warps": WARP_CHOICES, "stages": RING_LENGTHS},
        propose,
        chosen,
        constraints=(REGISTER_BUDGET, FLIGHT_BUDGET, SPEED),
        smem_limit=gpu.smem_per_block_bytes,
        layouts=fates_of(dim * bits // 8, ("copy", *accesses), moved="codes" if codes else "xor"),
        layout="chunks moved by xor",
        bound="memory",
        floor_us=design.step("bytes").answer.value,
    )
