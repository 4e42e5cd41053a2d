"""The prediction game: the reader commits, the model commits, the measurement is revealed. The
outcome is read in `PredictionRounds.reveal` and nowhere else.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from labtools.predict import Forecast, gpu_of_device, load_gpu, model_name
from labtools.problem import LabError
from labtools.record.prediction import (
    SAME_WITHIN,
    JournalError,
    JournalRow,
    ModelPrediction,
    Prediction,
    Reveal,
    model_says,
    say_ratio,
    score,
)

from ...gate import Gate, PredictionPending
from ...live import can_run_live, measure_speedup
from ...ratios import Speedup
from ...reader import StatusLine, open_journal, page_name, reader_present
from ...static_page import static_question, static_round, static_rounds
from ...tables import BOX, Shown, make_note
from . import views
from .draw import Round, interval_in_words, recorded_answer

if TYPE_CHECKING:
    import ipywidgets

    from labtools.record.journal import Journal


_STYLE = (
    "<style>.lt-rounds .widget-html-content {line-height: 1.45; white-space: normal;"
    " flex: 1 1 auto; min-width: 0;}"
    ".lt-rounds .widget-html {height: auto; max-width: 100%; overflow: hidden;}"
    ".lt-rounds .widget-html-content table {font-size: 0.95em;}"
    ".lt-rounds .jupyter-button {height: auto; min-height: 2.4em; white-space: normal;"
    " line-height: 1.3; width: auto; max-width: 100%; overflow: visible;}"
    ".lt-rounds .widget-hbox {flex-wrap: wrap; overflow: visible;}</style>"
)


class PredictionRounds(StatusLine):
    """A series of rounds with a running score. ``place`` is that of the round that is shown,
    ``gate`` its form; ``view`` is everything as one widget, or None when nobody is here.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        page: str | None = None,
        journal: Journal | None = None,
        reader: bool | None = None,
    ) -> None:
        if not rounds:
            lacking = "the records hold no pair of measurements for this GPU"
            raise LabError("There is no round to play.", lacking, "name a GPU that has records")
        self._here = gpu_of_device() if can_run_live() else None
        self.rounds = [replace(one, gpu=self._here.name) if self._here else one for one in rounds]
        self.page = page or page_name()
        self.place = 0
        self._reader = reader_present() if reader is None else reader
        self._refusals: dict[str, str] = {}
        self._journal: Journal | None = None
        self._trouble = ""
        self.gate: Gate | None = None
        self.view: ipywidgets.VBox | None = None
        if self._reader:
            self._start(journal)
            self._build()

    @property
    def round(self) -> Round:
        """The round that is shown."""
        return self.rounds[self.place]

    # -- the three steps ---------------------------------------------------------------------

    def commit(self, direction: str, ratio: float, note: str = "") -> Prediction:
        """The reader's guess at the round that is shown; the model commits after it."""
        if self.gate is None:
            redo = "the rounds are listed; open the notebook in Jupyter to play them"
            why = "this notebook runs without a reader"
            raise JournalError("Nobody is here to predict.", why, redo)
        return self.gate.commit(direction, ratio, note)

    def commit_model(self) -> ModelPrediction | None:
        """Write the model's forecast of the round into the journal, sealed. Where the model has no
        answer, there is none, and `refusal` says why.
        """
        round_ = self.round
        if self._journal is None:
            return None
        said = self._journal.model_prediction(round_.question_id)
        if said is not None:
            return said
        try:
            answer = _model_answer(round_, *self._forecasts(round_))
        except LabError as error:
            self._refusals[round_.question_id] = str(error)
            return None
        return self._journal.commit_forecast(round_.question_id, self.page, **answer)

    @property
    def refusal(self) -> str:
        """Why the model has no answer to the round that is shown; empty where it has one."""
        return self._refusals.get(self.round.question_id, "")

    def reveal(self) -> Shown:
        """Measure or look up the outcome, score both, and say what the model makes of it."""
        round_ = self.round
        journal = self._journal
        guess = journal.prediction(round_.question_id) if journal else None
        if guess is None or journal is None:
            what = "This result waits for your prediction."
            why = "a number that was seen first cannot be predicted"
            raise PredictionPending(what, why, "Commit a guess first.")
        said = self.commit_model()
        shown = _shown_before(journal.history(round_.question_id))
        told = ""
        if shown is None:
            answer, told = self._measure(round_)
            source: Any = answer.source
            what = f"{views.say_change(round_)}, on {round_.workload}"
            journal.reveal(round_.question_id, answer.value, source, what, where=answer.what)
        else:
            answer = Speedup(shown.measured_ratio, shown.source, shown.where or shown.what)
            if answer.source == "recorded":
                answer = recorded_answer(round_) or answer
        return self._tell(round_, guess, said, answer, told)

    def hint(self, name: str) -> Shown:
        """One of `views.HINTS`; looking at it is noted and costs nothing."""
        if name not in views.HINTS:
            why = f"they are {list(views.HINTS)}"
            raise LabError(f"There is no hint {name!r}.", why, "name one")
        shown = views.HINTS[name][1](self.round)
        if self._journal is not None:
            self._journal.log_hint(self.round.question_id, self.page, name)
        return shown

    def scoreboard(self) -> Shown:
        """Every round of this page that the reader has finished: the reader beside the model."""
        if self._journal is None:
            on_site = "Rounds played on the static site have their scoreboard under the game."
            return make_note(f"No round has been played into a journal. {on_site}")
        return views.show_scores(self._journal.compare_with_forecast(self.page).rows)

    # -- measuring and telling ---------------------------------------------------------------

    def _measure(self, round_: Round) -> tuple[Speedup, str]:
        """The outcome, and what went wrong on the way to it."""
        told = ""
        if self._here is not None:
            try:
                before, after = round_.baseline, round_.candidate
                knobs = {"baseline_knobs": dict(before.knobs), "candidate_knobs": dict(after.knobs)}
                live = measure_speedup(before.rung, after.rung, round_.workload, **knobs)
                if live is not None:
                    return interval_in_words(live), ""
            except LabError as error:
                told = f"It could not be measured now, so the record answers. {error}"
        kept = recorded_answer(round_)
        if kept is None:
            why = told or f"there is no GPU here and no record of it on {round_.gpu}"
            go_on = "your guess is kept and stays open; go on with another round"
            raise LabError("This round has no answer.", why, go_on)
        return kept, told

    def _tell(
        self,
        round_: Round,
        guess: Prediction,
        said: ModelPrediction | None,
        answer: Speedup,
        told: str,
    ) -> Shown:
        shown = views.show_outcome(round_, views.model_speedup(said), answer, guess=guess)
        own = score(guess, answer.value)
        lines = [told] if told else []
        if guess.after_reveal:
            lines.append("This guess was made after the answer was shown and does not count.")
        lines.append(f"You: {own.verdict}")
        if said is not None:
            lines.append(f"The model: {score(said.ratio, answer.value).verdict}")
            lines.append(
                f"Its prediction was sealed at {said.at:%H:%M:%S} UTC as {said.seal[:12]}."
            )
        elif self.refusal:
            lines.append(f"The model had no answer. {self.refusal}")
        markup = "<br>".join(html.escape(line) for line in lines)
        shown += Shown(f'<div class="lt-score" style="{BOX}">{markup}</div>', "\n".join(lines))
        return shown + views.explain_difference(round_, *self._forecasts(round_)) if said else shown

    def _forecasts(self, round_: Round) -> tuple[Forecast, Forecast]:
        return views.forecast_round(round_, self._here or round_.gpu)

    # -- what is on the screen ---------------------------------------------------------------

    def show(self) -> None:
        """Display the game, or the list of rounds when nobody is here."""
        from IPython.display import display

        display(self.view if self.view is not None else self.listing())

    def listing(self) -> Shown:
        """The rounds as a table of questions, and as a game for a page that nobody sits at."""
        note = (
            "The record of the GPU that the round names answers. In Jupyter the guesses go into "
            "your journal, and a GPU that is there is measured."
        )
        table = views.show_rounds(self.rounds)
        summary = '<summary style="cursor:pointer">All rounds</summary>'
        folded = f"<details>{summary}{table.html}</details>"
        played = static_rounds([self._static_round(at) for at in range(len(self.rounds))], note)
        return Shown(folded + played, f"{table.text}\n{note}")

    def _static_round(self, at: int) -> str:
        """One round of a page that nobody sits at: its answer is sealed, not shown."""
        round_ = self.rounds[at]
        sealed: dict[str, Any] = {"what": views.say_change(round_)}
        said, reason = None, Shown("", "")
        try:
            both = self._forecasts(round_)
            answer = _model_answer(round_, *both)
            said = model_says(round_.question_id, self.page, reader="nobody", **answer)
            reason = views.explain_difference(round_, *both)
            sealed["model"] = {"ratio": said.ratio}
            sealed |= {"said": say_ratio(said.ratio), "seal": said.seal[:12]}
        except LabError as error:
            sealed["refusal"] = f"The model had no answer. {error}"
        found = recorded_answer(round_)
        if found is not None:
            sealed |= {"scored": found.scored, "measured": say_ratio(found.value)}
        sealed["html"] = (
            views.show_outcome(round_, views.model_speedup(said), found) + reason
        ).html
        hints = {label: make(round_) for label, make in views.HINTS.values()}
        baseline, candidate = views.say_sides(round_)
        form = {"kind": "ratio", "baseline": baseline, "candidate": candidate}
        text = self._question_text(round_)
        gate = static_question(round_.question_id, text, "", form, holds_page=False)
        return static_round(views.show_question(round_, at, len(self.rounds)), hints, gate, sealed)

    def _question_text(self, round_: Round) -> str:
        where = (self._here or load_gpu(round_.gpu)).title
        return (
            f"On {where}: {views.say_change(round_)}. Faster, slower, or the same (within "
            f"{SAME_WITHIN - 1:.0%}), and by what factor?"
        )

    def _start(self, journal: Journal | None) -> None:
        """At the first round that the reader has not finished."""
        self._journal, failed = open_journal(journal, lambda one: one.history())
        if self._journal is None:
            without = "Without the journal there is no commitment, so no round can be played."
            self._trouble = f"{failed} {without}"
            return
        done = {row.prediction.question_id for row in self._journal.history() if row.reveal}
        places = (n for n, round_ in enumerate(self.rounds) if round_.question_id not in done)
        self.place = next(places, len(self.rounds) - 1)

    def _build(self) -> None:
        import ipywidgets as widgets

        self._head, self._hint_area = widgets.HTML(), widgets.HTML()
        self._status, self._result, self._board = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._form = widgets.VBox()
        self._hint_buttons = {
            name: self._button(label, partial(self._show_hint, name))
            for name, (label, _) in views.HINTS.items()
        }
        self._reveal_button = self._button("Reveal the measurement", self._show_result)
        self._back = self._button("Previous round", partial(self._go, -1))
        self._next = self._button("Next round", partial(self._go, 1))
        hints = widgets.HBox([*self._hint_buttons.values()])
        asked = [self._head, hints, self._hint_area, self._form, self._status]
        turn = widgets.HBox([self._back, self._next])
        shown = [widgets.HBox([self._reveal_button]), self._result, turn, self._board]
        self.view = widgets.VBox([*asked, *shown])
        self.view.add_class("lt-rounds")
        self._open_round()

    def _button(self, text: str, act: Callable[[], None]) -> Any:
        """A button whose failure is told on the page."""
        import ipywidgets as widgets

        button = widgets.Button(description=text, layout=widgets.Layout(width="auto"))
        button.on_click(lambda _: self._guard(act))
        return button

    def _open_round(self) -> None:
        round_ = self.round
        self._reveal_button.disabled = True
        self._head.value = _STYLE + views.show_question(round_, self.place, len(self.rounds)).html
        self._hint_area.value, self._result.value = "", ""
        self._back.disabled = self.place == 0
        self._next.disabled = self.place == len(self.rounds) - 1
        if self._journal is None:
            self._form.children = ()
            for button in self._hint_buttons.values():
                button.disabled = True
            self._say(self._trouble)
            return
        self.gate = Gate(
            round_.question_id,
            self._question_text(round_),
            *views.say_sides(round_),
            page=self.page,
            journal=self._journal,
            reader=True,
            todo="The model commits next; then reveal.",
            on_commit=lambda _: self._guard(self._after_commit),
        )
        self._form.children = (self.gate.view,)
        rows = self._journal.history(round_.question_id)
        self._reveal_button.disabled = not rows
        self._say("")
        if _shown_before(rows) is not None:
            self._guard(self._show_result)
        elif rows:
            self._guard(self._after_commit)
        self._board.value = self.scoreboard().html

    def _after_commit(self) -> None:
        self._say("The model reads the machine code.")
        said = self.commit_model()
        self._reveal_button.disabled = False
        committed = said and f"committed too. Its prediction is sealed: {said.seal[:12]}."
        self._say(f"The model has {committed or f'no answer here. {self.refusal}'}")

    def _show_hint(self, name: str) -> None:
        self._hint_area.value = f"<div>{self.hint(name).html}</div>"

    def _show_result(self) -> None:
        self._reveal_button.disabled = True
        rows = self._journal.history(self.round.question_id) if self._journal else []
        if self._here is not None and _shown_before(rows) is None:
            self._say(f"Both are being timed now on {self._here.title}. This takes a while.")
        try:
            shown = self.reveal()
        except LabError:
            self._reveal_button.disabled = False
            raise
        if self.gate is not None:
            self.gate.refresh()
        self._say("")
        self._board.value = self.scoreboard().html
        self._result.value = f'<div role="status">{shown.html}</div>'

    def _go(self, step: int) -> None:
        self.place = max(0, min(len(self.rounds) - 1, self.place + step))
        self._open_round()


def play_rounds(rounds: Sequence[Round], *, page: str | None = None) -> PredictionRounds:
    """Show the game of what `draw_rounds` or `find_rounds` gave in this cell."""
    game = PredictionRounds(rounds, page)
    game.show()
    return game


def _model_answer(round_: Round, before: Forecast, after: Forecast) -> dict[str, Any]:
    """What is sealed of the model's answer to a round."""
    return {
        "baseline_us": before.time_us,
        "candidate_us": after.time_us,
        "band": views.ratio_band(before, after),
        "bounds": (before.bound, after.bound),
        "model": model_name(),
        "gpu": round_.gpu,
    }


def _shown_before(rows: Sequence[JournalRow]) -> Reveal | None:
    return next((row.reveal for row in rows if isinstance(row.reveal, Reveal)), None)
