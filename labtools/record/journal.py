"""The prediction journal: what a reader guessed before a result was shown, and how it scored.

Every entry goes first into an append-only file of JSON lines, which is fsynced, and then into a
database. The lines are the truth and the database is an index over them: before each question it
takes in what the lines have got since. So a damaged, missing, full or unreachable database costs
nothing. Without one the lines answer alone, and it is filled from them again.
"""

from __future__ import annotations

import getpass
import math
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from filelock import FileLock, Timeout
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from labtools.problem.errors import Notice
from labtools.problem.text import mend_text

from .folders import work_dir
from .prediction import (
    ENTRY,
    MISUNDERSTOOD_FROM,
    SAME_WITHIN,
    AnyEntry,
    Direction,
    ForecastComparison,
    Hint,
    Interval,
    JournalError,
    JournalRow,
    ModelPrediction,
    Notes,
    Prediction,
    Reveal,
    Score,
    Source,
    direction_of,
    model_says,
    score,
)
from .whole import append_lines

URL_VARIABLE = "LABTOOLS_JOURNAL_URL"
NAME_VARIABLE = "LABTOOLS_READER_NAME"
_LOCK_TIMEOUT_S = 30.0

T = TypeVar("T")


class JournalWarning(Notice):
    """Something about the journal's files that the reader should know."""


