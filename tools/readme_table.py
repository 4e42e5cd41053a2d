"""Write the README's results from the shipped records: tables, losses and a plot (``make regen``).

No number there is typed: a test computes all of it again and compares.
"""

from __future__ import annotations

import html
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from labtools.measure.campaign.plan import load_plan
from labtools.predict import sheet_floor_us
from labtools.problem import (
    HEADLINE,
    Baseline,
    Rung,
    Workload,
    list_baselines,
    list_rungs,
    load_rung,
)
from labtools.problem.decode.scheme import Scheme
from labtools.record import (
    Errors,
    Ratio,
    Record,
    RecordStore,
    Standing,
    Variant,
    best_reader,
    distinguish,
    errors_of,
    fair_peers,
    measured_together,
    same_output,
    say_layout,
    say_timed,
    standings,
    timings_of,
)
from labtools.record.circumstances import NOTE_TOGETHER, TOGETHER
from labtools.record.headline import (
    Compared,
    at_default_knobs,
    compare_rungs,
    find_headline,
    say_headline,
)
from labtools.record.store import shipped_records_dir
from research.draw_peers import PEERS_SEED
from tools.install import ROOT

BEGIN, END = "<!-- results: written by make regen -->", "<!-- end of results -->"
TEXTS = {
    name: text.removeprefix("\n")
    for name, text in tomllib.loads(Path(__file__).with_name("readme.toml").read_text()).items()
}
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
        return TEXTS["nothing_yet"]
    every = store.load()
    return "\n\n".join(_one_table(gpu, records, titles, every) for gpu, records in groups)


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


def markdown_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    of: Sequence[Sequence[Record]],
    errors: Sequence[Sequence[Record]] = (),
) -> str:
    """A table in Markdown, the first column to the left, with what its records differ in.

    ``of`` has of each row the records that its numbers come from, ``errors`` those whose errors it
    shows.
    """
    added = distinguish(of, errors)
    more = zip(*added.values(), strict=True) if added else [()] * len(rows)
    heads = [columns[0], *added, *columns[1:]]
    lines = [heads, *([row[0], *texts, *row[1:]] for row, texts in zip(rows, more, strict=True))]
    said = [f"| {' | '.join(line)} |" for line in lines]
    said.insert(1, "|---" * (1 + len(added)) + "|---:" * (len(columns) - 1) + "|")
    text = "\n".join(said)
    return f"{text}\n\n{NOTE_TOGETHER.capitalize()}." if TOGETHER in added else text


def _one_table(
    gpu: str, records: list[Record], titles: dict[str, str], every: Sequence[Record]
) -> str:
    peers = fair_peers(records)
    reference = peers[0].name if peers else None
    source = records[0].provenance
    when = min(record.provenance.date for record in records).date().isoformat()
    versions = ", ".join(
        f"{name} {getattr(source, name)}"
        for name in ("driver", "torch", "cudnn", "flashinfer")
        if getattr(source, name)
    )
    baselines = {one.id: one for one in list_baselines()}
    rows, of, arithmetic = [], [], []
    for one in _in_order(records):
        record, found = one.record, errors_of(one.record)
        title = titles.get(record.candidate)
        known = baselines.get(record.name)
        kind = "baseline" if known is None or known.fair else "handicapped baseline"
        floor = sheet_floor_us(record.read_bytes, record.provenance.gpu_slug)
        rows.append(
            [
                f"`{record.name}` {title}" if title else f"`{record.name}` ({kind})",
                f"{record.median_us:.1f} us",
                f"{record.gb_per_s:.0f}",
                f"{floor:.1f} us" if floor else "not known",
                _say_error(found.arithmetic),
                _say_of_scheme(record, found),
                _against(one, peers),
            ]
        )
        of.append([record])
        arithmetic.append([record] if found.arithmetic is not None else [])
    columns = (
        *("kernel", "median", "GB/s read", "data sheet's floor", "error: arithmetic"),
        *("error: of the scheme", f"times as fast as `{reference}`"),
    )
    intro = TEXTS["intro"].format(
        gpu=gpu,
        when=when,
        versions=versions,
        workload=HEADLINE.short(),
        reference=reference,
        processes=len(records[0].samples.processes),
    )
    notes = [_say_errors(records), _say_floors(records), *_say_outside(records, baselines)]
    notes += [_say_call_by_call(one, every) for one in records if one.protocol != "graph-1"]
    listed = "\n".join(f"- {note}" for note in notes if note)
    return f"{intro}\n\n{markdown_table(columns, rows, of, arithmetic)}\n\n{listed}"


