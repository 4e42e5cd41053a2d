"""How many clusters a GPU runs at once, asked of its driver in a process of its own.

    python -m labtools.toolchain.clusters ORDINAL

The question needs a kernel that is loaded, and so a CUDA context, which the process that compiles
and starts others never has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from typing import Any

from labtools.problem import Limits
from labtools.problem.limits import GB_PER_S_OF_SM, clusters_by_rule

from .compiler import compile_cubin
from .device import DeviceInfo, call_driver, device_query

CLUSTER_SIZES = (2, 4, 8)
"""Eight blocks is the most that every GPU of compute capability 9.0 and up can run."""
_SOURCE = """extern "C" __global__ void alone(int* out) {
  extern __shared__ int space[];
  if (out) *out = space[threadIdx.x];
}
"""
_TIME_LIMIT_S = 60.0


@lru_cache(maxsize=8)
def query_clusters(ordinal: int = 0) -> dict[int, int] | None:
    """Clusters, by their blocks, that run at once where a block takes a whole multiprocessor.

    By `cuOccupancyMaxActiveClusters`. Empty where the GPU has none (before sm_90); None where the
    driver cannot be asked.
    """
    device = device_query(ordinal)
    if device is None:
        return None
    if device.compute_capability < (9, 0):
        return {}
    command = [sys.executable, "-m", __name__, str(ordinal)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=True
        )
        return {int(size): int(count) for size, count in json.loads(done.stdout).items()}
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError):
        return None


def own_limits(device: DeviceInfo) -> Limits:
    """What this machine's GPU says that it gives a launch, without a data sheet.

    Where the driver cannot be asked, clusters are those of `clusters_by_rule`.
    """
    clusters = query_clusters()
    if clusters is None:
        clusters = clusters_by_rule(device.arch, device.sm_count)
    return Limits(
        *(device.name, device.arch, device.sm_count, clusters),
        smem_per_sm_bytes=device.smem_per_sm_bytes,
        smem_per_block_bytes=device.smem_per_block_optin_bytes,
        smem_reserved_per_block_bytes=device.smem_reserved_per_block_bytes,
        registers_per_sm=device.registers_per_sm,
        max_warps_per_sm=device.max_warps_per_sm,
        dram_gb_per_s=device.dram_gb_per_s or GB_PER_S_OF_SM * device.sm_count,
        l2_bytes=device.l2_bytes,
    )


def ask_driver(ordinal: int) -> dict[int, int]:
    """What `query_clusters` gives, asked in this process.

    Raises RuntimeError: the driver refuses.
    """
    from cuda.bindings import driver

    device = device_query(ordinal)
    if device is None:
        raise RuntimeError("there is no GPU")
    smem_bytes = device.smem_per_block_optin_bytes
    image = compile_cubin(_SOURCE, device.arch, name="alone.cu").image
    handle = call_driver(driver.cuDeviceGet, ordinal)
    context = call_driver(driver.cuDevicePrimaryCtxRetain, handle)
    try:
        call_driver(driver.cuCtxSetCurrent, context)
        module = call_driver(driver.cuModuleLoadData, image)
        function = call_driver(driver.cuModuleGetFunction, module, b"alone")
        dynamic = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call_driver(driver.cuFuncSetAttribute, function, dynamic, smem_bytes)
        found = {}
        for size in CLUSTER_SIZES:
            config = _config(driver, size, device.sm_count, smem_bytes)
            found[size] = int(call_driver(driver.cuOccupancyMaxActiveClusters, function, config))
        return found
    finally:
        call_driver(driver.cuDevicePrimaryCtxRelease, handle)


def _config(driver: Any, size: int, sm_count: int, smem_bytes: int) -> Any:
    """A launch of more clusters of so many blocks than there are multiprocessors."""
    cluster = driver.CUlaunchAttribute()
    cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    cluster.value.clusterDim.x = size
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = size * sm_count, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
    config.sharedMemBytes = smem_bytes
    config.attrs, config.numAttrs = [cluster], 1
    return config


if __name__ == "__main__":
    print(json.dumps(ask_driver(int(sys.argv[1]))))
