"""The prediction journal: what a reader guessed before a result was shown, and how it scored.

The journal is one append-only file of JSON lines; an entry is on the disk before it counts. A class
may have a database besides: with its URL in ``LABTOOLS_JOURNAL_URL`` a reader's entries go there
too, and come from there to another machine. While it does not answer nothing waits for it.
"""

from __future__ import annotations

import getpass
import math
import os
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from labtools.problem.errors import Notice
from labtools.problem.text import given_path, mend_text

from .folders import work_dir
from .prediction import (
    ENTRY,
    Answered,
    AnyEntry,
    Direction,
    ForecastComparison,
    GivenAnswer,
    Guess,
    Hint,
    Interval,
    JournalError,
    JournalRow,
    ModelPrediction,
    Notes,
    Prediction,
    Reveal,
    RightAnswer,
    Score,
    Source,
    model_says,
    score,
    score_guess,
)
from .whole import append_lines

if TYPE_CHECKING:
    import sqlalchemy as sa

URL_VARIABLE = "LABTOOLS_JOURNAL_URL"
NAME_VARIABLE = "LABTOOLS_READER_NAME"
_LOCK_TIMEOUT_S = 30.0

E = TypeVar("E", bound=AnyEntry)
G = TypeVar("G", Prediction, GivenAnswer)


class JournalWarning(Notice):
    """Something about the journal's files that the reader should know."""