def _say_error(error: float | None) -> str:
    return "-" if error is None else f"{error:.0e}"


def _say_of_scheme(record: Record, found: Errors) -> str:
    if record.kv_bits == 16:
        return "0"
    return " / ".join(f"{error:.2g}" for error in found.of_scheme.values()) or "not known"


def _say_errors(records: Sequence[Record]) -> str:
    """What the two columns of errors are, and where the one of an FP8 library stands."""
    totals = [total for one in records if (total := errors_of(one).total) is not None]
    text = TEXTS["errors"]
    if totals:
        low, high = _say_error(min(totals)), _say_error(max(totals))
        span = low if low == high else f"{low} to {high}"
        text += TEXTS["fp8_errors"].format(span=span)
    return text


def _say_floors(records: Sequence[Record]) -> str:
    """Both floors, and who set the one that was measured."""
    reader = best_reader(records)
    if reader is None:
        return ""
    made = reader.provenance
    sheet = sheet_floor_us(HEADLINE.kv_bytes, made.gpu_slug)
    best = HEADLINE.kv_bytes / reader.gb_per_s / 1e3
    sweeps = [record for record in records if record.kind == "ceiling"]
    text = TEXTS["floors"]
    if sheet is not None:
        text += TEXTS["sheet_floor"].format(us=sheet)
    text += TEXTS["best_floor"].format(us=best)
    if reader.kind == "ceiling":
        return text
    text += TEXTS["own_floor"].format(name=reader.name)
    if sweeps:
        text += TEXTS["plain_read"].format(us=min(record.median_us for record in sweeps))
    return f"{text}."


_OUTSIDE = re.compile(r"Outside it: (.*?\.)(?:\s|$)", re.DOTALL)


def _say_outside(records: Sequence[Record], baselines: Mapping[str, Baseline]) -> list[str]:
    """What is not in the timed calls, of each candidate that says so, and what SDPA chose."""
    told: dict[str, list[str]] = {}
    for record in records:
        found = _OUTSIDE.search(baselines[record.name].doc) if record.name in baselines else None
        if found and record.kind == "baseline":
            what = " ".join(found[1].split()).replace("``", "`")
            told.setdefault(what, []).append(f"`{record.name}`")
    tails = []
    for record in records:
        scheme = _scheme_of(record)
        if scheme is not None and scheme.tail_bytes(HEADLINE):
            share = scheme.tail_bytes(HEADLINE) / scheme.kv_bytes(HEADLINE)
            tails.append(f"{share:.1%} for `{record.name}`")
    notes = [TEXTS["outside"].format(who=", ".join(who), what=what) for what, who in told.items()]
    if tails:
        notes.append(TEXTS["conversion"].format(tails=" and ".join(tails)))
    default = next((one for one in records if one.candidate == "baseline:sdpa"), None)
    named = [one for one in records if one.name.startswith("sdpa_") and baselines[one.name].fair]
    same = same_output(default, named) if default else []
    if same:
        names = " and ".join(f"`{one.name}`" for one in same)
        notes.append(TEXTS["sdpa"].format(same=names))
    return notes


def _say_call_by_call(record: Record, every: Sequence[Record]) -> str:
    """That it was not replayed from a graph as the others, and what it takes where it is."""
    text = TEXTS["protocol"].format(name=record.name, how=say_timed(record))
    moved = Variant(record.candidate, record.knobs, "outside")
    found = timings_of(every, moved, record.problem, gpu=record.provenance.gpu_slug)
    if found:
        text += TEXTS["moved"].format(how=say_timed(found[0]), us=found[0].median_us)
    return text


def _scheme_of(record: Record) -> Scheme | None:
    if record.kind != "rung" or record.kv_bits == 16:
        return None
    found = load_rung(record.candidate).scheme(record.problem, record.knobs)
    return found if isinstance(found, Scheme) else None


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
    """The last three rungs by workload against the fastest fair libraries; empty without any.

    Two tables: contiguous caches, against 16-bit libraries; and the same cache in the same pages,
    where the libraries with an FP8 cache are compared as well.
    """
    bench = load_plan("bench")
    plain = [Workload.parse(text) for text in bench.lists["table"] + bench.lists["noted"]]
    planned = [workload for section in bench.sections for workload in section.workloads]
    paged = [workload for workload in planned if workload.layout == "paged"]
    # A library that copies a contiguous cache into pages is compared in the second table alone.
    loaded = [one for one in store.load() if _as_it_lies(one)]
    found = [
        one
        for one in compare_rungs(loaded, [*plain, *paged], FINAL_RUNGS, gpu)
        if _same_layout(one)
    ]
    parts = []
    first = [one for one in found if one.workload in plain]
    if first:
        name = first[0].standing.record.provenance.gpu
        unsupported = _say_unsupported(plain, [one.rung for one in first])
        parts.append(TEXTS["final"].format(gpu=name) + unsupported + _say_when(first))
        parts.append(_ratio_table(first, fp8=False))
    second = [one for one in found if one.workload in paged]
    if second:
        parts.append(TEXTS["paged"] + _say_when(second))
        parts.append(_ratio_table(second, fp8=True))
    return "\n\n".join(parts)