class Journal:
    """A reader's predictions. Several notebooks may use one journal at once.

    Args:
        url: a database URL or the path of an SQLite file; None takes ``LABTOOLS_JOURNAL_URL``,
            and without it ``work/journal.sqlite``.
        lines: the append-only file; by default beside the SQLite file, or ``work/journal.jsonl``
            for a database elsewhere.
        reader: whose predictions; by default ``LABTOOLS_READER_NAME``, the JupyterHub user, or
            the login name.

    Attributes:
        notices: messages about repairs, for a widget to show; each is also a `JournalWarning`.

    Raises:
        JournalError: a URL that names no database this machine can speak to.
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
        if "://" not in chosen:
            chosen = f"sqlite:///{Path(chosen).expanduser().resolve()}"
        try:
            self.url = sa.make_url(chosen)
        except SQLAlchemyError as error:
            raise JournalError(
                "The prediction journal has no usable address.",
                f"{URL_VARIABLE} or the url is {chosen!r}: {error}",
                f"unset {URL_VARIABLE} and the journal is a file under work/",
            ) from error
        self.database = self._sqlite_path()
        default = self.database.with_suffix(".jsonl") if self.database else _default_lines()
        self.lines = Path(lines) if lines else default
        try:
            self.lines.parent.mkdir(parents=True, exist_ok=True)
            for path in filter(None, (self.lines, self.database)):
                if path.exists() and not path.is_file():  # reading a device may never end
                    raise OSError(f"{path} is no file")
        except OSError as error:
            raise self._cannot_write(error) from error
        self._lock = FileLock(str(self.lines) + ".lock", timeout=_LOCK_TIMEOUT_S)
        self._engine: sa.Engine | None = None
        self._indexed = 0  # bytes of the lines that the database of this engine holds

    # -- what a page calls -----------------------------------------------------------------

    def commit(
        self, question_id: str, page: str, direction: Direction, ratio: float, note: str = ""
    ) -> Prediction:
        """Keep a guess. When this returns, the guess is on disk.

        Args:
            question_id: the question's fixed name.
            page: the page it stands on.
            direction: is the candidate ``faster``, the ``same`` or ``slower``.
            ratio: baseline time / candidate time: 2 is twice as fast, 0.5 takes twice as long.
            note: the reader's own reason.

        Raises:
            JournalError: a guess that contradicts itself, or a folder that cannot be written.
        """
        with self._locked():
            revealed = self._select_reveals(question_id)
            try:
                prediction = Prediction(
                    reader=self.reader,
                    question_id=question_id,
                    page=page,
                    direction=direction,
                    ratio=ratio,
                    note=note,
                    after_reveal=bool(revealed),
                )
            except ValidationError as error:
                raise JournalError(
                    "This prediction was not kept.",
                    "; ".join(_plain(problem) for problem in error.errors()),
                    "correct it and commit again; earlier predictions are untouched",
                ) from error
            self._keep(prediction)
        return prediction

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
        """Note that the answer was shown, and score the guess that stood before it.

        Showing the same answer again (a cell that is run twice) adds nothing. Without a
        ``forecast_ratio``, what the model had committed to this question is taken.

        Returns:
            The score, or None when the reader had committed no guess.

        Raises:
            JournalError: a ratio that is not a positive number, or an unknown source.
        """
        if forecast_ratio is None:
            said = self.model_prediction(question_id)
            forecast_ratio = said.ratio if said else None
        try:
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
        except ValidationError as error:
            raise JournalError(
                "This result was not entered in the journal.",
                "; ".join(_plain(problem) for problem in error.errors()),
                "the prediction is kept and can be scored when there is a result",
            ) from error
        with self._locked():
            fresh = {"entry_id", "at"}
            before = self._select_reveals(question_id)
            if not before or before[-1].model_dump(exclude=fresh) != shown.model_dump(
                exclude=fresh
            ):
                self._keep(shown)
        guess = self.prediction(question_id)
        return score(guess, shown) if guess else None

    def prediction(self, question_id: str) -> Prediction | None:
        """The guess that counts: the last one committed before the answer was shown.

        A reader who saw the answer first and guessed later has only a marked guess, and gets it.
        """
        guesses = [row.prediction for row in self.history(question_id)]
        before = [guess for guess in guesses if not guess.after_reveal]
        counted = before or guesses
        return counted[-1] if counted else None

    def history(self, question_id: str | None = None) -> list[JournalRow]:
        """This reader's predictions, oldest first, each with the first reveal that followed."""
        with self._locked(to_write=False):
            entries = self._select(question_id)
        rows = []
        for index, entry in enumerate(entries):
            if isinstance(entry, Prediction):
                shown = _first_reveal(entries[index + 1 :], entry.question_id)
                scored = score(entry, shown) if shown else None
                rows.append(
                    JournalRow(
                        prediction=entry,
                        reveal=shown,
                        score=scored,
                        model=_counted_model(entries, entry.question_id),
                        hints=_hints_of(entries, entry.question_id),
                    )
                )
        return rows

    def compare_with_forecast(self, page: str | None = None) -> ForecastComparison:
        """The reader's guesses beside the model's, on the questions that both answered.

        Of several guesses at one question only the last before the reveal is taken.

        Args:
            page: only questions of this page; None takes all.
        """
        last: dict[str, JournalRow] = {}
        for row in self.history():
            guess, shown = row.prediction, row.reveal
            counts = shown and shown.forecast_ratio and row.score and not guess.after_reveal
            if counts and page in (None, guess.page):
                last.pop(guess.question_id, None)
                last[guess.question_id] = row
        rows = []
        for row in last.values():
            shown = row.reveal
            if shown and shown.forecast_ratio:
                rows.append((row, score(shown.forecast_ratio, shown)))
        return ForecastComparison(
            rows=tuple(rows),
            reader_off_by=_geometric_mean([row.score.off_by for row, _ in rows if row.score]),
            model_off_by=_geometric_mean([model.off_by for _, model in rows]),
        )

    # -- the model, hints and notes ----------------------------------------------------------

    def commit_forecast(
        self,
        question_id: str,
        page: str,
        *,
        baseline_us: float,
        candidate_us: float,
        band: Interval | None,
        model: str,
        gpu: str,
        bounds: tuple[str, str] = ("", ""),
    ) -> ModelPrediction:
        """Write down what the model says, sealed, before the answer is shown.

        The same statement made twice is kept once.

        Args:
            question_id: the question's fixed name.
            page: the page it stands on.
            baseline_us, candidate_us: the forecasts, microseconds.
            band: low and high end of baseline time / candidate time; None where there is none.
            model: name and version of the model.
            gpu: short name.
            bounds: what binds the baseline and the candidate.

        Raises:
            JournalError: times that are none, or a folder that cannot be written.
        """
        with self._locked():
            entries = self._select(question_id)
            try:
                said = model_says(
                    question_id,
                    page,
                    reader=self.reader,
                    baseline_us=baseline_us,
                    candidate_us=candidate_us,
                    band=band,
                    bounds=bounds,
                    model=model,
                    gpu=gpu,
                    after_reveal=any(isinstance(entry, Reveal) for entry in entries),
                )
            except ValidationError as error:
                raise JournalError(
                    "The model's prediction was not kept.",
                    "; ".join(_plain(problem) for problem in error.errors()),
                    "the round goes on without the model",
                ) from error
            before = _counted_model(entries, question_id)
            if before is not None and before.seal == said.seal:
                return before
            self._keep(said)
        return said

    def model_prediction(self, question_id: str) -> ModelPrediction | None:
        """What the model had said last before the answer was shown, or None."""
        with self._locked(to_write=False):
            return _counted_model(self._select(question_id), question_id)

    def log_hint(self, question_id: str, page: str, hint: str) -> None:
        """Note that the reader looked at a hint; the same one twice is noted once."""
        with self._locked():
            entries = self._select(question_id)
            if any(isinstance(entry, Hint) and entry.hint == hint for entry in entries):
                return
            committed = any(isinstance(entry, Prediction) for entry in entries)
            self._keep(
                Hint(
                    reader=self.reader,
                    question_id=question_id,
                    page=page,
                    hint=hint,
                    after_commit=committed,
                )
            )

    def hints(self, question_id: str) -> tuple[str, ...]:
        """The hints that the reader took before committing, in order."""
        with self._locked(to_write=False):
            return _hints_of(self._select(question_id), question_id)

    def write_notes(self, question_id: str, page: str, fields: Mapping[str, str]) -> Notes:
        """Keep what the reader wrote; the same text twice is kept once."""
        with self._locked():
            before = _last_notes(self._select(question_id))
            if before is not None and before.fields == dict(fields):
                return before
            written = Notes(
                reader=self.reader, question_id=question_id, page=page, fields=dict(fields)
            )
            self._keep(written)
        return written

    def notes(self, question_id: str) -> Notes | None:
        """What the reader wrote last, or None."""
        with self._locked(to_write=False):
            return _last_notes(self._select(question_id))

    # -- lines -----------------------------------------------------------------------------

    def _keep(self, entry: AnyEntry) -> None:
        """Append to the lines, and let the database take it in. The caller holds the lock."""
        self._append([entry.model_dump_json()])
        self._in_database(lambda connection: None)

    def _append(self, bodies: list[str]) -> None:
        """Add lines and wait until they are on disk; what could not be written whole is undone."""
        try:
            append_lines(self.lines, bodies)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _read_lines(self, start: int = 0) -> tuple[list[AnyEntry], int]:
        """The entries from a byte of the lines on, each once, and the end of the last whole line.

        Files that were joined hold an entry twice. The first one counts.
        """
        try:
            with open(self.lines, "rb") as file:
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return [], 0
        entries: dict[str, AnyEntry] = {}
        unreadable = 0
        for line in data.splitlines():
            if line.strip():
                try:
                    entry = ENTRY.validate_json(line)
                except ValidationError:
                    unreadable += 1
                else:
                    entries.setdefault(entry.entry_id, entry)
        if unreadable and not start:
            self._say(
                f"{unreadable} line(s) of {self.lines} cannot be read and were left as they are. "
                f"The other {len(entries)} are used."
            )
        return list(entries.values()), start + data.rfind(b"\n") + 1

    def _cannot_write(self, error: OSError) -> JournalError:
        return JournalError(
            "The prediction journal cannot be written.",
            f"{self.lines}: {error.strerror or error}",
            "every page still runs; earlier predictions are untouched",
        )

    # -- database --------------------------------------------------------------------------

    @contextmanager
    def _locked(self, *, to_write: bool = True) -> Iterator[None]:
        """Hold the journal's lock; a reader goes on without it where the folder takes no file."""
        try:
            self._lock.acquire()
        except Timeout as error:
            raise JournalError(
                "The prediction journal is busy.",
                f"another process has held {self._lock.lock_file} for {_LOCK_TIMEOUT_S:.0f} s",
                "wait and run the cell again; nothing was lost",
            ) from error
        except OSError as error:
            if to_write:
                raise self._cannot_write(error) from error
        try:
            yield
        except OSError as error:
            raise self._cannot_write(error) from error
        finally:
            if self._lock.is_locked:
                self._lock.release()

    def _select(self, question_id: str | None) -> list[AnyEntry]:
        query = sa.select(_ENTRIES.c.body).where(_ENTRIES.c.reader == self.reader)
        if question_id is not None:
            query = query.where(_ENTRIES.c.question_id == mend_text(question_id))
        query = query.order_by(_ENTRIES.c.at, _ENTRIES.c.entry_id)
        return self._in_database(lambda connection: _entries(connection, query))

    def _select_reveals(self, question_id: str) -> list[Reveal]:
        return [entry for entry in self._select(question_id) if isinstance(entry, Reveal)]

    def _in_database(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in one transaction, over all that the lines hold.

        A damaged database is repaired first. Where it does not answer at all, a database in memory
        takes its place for this once.
        """
        try:
            return self._transaction(work)
        except _DATABASE_FAILS as error:
            self._close()
            if self.database is None:
                self._fall_back(error)
            elif not (_is_damage(error) and self._set_aside(error)):
                return self._from_lines(error, work)
        try:
            return self._transaction(work)
        except _DATABASE_FAILS as error:
            self._close()
            return self._from_lines(error, work)

    def _transaction(self, work: Callable[[sa.Connection], T]) -> T:
        if self._engine is None:
            self._engine = self._open()
        with self._engine.begin() as connection:
            end = self._take_in(connection, self._indexed)
            done = work(connection)
        self._indexed = end  # only now is it there for good
        return done

    def _take_in(self, connection: sa.Connection, start: int) -> int:
        """Enter what the lines have got since, from this process or another one."""
        size = self.lines.stat().st_size if self.lines.exists() else 0
        if size == start:
            return start
        entries, end = self._read_lines(start if size > start else 0)
        self._enter(connection, entries)
        return end

    def _enter(self, connection: sa.Connection, entries: list[AnyEntry]) -> None:
        """Enter what the database does not hold yet."""
        wanted = [entry.entry_id for entry in entries]
        known: set[str] = set()
        for start in range(0, len(wanted), 500):  # a database takes only so many at once
            some = _ENTRIES.c.entry_id.in_(wanted[start : start + 500])
            known.update(connection.execute(sa.select(_ENTRIES.c.entry_id).where(some)).scalars())
        _insert(connection, [entry for entry in entries if entry.entry_id not in known])

    def _close(self) -> None:
        """Let go of the database; the next one to be opened takes in every line."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine, self._indexed = None, 0

    def _open(self) -> sa.Engine:
        engine = sa.create_engine(self.url) if self.database is None else _sqlite_engine(self.url)
        self._fill(engine)
        return engine

    def _fill(self, engine: sa.Engine) -> None:
        """Make the database hold every line, and the lines every entry of this reader."""
        _METADATA.create_all(engine)
        columns = {column["name"] for column in sa.inspect(engine).get_columns(_ENTRIES.name)}
        if columns != set(_ENTRIES.c.keys()):
            raise _WrongTables(f"its table has the columns {sorted(columns)}")
        with engine.begin() as connection:
            if engine.dialect.name == "sqlite":
                verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
                if verdict != "ok":
                    raise _WrongTables(str(verdict))
            stored = _entries(connection, sa.select(_ENTRIES.c.body).order_by(_ENTRIES.c.at))
            entries, end = self._read_lines()
            self._enter(connection, entries)
        self._indexed = end
        in_lines = {entry.entry_id for entry in entries}
        missing = [
            entry.model_dump_json()
            for entry in stored
            if entry.reader == self.reader and entry.entry_id not in in_lines
        ]
        if missing:  # the lines were deleted or damaged, or were written on another machine
            try:
                self._append(missing)
            except JournalError as error:  # the database still has them
                self._say(str(error))

    def _set_aside(self, error: Exception) -> bool:
        """Move the damaged SQLite file out of the way; the next opening fills a new one."""
        assert self.database is not None
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        aside = self.database.with_name(f"{self.database.name}.damaged-{stamp}")
        for suffix in ("", "-journal", "-wal", "-shm"):
            part = self.database.with_name(self.database.name + suffix)
            try:
                if part.exists():
                    part.rename(aside.with_name(aside.name + suffix))
            except OSError:
                return False
        cause = getattr(error, "orig", None) or error
        self._say(
            f"The prediction journal's database was damaged ({cause}). It is kept as {aside} and "
            f"a new one was filled from {self.lines} ({len(self._read_lines()[0])} entries)."
        )
        return True

    def _fall_back(self, error: Exception) -> None:
        """Without the class database, work from the lines; the next journal sends them on."""
        cause = getattr(error, "orig", None) or error
        self._say(
            f"The class journal at {self.url.render_as_string()} cannot be used ({cause}). "
            f"Predictions are kept in {self.lines} and are sent when it answers again."
        )
        self._engine = _memory_engine()
        self._fill(self._engine)

    def _from_lines(self, error: Exception, work: Callable[[sa.Connection], T]) -> T:
        """`_in_database` of the lines alone. The next call asks the database again."""
        cause = getattr(error, "orig", None) or error
        self._say(
            f"The prediction journal's database {self.database} does not answer ({cause}). "
            f"Predictions are kept in {self.lines} and enter it when it answers again."
        )
        self._engine = _memory_engine()
        try:
            self._fill(self._engine)
            return self._transaction(work)
        finally:
            self._close()

    def _sqlite_path(self) -> Path | None:
        if self.url.get_backend_name() == "sqlite" and self.url.database:
            return Path(self.url.database).resolve()
        return None

    def _say(self, message: str) -> None:
        if message not in self.notices:
            self.notices.append(message)
            warnings.warn(message, JournalWarning, stacklevel=2)


class _WrongTables(Exception):
    """The file is a database, but not this journal's."""


_DATABASE_FAILS = (SQLAlchemyError, ImportError, ValidationError, _WrongTables)


_METADATA = sa.MetaData()
_ENTRIES = sa.Table(
    "journal_entries",
    _METADATA,
    sa.Column("entry_id", sa.String(32), primary_key=True),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("reader", sa.String(200), nullable=False, index=True),
    sa.Column("question_id", sa.String(200), nullable=False, index=True),
    sa.Column("page", sa.String(200)),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("direction", sa.String(8)),
    sa.Column("ratio", sa.Float),  # predicted or measured, so that a class view needs no JSON
    sa.Column("after_reveal", sa.Boolean),
    sa.Column("source", sa.String(16)),
    sa.Column("body", sa.Text, nullable=False),
)


def _is_damage(error: Exception) -> bool:
    """True when the file itself is bad, rather than busy, full or out of reach."""
    if isinstance(error, DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code is None:
            return False
        primary = code & 0xFF  # the low byte; the rest says which kind
        return primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
    return isinstance(error, (ValidationError, _WrongTables))


def _entries(connection: sa.Connection, query: sa.Select[Any]) -> list[AnyEntry]:
    return [ENTRY.validate_json(body) for body in connection.execute(query).scalars()]


def _insert(connection: sa.Connection, entries: list[AnyEntry]) -> None:
    if not entries:
        return
    connection.execute(sa.insert(_ENTRIES), [_columns(entry) for entry in entries])


def _columns(entry: AnyEntry) -> dict[str, Any]:
    values: dict[str, Any] = {
        "entry_id": entry.entry_id,
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "reader": entry.reader,
        "question_id": entry.question_id,
        "kind": entry.kind,
        "page": None,
        "direction": None,
        "ratio": None,  # a database takes many rows at once only where all name the same columns
        "after_reveal": None,
        "source": None,
        "body": entry.model_dump_json(),
    }
    if isinstance(entry, Reveal):
        return values | {"ratio": entry.measured_ratio, "source": entry.source}
    values |= {"page": entry.page}
    if isinstance(entry, Prediction):
        values |= {"direction": entry.direction}
    if isinstance(entry, (Prediction, ModelPrediction)):
        values |= {"ratio": entry.ratio, "after_reveal": entry.after_reveal}
    return values


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    # No pool: an open handle would follow a file that a repair has moved aside.
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"timeout": _LOCK_TIMEOUT_S})

    @sa.event.listens_for(engine, "connect")
    def _set_durability(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous=FULL")

    return engine


def _memory_engine() -> sa.Engine:
    memory = {"check_same_thread": False}
    return sa.create_engine("sqlite://", poolclass=StaticPool, connect_args=memory)


def _default_lines() -> Path:
    return work_dir() / "journal.jsonl"


def _reader_name() -> str:
    for variable in (NAME_VARIABLE, "JUPYTERHUB_USER"):
        if os.environ.get(variable):
            return os.environ[variable]
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container user without a name
        return "reader"


def _counted_model(entries: list[AnyEntry], question_id: str) -> ModelPrediction | None:
    said = [
        entry
        for entry in entries
        if isinstance(entry, ModelPrediction)
        and entry.question_id == question_id
        and not entry.after_reveal
    ]
    return said[-1] if said else None


def _hints_of(entries: list[AnyEntry], question_id: str) -> tuple[str, ...]:
    return tuple(
        entry.hint
        for entry in entries
        if isinstance(entry, Hint) and entry.question_id == question_id and not entry.after_commit
    )


def _last_notes(entries: list[AnyEntry]) -> Notes | None:
    written = [entry for entry in entries if isinstance(entry, Notes)]
    return written[-1] if written else None


def _first_reveal(entries: list[AnyEntry], question_id: str) -> Reveal | None:
    for entry in entries:
        if isinstance(entry, Reveal) and entry.question_id == question_id:
            return entry
    return None


def _geometric_mean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _plain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    text = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


__all__ = [
    "MISUNDERSTOOD_FROM",
    "SAME_WITHIN",
    "Direction",
    "ForecastComparison",
    "Hint",
    "Interval",
    "Journal",
    "JournalError",
    "JournalRow",
    "JournalWarning",
    "ModelPrediction",
    "Notes",
    "Prediction",
    "Reveal",
    "Score",
    "Source",
    "direction_of",
    "score",
]
