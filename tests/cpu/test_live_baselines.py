"""The baselines compute attention: on the CPU's torch, against the oracle."""

from __future__ import annotations

import pytest

from labtools.problem import (
    DISTRIBUTIONS,
    HEADLINE,
    Workload,
    attention_oracle,
    compare_output,
    list_baselines,
    load_baseline,
    make_inputs,
)

SHAPES = (
    Workload(2, 8, 2, 130, 64),
    Workload(1, 8, 1, 33, 128),
    Workload(3, 4, 4, 31, 128),
    Workload(1, 4, 1, 1, 64),
)


def run_on_cpu(name: str, workload: Workload):
    torch = pytest.importorskip("torch")
    inputs = make_inputs(workload)
    tensors = {key: torch.from_numpy(array) for key, array in inputs.buffers().items()}
    out = load_baseline(name).prepare(tensors, workload)()
    return out.numpy(), attention_oracle(inputs)[0]


@pytest.mark.parametrize("name", ["sdpa", "sdpa_flash", "sdpa_expanded"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_torchs_baselines_are_right(name, shape):
    reason = load_baseline(name).supports(shape)
    if reason is not None:
        assert shape.group_size == 1
        assert name == "sdpa_expanded"
        return
    for distribution in DISTRIBUTIONS:
        out, expected = run_on_cpu(name, shape.replace(distribution=distribution))
        assert compare_output(out, expected, 3e-3).ok


def test_flashinfers_pages_hold_the_cache():
    torch = pytest.importorskip("torch")
    from labtools.problem import kernels_dir
    from labtools.problem.rung import load_by_path

    module = load_by_path(kernels_dir() / "baselines" / "flashinfer.py")
    workload = Workload(2, 4, 2, 37, 64, seq_lens=(37, 16))
    k = torch.from_numpy(make_inputs(workload).k)
    pages = module.make_pages(k)
    assert pages.shape == (2 * 3, 2, 16, 64)
    assert pages.is_contiguous()
    indptr, indices, last = module.page_table(workload)
    assert indptr.tolist() == [0, 3, 4]
    assert indices.tolist() == [0, 1, 2, 3]
    assert last.tolist() == [5, 16]
    for sequence, length in enumerate(workload.seq_lens):
        mine = indices[indptr[sequence] : indptr[sequence + 1]]
        rows = pages[mine].permute(1, 0, 2, 3).reshape(2, -1, 64)[:, :length]
        assert torch.equal(rows, k[sequence, :, :length])


def test_every_baseline_says_what_is_timed_and_refuses_what_it_cannot():
    ragged = HEADLINE.replace(seq_lens=tuple([4096] * 7 + [5]))
    for baseline in list_baselines():
        assert "Inside the timed call" in baseline.doc
        assert baseline.source is not None
        assert baseline.source.stem == baseline.id
        if baseline.id.startswith("sdpa"):
            assert baseline.supports(ragged)
            assert baseline.supports(HEADLINE) is None
    assert [one.id for one in list_baselines() if not one.fair] == ["sdpa_expanded"]
