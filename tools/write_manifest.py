"""Write the list of hashes that binds the shipped files of records.

``make record`` ends with it. A file whose records do not agree with themselves is not bound.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from labtools.problem import LabError
from labtools.record import read_records, shipped_records_dir
from labtools.record.trust import MANIFEST, contradictions, hash_file
from labtools.record.whole import write_whole


def manifest_of(folder: Path) -> dict[str, str]:
    """The hash of every file below a folder, by path.

    LabError where records contradict themselves.
    """
    found = {}
    for path in sorted(folder.rglob("*.gz")):
        if path.name.startswith("."):
            continue
        found[path.relative_to(folder).as_posix()] = hash_file(path.read_bytes())
        if path.name.endswith(".jsonl.gz"):
            records, problems = read_records(path)
            wrong = [str(problem) for problem in problems]
            wrong += [why for record in records for why in contradictions(record)]
            if wrong:
                raise LabError(f"{path} cannot be bound.", wrong[0], "measure it again")
    return found


def main() -> int:
    """Write the list, and say what it holds."""
    folder = shipped_records_dir()
    try:
        found = manifest_of(folder)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    write_whole(folder / MANIFEST, (json.dumps(found, indent=1) + "\n").encode())
    print(f"{len(found)} files in {folder / MANIFEST}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
