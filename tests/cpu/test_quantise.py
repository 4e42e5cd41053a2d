"""Quantised caches: exact inverses, the same bits from the kernels, error by scheme."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from devices import some_of
from hypothesis import given, settings
from hypothesis import strategies as st

import labtools.problem as lp
from labtools.measure.cpu import run_on_cpu
from labtools.notebook import Measured
from labtools.notebook.labs.lab06_quant import view
from labtools.notebook.labs.lab06_quant.figures import plot_frontier, plot_levels, show_frontier
from labtools.notebook.labs.lab06_quant.view import (
    K_AXES,
    OUTLIERS,
    V_AXES,
    parts_of,
    quant_bench,
    quant_tables,
)
from labtools.predict import load_gpu
from labtools.problem.decode.scheme import padded_rows

PARTS = sorted({part for s in lp.SCHEMES.values() for part in (s.k, s.v)}, key=str)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Rows that are normal, constant, zero, huge, tiny, or far from zero."""
    x = rng.standard_normal(shape).astype(np.float32)
    kind = rng.integers(0, 7, shape[:3])
    x[kind == 1] = rng.standard_normal()
    x[kind == 2] = 0
    x[kind == 3] *= 20000
    x[kind == 4] *= 1e-6
    x[kind == 5] += 1000
    x[kind == 6] = np.copysign(65504, x[kind == 6])
    return np.clip(x, -65504, 65504).astype(dtype)


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_the_way_back_is_within_half_a_step(part):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 130, 128)).astype(np.float16)
    lengths = np.array([130, 67], np.int32)
    there = lp.quantise_tensor(x, lengths, part)
    back = lp.dequantise_tensor(there)
    assert np.isnan(back[1, :, 67:]).all() and np.isfinite(back[0]).all()
    # A scale is rounded to fp16, and at the edge of the range that adds up over half the codes.
    step = float(there.scale.max())
    slack = step * (0.5 + part.coded.highest * 2**-10) + 8 * 2.0**-11
    for sequence, n in enumerate(lengths):
        assert np.abs(back[sequence, :, :n] - x[sequence, :, :n].astype(np.float32)).max() <= slack
    assert there.codes.dtype == np.uint8 and there.scale.dtype == np.float16
    assert there.codes.shape[-1] == part.code_bytes(128)
    assert (there.bias is not None) == part.asymmetric


@given(st.integers(0, 2**31), st.sampled_from(PARTS))
@settings(max_examples=60, deadline=None)
def test_codes_of_what_was_read_back_stand_for_the_same_values(seed, part):
    """Quantising is settled after one turn wherever the extremes were kept exactly."""
    rng = np.random.default_rng(seed)
    x = values(rng, (1, 2, 70, 64), np.float16)
    there = lp.quantise_tensor(x, np.array([70], np.int32), part)
    back = lp.dequantise_tensor(there)
    assert np.isfinite(back).all()
    span = float(there.scale.max()) * 2 * -part.coded.lowest + 1e-9
    assert np.abs(back - x.astype(np.float32)).max() <= span


def test_a_constant_row_and_a_zero_row_come_back_exactly():
    x = np.zeros((1, 1, 2, 128), np.float16)
    x[0, 0, 1] = 0.7
    lengths = np.array([2], np.int32)
    for bits in (4, 8):
        there = lp.quantise_tensor(
            x, lengths, lp.StorageFormat(f"int{bits}", "row", asymmetric=True)
        )
        assert np.array_equal(lp.dequantise_tensor(there), x.astype(np.float32))
        zero = lp.quantise_tensor(x, lengths, lp.StorageFormat(f"int{bits}", "row"))
        assert (lp.dequantise_tensor(zero)[0, 0, 0] == 0).all()


def test_the_mark_of_each_scheme():
    assert len(lp.SCHEMES) >= 8
    assert lp.SCHEMES[lp.CHOSEN_INT8].k.bits == 8 and lp.SCHEMES[lp.CHOSEN_INT4].v.bits == 4
    for refused in (("int3", "row"), ("int4", "row", 64), ("int4", "channel"), ("int8", "column")):
        with pytest.raises(lp.LabError):
            lp.StorageFormat(*refused)
    with pytest.raises(lp.LabError):
        lp.quantise_tensor(
            np.zeros((1, 1, 1, 48), np.float16),
            np.array([1]),
            lp.StorageFormat("int4", "row_group", 32),
        )


