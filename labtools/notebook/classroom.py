"""Predictions of a class: what its members handed in, question by question."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

from labtools.problem import LabError
from labtools.problem.text import read_given
from labtools.record.prediction import JournalRow, Score, score_guess

from .tables import Shown, make_note, show_table


def read_handed_in(folder: Path) -> dict[str, list[JournalRow]]:
    """The first counting prediction of each question, by the name of a file without its ending: the
    output of ``labtools journal --json``, a member each.

    Raises LabError: a file is something else.
    """
    members = {}
    for path in sorted(folder.glob("*.json")):
        try:
            listed = json.loads(read_given(path))["predictions"]
            rows = [_scored(JournalRow.model_validate(row)) for row in listed]
        except (OSError, ValueError, KeyError, TypeError, RecursionError, LabError) as error:
            why = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            still = "write it with: labtools journal --json > NAME.json"
            raise LabError(f"{path.name} is no list of predictions.", why, still) from None
        first: dict[str, JournalRow] = {}
        for row in rows:
            if not row.prediction.after_reveal:
                first.setdefault(row.prediction.question_id, row)
        members[path.stem] = list(first.values())
    return members


def _scored(row: JournalRow) -> JournalRow:
    """The row with a score of our own: a file may say any."""
    found = score_guess(row.prediction, row.reveal) if row.reveal else None
    return row.model_copy(update={"score": found})


def show_class(members: Mapping[str, Sequence[JournalRow]]) -> Shown:
    """For each question: answers, how many were right, and how far off ratios were."""
    answered: dict[str, list[JournalRow]] = defaultdict(list)
    for rows in members.values():
        for row in rows:
            answered[row.prediction.question_id].append(row)
    if not answered:
        return make_note("Nothing was handed in yet.")
    table = []
    for question, rows in sorted(answered.items()):
        scores = [row.score for row in rows if row.score]
        right = f"{sum(score.right for score in scores)} of {len(scores)}"
        off = [score.off_by for score in scores if isinstance(score, Score)]
        mean = geometric_mean(off) if off else None
        table.append((question, len(rows), right, mean, max(off, default=None)))
    columns = ("question", "answers", "right", "off by, geometric mean", "off by, worst")
    counted = "the first answer of each, before the result was shown; of a ratio, the direction"
    note = f"{len(members)} members; {counted}"
    return show_table(columns, table, word="computed", note=note)
