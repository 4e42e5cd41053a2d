"""Limits: what a GPU gives a launch. From its data sheet or from the device, kept in the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 2**20
"""Bytes of a mebibyte."""

MOST_GRID = (2**31 - 1, 65535, 65535)
"""Blocks of a launch in x, y and z, on every GPU of CUDA."""
MOST_BLOCK = (1024, 1024, 64)
"""Threads of a block in x, y and z."""
COPY_BYTES = 16
"""The widest copy of a lane, which needs an address that is a multiple of it; also a row of an
8 x 8 matrix of 16-bit elements."""
MOST_THREADS = 1024
"""Threads of a block, together."""
MOST_REGISTERS = 255
"""Registers of a thread, on every GPU of CUDA that still gets drivers."""
MOST_FIXED_SMEM_BYTES = 48 * 1024
"""Shared memory of a block whose size is fixed when it is compiled, on every GPU of CUDA."""
CLUSTERS_SINCE = 90
"""Clusters came with sm_90."""
SMS_OF_H200 = 132
"""Multiprocessors of the GPU that the shipped records come from: where no other number is known."""
GB_PER_S_OF_SM = 4800 / SMS_OF_H200
"""Peak memory rate of an NVIDIA H200 for each of its multiprocessors: where no other is known."""
LARGEST_CLUSTER = 8
"""Blocks of a cluster that every GPU of sm_90 and up can run."""
PART_IN_CLUSTERS = 0.91
"""Multiprocessors that clusters of more than two blocks can have, where nobody asked the GPU."""


@dataclass(frozen=True)
class Limits:
    """What a GPU gives a launch."""

    name: str  # of the data sheet, or what the device calls itself
    arch: str  # for example ``sm_90``
    num_sms: int  # streaming multiprocessors
    # clusters that run at once if each of their blocks has a multiprocessor for itself, by blocks
    # of a cluster (2, 4, 8); empty where the GPU has no clusters
    clusters: Mapping[int, int] = field(hash=False)
    smem_per_sm_bytes: int  # shared memory of a multiprocessor
    smem_per_block_bytes: int  # the most that one block may use, after opting in
    # of the multiprocessor's, what the system takes for each block
    smem_reserved_per_block_bytes: int
    registers_per_sm: int  # 32-bit registers of a multiprocessor
    max_warps_per_sm: int  # resident warps of a multiprocessor
    dram_gb_per_s: float  # peak memory rate, 10^9 bytes a second
    l2_bytes: int  # L2 cache

    @property
    def largest_cluster(self) -> int:
        """Blocks of the largest cluster; 1 where the GPU has none."""
        return max((size for size, count in self.clusters.items() if count), default=1)

    def clusters_that_fit(self, size: int) -> int:
        """Clusters of so many blocks that run at once, each block with an SM for itself."""
        return self.num_sms if size == 1 else self.clusters.get(size, 0)


def clusters_by_rule(arch: str, num_sms: int) -> dict[int, int]:
    """`Limits.clusters` of a GPU that nobody asked.

    Two blocks find a pair of multiprocessors everywhere. More must lie in one GPC, and of each GPC
    some are left over: an NVIDIA H200 runs 30 clusters of 4 and 15 of 8 on its 132.
    """
    if int(arch.removeprefix("sm_")) < CLUSTERS_SINCE:
        return {}
    some = int(PART_IN_CLUSTERS * num_sms)
    return {2: num_sms // 2, 4: some // 4, LARGEST_CLUSTER: some // LARGEST_CLUSTER}


def assumed_limits(name: str, arch: str, num_sms: int, l2_bytes: int) -> Limits:
    """What launches assumed of a GPU before records kept its Limits: an H200's, but for its SMs."""
    return Limits(
        *(name, arch, num_sms, clusters_by_rule(arch, num_sms)),
        smem_per_sm_bytes=228 * 1024,
        smem_per_block_bytes=227 * 1024,
        smem_reserved_per_block_bytes=1024,
        registers_per_sm=65536,
        max_warps_per_sm=64,
        dram_gb_per_s=GB_PER_S_OF_SM * num_sms,
        l2_bytes=l2_bytes,
    )
