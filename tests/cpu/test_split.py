"""How many pieces, the launches of a split, and the rungs r04, r05 and r08."""

from __future__ import annotations

import dataclasses

import pytest
from devices import LIMITS
from hypothesis import given, settings
from hypothesis import strategies as st

import labtools.problem as lp

SMALL = lp.Workload(3, 8, 2, 97, 128)


def test_a_full_gpu_is_left_alone_and_an_empty_one_is_cut() -> None:
    assert lp.choose_split(lp.HEADLINE.replace(batch=64), 132, 8) == 1
    few = lp.choose_split(lp.HEADLINE.replace(batch=1), 132, 8)
    assert few * 32 >= 0.8 * 132 * 8
    # Half of the SMs, half of the pieces, or about.
    assert lp.choose_split(lp.HEADLINE.replace(batch=1), 66, 8) == pytest.approx(few / 2, abs=2)


def test_fewer_blocks_a_sequence_are_cut_more() -> None:
    by_head = lp.choose_split(lp.HEADLINE, 132, 8)
    by_group = lp.choose_split(lp.HEADLINE, 132, 8, heads=lp.HEADLINE.num_kv_heads)
    assert by_group > 2 * by_head


def test_pieces_keep_their_least_rows_and_their_number() -> None:
    tiny = lp.HEADLINE.replace(batch=1, kv_len=100)
    assert lp.choose_split(tiny, 132, 16) == 1
    assert lp.choose_split(tiny, 132, 16, least_rows=10) <= 10
    long = lp.HEADLINE.replace(batch=1, kv_len=131072)
    assert lp.choose_split(long, 132, 16, most=7) <= 7


def test_each_length_counts() -> None:
    base = lp.HEADLINE.replace(kv_len=8192)
    one_long = base.replace(seq_lens=(8192, *(256,) * 7))
    short = base.replace(seq_lens=(256,) * 8)
    assert lp.choose_split(one_long, 132, 8) > lp.choose_split(base, 132, 8)
    assert lp.choose_split(short, 132, 8) <= 4


def test_fill_counts_whole_waves() -> None:
    assert lp.fill_of_split((100,), 1, 10, 10) == 1.0
    assert lp.fill_of_split((100,), 1, 11, 10) == pytest.approx(0.55)
    assert lp.fill_of_split((100, 100), 2, 5, 10) == 1.0  # 20 blocks of 50 rows in two waves
    # 100 rows in 3 pieces are 34 each, of 16 a tile: three tiles.
    assert lp.fill_of_split((100,), 3, 10, 30, 16) == pytest.approx(10 * 100 / 16 / (30 * 3))
    # A sequence of one row among longer ones: its second and third piece are empty.
    assert lp.fill_of_split((90, 1), 3, 1, 6) == pytest.approx(91 / (6 * 30))


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    heads=st.integers(1, 8),
    sms=st.integers(1, 160),
    blocks=st.integers(1, 32),
    tile=st.sampled_from([1, 16, 64]),
)
def test_the_rule_is_the_fewest_that_is_good_enough(
    lengths: list[int], heads: int, sms: int, blocks: int, tile: int
) -> None:
    workload = lp.Workload(len(lengths), heads, heads, max(lengths), 128, seq_lens=tuple(lengths))
    split = lp.choose_split(workload, sms, blocks, tile_rows=tile)
    most = max(1, min(64, max(lengths) // 64))
    fills = [lp.fill_of_split(lengths, n, heads, sms * blocks, tile) for n in range(1, most + 1)]
    assert 1 <= split <= most
    assert all(0 < fill <= 1.0000001 for fill in fills)
    assert fills[split - 1] >= 0.85 * max(fills)
    assert all(fill < 0.85 * max(fills) for fill in fills[: split - 1])


@pytest.mark.parametrize("wrong", [{"num_sms": 0}, {"tile_rows": 0}, {"enough": 0.0}, {"most": 0}])
def test_counts_below_one_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="choose_split"):
        lp.choose_split(**{"workload": lp.HEADLINE, "num_sms": 132, "blocks_per_sm": 8, **wrong})  # type: ignore[arg-type]


def test_two_launches_or_one() -> None:
    (whole,) = lp.split_launches(SMALL, "decode", 1, block=32)
    assert whole.args == ("q", "k", "v", "seq_lens", "out", *lp.decode_scalars(SMALL))
    assert whole.workspace == ()
    first, merge = lp.split_launches(SMALL, "decode", 4, block=64, grid_x=2)
    assert first.grid == (2, 3, 4)
    assert "out" not in first.args
    assert merge.args == ("partial", "out")
    assert merge.workspace[0] in first.workspace
    assert merge.workspace[0].shape == (3, 8, 4, 130)
    assert {rung.id for rung in lp.list_studies() if "split" in rung.resolve_knobs()}


def test_a_launch_knob_shares_one_machine_code() -> None:
    rung = lp.load_rung("r08")
    defines = [rung.defines(lp.HEADLINE, LIMITS, {"split": n}) for n in (0, 1, 64)]
    assert defines[0] == defines[1] == defines[2]
    assert "SPLIT" not in defines[0]
    assert rung.defines(lp.HEADLINE, LIMITS, {"rows": 2}) != defines[0]
    assert len(rung.knob_combinations()) == 4 * 4


def test_zero_pieces_means_the_rule() -> None:
    rung = lp.load_rung("r08")
    decode, merge = rung.launches(lp.HEADLINE.replace(batch=1), LIMITS)
    assert decode.grid[2] == merge.args[2] > 1
    (alone,) = rung.launches(lp.HEADLINE.replace(batch=64), LIMITS)
    assert alone.grid[2] == 1
    fewer = dataclasses.replace(LIMITS, num_sms=40)
    small = rung.launches(lp.HEADLINE.replace(batch=1), fewer)[0]
    assert small.grid[2] < decode.grid[2]
