"""What turns source into machine code: offline with NVRTC, live with CuPy; and what is here."""

from .compiler import Compiler, compile_cubin, find_compiler
from .cubin import Cubin, Resources
from .device import DeviceInfo, device_query
from .disassembly import disassemble
from .errors import CompileError, CompilerMissing
from .hashes import Hashes, compile_rung, kernel_hashes, launched_entries, source_name
from .live import can_run_live, compile_raw
from .magic import CellKernel, page_kernel, page_rung
from .options import DEFAULT_ARCH
from .status import CudaStatus, Link, cuda_status
from .tools import find_cxx_compiler, find_tool, tool_version

__all__ = [
    "DEFAULT_ARCH",
    "CellKernel",
    "CompileError",
    "Compiler",
    "CompilerMissing",
    "Cubin",
    "CudaStatus",
    "DeviceInfo",
    "Hashes",
    "Link",
    "Resources",
    "can_run_live",
    "compile_cubin",
    "compile_raw",
    "compile_rung",
    "cuda_status",
    "device_query",
    "disassemble",
    "find_compiler",
    "find_cxx_compiler",
    "find_tool",
    "kernel_hashes",
    "launched_entries",
    "page_kernel",
    "page_rung",
    "source_name",
    "tool_version",
]
