"""The one shape of message a reader meets when something cannot be done."""

from __future__ import annotations

import errno
import warnings
from typing import Any

from .text import mend_text, shorten


class Notice(UserWarning):
    """A sentence that a reader should see though nothing has failed.

    Wherever Python shows warnings, a terminal or a page, it is shown as it is, without the place
    in the code that said it.
    """


_format_warning = warnings.formatwarning


def _format_notice(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    if issubclass(category, Notice):
        return f"{message}\n"
    return _format_warning(message, category, filename, lineno, line)


warnings.formatwarning = _format_notice


class LabError(Exception):
    """A failure told in plain words: what happened in one sentence, the cause as far as it is
    known, and what the reader can do in spite of it."""

    def __init__(self, what: str, why: str = "", still_works: str = "") -> None:
        self.what, self.why, self.still_works = what, why, still_works
        super().__init__(what)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled as errors are, it would be made anew of its one sentence alone, which a kind with
        # arguments of its own cannot be. So it is put together again from its fields.
        return (_blank, (type(self), *self.args), self.__dict__)

    def to_dict(self) -> dict[str, str]:
        """The three parts, as JSON holds them."""
        said = {"what": self.what, "why": self.why, "still_works": self.still_works}
        return {part: _sayable(text) for part, text in said.items()}

    @property
    def clause(self) -> str:
        """What happened and why, for a sentence about something that follows from it."""
        return ": ".join(filter(None, [self.what.rstrip("."), self.why]))

    def __str__(self) -> str:
        why = f"Why: {self.why}" if self.why else ""
        still_works = f"What still works: {self.still_works}" if self.still_works else ""
        return _sayable("\n".join(filter(None, (self.what, why, still_works))))

    def _render_traceback_(self) -> list[str]:
        """Tell IPython to print the message alone, without a stack trace."""
        return str(self).splitlines()


def _sayable(text: str) -> str:
    """What was given is told again only as far as a reader, or a terminal, can take it."""
    return shorten(mend_text(text))


def _blank(kind: type[LabError], *args: Any) -> LabError:
    """An error of a kind whose fields are still to be set."""
    return kind.__new__(kind, *args)


class KernelError(LabError):
    """What is wrong is the kernel itself, or a page's copy of it, and not the machine.

    Commands end with status 1.
    """


_REFUSALS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBADF),
)


def is_refusal(error: BaseException) -> bool:
    """Whether the system had no room, no memory or no place: no mistake of ours or the reader's."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


def as_lab_error(error: BaseException) -> LabError:
    """Any failure in the one shape of message, for the command line, pages and widgets alike."""
    if isinstance(error, LabError):
        return error
    if isinstance(error, MemoryError):
        return LabError(
            "There is not enough memory.",
            str(error) or "the system refused an allocation",
            "a smaller workload; forecasts and records",
        )
    if is_refusal(error):
        return LabError(
            "The system refused something that is needed.",
            str(error),
            "the same where there is room; whatever writes nothing",
        )
    return LabError(
        "This is a mistake in labtools.",
        f"{type(error).__name__}: {error}",
        "everything else; labtools COMMAND --debug shows where it happened",
    )
