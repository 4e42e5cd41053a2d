"""Draw workloads beside those that this project chose, and print them as sections of a plan.

    python -m research.draw_peers

The plan ``peers`` holds what it prints; a test draws them again and compares.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labtools.problem import LabError, Workload

PEERS_SEED = 34
DRAWN_KINDS = (
    *("contiguous",) * 6,
    *("paged",) * 3,
    *("ragged",) * 2,
    "ragged and paged",
)
"""Of the drawn workloads, in order."""
BYTES_DRAWN = (8e6, 2e9)
"""Of K and V together: least and most."""
KEYS_DRAWN = (16, 250_000)
SEQUENCES_DRAWN = (1, 200)
TIMED_TOGETHER = 'rungs = ["@inverted"]\nbaselines = ["@peers"]\n'


def draw_all() -> list[Workload]:
    """A workload of each kind: every fourth has a head_dim of 64, every fifth is bfloat16."""
    rng = np.random.default_rng(PEERS_SEED)
    return [
        _draw(rng, kind, 64 if place % 4 == 3 else 128, place % 5 == 4)
        for place, kind in enumerate(DRAWN_KINDS)
    ]


def _draw(rng: np.random.Generator, kind: str, head_dim: int, bf16: bool) -> Workload:
    """Sequences and keys are even on a logarithmic scale; a cache outside the bounds is redrawn."""
    while True:
        batch = _between(rng, *SEQUENCES_DRAWN)
        kv_len = _between(rng, *KEYS_DRAWN)
        kv_heads, group = int(rng.choice((1, 2, 4, 8, 16))), int(rng.choice((1, 4, 8)))
        shape = (batch, kv_heads * group, kv_heads, kv_len, head_dim)
        changes: dict[str, Any] = {"dtype": "bfloat16"} if bf16 else {}
        if "paged" in kind:
            changes |= {"layout": "paged", "page_size": 64}
        if "ragged" in kind:
            lengths = rng.integers(max(1, kv_len // 20), kv_len, size=batch, endpoint=True)
            lengths[rng.integers(batch)] = kv_len
            changes |= {"seq_lens": tuple(int(length) for length in lengths)}
        try:
            drawn = Workload(*shape, **changes)
        except LabError:
            continue
        least, most = BYTES_DRAWN
        if least <= drawn.kv_bytes <= most and (batch > 1 or "ragged" not in kind):
            return drawn


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def say_sections(drawn: list[Workload]) -> str:
    """Sections of a plan: one of all that have a short form, and one of each ragged workload."""
    short = [one for one in drawn if one.seq_lens is None]
    listed = "\n".join(f'    "{one.short()}",' for one in short)
    parts = [f"[[section]]\nworkloads = [\n{listed}\n]\n{TIMED_TOGETHER}"]
    for one in drawn:
        if one.seq_lens is not None:
            text = one.replace(seq_lens=None).short()
            lengths = ", ".join(map(str, one.seq_lens))
            changes = f"changes.seq_lens = [{lengths}]\n"
            parts.append(f'[[section]]\nworkloads = ["{text}"]\n{TIMED_TOGETHER}{changes}')
    return "\n".join(parts)


if __name__ == "__main__":
    print(say_sections(draw_all()))
