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
    """True when a Jupyter server started this kernel for a notebook that somebody has open.

    The server sets ``JPY_SESSION_NAME`` for such kernels; nbclient, nbconvert and the book build
    do not. ``LABTOOLS_READER=0`` or ``1`` overrides.
    """
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
    """A journal that can be read, or None and why there is none.

    A page that runs without a reader needs neither the journal's database nor widgets, so the
    module is imported here. A journal that cannot be used must not keep the reader from results.

    Args:
        journal: where predictions are kept; None takes the reader's own.
    """
    from labtools.record.journal import Journal, JournalWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JournalWarning)  # the page says it instead
            opened = journal or Journal()
            look(opened)
    except JournalError as error:
        return None, str(error)
    return opened, ""
