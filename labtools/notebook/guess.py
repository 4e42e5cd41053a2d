"""The form of a guess and its score where no kernel answers: on the site, and inside a view."""

from __future__ import annotations

import json
from pathlib import Path

from labtools.record.prediction import MISUNDERSTOOD, MISUNDERSTOOD_FROM, SAME_WITHIN, SIZES

_HERE = Path(__file__).parent
KIT = _HERE / "kit"
"""What all views are built of: its ``.js`` and its ``.css``."""


def guess_script() -> str:
    """JavaScript that draws the form and scores by the journal's rules; kit.js stands before it.

    It defines ``render`` of gate.js, ``Asked``, which is the form's model, and ``verdict``.
    """
    form = (_HERE / "gate.js").read_text().replace("export default { render };", "")
    rules = {
        "sameWithin": SAME_WITHIN,
        "sizes": SIZES,
        "misunderstoodFrom": MISUNDERSTOOD_FROM,
        "misunderstood": MISUNDERSTOOD,
    }
    parts = (form, f"const RULES = {json.dumps(rules)};", (_HERE / "guess.js").read_text())
    return "\n".join(parts)


def guess_style() -> str:
    """The style of the form."""
    return (_HERE / "gate.css").read_text()
