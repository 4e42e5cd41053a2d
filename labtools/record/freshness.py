"""Does a record still belong to the code that stands in the files?

A record of a rung belongs to its machine code, launch, knobs, workload and protocol. Equal text
with equal headers, definitions and options is the same code, and needs no compiler to say so; the
text is compared without comments and layout. Where the text differs, the machine code decides, if
this compiler is the one that made the record: another one may give other code for the same text.
A baseline's code is its own file; the library's version is part of the record's provenance and is
shown beside the number.
"""

from __future__ import annotations

import hashlib
import io
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labtools.problem import LabError, Launch, Rung, kernels_dir, load_rung

from .schema import LaunchShape, Record

PROTOCOLS = ("graph-1", "events-1", "stream-1")
"""The ways of timing that are current: replays of a CUDA graph, events round plain launches where
a call cannot be captured, and plain launches by intent, from an idle GPU on."""

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Freshness:
    """Whether a record is about the code as it stands.

    Args:
        fresh: it is.
        reason: one sentence: what was compared, or what changed.
    """

    fresh: bool
    reason: str


def freshness(record: Record) -> Freshness:
    """Compare a record with the code it is about. Compiles at most once a kernel; see DESIGN."""
    if record.protocol not in PROTOCOLS:
        return Freshness(
            False, f"it was timed by protocol {record.protocol}; the current one is {PROTOCOLS[0]}"
        )
    if record.kind == "baseline":
        return _baseline_freshness(record)
    try:
        rung = load_rung(_where_is(record))
        launches = rung.launches(record.problem, record.knobs)
    except LabError as error:
        return Freshness(False, f"its kernel cannot be loaded any more: {error.what}")
    return rung_freshness(record, rung, launches)


def _where_is(record: Record) -> str | Path:
    if record.rung_path is not None:
        return Path(record.rung_path)
    if record.kind == "ceiling":
        return kernels_dir() / "microbench" / f"{record.name}.py"
    return record.name


def rung_freshness(record: Record, rung: Rung, launches: list[Launch]) -> Freshness:
    """`freshness` against a given rung, for example one edited on a page."""
    from labtools.toolchain import kernel_hashes
    from labtools.toolchain.sources import hash_source

    if not _same_launches(record.launches, launch_shapes(launches)):
        return Freshness(False, "the launch has changed since")
    defines = rung.defines(record.problem, record.knobs)
    text_hash = hash_source(rung.source_text, defines, rung.include_dirs)
    if text_hash == record.hashes.source_hash:
        return Freshness(True, "the source, headers, definitions and options are the same")
    changed = "the source, a header, a definition or an option has changed since"
    try:
        now = kernel_hashes(rung, record.problem, record.knobs, record.provenance.arch)
    except LabError as error:
        return Freshness(False, f"the kernel does not compile any more: {error.what}")
    if now.sass_hash is None or now.nvrtc_version != record.hashes.nvrtc_version:
        there, here = record.hashes.nvrtc_version, now.nvrtc_version or "no compiler"
        return Freshness(False, f"{changed} (recorded with NVRTC {there}; here is {here})")
    if now.sass_hash == record.hashes.sass_hash:
        return Freshness(True, "the source has changed since, its machine code is the same")
    return Freshness(False, changed + ", and with it the machine code")


def _baseline_freshness(record: Record) -> Freshness:
    path = kernels_dir() / "baselines" / f"{record.name}.py"
    if not path.is_file():
        return Freshness(False, "the baseline's file is gone")
    if hash_python_file(path) == record.hashes.source_hash:
        return Freshness(True, "the baseline's file is the same")
    return Freshness(False, "the baseline's file has changed since")


def hash_python_file(path: Path) -> str:
    """SHA-256 of a Python file's words, without comments, docstrings and layout."""
    words: list[str] = []
    statement: list[tokenize.TokenInfo] = []
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            # A statement that is one string is a docstring.
            if any(part.type != tokenize.STRING for part in statement):
                words += [part.string for part in statement]
                words.append("\n")
            statement = []
        elif token.type in (tokenize.INDENT, tokenize.DEDENT):
            words.append(tokenize.tok_name[token.type])
        elif token.type not in _NOT_CODE:
            statement.append(token)
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def launch_shapes(launches: list[Launch]) -> tuple[LaunchShape, ...]:
    """The part of the launches that a record keeps."""
    return tuple(
        LaunchShape(
            entry=launch.entry,
            grid=launch.grid,
            block=launch.block,
            smem_bytes=launch.smem_bytes,
            args=tuple(
                arg if isinstance(arg, str) else f"{arg.dtype} {arg.item()!r}"
                for arg in launch.args
            ),
        )
        for launch in launches
    )


def _same_launches(kept: tuple[LaunchShape, ...], now: tuple[LaunchShape, ...]) -> bool:
    if len(kept) != len(now):
        return False
    return all(
        old == (new if old.args is not None else new.model_copy(update={"args": None}))
        for old, new in zip(kept, now, strict=True)
    )


def stale_records(
    records: list[Record], check: Callable[[Record], Freshness] = freshness
) -> list[tuple[Record, Freshness]]:
    """The records that no longer belong to the code, each with the reason."""
    checked = [(record, check(record)) for record in records]
    return [(record, answer) for record, answer in checked if not answer.fresh]
