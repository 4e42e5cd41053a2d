"""The SM model's numbers for a GPU: from its own microbenchmarks, or from the literature."""

from __future__ import annotations

from .machine import Curve, Machine
from .sheets import Gpu


def machine_of(gpu: Gpu) -> Machine:
    """PROVISIONAL numbers until the latency tables are read."""
    clock = (gpu.boost_clock_mhz or 1980) / 1e3
    return Machine(
        name=gpu.name,
        calibrated=gpu.name == "h200",
        clock_ghz=clock,
        sm_count=gpu.sm_count,
        sub_partitions=4,
        variable=dict(
            shared_32=30, shared_64=31, shared_128=34, shfl=24, mufu_ex2=23, mufu_rcp=23, ldc=30,
            s2r=25, r2ur=12, i2f=20, f2i=20, f2f=20, f2fp=8, hmma=33, imma=33, vote=12, redux=20,
            ldsm=33, default=20, l1=40,
        ),
        intervals=dict(fp32=1, imad=1, fp16=1, alu=2, xu=8, lsu=2, tensor=16, control=1, uniform=1),
        shared_intervals={"shuffle": 1, "shared": 1, "global": 1},
        l1={4: 38, 8: 38, 16: 40},
        l2_rows=Curve((64, 512), (275, 300)),
        dram_rows=Curve((64, 512), (700, 760)),
        barrier=Curve((1, 4, 8, 16, 32), (20, 22, 26, 40, 60)),
        fill_bytes_per_cycle=64,
        dram_bytes_per_cycle=0.93 * (gpu.dram_gb_per_s or 1000) / clock,
        l2_bytes_per_cycle=8500 / 1.98,
        dram_queue=(80, 0.8),
        l2_queue=(30, 0.8),
        l2_miss=Curve((20e6, 30e6, 60e6), (0, 0.2, 1)),
        l1_bytes=200e3,
        branch_cycles=8,
        cold_line_cycles=30,
        operand_read_cycles=10,
        async_cycles=20,
        launch_us=Curve((1, 1000, 17000), (0.75, 0.8, 4.0)),
        start_us=0.8,
    )


def measured_band(machine: Machine) -> tuple[float, float]:
    """(lower, upper) factor on a forecast."""
    return (0.8, 1.25) if machine.calibrated else (0.5, 2.0)
