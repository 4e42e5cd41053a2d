"""Compare what the project says now with its goldens (``make goldens``), or keep what it says.

python -m tools.goldens                      everything
python -m tools.goldens --only json          one kind: json, forecast, hash, median,
                                             prepared or screens
python -m tools.goldens --match "r03*h200"   those whose key contains this, with * and ?
python -m tools.goldens --draw 60            a sample; says its seed, --seed repeats it
python -m tools.goldens --accept             keep what is said now
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from tools.install import ROOT

from . import kept
from .cases import every_case

SCREENS = "screens"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or keep; 0 if all is as it was, or was kept."""
    parser = argparse.ArgumentParser(
        prog="tools.goldens", description=(__doc__ or "").splitlines()[0]
    )
    kinds = (*kept.GOLDEN_KINDS, SCREENS)
    parser.add_argument("--only", choices=kinds, action="append", help="one kind; repeatable")
    parser.add_argument("--match", metavar="PATTERN", help="goldens whose key contains this")
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="a sample of so many")
    parser.add_argument("--seed", type=int, help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--accept", action="store_true", help="keep what is said now")
    chosen = parser.parse_args(arguments)
    if chosen.accept and chosen.draw:
        parser.error("a sample is not kept: name what is with --only and --match")
    if chosen.draw and chosen.only == [SCREENS]:
        parser.error("screens are not drawn: name some with --match")
    only = chosen.only or kinds
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if SCREENS in only and not chosen.draw:
        command.append("tests/goldens/test_screens.py")
    if values := [kind for kind in only if kind != SCREENS]:
        command += ["tests/goldens/test_values.py", "--goldens", ",".join(values)]
        command += ["--draw", str(chosen.draw)]
        command += ["--seed", str(chosen.seed)] if chosen.seed is not None else []
    command += ["--match", chosen.match] if chosen.match else []
    command += ["-n", str(min(4, chosen.jobs)), "--dist", "worksteal"] if chosen.jobs > 1 else []
    command += ["--snapshot-update"] if chosen.accept else []
    status = subprocess.run(command, cwd=ROOT).returncode
    if chosen.accept and not chosen.match:
        for kind in values:
            path = kept.path_of(kind)
            held = kept.read_goldens(path)
            there = {key: held[key] for key in held if (kind, key) in every_case()}
            if len(there) < len(held):
                print(f"{path.name}: {len(held) - len(there)} goldens of what is gone are dropped")
                kept.write_goldens(path, there)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
