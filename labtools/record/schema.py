"""What a measurement leaves behind: the shapes of a Run and of a Record.

A number that was not measured is None. It is never 0, because a missing counter that reads as
zero looks like a finding.
"""

from __future__ import annotations

import functools
import json
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from labtools.problem import LabError, Limits, Problem, load_rung, problem_from_dict
from labtools.problem.limits import SMS_OF_H200, assumed_limits
from labtools.problem.rung import say_knobs
from labtools.problem.storage import AS_GIVEN, CODECS, StorageFormat

from .fields import ComparisonField, HashesField, KeptLaunchField, ModelName, ResourcesField

SCHEMA_VERSION = 3
"""3: the codec of what is streamed. 2: its bits alone (`_from_version_2`)."""

Kind = Literal["rung", "baseline", "ceiling"]
_NAME = re.compile(r"(?:(?:baseline|ceiling):)?(?!.*\.(?:py|cu)$)[^/\\\0\n:]*[^/\\\0\n:.]")
_Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Schema(BaseModel):
    # Unknown fields are kept out: a misspelt field would otherwise vanish without a word.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Reading(_Schema):
    """A quantity watched while something ran: least, middle and most of its readings."""

    low: float
    median: float
    high: float


class Clocks(_Schema):
    """State of the GPU during timing, as NVML or nvidia-smi told it."""

    sm_mhz: Reading | None = None
    memory_mhz: Reading | None = None
    temperature_c: Reading | None = None
    source: str | None = None


class Provenance(_Schema):
    """Where, when and with what a measurement was made. Versions are None when not installed."""

    gpu: str
    gpu_slug: str
    arch: str
    num_sms: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    nvrtc: str | None = None
    torch: str | None = None
    cudnn: str | None = None
    flashinfer: str | None = None
    flash_attention_3: str | None = None
    """The package that brings it, and its version: several do."""
    xformers: str | None = None
    cupy: str | None = None
    numpy: str | None = None
    python: str | None = None
    compile_options: tuple[str, ...] = ()
    clocks: Clocks | None = None
    date: datetime
    commit: str | None = None
    tree_hash: str
    command: str

    @property
    def versions(self) -> dict[str, str | None]:
        """Of the driver and of what computed beside it."""
        names = ["driver", "cuda", "nvrtc", "torch", "cudnn", "flashinfer", "cupy"]
        few = ("flash_attention_3", "xformers")  # few machines have them
        names += [name for name in few if getattr(self, name) is not None]
        return {name: getattr(self, name) for name in names}


class ProcessSamples(_Schema):
    """Times of one child process."""

    process: int  # 0, 1, ...; what shares it, campaign and workload ran in it, rounds interleaved
    us: tuple[_Time, ...] = Field(min_length=1)  # time of one call, microseconds; one value a round
    launches_per_sample: int = Field(ge=1)  # calls behind each value
    rotated_sets: int = Field(ge=1)  # different sets of buffers that the calls went round
    rotated_bytes: int = Field(ge=0)  # size of those sets together


class Samples(_Schema):
    """Raw times, process by process."""

    processes: tuple[ProcessSamples, ...] = Field(min_length=1)

    @field_validator("processes")
    @classmethod
    def _distinct(cls, value: tuple[ProcessSamples, ...]) -> tuple[ProcessSamples, ...]:
        if len({process.process for process in value}) != len(value):
            raise ValueError("two lists of samples carry the same process number")
        return value


class Counters(_Schema):
    """Chosen hardware counters of one call; a missing one is None."""

    tool: str | None = None  # the profiler and its version; None when it did not run
    # by stable name, with the unit in the name
    values: dict[str, float | None] = Field(default_factory=dict)
    reason: str = ""  # why there are none

    @model_validator(mode="after")
    def _says_why(self) -> Counters:
        if not self.values and not self.reason:
            raise ValueError("counters that are missing altogether need a reason")
        return self

    @property
    def missing(self) -> list[str]:
        """Names of the counters without a value."""
        return sorted(name for name, value in self.values.items() if value is None)


