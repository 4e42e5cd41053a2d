"""Forecasts of kernels whose warps have roles: copies by tensor maps, products of warpgroups."""

from __future__ import annotations

import numpy as np
import pytest
from sass_code import code_of

from labtools.predict.explain import BLOCK_TERMS
from labtools.predict.forecasting import forecast
from labtools.predict.lanes import (
    PARAMETERS_AT,
    constant_bank,
    lanes_of_block,
    make_buffers,
    tensor_maps,
)
from labtools.predict.result import Forecast
from labtools.predict.streams import Meeting, block_streams
from labtools.predict.trace import Repeat, TraceError, run_trace
from labtools.problem import LabError, Launch, TensorMap, load_rung, parse_problem

P03 = load_rung("p03_hopper")
MAP = TensorMap("k", (2, 512, 64), (512 * 128, 128), (1, 128, 64), 128, "float16")


def knobs(block_n: int, warpgroups: int, stages: int, pingpong: int) -> dict[str, int]:
    return {
        **{"block_n": block_n, "warpgroups": warpgroups},
        **{"stages": stages, "pingpong": pingpong},
    }


def forecast_of(problem: str, *values: int) -> Forecast:
    return forecast(P03, parse_problem(problem), "h200", knobs(*values))


def test_the_tensor_cores_are_the_floor() -> None:
    """Twice the heads take twice the time; no forecast beats the rate of the products."""
    small, large = (
        forecast_of(f"prefill:1,{heads},{heads},2048,128", 128, 2, 2, 1) for heads in (66, 132)
    )
    assert large.time_us / small.time_us == pytest.approx(2.0, rel=0.06)
    flops = 4 * 132 * 2048 * 2048 * 128
    assert large.time_us > flops / 989.4e12 * 1e6
    assert large.time_us < 2.5 * flops / 989.4e12 * 1e6


def test_phases_left_out_of_a_long_loop_change_little() -> None:
    """Time grows in proportion to the keys, where some trips are simulated and where all are."""
    short, long = (
        forecast_of(f"prefill:1,16,16,{keys},64/q128", 128, 2, 2, 1) for keys in (2048, 16384)
    )
    begin = 3.0  # launch, the first copies and the end
    assert (long.time_us - begin) / (short.time_us - begin) == pytest.approx(8, rel=0.2)


@pytest.mark.parametrize(
    ("problem", "values"),
    [
        ("prefill:2,4,2,512,64", (128, 2, 2, 1)),
        ("prefill:2,4,2,700,64/causal", (128, 2, 2, 1)),
        ("prefill:1,4,4,1024,128/causal", (64, 2, 2, 0)),
        ("prefill:1,8,2,300,64/q20", (64, 1, 3, 0)),
        ("prefill:1,2,2,2048,128", (80, 3, 1, 1)),
    ],
)
def test_the_terms_of_an_account_are_the_whole_forecast(
    problem: str, values: tuple[int, ...]
) -> None:
    made = forecast_of(problem, *values)
    (launch,) = made.launches
    assert made.band_us is not None and not launch.doubts and launch.notes == ()
    assert {"memory: bulk copy", "tensor"} <= {one.name for one in launch.stack}
    account = made.account_us
    assert tuple(account)[:7] == ("launch", *BLOCK_TERMS)
    assert sum(account.values()) == pytest.approx(made.time_us)
    assert all(time_us >= -1e-9 for time_us in account.values())
    assert min(account[name] for name in ("prologue", "first copies", "products")) > 0
    # The products of the whole problem, on all SMs.
    workload = parse_problem(problem)
    assert account["products"] > 0.9 * workload.flops / 989.4e12 * 1e6
    # It reads what it must at least, each tile once a block.
    assert launch.dram_bytes >= 0.9 * workload.set_bytes / 2


def test_a_kernel_without_roles_has_no_account() -> None:
    assert forecast(load_rung("r03"), parse_problem("1,4,4,256,64"), "h200").account_us == {}


def test_a_ring_is_followed_over_more_slices_than_patience_lasts() -> None:
    """Which slot a warp releases decides no jump, and must stay known all the same."""
    workload = parse_problem("gemm:64,128,4096")
    chosen = {"warpgroups": 1, "tile_n": 128, "stages": 4}
    made = forecast(load_rung("g02_hopper"), workload, "h200", chosen)
    assert made.band_us is not None and not made.doubts
    assert sum(made.account_us.values()) == pytest.approx(made.time_us)


