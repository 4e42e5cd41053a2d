"""What a guess is, what a reveal is, and how a guess is scored."""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)

from labtools.problem import LabError
from labtools.problem.text import mend_text

Direction = Literal["faster", "same", "slower"]
Source = Literal["live", "recorded", "forecast", "computed", "claimed"]

SAME_WITHIN = 1.05
"""A ratio between 1/1.05 and 1.05 counts as the same speed, unless an interval is given."""

MISUNDERSTOOD_FROM = 4.0
"""Off by this factor or more, the guess had the wrong bottleneck."""

MISUNDERSTOOD = f": {MISUNDERSTOOD_FROM:.0f}x or more, so you do not yet understand the bottleneck"

SIZES = (
    (1.1, 2, ": within a tenth"),
    (1.5, 2, ": close"),
    (2.0, 1, ": the right order"),
    (MISUNDERSTOOD_FROM, 1, ": something large is missing from the picture"),
)
"""Of a guess that is off by up to so much: the factor's digits, and words."""

Interval = tuple[float, float]
_Text = Annotated[str, AfterValidator(mend_text)]
_Moment = Annotated[
    AwareDatetime,
    Field(gt=datetime(2, 1, 1, tzinfo=UTC), lt=datetime(9998, 1, 1, tzinfo=UTC)),  # in any zone
]
_PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
Answered = (
    Annotated[_Text, Field(min_length=1)] | Annotated[tuple[_Number, ...], Field(min_length=1)]
)
"""What a reader chose, or the numbers that were asked for."""


