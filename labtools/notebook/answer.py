"""Answers that a reader writes into a cell, compared with ours and never shown before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .gate import AnswerPending
from .reader import reader_present
from .static_page import static_question, static_result
from .tables import Shown, format_value, make_note


def check_choice(
    chosen: str,
    choices: Sequence[str],
    right: Callable[[], str],
    why: Callable[[], str],
    *,
    question_id: str,
    text: str,
    word: str = "forecast",
) -> Shown:
    """Compare a written-down choice, empty when there is none, with the right one; ``right`` and
    ``why`` are called only when the answer may be shown.

    A record says what is ``recorded``, arithmetic what is ``computed``, and the model the rest.
    Raises AnswerPending: a reader is here and has written none of the choices.
    """
    if reader_present() and chosen not in choices:
        raise _pending(f"The choices are: {', '.join(choices)}.")
    answer = right()
    said = "You were right. " if chosen == answer else f"You said {chosen}. "
    verdict = said if chosen in choices else ""
    who = {"recorded": "record", "computed": "arithmetic"}.get(word, "model")
    shown = make_note(f"{verdict}The {who} says: {answer}. {why()}", word)
    form = {"kind": "choice", "choices": list(choices)}
    return _for_whoever_is_here(shown, question_id, text, form, answer)


def check_numbers(
    given: Mapping[str, float | None],
    right: Mapping[str, float],
    *,
    question_id: str,
    text: str,
    word: str = "computed",
) -> Shown:
    """Compare written-down numbers, None where nothing was written, with ours.

    Raises AnswerPending: a reader is here and a number is missing.
    """
    missing = [name for name in right if given.get(name) is None]
    if reader_present() and missing:
        raise _pending(f"Still missing: {', '.join(missing)}.")
    lines = []
    for name, number in right.items():
        said = given.get(name)
        verdict = "" if said is None else ", as you said" if said == number else f"; you: {said}"
        lines.append(f"{name}: {format_value(number)}{verdict}")
    shown = make_note(". ".join(lines) + ".", word)
    form = {"kind": "numbers", "labels": list(right)}
    return _for_whoever_is_here(shown, question_id, text, form, list(right.values()))


def _pending(more: str) -> AnswerPending:
    still = f"Set it in the cell above, run that cell, then this one and those below it. {more}"
    why = "what was seen first cannot be predicted"
    return AnswerPending("This answer waits for yours.", why, still)


def _for_whoever_is_here(
    shown: Shown, question_id: str, text: str, form: Mapping[str, Any], right: Any
) -> Shown:
    if reader_present():
        return shown
    advice = "Write your answer down, then open the result below."
    question = static_question(question_id, text, advice, form)
    return question + static_result(shown, question_id, {"right": right})
