"""Compile the FlashInfer kernels that the baselines use, all at once and on every core.

By itself FlashInfer compiles one at each first call, about a minute each. It needs FlashInfer 0.6.4
or later, torch with CUDA, a CUDA toolkit and the GPU itself. XQA's kernels are those of the
workloads of one plan; they are compiled where FlashInfer is 0.7.2 or later.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from labtools.measure.campaign.plan import load_plan
from labtools.problem import Workload, load_baseline

HEAD_DIMS = (64, 128)


def wanted_kernels(torch: Any) -> list[tuple[Any, Any, int]]:
    """(type of q and the output, type of K and V, head_dim) of each kernel."""
    half, bf16, fp8 = torch.float16, torch.bfloat16, torch.float8_e4m3fn
    pairs = ((half, half), (half, fp8), (bf16, bf16), (bf16, fp8))
    return [(q, kv, dim) for q, kv in pairs for dim in HEAD_DIMS]


def make_specs(torch: Any, modules: Any) -> list[Any]:
    """What to compile: the CUDA-core kernel and the tensor-core one of each wanted kernel.

    FlashInfer 0.7.2 calls tensor-core kernels for K and V of equal strides, as all of ours are.
    """
    prefill = getattr(
        modules, "_gen_batch_prefill_primary_module", modules.gen_batch_prefill_module
    )
    specs = []
    for q, kv, dim in wanted_kernels(torch):
        types = (q, kv, q, torch.int32, dim, dim, 0, False, False)
        specs.append(modules.gen_batch_decode_module(*types))
        specs.append(prefill("fa2", *types, False))
    return specs


def xqa_kernels(plan: str) -> list[tuple[str, bool, int, int, int]]:
    """(type of q, whether the cache is FP8, tokens of a page, head_dim, query heads a KV head) of
    each kernel that the plan's workloads need."""
    own = load_baseline("xqa").own_page_size
    assert own is not None
    wanted = {
        (one.dtype, name == "xqa_fp8", one.page_size or own, one.head_dim, one.group_size)
        for section in load_plan(plan).sections
        for name in {"xqa", "xqa_fp8"}.intersection(section.baselines)
        for one in section.workloads
        if isinstance(one, Workload)
    }
    return sorted(wanted)


def make_xqa_specs(torch: Any, plan: str, generate: Any) -> list[Any]:
    """What to compile of XQA; ``generate`` is FlashInfer's ``gen_xqa_module``."""
    specs = []
    for dtype, fp8, page_size, head_dim, group_size in xqa_kernels(plan):
        q = getattr(torch, dtype)
        kv = torch.float8_e4m3fn if fp8 else q
        specs.append(generate(q, kv, page_size, head_dim, group_size, False, q))
    return specs


def build_specs(specs: Sequence[Any]) -> list[str]:
    """Compile each as FlashInfer does at a first call, several beside each other; what went wrong.

    FlashInfer's own `build_jit_specs` keeps one log for all, in which a first call does not look:
    it would compile everything again.
    """

    def build(spec: Any) -> str | None:
        try:
            spec.build(need_lock=True)
        except RuntimeError as error:
            return f"{spec.name}: {error}"
        return None

    os.environ.setdefault("MAX_JOBS", "3")  # files of one of them at a time
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        return [*filter(None, pool.map(build, specs))]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", default="bench", help="whose workloads XQA's kernels are for")
    plan = parser.parse_args(argv).plan
    try:
        import torch
        from flashinfer.jit.attention import modules
    except ImportError as error:
        print(f"FlashInfer or torch is not installed here: {error}", file=sys.stderr)
        return 3
    specs = make_specs(torch, modules)
    try:
        from flashinfer.jit.xqa import gen_xqa_module, swap_ab_eligible  # noqa: F401  # of 0.7.2
    except ImportError:
        print("This FlashInfer has no XQA as of 0.7.2.", file=sys.stderr)
    else:
        specs += make_xqa_specs(torch, plan, gen_xqa_module)
    start = time.perf_counter()
    failures = build_specs(specs)
    ready = len(specs) - len(failures)
    print(f"{ready} modules are ready, after {time.perf_counter() - start:.0f} s.")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
