"""``labtools claims``: what others published, with verdicts that are computed now."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labtools.predict.claim_checks import check_claim, gather_evidence
from labtools.problem import LabError
from labtools.record import DamagedRecordWarning
from labtools.record.claims import VERDICTS, Claim, Finding, load_ledger, say_number

from .outcome import Answer, UsageProblem, print_table, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress

_COLUMNS = ("id", "claim", "claimed", "ours", "verdict", "checked")
_MOST_SHOWN = 20
"""Claims of one verdict that are shown unasked; most take two lines."""
HEADLINE_GROUP = "headline"
"""The group of the ledger whose claims the README tells of."""


@dataclass(frozen=True)
class ClaimRow:
    """A claim with our value and the verdict."""

    claim: Claim
    finding: Finding

    @property
    def page(self) -> str:
        """The file where a reader redoes it."""
        return f"book/{self.claim.page}.md"

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        claim, finding = self.claim, self.finding
        return {
            "id": claim.id,
            "group": claim.group,
            "source": claim.source,
            "claim": claim.text,
            "claimed": claim.value,
            "unit": claim.unit,
            "how": claim.how,
            "check": claim.check,
            "tolerance": claim.tolerance,
            "ours": finding.value,
            "interval": finding.interval,
            "verdict": finding.verdict,
            "reason": finding.reason,
            "origin": finding.origin,
            "where": finding.where,
            "page": self.page,
            "cell": claim.cell,
        }

    def cells(self) -> list[str]:
        """Its row of the table."""
        claim, finding = self.claim, self.finding
        return [
            claim.id,
            claim.text,
            say_number(claim.value, claim.unit),
            say_number(finding.value, claim.unit),
            finding.verdict,
            finding.origin or claim.how,
        ]


@dataclass(frozen=True)
class ClaimsChecked(Answer):
    """Claims, how many got which verdict, and what each verdict means."""

    claims: tuple[ClaimRow, ...]
    verdicts: Mapping[str, int]
    meaning: Mapping[str, str]

    def show(self, console: Console) -> None:
        """How many claims got which verdict, and those of the headline; the first of one verdict,
        or one claim, where that is asked for."""
        if len(self.verdicts) <= 1:
            self._show(console, self.claims[:_MOST_SHOWN])
            return
        console.print(f"{len(self.claims)} claims, their verdicts computed now\n")
        counts = [(str(count), name, self.meaning[name]) for name, count in self.verdicts.items()]
        print_table(console, ("claims", "verdict", "it means"), counts, right=("claims",))
        console.print("\nThose of the published headline:\n")
        headline = [row for row in self.claims if row.claim.group == HEADLINE_GROUP]
        print_table(console, _COLUMNS, [row.cells() for row in headline])
        console.print(
            "\n--id ID says why and where to redo it, --verdict lists those of one kind, --verbose "
            "all"
        )

    def show_all(self, console: Console) -> None:
        """A table of all, and how many got which verdict."""
        self._show(console, self.claims)

    def _show(self, console: Console, shown: Sequence[ClaimRow]) -> None:
        """A table; of a single claim also why, and where to redo it."""
        print_table(console, _COLUMNS, [row.cells() for row in shown])
        if more := len(self.claims) - len(shown):
            console.print(f"and {more} more, --verbose shows all")
        if len(self.claims) == 1:
            (row,) = self.claims
            console.print(f"{row.finding.verdict}: {row.finding.reason}")
            console.print(
                f"source {row.claim.source}; redo it in {row.page}, cell {row.claim.cell}"
            )
            return
        counted = ", ".join(f"{count} {name}" for name, count in self.verdicts.items())
        console.print(f"{len(self.claims)} claims: {counted}")
        console.print("labtools claims --id ID says why and where to redo it")


def list_claims(claim_id: str | None, verdict: str | None, progress: Progress) -> ClaimsChecked:
    """Run the checks of all claims or of one; those with one verdict, or all."""
    if verdict is not None and verdict not in VERDICTS:
        what, why = f"There is no verdict {verdict!r}.", f"there are {', '.join(VERDICTS)}"
        raise UsageProblem(LabError(what, why, "name one of them, or leave --verdict out"))
    ledger = load_ledger()
    with typed():
        claims = list(ledger.claims) if claim_id is None else [ledger.find(claim_id)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedRecordWarning)
        evidence = gather_evidence(ledger=ledger)
    rows = []
    for claim in claims:
        progress(f"checking {claim.id}")
        row = ClaimRow(claim, check_claim(claim, evidence))
        if verdict in (None, row.finding.verdict):
            rows.append(row)
    counted = Counter(row.finding.verdict for row in rows)
    verdicts: dict[str, int] = {name: counted[name] for name in VERDICTS if counted[name]}
    meaning: dict[str, str] = {name: text for name, text in VERDICTS.items()}  # noqa: C416
    return ClaimsChecked(tuple(rows), verdicts, meaning)
