"""What turns source into machine code: offline with NVRTC, live with CuPy; and what is here."""

from .compiler import (
    Compiler,
    Hashes,
    compile_ahead,
    compile_cubin,
    compile_rung,
    find_compiler,
    kernel_hashes,
    launched_entries,
    shipped_hash,
    source_name,
)
from .cubin import Cubin, Resources
from .device import DeviceInfo, device_query
from .errors import CompileError, CompilerMissing, DisassemblerMissing
from .live import can_launch_here, compile_raw
from .options import DEFAULT_ARCH
from .sass import disassemble
from .status import CudaStatus, Prerequisite, cuda_status
from .tools import find_cxx_compiler, find_tool, tool_version
