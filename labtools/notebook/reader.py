"""Is a person at this notebook, can a journal be kept for one, and how is it said what failed?"""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labtools.problem import as_lab_error
from labtools.record.prediction import JournalError

if TYPE_CHECKING:
    import ipywidgets

    from labtools.record.journal import Journal

_SESSION = "JPY_SESSION_NAME"


def reader_present() -> bool:
    """True when a Jupyter server, which sets ``JPY_SESSION_NAME``, started this kernel for a
    notebook that somebody has open; nbclient, nbconvert and the book build do not.
    ``LABTOOLS_READER=0`` or ``1`` overrides."""
    forced = os.environ.get("LABTOOLS_READER", "").strip().lower()
    if forced in ("0", "no", "false", "1", "yes", "true"):
        return forced in ("1", "yes", "true")
    return bool(os.environ.get(_SESSION))


def page_name() -> str:
    """The notebook's file name without its ending, or ``unknown``."""
    return Path(os.environ.get(_SESSION, "")).stem or "unknown"


def open_journal(
    journal: Journal | None, look: Callable[[Journal], Any]
) -> tuple[Journal | None, str]:
    """The journal given, or the reader's own, if it can be read, or None and why not: then results
    show all the same."""
    from labtools.record.journal import Journal, JournalWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JournalWarning)  # the page says it instead
            opened = journal or Journal()
            look(opened)
    except JournalError as error:
        return None, str(error)
    return opened, ""


class StatusLine:
    """Something with a line that a screen reader reads out; without widgets, in ``_status``,
    nothing is said."""

    _status: ipywidgets.HTML | None = None

    def _say(self, text: str) -> None:
        if self._status is not None:
            self._status.value = f'<div role="status">{html.escape(text)}</div>' if text else ""

    def _guard(self, work: Callable[[], Any]) -> None:
        """Run what a click asks for; a failure is told on the page, not lost in a log."""
        try:
            work()
        except Exception as error:
            self._say(str(as_lab_error(error)))
