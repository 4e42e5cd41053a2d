"""The check on the GPU, as it runs in the child: inputs, red zones, poisoned output, oracle."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from labtools.problem import (
    Inputs,
    Scheme,
    Workload,
    attention_oracle,
    compare_output,
    dequantise_inputs,
    make_inputs,
    make_page_table,
    poisoned,
)

from .live_device import (
    RED_BYTE,
    BufferSet,
    LiveDevice,
    RedZoned,
    bind_launches,
    buffer_shapes,
    host_view,
    read_pair,
)
from .live_faults import explain_cuda_error, looks_like_cuda
from .live_job import scheme_from_json, workspaces_of
from .live_plan import pairs_affordable, sample_pairs
from .live_watch import Watchdog

HOST_ELEMENTS = 2**24
"""Up to this many elements of K and V the inputs are drawn on the CPU, with every bit checked."""
ORACLE_ROWS = 2**21
"""Up to this many (query head, key) pairs the oracle computes every head; beyond, a sample."""


def drawn_on_host(workload: Workload) -> bool:
    """Whether the inputs come from `make_inputs`; the device draws only large normal ones."""
    elements = workload.kv_bytes // workload.element_bytes
    return workload.distribution != "normal" or elements <= HOST_ELEMENTS


def check_case(
    device: LiveDevice, case: Mapping[str, Any], fill_cubin: str, watchdog: Watchdog
) -> dict[str, Any]:
    """Run one rung on one workload and compare; a JSON dict, with ``fatal`` if CUDA is dead."""
    started = time.monotonic()
    workload = Workload.from_dict(case["workload"])
    result: dict[str, Any] = {"workload": case["workload"], "ok": False, "faults": []}
    try:
        out, comparison, faults = _run_case(device, case, workload, fill_cubin, watchdog)
        result["comparison"] = {**asdict(comparison)}
        result["faults"] = faults
        result["ok"] = comparison.ok and not faults
        if case.get("out_path"):
            np.save(Path(case["out_path"]), out.view(f"u{out.dtype.itemsize}"))
    except Exception as error:
        if not looks_like_cuda(error):
            raise
        fault = explain_cuda_error(str(error))
        result["faults"].append({"kind": fault.kind, "message": fault.message})
        result["fatal"] = fault.fatal
    result["seconds"] = time.monotonic() - started
    return result


def _run_case(
    device: LiveDevice,
    case: Mapping[str, Any],
    workload: Workload,
    fill_cubin: str,
    watchdog: Watchdog,
) -> tuple[np.ndarray, Any, list[dict[str, str]]]:
    zones = {
        name: RedZoned(device, shape, dtype)
        for name, (shape, dtype) in buffer_shapes(workload).items()
    }
    buffers = BufferSet(**{name: zone.array for name, zone in zones.items()})
    scheme = scheme_from_json(case["scheme"])
    host = make_inputs(workload) if drawn_on_host(workload) else None
    if host is not None:
        for name, array in host.buffers().items():
            device.upload(zones[name].array, array)
        expected = _expect_on_host(host, scheme)
    else:
        draw_on_device(device, fill_cubin, buffers, workload, workload.seed)
        expected = expect_on_device(
            *(device, buffers, workload),
            sample_pairs(workload, 16, np.random.default_rng(1)),
            scheme,
        )
    for name, one in workspaces_of(case["launches"]).items():
        zones[name] = RedZoned(device, one["shape"], one["dtype"])
        device.set_bytes(zones[name].array, RED_BYTE)
    device.upload(buffers.out, poisoned(buffers.out.shape, workload.dtype))
    device.synchronize()
    named = {name: zone.array for name, zone in zones.items()}
    with watchdog.step(f"running on {workload}", case["time_limit_s"]):
        bind_launches(device, case["cubin"], case["launches"], named)()
        device.synchronize()
    out = host_view(device.download(buffers.out), workload.dtype)
    comparison = compare_output(out, expected, case["tolerance"])
    faults = []
    for name, zone in zones.items():
        damage = zone.damage()
        if damage:
            message = f"the kernel wrote outside the buffer {name!r}: {damage}"
            faults.append({"kind": "out_of_bounds", "message": message})
    if host is not None:
        faults += _changed_inputs(device, host, zones)
    return out, comparison, faults


def _changed_inputs(
    device: LiveDevice, host: Inputs, zones: Mapping[str, RedZoned]
) -> list[dict[str, str]]:
    faults = []
    for name, array in host.buffers().items():
        now = device.download(zones[name].array)
        if now.tobytes() != np.ascontiguousarray(array).tobytes():
            message = f"the kernel wrote into its input {name!r}"
            faults.append({"kind": "out_of_bounds", "message": message})
    return faults


def _expect_on_host(inputs: Inputs, scheme: Scheme | None) -> np.ndarray:
    workload = inputs.workload
    if scheme is not None:
        inputs = dequantise_inputs(inputs, scheme)
    if workload.kv_row_visits <= ORACLE_ROWS:
        return attention_oracle(inputs)[0]
    rng = np.random.default_rng([workload.seed, 1])
    return attention_oracle(inputs, sample_pairs(workload, 16, rng))[0]


def draw_on_device(
    device: LiveDevice, fill_cubin: str, buffers: BufferSet, workload: Workload, seed: int
) -> None:
    """Fill q, k, v with normal numbers, seq_lens with the lengths and the table with the pages.

    Rows past a length hold NaN, and so do the pages of nobody. The table is the workload's own,
    whatever the seed: all layers of a model share one.
    """
    device.upload(buffers.seq_lens, workload.lengths)
    rows = buffers.seq_lens
    if workload.is_paged:
        table = make_page_table(workload)
        device.upload(buffers.page_table, table)
        rows = device.empty((workload.num_pages,), np.int32)
        device.upload(rows, _rows_of_pages(workload, table))
    device.fill_normal(fill_cubin, buffers.q, 3 * seed)
    for index, array in enumerate((buffers.k, buffers.v), start=1):
        device.fill_normal(
            fill_cubin,
            array,
            3 * seed + index,
            heads=workload.num_kv_heads,
            seq_lens=rows,
        )


def _rows_of_pages(workload: Workload, table: np.ndarray) -> np.ndarray:
    """How many rows of each page hold a token, int32 ``[num_pages]``."""
    rows = np.zeros(workload.num_pages, np.int32)
    for sequence, length in enumerate(int(n) for n in workload.lengths):
        used = -(-length // workload.page_size)
        rows[table[sequence, :used]] = workload.page_size
        rows[table[sequence, used - 1]] = length - (used - 1) * workload.page_size
    return rows


def expect_on_device(
    device: LiveDevice,
    buffers: BufferSet,
    workload: Workload,
    pairs: list[tuple[int, int]],
    scheme: Scheme | None = None,
) -> np.ndarray:
    """The oracle's output for some pairs, float64 ``[B, Hq, D]``; NaN for the others.

    With a scheme, of what K and V are after they were stored in it.
    """
    expected = np.full((workload.batch, workload.num_qo_heads, workload.head_dim), np.nan)
    for pair in pairs[: max(2, pairs_affordable(workload, most=len(pairs)))]:
        inputs = read_pair(device, buffers, workload, pair)
        if scheme is not None:
            inputs = dequantise_inputs(inputs, scheme)
        expected[pair] = attention_oracle(inputs)[0][0, 0]
    return expected
