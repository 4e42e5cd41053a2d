"""The prediction gate: a question, the reader's guess, and only then the result."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from labtools.problem import LabError, as_lab_error
from labtools.record.prediction import Guess, JournalError, Prediction, Score, score

from .ratios import RatioRow, Speedup, ratio_table, read_ratio
from .reader import open_journal, page_name, reader_present
from .static_page import static_question, static_result
from .tables import BOX, Shown, make_note

if TYPE_CHECKING:
    from labtools.record.journal import Journal

    from .bench import GateView

T = TypeVar("T")
_AGAIN = {
    True: "The answer to this question was shown to you. A new guess is kept, is marked as made "
    "afterwards, and does not count.",
    False: "Your last guess before the answer is shown is the one that counts.",
}


class PredictionPending(LabError):
    """A result was asked for before its prediction; IPython prints one plain message."""

    def _render_traceback_(self) -> list[str]:
        return [f"{self.what} {self.still_works}"]


class Question:
    """A form, the guess that it commits, and the result that waits for it.

    ``form`` is what `static_question` takes, and ``advice`` what to do where there is no form.
    ``view`` shows it, or is None when nobody is here; ``reader`` None finds out. ``todo`` says what
    to do after committing, and ``on_commit`` is called with each guess that was kept.
    """

    def __init__(
        self,
        question_id: str,
        text: str,
        form: Mapping[str, Any],
        advice: str,
        *,
        page: str | None = None,
        journal: Journal | None = None,
        reader: bool | None = None,
        todo: str = "Now run the next cell and those below it.",
        on_commit: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.question_id, self.text, self.form, self._advice = question_id, text, form, advice
        self._todo, self._on_commit = todo, on_commit
        self._stopped_a_run = False
        self.holds_page = True  # on the site the rest of the page waits for the answer
        self.page = page or page_name()
        self._has_reader = reader_present() if reader is None else reader
        self._journal: Journal | None = None
        self._journal_failed = self._reveal_failed = ""
        self.view: GateView | None = None
        if self._has_reader:
            found = open_journal(journal, lambda one: one.history(question_id))
            self._journal, self._journal_failed = found
            from .bench import GateView

            self.view = GateView(text=text, form=dict(form))
            self.view.on_msg(self._receive)
            self.refresh()

    # -- the guess -------------------------------------------------------------------------

    @property
    def guess(self) -> Guess | None:
        """The committed guess that counts, or None."""
        raise NotImplementedError

    def _commit_sent(self, content: Mapping[str, Any]) -> None:
        """Commit what the form sent."""
        raise NotImplementedError

    def _keep(self, keep: Callable[[Journal], T]) -> T:
        """Commit a guess with what the journal offers for it."""
        if self._journal is None:
            why = self._journal_failed or "this notebook runs without a reader"
            still = "results are shown without a prediction"
            raise JournalError("Nobody is here to predict.", why, still)
        kept = keep(self._journal)
        self.refresh()
        self._on_commit(kept)
        return kept

    def require_prediction(self) -> None:
        """Stop here until the reader has committed; put it before a measurement that takes long.

        Raises PredictionPending: a reader is here and has not committed.
        """
        if self._has_reader and not self._journal_failed and self.guess is None:
            self._stopped_a_run = True
            if self.view is not None:
                self.view.send({"kind": "waiting"})
            raise PredictionPending(
                "This result waits for your prediction.",
                "a number that was seen first cannot be predicted",
                "Commit a guess in the form above. This cell and those below it run after that.",
            )

    # -- the answer ------------------------------------------------------------------------

    def _note_shown(self, note: Callable[[Journal], Any]) -> None:
        """Tell the journal that the answer is shown. The reader has committed; a full disk must not
        keep the answer back."""
        self._reveal_failed = ""
        if self._journal is not None:
            try:
                note(self._journal)
            except JournalError as error:
                self._reveal_failed = str(error)
            self.refresh()

    def _say_open(self) -> Shown:
        kept = " Your guess is kept and stays open." if self.guess else ""
        return make_note(f"There is no result here yet.{kept}")

    def _say_late(self) -> list[str]:
        late = self.guess is not None and self.guess.after_reveal
        return ["This guess was made after the answer was shown and does not count."] * late

    def _say_failures(self) -> list[str]:
        lines = []
        if self._journal_failed:
            lines.append(f"Your guess could not be kept. {self._journal_failed}")
        if self._reveal_failed:
            lines.append(f"That the answer was shown could not be kept. {self._reveal_failed}")
        return lines

    # -- the form --------------------------------------------------------------------------

    def _receive(self, _view: Any, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict) or content.get("kind") != "commit":
            return
        try:
            self._commit_sent(content)
        except Exception as error:  # a widget's callback may raise nothing that anybody sees
            self._say(str(as_lab_error(error)))
            return
        if self._stopped_a_run and self.view is not None:
            # The run that stopped here goes on, where the page's frontend can do that.
            self._stopped_a_run = False
            self.view.send({"kind": "go on"})

    def refresh(self) -> None:
        """Say again in the form what the journal holds."""
        if self.view is None:
            return
        if self._journal is None:
            self._say(f"{self._journal_failed} Results are shown without a guess.")
            return
        rows = self._journal.history(self.question_id)
        notices = " ".join(self._journal.notices)
        if not rows:
            self._say(notices)
            return
        revealed = any(row.reveal is not None or row.prediction.after_reveal for row in rows)
        last = rows[-1].prediction
        late = " (after the answer was shown; does not count)" if last.after_reveal else ""
        kept = f"Committed {last.at:%Y-%m-%d %H:%M} UTC: {last.words}{late}."
        self.view.again_message = _AGAIN[revealed]
        todo = "" if revealed else self._todo
        self._say(f"{kept} {notices}".rstrip(), committed=True, todo=todo)

    def _say(self, message: str, committed: bool = False, todo: str = "") -> None:
        if self.view is not None:
            # The serial makes every answer a change, so that the form never waits in vain.
            serial = self.view.state.get("serial", 0) + 1
            said = {"message": message, "todo": todo, "committed": committed}
            self.view.state = {**said, "serial": serial}

    def show(self) -> None:
        """Display the form, or the bare question when nobody is here."""
        from IPython.display import display

        holds = {"holds_page": self.holds_page}
        bare = static_question(self.question_id, self.text, self._advice, self.form, **holds)
        display(self.view if self.view is not None else bare)


class Gate(Question):
    """A question for a ratio of two times. Make it with `ask`; ``options`` are a `Question`'s."""

    def __init__(
        self, question_id: str, text: str, baseline: str, candidate: str, **options: Any
    ) -> None:
        self.baseline, self.candidate = baseline, candidate
        advice = (
            f"Decide first: is {candidate} faster, the same or slower than {baseline}, "
            "and by what factor? Write it down, then open the result below."
        )
        form = {"kind": "ratio", "baseline": baseline, "candidate": candidate}
        super().__init__(question_id, text, form, advice, **options)

    @property
    def guess(self) -> Prediction | None:
        """The committed guess that counts, or None."""
        return self._journal.prediction(self.question_id) if self._journal else None

    def commit(self, direction: str, ratio: float, note: str = "") -> Prediction:
        """Commit a guess without the form: ``faster``, ``same`` or ``slower``, and by what ratio.

        Raises JournalError: the guess contradicts itself or cannot be kept.
        """
        where = self.question_id, self.page
        return self._keep(lambda journal: journal.commit(*where, direction, ratio, note))  # type: ignore[arg-type]

    def _commit_sent(self, content: Mapping[str, Any]) -> None:
        self.commit(content.get("direction"), content.get("ratio"), content.get("note") or "")  # type: ignore[arg-type]

    def result(
        self,
        measured: Any = None,
        *,
        recorded: Any = None,
        forecast: Any = None,
        no_measurement: str = "no GPU here",
        below: Callable[[], Shown] | None = None,
    ) -> Shown:
        """Show predicted, measured and recorded side by side, and score the guess.

        Each result is what `read_ratio` understands, or a function that returns it, called only
        when the gate is open; ``no_measurement`` is said in place of one that is None, and what
        ``below`` returns stands below. Raises
        PredictionPending: a reader is here and has not committed; LabError: a result that holds no
        ratio.
        """
        self.require_prediction()
        live = read_ratio(call(measured))
        kept = read_ratio(call(recorded), "recorded")
        model = read_ratio(call(forecast), "forecast")
        if live is not None and live.source == "recorded" and kept is None:
            live, kept = None, live
        answer = live or kept
        guess = self.guess
        scored = self._reveal(answer, model)
        rows: list[RatioRow] = [
            ("predicted", guess, "no prediction"),
            ("measured", live, no_measurement),
            ("recorded", kept, "no record yet"),
            ("forecast", model, ""),
        ]
        # Where nobody is here to predict or to lack a GPU, what is not there is not talked about.
        rows = [row for row in rows if row[1] or (self._has_reader and row[2])]
        caption = f"{self.candidate} against {self.baseline}"
        table = ratio_table(self.baseline, self.candidate, rows, caption)
        shown = table + self._say_score(scored, answer, model)
        shown = shown + below() if below else shown
        if self._has_reader:
            return shown
        return static_result(shown, self.question_id, answer.scored if answer else {})

    def _reveal(self, answer: Speedup | None, model: Speedup | None) -> Score | None:
        if answer is None:
            return None
        self._note_shown(
            lambda journal: journal.reveal(
                self.question_id,
                answer.value,
                answer.source,  # type: ignore[arg-type]
                answer.what or f"{self.candidate} against {self.baseline}",
                interval=answer.interval,
                forecast_ratio=model.value if model else None,
            )
        )
        guess = self.guess
        return score(guess, answer.value, answer.interval) if guess else None

    def _say_score(
        self, scored: Score | None, answer: Speedup | None, model: Speedup | None
    ) -> Shown:
        if answer is None:
            return self._say_open()
        lines = []
        if scored is not None:
            lines += [*self._say_late(), f"Your score: {scored.verdict}"]
        if model is not None:
            own = score(model.value, answer.value, answer.interval)
            lines.append(f"The model: {own.verdict}")
        lines += self._say_failures()
        if not lines:
            return Shown("", "")
        markup = "<br>".join(html.escape(line) for line in lines)
        return Shown(f'<div class="lt-score" style="{BOX}">{markup}</div>', "\n".join(lines))


def ask(
    question_id: str,
    text: str,
    baseline: str,
    candidate: str,
    *,
    page: str | None = None,
    holds_page: bool = True,
) -> Gate:
    """Ask for a prediction and show the form in this cell; `Gate.result` belongs in the next one.

    ``candidate`` may be faster or slower. By default ``page`` is the notebook's name, and on the
    site the rest of the page waits for the answer.
    """
    gate = Gate(question_id, text, baseline, candidate, page=page)
    gate.holds_page = holds_page
    gate.show()
    return gate


def call(thing: Any) -> Any:
    """A result, or what the function returns that gives it."""
    return thing() if callable(thing) else thing
