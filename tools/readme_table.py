"""Write the README's results from the shipped records: two tables and a plot (``make readme``).

No number there is typed: a test computes all of it again and compares.
"""

from __future__ import annotations

import argparse
import html
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from labtools.measure.campaign.decode.bench import NOTED_WORKLOADS, TABLE_WORKLOADS
from labtools.problem import HEADLINE, Rung, Workload, list_baselines, list_rungs
from labtools.record import (
    Ratio,
    Record,
    RecordStore,
    Standing,
    fair_peers,
    measured_together,
    standings,
)
from labtools.record.headline import (
    at_default_knobs,
    compare_rungs,
    find_headline,
    say_headline,
)
from labtools.record.store import shipped_records_dir
from tools.install import ROOT

BEGIN, END = "<!-- results: written by make readme -->", "<!-- end of results -->"
NOTHING_YET = "There are no records of the headline workload yet."
PLOT = "book/_static/results.svg"
FINAL_RUNGS = ("r09_inverted", "r10_inverted_int8", "r11_inverted_int4")


def results_table(store: RecordStore, rungs: Sequence[Rung]) -> str:
    """The headline workload on every GPU that has records: one table a GPU.

    Each row is a rung at its default knobs, or a baseline. Ratios are against the fastest fair
    library, paired within the processes of one campaign.
    """
    titles = {rung.id: rung.title for rung in rungs}
    groups = _headline_groups(store)
    if not groups:
        return NOTHING_YET
    return "\n\n".join(_one_table(gpu, records, titles) for gpu, records in groups)


def _headline_groups(store: RecordStore) -> list[tuple[str, list[Record]]]:
    """By GPU, the records of the one campaign that speaks for it."""
    fitting = at_default_knobs(store.query(workload=HEADLINE, latest=False))
    together = measured_together(fitting)
    gpus = sorted({record.provenance.gpu for record in together})
    return [(gpu, [one for one in together if one.provenance.gpu == gpu]) for gpu in gpus]


def _in_order(records: Sequence[Record]) -> list[Standing]:
    """Rungs by number, then the libraries by name."""
    found = standings(records)
    return sorted(found, key=lambda one: (one.record.kind != "rung", one.record.candidate))


def _one_table(gpu: str, records: list[Record], titles: dict[str, str]) -> str:
    peers = fair_peers(records)
    reference = peers[0].name if peers else None
    source = records[0].provenance
    when = min(record.provenance.date for record in records).date().isoformat()
    versions = ", ".join(
        f"{name} {getattr(source, name)}"
        for name in ("driver", "torch", "cudnn", "flashinfer")
        if getattr(source, name)
    )
    lines = [
        f"Recorded on {gpu}, {when}, {versions}. Workload `{HEADLINE.short()}` (B, Hq, Hkv, S, D), "
        f"fp16, cold L2. The last column is against `{reference}`, the fastest fair fp16 library "
        f"in these processes: its time over the kernel's, the median of the ratios of "
        f"{len(records[0].samples.processes)} processes, with the 95 % interval.",
        "",
        f"| kernel | median | GB/s read | error | times as fast as `{reference}` |",
        "|---|---:|---:|---:|---:|",
    ]
    baselines = {one.id: one for one in list_baselines()}
    for one in _in_order(records):
        record = one.record
        title = titles.get(record.candidate)
        known = baselines.get(record.name)
        kind = "baseline" if known is None or known.fair else "handicapped baseline"
        name = f"`{record.name}` {title}" if title else f"`{record.name}` ({kind})"
        error = record.comparison.worst_error
        lines.append(
            f"| {name} | {record.median_us:.1f} us | {record.gb_per_s:.0f} | "
            f"{'' if error is None else f'{error:.0e}'} | {_against(one, peers)} |"
        )
    return "\n".join(lines)


def _against(standing: Standing, peers: Sequence[Record]) -> str:
    if peers and standing.record is peers[0]:
        return "1.00 x"
    if standing.against is None:
        return "not measured"
    return _say(standing.against)


def _say(ratio: Ratio) -> str:
    digits = 2 if ratio.ratio >= 0.1 else 4
    interval = f"{ratio.low:.{digits}f} to {ratio.high:.{digits}f}"
    return f"{ratio.ratio:.{digits}f} x ({interval})" + (", equal" if ratio.equal else "")


