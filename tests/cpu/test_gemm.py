"""The matrix product: kernels that are right, wrong ones that are rejected, tiles that fit."""

from __future__ import annotations

import numpy as np
import pytest

from labtools.measure.cpu import run_on_cpu
from labtools.predict import load_gpu
from labtools.problem import Gemm, LabError, Rung, load_rung, operation_of
from labtools.problem.gemm import GEMM_DISTRIBUTIONS
from labtools.problem.gemm.tiling import ProductTile, RingTile
from labtools.toolchain.compiler import compile_rung

G00, G01, G02 = (load_rung(name) for name in ("g00", "g01", "g02"))
SMALL_TILE = {"tile_m": 32, "tile_n": 32, "tile_k": 16, "warps_m": 1, "warps_n": 2}
DRAWN = (
    (G00, SMALL_TILE),
    (G01, SMALL_TILE),
    (G02, {"warpgroups": 1, "tile_n": 32, "stages": 2}),
    (G02, {"warpgroups": 2, "tile_n": 64, "stages": 3, "band": 1}),
    (G02, {"warpgroups": 1, "tile_n": 16, "stages": 4, "split": 4, "swap": 1}),
    (G02, {"warpgroups": 3, "tile_n": 16, "stages": 2, "split": 8, "band": 4}),
    (G02, {"warpgroups": 2, "tile_n": 256, "stages": 2, "swap": 1}),
)
H200 = load_gpu("h200")


def _short(case: object) -> str:
    return case.id if isinstance(case, Rung) else str(case)


@pytest.mark.parametrize(("rung", "knobs"), DRAWN, ids=_short)
def test_the_kernels_are_right_on_drawn_problems(rung: Rung, knobs: dict[str, int]) -> None:
    for one in operation_of("gemm").draw_problems(2, seed=11, supports=rung.supports):
        assert run_on_cpu(rung, one, knobs, orders=(0, 3)).ok, one


def test_rows_that_the_copy_engine_takes_not_are_refused() -> None:
    reason = G02.supports(Gemm(16, 16, 20))
    assert reason is not None and "multiples of 16 bytes" in reason
    assert G02.supports(Gemm(16, 16, 24)) is None


@pytest.mark.parametrize(("m", "split"), [(4096, 1), (16, 4)])
def test_blocks_of_a_ring_stay_or_share_a_tile(m: int, split: int) -> None:
    knobs = {"warpgroups": 1, "tile_n": 128, "stages": 4, "split": split}
    one = G02.launches(Gemm(m, 4096, 4096), H200.limits, knobs)[-1]
    tiles = RingTile(1, 128, 4, split).tiles(m, 4096)
    assert one.num_blocks == min(tiles * split, H200.sm_count)
    parts = next(buffer for buffer in one.workspace if buffer.name == "parts")
    assert parts.shape[0] == (tiles * split * 64 * 128 if split > 1 else 1)


@pytest.mark.parametrize("distribution", GEMM_DISTRIBUTIONS)
def test_a_distribution_can_be_answered_in_16_bits(distribution: str) -> None:
    """Rounding the right answer stays inside the tolerance, summed in fp32 too."""
    operation = operation_of("gemm")
    for sizes in ((1, 1, 1), (7, 9, 64), (3, 1, 5000), (2, 5, 97)):
        for dtype in ("float16", "bfloat16"):
            drawn = operation.draw(Gemm(*sizes, dtype=dtype, distribution=distribution))
            wanted = operation.oracle(drawn)
            assert np.abs(wanted).max() < 6e4
            sums = drawn.a.astype(np.float32) @ drawn.b.astype(np.float32).T
            rounded = sums.astype(drawn.a.dtype)
            assert drawn.problem.compare(rounded, wanted).ok


def test_sums_in_half_precision_overflow_where_they_should() -> None:
    drawn = operation_of("gemm").draw(Gemm(2, 3, 200, distribution="large_sums"))
    products = drawn.a.astype(np.float64)[:, None] * drawn.b.astype(np.float64)
    assert np.abs(np.cumsum(products, axis=-1)).max() > 1.5 * float(np.finfo(np.float16).max)


@pytest.mark.parametrize(
    ("rung", "tile", "words"),
    [
        (G01, ProductTile(128, 128, 32, 8, 1, 2), None),
        (G01, ProductTile(32, 128, 32, 4, 1, 2), "do not share"),
        (G01, ProductTile(256, 256, 32, 8, 8, 2), "64 warps"),
        (G01, ProductTile(256, 256, 64, 4, 4, 4), "262,144 bytes"),
        (G01, ProductTile(256, 128, 32, 1, 1, 4), "1,024 sums a thread"),
        (G02, RingTile(2, 256, 4), None),
        (G02, RingTile(2, 256, 5), "245,848 bytes"),
        (G02, RingTile(3, 256, 2), "69,632 registers"),
    ],
    ids=_short,
)
def test_a_tile_that_fits_no_block_is_refused(
    rung: Rung, tile: ProductTile | RingTile, words: str | None
) -> None:
    said = tile.why_not(H200.limits)
    if words is None:
        assert said is None
        return
    assert said is not None and words in said
    with pytest.raises(LabError, match="does not fit"):
        rung.launches(Gemm(64, 64, 64), H200.limits, tile.knobs)


@pytest.mark.parametrize(
    ("rung", "knobs"),
    [
        (G01, {"tile_m": 256, "tile_n": 256, "tile_k": 32, "warps_m": 8, "warps_n": 2}),
        (G01, {"tile_m": 64, "tile_n": 64, "warps_m": 1, "warps_n": 1}),
        (G02, {"warpgroups": 1, "tile_n": 256, "split": 8}),
        (G02, {"warpgroups": 2, "tile_n": 256, "swap": 1}),
        (G02, {"warpgroups": 3, "tile_n": 128, "split": 2}),
    ],
    ids=_short,
)
def test_the_largest_tiles_that_fit_are_compiled(rung: Rung, knobs: dict[str, int]) -> None:
    """No launch promises a tile that the compiler then refuses or does not end with."""
    problem = Gemm(512, 512, 512)
    assert rung.launches(problem, H200.limits, knobs)
    assert compile_rung(rung, problem, H200.limits, knobs).image
