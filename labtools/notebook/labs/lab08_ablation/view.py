"""The ablation bench: a kernel of the family, a method or two taken out, and what that does. The
picture looks up every answer, which a guess comes before, and needs no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from labtools.optimize.attribution import threshold_of
from labtools.optimize.bench import RecordedBench, TimingBench
from labtools.optimize.family import Family, Point
from labtools.optimize.loop import ablate_point
from labtools.optimize.opcode_table import opcodes_path, read_opcodes
from labtools.optimize.opening import open_bench
from labtools.optimize.state import AblatedPoint
from labtools.problem import LabError

from ...bench import Bench, View, dropdown, place_of
from ...book.reading_sass.opcodes import WORDS
from ...live import can_run_live
from ...packing import pack_tables
from ...ratios import Speedup
from ...tables import Shown, Word, make_note, show_table
from .kernels import KERNELS, ShownKernel, point_of
from .panels import FOLLOWED, OUTCOMES, identical_ratios, make_kernel, say_interval

YOUR_OWN = "your own"
"""Name of the kernel that a reader put on the bench."""


def recorded_bench(family: Family) -> RecordedBench:
    """The recorded grid of a family at its headline."""
    bench = open_bench(family, family.workloads[0], "recorded")
    assert isinstance(bench, RecordedBench)
    return bench


def ablation_tables(
    bench: RecordedBench, shown: Sequence[tuple[ShownKernel, Point]]
) -> dict[str, Any]:
    """Every answer that the picture may need at a workload: ``kernels`` as `make_kernel` gives
    them, what identical kernels say, the threshold, and what the opcodes do.
    """
    table = read_opcodes(opcodes_path(bench.family.rung.id, bench.gpu))
    kernels = [make_kernel(bench, table, one.name, one.about, point) for one, point in shown]
    least, made = bench.least_effect(), bench.grid.provenance
    opcodes = {
        name.partition(".")[0]
        for kernel in kernels
        for cell in kernel["cells"].values()
        for name, _, _ in cell["change"].get("opcodes", ())
    }
    return {
        "where": f"{made.gpu}, {made.date:%Y-%m-%d}, the recorded grid",
        "workload": str(bench.problem),
        "outcomes": OUTCOMES,
        "threshold": round(threshold_of(least), 4),
        "identical": identical_ratios(bench),
        "least": round(least.effect, 4),
        "opcodes": {name: WORDS[name] for name in sorted(opcodes) if name in WORDS},
        "kernels": kernels,
    }


class AblationView(View, script="view", before=["effects"], controls=("workload", "kernel")):
    """The picture of the packed ``tables`` of each workload. ``out`` are the numbers of the methods
    that are out, ``guesses`` what was guessed, by workload, kernel and cell.
    """

    out = traitlets.List(traitlets.Int()).tag(sync=True)
    guesses = traitlets.Dict().tag(sync=True)


class AblationBench(Bench):
    """The bench, which knows what was chosen on it.

    The workload of ``recorded`` is shown first; the family's others may be chosen as well, for the
    same kernels. ``own`` is the key of a further point that a round may lead with, shown first
    instead of ``kernel``: of its code the bench knows what the grid counted, and not all opcodes.
    """

    def __init__(
        self, recorded: RecordedBench, kernel: str = KERNELS[0].name, own: str = ""
    ) -> None:
        kernels = list(KERNELS)
        if own:
            kernel = YOUR_OWN
            kernels.append(_own_kernel(recorded, own))
        names = [one.name for one in kernels]
        start = place_of(kernel, names)
        family, grid = recorded.family, recorded.grid
        others = [one for one in family.workloads if one != recorded.problem]
        self.at = [recorded, *(RecordedBench(family, one, grid) for one in others)]
        self._points = [point_of(recorded, one) for one in kernels]
        shown = list(zip(kernels, self._points, strict=True))
        self.tables = [ablation_tables(one, shown) for one in self.at]
        widths = {"label_width": "6em", "most_width": "30em"}
        controls = {
            "workload": dropdown("workload", [one.problem for one in self.at], 0, **widths),
            "kernel": dropdown("kernel", names, start, **widths),
        }
        super().__init__(controls, AblationView, pack_tables(self.tables))

    @property
    def recorded(self) -> RecordedBench:
        """The grid at the workload that the control shows."""
        return self.at[self.controls["workload"].index]

    @property
    def chosen(self) -> tuple[Point, tuple[str, ...]]:
        """The kernel that the control shows, and the methods that are out of it."""
        point = self._points[self.controls["kernel"].index]
        on = self.recorded.family.methods_on(point)
        return point, tuple(on[number] for number in self.view.out)

    def cell(self, kernel: str, method: str, at: int = 0) -> dict[str, Any]:
        """What is shown of a kernel without a method, or without two of them, ``"a + b"``; ``at``
        is the number of the workload."""
        one = next(one for one in self.tables[at]["kernels"] if one["name"] == kernel)
        ids = [held["id"] for held in one["methods"]]
        key = "+".join(str(ids.index(name)) for name in method.split(" + "))
        found: dict[str, Any] = one["cells"][key]
        return found


def _own_kernel(bench: RecordedBench, key: str) -> ShownKernel:
    point = bench.family.read_key(key)
    if why := bench.refuses(point):
        name = f"{point.key} is not on this bench."
        raise LabError(name, why, "a point of RecordedBench.family.grid()")
    return ShownKernel(YOUR_OWN, point.key, "A point of the grid that you chose.")


def recorded_gain(bench: RecordedBench, before: Point, after: Point) -> Speedup:
    """How much faster the second of two points is, as the grid has it."""
    made = bench.grid.provenance
    where = f"{made.gpu}, {made.date:%Y-%m-%d}, {bench.problem}"
    return _speedup(bench, before, after, "recorded", where)


def live_gain(family: Family, before: Point, after: Point) -> Speedup | None:
    """The same, timed now in one call; None where there is no GPU."""
    if not can_run_live():
        return None
    with open_bench(family, family.workloads[0], "gpu") as bench:
        return _speedup(bench, before, after, "live", f"{bench.problem}, now")


def _speedup(bench: TimingBench, before: Point, after: Point, word: str, what: str) -> Speedup:
    timed = bench.time([before, after])
    both = [timed.median_us(one) for one in (before, after)]
    found = bench.ratio(timed, before, after)
    return Speedup(found.ratio, word, what, (found.low, found.high), *both)


def show_live_ablation(bench: AblationBench) -> list[Any]:
    """Time what is chosen on the bench on this machine's GPU, beside the record.

    The kernel, and the kernel without each method that is out, are timed in one call; where none is
    out, all methods of the kernel are. Two that are out are also taken out together. Without a GPU
    a note says why.
    """
    if not can_run_live():
        return [make_note("There is no GPU here.")]
    point, out = bench.chosen
    family, problem = bench.recorded.family, bench.recorded.problem
    pairs = len(out) == 2
    try:
        live = ablate_point(family, problem, "gpu", point.knobs, out, pairs)
    except LabError as error:
        return [make_note(f"{error} The recorded times stand above.")]
    kept = ablate_point(family, problem, "recorded", point.knobs, out, pairs)
    return [compare_ablations(live, kept)]


def show_cases(bench: AblationBench, cases: Sequence[tuple[str, str, str]]) -> Shown:
    """A row for each case, its kernel and the method that is out, at the first workload: the ratio
    of the times, the class, and what the method's proof looked at."""

    def row(case: str, kernel: str, method: str) -> tuple[str | Word, ...]:
        cell = bench.cell(kernel, method)
        ((name, held, without),) = cell["proof"]["rows"]
        title = bench.recorded.family.method(method).title
        signed = cell["proof"]["kind"] == "signature"
        what = "instructions that show it" if signed else name.replace("_", " ")
        seen = f"{what}: {held} with it, {without} without"
        word = Word("recorded", also="forecast" if name in FOLLOWED else "")
        return case, f"{kernel}: {title}", cell["said"], cell["class"], seen, word

    columns = ("case", "kernel, and what is out", "ratio of times", "class", "what its proof sees")
    return show_table(columns, [row(*one) for one in cases], word="recorded")


