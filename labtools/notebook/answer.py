"""Questions for a choice or a few numbers, asked as a ratio is: in a form, then the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labtools.record.prediction import Answered, GivenAnswer, JournalError, Source, say_answer

from .gate import Question, call
from .static_page import static_result
from .tables import Shown, format_value, make_note

_WHO = {"recorded": "record", "computed": "arithmetic"}


class AnswerGate(Question):
    """A question that asks for no ratio. Make it with `ask_choice` or `ask_numbers`; ``options``
    are a `Question`'s."""

    def __init__(
        self, question_id: str, text: str, form: Mapping[str, Any], **options: Any
    ) -> None:
        advice = "Write your answer down, then open the result below."
        super().__init__(question_id, text, form, advice, **options)

    @property
    def guess(self) -> GivenAnswer | None:
        """The committed answer that counts, or None."""
        return self._journal.answer(self.question_id) if self._journal else None

    def commit(self, said: Answered) -> GivenAnswer:
        """Commit one of the choices, or a number for each label, without the form.

        Raises JournalError: it is neither, or cannot be kept.
        """
        if self.form["kind"] == "choice":
            fits, wanted = said in self.form["choices"], ", ".join(self.form["choices"])
        else:
            labels = self.form["labels"]
            fits = not isinstance(said, str) and len(said) == len(labels)
            wanted = f"a number for {', '.join(labels)}"
        if not fits:
            still = "correct it and commit again; earlier predictions are untouched"
            raise JournalError("This answer was not kept.", f"what is asked for is {wanted}", still)
        where = self.question_id, self.page
        return self._keep(lambda journal: journal.commit_answer(*where, said))

    def _commit_sent(self, content: Mapping[str, Any]) -> None:
        sent = content.get("choice"), content.get("numbers")
        self.commit(sent[0] if sent[1] is None else tuple(sent[1]))  # type: ignore[arg-type]

    def result(
        self,
        right: Answered | Callable[[], Answered | None] | None,
        why: str | Callable[[], str] = "",
        *,
        word: Source = "forecast",
    ) -> Shown:
        """Compare the answer with the right one, None where there is none here; what is a function
        is called only when the gate is open.

        A record says what is ``recorded``, arithmetic what is ``computed``, and the model the rest.
        Raises PredictionPending: a reader is here and has not committed.
        """
        self.require_prediction()
        answer = call(right)
        if answer is None:
            return self._say_open()
        self._note_shown(lambda journal: journal.reveal_answer(self.question_id, answer, word))
        said = self.guess.said if self.guess else None
        if self.form["kind"] == "choice":
            told = _tell_choice(said, answer, _WHO.get(word, "model"))
        else:
            told = _tell_numbers(said, answer, self.form["labels"])
        told = " ".join(filter(None, [*self._say_late(), told, call(why), *self._say_failures()]))
        shown = make_note(told, word)
        if self._has_reader:
            return shown
        return static_result(shown, self.question_id, {"right": answer})


def ask_choice(question_id: str, text: str, choices: Sequence[str]) -> AnswerGate:
    """Ask for one of some choices and show the form in this cell; `AnswerGate.result` belongs in
    the next one."""
    return _ask(question_id, text, {"kind": "choice", "choices": list(choices)})


def ask_numbers(question_id: str, text: str, labels: Sequence[str]) -> AnswerGate:
    """Ask for a number for each label, as `ask_choice` does; the result has them in this order."""
    return _ask(question_id, text, {"kind": "numbers", "labels": list(labels)})


def _ask(question_id: str, text: str, form: Mapping[str, Any]) -> AnswerGate:
    gate = AnswerGate(question_id, text, form)
    gate.show()
    return gate


def _tell_choice(said: Any, right: str, who: str) -> str:
    verdict = "You were right. " if said == right else f"You said {said}. " if said else ""
    return f"{verdict}The {who} says: {right}."


def _tell_numbers(said: Any, right: Sequence[float], labels: Sequence[str]) -> str:
    lines = []
    known = said if said and len(said) == len(labels) else [None] * len(labels)
    for label, number, given in zip(labels, right, known, strict=True):
        verdict = (
            ""
            if given is None
            else ", as you said"
            if given == number
            else f"; you: {say_answer((given,))}"
        )
        lines.append(f"{label}: {format_value(number)}{verdict}.")
    return " ".join(lines)
