"""``labtools reset`` and ``labtools sync``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labtools.notebook.pages import find_page, reset_page
from labtools.notebook.sync import SyncedCell, SyncReport, sync

from .outcome import Answer, Status, typed

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class PageReset(Answer):
    """A fresh copy of one page, and where the old one is kept."""

    page: Path
    backup: Path | None

    def show(self, console: Console) -> None:
        """Both paths."""
        console.print(f"fresh copy: {self.page}")
        if self.backup:
            console.print(f"your old copy: {self.backup}")


def reset_copy(page: str) -> PageReset:
    """A fresh copy of one page; the learner's old one is kept."""
    with typed():
        find_page(page)
    made = reset_page(page)
    return PageReset(made.page, made.backup)


@dataclass(frozen=True)
class PagesSynced(Answer):
    """What ``labtools sync`` did, or would do."""

    cells: tuple[SyncedCell, ...]
    written: tuple[str, ...]
    ok: bool
    _report: SyncReport
    _check: bool

    @property
    def status(self) -> Status:
        """A check that finds an old cell ends with status 1."""
        return Status.WRONG if self._check and not self.ok else Status.RIGHT

    def show(self, console: Console) -> None:
        """One line a page."""
        console.print(self._report.describe())


def sync_pages(check: bool) -> PagesSynced:
    """Bring the pages' cells up to ``kernels/``, or only compare."""
    report = sync(check=check)
    return PagesSynced(report.cells, report.written, report.ok, report, check)
