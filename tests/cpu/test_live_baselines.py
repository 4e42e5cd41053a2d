"""The baselines compute attention: on the CPU's torch, against the oracle."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from dataclasses import dataclass
from typing import Any, ClassVar

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


SDPA = ("sdpa", "sdpa_flash", "sdpa_math", "sdpa_efficient", "sdpa_expanded", "sdpa_folded")
"""Those that run on a CPU, where torch's flash kernel stands in for the memory-efficient one."""
FLASHINFER = [
    f"flashinfer{bits}{cores}" for bits in ("", "_fp8") for cores in ("", "_tensor_cores")
]
XQA = ("xqa", "xqa_fp8")
XFORMERS = {"xformers_splitk": 16, "xformers_splitk_fp8": 8, "xformers_splitk_int4": 4}
"""With the bits of an element."""


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
        assert (shape.group_size == 1) == (name in ("sdpa_expanded", "sdpa_folded"))
        assert name in ("sdpa_expanded", "sdpa_folded", "sdpa_efficient")
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


def brought(monkeypatch, *names: str) -> list[types.ModuleType]:
    """Empty modules of these names, as if their packages were installed."""
    found = []
    for name in names:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            monkeypatch.setattr(sys.modules[parent], last, module, raising=False)
        found.append(module)
    return found


