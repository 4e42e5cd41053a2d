"""What each counter on the bench means, and what it does not mean."""

from __future__ import annotations

from dataclasses import dataclass

from ..counters import STALL_WORDS


@dataclass(frozen=True)
class CounterMeaning:
    """One counter in words."""

    label: str  # its name on the bench
    unit: str  # of its value
    means: str  # one sentence
    does_not_mean: str  # the mistake that is near at hand
    scale: float = 1.0  # the value is divided by this before it is shown


COUNTER_MEANINGS = {
    "duration_us": CounterMeaning(
        "time under the profiler",
        "us",
        "From the start of the kernel to its end, with the caches flushed first where the workload "
        "is cold; of several kernels the sum.",
        "Not the time of the record: that one is timed without the profiler, back to back, and "
        "counts what launching costs.",
    ),
    "dram_throughput_pct": CounterMeaning(
        "DRAM throughput",
        "% of its peak",
        "The rate of device memory over its highest rate, on average over the whole kernel.",
        "Not how full memory was while all SMs worked: a slow start and a tail with idle SMs are "
        "in the average. And the peak is one that no kernel reaches.",
    ),
    "dram_read_bytes": CounterMeaning(
        "read from DRAM",
        "MB",
        "Bytes that device memory delivered to the L2.",
        "Not what the kernel asked for: the L1 and the L2 answered the rest.",
        1e6,
    ),
    "dram_write_bytes": CounterMeaning(
        "written to DRAM",
        "MB",
        "Bytes that device memory took from the L2.",
        "Not only this kernel's output: the L2 also writes back what others left in it.",
        1e6,
    ),
    "l2_hit_pct": CounterMeaning(
        "L2 hit rate",
        "% of sectors",
        "Sectors of 32 bytes that the L2 held when they were asked for, reads and writes together.",
        "Not the share of the bytes that DRAM was spared, and not the rate under timing: the "
        "profiler flushes the caches before a cold kernel. Its two parts are counted in passes "
        "of their own, so that it can exceed 100.",
    ),
    "l1_hit_pct": CounterMeaning(
        "L1 hit rate",
        "% of sectors",
        "Sectors that the L1 held when they were asked for.",
        "Not a fault where it is low: a cache that is read once has nothing to hit. Copies past "
        "the L1 into shared memory may not count.",
    ),
    "achieved_occupancy_pct": CounterMeaning(
        "achieved occupancy",
        "% of an SM's warps",
        "Warps that were resident, on average over the time in which an SM had any.",
        "Not performance: one warp with many loads on their way can do what many warps do.",
    ),
    "theoretical_occupancy_pct": CounterMeaning(
        "theoretical occupancy",
        "% of an SM's warps",
        "Warps that registers, shared memory and block slots would allow.",
        "Not what was there: a small grid leaves most of it empty.",
    ),
    "issue_slot_pct": CounterMeaning(
        "issue slots in use",
        "% of cycles",
        "Cycles in which a scheduler issued an instruction, of those in which it had a warp.",
        "Not useful work: an instruction that computes an address counts like a multiply-add. "
        "Not the share of all slots either: schedulers without a warp are left out here, and "
        "counted in a forecast.",
    ),
    "sm_active_pct": CounterMeaning(
        "SMs with work",
        "% of the time",
        "How long an SM had at least one warp, on average over all SMs.",
        "Not how busy they were: an SM with one waiting warp has work.",
    ),
    "waves_per_sm": CounterMeaning(
        "waves",
        "turns",
        "Blocks of the grid over the blocks that the GPU can hold at a time.",
        "Not a count of rounds: below 1 the GPU is not full, and blocks start one by one as "
        "others end.",
    ),
    "executed_instructions": CounterMeaning(
        "instructions",
        "million",
        "Instructions of warps, each counted once for its 32 lanes.",
        "Not operations: one tensor-core instruction does thousands of them.",
        1e6,
    ),
    "warp_latency_cycles": CounterMeaning(
        "cycles an instruction",
        "cycles",
        "Cycles of a warp between two instructions that it issues; the states above are its parts.",
        "Not the latency of an instruction: a wait stands between many of them.",
    ),
    "sm_clock_hz": CounterMeaning(
        "clock of the SMs",
        "GHz",
        "Their clock under the profiler, which left it alone.",
        "Not the clock of the timing: a GPU may clock a lone kernel differently.",
        1e9,
    ),
    "pipe_tensor_pct": CounterMeaning(
        "tensor cores",
        "% of their peak",
        "Cycles in which the tensor cores worked.",
        "Not the share of the operations that ran there.",
    ),
    "pipe_fma_pct": CounterMeaning(
        "multiply-add pipe",
        "% of its peak",
        "Instructions in the pipe for FP32 multiply-adds.",
        "Not floating-point rate: other instructions also use this pipe.",
    ),
    "pipe_lsu_pct": CounterMeaning(
        "load and store pipe",
        "% of its peak",
        "Instructions in the pipe for loads, stores and shuffles.",
        "Not the traffic of memory: shared memory and shuffles go through it too.",
    ),
    "sectors_per_load": CounterMeaning(
        "sectors a load",
        "sectors",
        "Sectors of 32 bytes that one load of a warp touches.",
        "Not waste where it is high: 32 lanes with 16 bytes each need 16 sectors.",
    ),
    "registers_per_thread": CounterMeaning(
        "registers",
        "a thread",
        "Registers that each thread was given.",
        "Not how many are in use at a time, and not a fault where it is high.",
    ),
}
"""The counters of the bench, by their stable names, in the order in which it shows them."""

WAIT_CAUTIONS = {
    "long_scoreboard": "Alone it does not tell latency from bandwidth: a full memory answers late "
    "as well. Look at the DRAM throughput beside it.",
    "short_scoreboard": "It does not say which of the three. The instructions do.",
    "barrier": "It does not blame the barrier: the warp that comes last is what is waited for.",
    "wait": "It cannot be hidden by faster memory. Fewer instructions help, and so do independent "
    "ones: of the same warp or of others.",
    "selected": "This is no wait. Its share is small where the others are large.",
    "not_selected": "This is no lack: another warp issues. It can only be large where warps "
    "abound.",
}
"""What a state of a warp does not say, by its name."""

_OTHER_WAITS = {
    "not_selected": "ready, while another warp issues",
    "math_pipe_throttle": "for a busy pipe of arithmetic",
    "mio_throttle": "for room in the queue of shared memory, shuffles and special functions",
    "lg_throttle": "for room in the queue of loads and stores",
    "tex_throttle": "for room in the queue of textures",
    "no_instruction": "for its next instruction to be fetched",
    "imc_miss": "for a constant that its cache does not hold",
    "branch_resolving": "for the target of a branch",
    "dispatch_stall": "for the dispatcher",
    "drain": "for its stores, at its end",
    "membar": "for a memory fence",
    "gmma": "for the asynchronous tensor cores",
    "sleeping": "by its own wish",
    "misc": "for something else",
}
WAIT_WORDS = {**STALL_WORDS, **_OTHER_WAITS}
"""What a warp waits for in each state, in words that follow "waits"."""
