"""The ledger of what others published, ``book/claims.yml``: figures and claims, and no verdict.

A verdict is what a check of `labtools.predict.claim_checks` finds when it is run.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from labtools.problem import LabError, repository_root

from .prediction import SAME_WITHIN

How = Literal["computed", "recorded", "forecast", "live", "not checkable"]
"""From published figures and data sheets; from this project's records; from the model; from a
record of the card that it is about, which a reader may make; not from anything here."""

Verdict = Literal[
    "holds", "self-consistent", "direction only", "slip", "inconsistent", "incomplete",
    "misattributed", "refuted", "not measured here", "not checkable",
]  # fmt: skip
ValueOrigin = Literal["computed", "recorded", "forecast", "live"]
"""Where our value comes from."""
VERDICTS: dict[Verdict, str] = {
    "holds": "our value is the claimed one, within what was rounded or agreed on",
    "self-consistent": "published figures agree with each other; nothing of ours was asked",
    "direction only": "the sign is right on our machine, the size is not",
    "slip": "a number is off by less than a quarter, the sentence around it is not touched",
    "inconsistent": "it contradicts the source's own figures or rule",
    "incomplete": "the number is right, and does not support what is said with it",
    "misattributed": "the number is true of something else than what it is said of",
    "refuted": "it is not so",
    "not measured here": "the record that decides is not here; the row says which command makes it",
    "not checkable": "nothing here can decide it",
}

Number = float | tuple[float, ...]


class Claim(BaseModel):
    """One thing that a source says."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")  # names it
    group: str  # claims that one cell of the page checks
    source: str  # key in ``book/references.bib``
    text: str  # what is claimed, in our words
    value: Number | None = None  # the figure; None for a sentence without one
    # where the value stands among the figures, ``ladder.v3_ms``, in place of ``value``
    figure: str | None = None
    unit: str = ""  # of the value; empty for a plain number
    how: How  # see `How`
    check: str | None = None  # name of the function that decides
    # what that function needs besides: a formula and its sources, or a query of records
    given: dict[str, Any] = Field(default_factory=dict)
    tolerance: float = Field(default=0.01, ge=0)  # relative difference up to which it holds
    reason: str = ""  # of one that is not checkable, why
    # claims whose figures this one is made of: where one fails, agreement is no support
    made_of: tuple[str, ...] = ()
    page: str = "reproduce"  # where a reader redoes it, relative to ``book/``, without ending
    cell: str  # label of the cell on that page

    @model_validator(mode="after")
    def _can_be_decided(self) -> Claim:
        if (self.how == "not checkable") != (self.check is None):
            raise ValueError("a claim has a check, or is not checkable")
        if (self.how == "not checkable") != bool(self.reason):
            raise ValueError("what is not checkable says why; a verdict of a check is not typed")
        return self

    @model_validator(mode="after")
    def _same_is_narrow(self) -> Claim:
        same = self.check == "recorded_ratio" and self.value == 1.0
        if same and self.tolerance > SAME_WITHIN - 1 + 1e-9:
            said = f"that nothing changed holds within {SAME_WITHIN - 1:.0%} and no more"
            raise ValueError(f"{said}, as a prediction of the same does")
        return self

    @model_validator(mode="after")
    def _a_time_is_no_limit(self) -> Claim:
        if "relation" in self.given and self.unit in ("us", "ms"):
            raise ValueError("a time that was measured is a value; any larger one is above a floor")
        return self

    @property
    def number(self) -> float:
        """The value of a claim with one number."""
        if isinstance(self.value, (int, float)):
            return float(self.value)
        what, why = f"The claim {self.id} has no single value.", f"it says {self.value!r}"
        raise LabError(what, why, "correct book/claims.yml")


class Ledger(BaseModel):
    """Figures by table, and the claims in their order."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    figures: dict[str, dict[str, Any]]
    claims: tuple[Claim, ...]

    def find(self, claim_id: str) -> Claim:
        """A claim by its id."""
        known = {claim.id: claim for claim in self.claims}
        if claim_id not in known:
            what, why = f"There is no claim {claim_id!r}.", f"the claims are {', '.join(known)}"
            raise LabError(what, why, "labtools claims lists them")
        return known[claim_id]

    def group(self, name: str) -> list[Claim]:
        """The claims of a group, in order."""
        return [claim for claim in self.claims if claim.group == name]


class OurValue(BaseModel):
    """What we have beside a claim."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    reason: str  # one sentence that says where it comes from, or why it decides
    value: Number | None = None  # in the claim's unit; None where there is none
    # ``computed``, ``recorded``, ``forecast`` or ``live``; None where nothing was found
    origin: ValueOrigin | None = None
    interval: tuple[float, float] | None = None  # 95 % interval of a measured value
    where: str = ""  # GPU and date of a measured value


class Finding(OurValue):
    """What a check found out."""

    verdict: Verdict  # see `VERDICTS`


def ledger_path() -> Path:
    """``book/claims.yml``."""
    return repository_root() / "book" / "claims.yml"


@functools.lru_cache(maxsize=4)
def load_ledger(path: Path | None = None) -> Ledger:
    """Read the ledger and put each claim's figure in its place."""
    import yaml

    path = path or ledger_path()
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        claims = [_with_figure(claim, data["figures"]) for claim in data["claims"]]
        ledger = Ledger.model_validate({"figures": data["figures"], "claims": claims})
        ids = [claim.id for claim in ledger.claims]
        if twice := sorted(name for name in ids if ids.count(name) > 1):
            raise ValueError(f"two claims share an id: {twice}")
    except (OSError, yaml.YAMLError, ValidationError, ValueError, KeyError, TypeError) as error:
        what, still = f"{path.name} is not a ledger of claims.", "git checkout brings it back"
        raise LabError(what, str(error), still) from error
    return ledger


def _with_figure(claim: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    place = claim.get("figure")
    if place is None:
        return claim
    if "value" in claim:
        raise ValueError(f"{claim.get('id')} has a value and a figure")
    found: Any = figures
    for part in str(place).split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return {**claim, "value": found}


def published_figures() -> dict[str, dict[str, Any]]:
    """The figures of the ledger by table; pages mark each one ``claimed``."""
    return load_ledger().figures


def say_number(value: Number | None, unit: str = "") -> str:
    """A value of the ledger for a person: to four digits, two with a dash between."""
    if value is None:
        return ""
    if isinstance(value, (tuple, list)):
        text = (" - " if len(value) == 2 else ", ").join(f"{number:.4g}" for number in value)
    else:
        text = f"{value:.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{text}{'' if unit in ('', 'x') else ' '}{unit}"
