"""What is known of a method after a round: effective, ineffective, implementation failed.

A fourth word, undecided, is for what the measurement could not tell; such a method is in none of
the three lists and may be taken again.
"""

from __future__ import annotations

from typing import Literal, Protocol

from .sass_check import SassVerdict

MethodClass = Literal["effective", "ineffective", "implementation_failed", "undecided"]
Decision = Literal["above", "below"]


class Decided(Protocol):
    """What a class follows from of an attribution."""

    @property
    def decided(self) -> Decision | None:
        """On which side of the threshold the whole interval lies, or None."""


def classify(attribution: Decided | None, sass: SassVerdict) -> MethodClass:
    """The class of a method. What the compiler dropped failed, whatever the time did; one without a
    signature whose proof could not be asked, or without a time, stays undecided."""
    if sass.verdict == "absent" or (sass.verdict == "no signature" and sass.proved is False):
        return "implementation_failed"
    if sass.verdict == "no signature" and sass.proved is None:
        return "undecided"
    if attribution is None:
        return "undecided"
    if attribution.decided == "above":
        return "effective"
    return "ineffective" if attribution.decided == "below" else "undecided"