class SanitizerVerdict(_Schema):
    """What one tool of compute-sanitizer said."""

    tool: str  # memcheck, racecheck, synccheck or initcheck
    verdict: Literal["clean", "errors", "not run"]  # ``clean``, ``errors`` or ``not run``
    text: str = ""  # the errors, or why it did not run; empty when clean
    workload: dict[str, Any] | None = None  # the (small) workload that it watched
    # where they are not the record's: a kernel that is broken as written has no time, so no record
    knobs: dict[str, int] | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def error_count(self) -> int | None:
        """None where it did not run."""
        if self.verdict == "not run":
            return None
        return int(self.text.split()[0]) if self.text else 0

    @model_validator(mode="after")
    def _says_what(self) -> SanitizerVerdict:
        if (self.verdict == "clean") == bool(self.text):
            raise ValueError("clean has no text; errors and not run need one")
        return self


class ForecastMade(_Schema):
    """The forecast as it stood before the run."""

    time_us: float
    band_us: tuple[float, float | None] | None = None
    bound: str = ""
    model: ModelName


class Run(_Schema):
    """What happened: one candidate on one workload."""

    schema_version: int = SCHEMA_VERSION
    candidate: str  # a rung's id, ``baseline:NAME`` or ``ceiling:NAME``
    kind: Kind
    title: str = ""
    # the file of a rung outside the project; compared, and never run because of a record
    rung_path: str | None = None
    rung_hash: str | None = None  # of that file, as `hash_python_file` gives it
    knobs: dict[str, int] = Field(default_factory=dict)
    workload: dict[str, Any]
    limits: Limits | None = None  # what the GPU gave the launch; None of a baseline
    launches: tuple[KeptLaunchField, ...] = ()
    resources: tuple[ResourcesField, ...] = ()
    hashes: HashesField
    protocol: str  # name and version of the way it was timed
    # besides its knobs: ``stream`` for plain launches where graphs are the rule, ``outside`` for
    # workspaces moved out of the call, or both, joined by ``+``
    experiment: str = ""
    comparison: ComparisonField
    samples: Samples
    median_us: _Time  # median over the processes of each process's median
    notes: tuple[str, ...] = ()
    codec: str = AS_GIVEN  # of an element of what it streams, of decode K and V
    # bytes of the cache as it keeps it, scales included, each once; None where that is the
    # workload's own K and V
    kv_bytes_read: int | None = None

    @field_validator("schema_version")
    @classmethod
    def _is_known(cls, value: int) -> int:
        if value != SCHEMA_VERSION:
            raise ValueError(f"it is {value}; this labtools reads 2 and {SCHEMA_VERSION}")
        return value

    @field_validator("codec")
    @classmethod
    def _is_a_codec(cls, value: str) -> str:
        if value not in (AS_GIVEN, *CODECS):
            raise ValueError(f"it is {value!r}; there are {', '.join((AS_GIVEN, *CODECS))}")
        return value

    @field_validator("candidate")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        # A name is looked up in the project's folders: as a path it could lead out of them.
        if not (_NAME.fullmatch(value) and value.isprintable()):
            raise ValueError("it is no name of a rung, baseline or ceiling")
        return value

    @field_validator("workload")
    @classmethod
    def _is_a_workload(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            return _workload_of(json.dumps(value)).to_dict()
        except Exception as error:  # pydantic reports a ValueError with the field's name
            raise ValueError(str(error)) from None

    @functools.cached_property
    def problem(self) -> Problem:
        """The workload as an object. Records of one workload share it."""
        return _workload_of(json.dumps(self.workload))

    @functools.cached_property
    def problem_key(self) -> str:
        """The workload's key, which only records about the same problem share."""
        return _key_of(json.dumps(self.workload))

    @property
    def name(self) -> str:
        """The candidate without its ``baseline:`` or ``ceiling:``."""
        return self.candidate.split(":", 1)[-1]

    def is_candidate(self, wanted: str) -> bool:
        """Is this ``wanted``: ``r03_one_warp``, ``r03``, ``baseline:sdpa`` or ``sdpa``?"""
        number = self.name.split("_")[0] if self.kind == "rung" else None
        return wanted in (self.candidate, self.name, number)

    @property
    def allocates(self) -> bool:
        """Whether its timed calls allocate memory."""
        return any(space.in_call for launch in self.launches for space in launch.workspace)

    @property
    def kv_bits(self) -> int:
        """Bits in which it keeps an element of what it streams."""
        return StorageFormat(AS_GIVEN).bits if self.codec == AS_GIVEN else CODECS[self.codec].bits

    @property
    def read_bytes(self) -> int:
        """Bytes of what the problem streams, of decode K and V, as it keeps them, each once."""
        return self.problem.streamed_bytes if self.kv_bytes_read is None else self.kv_bytes_read

    @property
    def gb_per_s(self) -> float:
        """Rate at which `read_bytes` were read, 10^9 bytes a second."""
        return self.read_bytes / self.median_us / 1e3


class Record(Run):
    """A Run with its provenance and the forecast made before it."""

    campaign: str
    provenance: Provenance
    forecast: ForecastMade | None = None
    counters: Counters | None = None
    sanitizer: tuple[SanitizerVerdict, ...] = ()
    file: str | None = Field(default=None, exclude=True)  # where it was read from
    # that file is the project's own, byte by byte; None of a record that was never read
    signed: bool | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _from_disk(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        # Where it lies is not for the record itself to say.
        held = {name: value for name, value in data.items() if name not in ("file", "signed")}
        return _from_version_2(held) if held.get("schema_version") == 2 else held

    @property
    def default_knobs(self) -> dict[str, int]:
        """Every knob of its rung at its default; empty of a baseline, a ceiling, a rung that is
        gone, and one outside the project, whose Python no record makes run."""
        shipped = self.kind == "rung" and self.rung_path is None
        return (default_knobs_of(self.candidate) or {}) if shipped else {}

    @functools.cached_property
    def every_knob(self) -> dict[str, int]:
        """Its knobs, and the defaults of those that its rung got since."""
        return {**self.default_knobs, **self.knobs}

    def identity(self) -> tuple[str, ...]:
        """What a newer record of the same thing shares with this one."""
        knobs = say_knobs(sorted(self.every_knob.items()), ",")
        what = (self.provenance.gpu_slug, self.candidate, self.rung_path or "", knobs)
        return (*what, self.problem_key, self.experiment)


@functools.lru_cache(maxsize=256)
def default_knobs_of(rung: str) -> dict[str, int] | None:
    """The knobs of a shipped rung at their defaults; None where it is gone."""
    try:
        return load_rung(rung).resolve_knobs()
    except LabError:
        return None


@functools.lru_cache(maxsize=1024)
def _workload_of(text: str) -> Problem:
    return problem_from_dict(json.loads(text))


@functools.lru_cache(maxsize=1024)
def _key_of(text: str) -> str:
    return _workload_of(text).key()


_CODECS_OF_BITS = {"rung 8": "int8", "rung 4": "int4", "baseline 8": "fp8-e4m3"}


def _from_version_2(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record as it is now: its bits are a codec's.

    Where it keeps no Limits it gets those that its launch assumed; what `Limits.num_sms` says was a
    knob ``sms`` then.
    """
    data = {**data, "schema_version": SCHEMA_VERSION}
    kind, bits = data.get("kind"), data.pop("kv_bits", 16)
    data["codec"] = (
        AS_GIVEN if bits == 16 else _CODECS_OF_BITS.get(f"{kind} {bits}", f"{bits} bits")
    )
    made = data.get("provenance")
    if kind == "baseline" or data.get("limits") or not isinstance(made, dict):
        return data
    if not {"gpu_slug", "arch"} <= made.keys():
        return data  # what is missing is said for the record itself
    knobs = dict(data.get("knobs") or {})
    num_sms = knobs.pop("sms", None) or made.get("num_sms") or SMS_OF_H200
    limits = assumed_limits(made["gpu_slug"], made["arch"], num_sms, made.get("l2_bytes") or 0)
    return {**data, "knobs": knobs, "limits": limits}


def slug_of_gpu(name: str) -> str:
    """``NVIDIA H200`` to ``h200``, ``NVIDIA GeForce RTX 4090`` to ``rtx4090``.

    Data sheets and records call a GPU by it.
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    brand = ("nvidia", "corporation", "geforce", "tesla", "gpu")
    slug = "-".join(word for word in words if word not in brand)
    return re.sub(r"^rtx-(\d+)", r"rtx\1", slug) or "unknown"
