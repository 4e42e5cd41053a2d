"""What a measuring child is told: compiled kernels, launches and workloads, as JSON.

The parent compiles and works out the launches, so a rung that exists only in a notebook's cells,
with a launch function that no other process could import, is as good as a shipped one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labtools.problem import (
    Baseline,
    LabError,
    Launch,
    Rung,
    Scheme,
    TensorScheme,
    Workload,
    element_dtype,
    kernels_dir,
    load_rung,
)
from labtools.toolchain import (
    CompilerMissing,
    Cubin,
    DeviceInfo,
    Hashes,
    compile_cubin,
    compile_rung,
    cuda_status,
    device_query,
    kernel_hashes,
)

CEILING = "read_sweep"
MICROBENCH = "microbench"


def require_device() -> DeviceInfo:
    """The GPU of this machine.

    Raises:
        LabError: nothing can run on a GPU here, and why.
    """
    status = cuda_status()
    if not status.can_run_live:
        raise status.why_not_live()
    device = device_query()
    if device is None:
        raise LabError(
            "Nothing can run on a GPU here.",
            "the GPU does not answer",
            "compiling, forecasts, records and the CPU runner",
        )
    return device


def cache_dir() -> Path:
    """Where compiled kernels are kept, by the hash of their bytes."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "labtools" / "cubins"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that may not be written
        folder = Path(tempfile.gettempdir()) / "labtools-cubins"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def store_cubin(cubin: Cubin) -> Path:
    """Write a cubin into the cache; equal code has one file."""
    path = cache_dir() / f"{hashlib.sha256(cubin.image).hexdigest()}.cubin"
    if not path.is_file() or path.stat().st_size != len(cubin.image):
        handle, partial = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(cubin.image)
        os.replace(partial, path)
    return path


def compile_for_live(
    rung: Rung, workload: Workload, knobs: Mapping[str, int] | None, arch: str
) -> Cubin:
    """Compile with CuPy's NVRTC, as `cupy.RawKernel` does, else with the one that is there.

    Raises:
        CompileError: the source does not compile; names the line.
    """
    try:
        return compile_rung(rung, workload, knobs, arch, "cupy")
    except CompilerMissing:
        return compile_rung(rung, workload, knobs, arch)


def hashes_for_live(
    rung: Rung, workload: Workload, knobs: Mapping[str, int] | None, arch: str
) -> Hashes:
    """The hashes of what `compile_for_live` gives."""
    hashes = kernel_hashes(rung, workload, knobs, arch, "cupy")
    return hashes if hashes.sass_hash else kernel_hashes(rung, workload, knobs, arch)


def fill_cubin(arch: str) -> Path:
    """The compiled kernel that fills buffers with random numbers."""
    source = kernels_dir() / MICROBENCH / "fill.cu"
    try:
        cubin = compile_cubin(source.read_text(), arch, name=source.name, compiler="cupy")
    except CompilerMissing:
        cubin = compile_cubin(source.read_text(), arch, name=source.name)
    return store_cubin(cubin)


def launch_to_json(launch: Launch) -> dict[str, Any]:
    """One launch as JSON; scalars carry their type."""
    return {
        "entry": launch.entry,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "smem_bytes": launch.smem_bytes,
        "args": [
            arg if isinstance(arg, str) else {"dtype": str(arg.dtype), "value": arg.item()}
            for arg in launch.args
        ],
        "workspace": [
            {
                "name": one.name,
                "shape": list(one.shape),
                "dtype": one.dtype,
                "in_call": one.in_call,
            }
            for one in launch.workspace
        ],
        "prepare": launch.prepare,
    }


def scalar_from_json(arg: Mapping[str, Any]) -> np.generic:
    """The numpy scalar that `launch_to_json` wrote."""
    return element_dtype(arg["dtype"]).type(arg["value"])  # type: ignore[no-any-return]


def scheme_to_json(scheme: Scheme | None) -> dict[str, Any] | None:
    """How a rung stores K and V, as JSON."""
    return None if scheme is None else asdict(scheme)


def scheme_from_json(data: Mapping[str, Any] | None) -> Scheme | None:
    """The scheme that `scheme_to_json` wrote."""
    if data is None:
        return None
    return Scheme(data["name"], TensorScheme(**data["k"]), TensorScheme(**data["v"]))


