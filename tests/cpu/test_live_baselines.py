"""The baselines compute attention: on the CPU's torch, against the oracle."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import ClassVar

import pytest

from labtools.measure.gpu.device import _brought_by
from labtools.problem import (
    DISTRIBUTIONS,
    HEADLINE,
    Prefill,
    Problem,
    Workload,
    attention_oracle,
    compare_output,
    kernels_dir,
    list_baselines,
    load_baseline,
    make_inputs,
    operation_of,
)
from labtools.problem.rung import load_by_path

GIVEN = ((2, 8, 2, 130, 64), (1, 8, 1, 33, 128), (3, 4, 4, 31, 128), (1, 4, 1, 1, 64))
SHAPES = [Workload(*shape) for shape in GIVEN]


SDPA = ("sdpa", "sdpa_flash", "sdpa_math", "sdpa_efficient", "sdpa_expanded")
"""Those that run on a CPU, where torch's flash kernel stands in for the memory-efficient one."""
FLASHINFER = [
    f"flashinfer{bits}{cores}" for bits in ("", "_fp8") for cores in ("", "_tensor_cores")
]


def to_torch(array):
    """A host array as a tensor; bfloat16 goes by its bits."""
    import torch

    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def run_on_cpu(name: str, workload: Problem):
    pytest.importorskip("torch")
    operation = operation_of(workload)
    inputs = operation.draw(workload)
    tensors = {key: to_torch(array) for key, array in inputs.buffers().items()}
    out = load_baseline(name).prepare(tensors, workload)()
    return out.float().numpy(), operation.oracle(inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SDPA)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_torchs_baselines_are_right(name, shape, dtype, monkeypatch):
    torch = pytest.importorskip("torch")
    if name == "sdpa_efficient":
        # torch has no such kernel for a CPU; what is tested is how it is called.
        backend = torch.nn.attention.SDPBackend
        monkeypatch.setattr(backend, "EFFICIENT_ATTENTION", backend.MATH, raising=False)
    shape = shape.replace(dtype=dtype)
    baseline = load_baseline(name)
    reason = baseline.supports(shape)
    if reason is not None:
        assert (shape.group_size == 1) == (name == "sdpa_expanded")
        assert name in ("sdpa_expanded", "sdpa_efficient")
        return
    for distribution in DISTRIBUTIONS:
        out, expected = run_on_cpu(name, shape.replace(distribution=distribution))
        assert compare_output(out, expected, baseline.tolerance_for(shape)).ok


PREFILL = (
    Prefill(2, 4, 2, 70, 64),
    Prefill(2, 4, 2, 70, 64, causal=True),
    Prefill(1, 4, 1, 33, 128, qo_len=9, causal=True),
    Prefill(1, 3, 3, 9, 64, qo_len=33),
    Prefill(1, 2, 2, 31, 64, qo_len=1, causal=True),
)


@pytest.mark.parametrize("name", ["", "_flash", "_math", "_efficient"])
@pytest.mark.parametrize("shape", PREFILL, ids=str)
def test_torchs_prefill_is_right(name, shape, monkeypatch):
    """Its mask is aligned at the last key too, whatever the backend."""
    torch = pytest.importorskip("torch")
    backend = torch.nn.attention.SDPBackend
    monkeypatch.setattr(backend, "EFFICIENT_ATTENTION", backend.MATH, raising=False)
    name = f"prefill_sdpa{name}"
    baseline = load_baseline(name)
    if baseline.supports(shape) is not None:
        assert name == "prefill_sdpa_efficient" and shape.group_size > 1
        return
    for distribution in ("normal", "rising", "late_peaked"):
        out, expected = run_on_cpu(name, shape.replace(distribution=distribution))
        found = shape.compare(out, expected, baseline.tolerance_for(shape))
        assert found.ok, str(found)


def test_flash_attention_3_gets_views_in_its_own_order(monkeypatch):
    """Its function, as the package has it, over torch's SDPA."""
    torch = pytest.importorskip("torch")
    module = types.ModuleType("flash_attn_interface")
    module.__spec__ = importlib.machinery.ModuleSpec("flash_attn_interface", None)

    def flash_attn_func(q, k, v, softmax_scale, causal):
        assert (q.stride(-1), k.stride(-1)) == (1, 1)
        q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        if causal:
            mask = mask.tril(k.shape[2] - q.shape[2])
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=softmax_scale, enable_gqa=True
        )
        return out.transpose(1, 2), None

    module.flash_attn_func = flash_attn_func
    baseline = load_baseline("flash_attention_3")
    assert "not installed" in baseline.supports(PREFILL[0])
    monkeypatch.setitem(sys.modules, "flash_attn_interface", module)
    for shape in PREFILL:
        assert baseline.supports(shape) is None
        out, expected = run_on_cpu(baseline.id, shape)
        assert shape.compare(out, expected, baseline.tolerance_for(shape)).ok


