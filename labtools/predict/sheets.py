"""GPU data sheets, each number with its source, and the answers of the GPU that is here."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn

from labtools.problem import LabError, Limits
from labtools.problem.limits import GB_PER_S_OF_SM, clusters_by_rule
from labtools.problem.text import first_line, given_path, read_given
from labtools.record import slug_of_gpu
from labtools.toolchain import DeviceInfo, device_query
from labtools.toolchain.clusters import own_limits, query_clusters

_WORDS = re.compile(r"[A-Za-z0-9]+(?:[ _-][A-Za-z0-9]+)*")
DEFAULT_GPU = "h200"
"""The GPU of the shipped records: whose sheet counts where none is named and none is here."""
SHEETS = Path(__file__).with_name("gpus.toml")
_DEVICE_SOURCE = "this GPU's own answer to CUDA's device query"
_CLUSTERS_SOURCE = "cuOccupancyMaxActiveClusters on this GPU, for blocks with all of an SM"
_CLUSTERS_BY_RULE = "not measured: pairs everywhere, larger ones on 0.91 of the SMs as on an H200"
_GRANULARITY_FIELDS = ("smem_granularity_bytes", "register_granularity", "sub_partitions")


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    name: str  # short name (``rtx4090``)
    title: str  # full name
    compute_capability: tuple[int, int]  # (major, minor)
    sm_count: int  # streaming multiprocessors
    dram_gb_per_s: float | None  # peak memory rate, 10^9 bytes a second; None when unknown
    l2_bytes: int  # L2 cache
    memory_gb: float  # device memory as printed on the sheet
    boost_clock_mhz: float | None  # SM boost clock; None when no document states it
    # dense fp16 tensor-core peak with fp32 accumulation, 10^12/s, or None
    fp16_tensor_tflops: float | None
    fp8_tensor_tflops: float | None  # the same of fp8, None too where there is none
    fp32_tflops: float | None  # fp32 peak outside the tensor cores, 10^12/s, or None
    # warp_size, max_threads_per_block, max_warps_per_sm, max_blocks_per_sm: residency limits
    warp_size: int
    max_threads_per_block: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    # registers_per_sm, registers_per_block, max_registers_per_thread: 32-bit registers
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_granularity: int  # registers of a warp are given out in multiples of this
    sub_partitions: int  # parts of an SM; a warp and its registers live in one
    smem_per_sm_bytes: int  # shared memory an SM
    smem_per_block_bytes: int  # the most one block may use, after opting in
    static_smem_per_block_bytes: int  # the most a block may declare with a fixed size
    smem_reserved_per_block_bytes: int  # what the driver keeps of it for every block
    smem_granularity_bytes: int  # shared memory is given out in multiples of this
    # clusters that run at once where each block has an SM for itself, by blocks of a cluster; empty
    # where there are none
    clusters: dict[int, int]
    sources: dict[str, str] = field(repr=False)  # where each number comes from, by field
    notes: tuple[str, ...] = ()  # what to know about the numbers
    # ``data sheet``, or ``device`` where the GPU's own answers replaced it
    origin: Literal["data sheet", "device"] = "data sheet"
    differences: tuple[str, ...] = ()  # where the GPU's answers differ from the sheet

    @property
    def arch(self) -> str:
        """Architecture to compile for, for example ``sm_89``."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def max_threads_per_sm(self) -> int:
        """Resident threads an SM."""
        return self.max_warps_per_sm * self.warp_size

    @property
    def limits(self) -> Limits:
        """What this GPU gives a launch."""
        return Limits(
            *(self.name, self.arch, self.sm_count, self.clusters),
            smem_per_sm_bytes=self.smem_per_sm_bytes,
            smem_per_block_bytes=self.smem_per_block_bytes,
            smem_reserved_per_block_bytes=self.smem_reserved_per_block_bytes,
            registers_per_sm=self.registers_per_sm,
            max_warps_per_sm=self.max_warps_per_sm,
            dram_gb_per_s=self.dram_gb_per_s or GB_PER_S_OF_SM * self.sm_count,
            l2_bytes=self.l2_bytes,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them."""
        return {
            **dataclasses.asdict(self),
            "compute_capability": list(self.compute_capability),
            "notes": list(self.notes),
            "differences": list(self.differences),
            "arch": self.arch,
        }


def list_gpus() -> list[str]:
    """The short names of all sheets."""
    return list(_sheets()["gpu"])


def load_gpu(name: str) -> Gpu:
    """The sheet of a GPU, by short name, by what a driver calls it, or in a file ``NAME.toml``.

    A file has the fields of a GPU in ``gpus.toml`` without their sources; where ``like`` names a
    sheet, what it leaves out is as there.

    Raises LabError: there is none, or the file cannot be read, or lacks a number.
    """
    if name.endswith(".toml"):
        return _own_sheet(given_path(name))
    found = _find(name) if _WORDS.fullmatch(name) else None
    if found is None:
        raise LabError(
            f"There is no data sheet for {name!r}.",
            f"the sheets are: {', '.join(list_gpus())}",
            "name one of these, or run on the GPU itself, which answers for its limits",
        )
    return _build(found)


def gpu_of_device(ordinal: int = 0) -> Gpu | None:
    """The GPU of this machine: its sheet, with its own answers (`Gpu.differences` tells where they
    differ) and no compute peaks without a sheet; None without a GPU."""
    info = device_query(ordinal)
    return None if info is None else merge_device(info, query_clusters(ordinal))


def gpu_or_default(name: str | None = None) -> Gpu:
    """The GPU that is named, else that of this machine, else `DEFAULT_GPU`."""
    if name is not None:
        return load_gpu(name)
    return gpu_of_device() or load_gpu(DEFAULT_GPU)


def merge_device(info: DeviceInfo, clusters: dict[int, int] | None = None) -> Gpu:
    """A device's sheet, if any, with its own answers and the ``clusters`` that fit, if it was
    asked."""
    name = _find(info.name)
    sheet = _build(name) if name is not None else None
    fields = {one.name for one in dataclasses.fields(Gpu)} - {"name"}
    answers: dict[str, Any] = {
        one: value for one, value in dataclasses.asdict(info).items() if one in fields
    }
    answers |= {
        "title": info.name,
        "max_warps_per_sm": info.max_warps_per_sm,
        "memory_gb": round(info.memory_bytes / 2**30, 1),
        "boost_clock_mhz": info.sm_clock_mhz,
        "smem_per_block_bytes": info.smem_per_block_optin_bytes,
        "static_smem_per_block_bytes": info.smem_per_block_bytes,
    }
    answers = {key: value for key, value in answers.items() if value is not None}
    by_rule = clusters_by_rule(info.arch, info.sm_count)
    found, source = clusters, _CLUSTERS_SOURCE
    if found is None and sheet is not None and sheet.sm_count == info.sm_count:
        found, source = sheet.clusters, sheet.sources["clusters"]
    elif found is None:
        found, source = by_rule, _CLUSTERS_BY_RULE
    if sheet is not None:
        compared = set(answers) - {"title", "memory_gb"}  # memory is reduced by ECC and reserves
        differences = [
            f"{key}: the sheet says {getattr(sheet, key)}, this GPU answers {answers[key]}"
            for key in answers
            if key in compared and getattr(sheet, key) not in (None, answers[key])
        ]
        rate = info.dram_gb_per_s
        if rate and sheet.dram_gb_per_s and abs(rate / sheet.dram_gb_per_s - 1) > 0.01:
            differences.append(
                f"dram_gb_per_s: the sheet says {sheet.dram_gb_per_s:g}, this GPU's memory clock "
                f"and bus width give {rate:.0f}; the sheet's is used"
            )
        sources = {**sheet.sources, **dict.fromkeys(answers, _DEVICE_SOURCE)}
        return dataclasses.replace(
            sheet,
            **answers,
            clusters=found,
            sources={**sources, "clusters": source},
            origin="device",
            differences=tuple(differences),
        )
    rules = _rules_for(info.compute_capability)
    sources = dict.fromkeys(answers, _DEVICE_SOURCE)
    sources.update(dict.fromkeys(_GRANULARITY_FIELDS, _sheets()["documents"]["occupancy"]))
    sources["clusters"] = source
    sources["max_registers_per_thread"] = _sheets()["documents"]["guide"]
    if info.dram_gb_per_s:
        sources["dram_gb_per_s"] = _DEVICE_SOURCE + ": memory clock and bus width"
    return Gpu(
        **{
            "boost_clock_mhz": None,
            **{key: rules[key] for key in (*_GRANULARITY_FIELDS, "max_registers_per_thread")},
            **answers,
        },
        name=slug_of_gpu(info.name),
        dram_gb_per_s=info.dram_gb_per_s,
        fp16_tensor_tflops=None,
        fp8_tensor_tflops=None,
        fp32_tflops=None,
        clusters=found,
        sources=sources,
        notes=("There is no data sheet for this GPU, so it has no compute peaks here.",),
        origin="device",
    )


def limits_of(device: DeviceInfo) -> Limits:
    """What this machine's GPU gives a launch: its own answers, and what only its sheet says."""
    try:
        return merge_device(device, query_clusters()).limits
    except LabError:
        return own_limits(device)


# ---------------------------------------------------------------------------------- reading


@lru_cache(maxsize=1)
def _sheets() -> dict[str, Any]:
    return tomllib.loads(SHEETS.read_text())


def _limits(capability: str) -> dict[str, Any]:
    raw = {**_sheets()["common"], **_sheets()["compute_capability"][capability]}
    limits = {}
    for key, value in raw.items():
        if key.endswith("_kib"):
            limits[key.removesuffix("_kib") + "_bytes"] = value * 1024
        else:
            limits[key] = value
    return limits


def _rules_for(capability: tuple[int, int]) -> dict[str, Any]:
    """Allocation rules of a capability; they depend on its major number alone."""
    known = _sheets()["compute_capability"]
    exact = ".".join(map(str, capability))
    same_major = [name for name in known if name.split(".")[0] == str(capability[0])]
    if exact in known:
        return _limits(exact)
    if same_major:
        return _limits(same_major[0])
    raise LabError(
        f"The allocation rules of compute capability {exact} are not known here.",
        f"known are {', '.join(known)}",
        "running and timing kernels; occupancy and floors of the listed GPUs",
    )


_NEEDED = (
    *("compute_capability", "sm_count", "dram_gb_per_s", "l2_kib", "memory_gb"),
    "boost_clock_mhz",
)
_MAY_LACK = ("fp16_tensor_tflops", "fp8_tensor_tflops", "fp32_tflops")


def _own_sheet(path: Path) -> Gpu:
    """The sheet that somebody wrote."""

    def refuse(what: str, why: str) -> NoReturn:
        raise LabError(f"{path} is no data sheet: {what}.", why, f"--gpu {DEFAULT_GPU}, or another")

    try:
        told = tomllib.loads(read_given(path))
    except (OSError, ValueError, RecursionError) as error:
        refuse("it cannot be read", first_line(str(error)))
    fields = (*_NEEDED, *_MAY_LACK)
    base: dict[str, Any] = {}
    if "like" in told:
        like = _find(str(told["like"]))
        if like is None:
            refuse(f"like is {told['like']!r}", f"the sheets are: {', '.join(list_gpus())}")
        base = _sheets()["gpu"][like]
        del told["like"]
    raw = {one: base[one] for one in fields if one in base} | told
    numbers = fields[1:]
    for one, value in raw.items():
        whole = type(value) in ((int,) if one in ("sm_count", "l2_kib") else (int, float))
        if one not in fields or (one in numbers and not (whole and 0 < value < 1e9)):
            refuse(f"{one} is {value!r}", f"it has {', '.join(fields)}, or some of them and like")
    if lacks := [one for one in _NEEDED if one not in raw]:
        refuse(f"it lacks {lacks[0]}", f"a forecast needs {', '.join(_NEEDED)}")
    if raw["compute_capability"] not in list(_sheets()["compute_capability"]):
        known = ", ".join(_sheets()["compute_capability"])
        refuse(f"compute_capability is {raw['compute_capability']!r}", f"known are {known}")
    if _find(path.stem):
        refuse(f"{path.stem} is the name of another", "a file's name is that of its GPU")
    empty: dict[str, Any] = {
        "title": path.stem,
        "aliases": (),
        "sources": {},
        **dict.fromkeys(_MAY_LACK),
    }
    return _made(slug_of_gpu(path.stem), empty | raw)


def _build(name: str) -> Gpu:
    return _made(name, dict(_sheets()["gpu"][name]))


def _made(name: str, raw: dict[str, Any]) -> Gpu:
    documents = _sheets()["documents"]
    capability = raw.pop("compute_capability")
    raw.pop("aliases")
    sources = {
        key.replace("l2_kib", "l2_bytes"): documents[document]
        for key, document in raw.pop("sources").items()
    }
    sources.update(dict.fromkeys(_limits(capability), documents["guide"]))
    sources.update(dict.fromkeys(_GRANULARITY_FIELDS, documents["occupancy"]))
    major, minor = capability.split(".")
    clusters = {int(size): count for size, count in raw.pop("clusters", {}).items()}
    if not clusters:
        clusters = clusters_by_rule(f"sm_{major}{minor}", raw["sm_count"])
        sources["clusters"] = _CLUSTERS_BY_RULE if clusters else documents["guide"]
    return Gpu(
        name=name,
        clusters=clusters,
        compute_capability=(int(major), int(minor)),
        l2_bytes=raw.pop("l2_kib") * 1024,
        boost_clock_mhz=raw.pop("boost_clock_mhz", None),
        fp8_tensor_tflops=raw.pop("fp8_tensor_tflops", None),
        notes=tuple(raw.pop("notes", ())),
        sources=sources,
        **raw,
        **_limits(capability),
    )


def _find(name: str) -> str | None:
    wanted = slug_of_gpu(name)
    for known, raw in _sheets()["gpu"].items():
        if wanted in {known, slug_of_gpu(raw["title"]), *map(slug_of_gpu, raw["aliases"])}:
            return known
    return None
