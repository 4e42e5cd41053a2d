"""What each counter on the bench means, and what it does not mean."""

from __future__ import annotations

from labtools.measure.profiler.counters import CHOSEN_COUNTERS

from ...counters import STALL_WORDS

COUNTER_MEANINGS = {one.name: one.lab for one in CHOSEN_COUNTERS if one.lab is not None}
"""The counters of the bench by name, from ``measure/profiler/counters.toml``."""

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
