"""The microbenchmarks' code: what the compiler made of it, for every architecture."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from devices import LIMITS

from labtools.measure.cpu import run_on_cpu
from labtools.problem import (
    HEADLINE,
    Launch,
    Rung,
    Workload,
    kernels_dir,
    load_rung,
    operation_of,
)
from labtools.toolchain import compile_cubin, compile_rung, disassemble

FOLDER = kernels_dir() / "microbench"


@pytest.fixture(scope="module")
def sweep():
    return load_rung(FOLDER / "read_sweep.py")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_120"])
def test_the_kernels_compile_without_spills(sweep, arch) -> None:
    read = compile_rung(sweep, HEADLINE, LIMITS, {"loads": 8, "threads": 512}, arch)
    fill = compile_cubin((FOLDER / "fill.cu").read_text(), arch, name="fill.cu")
    for cubin, entry in ((read, "read_sweep"), (fill, "fill_normal"), (fill, "fingerprint")):
        resources = cubin.resources_of(entry)
        assert resources.local_bytes == 0
        assert resources.spill_store_bytes == 0


def scramble(x: np.ndarray) -> np.ndarray:
    """As fill.cu has it, of uint64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@pytest.mark.parametrize("size", [128, 61, 3])
def test_a_fingerprint_is_of_every_byte_its_place_and_the_seed(size: int, tmp_path: Path) -> None:
    one, seed, source = Workload(1, 1, 1, 4, 64), 2**64 - 5, tmp_path / "kernel.cu"
    clear = 'extern "C" __global__ void clear(int* out) { out[threadIdx.x] = 0; }'
    source.write_text(f"{(FOLDER / 'fill.cu').read_text()}\n{clear}\n")
    launches = [
        Launch("clear", (1,), (32,), 0, ("out",)),
        Launch("fingerprint", (2,), (8,), 0, ("q", "out", np.uint64(size), np.uint64(seed))),
    ]
    rung = Rung("kernel", "a test", source, "", "", "", lambda problem, limits, knobs: launches)
    run = run_on_cpu(rung, one)
    assert not run.faults, run
    held = operation_of(one).draw(one).q.tobytes()[:size]
    words = np.frombuffer(held[: size // 4 * 4], np.uint32)
    numbers = np.concatenate([words, np.frombuffer(held[size // 4 * 4 :], np.uint8)])
    places = scramble(np.array([seed], np.uint64)) + np.arange(len(numbers), dtype=np.uint64)
    expected = scramble(scramble(places) ^ numbers.astype(np.uint64)).sum(dtype=np.uint64)
    assert run.out.reshape(-1).view(np.uint64)[0] == expected


@pytest.mark.parametrize("loads", [1, 2, 4])
def test_every_load_is_16_bytes_wide_and_they_go_out_together(sweep, loads) -> None:
    text = disassemble(compile_rung(sweep, HEADLINE, LIMITS, {"loads": loads}))
    found = re.findall(r"\bLDG\S*|\bLOP3\S*", text)
    assert any(name.startswith("LDG") for name in found)
    assert all(".128" in name for name in found if name.startswith("LDG"))
    # Nothing uses a loaded word before all of a step's loads are on their way.
    runs = re.findall(r"L+", "".join("L" if name.startswith("LDG") else "x" for name in found))
    assert max(map(len, runs)) >= loads


def test_the_sweep_covers_both_buffers_and_refuses_ragged_lengths(sweep) -> None:
    (launch,) = sweep.launches(HEADLINE, LIMITS)
    chunks = int(launch.args[-1])
    assert 2 * 16 * chunks == HEADLINE.kv_bytes
    assert sweep.supports(Workload(2, 4, 2, 33, 64, seq_lens=(33, 2)))
    assert sweep.supports(Workload(2, 4, 2, 33, 64)) is None
