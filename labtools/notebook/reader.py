"""Is a person at this notebook?"""

from __future__ import annotations

import os
from pathlib import Path

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