def compare_ablations(live: AblatedPoint, kept: AblatedPoint) -> Any:
    """Two ablations of one point, method by method, with the least effect that each can tell."""
    least = (f"{one.aa.effect:.1%}" for one in (live, kept))
    both = Word("live", also="recorded")
    rows: list[tuple[object, ...]] = [
        ("least effect, from identical kernels", *least, "", "", both)
    ]
    recorded = {one.method: one for one in (*kept.attribution, *kept.pairs)}
    for one in (*live.attribution, *live.pairs):
        now, then = say_interval(one), recorded.get(one.method)
        old = (say_interval(then), _class_of(kept, one.method)) if then else ("not recorded", "")
        classes = _class_of(live, one.method), old[1]
        word = Word("live", also="recorded" if then else "")
        rows.append((one.method, now, old[0], *classes, word))
    columns = ("without", "time, live", "time, recorded", "class, live", "class, recorded")
    note = (
        f"{live.of.point}: {live.of.time_us:.2f} us live, {kept.of.time_us:.2f} us recorded. "
        "Times are over that of the kernel itself, with the 95 % interval."
    )
    return show_table(columns, rows, word="live", note=note)


def _class_of(found: AblatedPoint, method: str) -> str:
    """The class of one method; a pair has none."""
    kind: str = found.classes.get(method, "a pair has none")
    return kind.replace("_", " ")
