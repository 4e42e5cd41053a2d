"""What a reader has written and how the guesses went, kept in the journal and told on one page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import geometric_mean

from labtools.problem.text import how_many, three_digits
from labtools.record.journal import Journal
from labtools.record.prediction import JournalRow, Notes, Score

from .exercises import exercise_files, load_exercise
from .reader import page_name
from .tables import Shown, make_table

STAGES = 5
"""Of the check of a kernel that a reader writes."""
CAPSTONE = "my_decode"
"""The kernel that a reader writes from an empty file, with its launch."""
LEAST = 4
"""Scored guesses, from which on the first half and the second are compared."""
_STYLE = "body{font:1rem/1.5 sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"


@dataclass(frozen=True)
class Stage:
    """One stage of the check of a kernel that a reader writes."""

    name: str
    ok: bool
    said: str
    word: str = "computed"


@dataclass(frozen=True)
class KernelScore:
    """How far a reader has come with one kernel."""

    kernel: str  # its %%cuda name
    title: str  # of the rung whose part it takes
    stages: int  # of the check that it passed at best
    said: str  # by the last of them
    at: datetime | None  # when; None where nothing was tried


def keep_progress(name: str, stages: Sequence[Stage], journal: Journal | None = None) -> None:
    """Note in the journal how far a kernel came, where it never came as far before."""
    journal, question = journal or Journal(), f"kernel-{name}"
    passed = [stage for stage in stages if stage.ok]
    before = journal.notes(question)
    if passed and _stages_of(before) <= len(passed):
        told = {"stages": str(len(passed)), "said": passed[-1].said}
        journal.write_notes(question, page_name(), told)


def read_progress(journal: Journal) -> list[KernelScore]:
    """Every kernel that the pages ask for, in the order of their names, and at last `CAPSTONE`."""
    found = []
    titles = {name: load_exercise(name).rung.title for name in sorted(exercise_files())}
    for name, title in {**titles, CAPSTONE: "A decode kernel from an empty file"}.items():
        kept = journal.notes(f"kernel-{name}")
        said, at = (kept.fields.get("said", ""), kept.at) if kept else ("", None)
        found.append(KernelScore(name, title, _stages_of(kept), said, at))
    return found


def _stages_of(kept: Notes | None) -> int:
    """How many stages a kernel passed; 0 where the journal holds no such number."""
    said, known = kept.fields.get("stages") if kept else None, [str(n) for n in range(STAGES + 1)]
    return known.index(said) if said in known else 0


def calibration(rows: Sequence[JournalRow]) -> list[tuple[str, int, str, str]]:
    """Of the first half of the guesses that count and of the second: how many, how many had the
    right direction, and by what factor they were off, as a geometric mean."""
    scores = [row.score for row in rows if not row.prediction.after_reveal]
    scored = [one for one in scores if isinstance(one, Score)]
    middle = (len(scored) + 1) // 2
    parts = {"first half": scored[:middle], "second half": scored[middle:]}
    told = []
    for part, ones in (parts if len(scored) >= LEAST else {"all of them": scored}).items():
        right = f"{sum(one.right for one in ones)} of {len(ones)}"
        off = three_digits(geometric_mean(one.off_by for one in ones)) if ones else "-"
        told.append((part, len(ones), right, off))
    return told


def show_progress(journal: Journal) -> Shown:
    """Both as tables."""
    written = read_progress(journal)
    done = sum(one.stages == STAGES for one in written)
    kernels = [
        (
            one.kernel,
            one.title,
            f"{one.stages} of {STAGES}",
            one.said,
            one.at.astimezone().strftime("%Y-%m-%d") if one.at else "-",
        )
        for one in written
    ]
    columns = ("kernel", "what it does", "stages passed", "the last one", "when")
    told = f"{how_many(done, 'kernel')} written of {len(written)}"
    guesses = calibration(journal.history())
    titles = ("guesses of a ratio", "number", "right direction", "off by a factor of")
    return make_table(columns, kernels, told) + make_table(
        titles,
        [tuple(map(str, row)) for row in guesses],
        "Your guesses, in the order you made them",
    )


def progress_html(journal: Journal) -> str:
    """One page that needs nothing else."""
    title = f"Kernels and guesses of {html.escape(journal.reader)}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"{show_progress(journal).html}\n</body>\n</html>\n"
    )
