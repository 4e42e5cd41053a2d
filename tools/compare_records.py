"""``python -m tools.compare_records REF``: are the shipped records what they were at a commit?

Both sides read their own records with their own code. Medians, hashes, knobs and freshness of each
must be equal; what differs is printed, and the exit status is 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.install import ROOT

TELL = """
import json
from labtools.record import freshness, median_us, read_records, shipped_records_dir
from labtools.record.staleness import CodeNow
now, folder, told = CodeNow(), shipped_records_dir(), {}
for path in sorted(folder.rglob("*.jsonl.gz")):
    records, problems = read_records(path)
    for number, record in enumerate(records):
        told[f"{path.relative_to(folder)} {number} {record.candidate}"] = {
            "median_us": [record.median_us, median_us(record.samples)],
            "hashes": [record.hashes.source_hash, record.hashes.sass_hash, record.rung_hash],
            "knobs": record.every_knob,
            "workload": record.problem_key,
            "bits": record.kv_bits,
            "limits": repr(record.limits),
            "fresh": freshness(record, now).fresh,
        }
    for number, problem in enumerate(problems):
        told[f"{path.relative_to(folder)} problem {number}"] = {"what": str(problem)}
print(json.dumps(told))
"""


def told_by(root: Path) -> dict[str, dict[str, Any]]:
    """What the code under a folder says of the records there, by file, number and candidate."""
    done = subprocess.run(
        [sys.executable, "-c", TELL],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONSAFEPATH": ""},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def differences(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """One line for each record that is gone, new or another."""
    found = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            found.append(f"{name}: {'new' if old is None else 'gone'}")
        else:
            changed = [key for key in old if old[key] != new[key]]
            found += [f"{name}: {key} was {old[key]}, is {new[key]}" for key in changed]
    return found


def main(ref: str) -> int:
    """Compare the working tree with a commit."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", ref], cwd=ROOT, stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        before = told_by(Path(folder))
    now = told_by(ROOT)
    found = differences(before, now)
    print("\n".join(found[:50]))
    stale = sum(not told.get("fresh", True) for told in now.values())
    print(f"{len(now)} records, {len(found)} differences from {ref}, {stale} stale")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
