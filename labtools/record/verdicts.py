"""The one rule from our value to a verdict. A check finds the value and says nothing of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .claims import Claim, OurValue, Verdict
from .expressions import Quantity, evaluate_expression
from .prediction import SAME_WITHIN, direction_of

SLIP_WITHIN = 1.25
"""A number that is off by less than this factor is a slip, whoever's figures say so."""
HELD: tuple[Verdict, ...] = ("holds", "self-consistent")
"""The verdicts that agree with the claim."""


class Unjudged(OurValue):
    """What a check found, and what a verdict depends on besides."""

    choice: tuple[str, ...] | None = None  # of a claim that names one of several
    names: Mapping[str, Quantity | None] = {}  # what a condition may ask
    published: bool = False  # no record, data sheet, derivation or forecast moves the value
    own: bool = False  # and all of its figures are of the claim's own source
    doubt: str = ""  # why agreement would be no support; empty where nothing speaks against it
    settled: Verdict | None = None  # where there is no value to judge


def judge(claimed: float, ours: float, tolerance: float) -> Verdict:
    """``holds``, ``slip`` or ``refuted``, by how far two values of one thing lie apart."""
    if math.isclose(claimed, ours, rel_tol=tolerance, abs_tol=1e-12):
        return "holds"
    if claimed * ours <= 0:
        return "refuted"
    return "slip" if max(claimed / ours, ours / claimed) < SLIP_WITHIN else "refuted"


RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "below": lambda ours, claimed: ours < claimed,
    "above": lambda ours, claimed: ours > claimed,
    "at least": lambda ours, claimed: ours >= claimed,
    "at most": lambda ours, claimed: ours <= claimed,
}
"""How our value stands to a claimed limit; ``within`` has two, the claim's two values."""


def decide_verdict(claim: Claim, found: Unjudged) -> Verdict:
    """What a found value says of a claim.

    A value that fits *holds*, or is *self-consistent* where it rests on published figures alone,
    or is *incomplete* where something speaks against it. ``when`` of the claim names conditions,
    over `Unjudged.names` and ``ours``, under which it gets another verdict.

    Raises MissingName: a condition asks for what was not measured.
    """
    if found.settled:
        return found.settled
    names = {**found.names}
    if isinstance(found.value, (int, float)):
        names["ours"] = found.value
    conditions = claim.given.get("when", {}).items()
    true: list[Verdict] = [one for one, text in conditions if evaluate_expression(text, names)]
    if _fits(claim, found):
        if found.doubt or "incomplete" in true:
            return "incomplete"
        return "self-consistent" if found.published else "holds"
    if others := [one for one in true if one != "incomplete"]:
        return others[0]
    if found.choice is not None or "relation" in claim.given or isinstance(found.value, tuple):
        return "inconsistent" if found.own else "refuted"
    assert isinstance(found.value, (int, float))
    if found.interval is not None:
        same = _direction(claim.number) == _direction(found.value)
        return "direction only" if same else "refuted"
    verdict = judge(claim.number, found.value, claim.tolerance)
    return "inconsistent" if verdict == "refuted" and found.own else verdict


def _fits(claim: Claim, found: Unjudged) -> bool:
    if found.choice is not None:
        return bool(set(found.choice) & set(claim.given["named"]))
    relation = claim.given.get("relation")
    if relation == "within" and isinstance(claim.value, tuple):
        low, high = claim.value
        ends = found.interval or (found.value,)
        return all(isinstance(end, (int, float)) and low <= end <= high for end in ends)
    if found.interval is not None and isinstance(found.value, (int, float)):
        low, high = found.interval
        if relation:  # the end of the interval that is nearer to the limit
            end = low if relation in ("above", "at least") else high
            return RELATIONS[relation](end, claim.number)
        if claim.number == 1.0:  # nothing changed, which the rule of predictions decides
            return direction_of(found.value, found.interval) == "same"
        margin = 1 + claim.tolerance
        return low <= claim.number * margin and claim.number / margin <= high
    mine = found.value if isinstance(found.value, tuple) else (found.value or 0.0,)
    theirs = claim.value if isinstance(claim.value, tuple) else (claim.number,)
    if len(mine) != len(theirs):
        return False
    if relation:
        return all(RELATIONS[relation](one, other) for one, other in zip(mine, theirs, strict=True))
    return all(
        judge(other, one, claim.tolerance) == "holds"
        for one, other in zip(mine, theirs, strict=True)
    )


def _direction(ratio: float) -> int:
    if 1 / SAME_WITHIN <= ratio <= SAME_WITHIN:
        return 0
    return 1 if ratio > 1 else -1
