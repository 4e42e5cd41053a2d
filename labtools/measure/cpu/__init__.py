"""The CPU runner: the same kernel source, on a machine without a GPU; right or wrong, and why."""

from .build import CpuRunnerMissing, build_kernel, find_cpu_compiler, find_cuda_headers
from .faults import CpuFault
from .report import FAULT_KINDS
from .runner import ORDERS, CpuRun, build_for_cpu, run_on_cpu
from .trips import CpuTripCounts
