"""flash_attention2: cp.async brings the next tile of keys while one is computed."""

from pathlib import Path

from labtools.problem import load_rung, operation_of

FIRST = load_rung(Path(__file__).with_name("flash_attention1.py"))
RUNG = operation_of(FIRST).rung(
    __file__,
    source="flash_attention.cu",
    entry="flash_attention_async",
    grid="keys // 64, heads",
    block=128,
    smem="3 * 64 * 136 * 2",
    supports=FIRST.supports,
)
