"""``labtools journal``: the reader's predictions and their scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labtools.record.journal import Journal, JournalWarning
from labtools.record.prediction import JournalRow
from labtools.record.whole import write_whole

from .outcome import Answer, print_table

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class PredictionsListed(Answer):
    """The reader's predictions, each with its score if the answer was shown."""

    reader: str
    file: Path
    predictions: tuple[JournalRow, ...]
    notices: tuple[str, ...]

    @property
    def asides(self) -> tuple[str, ...]:
        """What the journal has to say about itself."""
        return self.notices

    def show(self, console: Console) -> None:
        """A table, oldest first."""
        if not self.predictions:
            console.print(
                f"No prediction yet. The pages ask for them; they are kept in {self.file}."
            )
            return
        columns = ("when", "question", "predicted", "measured", "source", "verdict")
        print_table(console, columns, self._rows())

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for row in self.predictions:
            guess, answer = row.prediction, row.reveal
            verdict = row.score.verdict if row.score else ""
            if guess.after_reveal:
                verdict = f"Made after the answer was shown; does not count. {verdict}".rstrip()
            yield (
                guess.at.astimezone().strftime("%Y-%m-%d %H:%M"),
                guess.question_id,
                guess.words,
                answer.words if answer else "",
                answer.source if answer else "",
                verdict or "no answer shown yet",
            )


def list_predictions(question: str | None, page: Path | None = None) -> PredictionsListed:
    """The reader's predictions, oldest first, each with its score if the answer was shown; also a
    page where one is named."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JournalWarning)  # said as notes
        journal = Journal()
        rows = journal.history(question)
    if page is not None:
        from labtools.notebook.scores import progress_html
        from labtools.optimize.log import disk

        with disk(f"{page} cannot be written.", "the list as text"):
            write_whole(page, progress_html(journal).encode())
    written = (f"{page} is written.",) if page is not None else ()
    notices = (*journal.notices, *written)
    return PredictionsListed(journal.reader, journal.lines, tuple(rows), notices)