def split_launches(
    launches: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The launches of the preparation and those of every call."""
    return (
        [launch for launch in launches if launch["prepare"]],
        [launch for launch in launches if not launch["prepare"]],
    )


def prepared_names(launches: Sequence[Mapping[str, Any]]) -> list[str]:
    """The workspaces that the preparation names: each set of buffers has its own."""
    spaces = workspaces_of(launches)
    named = [arg for launch in split_launches(launches)[0] for arg in launch["args"]]
    return [name for name in spaces if name in named]


def workspaces_of(launches: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every scratch buffer of the launches by name.

    Raises:
        LabError: two launches want one name with different shapes.
    """
    found: dict[str, dict[str, Any]] = {}
    for launch in launches:
        for one in launch["workspace"]:
            if found.setdefault(one["name"], one) != one:
                raise LabError(
                    f"Two launches disagree about the workspace {one['name']!r}.",
                    f"one says {found[one['name']]}, another {one}",
                    "give both the same shape and type",
                )
    return found


def call_read_bytes(job: Mapping[str, Any], workload: Workload) -> int:
    """Bytes that one call of a candidate finds in its set of buffers.

    A rung whose preparation wrote a smaller cache reads that and not K and V; a baseline keeps K
    and V in as many bits as it says.
    """
    if job["kind"] == "baseline":
        smaller = workload.kv_bytes * (16 - int(job["kv_bits"])) // 16
        return workload.minimal_bytes - smaller
    prepared = set(prepared_names(job["launches"]))
    timed = split_launches(job["launches"])[1]
    read = {arg for launch in timed for arg in launch["args"] if isinstance(arg, str)}
    half = workload.kv_bytes // 2
    bytes_read = workload.minimal_bytes - half * (("k" not in read) + ("v" not in read))
    for name, one in workspaces_of(job["launches"]).items():
        if name in prepared & read:
            bytes_read += int(np.prod(one["shape"])) * element_dtype(one["dtype"]).itemsize
    return bytes_read


@dataclass(frozen=True)
class Candidate:
    """Something to time: a rung with its knobs, a baseline, or the read ceiling.

    Args:
        target: the Rung or the Baseline.
        kind: ``rung``, ``baseline`` or ``ceiling``.
        knobs: of a rung; resolved, every knob named.
        timing: ``graph`` replays a CUDA graph, as everything is timed that can be. ``stream``
            launches every call by itself, which costs what a program pays that does so; a call
            that allocates memory is timed in this way whatever stands here.
        outside: move every workspace that the launch allocates in each call out of it.
    """

    target: Rung | Baseline
    kind: Literal["rung", "baseline", "ceiling"]
    knobs: Mapping[str, int] = field(default_factory=dict)
    timing: Literal["graph", "stream"] = "graph"
    outside: bool = False

    @property
    def id(self) -> str:
        """``r03_one_warp``, ``baseline:sdpa``, ``ceiling:read_sweep``."""
        return self.target.id if self.kind == "rung" else f"{self.kind}:{self.target.id}"

    @property
    def label(self) -> str:
        """The id with its knobs: what tells two candidates of one measurement apart."""
        knobs = ",".join(f"{name}={value}" for name, value in self.knobs.items())
        return " ".join(filter(None, (self.id, knobs, self.experiment)))

    @property
    def experiment(self) -> str:
        """What is done to it besides its knobs; empty for a rung as it is, timed as all are."""
        stream = "stream" if self.timing == "stream" else ""
        return "+".join(filter(None, (stream, "outside" if self.outside else "")))

    def supports(self, workload: Workload) -> str | None:
        """Why it cannot run a workload, or None."""
        return self.target.supports(workload)


def rung_candidate(
    rung: Rung | str | Path,
    knobs: Mapping[str, int] | None = None,
    *,
    timing: Literal["graph", "stream"] = "graph",
    outside: bool = False,
) -> Candidate:
    """A rung with every knob resolved; ``timing`` and ``outside`` as for `Candidate`."""
    loaded = rung if isinstance(rung, Rung) else load_rung(rung)
    return Candidate(loaded, "rung", loaded.resolve_knobs(knobs), timing, outside)


def ceiling_candidates(num_sms: int) -> list[Candidate]:
    """The read ceiling in several shapes: loads in flight, threads, blocks an SM."""
    rung = load_rung(kernels_dir() / MICROBENCH / f"{CEILING}.py")
    shapes = ((2, 256, 8), (4, 256, 4), (4, 256, 8), (8, 512, 2))
    return [
        Candidate(
            rung,
            "ceiling",
            rung.resolve_knobs({"loads": loads, "threads": threads, "blocks": per_sm * num_sms}),
        )
        for loads, threads, per_sm in shapes
    ]


def move_outside(launches: Sequence[Launch]) -> list[Launch]:
    """The launches with every workspace allocated once, before all calls."""
    return [
        replace(one, workspace=tuple(replace(space, in_call=False) for space in one.workspace))
        for one in launches
    ]


def bytes_in_call(launches: Sequence[Launch]) -> int:
    """Bytes that every call allocates and frees."""
    spaces = {space.name: space for one in launches for space in one.workspace if space.in_call}
    return sum(space.bytes for space in spaces.values())


def candidate_to_json(candidate: Candidate, workload: Workload, arch: str) -> dict[str, Any]:
    """What a child needs to time a candidate.

    Raises:
        CompileError: a rung does not compile.
        LabError: it cannot run the workload.
    """
    job: dict[str, Any] = {"label": candidate.label, "kind": candidate.kind}
    target = candidate.target
    if isinstance(target, Baseline):
        path = str(target.source or "")
        job |= {"timing": candidate.timing, "kv_bits": target.kv_bits}
        return {**job, "baseline": target.id, "path": path}
    launches = target.launches(workload, candidate.knobs)
    if candidate.outside:
        launches = move_outside(launches)
    cubin = compile_for_live(target, workload, candidate.knobs, arch)
    for launch in launches:
        cubin.resources_of(launch.entry)  # refuses a name that the code does not hold
    return {
        **job,
        "timing": "stream" if bytes_in_call(launches) else candidate.timing,
        "cubin": str(store_cubin(cubin)),
        "launches": [launch_to_json(launch) for launch in launches],
        "tolerance": target.tolerance,
        "scheme": scheme_to_json(target.scheme(workload, candidate.knobs)),
    }
