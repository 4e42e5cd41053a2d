"""Write the machine code listings that travel with the project (``make listings``).

They let a machine without a compiler (macOS) read and forecast the shipped kernels. They are
written with the compiler that the lock file pins, so that one kernel is one listing everywhere.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from labtools.problem import LabError, Rung, Workload, list_rungs, list_studies
from labtools.toolchain import find_compiler
from labtools.toolchain.listings import (
    StoredListing,
    listings_dir,
    make_stored,
    stored_path,
    write_stored,
)

ROOT = Path(__file__).resolve().parent.parent
MAIN_ARCH = "sm_90"
"""The architecture of the records: every knob is stored for it."""
OTHER_ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120")
HEAD_DIM, OTHER_HEAD_DIM = 128, 64


def workload_of(head_dim: int) -> Workload:
    """A workload of that head dimension; nothing else of it reaches the compiler."""
    return Workload.parse(f"8,32,8,4096,{head_dim}")


def planned(rung: Rung, arch: str, in_ladder: bool) -> Iterator[tuple[Workload, dict[str, int]]]:
    """Workloads and knobs whose listings are stored for a rung and an architecture.

    On the main architecture: every combination of knobs of a rung of the ladder; of a study kernel
    the defaults and every change of one knob; and the defaults at the other head dimension. On the
    others: the defaults of the ladder at both.
    """
    if not rung.runs_on(arch):
        return
    defaults = rung.resolve_knobs()
    main, other = workload_of(HEAD_DIM), workload_of(OTHER_HEAD_DIM)
    wanted: list[tuple[Workload, dict[str, int]]] = []
    if arch != MAIN_ARCH:
        wanted += [(main, defaults), (other, defaults)] if in_ladder else []
    elif in_ladder:
        wanted += [(main, knobs) for knobs in rung.knob_combinations()]
        wanted.append((other, defaults))
    else:
        wanted.append((main, defaults))
        for knob in rung.knobs:
            changed = [value for value in knob.choices if value != knob.default]
            wanted += [(main, {**defaults, knob.name: value}) for value in changed]
    for workload, knobs in wanted:
        if rung.supports(workload) is None:
            yield workload, knobs


def kernels() -> Iterator[tuple[Rung, bool]]:
    """Every kernel that has listings, and whether it is a rung of the ladder."""
    for rung in list_rungs():
        yield rung, True
    for rung in list_studies():
        yield rung, False


def locked_nvrtc(root: Path = ROOT) -> str:
    """The NVRTC that the lock file pins, for example ``13.0``.

    Raises:
        LabError: the lock file pins none.
    """
    lock = (root / "requirements.lock").read_text("utf-8")
    found = re.search(r"^nvidia-cuda-nvrtc==(\d+\.\d+)", lock, re.MULTILINE)
    if found is None:
        raise LabError(
            "requirements.lock pins no NVRTC.",
            "listings are written with the compiler that everybody has",
            "run make lock",
        )
    return found[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile and write every planned listing; remove files that are no longer planned."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="RUNG", help="one kernel by id; the others stay")
    chosen = parser.parse_args(arguments)
    try:
        locked, here = locked_nvrtc(), find_compiler()
        if here.version != locked:
            raise LabError(
                "The listings are not written.",
                f"requirements.lock pins NVRTC {locked}, and here is {here}",
                "run make listings, which installs what is pinned",
            )
        write_all(chosen.only)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def write_all(only: str | None = None) -> None:
    """Write the listings, and say what changed."""
    kept = set()
    count = 0
    for rung, in_ladder in kernels():
        for arch in (MAIN_ARCH, *OTHER_ARCHS):
            path = stored_path(rung.id, arch)
            plan = list(planned(rung, arch, in_ladder))
            if not plan:
                continue
            kept.add(path)
            count += len(plan)
            if only not in (None, rung.id):
                continue
            listings = _compile(rung, plan, arch)
            if write_stored(path, arch, listings):
                size = path.stat().st_size
                print(f"{path.relative_to(ROOT)}: {len(listings)} listings, {size} bytes")
    for path in set(listings_dir().glob("*/*.json.gz")) - kept:
        path.unlink()
        print(f"{path.relative_to(ROOT)}: removed, no kernel needs it")
    print(f"{count} listings in {len(kept)} files")


def _compile(
    rung: Rung, plan: Sequence[tuple[Workload, dict[str, int]]], arch: str
) -> list[StoredListing]:
    return [make_stored(rung, workload, knobs, arch) for workload, knobs in plan]


if __name__ == "__main__":
    raise SystemExit(main())