@pytest.mark.parametrize("name", lp.SCHEMES)
def test_bytes_agree_with_the_arrays(name):
    scheme = lp.SCHEMES[name]
    workload = lp.Workload(1, 2, 2, 256, 128)
    inputs = lp.make_inputs(workload)
    total = 0
    for part, x in ((scheme.k, inputs.k), (scheme.v, inputs.v)):
        there = lp.quantise_tensor(x, inputs.seq_lens, part)
        total += there.codes.nbytes + there.scale.nbytes
        total += there.bias.nbytes if there.bias is not None else 0
    assert scheme.kv_bytes(workload) == total
    if "tensor" not in name:
        elements = 2 * inputs.k.size
        assert scheme.bytes_per_element(128) == pytest.approx(total / elements)


def test_pages_hold_what_the_rows_hold():
    workload = lp.Workload(2, 4, 2, 90, 64, seq_lens=(90, 33))
    paged = workload.replace(layout="paged", page_size=16)
    for name in (lp.CHOSEN_INT4, "int8_krow_vrow"):
        flat = lp.dequantise_inputs(lp.make_outlier_inputs(workload), lp.SCHEMES[name])
        there = lp.dequantise_inputs(lp.make_outlier_inputs(paged), lp.SCHEMES[name])
        assert there.k.shape == paged.kv_shape
        for sequence in range(2):
            for head in range(2):
                for one, other in zip(
                    flat.kv_rows(sequence, head), there.kv_rows(sequence, head), strict=True
                ):
                    assert np.array_equal(one, other)


@pytest.mark.parametrize("name", ["int8_ktensor_vtensor", "int4_krow_vrow", lp.CHOSEN_INT4])
def test_rows_in_pieces_and_like_others_are_what_they_are_by_themselves(name):
    scheme = lp.SCHEMES[name]
    workload = lp.Workload(2, 2, 1, 2500, 64, seq_lens=(2500, 1100))
    inputs = lp.make_outlier_inputs(workload)
    kept = lp.dequantise_inputs(inputs, scheme)
    whole = lp.dequantise_tensor(lp.quantise_tensor(inputs.k, inputs.seq_lens, scheme.k))
    assert np.array_equal(kept.k, whole, equal_nan=True)
    k = inputs.k.copy()
    k[0, 0, 1200], k[1, 0, 3] = 9, -9
    other = dataclasses.replace(inputs, k=k)
    alone = lp.dequantise_inputs(other, scheme)
    alike = lp.dequantise_inputs(other, scheme, (inputs, kept))
    assert not np.array_equal(alone.k, kept.k, equal_nan=True)
    assert np.array_equal(alike.k, alone.k, equal_nan=True)
    assert np.array_equal(alike.v, alone.v, equal_nan=True)


def test_the_generator_has_outliers_that_stay_in_their_channels():
    inputs = lp.make_outlier_inputs(lp.Workload(1, 4, 2, 512, 128, seed=5))
    again = lp.make_outlier_inputs(lp.Workload(1, 4, 2, 512, 128, seed=5))
    assert np.array_equal(inputs.k, again.k) and np.array_equal(inputs.q, again.q)
    other = lp.make_outlier_inputs(lp.Workload(1, 4, 2, 512, 128), seed=6)
    assert not np.array_equal(inputs.k, other.k)
    k = inputs.k.astype(np.float32)
    large = np.abs(k.mean(axis=2)) > 4  # [B, Hkv, D]
    assert (large.sum(axis=-1) == 4).all()
    halves = [np.abs(k[:, :, part].mean(axis=2)) > 4 for part in (slice(256), slice(256, None))]
    assert np.array_equal(*halves)


def test_frontier_meets_what_the_guide_says_of_it():
    rows = lp.frontier()
    by_name = {row.scheme.name: row for row in rows}
    assert min(row.pairs for row in rows) >= 12 and len(rows) >= 8
    assert by_name[lp.CHOSEN_INT8].worst_error <= 1.5e-2
    chosen = by_name[lp.CHOSEN_INT4]
    assert chosen.worst_error <= 1.25 * lp.lowest_error_at(rows, chosen)
    assert by_name["int4_ktensor_vtensor"].worst_error > 4 * chosen.worst_error
    for bits in (4, 8):  # the outliers cost a scheme with a scale a row, and not one a channel
        row = by_name[f"int{bits}_krow_vrow"].median_error
        assert row > 2 * by_name[f"int{bits}_kc64_vrow"].median_error