class Journal:
    """A reader's predictions. Several notebooks may use one journal at once.

    ``url`` is a path, beside which the lines stand as ``.jsonl``, or the URL of a class's database;
    None takes ``LABTOOLS_JOURNAL_URL``, and without it ``work/journal.sqlite``. ``lines`` names
    another append-only file. ``reader`` is by default ``LABTOOLS_READER_NAME``, the JupyterHub
    user, or the login name. ``notices`` is what to know of its files, for a widget to show; each is
    also a `JournalWarning`.
    """

    def __init__(
        self,
        url: str | Path | None = None,
        *,
        lines: str | Path | None = None,
        reader: str | None = None,
    ) -> None:
        self.notices: list[str] = []
        self.reader = mend_text(reader or _reader_name())
        chosen = str(url or os.environ.get(URL_VARIABLE) or work_dir() / "journal.sqlite")
        self._class: sa.URL | None = None
        self.database: Path | None = None  # an old index; what it alone holds is taken over
        if "://" in chosen:
            parsed = _parse_url(chosen)
            if parsed.get_backend_name() == "sqlite" and parsed.database:
                self.database = Path(os.path.realpath(parsed.database))
            else:
                self._class = parsed
        else:
            self.database = Path(os.path.realpath(given_path(chosen)))
        beside = self.database or work_dir() / "journal.sqlite"
        self.lines = Path(lines) if lines else beside.with_suffix(".jsonl")
        try:
            self.lines.parent.mkdir(parents=True, exist_ok=True)
            for path in filter(None, (self.lines, self.database)):
                if path.exists() and not path.is_file():  # reading a device may never end
                    raise OSError(f"{path} is no file")
        except OSError as error:
            raise self._cannot_write(error) from error
        self._lock = FileLock(str(self.lines) + ".lock", timeout=_LOCK_TIMEOUT_S)
        self._engine: sa.Engine | None = None
        self._was_there = False

    # -- what a page calls -----------------------------------------------------------------

    def commit(
        self, question_id: str, page: str, direction: Direction, ratio: float, note: str = ""
    ) -> Prediction:
        """Keep a guess of baseline time / candidate time, for example 2 for twice as fast. When
        this returns, the guess is on disk.

        Raises JournalError: a guess that contradicts itself, or a folder that cannot be written.
        """
        said = {"direction": direction, "ratio": ratio, "note": note}
        return self._commit(Prediction, "prediction", question_id, page, said)

    def commit_answer(self, question_id: str, page: str, said: Answered) -> GivenAnswer:
        """Keep an answer that is no ratio, as `commit` does. Raises JournalError as `commit`."""
        return self._commit(GivenAnswer, "answer", question_id, page, {"said": said})

    def _commit(
        self, kind: type[G], word: str, question_id: str, page: str, said: Mapping[str, Any]
    ) -> G:
        with self._locked():
            names = self._names(question_id, page)
            names["after_reveal"] = bool(_reveals(self._entries(question_id)))
            still = "correct it and commit again; earlier predictions are untouched"
            with _refused(f"This {word} was not kept.", still):
                guess = kind(**names, **said)
            self._keep(guess)
        return guess

    def reveal(
        self,
        question_id: str,
        measured_ratio: float,
        source: Source = "live",
        what: str = "",
        *,
        where: str = "",
        interval: Interval | None = None,
        forecast_ratio: float | None = None,
    ) -> Score | None:
        """Note that the answer was shown, and score the guess that stood before it, if any.

        Showing the same answer again (a cell that is run twice) adds nothing. Without a
        ``forecast_ratio``, what the model had committed to this question is taken.

        Raises JournalError: a ratio that is not a positive number, or an unknown source.
        """
        if forecast_ratio is None:
            said = self.model_prediction(question_id)
            forecast_ratio = said.ratio if said else None
        still = "the prediction is kept and can be scored when there is a result"
        with _refused("This result was not entered in the journal.", still):
            shown = Reveal(
                reader=self.reader,
                question_id=question_id,
                measured_ratio=measured_ratio,
                source=source,
                what=what,
                where=where,
                interval=interval,
                forecast_ratio=forecast_ratio,
            )
        self._keep_shown(shown)
        guess = self.prediction(question_id)
        return score(guess, shown) if guess else None

    def reveal_answer(self, question_id: str, right: Answered, source: Source) -> None:
        """Note that the right answer was shown, as `reveal` does.

        Raises JournalError: an answer that is none, or an unknown source.
        """
        still = "the answer is kept and can be scored when there is a result"
        with _refused("This result was not entered in the journal.", still):
            shown = RightAnswer(
                reader=self.reader, question_id=question_id, right=right, source=source
            )
        self._keep_shown(shown)

    def _keep_shown(self, shown: Reveal | RightAnswer) -> None:
        with self._locked():
            before = _reveals(self._entries(shown.question_id))
            if not before or before[-1].says != shown.says:
                self._keep(shown)

    def prediction(self, question_id: str) -> Prediction | None:
        """The guess of a ratio that counts: the last one committed before the answer was shown.

        A reader who saw the answer first and guessed later has only a marked guess, and gets it.
        """
        return self._counted(Prediction, question_id)

    def answer(self, question_id: str) -> GivenAnswer | None:
        """The answer that counts, as `prediction` says it of a ratio."""
        return self._counted(GivenAnswer, question_id)

    def _counted(self, kind: type[G], question_id: str) -> G | None:
        with self._locked(to_write=False):
            guesses = _of(kind, self._entries(question_id))
        counted = [guess for guess in guesses if not guess.after_reveal] or guesses
        return counted[-1] if counted else None

    def history(self, question_id: str | None = None) -> list[JournalRow]:
        """This reader's guesses, oldest first, each with the first reveal that followed."""
        with self._locked(to_write=False):
            entries = self._entries(question_id)
        return [
            _row_of(entry, entries[number:], entries)
            for number, entry in enumerate(entries)
            if isinstance(entry, Guess)
        ]

    def compare_with_forecast(self, page: str | None = None) -> ForecastComparison:
        """The reader's guesses beside the model's, on the questions of a page, or of all, that both
        answered. Of several guesses at one question only the last before the reveal is taken."""
        last: dict[str, tuple[JournalRow, Score]] = {}
        for row in self.history():
            guess, shown = row.prediction, row.reveal
            if not isinstance(shown, Reveal) or not shown.forecast_ratio or guess.after_reveal:
                continue
            if row.score and page in (None, guess.page):
                last.pop(guess.question_id, None)
                last[guess.question_id] = row, score(shown.forecast_ratio, shown)
        rows = list(last.values())
        mine = _geometric_mean(
            [row.score.off_by for row, _ in rows if isinstance(row.score, Score)]
        )
        models = _geometric_mean([model.off_by for _, model in rows])
        return ForecastComparison(rows=tuple(rows), reader_off_by=mine, model_off_by=models)

    # -- the model, hints and notes ----------------------------------------------------------

    def commit_forecast(self, question_id: str, page: str, **told: Any) -> ModelPrediction:
        """Write down what the model says, the fields of a `ModelPrediction`, sealed, before the
        answer is shown. The same statement made twice is kept once.

        Raises JournalError: times that are none, or a folder that cannot be written.
        """
        with self._locked():
            entries = self._entries(question_id)
            told |= {"reader": self.reader, "after_reveal": bool(_of(Reveal, entries))}
            what = "The model's prediction was not kept."
            with _refused(what, "the round goes on without the model"):
                said = model_says(question_id, page, **told)
            before = _counted_model(entries)
            if before is not None and before.seal == said.seal:
                return before
            self._keep(said)
        return said

    def model_prediction(self, question_id: str) -> ModelPrediction | None:
        """What the model had said last before the answer was shown, or None."""
        with self._locked(to_write=False):
            return _counted_model(self._entries(question_id))

    def log_hint(self, question_id: str, page: str, hint: str) -> None:
        """Note that the reader looked at a hint; the same one twice is noted once."""
        with self._locked():
            entries = self._entries(question_id)
            if all(taken.hint != hint for taken in _of(Hint, entries)):
                late = any(isinstance(entry, Guess) for entry in entries)
                names = self._names(question_id, page)
                self._keep(Hint(**names, hint=hint, after_commit=late))

    def hints(self, question_id: str) -> tuple[str, ...]:
        """The hints that the reader took before committing, in order."""
        with self._locked(to_write=False):
            return _counted_hints(self._entries(question_id))

    def write_notes(self, question_id: str, page: str, fields: Mapping[str, str]) -> Notes:
        """Keep what the reader wrote; the same text twice is kept once."""
        with self._locked():
            before = _of(Notes, self._entries(question_id))
            if before and before[-1].fields == dict(fields):
                return before[-1]
            written = Notes(**self._names(question_id, page), fields=dict(fields))
            self._keep(written)
        return written

    def notes(self, question_id: str) -> Notes | None:
        """What the reader wrote last, or None."""
        with self._locked(to_write=False):
            written = _of(Notes, self._entries(question_id))
        return written[-1] if written else None

    def _names(self, question_id: str, page: str) -> dict[str, Any]:
        return {"reader": self.reader, "question_id": question_id, "page": page}

    # -- the file ----------------------------------------------------------------------------

    @contextmanager
    def _locked(self, *, to_write: bool = True) -> Iterator[None]:
        """Hold the journal's lock; a reader goes on without it where the folder takes no file."""
        if self._was_there and not self.lines.exists():
            self._say(
                f"{self.lines}, which held your predictions, was moved or removed while it was in "
                "use: a new one begins there, and the lines of the two may stand in one file."
            )
            self.lines.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as error:
            why = f"another process has held {self._lock.lock_file} for {_LOCK_TIMEOUT_S:.0f} s"
            still = "wait and run the cell again; nothing was lost"
            raise JournalError("The prediction journal is busy.", why, still) from error
        except OSError as error:
            if to_write:
                raise self._cannot_write(error) from error
        try:
            if self.database is not None and self.database.exists():
                self._take_over(self.database)
            if self._class is not None and self._engine is None:
                self._exchange()
            yield
        except OSError as error:
            raise self._cannot_write(error) from error
        finally:
            self._was_there = self.lines.exists()
            if self._lock.is_locked:
                self._lock.release()

    def _keep(self, entry: AnyEntry) -> None:
        """Add an entry, and wait until it is on disk. The caller holds the lock."""
        append_lines(self.lines, [entry.model_dump_json()])
        if self._class is not None:
            self._exchange()

    def _entries(self, question_id: str | None = None) -> list[AnyEntry]:
        """This reader's entries, in the order of their lines, whatever a clock said; the
        question's, or all."""
        wanted = None if question_id is None else mend_text(question_id)
        return [
            entry
            for entry in self._read_lines().values()
            if entry.reader == self.reader and wanted in (None, entry.question_id)
        ]

    def _read_lines(self) -> dict[str, AnyEntry]:
        """Every entry by its id: files that were joined hold one twice, and the first counts."""
        data = self.lines.read_bytes() if self.lines.exists() else b""
        entries, unreadable = _parse(data.splitlines())
        if unreadable:
            self._say(
                f"{unreadable} line(s) of {self.lines} cannot be read and were left as they are. "
                f"The other {len(entries)} are used."
            )
        return entries

    def _add_missing(self, entries: Mapping[str, AnyEntry]) -> None:
        known = self._read_lines()
        missing = [entry for name, entry in entries.items() if name not in known]
        if missing:
            append_lines(self.lines, [entry.model_dump_json() for entry in missing])

    def _take_over(self, database: Path) -> None:
        """What an index in SQLite holds and the lines do not; once, then it has another name."""
        ending = "taken-over"
        try:
            with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)) as opened:
                bodies = [
                    body
                    for (body,) in opened.execute("SELECT body FROM journal_entries ORDER BY rowid")
                ]
            self._add_missing(_parse(bodies)[0])
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                return  # later
            if database.stat().st_size:
                ending = "damaged"
                self._say(
                    f"The prediction journal's old database {database} cannot be read ({error}). "
                    f"It is kept under the ending .{ending}; the journal is {self.lines}."
                )
        with suppress(OSError):  # then it is looked at again, and nothing is missing
            database.rename(database.with_name(f"{database.name}.{ending}"))

    # -- the class ---------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Give the class's database what it lacks of this reader, and take what it has more."""
        import sqlalchemy as sa

        assert self._class is not None
        try:
            table = _class_table()
            if self._engine is None:
                engine = sa.create_engine(self._class)
                table.metadata.create_all(engine)
            else:
                engine = self._engine
            query = sa.select(table.c.body).where(table.c.reader == self.reader)
            with engine.begin() as connection:
                there = _parse(connection.execute(query).scalars().all())[0]
                here = {entry.entry_id: entry for entry in self._entries()}
                missing = [_columns(here[name]) for name in here if name not in there]
                if missing:
                    connection.execute(sa.insert(table), missing)
            self._engine = engine
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            cause = getattr(error, "orig", None) or error
            self._say(
                f"The class journal at {self._class.render_as_string()} cannot be used ({cause}). "
                f"Predictions are kept in {self.lines} and are sent when it answers again."
            )
            self._class = None  # the next journal asks again
            return
        self._add_missing(_in_order(there))

    def _cannot_write(self, error: OSError) -> JournalError:
        what, why = "The prediction journal cannot be written.", error.strerror or error
        still = "every page still runs; earlier predictions are untouched"
        return JournalError(what, f"{self.lines}: {why}", still)

    def _say(self, message: str) -> None:
        if message not in self.notices:
            self.notices.append(message)
            warnings.warn(message, JournalWarning, stacklevel=2)