def final_table(store: RecordStore, gpu: str = "h200") -> str:
    """The last three rungs by workload against the fastest fair fp16 library; empty without any."""
    workloads = [Workload.parse(text) for text in (*TABLE_WORKLOADS, *NOTED_WORKLOADS)]
    found = compare_rungs(store.load(), workloads, FINAL_RUNGS, gpu)
    if not found:
        return ""
    cells: dict[str, dict[str, str]] = {}
    fp8: dict[str, str] = {}
    for one in found:
        assert one.standing.against is not None
        row = cells.setdefault(str(one.workload), {})
        library = one.standing.against.first.removeprefix("baseline:")
        row[one.rung] = _say(one.standing.against)
        row["library"] = f"`{library}`"
        low = one.standing.against_low_bit
        if low is not None and one.standing.record.kv_bits == 8:
            fp8[str(one.workload)] = _say(low)
    source = found[0].standing.record.provenance
    lines = [
        f"The last three rungs on {source.gpu}, workload by workload: times as fast as the fastest "
        "fair fp16 library; below 1 the library is faster. The INT8 and INT4 rungs read a smaller "
        "cache, so the last column gives the INT8 rung against the fastest library with an FP8 "
        "cache.",
        "",
        "| workload | fp16 library | r09 fp16 | r10 INT8 | r11 INT4 | r10 against FP8 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for workload, row in cells.items():
        values = [row.get(rung, "-") for rung in FINAL_RUNGS]
        lines.append(
            f"| `{workload}` | {row['library']} | {' | '.join(values)} | {fp8.get(workload, '-')} |"
        )
    return "\n".join(lines)


def results_plot(records: Sequence[Record]) -> tuple[str, str]:
    """Times at the headline workload as bars on a logarithmic axis: SVG, and what it says.

    Written by hand, so that equal records give an equal file whatever draws fonts here. Rungs are
    filled, fair libraries empty, handicapped ones hatched: it reads in black and white.
    """
    rows = _in_order(records)
    fair = {one.id for one in list_baselines() if one.fair}
    low = 10 ** math.floor(math.log10(min(one.record.median_us for one in rows)))
    high = 10 ** math.ceil(math.log10(max(one.record.median_us for one in rows)))
    left, width, height, top = 190, 420, 20, 30

    def place(time_us: float) -> float:
        return left + width * math.log(time_us / low) / math.log(high / low)

    bottom = top + height * len(rows)
    said = "; ".join(f"{one.record.name} {one.record.median_us:.1f} us" for one in rows)
    first = rows[0].record
    alt = (
        f"Times at {HEADLINE.short()} on {first.provenance.gpu}, logarithmic, shorter is faster: "
        f"{said}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {bottom + 44}" width="720" '
        f'height="{bottom + 44}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{html.escape(alt)}</title>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff"/>'
        '<line x1="0" y1="0" x2="0" y2="6" stroke="#222" stroke-width="2"/></pattern></defs>',
        f'<rect width="720" height="{bottom + 44}" fill="#fff"/>',
        f'<text x="10" y="18" fill="#000">{html.escape(first.provenance.gpu)}, '
        f"{first.provenance.date:%Y-%m-%d}, {HEADLINE.short()}, recorded; us, shorter is faster"
        "</text>",
    ]
    tick = low
    while tick <= high:
        x = place(tick)
        parts.append(
            f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#bbb"/>'
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#000">{tick:g}</text>'
        )
        tick *= 10
    for row, one in enumerate(rows):
        record, y = one.record, top + height * row
        fill = "#444" if record.kind == "rung" else "#fff" if record.name in fair else "url(#hatch)"
        end = place(record.median_us)
        parts.append(
            f'<text x="{left - 6}" y="{y + 14}" text-anchor="end" fill="#000">{record.name}</text>'
            f'<rect x="{left}" y="{y + 3}" width="{end - left:.1f}" height="{height - 6}" '
            f'fill="{fill}" stroke="#222"/>'
            f'<text x="{end + 5:.1f}" y="{y + 14}" fill="#000">{record.median_us:.1f}</text>'
        )
    floors = [one.floor_us for one in rows if one.floor_us and one.record.kv_bits == 16]
    if floors:
        x = place(floors[0])
        parts.append(
            f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#000" '
            f'stroke-dasharray="5 3"/><text x="{x:.1f}" y="{bottom + 32}" text-anchor="middle" '
            f'fill="#000">fp16 floor {floors[0]:.1f}</text>'
        )
        alt += f"; the fp16 cache read at the best rate measured takes {floors[0]:.1f} us"
    parts.append("</svg>")
    return "\n".join(parts) + "\n", alt


def whole_results(store: RecordStore, rungs: Sequence[Rung]) -> tuple[str, str | None]:
    """What stands between the README's markers, and the plot's SVG where there are records."""
    headline = " ".join(say_headline(find_headline(store.load())))
    parts, plot = [headline], None
    groups = _headline_groups(store)
    if groups:
        plot, alt = results_plot(groups[0][1])
        parts.append(f"![{alt}]({PLOT})")
    parts += [results_table(store, rungs), final_table(store)]
    return "\n\n".join(part for part in parts if part), plot


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


def wanted_files() -> dict[Path, str]:
    """The README, and the plot where there is one, as the shipped records want them."""
    store = RecordStore([shipped_records_dir()])
    text, plot = whole_results(store, list_rungs())
    readme = ROOT / "README.md"
    files = {readme: replace_table(readme.read_text(encoding="utf-8"), text)}
    if plot is not None:
        files[ROOT / PLOT] = plot
    return files


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args(argv)
    differing = {
        path: text
        for path, text in wanted_files().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    for path, text in differing.items():
        if options.check:
            print(f"{path.name} differs: make readme")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"{path.name} was written.")
    if not differing:
        print("The results are up to date.")
    return 1 if differing and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
