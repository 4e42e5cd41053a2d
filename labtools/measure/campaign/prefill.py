"""The plans of prefill: its rungs beside torch's attention, and p03 beside every fast library."""

from __future__ import annotations

from labtools.problem import Prefill

from .section import Plan, Section, combined

P00, P01, P02 = "p00_traditional", "p01_inverted", "p02_corrected"
P03 = "p03_hopper"
PREFILL_PEERS = (
    *("prefill_sdpa", "prefill_sdpa_flash", "prefill_sdpa_cudnn", "prefill_sdpa_efficient"),
    *("prefill_sdpa_math", "flash_attention_3"),
)
STUDIED = Prefill(4, 8, 8, 512, 64)
"""The workload of the case study."""

PREFILL = Plan(
    "prefill",
    "Attention of many queries, from the case study's kernels on, beside the libraries",
    (
        Section(
            (STUDIED,),
            (
                *((P00, {}), (P00, {"warps": 8}), (P00, {"block_m": 80, "block_n": 80}), (P01, {})),
                *combined(P02, block_n=(32, 64, 128), warps=(4, 8)),
                *((P02, {"stages": 1}), (P02, {"stages": 3}), (P03, {}), (P03, {"pingpong": 0})),
                *combined(P03, block_n=(64, 128), warpgroups=(1,), pingpong=(0,)),
            ),
            PREFILL_PEERS,
            ceiling=False,
            profile=((P00, {}), (P01, {}), (P02, {}), (P03, {})),
        ),
        Section(
            (
                *(STUDIED.replace(head_dim=128), STUDIED.replace(causal=True)),
                STUDIED.replace(num_kv_heads=2, kv_len=2048, causal=True),
            ),
            (
                *((P00, {}), (P01, {}), (P02, {}), (P03, {})),
                *combined(P03, block_n=(64, 128), warpgroups=(1,), pingpong=(0,)),
            ),
            PREFILL_PEERS,
            ceiling=False,
        ),
        Section(
            (
                Prefill(4, 32, 32, 4096, 128),
                Prefill(4, 32, 32, 4096, 128, causal=True),
                Prefill(1, 32, 8, 16384, 128, causal=True),
                Prefill(8, 32, 8, 4096, 128, qo_len=128, causal=True, dtype="bfloat16"),
            ),
            (
                *combined(P02, warps=(4, 8)),
                *((P02, {"block_n": 128, "warps": 8}), (P03, {}), (P03, {"pingpong": 0})),
            ),
            PREFILL_PEERS[:-2] + PREFILL_PEERS[-1:],
            ceiling=False,
            counters=True,
        ),
    ),
)

FAST_PEERS = ("prefill_sdpa", "prefill_sdpa_cudnn", "flash_attention_3")
COUNTED_PEERS = ("prefill_sdpa", "flash_attention_3")
"""Each has a profiler of its own, which takes some ten seconds to start."""

PREFILL_PEERS_PLAN = Plan(
    "prefill_peers",
    "p03 beside the fastest libraries, FlashAttention-3 among them where it is installed",
    (
        Section(
            (STUDIED,),
            ((P03, {}), *combined(P03, block_n=(64, 128), warpgroups=(1,), pingpong=(0,))),
            FAST_PEERS,
            ceiling=False,
            profile="all",
            peer_counters=COUNTED_PEERS,
        ),
        Section(
            (Prefill(4, 32, 32, 4096, 128), Prefill(4, 32, 32, 4096, 128, causal=True)),
            ((P03, {}), (P03, {"pingpong": 0})),
            FAST_PEERS,
            ceiling=False,
            profile="all",
            peer_counters=COUNTED_PEERS,
        ),
    ),
)
