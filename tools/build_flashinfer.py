"""Compile the FlashInfer kernels that the baselines use, all at once and on every core.

By itself FlashInfer compiles one at each first call, about a minute each. It needs FlashInfer,
torch with CUDA, a CUDA toolkit and the GPU itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

HEAD_DIMS = (64, 128)


def wanted_kernels(torch: Any) -> list[tuple[Any, Any, int]]:
    """(type of q and the output, type of K and V, head_dim) of each kernel."""
    half, bf16, fp8 = torch.float16, torch.bfloat16, torch.float8_e4m3fn
    pairs = ((half, half), (half, fp8), (bf16, bf16), (bf16, fp8))
    return [(q, kv, dim) for q, kv in pairs for dim in HEAD_DIMS]


def make_specs(torch: Any, modules: Any) -> list[Any]:
    """What to compile: the CUDA-core kernel and the tensor-core one of each wanted kernel."""
    specs = []
    for q, kv, dim in wanted_kernels(torch):
        types = (q, kv, q, torch.int32, dim, dim, 0, False, False)
        specs.append(modules.gen_batch_decode_module(*types))
        specs.append(modules.gen_batch_prefill_module("fa2", *types, False))
    return specs


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    try:
        import torch
        from flashinfer.jit import build_jit_specs
        from flashinfer.jit.attention import modules
    except ImportError as error:
        print(f"FlashInfer or torch is not installed here: {error}", file=sys.stderr)
        return 3
    specs = make_specs(torch, modules)
    start = time.perf_counter()
    build_jit_specs(specs)
    print(f"{len(specs)} modules are ready, after {time.perf_counter() - start:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
