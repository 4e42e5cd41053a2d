"""Write the README's table of results from the shipped records (``make readme``).

No number in that table is typed: a test computes it again and compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from labtools.problem import HEADLINE, LabError, Rung, list_rungs
from labtools.record import Record, RecordStore, paired_ratio
from labtools.record.store import shipped_records_dir

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results: written by make readme -->", "<!-- end of results -->"
REFERENCE = "sdpa"
NOTHING_YET = "There are no records of the headline workload yet."


def results_table(store: RecordStore, rungs: Sequence[Rung]) -> str:
    """The headline workload on every GPU that has records: one table a GPU.

    Each row is a rung at its default knobs, or a baseline. Ratios are against ``sdpa``, paired
    within the processes of one campaign.
    """
    defaults = {rung.id: rung.resolve_knobs() for rung in rungs}
    titles = {rung.id: rung.title for rung in rungs}
    groups: dict[tuple[str, str], list[Record]] = {}
    # The newest campaign of a GPU speaks for it; two campaigns in one table would invite
    # comparing times that were not taken together.
    newest: dict[str, str] = {}
    for record in store.query(workload=HEADLINE):
        if record.kind == "ceiling" or record.rung_path:
            continue
        if record.kind == "rung" and record.knobs != defaults.get(record.candidate):
            continue
        gpu = record.provenance.gpu
        if newest.setdefault(gpu, record.campaign) == record.campaign:
            groups.setdefault((gpu, record.campaign), []).append(record)
    if not groups:
        return NOTHING_YET
    parts = []
    for (gpu, _), records in sorted(groups.items()):
        parts.append(_one_table(gpu, records, titles))
    return "\n\n".join(parts)


def _one_table(gpu: str, records: list[Record], titles: dict[str, str]) -> str:
    records.sort(key=lambda record: (record.kind != "rung", record.candidate))
    reference = next((record for record in records if record.name == REFERENCE), None)
    source = records[0].provenance
    when = min(record.provenance.date for record in records).date().isoformat()
    lines = [
        f"Recorded on {gpu}, {when}, driver {source.driver}, torch {source.torch}. Workload "
        f"`{HEADLINE.short()}` (B, Hq, Hkv, S, D), fp16, cold L2. Times above 1.00 x are slower "
        f"than `{REFERENCE}`: the median of the ratios of {len(records[0].samples.processes)} "
        "processes that timed both, with its 95 % interval.",
        "",
        f"| kernel | median | GB/s of K and V | against `{REFERENCE}` |",
        "|---|---:|---:|---:|",
    ]
    for record in records:
        title = titles.get(record.candidate)
        name = f"`{record.name}` {title}" if title else f"`{record.name}` (baseline)"
        lines.append(
            f"| {name} | {record.median_us:.1f} us | {record.gb_per_s:.0f} | "
            f"{_against(record, reference)} |"
        )
    return "\n".join(lines)


def _against(record: Record, reference: Record | None) -> str:
    if reference is None:
        return "not measured"
    if record is reference:
        return "1.00 x"
    try:
        ratio = paired_ratio(record, reference)
    except LabError:
        return "not measured together"
    interval = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.ratio:.2f} x ({interval})" + (", equal" if ratio.equal else "")


def replace_table(readme: str, table: str) -> str:
    """The README with the text between its markers replaced.

    Raises:
        ValueError: when the markers are not there, once each and in order.
    """
    if (
        readme.count(BEGIN) != 1
        or readme.count(END) != 1
        or readme.index(BEGIN) > readme.index(END)
    ):
        raise ValueError("the README needs the two markers of the results table, once each")
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def wanted_readme() -> str:
    """The README as the shipped records want it."""
    store = RecordStore([shipped_records_dir()])
    table = results_table(store, list_rungs())
    return replace_table((ROOT / "README.md").read_text(encoding="utf-8"), table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args(argv)
    text = wanted_readme()
    same = text == (ROOT / "README.md").read_text(encoding="utf-8")
    if not same and not options.check:
        (ROOT / "README.md").write_text(text, encoding="utf-8")
    print("The table is up to date." if same else "The table differs: make readme"
          if options.check else "The table was written.")  # fmt: skip
    return 0 if same or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