def _parse_url(url: str) -> sa.URL:
    import sqlalchemy as sa

    try:
        return sa.make_url(url)
    except sa.exc.SQLAlchemyError as error:
        why = f"{URL_VARIABLE} or the url is {url!r}: {error}"
        still = f"unset {URL_VARIABLE} and the journal is a file under work/"
        raise JournalError("The prediction journal has no usable address.", why, still) from error


def _in_order(entries: Mapping[str, AnyEntry]) -> dict[str, AnyEntry]:
    """Entries of a class's database, which keeps no order: by their clocks, but a question's
    guesses that were made before it was answered stand before its answer, and the others behind."""
    by_question: dict[str, list[AnyEntry]] = {}
    in_time = sorted(entries.values(), key=lambda entry: entry.at)
    for entry in in_time:
        by_question.setdefault(entry.question_id, []).append(entry)
    for of_question in by_question.values():
        of_question.sort(key=lambda one: 2 * one.after_reveal if isinstance(one, Guess) else 1)
    found = [by_question[entry.question_id].pop(0) for entry in in_time]
    return {entry.entry_id: entry for entry in found}


def _class_table() -> sa.Table:
    """The table of a class: ``body`` is the entry, the rest spares a class view the JSON."""
    import sqlalchemy as sa

    return sa.Table(
        "journal_entries",
        sa.MetaData(),
        sa.Column("entry_id", sa.String(32), primary_key=True),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("reader", sa.String(200), nullable=False, index=True),
        sa.Column("question_id", sa.String(200), nullable=False, index=True),
        sa.Column("page", sa.String(200)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("direction", sa.String(8)),
        sa.Column("ratio", sa.Float),  # predicted or measured
        sa.Column("after_reveal", sa.Boolean),
        sa.Column("source", sa.String(16)),
        sa.Column("body", sa.Text, nullable=False),
    )


def _columns(entry: AnyEntry) -> dict[str, Any]:
    """An entry as a row of `_class_table`."""
    held = entry.model_dump()
    names = ("entry_id", "reader", "question_id", "page", "kind", "direction", "after_reveal")
    return {
        **{name: held.get(name) for name in names},
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "ratio": held.get("ratio", held.get("measured_ratio")),
        "source": held.get("source"),
        "body": entry.model_dump_json(),
    }


def _parse(bodies: Sequence[str | bytes]) -> tuple[dict[str, AnyEntry], int]:
    """Entries by their id, the first of each, and how many could not be read."""
    entries: dict[str, AnyEntry] = {}
    unreadable = 0
    for body in bodies:
        if body.strip():
            try:
                entry = ENTRY.validate_json(body)
            except ValidationError:
                unreadable += 1
            else:
                entries.setdefault(entry.entry_id, entry)
    return entries, unreadable


@contextmanager
def _refused(what: str, still_works: str) -> Iterator[None]:
    """Say of fields that contradict themselves what was not done because of it."""
    try:
        yield
    except ValidationError as error:
        said = []
        for problem in error.errors():
            where = ".".join(str(part) for part in problem["loc"])
            text = str(problem["msg"]).removeprefix("Value error, ")
            said.append(f"{where}: {text}" if where else text)
        raise JournalError(what, "; ".join(said), still_works) from error


def _reader_name() -> str:
    try:
        given = os.environ.get(NAME_VARIABLE) or os.environ.get("JUPYTERHUB_USER")
        return given or getpass.getuser()
    except (OSError, KeyError):  # a container user without a name
        return "reader"


def _row_of(guess: Guess, later: Sequence[AnyEntry], every: Sequence[AnyEntry]) -> JournalRow:
    """A guess with the first reveal that followed."""
    same = [entry for entry in every if entry.question_id == guess.question_id]
    reveals = (entry for entry in _reveals(later) if entry.question_id == guess.question_id)
    shown = next(reveals, None)
    scored = score_guess(guess, shown) if shown else None
    said, hints = _counted_model(same), _counted_hints(same)
    return JournalRow(prediction=guess, reveal=shown, score=scored, model=said, hints=hints)


def _of(kind: type[E], entries: Sequence[AnyEntry]) -> list[E]:
    return [entry for entry in entries if isinstance(entry, kind)]


def _reveals(entries: Sequence[AnyEntry]) -> list[Reveal | RightAnswer]:
    return [entry for entry in entries if isinstance(entry, Reveal | RightAnswer)]


def _counted_model(entries: Sequence[AnyEntry]) -> ModelPrediction | None:
    said = [entry for entry in _of(ModelPrediction, entries) if not entry.after_reveal]
    return said[-1] if said else None


def _counted_hints(entries: Sequence[AnyEntry]) -> tuple[str, ...]:
    return tuple(entry.hint for entry in _of(Hint, entries) if not entry.after_commit)


def _geometric_mean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
