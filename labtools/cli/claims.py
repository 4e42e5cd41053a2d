"""``labtools claims``: what others published, with verdicts that are computed now."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from .outcome import Outcome, Progress, Status, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.record.claims import Claim, Finding


def list_claims(claim_id: str | None, progress: Progress) -> Outcome:
    """Run the checks of all claims or of one."""
    from labtools.predict.claim_checks import check_claim, gather_evidence
    from labtools.record import DamagedRecordWarning
    from labtools.record.claims import VERDICTS, load_ledger

    ledger = load_ledger()
    with typed():
        claims = [ledger.find(claim_id)] if claim_id else list(ledger.claims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedRecordWarning)
        evidence = gather_evidence(ledger=ledger)
    rows = []
    for claim in claims:
        progress(f"checking {claim.id}")
        rows.append(_row(claim, check_claim(claim, evidence)))
    counted = Counter(row["verdict"] for row in rows)
    data = {
        "claims": rows,
        "verdicts": {name: counted[name] for name in VERDICTS if counted[name]},
        "meaning": dict(VERDICTS),
    }
    return Outcome(data, lambda console: _show(console, data), Status.RIGHT)


def _row(claim: Claim, finding: Finding) -> dict[str, Any]:
    return {
        "id": claim.id,
        "group": claim.group,
        "source": claim.source,
        "claim": claim.text,
        "claimed": claim.value,
        "unit": claim.unit,
        "how": claim.how,
        "check": claim.check,
        "ours": finding.value,
        "interval": finding.interval,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "origin": finding.origin,
        "where": finding.where,
        "page": f"book/{claim.page}.md",
        "cell": claim.cell,
    }


def _show(console: Console, data: dict[str, Any]) -> None:
    from rich.table import Table

    from labtools.record.claims import say_number

    table = Table(box=None, pad_edge=False)
    for column in ("id", "claim", "claimed", "ours", "verdict", "checked"):
        table.add_column(column, overflow="fold")
    for row in data["claims"]:
        table.add_row(
            row["id"],
            row["claim"],
            say_number(row["claimed"], row["unit"]),
            say_number(row["ours"], row["unit"]),
            row["verdict"],
            row["origin"] or row["how"],
        )
    console.print(table, soft_wrap=False)
    if len(data["claims"]) == 1:
        (row,) = data["claims"]
        console.print(f"{row['verdict']}: {row['reason']}", markup=False)
        console.print(
            f"source {row['source']}; redo it in {row['page']}, cell {row['cell']}", markup=False
        )
        return
    counted = ", ".join(f"{count} {name}" for name, count in data["verdicts"].items())
    console.print(f"{len(data['claims'])} claims: {counted}", markup=False)
    console.print("labtools claims --id ID says why and where to redo it", markup=False)
