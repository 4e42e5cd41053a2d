"""Latencies, intervals, bandwidths and launch times of a GPU, each with its source. They come from
the record of microbenchmarks of that very GPU (its forecasts are *calibrated*), of another one of
its architecture, or as published from ``latencies/sm_XX.toml``, and else from the H200."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from labtools.problem import LabError
from labtools.record import shipped_records_dir, slug_of_gpu
from labtools.toolchain.cache import code_digest, kept

from .measured import RECORD_NAME, read_record, table_from_record
from .sheets import Gpu, load_gpu

TABLES = Path(__file__).with_name("latencies")
"""What others published, by architecture."""
RECORDS = shipped_records_dir()
"""Our own microbenchmarks, in a folder for each GPU."""
REFERENCE = "h200"
"""The GPU whose own measurements stand in where nothing was published."""
ASSUMED = "assumed as on NVIDIA H200"
_GROUPS = ("clock", "latency", "interval", "memory", "launch")
_CODE = code_digest("predict")
"""The code that makes a table of a record, as it was when this was imported."""


@dataclass(frozen=True)
class LatencyEntry:
    """One number."""

    value: float  # median, or the published figure
    # low, high: least and most of the repeats; equal to ``value`` for a published figure
    low: float
    high: float
    unit: str  # ``cycles``, ``cycles a cycle``, ``GB/s``, ``us``, ``ns`` or ``MHz``
    source: str  # which microbenchmark, which document, or that it was assumed

    @property
    def assumed(self) -> bool:
        """Whether the number is another GPU's."""
        return self.source.startswith(ASSUMED)


