"""Where, when and with what a live measurement was made."""

from __future__ import annotations

import hashlib
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from labtools.problem import kernels_dir, repository_root
from labtools.record import Clocks, Provenance, Reading, slug_of_gpu
from labtools.toolchain import DeviceInfo
from labtools.toolchain.options import COMMON_OPTIONS, CUPY_ADDED_OPTIONS, define_options

_CODE = (".py", ".cu", ".cuh", ".h")
_VERSIONS = [
    *("cuda", "torch", "cudnn", "flashinfer", "flash_attention_3", "xformers", "cupy", "numpy"),
    "python",
]


def make_provenance(
    device: DeviceInfo,
    environment: Mapping[str, str | None],
    clocks: Sequence[Clocks | None],
    defines: Mapping[str, str] | None = None,
    nvrtc: str | None = None,
) -> Provenance:
    """What the device, the child (its versions, a reading a process) and this process know.

    A baseline, which is not compiled here, has no ``defines``.
    """
    options: tuple[str, ...] = ()
    if defines is not None:
        options = (*COMMON_OPTIONS, *CUPY_ADDED_OPTIONS, *define_options(defines))
    return Provenance(
        gpu=device.name,
        gpu_slug=slug_of_gpu(device.name),
        arch=device.arch,
        num_sms=device.sm_count,
        l2_bytes=device.l2_bytes,
        memory_bytes=device.memory_bytes,
        driver=device.driver_version,
        nvrtc=nvrtc,
        compile_options=options,
        clocks=merge_clocks(clocks),
        date=datetime.now(UTC).replace(microsecond=0),
        commit=git_commit(),
        tree_hash=hash_tree(),
        command=describe_command(sys.argv),
        **{name: environment.get(name) for name in _VERSIONS},
    )


def merge_clocks(clocks: Sequence[Clocks | None]) -> Clocks | None:
    """One reading over all processes; None where no process could read."""
    read = [one for one in clocks if one is not None and one.source]
    merged: dict[str, Reading | None] = {}
    for name in ("sm_mhz", "memory_mhz", "temperature_c"):
        parts = [part for part in (getattr(one, name) for one in read) if part is not None]
        merged[name] = None
        if parts:
            merged[name] = Reading(
                low=min(part.low for part in parts),
                median=statistics.median(part.median for part in parts),
                high=max(part.high for part in parts),
            )
    if not any(merged.values()):
        return None
    return Clocks(source=read[0].source, **merged)


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """The commit of the working tree, ``+changes`` if it was changed, or ``LABTOOLS_COMMIT``."""
    if told := os.environ.get("LABTOOLS_COMMIT"):
        return told
    root = repository_root()

    def ask(*arguments: str) -> str | None:
        command = ["git", "-C", str(root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = ask("rev-parse", "HEAD")
    if not commit:
        return None
    changed = ask("status", "--porcelain", "--", "labtools", "kernels/decode", "kernels/include")
    return f"{commit}+changes" if changed else commit


@lru_cache(maxsize=1)
def hash_tree() -> str:
    """SHA-256 of labtools and kernels as they lie on disk."""
    return hash_folders([repository_root() / "labtools", kernels_dir()])


def hash_folders(folders: Iterable[Path]) -> str:
    """SHA-256 of the code in some folders, names and contents, in order."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in _CODE and path.is_file():
                digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def describe_command(arguments: Sequence[str]) -> str:
    """The command line without the folders of this machine."""
    if not arguments or not arguments[0] or "ipykernel" in arguments[0]:
        return "a notebook"
    first = Path(arguments[0])
    # ``python -m labtools`` shows as the file that holds the entry point.
    words = [first.parent.name if first.name == "__main__.py" else first.name]
    for argument in arguments[1:]:
        # Also inside --name=/some/folder: only the last part of an absolute path says something.
        words.append(re.sub(r"(^|=)(?:/[^/=]*)*/([^/=]+)/?$", r"\1\2", argument))
    return " ".join(words)
