"""Draw the workloads of the plan ``families``: fresh points of every family of kernels that the
forecast is held against.

python -m research.draw_families > labtools/measure/campaign/plans/families.toml
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

FAMILIES_SEED = 36
FAMILIES_DRAWN = {
    "decode, fp16, loads that a warp waits for": ("decode", 9, ["r01", "r02", "r03", "r08"]),
    "decode, codes, loads that a warp waits for": (
        "short",
        9,
        ["r06, unroll=8", "r07, k_group=32"],
    ),
    "decode, fp16, asynchronous copies": ("decode", 12, ["r05", "r09", "s08"]),
    "decode, codes, asynchronous copies": ("decode", 24, ["r10", "r11"]),
    "prefill": ("prefill", 11, ["p02", "p03, warpgroups=1"]),
    "products": ("gemm", 11, ["g01", "g01 tile_m=64 tile_n=64 warps_m=2 warps_n=2", "g02"]),
    "decode, codes, asynchronous copies, heads of 128": ("of 128", 10, ["r10", "r11"]),
}
"""By family what is drawn, how many workloads, and the kernels."""
BYTES_OF_CACHE = {"decode": 400e6, "short": 100e6}


def _between(draw: np.random.Generator, low: float, high: float) -> int:
    """A whole number whose logarithm is spread evenly."""
    return int(np.exp(draw.uniform(np.log(low), np.log(high))))


def _decode(draw: np.random.Generator, most: float) -> str:
    """Sequences, heads, keys and a head dim whose cache in fp16 has 2 MB and more."""
    while True:
        batch, kv_heads = _between(draw, 1, 100), int(draw.choice([2, 4, 8, 16, 32]))
        group, dim = int(draw.choice([1, 2, 4, 8])), int(draw.choice([64, 128, 128]))
        keys = _between(draw, 200, 30000)
        if 2e6 <= 4 * batch * kv_heads * keys * dim <= most:
            return f"{batch},{group * kv_heads},{kv_heads},{keys},{dim}"


def _decode_of_128(draw: np.random.Generator) -> str:
    """The same with a head dim of 128."""
    while not (found := _decode(draw, BYTES_OF_CACHE["decode"])).endswith(",128"):
        pass
    return found


def _prefill(draw: np.random.Generator) -> str:
    """Sequences, heads, keys of 256 and more, a head dim, causal or not."""
    kv_heads, group = int(draw.choice([2, 4, 8])), int(draw.choice([1, 2, 4]))
    batch, keys, dim = _between(draw, 1, 9), _between(draw, 256, 6000), int(draw.choice([64, 128]))
    causal = draw.choice(["", "/causal"])
    return f"prefill:{batch},{group * kv_heads},{kv_heads},{keys},{dim}{causal}"


def _product(draw: np.random.Generator) -> str:
    """Rows, columns and depth, multiples of 8."""
    rows, columns, depth = (8 * _between(draw, low / 8, 800) for low in (16, 512, 512))
    return f"gemm:{rows},{columns},{depth}"


def draw_sections() -> str:
    """The plan as TOML."""
    draw = np.random.default_rng(FAMILIES_SEED)
    kinds: dict[str, Callable[[np.random.Generator], str]] = {
        **{name: partial(_decode, most=most) for name, most in BYTES_OF_CACHE.items()},
        **{"prefill": _prefill, "gemm": _product, "of 128": _decode_of_128},
    }
    lines = [
        f"# Drawn by research/draw_families.py, seed {FAMILIES_SEED}, once the model was committed."
    ]
    lines.append('title = "fresh points of every family that the forecast is held against"')
    for family, (kind, count, rungs) in FAMILIES_DRAWN.items():
        lines += ["", f"# {family}", "[[section]]", "workloads = ["]
        lines += [f'    "{kinds[kind](draw)}",' for _ in range(count)]
        lines += ["]", "rungs = [" + ", ".join(f'"{one}"' for one in rungs) + "]"]
    return "\n".join(lines)


if __name__ == "__main__":
    print(draw_sections())