def attend(q, k, v, scale):
    """Plain attention of q ``[Hq, D]`` over k and v ``[Hkv, n, D]``."""
    import torch

    k, v = (one.float().repeat_interleave(len(q) // len(one), 0) for one in (k, v))
    weights = (torch.einsum("hd,hnd->hn", q.float(), k) * scale).softmax(-1)
    return torch.einsum("hn,hnd->hd", weights, v)


def rows_of(pages, table, length):
    """Pages ``[num_pages, Hkv, page, D]`` of one sequence to ``[Hkv, length, D]``; what stands in
    the last page behind them counts where a kernel multiplies it by zero."""
    return pages[table].permute(1, 0, 2, 3).flatten(1, 2)[:, :length]


LAYOUTS = [
    {},
    {"seq_lens": (130, 1)},
    {"dtype": "bfloat16"},
    {"layout": "paged", "page_size": 64},
    {"layout": "paged", "page_size": 64, "seq_lens": (65, 130)},
]


def check(name: str, workload: Workload):
    """Run a baseline on both kinds of padding, NaN and plausible rows; the last comparison."""
    baseline = load_baseline(name)
    assert baseline.supports(workload) is None
    for seed in (0, 1):
        out, expected = run_on_cpu(name, workload.replace(seed=seed))
        found = compare_output(out, expected, baseline.tolerance_for(workload))
        assert found.ok, found
    return found


def test_flex_attention_is_asked_for_groups(monkeypatch):
    torch = pytest.importorskip("torch")
    from torch.nn.attention import flex_attention

    compiled = []

    def fused(q, k, v, scale, enable_gqa):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, scale=scale, enable_gqa=enable_gqa
        )

    def compile(function, dynamic):
        assert function is flex_attention.flex_attention and not dynamic
        compiled.append(function)
        return fused

    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    baseline = load_baseline("flex_attention")
    monkeypatch.setitem(sys.modules, "triton", None)
    assert "Triton" in baseline.supports(SHAPES[0])
    brought(monkeypatch, "triton")
    for workload in SHAPES[:2]:
        check("flex_attention", workload)
    assert len(compiled) == 4, "one compilation a workload, and the seed is of it"
    assert "1, 2, 4" in baseline.supports(Workload(2, 12, 4, 130, 64))
    assert "ragged" in baseline.supports(SHAPES[0].replace(seq_lens=(130, 1)))


@pytest.mark.parametrize("changes", LAYOUTS, ids=str)
def test_flash_attention_3_decodes_views_of_the_cache(monkeypatch, changes):
    """Its function as the package has it; unused rows are multiplied by zero, as there."""
    torch = pytest.importorskip("torch")
    baseline = load_baseline("flash_attention_3_decode")
    workload = Workload(2, 8, 2, 130, 64).replace(**changes)
    assert "not installed" in baseline.supports(workload)
    (module,) = brought(monkeypatch, "flash_attn_interface")

    def get_scheduler_metadata(batch, queries, most, heads, kv_heads, dim, lengths, **given):
        assert (batch, queries, heads, kv_heads, dim) == (2, 1, 8, 2, 64)
        assert most == (192 if workload.is_paged else 130)
        assert given["qkv_dtype"] is getattr(torch, workload.dtype)
        assert given["page_size"] == (workload.page_size or None)
        return "metadata"

    def flash_attn_with_kvcache(q, k, v, cache_seqlens=None, page_table=None, **given):
        assert (q.shape[1], k.stride(-1), v.stride(-1)) == (1, 1, 1)
        assert given["num_splits"] == 0 and given["pack_gqa"]
        assert (given.get("scheduler_metadata") == "metadata") == (cache_seqlens is not None)
        k, v = (one.transpose(1, 2) for one in (k, v))
        outs = []
        for i, one in enumerate(q[:, 0]):
            length = workload.kv_len if cache_seqlens is None else int(cache_seqlens[i])
            if page_table is not None:
                pages = page_table[i, : -(-length // workload.page_size)].long()
                rows = [rows_of(x, pages, length) for x in (k, v)]
            else:
                assert not v[i, :, length:].isnan().any()
                rows = [x[i, :, :length] for x in (k, v)]
            outs.append(attend(one, *rows, given["softmax_scale"]))
        return torch.stack(outs).to(q.dtype).unsqueeze(1)

    module.get_scheduler_metadata = get_scheduler_metadata
    module.flash_attn_with_kvcache = flash_attn_with_kvcache
    check("flash_attention_3_decode", workload)
    assert "head_dim" in baseline.supports(Workload(2, 8, 2, 130, 96))


@pytest.mark.parametrize("name", XQA)
@pytest.mark.parametrize("changes", LAYOUTS, ids=str)
def test_xqa_gets_pages_lengths_and_scales(monkeypatch, tmp_path, name, changes):
    torch = pytest.importorskip("torch")
    baseline = load_baseline(name)
    workload = Workload(2, 8, 2, 130, 64).replace(**changes)
    assert "XQA" in baseline.supports(workload)
    package, module = brought(monkeypatch, "flashinfer", "flashinfer.xqa")
    package.__spec__.submodule_search_locations = [str(tmp_path)]
    assert "XQA" in baseline.supports(workload), "an older one has none"
    (tmp_path / "xqa.py").touch()

    def xqa(q, k, v, table, lengths, out, scratch, semaphores, kv_heads, page_size, **given):
        assert (q.dtype, out.shape, kv_heads, given["kv_layout"]) == (out.dtype, q.shape, 2, "HND")
        assert (table.dtype, lengths.dtype) == (torch.int32, torch.uint32)
        assert (scratch.dtype, semaphores.dtype) == (torch.uint8, torch.uint32)
        assert (k.shape[2], page_size, tuple(lengths.shape)) == (64, 64, (2, 1))
        scale = given["kv_scale"]
        for i, one in enumerate(q[:, 0]):
            length = int(lengths[i, 0])
            pages = table[i, : -(-length // page_size)].long()
            if name == "xqa_fp8":  # whole pages are read
                assert not v.float()[pages].isnan().any()
            rows = [rows_of(x.float(), pages, length) * scale for x in (k, v)]
            out[i, 0] = attend(one, *rows, given["q_scale"] / 64**0.5).to(out.dtype)

    module.xqa = xqa
    found = check(name, workload)
    assert (found.worst_error > 3e-3) == (baseline.storage.bits == 8)
    assert baseline.own_page_size == 64
    assert "head_dim" in baseline.supports(Workload(2, 8, 2, 130, 320))
    assert "64 query heads" in baseline.supports(Workload(2, 64, 1, 130, 64))


def test_large_values_share_one_scale_in_xqa():
    torch = pytest.importorskip("torch")
    module = load_by_path(kernels_dir() / "baselines" / "xqa.py")
    k, v, scale = module.to_e4m3(torch.tensor([896.0, float("nan")]), torch.tensor([1.0, -2.0]))
    assert scale == 2.0 and (k.float() * scale).tolist() == [896.0, 0.0]
    assert (v.float() * scale).tolist() == [1.0, -2.0]


def read_codes(codes, scales):
    """What xformers' kernel reads: fp8 where scales lie apart, else four bits behind two fp16."""
    import torch

    if scales is not None:
        assert torch.equal(scales >> 16, torch.zeros_like(scales)), "the bias is zero"
        scale = scales.to(torch.int16).view(torch.float16)
        numbers = codes.contiguous().view(torch.float8_e4m3fn).float()
        return numbers * scale.float().unsqueeze(-1)
    if codes.dtype != torch.int32:
        return codes
    both = codes[..., :1].contiguous().view(torch.float16).float()
    numbers = codes[..., 1:].unsqueeze(-1) >> torch.arange(0, 32, 4, dtype=torch.int32) & 15
    return numbers.flatten(-2).float() * both[..., :1] + both[..., 1:]


@pytest.mark.parametrize("name", XFORMERS)
@pytest.mark.parametrize("changes", LAYOUTS, ids=str)
def test_xformers_gets_groups_and_codes(monkeypatch, name, changes):
    """Its classes as the package has them, with the shapes that it says it takes."""
    pytest.importorskip("torch")
    baseline = load_baseline(name)
    workload = Workload(2, 8, 2, 130, 64).replace(**changes)
    monkeypatch.setitem(sys.modules, "xformers", None)
    assert "xformers" in baseline.supports(workload)
    names = ("", ".ops", ".ops.fmha", ".ops.fmha.common")
    *_, fmha, common = brought(monkeypatch, "triton", *(f"xformers{one}" for one in names))

    @dataclass
    class Inputs:
        query: Any
        key: Any
        value: Any
        attn_bias: Any = None
        scale: float | None = None
        k_fp8_scale_shift: Any = None
        v_fp8_scale_shift: Any = None

    @dataclass
    class Bias:
        lengths: list[int]
        table: Any = None

    def padded(queries, most, lengths, device):
        assert (queries, most) == ([1, 1], 130)
        return Bias(lengths)

    def paged(queries, lengths, table, size, device):
        assert (queries, size) == ([1, 1], 64)
        return Bias(lengths, table)

    def apply(given, needs_gradient):
        q, k, v = given.query, given.key, given.value
        bias, scales = given.attn_bias, (given.k_fp8_scale_shift, given.v_fp8_scale_shift)
        assert k.shape[2:4] == (2, 4) and k.stride(3) == v.stride(3) == 0
        kv = [x[:, :, :, 0] for x in (k, v)]
        scales = [None if x is None else x[:, :, :, 0] for x in scales]
        if bias is not None:
            assert len(q) == len(k) == 1
            kv = [x.unflatten(1, (-1, 64 if bias.table is not None else 130))[0] for x in kv]
            scales = [x if x is None else x.unflatten(1, (-1, kv[0].shape[1]))[0] for x in scales]
        kv = [read_codes(*one).transpose(1, 2) for one in zip(kv, scales, strict=True)]
        outs = []
        for i, one in enumerate(q.view(2, 8, 64)):
            length = workload.kv_len if bias is None else bias.lengths[i]
            if bias is not None and bias.table is not None:
                pages = bias.table[i, : -(-length // 64)].long()
                rows = [rows_of(x, pages, length) for x in kv]
            else:
                rows = [x[i, :, :length] for x in kv]
            outs.append(attend(one, *rows, given.scale))
        return torch_of(outs, q), None

    def torch_of(outs, q):
        import torch

        return torch.stack(outs).to(q.dtype).view(q.shape)

    common.Inputs = Inputs
    fmha.attn_bias = types.SimpleNamespace(
        BlockDiagonalPaddedKeysMask=types.SimpleNamespace(from_seqlens=padded),
        PagedBlockDiagonalPaddedKeysMask=types.SimpleNamespace(from_seqlens=paged),
    )
    operator = types.SimpleNamespace(apply=apply)
    fmha.triton_splitk = types.SimpleNamespace(InputsFp8=Inputs, FwOp=operator)
    found = check(name, workload)
    if XFORMERS[name] < 16:
        assert found.worst_error > 1e-2, "so few bits cannot be that good: was anything converted?"
    assert "multiples of 64" in baseline.supports(workload.replace(layout="paged", page_size=16))
    assert "head_dim" in baseline.supports(Workload(2, 8, 2, 130, 96))


def test_every_baseline_says_what_is_timed_and_refuses_what_it_cannot():
    ragged = HEADLINE.replace(seq_lens=tuple([4096] * 7 + [5]))
    paged = HEADLINE.replace(layout="paged", page_size=16)
    for baseline in list_baselines():
        assert "Inside the timed call" in baseline.doc
        assert baseline.source is not None
        assert baseline.source.stem == baseline.id
        bits = {"fp8": 8, "int4": 4}.get(baseline.id.split("_")[-1], 16)
        assert baseline.storage.bits == (8 if "fp8" in baseline.id else bits)
        if baseline.id.startswith("sdpa"):
            assert baseline.supports(ragged)
            assert "paged" in baseline.supports(paged)
            refuses = baseline.id == "sdpa_efficient"
            assert bool(baseline.supports(HEADLINE)) == refuses
    assert [one.id for one in list_baselines() if not one.fair] == ["sdpa_expanded"]
    others = {"sdpa_cudnn", "flex_attention", "flash_attention_3_decode", *XQA, *XFORMERS}
    assert {*SDPA, *FLASHINFER, *others} == {one.id for one in list_baselines()}


def test_tolerances_say_what_a_library_may_round():
    fp16, bf16 = HEADLINE, HEADLINE.replace(dtype="bfloat16")
    sdpa, fp8 = load_baseline("sdpa"), load_baseline("flashinfer_fp8")
    assert sdpa.tolerance_for(fp16) < sdpa.tolerance_for(bf16) < fp8.tolerance_for(fp16) < 0.2
