"""The claims ledger on a page: each claim beside our value, its verdict computed on the spot."""

from __future__ import annotations

import functools
import html
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence

from labtools.predict.claim_checks import CHECKS, Evidence, check_claim, gather_evidence
from labtools.problem import Problem, parse_problem
from labtools.problem.text import three_digits
from labtools.record import Ratio, RecordedTime, RecordStore, say_layout
from labtools.record.claims import VERDICTS, Claim, Finding, say_number
from labtools.record.headline import compare_rungs, find_headline, say_headline

from .reader import reader_present
from .tables import Cell, Shown, badge, make_note, make_table, mark_code, recorded, say_time


@functools.lru_cache(maxsize=1)
def _evidence() -> Evidence:
    # A page runs many groups, and the records are read once.
    return gather_evidence()


def redo(group: str) -> Shown:
    """Run the checks of a group of ``book/claims.yml``: what they find, with their code folded
    below."""
    claims = _evidence().ledger.group(group)
    if not claims:
        return make_note(f"The ledger has no group {group}.")
    return show_claims(*(claim.id for claim in claims)) + _show_code(claims)


def show_claims(*ids: str, evidence: Evidence | None = None, book: str = "") -> Shown:
    """Some claims of the ledger as a list, in this order, for a page that tells of them: statement,
    verdict and our value, and the reason to be opened.

    ``book`` is the way from the page to the folder of the book. Raises LabError: no such claim.
    """
    evidence = evidence or _evidence()
    claims = [evidence.ledger.find(claim_id) for claim_id in ids]
    items = [_item(claim, check_claim(claim, evidence), book) for claim in claims]
    markup = "".join(item.html for item in items)
    style = "list-style:none;margin:0.4em 0;padding:0"
    text = "\n".join(item.text for item in items)
    return Shown(f'<ul class="lt-claims" style="{style}">{markup}</ul>', text)


def show_side_by_side(rows: Mapping[str, Sequence[str]]) -> Shown:
    """What was claimed beside what we have, a column for each origin.

    A row has the claims about it; each column takes the first that has something. Raises LabError:
    the ledger has no such claim.
    """
    evidence = _evidence()
    table: list[list[Cell]] = []
    columns = ["", "claimed", "computed", "forecast", "recorded", "verdict"]
    for name, ids in rows.items():
        claims = [evidence.ledger.find(claim_id) for claim_id in ids]
        found = [check_claim(claim, evidence) for claim in claims]
        ours = {
            one.origin or one.verdict: say_number(one.value, claim.unit) or one.verdict
            for claim, one in reversed(list(zip(claims, found, strict=True)))
        }
        first = claims[0]
        claimed = "" if first.value is None else say_number(first.value, first.unit)
        known = [ours.get(origin, "") for origin in ("computed", "forecast")]
        known.append(ours.get("recorded", ours.get("not measured here", "")))
        verdicts = ", ".join(dict.fromkeys(one.verdict for one in found))
        table.append([name, claimed, *known, verdicts])
    shown = [at for at in range(len(columns)) if any(row[at] for row in table)]
    columns = [columns[at] for at in shown]
    table = [[row[at] for at in shown] for row in table]
    caption = "by formulas from data sheets and from figures that were published elsewhere"
    return make_table(columns, table, f"computed: {caption}")


def _item(claim: Claim, found: Finding, book: str) -> Shown:
    ours = say_number(found.value, claim.unit)
    if found.interval:
        ours += f" {_interval(*found.interval)}"
    known = [f"Why: {found.reason.removesuffix('.')}."]
    if claim.value is not None:
        within = f"within {100 * claim.tolerance:g}\u00a0%" if claim.tolerance else "if equal"
        held = f"; it holds {within}" if claim.check else ""
        known.append(f"Claimed: {say_number(claim.value, claim.unit)}{held}.")
    if found.where:
        known.append(f"From: {found.where}.")
    # In JupyterLab a page is its file; on the site it is one of HTML.
    ending = "md" if reader_present() else "html"
    href = html.escape(f"{book}{claim.page}.{ending}#{claim.cell}")
    verdict = f"{found.verdict}{f', ours {ours}' if ours else ''}"
    origin = found.origin if ours else None
    mark = f" {badge(origin)}" if origin else ""
    summary = f"{mark_code(claim.text)} <strong>{html.escape(verdict)}</strong>{mark}"
    markup = (
        '<li style="margin:0;padding:0.35em 0;border-bottom:1px solid #8888">'
        f'<details class="lt-reason"><summary style="cursor:pointer">{summary}</summary>'
        f'<div style="padding:0.2em 0 0.2em 1.1em">{mark_code(" ".join(known))} '
        f'<a href="{href}">{claim.id}</a></div></details></li>'
    )
    told = f"{claim.text} {verdict}{f' [{origin}]' if origin else ''}."
    return Shown(markup, " ".join([told, *known]))


