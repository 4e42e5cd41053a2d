"""Does a record still belong to the code that stands in the files?

A record of a rung belongs to its machine code, launch, knobs, workload and protocol. Equal text
with equal headers, definitions and options, comments and layout apart, is the same code. Where the
text differs, the machine code decides, if this compiler is the one that made the record. A
baseline's code is its own file.

The launch counts with what is launched before the timed call, what every call allocates, and how
the inputs are kept. A rung outside the project is compared by its files alone, which are read and
never run: a record may come from anywhere.
"""

from __future__ import annotations

import ast
import datetime
import functools
import json
import tokenize
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.problem import LabError, Launch, Limits, Rung, kernels_dir, load_rung
from labtools.problem.baseline import baselines_dir, own_baselines
from labtools.problem.rung import move_outside
from labtools.problem.storage import AS_GIVEN
from labtools.problem.text import is_file, read_given

from .fields import write_argument
from .python_hash import python_hashes
from .schema import Record

PROTOCOLS = ("graph-1", "events-1", "stream-1")
"""Current ways of timing: replays of a CUDA graph, events round plain launches where a call cannot
be captured, and plain launches by intent, from an idle GPU on."""


@dataclass(frozen=True)
class Freshness:
    """Whether a record is about the code as it stands."""

    fresh: bool
    reason: str  # one sentence: what was compared, or what changed


class CodeNow:
    """The code as it stands in the files, each file read once: for one look at many records."""

    def __init__(self) -> None:
        self._rungs: dict[str | Path, Rung] = {}
        self._words: dict[tuple[Path, str | None], str] = {}
        self._text_hashes: dict[tuple[object, ...], str] = {}
        self._baselines: dict[Path, tuple[str, ...]] = {}

    def rung(self, where: str | Path) -> Rung:
        """The rung of a name or a path."""
        if where not in self._rungs:
            self._rungs[where] = load_rung(where)
        return self._rungs[where]

    def text_hash(self, rung: Rung, defines: Mapping[str, str]) -> str:
        """The hash of what a rung's source says with some definitions."""
        from labtools.toolchain.sources import hash_words, source_words

        source = (rung.source, rung.text)
        key = (*source, *sorted(defines.items()))
        if key not in self._text_hashes:
            if source not in self._words:
                self._words[source] = source_words(rung.source_text, rung.include_dirs)
            self._text_hashes[key] = hash_words(self._words[source], defines)
        return self._text_hashes[key]

    def baseline_hashes(self, path: Path) -> tuple[str, ...]:
        """The hashes that a record of a baseline's file may hold."""
        if path not in self._baselines:
            here = python_hashes(path)
            same = [edit["recorded"] for edit in _same_code() if edit["now"] in here]
            self._baselines[path] = (*here, *same)
        return self._baselines[path]


def freshness(record: Record, now: CodeNow | None = None) -> Freshness:
    """Compare a record with the code it is about; ``now`` where many are. Compiles at most once a
    kernel."""
    now = now or CodeNow()
    if record.protocol not in PROTOCOLS:
        why = f"it was timed by protocol {record.protocol}; the current one is {PROTOCOLS[0]}"
        return Freshness(False, why)
    if record.kind == "baseline":
        return _baseline_freshness(record, now)
    if record.rung_path is not None:
        return _own_freshness(record, Path(record.rung_path))
    try:
        ceiling = kernels_dir() / "microbench" / f"{record.name}.py"
        rung = now.rung(ceiling if record.kind == "ceiling" else record.name)
        launches = rung.launches(record.problem, limits_of_record(record), record.knobs)
    except LabError as error:
        return Freshness(False, f"its kernel cannot be loaded any more: {error.what}")
    return rung_freshness(record, rung, launches, now)


def limits_of_record(record: Record) -> Limits:
    """What the GPU gave the launch of a rung's record; a library's has no launch of ours."""
    if record.limits is None:
        raise LabError(
            f"The record of {record.candidate} keeps no Limits.",
            "a library chooses its own launches",
            "the records of rungs",
        )
    return record.limits


def rung_freshness(
    record: Record, rung: Rung, launches: list[Launch], now: CodeNow | None = None
) -> Freshness:
    """`freshness` against a given rung, for example one edited on a page."""
    from labtools.toolchain import kernel_hashes, shipped_hash
    from labtools.toolchain.cubin import say_compiler

    if "outside" in record.experiment.split("+"):
        launches = move_outside(launches)
    if not same_launches(record.launches, launches):
        return Freshness(False, "the launch has changed since")
    if changed := _change_in_what_is_timed(record, launches):
        return Freshness(False, changed)
    limits = limits_of_record(record)
    scheme = rung.scheme(record.problem, record.knobs)
    if record.kind == "rung" and record.codec != (AS_GIVEN if scheme is None else scheme.codec):
        return Freshness(False, "how it keeps its inputs has changed since")
    defines = rung.defines(record.problem, limits, record.knobs)
    text_hash = (now or CodeNow()).text_hash(rung, defines)
    if text_hash == record.hashes.source_hash:
        return Freshness(True, "the source, headers, definitions and options are the same")
    same_code = "the source has changed since, its machine code is the same"
    arch, there = record.provenance.arch, record.hashes.nvrtc_version
    entries = [launch.entry for launch in launches]
    if record.hashes.sass_hash and record.hashes.sass_hash == shipped_hash(
        text_hash, entries, arch, there
    ):
        return Freshness(True, same_code)
    changed = "the source, a header, a definition or an option has changed since"
    try:
        made = kernel_hashes(rung, record.problem, limits, record.knobs, arch)
    except LabError as error:
        return Freshness(False, f"the kernel does not compile any more: {error.what}")
    if made.sass_hash is None or made.nvrtc_version != there:
        here = made.nvrtc_version or "no compiler"
        return Freshness(False, f"{changed} (recorded with {say_compiler(there)}; here is {here})")
    if made.sass_hash == record.hashes.sass_hash:
        return Freshness(True, same_code)
    return Freshness(False, changed + ", and with it the machine code")


