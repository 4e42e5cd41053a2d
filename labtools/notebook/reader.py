"""Is a person at this notebook, and can a journal be kept for one?"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labtools.record.prediction import JournalError

if TYPE_CHECKING:
    from labtools.record.journal import Journal

READER_VARIABLE = "LABTOOLS_READER"
SESSION_VARIABLE = "JPY_SESSION_NAME"


def reader_present() -> bool:
    """True when a Jupyter server, which sets ``JPY_SESSION_NAME``, started this kernel for a
    notebook that somebody has open; nbclient, nbconvert and the book build do not.
    ``LABTOOLS_READER=0`` or ``1`` overrides."""
    forced = os.environ.get(READER_VARIABLE, "").strip().lower()
    if forced in ("0", "no", "false"):
        return False
    if forced in ("1", "yes", "true"):
        return True
    return bool(os.environ.get(SESSION_VARIABLE))


def page_name() -> str:
    """The notebook's file name without its ending, or ``unknown``."""
    return Path(os.environ.get(SESSION_VARIABLE, "")).stem or "unknown"


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