PEERS = "peers"
"""The plan, and its records, that hold r09 to r11 beside every fair library."""


def against_peers(store: RecordStore, gpu: str = "h200") -> list[Compared]:
    """The last three rungs beside every fair library, on the workloads of the plan ``peers``."""
    records = [one for one in store.load() if one.campaign.startswith(f"{PEERS}-")]
    workloads = [one for section in load_plan(PEERS).sections for one in section.workloads]
    return compare_rungs(records, workloads, FINAL_RUNGS, gpu)


def say_losses(found: Sequence[Compared]) -> str:
    """Where a library of as many bits is faster than a rung, the worst first; "" without any."""
    if not found:
        return ""
    raced = [(one, ratio, peer) for one in found if (race := _race(one)) for ratio, peer in [race]]
    lost = sorted((one for one in raced if one[1].high < 1), key=lambda one: one[1].ratio)
    told = "; ".join(
        f"{_name(peer, one)} on `{one.workload}` against {_short(one.rung)}, {_say(ratio)}"
        for one, ratio, peer in lost
    )
    workloads = len({one.workload.key() for one in found})
    text = TEXTS["losses" if lost else "no_losses"]
    return text.format(told=told, lost=len(lost), raced=len(raced), workloads=workloads)


def peers_tables(found: Sequence[Compared]) -> str:
    """Each of the last three rungs against the fastest fair library of as many bits: contiguous
    caches, then those in pages."""
    if not found:
        return ""
    parts = [TEXTS["peers"].format(seed=PEERS_SEED) + _say_when(found)]
    for layout in ("contiguous", "paged"):
        rows: dict[str, dict[str, str]] = {}
        of: dict[str, list[Record]] = {}
        for one in (one for one in found if one.workload.layout == layout):
            key = str(one.workload)
            row, race = rows.setdefault(key, {}), _race(one)
            if race is not None:
                ratio, peer = race
                row[f"{one.rung} library"], row[one.rung] = _name(peer, one), _say(ratio)
                of.setdefault(key, []).append(one.standing.record)
        wanted = [name for rung in FINAL_RUNGS for name in (f"{rung} library", rung)]
        heads = [("16-bit library", "r09"), ("8-bit library", "r10"), ("4-bit library", "r11")]
        columns = ("workload", *(name for pair in heads for name in pair))
        cells = [
            [f"`{key}`", *(row.get(name, "-") for name in wanted)] for key, row in rows.items()
        ]
        if cells:
            parts.append(markdown_table(columns, cells, list(of.values())))
    return "\n\n".join(parts)


def _race(one: Compared) -> tuple[Ratio, Record] | None:
    """A rung's ratio to the fastest fair library of as many bits, and that library's record."""
    standing = one.standing
    ratio = standing.against if standing.record.kv_bits == 16 else standing.against_low_bit
    peers = {peer.candidate: peer for peer in one.peers}
    return None if ratio is None else (ratio, peers[ratio.first])


def _name(peer: Record, one: Compared) -> str:
    """A library, and how it wants the cache where that is not how it lies."""
    layout = say_layout(peer)
    return f"`{peer.name}`" + ("" if layout == say_layout(one.standing.record) else f" ({layout})")


def _short(rung: str) -> str:
    return rung.split("_")[0]


def _say_when(found: Sequence[Compared]) -> str:
    """The dates, versions and commits of what a table shows."""
    made = [one.standing.record.provenance for one in found]
    dates = sorted({one.date.date().isoformat() for one in made})
    commits = sorted({f"`{(one.commit or 'unknown').split('+')[0][:7]}`" for one in made})
    had = {
        f"{name} {value}"
        for one in made
        for name, value in one.versions.items()
        if value and name not in ("cuda", "nvrtc", "cupy")
    }
    span = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return TEXTS["when"].format(
        dates=span, versions=", ".join(sorted(had)), commits=", ".join(commits)
    )


def _as_it_lies(record: Record) -> bool:
    """Whether a candidate reads 16-bit inputs in the layout that it is given."""
    given = record.problem.layout
    return record.kv_bits < 16 or given == "paged" or say_layout(record) == given


