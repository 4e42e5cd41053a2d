"""Compare what the project says now with its goldens (``make goldens``).

python -m tools.goldens                      everything
python -m tools.goldens --only json          one kind: json, forecast, hash, median
python -m tools.goldens --match "r03*h200"   those whose key contains this, with * and ?
python -m tools.goldens --draw 60            a sample; says its seed, --seed repeats it
python -m tools.goldens --write              keep what is said now; the list of changes begins anew
python -m tools.goldens --show KEY           the golden with this key, and what is said now
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labtools.problem import LabError
from labtools.toolchain.progress import ProgressLine

from . import store
from .cases import GoldenCase, draw, every_case, possible
from .changes import CHANGES, Change, begin_anew, read_changes, take_out
from .compare import ask_all, compare, default_jobs

LARGEST_SEED = 2**31


def main(arguments: Sequence[str] | None = None, folder: Path = store.FOLDER) -> int:
    """Compare or write the goldens of a folder; 0 if all is as it was or is listed as a change."""
    chosen = _read(arguments)
    try:
        return _run(chosen, folder)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools.goldens", description=(__doc__ or "").splitlines()[0]
    )
    add = parser.add_argument
    add("--only", choices=store.GOLDEN_KINDS, action="append", help="one kind; repeatable")
    add("--match", metavar="PATTERN", help="goldens whose key contains this")
    add("--draw", type=int, metavar="N", help="a sample of so many")
    add("--seed", type=int, help="of the sample; drawn anew and printed without it")
    add("--jobs", type=int, default=default_jobs(), help="processes")
    add("--write", action="store_true", help="keep what is said now")
    add("--show", metavar="KEY", help="a golden, and what is said now")
    chosen = parser.parse_args(arguments)
    if chosen.draw is not None and chosen.draw < 1:
        parser.error("a sample has one golden or more")
    return chosen


def _run(chosen: argparse.Namespace, folder: Path) -> int:
    if chosen.show:
        return _show(chosen.show, folder)
    kinds = chosen.only or store.GOLDEN_KINDS
    cases, left_out = possible(kinds)
    if chosen.match:
        cases = [one for one in cases if fnmatch.fnmatchcase(one.key, f"*{chosen.match}*")]
    if not cases:
        raise LabError(
            "Nothing would be compared.",
            f"no golden of kind {' or '.join(kinds)} can be asked for here"
            + (f" and has a key like {chosen.match!r}" if chosen.match else ""),
            "another --match; without it all are asked for",
        )
    if chosen.draw is not None:
        seed = random.randrange(LARGEST_SEED) if chosen.seed is None else chosen.seed
        print(f"drawn with --seed {seed}", flush=True)
        cases = draw(cases, chosen.draw, seed)
    for why, count in left_out.items():
        print(f"{count} left out: {why}", flush=True)
    if chosen.write:
        return _write(cases, kinds, chosen, bool(left_out), folder)
    goldens = {
        (kind, key): value
        for kind in kinds
        for key, value in store.read_goldens(kind, folder).items()
    }
    changes = read_changes(folder / CHANGES)
    whole = not (chosen.match or chosen.draw or left_out)
    began = time.monotonic()
    wanted = [one for one in changes if one.kind in kinds]
    with ProgressLine() as progress:
        verdict = compare(goldens, ask_all(cases, chosen.jobs, progress), wanted, whole)
    print(f"{verdict} ({time.monotonic() - began:.0f} s)")
    return 0 if verdict.ok else 1


def _write(
    cases: Sequence[GoldenCase],
    kinds: Sequence[str],
    chosen: argparse.Namespace,
    some_left_out: bool,
    folder: Path,
) -> int:
    if chosen.draw or some_left_out:
        raise LabError(
            "The goldens are not written.",
            "only some of them can be asked for here",
            "write them where nothing is left out, all of them or those that --match names",
        )
    everything = not chosen.match and set(kinds) == set(store.GOLDEN_KINDS)
    if not everything:
        read_changes(folder / CHANGES)  # before all the work: it is refused where it cannot be read
    found: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    with ProgressLine() as progress:
        for (kind, key), value in ask_all(cases, chosen.jobs, progress):
            found[kind][key] = value
    for kind, goldens in found.items():
        path = store.path_of(kind, folder)
        kept = store.read_goldens(kind, folder) if chosen.match and path.is_file() else {}
        changed = store.write(kind, kept | goldens, folder)
        print(
            f"{path.name}: {len(goldens)} goldens, "
            f"{path.stat().st_size} bytes{'' if changed else ', as before'}"
        )

    def written(change: Change) -> bool:
        goldens = found.get(change.kind, {})
        return change.key in goldens or (change.kind in found and not chosen.match)

    if everything:
        begin_anew(folder / CHANGES)
    else:
        take_out(folder / CHANGES, written)
    return 0


def _show(key: str, folder: Path) -> int:
    found = [case for (_, name), case in every_case().items() if name == key]
    for case in found:
        print(f"{case.kind}: {case.key}")
        print("kept:", json.dumps(store.read_goldens(case.kind, folder).get(key), indent=1))
        print("now:", json.dumps(case.answer(), indent=1))
    if not found:
        print(f"there is no golden {key!r}", file=sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main())