def _interval(low: float, high: float) -> str:
    """It stays on one line of a cell."""
    return f"({three_digits(low)}\u00a0to\u00a0{three_digits(high)})"


def _show_code(claims: list[Claim]) -> Shown:
    """The formulas and queries of the claims, and the code of the checks that ask them."""
    import yaml

    names = dict.fromkeys(claim.check for claim in claims if claim.check)
    if not names:
        return Shown("", "")
    asked = {claim.id: claim.given for claim in claims if claim.given}
    parts = [yaml.safe_dump(asked, sort_keys=False, width=100, allow_unicode=True)]
    parts += [inspect.getsource(CHECKS[name]) for name in names]
    code = "\n\n".join(part.rstrip() for part in parts)
    markup = (
        "<details><summary>The formulas and the checks</summary>"
        f"<pre tabindex='0' style='overflow-x:auto'>{html.escape(code)}</pre></details>"
    )
    return Shown(markup, code)


def count_verdicts(source: str | None = None) -> Shown:
    """How many claims got which verdict, with what each verdict means."""
    evidence = _evidence()
    claims = [one for one in evidence.ledger.claims if source in (None, one.source)]
    found = Counter(check_claim(claim, evidence).verdict for claim in claims)
    rows = [(name, str(found[name]), meaning) for name, meaning in VERDICTS.items()]
    caption = f"{sum(found.values())} claims; verdicts computed by this cell"
    return make_table(("verdict", "claims", "it means"), rows, caption)


def show_headline(gpu: str = "h200") -> Shown:
    """The headline as recorded: the announced design and the guide's own, fairly compared."""
    found = find_headline(RecordStore().load(), gpu=gpu)
    notes = [make_note(text, "recorded" if found else None) for text in say_headline(found)]
    return functools.reduce(lambda first, second: first + second, notes)


def show_rungs_against_libraries(
    workloads: Sequence[str | Problem], rungs: tuple[str, ...], gpu: str = "h200"
) -> Shown:
    """Fastest fair library over rung, per workload, with the interval."""

    def say(ratio: Ratio | None) -> str:
        return f"{three_digits(ratio.ratio)} {_interval(ratio.low, ratio.high)}" if ratio else ""

    wanted = [parse_problem(one) if isinstance(one, str) else one for one in workloads]
    found = compare_rungs(RecordStore().load(), wanted, rungs, gpu)
    rows: list[list[Cell]] = []
    for compared in found:
        standing, where = compared.standing, recorded(compared.standing.record, *compared.peers)
        assert standing.against is not None
        name, time = compared.rung.split("_")[0], say_time(RecordedTime.of(standing.record))
        library = standing.against.first.removeprefix("baseline:")
        low = say(standing.against_low_bit)
        if standing.against_low_bit is not None:
            peer = compared.peers[-1]
            low += f" {peer.name}"
            if (layout := say_layout(peer)) != say_layout(standing.record):
                low += f", it in {layout}"
        ratios = [say(standing.against), library, low]
        share = f"{1 / standing.to_floor.ratio:.0%}" if standing.to_floor else ""
        rows.append([str(compared.workload), name, time, *ratios, share, where])
    missing = sorted(set(rungs) - {compared.rung for compared in found})
    note = make_note(
        f"No record beside a fair library yet: {', '.join(missing)}. On a machine with a GPU, "
        "labtools record --plan bench makes them."
    )
    if not rows:
        return note
    columns = ["workload", "rung", "us", "x 16-bit library", "which", "x library of its bits"]
    columns += ["of the best rate", "where from"]
    if not any(row[5] for row in rows):  # no low-bit library is a peer of these rungs
        columns, rows = columns[:5] + columns[6:], [row[:5] + row[6:] for row in rows]
    caption = (
        "x: times as fast as the fastest fair library of that kind, with the 95 % interval. Of the "
        "best rate: its bytes a second, over the most that anything read in the same processes."
    )
    table = make_table(columns, rows, caption)
    return table + note if missing else table