def _same_layout(one: Compared) -> bool:
    """Whether the rung and the libraries that it is compared with read the cache alike."""
    wide = [peer for peer in one.peers if peer.kv_bits == 16]
    low = [peer for peer in one.peers if peer.kv_bits < 16 and one.workload.layout == "paged"]
    mine = say_layout(one.standing.record)
    return all(say_layout(peer) == mine for peer in (*wide, *low))


def _say_unsupported(workloads: Sequence[Workload], rungs: Iterable[str]) -> str:
    """What some rungs have no number on."""
    without: dict[str, list[str]] = {}
    for rung in dict.fromkeys(rungs):
        for workload in workloads:
            if load_rung(rung).supports(workload):
                without.setdefault(str(workload), []).append(_short(rung))
    told = "; ".join(f"{' and '.join(who)} on `{where}`" for where, who in without.items())
    return TEXTS["unsupported"].format(told=told) if told else ""


def _ratio_table(found: Sequence[Compared], fp8: bool) -> str:
    """One row a workload; the records of a row are the rungs' and the libraries'."""
    rows: dict[str, dict[str, str]] = {}
    of: dict[str, list[Record]] = {}
    for one in found:
        standing, key = one.standing, str(one.workload)
        assert standing.against is not None
        row, low = rows.setdefault(key, {}), standing.against_low_bit
        row[one.rung] = _say(standing.against)
        row["library"] = f"`{standing.against.first.removeprefix('baseline:')}`"
        records = [standing.record, *(peer for peer in one.peers if fp8 or peer.kv_bits == 16)]
        of.setdefault(key, []).extend(records)
        if low is not None and standing.record.kv_bits == 8:
            row["fp8"] = f"`{low.first.removeprefix('baseline:')}`"
            row["low"] = _say(low)
        if one.rung == FINAL_RUNGS[0]:
            made = standing.record
            floor = sheet_floor_us(made.read_bytes, made.provenance.gpu_slug)
            row["floor"] = f"{made.median_us / floor:.2f}" if floor else "-"
    wanted = ["library", *FINAL_RUNGS, *(("fp8", "low") if fp8 else ("floor",))]
    last = ("FP8 library", "r10 against it") if fp8 else ("r09 over the data sheet's floor",)
    columns = ("workload", "fp16 library", "r09 fp16", "r10 INT8", "r11 INT4", *last)
    cells = [[f"`{key}`", *(row.get(name, "-") for name in wanted)] for key, row in rows.items()]
    return markdown_table(columns, cells, list(of.values()))


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
    gpu = first.provenance.gpu
    alt = TEXTS["alt"].format(workload=HEADLINE.short(), gpu=gpu, said=said)
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
    floor = sheet_floor_us(first.problem.streamed_bytes, first.provenance.gpu_slug)
    if floor:
        x = place(max(floor, low))
        parts.append(
            f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#000" '
            f'stroke-dasharray="5 3"/><text x="{x:.1f}" y="{bottom + 32}" text-anchor="middle" '
            f'fill="#000">fp16 cache at the data sheet\'s rate: {floor:.1f}</text>'
        )
        alt += TEXTS["alt_floor"].format(us=floor)
    parts.append("</svg>")
    return "\n".join(parts) + "\n", alt


def whole_results(store: RecordStore, rungs: Sequence[Rung]) -> tuple[str, str | None]:
    """What stands between the README's markers, and the plot's SVG where there are records."""
    headline = " ".join(say_headline(find_headline(store.load(), "h200")))
    parts, plot = [headline], None
    groups = _headline_groups(store)
    if groups:
        plot, alt = results_plot(groups[0][1])
        parts.append(f"![{alt}]({PLOT})")
    found = against_peers(store)
    parts += [results_table(store, rungs), final_table(store), peers_tables(found)]
    text = "\n\n".join(part for part in parts if part)
    losses = say_losses(found)
    whole = [losses, fold_results(text) if groups else text]
    return "\n\n".join(part for part in whole if part), plot


def fold_results(text: str) -> str:
    """Results that a reader opens after a guess, in Markdown that also GitHub folds."""
    return f"<details>\n<summary>{TEXTS['guess_first']}</summary>\n\n{text}\n\n</details>"


def replace_table(readme: str, table: str) -> str:
    """The README with the text between its markers replaced."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in before + after:
        raise ValueError("the README needs the two markers of the results table, once each")
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


def write() -> None:
    """Write the README's results and their plot where they differ."""
    for path, text in wanted_files().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
