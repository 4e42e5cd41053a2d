"""Compare what the project says now with its goldens (``make goldens``).

python -m tools.goldens                      everything
python -m tools.goldens --only json          one kind: json, forecast, hash, median
python -m tools.goldens --match "r03*h200"   those whose key contains this, with * and ?
python -m tools.goldens --draw 60            a sample; says its seed, --seed repeats it
python -m tools.goldens --write              keep what is said now
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
from typing import Any

from labtools.problem import LabError

from . import store
from .cases import GoldenCase, draw, every_case, possible
from .changes import read_changes
from .compare import ask_all, compare, default_jobs

LARGEST_SEED = 2**31


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or write; 0 if everything is as it was or is listed as a change."""
    chosen = _read(arguments)
    try:
        return _run(chosen)
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
    return parser.parse_args(arguments)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.show:
        return _show(chosen.show)
    kinds = chosen.only or store.GOLDEN_KINDS
    cases, left_out = possible(kinds)
    if chosen.match:
        cases = [one for one in cases if fnmatch.fnmatchcase(one.key, f"*{chosen.match}*")]
    if chosen.draw:
        seed = random.randrange(LARGEST_SEED) if chosen.seed is None else chosen.seed
        print(f"drawn with --seed {seed}", flush=True)
        cases = draw(cases, chosen.draw, seed)
    for why, count in left_out.items():
        print(f"{count} left out: {why}", flush=True)
    if chosen.write:
        return _write(cases, kinds, chosen, bool(left_out))
    goldens = {
        (kind, key): value for kind in kinds for key, value in store.read_goldens(kind).items()
    }
    changes = read_changes()
    whole = not (chosen.match or chosen.draw or left_out)
    began = time.monotonic()
    wanted = [one for one in changes if one.kind == "*" or one.kind in kinds]
    answers = ask_all(cases, chosen.jobs, _progress)
    verdict = compare(goldens, answers, wanted, whole)
    if set(kinds) != set(store.GOLDEN_KINDS):
        verdict.unused = [one for one in verdict.unused if one.kind != "*"]
    print(f"{verdict} ({time.monotonic() - began:.0f} s)")
    return 0 if verdict.ok else 1


def _write(
    cases: Sequence[GoldenCase],
    kinds: Sequence[str],
    chosen: argparse.Namespace,
    some_left_out: bool,
) -> int:
    if chosen.draw or some_left_out:
        raise LabError(
            "The goldens are not written.",
            "only some of them can be asked for here",
            "write them where nothing is left out, all of them or those that --match names",
        )
    found: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    for (kind, key), value in ask_all(cases, chosen.jobs, _progress):
        found[kind][key] = value
    for kind, goldens in found.items():
        kept = store.read_goldens(kind) if chosen.match and store.path_of(kind).is_file() else {}
        changed = store.write(kind, kept | goldens)
        path = store.path_of(kind)
        print(
            f"{path.relative_to(store.ROOT)}: {len(goldens)} goldens, "
            f"{path.stat().st_size} bytes{'' if changed else ', as before'}"
        )
    return 0


def _show(key: str) -> int:
    found = [case for (_, name), case in every_case().items() if name == key]
    for case in found:
        print(f"{case.kind}: {case.key}")
        print("kept:", json.dumps(store.read_goldens(case.kind).get(key), indent=1))
        print("now:", json.dumps(case.answer(), indent=1))
    if not found:
        print(f"there is no golden {key!r}", file=sys.stderr)
    return 0 if found else 1


def _progress(done: int, count: int) -> None:
    if done % 50 == 0 or done == count:
        print(f"{done} of {count}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