def _change_in_what_is_timed(record: Record, launches: Sequence[Launch]) -> str:
    """What moved into the timed call or out of it, in a sentence; empty where nothing did."""
    if [launch.prepare for launch in record.launches] != [launch.prepare for launch in launches]:
        return "another part of the launches is timed since"
    if list(map(_allocated, record.launches)) != list(map(_allocated, launches)):
        return "what the timed call allocates has changed since"
    return ""


def _allocated(launch: Launch) -> list[tuple[str, int]]:
    return sorted((space.name, space.bytes) for space in launch.workspace if space.in_call)


def _own_freshness(record: Record, path: Path) -> Freshness:
    """Of a rung outside the project: its two files as text."""
    from labtools.toolchain.sources import hash_source

    source = _named_source(path) or path.with_suffix(".cu")
    if path.suffix != ".py" or not (is_file(path) and is_file(source)):
        return Freshness(False, f"its kernel cannot be loaded any more: {path} or its .cu is gone")
    options = record.provenance.compile_options
    given = [option[2:].partition("=") for option in options if option.startswith("-D")]
    defines = {name: value for name, _, value in given}
    try:
        if record.rung_hash is not None and record.rung_hash not in python_hashes(path):
            return Freshness(False, f"{path.name}, where its launch stands, has changed since")
        text = read_given(source)
        text = json.dumps(text) if source.suffix == ".py" else text  # as `hashed_text` has it
        found = hash_source(text, defines, (source.resolve().parent, kernels_dir() / "include"))
    except (OSError, ValueError, SyntaxError, tokenize.TokenError) as error:
        return Freshness(False, f"its files cannot be read any more: {error}")
    if found != record.hashes.source_hash:
        return Freshness(False, "the source, a header, a definition or an option has changed since")
    if record.rung_hash is None:
        return Freshness(True, "the source is the same; its launch was not compared")
    return Freshness(True, "the source, headers, definitions, options and launch file are the same")


def _named_source(path: Path) -> Path | None:
    """The file that a rung's ``.py`` names as its source, which nobody runs here; None where it
    names none."""
    try:
        calls = (one for one in ast.walk(ast.parse(read_given(path))) if isinstance(one, ast.Call))
        told = [one.value for call in calls for one in call.keywords if one.arg == "source"]
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    names = [one.value for one in told if isinstance(one, ast.Constant)]
    return path.with_name(names[0]) if names and isinstance(names[0], str) else None


def _baseline_freshness(record: Record, now: CodeNow) -> Freshness:
    own = {one.id: one.path for one in own_baselines()}
    shipped = baselines_dir(record.problem.operation) / f"{record.name}.py"
    path = own.get(record.name, shipped)
    if not path.is_file():
        return Freshness(False, "the baseline's file is gone")
    if record.hashes.source_hash in now.baseline_hashes(path):
        return Freshness(True, "the baseline's file is the same")
    return Freshness(False, "the baseline's file has changed since")


@functools.cache
def _same_code() -> list[dict[str, str]]:
    """Hashes of a library's file before and after an edit that changed nothing of what is timed."""
    text = (kernels_dir() / "baselines" / "same_code.toml").read_text("utf-8")
    edits: list[dict[str, str]] = tomllib.loads(text)["edit"]
    return edits


def same_launches(kept: Sequence[Launch], now: Sequence[Launch]) -> bool:
    """Whether what a record keeps of its launches is what a rung launches now, types included."""
    return list(map(_identity, kept)) == list(map(_identity, now))


def _identity(launch: Launch) -> tuple[Any, ...]:
    arguments = tuple(map(write_argument, launch.args))
    return (launch.entry, launch.grid, launch.block, launch.smem_bytes, arguments)


def stale_records(records: Iterable[Record]) -> list[Record]:
    """The records that no longer belong to the code."""
    now = CodeNow()
    return [record for record in records if not freshness(record, now).fresh]


# ------------------------------------------- shipped rungs that nobody has measured yet


@dataclass(frozen=True)
class Pending:
    """A rung whose record is still to be made."""

    rung: str  # its id
    since: datetime.date  # the day it was listed
    reason: str  # why there is none, in words

    def __str__(self) -> str:
        return f"{self.rung}: pending since {self.since:%Y-%m-%d}, {self.reason}"


def read_pending(path: Path | None = None) -> dict[str, Pending]:
    """The listed rungs by id; None reads the project's own list."""
    path = path or kernels_dir() / "pending.toml"
    found = {}
    for entry in tomllib.loads(path.read_text("utf-8")).get("pending", []):
        whole = set(entry) == {"rung", "since", "reason"}
        if not (whole and isinstance(entry["since"], datetime.date)):
            what = f"An entry of {path.name} is incomplete: {entry}."
            raise LabError(what, "each has a rung, a date and a reason", "complete it")
        found[load_rung(entry["rung"]).id] = Pending(**entry)
    return found


def unmeasured(rungs: Iterable[Rung], records: Iterable[Record]) -> list[str]:
    """Ids of the rungs without a fresh record on any GPU."""
    now, every = CodeNow(), list(records)
    return [
        rung.id
        for rung in rungs
        if not any(one.is_candidate(rung.id) and freshness(one, now).fresh for one in every)
    ]
