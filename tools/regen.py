"""Write anew what follows from sources alone (``make regen``), and say what changed.

What was written of the same sources the last time is passed over.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labtools.notebook.sync import sync
from labtools.problem import LabError
from tools import readme_table, write_band, write_listings, write_opcodes
from tools.execute import named_files
from tools.install import ROOT, fingerprint

NOTED = ROOT / "_build" / "regen.json"
"""What each step was made of the last time."""
COMPILED = "kernels requirements.lock labtools/problem labtools/toolchain labtools/measure/campaign"
LAB_8 = "labtools/notebook/labs/lab08_ablation"
FORECAST = f"{COMPILED} labtools/record labtools/predict labtools/derive"


@dataclass(frozen=True)
class Generated:
    """One kind of file that is generated."""

    name: str
    write: Callable[[], Any]
    sources: str  # files and folders that it follows from
    written: str  # files and folders that it writes into


GENERATED = (
    Generated("cells", sync, "kernels labtools/notebook book labs", "book labs"),
    Generated(
        "listings",
        write_listings.write_all,
        f"{COMPILED} tools/write_listings.py",
        "kernels/listings",
    ),
    Generated("band", write_band.write, f"{FORECAST} tools/write_band.py", "labtools/predict"),
    Generated(
        "README",
        readme_table.write,
        f"{FORECAST} tools/readme_table.py",
        f"README.md {readme_table.PLOT}",
    ),
    Generated(
        "opcodes",
        write_opcodes.write,
        f"{COMPILED} labtools/optimize {LAB_8} tools/write_opcodes.py",
        "kernels/grids",
    ),
)


def hashes_of(names: str) -> dict[str, str]:
    """The hash of each file, by its path in the repository."""
    parts = named_files(ROOT, names.split())
    paths = [part for part in parts if isinstance(part, Path)]
    return {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def mark_of(step: Generated) -> str:
    """One hash of all that a step reads and writes."""
    return fingerprint(*named_files(ROOT, [*step.sources.split(), *step.written.split()]))


def main() -> int:
    """Take the steps whose sources or files have changed; 0 where each could be taken."""
    noted = json.loads(NOTED.read_text()) if NOTED.is_file() else {}
    changed: list[str] = []
    for step in GENERATED:
        before = hashes_of(step.written)
        if noted.get(step.name) == mark_of(step):
            continue
        print(f"Writing the {step.name}.", flush=True)
        try:
            step.write()
        except LabError as error:
            print(error, file=sys.stderr)
            return 1
        after = hashes_of(step.written)
        different = sorted(
            name for name in {**before, **after} if before.get(name) != after.get(name)
        )
        changed += different
        for name in different:
            print(f"  {name}: {'written' if name in after else 'removed'}")
        noted[step.name] = mark_of(step)
        NOTED.parent.mkdir(exist_ok=True)
        NOTED.write_text(json.dumps(noted, indent=1))
    print(f"{len(changed)} files changed." if changed else "Nothing has changed.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