class JournalError(LabError):
    """The journal cannot do what was asked."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    entry_id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    at: _Moment = Field(default_factory=lambda: datetime.now(UTC))
    reader: _Text
    question_id: Annotated[_Text, Field(min_length=1)]


class Prediction(_Entry):
    """One committed guess."""

    kind: Literal["prediction"] = "prediction"
    page: _Text
    direction: Direction  # of the candidate, against the baseline
    ratio: _PositiveFloat  # baseline time / candidate time, so above 1 means faster
    note: _Text = ""
    after_reveal: bool = False  # made when the answer had been shown; it does not count

    @model_validator(mode="after")
    def _agree(self) -> Prediction:
        if self.direction == "same":
            agree = direction_of(self.ratio) == "same"
        else:
            agree = (self.ratio > 1) == (self.direction == "faster")
        if not agree:
            said = f"direction {self.direction!r} and ratio {self.ratio:g} contradict each other"
            means = "the ratio is baseline time / candidate time, above 1 when the candidate is "
            raise ValueError(f"{said}: {means}faster, below 1 when it is slower")
        return self

    @property
    def words(self) -> str:
        """The guess as it reads."""
        return "the same" if self.direction == "same" else _say_size(self.ratio, self.direction)


class GivenAnswer(_Entry):
    """One committed answer to a question that asks for no ratio."""

    kind: Literal["answer"] = "answer"
    page: _Text
    said: Answered  # one of the choices, or a number for each label
    after_reveal: bool = False  # as in a `Prediction`

    @property
    def words(self) -> str:
        """The answer as it reads."""
        return say_answer(self.said)


Guess = Prediction | GivenAnswer


class _Shown(_Entry):
    """What was shown to a reader."""

    source: Source  # where the answer comes from

    @property
    def says(self) -> dict[str, Any]:
        """All but when it was shown."""
        return self.model_dump(exclude={"entry_id", "at"})


class RightAnswer(_Shown):
    """The right answer to a question that asks for no ratio, as it was shown."""

    kind: Literal["right"] = "right"
    right: Answered

    @property
    def words(self) -> str:
        """The answer as it reads."""
        return say_answer(self.right)


class Reveal(_Shown):
    """The measured ratio, as it was shown."""

    kind: Literal["reveal"] = "reveal"
    measured_ratio: _PositiveFloat  # baseline time / candidate time
    what: _Text = ""  # the comparison in words
    where: _Text = ""  # when and on what it was measured, where that is not part of `what`
    # low and high end of the measured ratio
    interval: tuple[_PositiveFloat, _PositiveFloat] | None = None
    # what the model predicted for the same question, where it did
    forecast_ratio: _PositiveFloat | None = None

    @property
    def words(self) -> str:
        """The ratio as it reads."""
        return say_ratio(self.measured_ratio, self.interval)


class ModelPrediction(_Entry):
    """What the model said to the same question, written down before the answer was shown."""

    kind: Literal["model"] = "model"
    page: _Text  # where the question stands
    ratio: _PositiveFloat  # baseline time / candidate time, as forecast
    # low and high end of the ratio; None where the model gave none
    band: tuple[_PositiveFloat, _PositiveFloat] | None
    # baseline_us, candidate_us: the two forecasts, microseconds
    baseline_us: _PositiveFloat
    candidate_us: _PositiveFloat
    bounds: tuple[str, str] = ("", "")  # what the model says binds the baseline and the candidate
    model: str  # name and version of the model
    gpu: str  # short name
    seal: str = ""  # `seal_of`; an entry that was changed later does not fit it
    after_reveal: bool = False  # True when the answer had been shown; such an entry does not count

    @model_validator(mode="after")
    def _fits_its_seal(self) -> ModelPrediction:
        seal = seal_of(self)
        if not self.seal:
            object.__setattr__(self, "seal", seal)  # frozen, and not yet handed out
        elif self.seal != seal:
            raise ValueError("the model's prediction does not fit its seal: it was changed")
        return self


_SEALED = {"question_id", "ratio", "band", "baseline_us", "candidate_us", "bounds", "model", "gpu"}


def seal_of(said: ModelPrediction) -> str:
    """SHA-256 of what a model's prediction says. It names no reader and no time, so that the same
    model gives every reader the same seal."""
    body = {name: getattr(said, name) for name in _SEALED}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def model_says(
    question_id: str, page: str, *, baseline_us: float, candidate_us: float, **told: Any
) -> ModelPrediction:
    """A model's prediction, sealed, from its two forecasts in microseconds; ``told`` are the other
    fields of a `ModelPrediction`.

    Six digits are more than the model knows, and the same on every machine.
    """
    if band := told.get("band"):
        told["band"] = _six_digits(band[0]), _six_digits(band[1])
    return ModelPrediction(
        question_id=question_id,
        page=page,
        ratio=_six_digits(baseline_us / candidate_us if candidate_us > 0 else -1.0),
        baseline_us=_six_digits(baseline_us),
        candidate_us=_six_digits(candidate_us),
        **told,
    )


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


class Hint(_Entry):
    """A reader looked at a hint. It costs nothing; it is on record."""

    kind: Literal["hint"] = "hint"
    page: _Text
    hint: Annotated[_Text, Field(min_length=1)]  # which one
    after_commit: bool = False  # the reader had committed a guess by then


class Notes(_Entry):
    """What only the reader can fill in: a hypothesis, and what would refute it."""

    kind: Literal["notes"] = "notes"
    page: _Text
    fields: dict[_Text, _Text]  # text by name of the field


AnyEntry = Prediction | GivenAnswer | Reveal | RightAnswer | ModelPrediction | Hint | Notes
ENTRY: TypeAdapter[AnyEntry] = TypeAdapter(
    Annotated[AnyEntry, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)
"""Reads an entry of any kind from JSON."""


class Score(BaseModel):
    """How a guess did."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    predicted_ratio: float
    measured_ratio: float
    predicted_direction: Direction
    measured_direction: Direction
    direction_right: bool  # the guess and the measurement point the same way
    off_by: float  # max(p/m, m/p) of the ratios, 1 when they agree
    understood: bool  # False when ``off_by`` reaches `MISUNDERSTOOD_FROM`
    verdict: str  # one sentence

    @property
    def right(self) -> bool:
        """Whether the direction was right."""
        return self.direction_right


