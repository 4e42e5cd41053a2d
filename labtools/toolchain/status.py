"""Which links of the chain from source to measurement are here, and what works without them."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problem import LabError

from .compiler import find_compiler
from .device import DeviceInfo, device_query
from .options import cuda_include_dir
from .tools import NSIGHT_PYTHON_NEEDS_NCU, find_cxx_compiler, find_tool, tool_version

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_WITHOUT_GPU: str = _WORDS["without_gpu"]


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
class Prerequisite:
    """One link of the chain from source to measurement."""

    name: str
    ok: bool  # it is here and usable
    found: str
    why: str = ""  # what is wrong
    still_works: str = ""
    fix: str = ""


def nothing_runs(why: str, still_works: str = "") -> LabError:
    """What to raise where a GPU is wanted and none can be used."""
    return LabError("Nothing can run on a GPU here.", why, still_works or _WITHOUT_GPU)


@dataclass(frozen=True)
class CudaStatus:
    """All links, in the order from source to measurement."""

    links: tuple[Prerequisite, ...]
    device: DeviceInfo | None

    def __getitem__(self, name: str) -> Prerequisite:
        return next(link for link in self.links if link.name == name)

    @property
    def missing(self) -> tuple[Prerequisite, ...]:
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
                return nothing_runs(why, link.still_works)
        return nothing_runs(_WORDS["cupy_is_mute"])

    def __str__(self) -> str:
        lines = []
        for link in self.links:
            lines.append(f"{'ok     ' if link.ok else 'missing'}  {link.name}: {link.found}")
            told = {"why": link.why, "still works": link.still_works, "to change it": link.fix}
            lines += [f"         {label}: {text}" for label, text in told.items() if text]
        return "\n".join(lines)


def cuda_status() -> CudaStatus:
    """Say of each link whether it is here, why not, and what still works."""
    return explain(gather())


def gather() -> Findings:
    """Collect the facts. Makes no CUDA context and imports neither torch nor CuPy."""
    driver = _probe_driver()
    try:
        compiler, compiler_error = str(find_compiler()), None
    except LabError as error:
        compiler, compiler_error = None, error.why
    ncu = find_tool("ncu")
    return Findings(
        **driver,
        **_probe_cupy(),
        **_probe_torch(),
        device=device_query() if driver.get("cu_init") == 0 else None,
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
        _judge("nvrtc", facts.compiler, why=facts.compiler_error),
        _judge("headers", facts.headers),
        _judge("nvdisasm", facts.nvdisasm),
        _judge("driver", _say_driver(facts)),
        _judge("gpu", _say_device(facts), **_why_no_gpu(facts)),
        _judge_cupy(facts),
        _judge_torch(facts),
        _judge_ncu(facts),
        _judge("compute-sanitizer", facts.sanitizer),
        _judge("c++", facts.cxx),
    )
    return CudaStatus(links, facts.device)


def _judge(name: str, found: object, /, **told: str | None) -> Prerequisite:
    """The link with what was found, or what ``status.toml`` says, but for the texts given."""
    if found:
        return Prerequisite(name, True, str(found))
    texts = {"still_works": _WITHOUT_GPU, **_WORDS["missing"][name]}
    texts |= {key: text for key, text in told.items() if text is not None}
    return Prerequisite(name, False, **texts)


def _say_driver(facts: Findings) -> str:
    cuda = ".".join(map(str, facts.driver_cuda)) if facts.driver_cuda else "unknown"
    return f"an NVIDIA driver that serves CUDA {cuda}" if facts.driver_library else ""


def _say_device(facts: Findings) -> str:
    info = facts.device
    if info is None:
        return ""
    return f"{info.name}, {info.sm_count} SMs, {info.arch}, {info.driver_version}"


def _why_no_gpu(facts: Findings) -> dict[str, str | None]:
    if not facts.driver_library:
        return {}
    if facts.cu_init in (0, None):
        why = "the driver answers, but no package that could ask it is installed"
        return {"why": why, "fix": "install cuda-core or CuPy" if facts.cu_init == 0 else None}
    known = _WORDS["cu_init"].get(str(facts.cu_init))
    return {"why": known or f"the driver returned error {facts.cu_init}"}


def _judge_cupy(facts: Findings) -> Prerequisite:
    driver_major = facts.driver_cuda[0] if facts.driver_cuda else None
    suggestion = f"install cupy-cuda{driver_major or 13}x"
    if facts.cupy_version is None:
        return _judge("cupy", "", fix=f"{suggestion} (only a machine with a GPU needs it)")
    major = facts.cupy_cuda_major
    found = f"CuPy {facts.cupy_version}" + (f" for CUDA {major}" if major else "")
    if facts.cupy_error:
        return _judge("cupy", "", found=found, why=facts.cupy_error, fix=suggestion)
    if driver_major and major and major > driver_major:
        why = f"the driver serves CUDA {driver_major}, which is older than the CUDA {major} that "
        why += "this CuPy was built for"
        fix = f"install cupy-cuda{driver_major}x instead, or a newer driver"
        return _judge("cupy", "", found=found, why=why, fix=fix)
    torch_major = facts.torch_cuda_major
    if facts.device is not None and torch_major and major and torch_major != major:
        why = f"torch here is built for CUDA {torch_major}; two CUDA majors in one process load "
        why += "two sets of libraries"
        still = "each alone; running kernels beside torch's baselines does not"
        fix = f"install cupy-cuda{torch_major}x instead"
        return _judge("cupy", "", found=found, why=why, still_works=still, fix=fix)
    return _judge("cupy", found)


def _judge_torch(facts: Findings) -> Prerequisite:
    if facts.torch_version is None:
        return _judge("torch", "")
    if facts.torch_cuda_major is None and facts.device is not None:
        texts = {"found": f"torch {facts.torch_version} without CUDA", **_WORDS["torch_for_cpu"]}
        return _judge("torch", "", **texts)
    kind = f"for CUDA {facts.torch_cuda_major}" if facts.torch_cuda_major else "for the CPU"
    return _judge("torch", f"torch {facts.torch_version} {kind}")


def _judge_ncu(facts: Findings) -> Prerequisite:
    if facts.ncu is None:
        return _judge("ncu", "")
    version = ".".join(map(str, facts.ncu_version)) if facts.ncu_version else "unknown"
    found = f"Nsight Compute {version} at {facts.ncu}"
    if facts.nsight_python is None:
        return _judge("ncu", f"{found}; profiled in a child process")
    if facts.ncu_version is None or facts.ncu_version[:3] < NSIGHT_PYTHON_NEEDS_NCU:
        needed = ".".join(map(str, NSIGHT_PYTHON_NEEDS_NCU))
        why = f"nsight-python {facts.nsight_python} needs Nsight Compute {needed} or later"
        return Prerequisite("ncu", True, found, why, **_WORDS["old_ncu"])
    return _judge("ncu", f"{found}, new enough for nsight-python {facts.nsight_python}")


# --------------------------------------------------------------------------------- probes


def _probe_driver() -> dict[str, Any]:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        version = ctypes.c_int()
        cuda = None
        if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
            cuda = (version.value // 1000, version.value % 1000 // 10)
        return {"driver_library": True, "cu_init": int(library.cuInit(0)), "driver_cuda": cuda}
    return {}


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


_CUPY_MAJORS = range(10, 30)
"""Of CUDA, of which there may be a package of CuPy."""


def _probe_cupy() -> dict[str, Any]:
    # Reading what every package says of itself would take a tenth of a second.
    known = ("cupy", *(f"cupy-cuda{major}x" for major in _CUPY_MAJORS))
    found = {name: version for name in known if (version := _version_of(name)) is not None}
    if not found:
        return {}
    error = None
    if len(found) > 1:
        names = ", ".join(sorted(found))
        error = f"several CuPy packages overwrite one another: {names}; uninstall all but one"
    elif importlib.util.find_spec("cupy") is None:
        error = "the package is listed but its module cannot be found"
    name, version = next(iter(found.items()))
    major = re.search(r"cuda(\d+)x", name)
    number = int(major[1]) if major else None
    return {"cupy_version": version, "cupy_cuda_major": number, "cupy_error": error}


def _probe_torch() -> dict[str, Any]:
    """Version and CUDA major without importing torch, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return {}
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        text = ""
    version = re.search(r"^__version__ = ['\"]([^'\"]+)", text, re.MULTILINE)
    cuda = re.search(r"^cuda(?:: [^=]+)? = ['\"](\d+)", text, re.MULTILINE)
    number = int(cuda[1]) if cuda else None
    return {
        "torch_version": version[1] if version else _version_of("torch"),
        "torch_cuda_major": number,
    }