DUMP = """
#define UNUSED 0xffff
{packers}
// out, taken as 16-bit words, gets the words or bytes of one buffer.
extern "C" __global__ void dump(const {type}* __restrict__ source, unsigned short* out,
                                int count, int room) {{
  for (int i = blockIdx.x * 32 + threadIdx.x; i < room; i += gridDim.x * 32)
    out[i] = i < count ? source[i] : UNUSED;
}}
"""


def packer(name: str, part: lp.StorageFormat) -> str:
    macro = "QUANTISE_CHANNELS" if part.axis == "channel" else "QUANTISE_ROWS"
    group = "HEAD_DIM" if part.axis == "row" else str(part.group)
    return f"{macro}{'_BIASED' if part.asymmetric else ''}({name}, {part.bits}, {group})"


def dumping_rung(folder: Path, scheme: lp.Scheme, buffer: str) -> lp.Rung:
    """A rung whose output is the bits of one buffer of the quantised cache."""
    codes = buffer.endswith("codes")
    source = folder / f"dump_{scheme.name}_{'codes' if codes else 'scales'}.cu"
    packers = "\n".join(
        ['#include "quantise.cuh"', packer("quantise_k", scheme.k), packer("quantise_v", scheme.v)]
    )
    word = "unsigned char" if codes else "unsigned short"
    source.write_text(DUMP.format(packers=packers, type=word))

    def launch(workload, limits, knobs):
        cache, prepare = lp.quantise_launches(workload, scheme)
        size = {space.name: int(np.prod(space.shape)) for space in cache}[buffer]
        room = workload.batch * workload.num_qo_heads * workload.head_dim
        assert size <= room
        dump = lp.Launch(
            "dump", (4,), (32,), args=(buffer, "out", np.int32(size), np.int32(room)),
            workspace=cache,
        )  # fmt: skip
        return [*prepare, dump]

    return lp.Rung(
        source.stem, "dump", source, "", "", "", launch, supports=lambda workload: None,
        stores=lambda workload, knobs: scheme,
    )  # fmt: skip


def mixed_inputs(workload: lp.Workload, seed: int) -> lp.Inputs:
    """Rows of every kind, in the workload's layout; NaN behind the lengths."""
    rng = np.random.default_rng(seed)
    inputs = lp.make_inputs(workload)
    changed = {}
    for name in ("k", "v"):
        old = getattr(inputs, name)
        new = values(rng, old.shape, np.float32).astype(old.dtype)
        if workload.dtype == "bfloat16":  # what fp16 cannot hold
            new[:, :, ::5] = (new[:, :, ::5].astype(np.float32) * 1e30).astype(old.dtype)
        new[np.isnan(old.astype(np.float32))] = np.nan
        changed[name] = new
    return dataclasses.replace(inputs, **changed)