# ------------------------------------------------------------------------ launch arguments


def map_launch(*more: object) -> Launch:
    return Launch("k", (2, 1, 1), (128, 1, 1), args=("out", MAP, *more))


def test_a_tensor_map_stands_at_a_multiple_of_64_in_the_constant_bank() -> None:
    launch = map_launch(np.int32(77))
    buffers = make_buffers([launch], {}, {})
    assert buffers.names == ("out", "k")
    bank = constant_bank(launch, buffers, "sm_90")
    # `out` at 0x210, the map at 0x240, what follows it 128 bytes further.
    assert int.from_bytes(bank[0x210:0x218], "little") == buffers.address_of("out")
    assert int.from_bytes(bank[0x2C0:0x2C4], "little") == 77
    assert tensor_maps(launch, buffers, "sm_90") == {PARAMETERS_AT + 0x240: MAP}
    assert int.from_bytes(bank[0x198:0x1A0], "little") == PARAMETERS_AT + 0x210


COPY = (
    *("ULDC.64 UR4, c[0x0][0x198]", "UIADD3 UR12, UP0, UR4, 0x30, URZ"),
    *("UIADD3.X UR13, URZ, UR5, URZ, UP0, !UPT", "UMOV UR8, 0x400", "UMOV UR9, 0x8"),
    *("UMOV UR10, URZ", "UMOV UR11, 0x10", "S2UR UR12, SR_CTAID.X"),
)


def traced(*lines: str):
    sass = code_of(*lines)
    launch = map_launch()
    buffers = make_buffers([launch], {}, {})
    return run_trace(sass, lanes_of_block(launch, buffers, "sm_90", 1), buffers), buffers


def test_a_copy_is_of_the_box_that_its_map_and_coordinates_name() -> None:
    made, buffers = traced(
        *COPY[:2],
        COPY[2].replace("UR13", "UR19"),
        "UMOV UR18, UR12",
        *COPY[3:],
        "UTMALDG.3D [UR8], [UR18]",
        "EXIT",
    )
    step = next(one for one in made.items if not isinstance(one, Repeat) and one.numbers)
    assert step.address is not None
    # Row 16 of plane 1: the block's number.
    assert int(step.address[0]) == buffers.address_of("k") + 512 * 128 + 16 * 128
    streams = block_streams(made, buffers)
    copy = next(op for op in streams.warps[0] if op.request is not None)  # type: ignore[union-attr]
    assert copy.request.sectors * 32 == 128 * 128  # type: ignore[union-attr]
    assert copy.meeting == Meeting("copy", 8, 0, 128 * 128)  # type: ignore[union-attr]


def test_a_copy_of_another_form_is_refused() -> None:
    with pytest.raises(TraceError, match="copies in a way that the forecast does not know") as said:
        traced(*COPY, "UTMALDG.2D [UR8], [UR12]", "EXIT")
    assert "boxes of three dimensions" in str(said.value)


def test_a_barrier_that_data_decide_is_refused() -> None:
    with pytest.raises(TraceError, match="meets at a barrier that is not known"):
        traced(
            "LDG.E R4, desc[UR4][R2.64]",
            "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R4+URZ], RZ",
            "HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, gsb0",
            "EXIT",
        )


def test_a_lane_that_goes_on_alone_keeps_its_warp_going() -> None:
    made, buffers = traced(
        "S2R R0, SR_TID.X",
        "ISETP.NE.AND P0, PT, R0, RZ, PT",
        "@P0 EXIT",
        "HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, gsb0",
        "EXIT",
    )
    streams = block_streams(made, buffers)
    first, second = streams.warps[0], streams.warps[1]
    assert [op.on for op in first] == [True, True, False, True, True]  # type: ignore[union-attr]
    assert [op.on for op in second] == [True, True, True]  # type: ignore[union-attr]


def test_another_architecture_is_refused_in_plain_words() -> None:
    with pytest.raises(LabError, match="written for sm_90a and does not run on sm_89"):
        forecast(P03, parse_problem("prefill:1,2,2,256,64"), "rtx4090")