class AnswerScore(BaseModel):
    """Whether an answer was right."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    right: bool

    @property
    def verdict(self) -> str:
        """One word."""
        return "Right." if self.right else "Wrong."


class JournalRow(BaseModel):
    """A guess with the reveal that followed it, if any, and its score."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    prediction: Guess
    reveal: Reveal | RightAnswer | None = None
    score: Score | AnswerScore | None = None
    model: ModelPrediction | None = None  # that it had committed to this question
    hints: tuple[str, ...] = ()  # taken before committing


class ForecastComparison(BaseModel):
    """The reader and the model on the questions that both answered before the reveal."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    rows: tuple[tuple[JournalRow, Score], ...]
    reader_off_by: float | None  # geometric mean of the factors; None without rows
    model_off_by: float | None


def direction_of(ratio: float, interval: Interval | None = None) -> Direction:
    """What a ratio of times says: baseline time / candidate time above 1 is ``faster``.

    With an interval the two are the ``same`` when it spans 1, otherwise when the ratio lies
    within `SAME_WITHIN` of 1.
    """
    if interval is None:
        same = 1 / SAME_WITHIN <= ratio <= SAME_WITHIN
    else:
        same = interval[0] <= 1 <= interval[1]
    return "same" if same else "faster" if ratio > 1 else "slower"


def say_ratio(ratio: float, interval: Interval | None = None) -> str:
    """In words: ``1.74x faster``, ``2.00x slower``, ``1.004x faster``, ``the same``."""
    direction = direction_of(ratio, interval)
    return f"the same ({ratio:.2f}x)" if direction == "same" else _say_size(ratio, direction)


def _say_size(ratio: float, direction: Direction) -> str:
    size = ratio if direction == "faster" else 1 / ratio
    # 1.00x would say both that it is faster and that it is not.
    digits = 3 if size < 1.005 else 2
    return f"{size:.{digits}f}x {direction}"


def score(
    prediction: Prediction | float, measured: Reveal | float, interval: Interval | None = None
) -> Score:
    """Score a guess against a measurement, both as baseline time / candidate time.

    Raises JournalError: a ratio that is not a positive number.
    """
    if isinstance(measured, Reveal):
        measured_ratio, interval = measured.measured_ratio, measured.interval
    else:
        measured_ratio = _positive(measured, "measured ratio")
    if isinstance(prediction, Prediction):
        predicted, guessed = prediction.ratio, prediction.direction
    else:
        predicted = _positive(prediction, "predicted ratio")
        guessed = direction_of(predicted)
    actual = direction_of(measured_ratio, interval)
    off_by = max(predicted / measured_ratio, measured_ratio / predicted)
    sizes = ((digits, words) for most, digits, words in SIZES if off_by <= most)
    digits, words = next(sizes) if off_by < MISUNDERSTOOD_FROM else (1, MISUNDERSTOOD)
    right = "right" if guessed == actual else "wrong"
    return Score(
        predicted_ratio=predicted,
        measured_ratio=measured_ratio,
        predicted_direction=guessed,
        measured_direction=actual,
        direction_right=guessed == actual,
        off_by=off_by,
        understood=off_by < MISUNDERSTOOD_FROM,
        verdict=f"Direction {right}, {off_by:.{digits}f}x off{words}.",
    )


def score_guess(guess: Guess, shown: Reveal | RightAnswer) -> Score | AnswerScore | None:
    """Score a guess against what was shown; None where one is a ratio and the other is not."""
    if isinstance(guess, GivenAnswer):
        return (
            AnswerScore(right=guess.said == shown.right) if isinstance(shown, RightAnswer) else None
        )
    return score(guess, shown) if isinstance(shown, Reveal) else None


def say_answer(said: str | tuple[float, ...]) -> str:
    """A choice or numbers as they read."""
    return said if isinstance(said, str) else ", ".join(f"{number:.12g}" for number in said)


def _positive(value: float, name: str) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        why = "a ratio of two times is a positive number"
        still = "the prediction is kept and can be scored when there is a result"
        raise JournalError(f"The {name} is {value!r}.", why, still)
    return number