def test_the_package_of_a_library_is_named_with_its_version(tmp_path, monkeypatch):
    assert _brought_by("brings_nothing") is None
    (tmp_path / "brought_by_two.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert _brought_by("brought_by_two") == "of no package"
    for name, version in (("their-build", "3.0.0"), ("our-build", "3.1")):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        (folder / "RECORD").write_text("brought_by_two.py,,\n")
    # All that is installed is read for an answer, so a process asks once.
    assert _brought_by("brought_by_two") == "of no package"
    _brought_by.cache_clear()
    assert _brought_by("brought_by_two") == "our-build 3.1, their-build 3.0.0"


class FakeWrapper:
    """FlashInfer's wrapper on a CPU: plain attention over the pages that it is told of."""

    made: ClassVar[list] = []

    def __init__(self, workspace, kv_layout, use_tensor_cores):
        assert kv_layout == "HND"
        self.cores = use_tensor_cores
        FakeWrapper.made.append(self)

    def plan(self, indptr, indices, last, heads, kv_heads, dim, page_size, **types):
        self.tables = [indices[indptr[i] : indptr[i + 1]].tolist() for i in range(len(indptr) - 1)]
        self.lengths = [
            (len(t) - 1) * page_size + n for t, n in zip(self.tables, last.tolist(), strict=True)
        ]
        self.group, self.types = heads // kv_heads, types

    def run(self, q, cache, k_scale=1.0, v_scale=1.0):
        import torch

        k, v = cache
        assert (q.dtype, k.dtype) == (self.types["q_data_type"], self.types["kv_data_type"])
        outs = []
        for i, (table, length) in enumerate(zip(self.tables, self.lengths, strict=True)):
            rows = [
                x[table].float().permute(1, 0, 2, 3).flatten(1, 2)[:, :length] * scale
                for x, scale in ((k, k_scale), (v, v_scale))
            ]
            keys, values = (x.repeat_interleave(self.group, 0) for x in rows)
            scores = torch.einsum("hd,hld->hl", q[i].float(), keys) * self.types["sm_scale"]
            outs.append(torch.einsum("hl,hld->hd", scores.softmax(-1), values))
        return torch.stack(outs).to(q.dtype)


@pytest.fixture
def fake_flashinfer(monkeypatch):
    pytest.importorskip("torch")
    module = types.ModuleType("flashinfer")
    module.BatchDecodeWithPagedKVCacheWrapper = FakeWrapper
    module.__spec__ = importlib.machinery.ModuleSpec("flashinfer", None)
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    FakeWrapper.made.clear()


@pytest.mark.parametrize("name", FLASHINFER)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seq_lens": (130, 1)},
        {"dtype": "bfloat16"},
        {"layout": "paged", "page_size": 16},
        {"layout": "paged", "page_size": 64, "seq_lens": (65, 130)},
        {"layout": "paged", "page_size": 16, "dtype": "bfloat16", "seq_lens": (7, 128)},
    ],
    ids=str,
)
def test_flashinfer_gets_the_right_pages(fake_flashinfer, name, changes):
    """Unused pages and padding hold NaN, so a wrong page shows."""
    workload = Workload(2, 8, 2, 130, 64).replace(**changes)
    baseline = load_baseline(name)
    assert baseline.supports(workload) is None
    out, expected = run_on_cpu(name, workload)
    found = compare_output(out, expected, baseline.tolerance_for(workload))
    assert found.ok, found
    (wrapper,) = FakeWrapper.made
    assert wrapper.cores == name.endswith("tensor_cores")
    if baseline.storage.bits == 8:
        assert str(wrapper.types["kv_data_type"]) == "torch.float8_e4m3fn"
        assert found.worst_error > 3e-3, "8 bits cannot be that good: was anything converted?"


def test_large_values_are_scaled_into_e4m3(fake_flashinfer):
    torch = pytest.importorskip("torch")
    module = load_by_path(kernels_dir() / "baselines" / "flashinfer.py")
    small, scale = module.to_e4m3(torch.tensor([1.0, -2.0, float("nan")]))
    assert scale == 1.0 and small.float()[:2].tolist() == [1.0, -2.0]
    assert small.float().isnan().tolist() == [False, False, True]
    large, scale = module.to_e4m3(torch.tensor([896.0, -1.75]))
    assert scale == 2.0 and large.float()[0] * scale == 896.0


def test_sets_with_one_page_table_share_a_plan_and_others_do_not(fake_flashinfer):
    workload = Workload(2, 8, 2, 130, 64, layout="paged", page_size=16)
    baseline = load_baseline("flashinfer")

    def prepare(seed):
        inputs = make_inputs(workload.replace(seed=seed))
        tensors = {key: to_torch(array) for key, array in inputs.buffers().items()}
        return baseline.prepare(tensors, workload), attention_oracle(inputs)[0]

    calls = [prepare(0), prepare(0), prepare(1)]
    assert len(FakeWrapper.made) == 2
    for call, expected in calls:
        assert compare_output(call().float().numpy(), expected, 3e-3).ok


def test_every_baseline_says_what_is_timed_and_refuses_what_it_cannot():
    ragged = HEADLINE.replace(seq_lens=tuple([4096] * 7 + [5]))
    paged = HEADLINE.replace(layout="paged", page_size=16)
    for baseline in list_baselines():
        assert "Inside the timed call" in baseline.doc
        assert baseline.source is not None
        assert baseline.source.stem == baseline.id
        assert baseline.storage.bits == (8 if "fp8" in baseline.id else 16)
        if baseline.id.startswith("sdpa"):
            assert baseline.supports(ragged)
            assert "paged" in baseline.supports(paged)
            refuses = baseline.id == "sdpa_efficient"
            assert bool(baseline.supports(HEADLINE)) == refuses
    assert [one.id for one in list_baselines() if not one.fair] == ["sdpa_expanded"]
    assert {*SDPA, *FLASHINFER, "sdpa_cudnn"} == {one.id for one in list_baselines()}


def test_tolerances_say_what_a_library_may_round():
    fp16, bf16 = HEADLINE, HEADLINE.replace(dtype="bfloat16")
    sdpa, fp8 = load_baseline("sdpa"), load_baseline("flashinfer_fp8")
    assert sdpa.tolerance_for(fp16) < sdpa.tolerance_for(bf16) < fp8.tolerance_for(fp16) < 0.2
