"""``labtools reset`` and ``labtools sync``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from .outcome import Outcome, Status, typed

if TYPE_CHECKING:
    from rich.console import Console


def reset_copy(page: str) -> Outcome:
    """A fresh copy of one page; the learner's old one is kept."""
    from labtools.pages import find_page, reset_page

    with typed():
        find_page(page)
    done = reset_page(page)
    data = {"page": str(done.page), "backup": str(done.backup) if done.backup else None}

    def show(console: Console) -> None:
        console.print(f"fresh copy: {done.page}", markup=False)
        if done.backup:
            console.print(f"your old copy: {done.backup}", markup=False)

    return Outcome(data, show)


def sync_pages(check: bool) -> Outcome:
    """Bring the pages' cells up to ``kernels/``, or only compare."""
    from labtools.sync import sync

    report = sync(check=check)
    data = {
        "cells": [asdict(cell) for cell in report.cells],
        "written": list(report.written),
        "ok": report.ok,
    }
    status = Status.WRONG if check and not report.ok else Status.RIGHT
    return Outcome(data, lambda console: console.print(report.describe(), markup=False), status)
