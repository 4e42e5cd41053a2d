"""Forty kernels as they once were: machine code, launches and limits that no edit changes.

Their forecasts say which model this is. They stand in ``frozen.json.gz``, written once by
`tools.freeze_listings`; kernels in ``kernels/`` go on without them.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from labtools.problem import LabError, Rung
from labtools.problem.rung import say_knobs
from labtools.record.fields import LaunchField, ProblemField
from labtools.toolchain.cache import content_key
from labtools.toolchain.cubin import Resources
from labtools.toolchain.listings import MachineCode, expand_lines, pack_lines, unpack_lines
from labtools.toolchain.sass import parse_listings

from .sheets import Gpu, load_gpu

FROZEN = Path(__file__).with_name("frozen.json.gz")


@dataclass(frozen=True)
class FrozenListing:
    """One kernel with what a forecast of it needs."""

    kernel: str  # its id
    gpu: str  # the data sheet that it is forecast on
    # arch, nvrtc_version: what it was compiled for, and by which compiler
    arch: str
    nvrtc_version: str
    knobs: Mapping[str, int]  # with which it was compiled and launched
    workload: ProblemField  # what it computes
    launches: tuple[LaunchField, ...]  # as they were for this workload, these knobs and this GPU
    resources: Mapping[str, Resources]  # registers, shared memory and spills by kernel name
    lines: tuple[str, ...] = field(repr=False)  # the listing without addresses and source lines
    clock_mhz: float = 1980.0  # taken where the data sheet states no clock

    @property
    def name(self) -> str:
        """For a message: kernel, knobs, workload and GPU."""
        knobs = say_knobs(self.knobs, ",")
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
            launch=lambda problem, limits, knobs: list(self.launches),
            supports=lambda problem: None,
        )


_LISTINGS = TypeAdapter(tuple[FrozenListing, ...])


def read_frozen(path: Path = FROZEN) -> tuple[FrozenListing, ...]:
    """The frozen listings.

    Raises:
        LabError: the file is gone or damaged.
    """
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
        listings = zip(data["frozen"], data["numbers"], strict=True)
        found = [{**one, "lines": unpack_lines(data["lines"], runs)} for one, runs in listings]
        return _LISTINGS.validate_python(found)
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise LabError(
            "The frozen listings, which name the model, cannot be read.",
            f"{path}: {type(error).__name__}: {error}",
            "forecasts without the model's name; git checkout gives the file back",
        ) from error


def write_frozen(path: Path, listings: Iterable[FrozenListing]) -> None:
    """Write frozen listings; equal ones give equal bytes."""
    kept = tuple(listings)
    lines, numbers = pack_lines(one.lines for one in kept)
    frozen = _LISTINGS.dump_python(kept, mode="json", exclude={"__all__": {"lines"}})
    said = {"lines": lines, "numbers": numbers, "frozen": frozen}
    text = json.dumps(said, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
