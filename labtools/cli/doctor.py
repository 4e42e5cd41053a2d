"""``labtools doctor``: every link from source to measurement, and what works without it."""

from __future__ import annotations

import platform
import shutil
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labtools import __version__
from labtools.problem import LabError, repository_root
from labtools.problem.limits import MIB
from labtools.record import DamagedRecordWarning, RecordStore
from labtools.toolchain import Prerequisite, cuda_status
from labtools.toolchain.cache import SIZE_VARIABLE, cache_dir, cache_state, size_of
from labtools.toolchain.device import DeviceInfo

from .outcome import Answer, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress

FEW_FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Examined(Answer):
    """What is here and what is missing. A missing part is a finding, not a failure."""

    labtools: str
    python: str
    system: str
    executable: str
    can_compile: bool
    can_run_live: bool
    can_run_on_cpu: bool
    device: DeviceInfo | None
    links: tuple[Prerequisite, ...]
    missing: tuple[str, ...]

    def show(self, console: Console) -> None:
        """One line a link, with why and what still works where it is missing."""
        from rich.text import Text

        rows = []
        for link in self.links:
            lines = [link.found]
            for label, text in (("why", link.why), ("still works", link.still_works)):
                lines += [f"{label}: {text}"] if text else []
            if link.fix and not link.ok:
                lines.append(f"to fix: {link.fix}")
            mark = "here" if link.ok else "missing"
            rows.append((mark, link.name, Text("\n".join(lines))))
        console.print(f"labtools {self.labtools}, Python {self.python}, {self.system}")
        columns = ("state", "link", "found")
        print_table(console, columns, rows, whole=("state", "link"), headed=False)
        for can, text in (
            (self.can_compile, "compile for any GPU"),
            (self.can_run_on_cpu, "check kernels on the CPU"),
            (self.can_run_live, "run and time kernels on a GPU"),
        ):
            console.print(f"{'can' if can else 'cannot'} {text} here")


def examine(progress: Progress) -> Examined:
    """Look at the compiler, the GPU, the tools, the records and the learner's files."""
    progress("looking for the compiler, the GPU and the tools")
    status = cuda_status()
    progress("reading the records and the journal")
    of_the_lab = (_records_link(), _journal_link(), _disk_link(), _cache_link(), _loop_link())
    links = (*_system_links(platform.system()), *status.links, *of_the_lab)
    return Examined(
        labtools=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        executable=sys.executable,
        can_compile=status.can_compile,
        can_run_live=status.can_run_live,
        can_run_on_cpu=status["c++"].ok,
        device=status.device,
        links=links,
        missing=tuple(link.name for link in links if not link.ok),
    )


def _system_links(system: str) -> tuple[Prerequisite, ...]:
    """What there is to say of the operating system: nothing, unless it is Windows itself."""
    if system != "Windows":
        return ()
    return (
        Prerequisite(
            "system",
            False,
            "Windows",
            "make, the CPU runner and the measuring children are made for Linux",
            "reading the static site in any browser",
            "take WSL2, a Linux inside Windows: wsl --install -d Debian in PowerShell, then follow "
            "README.md there; the NVIDIA driver of Windows serves it, and none is installed inside",
        ),
    )


def _records_link() -> Prerequisite:
    store = RecordStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedRecordWarning)
        found = store.load()
    gpus = sorted({record.provenance.gpu for record in found})
    text = f"{len(found)} records" + (f" of {', '.join(gpus)}" if gpus else "")
    if store.problems:
        why = "; ".join(f"{problem.what} {problem.why}" for problem in store.problems[:3])
        more = f" and {len(store.problems) - 3} more" if len(store.problems) > 3 else ""
        return Prerequisite("records", False, text, why + more, store.problems[0].still_works)
    if not found:
        return Prerequisite(
            "records",
            False,
            "no records",
            "neither kernels/records nor work/records holds one",
            "everything but the recorded measurements",
            "run labtools record on a machine with a GPU",
        )
    return Prerequisite("records", True, text)


def _journal_link() -> Prerequisite:
    try:
        from labtools.record.journal import Journal

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            journal = Journal()
            rows = journal.history()
    except LabError as error:
        return Prerequisite("journal", False, error.what, error.why, error.still_works)
    text = f"{len(rows)} predictions in {journal.lines}"
    if journal.notices:
        why = " ".join(journal.notices)
        return Prerequisite("journal", False, text, why, "the journal itself")
    return Prerequisite("journal", True, text)


def _disk_link() -> Prerequisite:
    free = shutil.disk_usage(repository_root()).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < FEW_FREE_BYTES:
        why, fix = "saving pages and records may fail", "make room on this disk"
        return Prerequisite("disk", False, text, why, "reading", fix)
    return Prerequisite("disk", True, text)


def _loop_link() -> Prerequisite:
    from labtools.predict.native import is_compiled

    if is_compiled():
        return Prerequisite("forecast", True, "its inner loop is compiled")
    return Prerequisite(
        "forecast",
        False,
        "its inner loop runs as Python",
        "no compiled one fits its text; `make lab` compiles it where there is a C compiler and "
        "Python's header",
        "all forecasts, with the same numbers; those of large workloads take about twice as long",
        "python -m tools.compile_loop, which says what it lacks",
    )


def _cache_link() -> Prerequisite:
    state = cache_state()
    if state.folder is None:
        return Prerequisite(
            "cache",
            False,
            "nothing is kept",
            state.why,
            "everything; code is compiled and forecasts are made anew each time",
            f"unset {SIZE_VARIABLE}, or let XDG_CACHE_HOME name a folder of your own",
        )
    sizes = {("compiled code and forecasts", state.folder): state.bytes}
    for name, what in (
        ("cpu", "executables of the CPU runner"),
        ("cubins", "code for measuring children"),
    ):
        if (folder := cache_dir(name)) is not None:
            sizes[what, folder] = size_of(folder)
    parts = [f"{what}: {size / MIB:.0f} MiB in {where}" for (what, where), size in sizes.items()]
    limit = f"{sum(sizes.values()) / MIB:.1f} MiB of at most {state.limit_bytes / MIB:.0f} MiB"
    return Prerequisite("cache", True, f"{limit} in all; " + "; ".join(parts))
