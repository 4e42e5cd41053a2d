"""Which links of the chain from source to measurement are here, and what works without them."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from .compiler import find_compiler
from .device import DeviceInfo, device_query
from .options import cuda_include_dir
from .tools import (
    NSIGHT_PYTHON_NEEDS_NCU,
    find_cxx_compiler,
    find_tool,
    tool_version,
)

_WITHOUT_GPU = (
    "compiling for any GPU, predictions, the CPU runner and the recorded measurements all work "
    "without a GPU"
)
_CU_INIT_REASONS = {
    3: "the driver was not initialised",
    34: "a stub library stands in for the driver",
    100: "the driver finds no GPU (none is there, none is passed into this container, or "
    "CUDA_VISIBLE_DEVICES hides it)",
    101: "CUDA_VISIBLE_DEVICES names a GPU that does not exist",
    802: "the GPU's fabric is not ready yet (fabric manager)",
    803: "the driver library and the kernel module have different versions",
    804: "the forward-compatibility library does not serve this GPU",
    999: "the driver reports an unknown error, which a reboot usually clears",
}


@dataclass(frozen=True)
class Findings:
    """Bare facts about this machine, before anything is concluded from them."""

    driver_library: bool = False
    cu_init: int | None = None
    driver_cuda: tuple[int, int] | None = None
    device: DeviceInfo | None = None
    cupy_version: str | None = None
    cupy_cuda_major: int | None = None
    cupy_error: str | None = None
    torch_version: str | None = None
    torch_cuda_major: int | None = None
    compiler: str | None = None
    compiler_error: str | None = None
    headers: Path | None = None
    nvdisasm: Path | None = None
    ncu: Path | None = None
    ncu_version: tuple[int, ...] | None = None
    nsight_python: str | None = None
    sanitizer: Path | None = None
    cxx: Path | None = None


@dataclass(frozen=True)
class Link:
    """One link.

    Attributes:
        name: short name.
        ok: it is here and usable.
        found: what was found.
        why: what is wrong, or an empty string.
        still_works: what works all the same, or an empty string.
        fix: what to do about it, or an empty string.
    """

    name: str
    ok: bool
    found: str
    why: str = ""
    still_works: str = ""
    fix: str = ""


@dataclass(frozen=True)
class CudaStatus:
    """All links, in the order from source to measurement."""

    links: tuple[Link, ...]
    device: DeviceInfo | None

    def __getitem__(self, name: str) -> Link:
        return next(link for link in self.links if link.name == name)

    @property
    def missing(self) -> tuple[Link, ...]:
        """The links that are not usable."""
        return tuple(link for link in self.links if not link.ok)

    @property
    def can_compile(self) -> bool:
        """Kernels can be compiled, with or without a GPU."""
        return self["nvrtc"].ok and self["headers"].ok

    @property
    def can_run_live(self) -> bool:
        """Kernels can run on a GPU here."""
        return all(self[name].ok for name in ("driver", "gpu", "cupy")) and self["headers"].ok

    def why_not_live(self) -> LabError:
        """The reason why nothing can run on a GPU here, as an error to raise."""
        for name in ("driver", "gpu", "cupy", "headers"):
            link = self[name]
            if not link.ok:
                why = f"{link.why}. {link.fix}".rstrip(". ") + "."
                return LabError("Nothing can run on a GPU here.", why, link.still_works)
        return LabError(
            "Nothing can run on a GPU here.",
            "driver, GPU and CuPy are all here, but CuPy does not reach the GPU; "
            "`import cupy; cupy.cuda.runtime.getDeviceCount()` shows its own message",
            _WITHOUT_GPU,
        )

    def to_dict(self) -> dict[str, Any]:
        """All links and the device, as JSON can hold them."""
        return {
            "links": [dataclasses.asdict(link) for link in self.links],
            "device": self.device.to_dict() if self.device else None,
            "can_compile": self.can_compile,
            "can_run_live": self.can_run_live,
        }

    def __str__(self) -> str:
        lines = []
        for link in self.links:
            lines.append(f"{'ok     ' if link.ok else 'missing'}  {link.name}: {link.found}")
            for label, text in (
                ("why", link.why),
                ("still works", link.still_works),
                ("to change it", link.fix),
            ):
                if text:
                    lines.append(f"         {label}: {text}")
        return "\n".join(lines)


def cuda_status() -> CudaStatus:
    """Say of each link whether it is here, why not, and what still works."""
    return explain(gather())


def gather() -> Findings:
    """Collect the facts. Makes no CUDA context and imports neither torch nor CuPy."""
    library, result, cuda = _probe_driver()
    cupy_version, cupy_major, cupy_error = _probe_cupy()
    torch_version, torch_major = _probe_torch()
    try:
        compiler, compiler_error = str(find_compiler()), None
    except LabError as error:
        compiler, compiler_error = None, error.why
    ncu = find_tool("ncu")
    return Findings(
        driver_library=library,
        cu_init=result,
        driver_cuda=cuda,
        device=device_query() if result == 0 else None,
        cupy_version=cupy_version,
        cupy_cuda_major=cupy_major,
        cupy_error=cupy_error,
        torch_version=torch_version,
        torch_cuda_major=torch_major,
        compiler=compiler,
        compiler_error=compiler_error,
        headers=cuda_include_dir(),
        nvdisasm=find_tool("nvdisasm"),
        ncu=ncu,
        ncu_version=tool_version(ncu) if ncu else None,
        nsight_python=_version_of("nsight-python"),
        sanitizer=find_tool("compute-sanitizer"),
        cxx=find_cxx_compiler(),
    )


def explain(facts: Findings) -> CudaStatus:
    """Conclude from facts. Pure, so that every missing link can be tested on any machine."""
    links = (
        _explain_compiler(facts),
        _explain_headers(facts),
        _explain_nvdisasm(facts),
        _explain_driver(facts),
        _explain_gpu(facts),
        _explain_cupy(facts),
        _explain_torch(facts),
        _explain_ncu(facts),
        _explain_sanitizer(facts),
        _explain_cxx(facts),
    )
    return CudaStatus(links, facts.device)


def _explain_compiler(facts: Findings) -> Link:
    if facts.compiler:
        return Link("nvrtc", True, facts.compiler)
    return Link(
        "nvrtc",
        False,
        "no CUDA compiler",
        facts.compiler_error or "NVRTC was not found",
        "records, pages and predictions from data sheets; the CPU runner where there is a C++ "
        "compiler",
        "install cuda-core, nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-crt",
    )


def _explain_headers(facts: Findings) -> Link:
    if facts.headers:
        return Link("headers", True, str(facts.headers))
    return Link(
        "headers",
        False,
        "no CUDA headers",
        "cuda_fp16.h was not found in the CUDA packages, in CUDA_PATH or in /usr/local/cuda",
        "kernels that include no CUDA header",
        "install nvidia-cuda-runtime and nvidia-cuda-crt, or set CUDA_PATH to a toolkit",
    )


def _explain_nvdisasm(facts: Findings) -> Link:
    if facts.nvdisasm:
        return Link("nvdisasm", True, str(facts.nvdisasm))
    return Link(
        "nvdisasm",
        False,
        "no disassembler",
        "nvdisasm is in no CUDA package, not on the path and in no toolkit",
        "compiling, with registers, shared memory and spills",
        "install nvidia-cuda-nvdisasm",
    )


def _explain_driver(facts: Findings) -> Link:
    if not facts.driver_library:
        return Link(
            "driver",
            False,
            "no NVIDIA driver",
            "the library libcuda.so.1 is not on this machine",
            _WITHOUT_GPU,
            "install NVIDIA's display driver; the CUDA toolkit is not needed",
        )
    cuda = ".".join(map(str, facts.driver_cuda)) if facts.driver_cuda else "unknown"
    return Link("driver", True, f"an NVIDIA driver that serves CUDA {cuda}")


def _explain_gpu(facts: Findings) -> Link:
    if facts.device is not None:
        info = facts.device
        return Link(
            "gpu", True, f"{info.name}, {info.sm_count} SMs, {info.arch}, {info.driver_version}"
        )
    if not facts.driver_library:
        why = "there is no driver, so no GPU can be asked"
    elif facts.cu_init in (0, None):
        why = "the driver answers, but no package that could ask it is installed"
    else:
        why = _CU_INIT_REASONS.get(facts.cu_init, f"the driver returned error {facts.cu_init}")
    fix = "install cuda-core or CuPy" if facts.cu_init == 0 else "run nvidia-smi to see its view"
    return Link("gpu", False, "no usable GPU", why, _WITHOUT_GPU, fix)


def _explain_cupy(facts: Findings) -> Link:
    driver_major = facts.driver_cuda[0] if facts.driver_cuda else None
    suggestion = f"install cupy-cuda{driver_major or 13}x"
    if facts.cupy_version is None:
        return Link(
            "cupy",
            False,
            "no CuPy",
            "the package is not installed",
            _WITHOUT_GPU,
            suggestion + " (only a machine with a GPU needs it)",
        )
    found = f"CuPy {facts.cupy_version}"
    if facts.cupy_cuda_major:
        found += f" for CUDA {facts.cupy_cuda_major}"
    if facts.cupy_error:
        return Link("cupy", False, found, facts.cupy_error, _WITHOUT_GPU, suggestion)
    if driver_major and facts.cupy_cuda_major and facts.cupy_cuda_major > driver_major:
        return Link(
            "cupy",
            False,
            found,
            f"the driver serves CUDA {driver_major}, which is older than the CUDA "
            f"{facts.cupy_cuda_major} that this CuPy was built for",
            _WITHOUT_GPU,
            f"install cupy-cuda{driver_major}x instead, or a newer driver",
        )
    if (
        facts.device is not None
        and facts.torch_cuda_major
        and facts.cupy_cuda_major
        and facts.torch_cuda_major != facts.cupy_cuda_major
    ):
        return Link(
            "cupy",
            False,
            found,
            f"torch here is built for CUDA {facts.torch_cuda_major}; two CUDA majors in one "
            "process load two sets of libraries",
            "each alone; running kernels beside torch's baselines does not",
            f"install cupy-cuda{facts.torch_cuda_major}x instead",
        )
    return Link("cupy", True, found)


def _explain_torch(facts: Findings) -> Link:
    if facts.torch_version is None:
        return Link(
            "torch",
            False,
            "no torch",
            "the package is not installed",
            "everything but the torch page and the library baselines",
            "install torch",
        )
    if facts.torch_cuda_major is None and facts.device is not None:
        return Link(
            "torch",
            False,
            f"torch {facts.torch_version} without CUDA",
            "this build of torch runs on the CPU alone",
            "kernels run and are checked; the live baselines (sdpa and others) do not",
            "install the CUDA build of torch",
        )
    kind = f"for CUDA {facts.torch_cuda_major}" if facts.torch_cuda_major else "for the CPU"
    return Link("torch", True, f"torch {facts.torch_version} {kind}")


def _explain_ncu(facts: Findings) -> Link:
    if facts.ncu is None:
        return Link(
            "ncu",
            False,
            "no Nsight Compute",
            "ncu is neither on the path nor in a CUDA toolkit",
            "timing, checking and the recorded counters",
            "install Nsight Compute (only a machine with a GPU needs it)",
        )
    version = ".".join(map(str, facts.ncu_version)) if facts.ncu_version else "unknown"
    found = f"Nsight Compute {version} at {facts.ncu}"
    if facts.nsight_python is None:
        return Link("ncu", True, found + "; profiled in a child process")
    if facts.ncu_version is None or facts.ncu_version[:3] < NSIGHT_PYTHON_NEEDS_NCU:
        needed = ".".join(map(str, NSIGHT_PYTHON_NEEDS_NCU))
        return Link(
            "ncu",
            True,
            found,
            f"nsight-python {facts.nsight_python} needs Nsight Compute {needed} or later",
            "profiling in a child process under ncu, which gives the same counters",
            "install a newer Nsight Compute to profile from inside a notebook",
        )
    return Link("ncu", True, f"{found}, new enough for nsight-python {facts.nsight_python}")


def _explain_sanitizer(facts: Findings) -> Link:
    if facts.sanitizer:
        return Link("compute-sanitizer", True, str(facts.sanitizer))
    return Link(
        "compute-sanitizer",
        False,
        "no compute-sanitizer",
        "it is neither on the path nor in a CUDA toolkit",
        "the CPU runner, which names faults with file and line, and the recorded verdicts",
        "install the CUDA toolkit (only a machine with a GPU needs it)",
    )


def _explain_cxx(facts: Findings) -> Link:
    if facts.cxx:
        return Link("c++", True, str(facts.cxx))
    return Link(
        "c++",
        False,
        "no C++ compiler",
        "neither $CXX nor c++, g++ or clang++ was found",
        "compiling for GPUs, predictions, records and the live measurements",
        "install g++ (Debian, Ubuntu) or the command line tools (macOS) for the CPU runner",
    )


# --------------------------------------------------------------------------------- probes


def _probe_driver() -> tuple[bool, int | None, tuple[int, int] | None]:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        version = ctypes.c_int()
        cuda = None
        if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
            cuda = (version.value // 1000, version.value % 1000 // 10)
        return True, int(library.cuInit(0)), cuda
    return False, None, None


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _probe_cupy() -> tuple[str | None, int | None, str | None]:
    found = []
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if re.fullmatch(r"cupy(-cuda\d+x)?", name):
            found.append((name, distribution.version))
    if not found:
        return None, None, None
    error = None
    if len({name for name, _ in found}) > 1:
        names = ", ".join(sorted({name for name, _ in found}))
        error = f"several CuPy packages overwrite one another: {names}; uninstall all but one"
    elif importlib.util.find_spec("cupy") is None:
        error = "the package is listed but its module cannot be found"
    name, version = found[0]
    major = re.search(r"cuda(\d+)x", name)
    return version, int(major[1]) if major else None, error


def _probe_torch() -> tuple[str | None, int | None]:
    """Version and CUDA major without importing torch, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None, None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return _version_of("torch"), None
    version = re.search(r"^__version__ = ['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda(?:: [^=]+)? = ['\"](\d+)", text, re.MULTILINE)
    return version[1] if version else _version_of("torch"), int(cuda[1]) if cuda else None
