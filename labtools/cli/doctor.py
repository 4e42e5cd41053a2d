"""``labtools doctor``: every link from source to measurement, and what works without it."""

from __future__ import annotations

import platform
import shutil
import sys
from typing import TYPE_CHECKING, Any

from .outcome import Outcome, Progress

if TYPE_CHECKING:
    from rich.console import Console

FEW_FREE_BYTES = 2 * 1024**3


def examine(progress: Progress) -> Outcome:
    """Look at the compiler, the GPU, the tools, the records and the learner's files.

    A missing part is a finding, not a failure: the status is 0.
    """
    from labtools import __version__
    from labtools.toolchain import cuda_status

    progress("looking for the compiler, the GPU and the tools")
    status = cuda_status()
    progress("reading the records and the journal")
    links = [*status.to_dict()["links"], _records_link(), _journal_link(), _disk_link()]
    data = {
        "labtools": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "executable": sys.executable,
        "can_compile": status.can_compile,
        "can_run_live": status.can_run_live,
        "can_run_on_cpu": status["c++"].ok,
        "device": status.device.to_dict() if status.device else None,
        "links": links,
        "missing": [link["name"] for link in links if not link["ok"]],
    }
    return Outcome(data, lambda console: _show(console, data))


def _link(
    name: str, ok: bool, found: str, why: str = "", still: str = "", fix: str = ""
) -> dict[str, Any]:
    return {"name": name, "ok": ok, "found": found, "why": why, "still_works": still, "fix": fix}


def _records_link() -> dict[str, Any]:
    import warnings

    from labtools.record import DamagedRecordWarning, RecordStore

    store = RecordStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedRecordWarning)
        found = store.load()
    gpus = sorted({record.provenance.gpu for record in found})
    text = f"{len(found)} records" + (f" of {', '.join(gpus)}" if gpus else "")
    if store.problems:
        why = "; ".join(f"{problem.what} {problem.why}" for problem in store.problems[:3])
        more = f" and {len(store.problems) - 3} more" if len(store.problems) > 3 else ""
        return _link("records", False, text, why + more, store.problems[0].still_works)
    if not found:
        return _link(
            "records",
            False,
            "no records",
            "neither kernels/records nor work/records holds one",
            "everything but the recorded measurements",
            "run labtools record on a machine with a GPU",
        )
    return _link("records", True, text)


def _journal_link() -> dict[str, Any]:
    import warnings

    from labtools.problem import LabError

    try:
        from labtools.record.journal import Journal

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            journal = Journal()
            rows = journal.history()
    except LabError as error:
        return _link("journal", False, error.what, error.why, error.still_works)
    text = f"{len(rows)} predictions in {journal.lines}"
    if journal.notices:
        return _link("journal", False, text, " ".join(journal.notices), "the journal itself")
    return _link("journal", True, text)


def _disk_link() -> dict[str, Any]:
    from labtools.problem import repository_root

    free = shutil.disk_usage(repository_root()).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < FEW_FREE_BYTES:
        return _link(
            "disk",
            False,
            text,
            "saving pages and records may fail",
            "reading",
            "make room on this disk",
        )
    return _link("disk", True, text)


def _show(console: Console, data: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for link in data["links"]:
        lines = [link["found"]]
        for label, key in (("why", "why"), ("still works", "still_works"), ("to fix", "fix")):
            if link[key] and not (link["ok"] and key == "fix"):
                lines.append(f"{label}: {link[key]}")
        mark = "here" if link["ok"] else "missing"
        table.add_row(mark, link["name"], Text("\n".join(lines)))
    console.print(f"labtools {data['labtools']}, Python {data['python']}, {data['system']}")
    console.print(table, soft_wrap=False)
    for key, text in (
        ("can_compile", "compile for any GPU"),
        ("can_run_on_cpu", "check kernels on the CPU"),
        ("can_run_live", "run and time kernels on a GPU"),
    ):
        console.print(f"{'can' if data[key] else 'cannot'} {text} here")
