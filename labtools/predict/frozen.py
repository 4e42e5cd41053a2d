"""Forty kernels as they once were: machine code, launches and limits that no edit changes.

Their forecasts say which model this is. They stand in ``frozen.json.gz``, written once by
`tools.freeze_listings`; kernels in ``kernels/`` go on without them.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from labtools.problem import LabError, Launch, Rung, Workload, Workspace, element_dtype
from labtools.toolchain.cache import content_key
from labtools.toolchain.cubin import Resources
from labtools.toolchain.listings import MachineCode, expand_lines
from labtools.toolchain.sass import parse_listings

from .sheets import Gpu, load_gpu

FROZEN = Path(__file__).with_name("frozen.json.gz")


@dataclass(frozen=True)
class FrozenListing:
    """One kernel with what a forecast of it needs.

    Attributes:
        kernel: its id.
        gpu: the data sheet that it is forecast on.
        knobs: with which it was compiled and launched.
        workload: what it computes.
        launches: as they were for this workload, these knobs and this GPU.
        resources: registers, shared memory and spills by kernel name.
        lines: the listing without addresses and source lines.
        arch, nvrtc_version: what it was compiled for, and by which compiler.
        clock_mhz: taken where the data sheet states no clock.
    """

    kernel: str
    gpu: str
    arch: str
    nvrtc_version: str
    knobs: Mapping[str, int]
    workload: Workload
    launches: tuple[Launch, ...]
    resources: Mapping[str, Resources]
    lines: tuple[str, ...] = field(repr=False)
    clock_mhz: float = 1980.0

    @property
    def name(self) -> str:
        """For a message: kernel, knobs, workload and GPU."""
        knobs = ",".join(f"{name}={value}" for name, value in self.knobs.items())
        return " ".join(filter(None, (self.kernel, knobs, str(self.workload), self.gpu)))

    @property
    def sheet(self) -> Gpu:
        """The data sheet, with a clock."""
        sheet = load_gpu(self.gpu)
        clock = sheet.boost_clock_mhz or self.clock_mhz
        return dataclasses.replace(sheet, boost_clock_mhz=clock)

    @cached_property
    def code(self) -> MachineCode:
        """The listing, typed."""
        entries = parse_listings(expand_lines(self.lines))
        return MachineCode(
            rung_id=self.kernel,
            arch=self.arch,
            entries={name: entries[name] for name in self.resources},
            resources=self.resources,
            origin=f"frozen listing, NVRTC {self.nvrtc_version}",
            stored=True,
            nvrtc_version=self.nvrtc_version,
            compile_s=0.0,
            source_hash="",
            content=content_key(self.lines),
        )

    @property
    def rung(self) -> Rung:
        """A rung that launches what is frozen and has no source."""
        return Rung(
            id=self.kernel,
            title="frozen",
            source=FROZEN,
            idea="",
            limiter="",
            cost="",
            launch=lambda *_: list(self.launches),
            supports=lambda *_: None,
        )


def read_frozen(path: Path = FROZEN) -> tuple[FrozenListing, ...]:
    """The frozen listings.

    Raises:
        LabError: the file is gone or damaged.
    """
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
        return tuple(_read_one(one, data["lines"]) for one in data["frozen"])
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise LabError(
            "The frozen listings, which name the model, cannot be read.",
            f"{path}: {type(error).__name__}: {error}",
            "forecasts without the model's name; git checkout gives the file back",
        ) from error


def write_frozen(path: Path, listings: Iterable[FrozenListing]) -> None:
    """Write frozen listings; equal ones give equal bytes."""
    table: dict[str, int] = {}
    frozen = []
    for one in listings:
        frozen.append(
            {
                "kernel": one.kernel,
                "gpu": one.gpu,
                "arch": one.arch,
                "nvrtc_version": one.nvrtc_version,
                "knobs": dict(one.knobs),
                "clock_mhz": one.clock_mhz,
                "workload": one.workload.to_dict(),
                "launches": [_launch_to_json(launch) for launch in one.launches],
                "resources": {name: vars(found) for name, found in one.resources.items()},
                "lines": [table.setdefault(line, len(table)) for line in one.lines],
            }
        )
    text = json.dumps({"lines": list(table), "frozen": frozen}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _read_one(data: Mapping[str, Any], table: Sequence[str]) -> FrozenListing:
    return FrozenListing(
        kernel=data["kernel"],
        gpu=data["gpu"],
        arch=data["arch"],
        nvrtc_version=data["nvrtc_version"],
        clock_mhz=data["clock_mhz"],
        knobs=data["knobs"],
        workload=Workload.from_dict(data["workload"]),
        launches=tuple(_launch_from_json(launch) for launch in data["launches"]),
        resources={name: Resources(**found) for name, found in data["resources"].items()},
        lines=tuple(table[number] for number in data["lines"]),
    )


def _launch_to_json(launch: Launch) -> dict[str, Any]:
    return {
        "entry": launch.entry,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "smem_bytes": launch.smem_bytes,
        "args": [
            arg if isinstance(arg, str) else [str(arg.dtype), arg.item()] for arg in launch.args
        ],
        "workspace": [
            [one.name, list(one.shape), one.dtype, one.in_call] for one in launch.workspace
        ],
        "prepare": launch.prepare,
    }


def _launch_from_json(data: Mapping[str, Any]) -> Launch:
    return Launch(
        entry=data["entry"],
        grid=tuple(data["grid"]),
        block=tuple(data["block"]),
        smem_bytes=data["smem_bytes"],
        args=tuple(
            arg if isinstance(arg, str) else element_dtype(arg[0]).type(arg[1])
            for arg in data["args"]
        ),
        workspace=tuple(
            Workspace(name, tuple(shape), dtype, in_call)
            for name, shape, dtype, in_call in data["workspace"]
        ),
        prepare=data["prepare"],
    )