def expected_words(inputs: lp.Inputs, scheme: lp.Scheme, buffer: str, shape: tuple[int, ...]):
    """What numpy packs, in the buffer's layout, and a mask of what the kernel must write."""
    workload, name = inputs.workload, buffer[0]
    part = getattr(scheme, name)
    rows = np.full(workload.kv_buffer().shape, np.nan, np.float32)
    for sequence, head in np.ndindex(rows.shape[:2]):
        x = inputs.kv_rows(sequence, head)["kv".index(name)]
        rows[sequence, head, : len(x)] = x
    there = lp.quantise_tensor(rows, inputs.seq_lens, part)
    found = getattr(there, buffer[2:])
    found = found if found.dtype == np.uint8 else found.view(np.uint16)
    written = np.ones(found.shape, bool)
    if buffer.endswith("codes"):
        inside = np.arange(workload.kv_len)[None] < workload.lengths[:, None]
        written &= inside[:, None, :, None]
    if not workload.is_paged or (part.axis == "channel" and not buffer.endswith("codes")):
        return found, written
    pages, mask = np.zeros(shape, found.dtype), np.zeros(shape, bool)
    size = workload.page_size
    for sequence, length in enumerate(workload.lengths):
        for index in range(-(-int(length) // size)):
            page = inputs.page_table[sequence, index]
            here = slice(index * size, (index + 1) * size)
            part_rows = found[sequence, :, here]
            pages[page, :, : part_rows.shape[1]] = part_rows
            mask[page, :, : part_rows.shape[1]] = written[sequence, :, here]
    return pages, mask


PLAIN = lp.Workload(2, 2 * 152, 2, 150, 128, seq_lens=(150, 67))
CASES = [
    ("int8", "c128a", "rowa", PLAIN),
    ("int4", "c128a", "rowa", PLAIN),
    ("int8", "c64", "row", PLAIN),
    ("int4", "c64", "row", PLAIN),
    ("int8", "g32a", "g64", PLAIN),
    ("int4", "g32a", "g64", PLAIN),
    ("int8", "c128a", "rowa", PLAIN.replace(dtype="bfloat16", head_dim=64)),
    ("int4", "c128a", "rowa", PLAIN.replace(layout="paged", page_size=16, num_qo_heads=400)),
    ("int4", "c64a", "g32a", PLAIN.replace(layout="paged", page_size=64, head_dim=64,
                                          num_qo_heads=600, dtype="bfloat16")),
]  # fmt: skip


def part_of(bits: str, name: str) -> lp.StorageFormat:
    axis = {"r": "row", "g": "row_group", "c": "channel"}[name[0]]
    group = 0 if axis == "row" else int(name[1:].rstrip("a"))
    return lp.StorageFormat(bits, axis, group, name.endswith("a"))


def differing_buffers(folder: Path, scheme: lp.Scheme, workload: lp.Workload) -> list[str]:
    """Buffers in which the kernels' bits are not those of numpy."""
    inputs = mixed_inputs(workload, 11)
    spaces, _ = lp.quantise_launches(workload, scheme)
    found = []
    for space in spaces:
        rung = dumping_rung(folder, scheme, space.name)
        run = run_on_cpu(rung, workload, orders=(0,), inputs=inputs)
        # The dump also takes what no packer writes: codes behind a length, pages of nobody.
        assert all(f.kind == "uninitialised" and "dump" in f.file for f in run.faults), str(run)
        words = np.ascontiguousarray(run.out).view(np.uint16).ravel()
        expected, written = expected_words(inputs, scheme, space.name, space.shape)
        assert expected.shape == space.shape and written.any()
        assert (words[expected.size :] == 0xFFFF).all()
        if ((words[: expected.size].reshape(expected.shape) != expected) & written).any():
            found.append(space.name)
    return found


@pytest.mark.parametrize(("bits", "k", "v", "workload"), some_of(CASES, 5), ids=str)
def test_kernels_make_the_same_bits(tmp_path, bits, k, v, workload):
    scheme = lp.Scheme(f"{bits}_{k}_{v}", part_of(bits, k), part_of(bits, v))
    assert differing_buffers(tmp_path, scheme, workload) == []


@pytest.mark.parametrize(
    ("right", "wrong", "seen"),
    [
        ("__float2int_rn(", "__float2int_rz(", {"k_codes", "v_codes"}),
        ("__fdiv_rn(BIASED", "1.0000002f * __fdiv_rn(BIASED", {"k_codes", "v_codes"}),
        ("2.f * HALF_RANGE - 1.f", "2.f * HALF_RANGE", {"k_scale", "v_scale"}),
        ("__fmul_rn(__half2float(scale), HALF_RANGE)", "0.f", {"k_bias", "v_bias"}),
    ],
)
def test_a_packer_that_is_off_in_one_bit_is_found(tmp_path, right, wrong, seen):
    text = (lp.kernels_dir() / "include" / "quantise.cuh").read_text()
    assert right in text
    (tmp_path / "quantise.cuh").write_text(text.replace(right, wrong))
    differ = differing_buffers(tmp_path, lp.SCHEMES[lp.CHOSEN_INT4], PLAIN)
    assert seen <= set(differ)


def test_rows_behind_a_length_are_not_read(tmp_path):
    """The dump of the scales: 0 behind a length, where the cache holds NaN."""
    rung = dumping_rung(tmp_path, lp.SCHEMES["int8_krow_vrow"], "k_scale")
    run = run_on_cpu(rung, PLAIN, orders=(0,), inputs=lp.make_inputs(PLAIN))
    size = 2 * 2 * padded_rows(150)
    scale = np.ascontiguousarray(run.out).view(np.float16).ravel()[:size].reshape(2, 2, -1)
    assert (scale[1, :, :67] > 0).all() and (scale[1, :, 67:] == 0).all()
    assert (scale[0, :, :150] > 0).all() and (scale[0, :, 150:] == 0).all()


BY_CHANNEL = {"k_group": 32}


def test_the_knob_of_r07_changes_what_is_kept_and_counted():
    rung, limits = lp.load_rung("r07_int4"), load_gpu("h200").limits
    assert rung.scheme(lp.HEADLINE) == lp.SCHEMES[lp.PER_ROW_INT4]
    kept = rung.scheme(lp.HEADLINE, BY_CHANNEL)
    assert (kept.k.axis, kept.k.group, kept.v.axis) == ("channel", BY_CHANNEL["k_group"], "row")
    spaces = {one.name: one for one in rung.launches(lp.HEADLINE, limits, BY_CHANNEL)[-1].workspace}
    assert spaces.keys() == {"k_codes", "v_codes", "k_scale", "v_scale"}
    assert sum(one.bytes for one in spaces.values()) == kept.kv_bytes(lp.HEADLINE)


def test_groups_of_r07_are_right():
    workload = lp.Workload(2, 2, 1, 70, 64, seq_lens=(70, 33))
    assert run_on_cpu(lp.load_rung("r07_int4"), workload, BY_CHANNEL, orders=(0,)).ok


def test_the_bench_shows_what_the_frontier_says(monkeypatch):
    sample = lp.Workload(1, 4, 2, 96, 128)
    few = {"BENCH_WORKLOAD": sample, "BENCH_SEEDS": (3,), "OUTLIERS": {"as is": OUTLIERS["half"]}}
    for name, value in few.items():
        monkeypatch.setattr(view, name, value)

    def measured(scheme):
        return [Measured(12.0, "recorded", "here")] if scheme.k.bits == 4 else []

    tables = quant_tables(load_gpu("h200"), lp.HEADLINE, measured, {})
    drawn = [lp.make_outlier_inputs(sample, 3, outlier_mean=OUTLIERS["half"])]
    for b, bits in enumerate(tables["bits"]):
        for i, k in enumerate(parts_of(K_AXES, bits)):
            schemes = [lp.Scheme(str(j), k, v) for j, v in enumerate(parts_of(V_AXES, bits))]
            for j, row in enumerate(lp.scheme_errors(drawn, schemes)):
                worst, median = tables["errors"][0][b][i][j]
                assert worst == pytest.approx(row.worst_error, rel=1e-3)
                assert median == pytest.approx(row.median_error, rel=1e-3)
                cell = tables["cells"][b][i][j]
                assert cell["bytes"] == pytest.approx(row.bytes_per_element, abs=1e-4)
                assert bool(cell["times"]) == (bits == 4)
    bench = quant_bench(tables, outliers="as is")
    assert len(bench.controls["k"].options) == len(tables["cells"][0])
    assert len(bench.controls["v"].options) == len(tables["cells"][0][0])


def test_figures_say_what_they_draw():
    rows = lp.frontier(lp.Workload(1, 4, 2, 96, 128), (0,))
    table = show_frontier(rows, 128, (lp.CHOSEN_INT8,), only=(lp.CHOSEN_INT8, "int8_krow_vrow"))
    assert table.text.count("INT8") == 2 and "(chosen)" in table.text
    assert lp.CHOSEN_INT4 in plot_frontier(rows, (lp.CHOSEN_INT4,), 1e-2).text
    workload = lp.Workload(8, 32, 8, 4096, 128)
    caches = {"fp16": None, "INT4": lp.SCHEMES[lp.CHOSEN_INT4]}
    levels = plot_levels(workload, caches, [load_gpu("h200")]).text.split(";")
    assert [" fits" in line for line in levels[:2]] == [False, True]
