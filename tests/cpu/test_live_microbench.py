"""The microbenchmarks' code: what the compiler made of it, for every architecture."""

from __future__ import annotations

import re

import pytest
from devices import LIMITS

from labtools.problem import HEADLINE, Workload, kernels_dir, load_rung
from labtools.toolchain import compile_cubin, compile_rung, disassemble

FOLDER = kernels_dir() / "microbench"


@pytest.fixture(scope="module")
def sweep():
    return load_rung(FOLDER / "read_sweep.py")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_120"])
def test_the_kernels_compile_without_spills(sweep, arch) -> None:
    read = compile_rung(sweep, HEADLINE, LIMITS, {"loads": 8, "threads": 512}, arch)
    fill = compile_cubin((FOLDER / "fill.cu").read_text(), arch, name="fill.cu")
    for cubin, entry in ((read, "read_sweep"), (fill, "fill_normal")):
        resources = cubin.resources_of(entry)
        assert resources.local_bytes == 0
        assert resources.spill_store_bytes == 0


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