@dataclass(frozen=True)
class Latencies:
    """What is known of one GPU's speed."""

    gpu: str  # short name of the GPU
    arch: str  # for example ``sm_90``
    calibrated: bool  # True when the table was made by this project's microbenchmarks on this GPU
    # every number by its whole name, for example ``latency.shared.32``
    entries: Mapping[str, LatencyEntry] = field(repr=False)
    # lists of points by name, for example ``hbm``: bandwidth by bytes in flight
    curves: Mapping[str, tuple[Mapping[str, Any], ...]] = field(repr=False)
    # the GPU that the curves were measured on; None when there are none
    curves_of: str | None = None
    # num_sms, l2_bytes: of that GPU, to scale its curves with; 0 when there are none
    num_sms: int = 0
    l2_bytes: int = 0
    # short name of the measured GPU of this architecture whose numbers these are, or None
    sibling: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)  # date, driver and the like

    def entry(self, name: str) -> LatencyEntry:
        """A number by its whole name, for example ``latency.l2``, with its spread and source."""
        try:
            return self.entries[name]
        except KeyError:
            raise LabError(
                f"Nothing is known of {name} on {self.gpu}.",
                f"neither {self.gpu}'s table nor that of {self.arch} has it",
                "the roofline's floors",
            ) from None

    def has(self, name: str) -> bool:
        """Whether a number is known."""
        return name in self.entries

    def value(self, name: str, default: float | None = None) -> float:
        """A number by its whole name, or the default when one is given and nothing is known."""
        if default is not None and name not in self.entries:
            return default
        return self.entry(name).value

    def latency(self, name: str, default: float | None = None) -> float:
        """Cycles from issue to the result, for example of ``shfl`` or ``hbm_row.256``."""
        return self.value(f"latency.{name}", default)

    def interval(self, name: str, default: float | None = None) -> float:
        """Cycles between two issues: of a sub-partition, or with ``_sm`` of the whole SM."""
        return self.value(f"interval.{name}", default)

    def memory(self, name: str, default: float | None = None) -> float:
        """A bandwidth in GB/s, for example ``hbm_gb_per_s``."""
        return self.value(f"memory.{name}", default)

    @property
    def numbers_of(self) -> str:
        """Whose the latencies are, in words, where they are not the GPU's own."""
        if self.sibling:
            return _measured_on(self.sibling)
        reference = f", and {ASSUMED} where nobody published them" if self.curves_of else ""
        return f"published by others{reference}"

    @property
    def sm_mhz(self) -> float | None:
        """The SM's clock during the microbenchmarks, or None."""
        return self.entries["clock.sm"].value if "clock.sm" in self.entries else None

    def by_number(self, name: str) -> dict[int, float]:
        """Numbers that differ in a count, for example ``latency.barrier`` by warps."""
        start = f"{name}."
        return {
            int(key[len(start) :]): entry.value
            for key, entry in self.entries.items()
            if key.startswith(start) and key[len(start) :].isdigit()
        }

    def curve(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """The points of a curve; none when it was not measured."""
        return self.curves.get(name, ())


def load_latencies(gpu: Gpu | str) -> Latencies:
    """The latencies of a GPU."""
    sheet = load_gpu(gpu) if isinstance(gpu, str) else gpu
    return _load(sheet.name, sheet.title, sheet.arch, _stamp())


def table_files() -> dict[str, Path]:
    """What each table is read from, by its name: a GPU of our own measurements, or ``sm_XX``."""
    published = {path.stem: path for path in sorted(TABLES.glob("*.toml"))}
    return published | {path.parent.name: path for path in RECORDS.glob(f"*/{RECORD_NAME}")}


def _stamp() -> tuple[tuple[str, int], ...]:
    """Changes when a table or a record is replaced, so that a new one is read."""
    return tuple((str(path), path.stat().st_mtime_ns) for path in sorted(table_files().values()))


@lru_cache(maxsize=64)
def _load(name: str, title: str, arch: str, stamp: object) -> Latencies:
    files = table_files()
    for own in dict.fromkeys((name, slug_of_gpu(title))):
        if not own.startswith("sm_") and own in files:
            return read_table(files[own], name)
    published = _published(arch, files)
    found = read_table(published, name) if published else None
    known = dict(found.entries) if found else {}
    about = found.about if found else {}
    sibling = _sibling(arch, files)
    measured = sibling or (REFERENCE if REFERENCE in files else None)
    if measured is None:
        return Latencies(name, arch, False, known, {}, about=about)
    base = read_table(files[measured], measured)
    if sibling:
        entries = {**known, **_of_another(base, _measured_on(sibling))}
    else:
        entries = {**_of_another(base, ASSUMED), **known}
    return Latencies(
        gpu=name,
        arch=arch,
        calibrated=False,
        entries=entries,
        curves=base.curves,
        curves_of=measured,
        num_sms=base.num_sms,
        l2_bytes=base.l2_bytes,
        sibling=sibling,
        about=about,
    )


def _sibling(arch: str, files: Mapping[str, Path]) -> str | None:
    """A measured GPU of an architecture: the reference if it is one, else the first by name."""
    names = [name for name in files if not name.startswith("sm_")]
    measured = sorted(names, key=lambda name: (name != REFERENCE, name))
    return next((name for name in measured if read_table(files[name]).arch == arch), None)


def _measured_on(sibling: str) -> str:
    return f"measured on {load_gpu(sibling).title}, of the same architecture"


def _of_another(table: Latencies, source: str) -> dict[str, LatencyEntry]:
    """The numbers of another GPU; a clock is a property of one card, and the data sheet has it."""
    return {
        key: dataclasses.replace(entry, source=source)
        for key, entry in table.entries.items()
        if not key.startswith("clock.")
    }


def _published(arch: str, files: Mapping[str, Path]) -> Path | None:
    """The table of an architecture, else of the newest older one."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    known = {int(name[3:]): path for name, path in files.items() if name.startswith("sm_")}
    older = [one for one in known if one <= number]
    return known[max(older)] if older else None


def read_table(path: Path, gpu: str | None = None) -> Latencies:
    """Read one table; ``gpu`` is what to call the GPU, None takes the table's own name."""
    try:
        if path.suffix == ".toml":
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        else:  # what is made of a record is kept on disk
            parts = [_CODE, path.read_bytes()]
            raw = kept("latencies", parts, lambda: table_from_record(read_record(path)))
        about = raw["about"]
        documents = raw.get("documents", {})
        entries = {
            name: LatencyEntry(
                **{key: float(entry[key]) for key in ("value", "low", "high")},
                unit=str(entry["unit"]),
                source=documents.get(entry["source"], str(entry["source"])),
            )
            for group in _GROUPS
            for name, entry in _walk(group, raw.get(group, {}))
        }
        curves = {
            name: tuple(dict(point) for point in points)
            for name, points in raw.get("curve", {}).items()
        }
        return Latencies(
            gpu=gpu or about.get("gpu", path.stem),
            arch=about["arch"],
            calibrated=bool(about["calibrated"]),
            entries=entries,
            curves=curves,
            curves_of=about.get("gpu") if curves else None,
            num_sms=int(about.get("num_sms", 0)),
            l2_bytes=int(about.get("l2_bytes", 0)),
            about=about,
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"The table of latencies {path.name} could not be read.",
            f"{type(error).__name__}: {error}",
            "the roofline's floors; labtools microbench makes a new table on a GPU",
        ) from error


def _walk(name: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "value" in node:
        yield name, node
        return
    for key, inner in node.items():
        yield from _walk(f"{name}.{key}", inner)
