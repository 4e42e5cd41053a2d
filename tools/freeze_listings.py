"""Write the frozen listings, whose forecasts say which model this is.

    python -m tools.freeze_listings

It was run once. Run again it takes the kernels as they are now, and the model has another name
although no rule of it changed: that is for a new generation of the model only.

The forty are drawn by hand: every kernel and study, every architecture from Turing to Blackwell,
knobs away from their defaults, both head dimensions, bfloat16, pages, ragged lengths, a warm cache,
few blocks and many. They are small, so that all of them are forecast in seconds.
"""

from __future__ import annotations

from labtools.predict import load_gpu
from labtools.predict.frozen import FROZEN, FrozenListing, write_frozen
from labtools.problem import Workload, load_rung
from labtools.toolchain.listings import compact_lines, make_stored

CHOSEN: tuple[tuple[str, str, str, dict[str, int]], ...] = (
    ("r00_two_passes", "h200", "4,32,8,256,128", {}),
    ("r00_two_passes", "t4", "2,8,2,130,64", {"unroll": 1}),
    ("r01_online_softmax", "h200", "4,32,8,512,128", {"prefetch_v": 1}),
    ("r01_online_softmax", "l4", "1,32,8,256,128", {"unroll": 2}),
    ("r02_one_barrier", "h200", "8,32,8,512,128", {"dims_per_thread": 4}),
    ("r02_one_barrier", "a100-80gb", "4,16,4,300,64", {}),
    ("r03_one_warp", "h200", "8,32,8,4096,128", {}),
    ("r03_one_warp", "h200", "1,32,8,1024,64", {"unroll": 1}),
    ("r03_one_warp", "h100", "16,32,8,256,128", {"launch_bounds": 0}),
    ("r03_one_warp", "t4", "2,32,8,256,128", {"unroll": 8}),
    ("r03_one_warp", "rtx4090", "4,32,8,512,128", {}),
    ("r03_one_warp", "b200", "8,32,8,512,128/warm", {}),
    ("r04_split_first", "h200", "4,32,8,512,128", {}),
    ("r04_split_first", "rtx3090", "1,16,4,1024,64", {"split": 32}),
    ("r05_cp_async", "h200", "4,32,8,512,128", {"stages": 4}),
    ("r05_cp_async", "a100-40gb", "ragged", {"unroll": 2}),
    ("r06_int8", "h200", "4,32,8,512,128", {}),
    ("r06_int8", "h100-pcie", "2,16,4,512,64", {"unroll": 8}),
    ("r07_int4", "h200", "4,32,8,512,128", {"unroll": 2}),
    ("r07_int4", "a10", "2,16,4,256,128", {}),
    ("r08_split_loads", "h200", "1,32,8,1024,128", {}),
    ("r08_split_loads", "h200", "ragged", {"rows": 4, "warps": 8, "split": 5}),
    ("r08_split_loads", "t4", "1,16,4,512,128", {"rows": 2}),
    ("r09_inverted", "h200", "4,32,8,1024,128", {}),
    ("r09_inverted", "h200", "ragged/paged64", {"stages": 2, "split": 3}),
    ("r09_inverted", "a100-80gb", "2,32,8,512,128/bf16", {}),
    ("r09_inverted", "b200", "2,32,8,512,64", {"warps": 4, "cluster": 1}),
    ("r10_inverted_int8", "h200", "4,32,8,512,128/bf16", {}),
    ("r10_inverted_int8", "rtx5090", "2,32,8,256,128/bf16/paged16", {"tile": 64}),
    ("r11_inverted_int4", "h200", "4,32,8,512,128/paged16", {}),
    ("r11_inverted_int4", "rtx4090", "2,32,8,512,128", {}),
    ("s00_block_rows", "h200", "2,32,8,256,128", {"split": 8}),
    ("s01_warp_rows", "h200", "16,32,8,256,128", {"rows": 8}),
    ("s01_warp_rows", "rtx5090", "2,32,8,512,64", {"split": 4}),
    ("s02_warp_int8", "h200", "4,32,8,256,128", {"rows": 2}),
    ("s03_warp_async", "h200", "4,32,8,256,128", {"stages": 2}),
    ("s03_warp_async", "a100-80gb", "1,32,8,512,128", {"rows": 8}),
    ("s04_gqa_warp", "h200", "8,32,8,256,128", {"group": 4}),
    ("s04_gqa_warp", "b200", "2,32,4,256,64", {"group": 2}),
    ("s05_head_parallel_block", "h200", "4,32,8,256,128", {"warps": 8, "rows": 4}),
)
RAGGED_LENGTHS = (500, 1, 64, 333)


def workload_of(text: str) -> Workload:
    """A workload's short form, or ``ragged`` with what stands behind it."""
    if not text.startswith("ragged"):
        return Workload.parse(text)
    shape = "4,32,8,500,128"
    return Workload.parse(text.replace("ragged", shape)).replace(seq_lens=RAGGED_LENGTHS)


def freeze(kernel: str, gpu: str, text: str, knobs: dict[str, int]) -> FrozenListing:
    """Compile a kernel and keep what a forecast of it needs."""
    rung, workload, sheet = load_rung(kernel), workload_of(text), load_gpu(gpu)
    resolved = rung.resolve_knobs(knobs)
    stored = make_stored(rung, workload, sheet.limits, resolved)
    # Line numbers belong to a text that is not kept.
    lines = tuple(line for line in compact_lines(stored.listing) if not line.startswith("//##"))
    return FrozenListing(
        kernel=kernel,
        gpu=gpu,
        arch=sheet.arch,
        nvrtc_version=stored.nvrtc_version,
        knobs=resolved,
        workload=workload,
        launches=tuple(rung.launches(workload, sheet.limits, resolved)),
        resources=stored.resources,
        lines=lines,
    )


def main() -> None:
    """Write the file."""
    write_frozen(FROZEN, [freeze(*one) for one in CHOSEN])
    print(f"{FROZEN.name}: {len(CHOSEN)} listings, {FROZEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()
