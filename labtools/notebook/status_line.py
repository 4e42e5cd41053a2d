"""What a click asks for, and the line of a page that says how it went."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labtools.problem import as_lab_error

if TYPE_CHECKING:
    import ipywidgets


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
