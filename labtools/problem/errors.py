"""The one shape of message a reader meets when something cannot be done."""

from __future__ import annotations


class LabError(Exception):
    """A failure told in plain words.

    Args:
        what: what happened, one sentence.
        why: the cause, as far as it is known.
        still_works: what the reader can do in spite of it.
    """

    def __init__(self, what: str, why: str = "", still_works: str = "") -> None:
        self.what = what
        self.why = why
        self.still_works = still_works
        super().__init__(what)

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        # Without this, an error that crosses a process boundary loses two of its three parts.
        return (LabError, (self.what, self.why, self.still_works))

    def __str__(self) -> str:
        parts = [self.what]
        if self.why:
            parts.append(f"Why: {self.why}")
        if self.still_works:
            parts.append(f"What still works: {self.still_works}")
        return "\n".join(parts)

    def _render_traceback_(self) -> list[str]:
        """Tell IPython to print the message alone, without a stack trace."""
        return str(self).splitlines()
