"""Add the microbenchmarks of a run of some of them to a GPU's shipped record.

labtools microbench --only NAME --out FOLDER
python -m tools.join_microbench FOLDER/microbench.json.gz
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labtools.microbench.run import write_record
from labtools.predict.measured import RECORD_NAME, read_record
from labtools.problem import LabError
from labtools.record import shipped_records_dir
from tools import write_manifest


def join_runs(shipped: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the benchmarks of another run of the same GPU and layout in it."""
    if shipped["schema"] != added["schema"]:
        raise LabError(
            "The two records cannot be joined.",
            f"one has schema {shipped['schema']}, the other {added['schema']}",
            "measure all of them again",
        )
    ours, theirs = shipped["provenance"], added["provenance"]
    if ours["gpu"] != theirs["gpu"]:
        raise LabError(
            "The two records cannot be joined.",
            f"one is of an {ours['gpu']}, the other of an {theirs['gpu']}",
            "a GPU's table holds what was measured on that GPU alone",
        )
    failed = [name for name, one in added["benchmarks"].items() if "samples" not in one]
    if failed:
        raise LabError(
            f"{', '.join(failed)} has no samples.",
            "it failed in that run",
            "measure it again, and join that run",
        )
    joined = {name: {**one, "provenance": theirs} for name, one in added["benchmarks"].items()}
    return {**shipped, "benchmarks": {**shipped["benchmarks"], **joined}}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path, help="what `labtools microbench --out` wrote")
    added = read_record(parser.parse_args(argv).record)
    path = shipped_records_dir() / added["provenance"]["gpu_slug"] / RECORD_NAME
    write_record(path, join_runs(read_record(path), added))
    print(f"{path.name}: {', '.join(added['benchmarks'])}.")
    return write_manifest.main()


if __name__ == "__main__":
    sys.exit(main())
