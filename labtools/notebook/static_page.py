"""Questions on a page that nobody sits at: what the site's script makes a form of.

Without a script the question and a folded result are all there is. With it the rest of the page
waits until a guess is committed. The site's build puts the script together with `site_script`.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labtools.record.prediction import MISUNDERSTOOD, MISUNDERSTOOD_FROM, SAME_WITHIN, SIZES

from .tables import BOX, Shown

_HERE = Path(__file__).parent
_SUMMARY = "Result (decide first)"
KIT = _HERE / "kit"
"""What all views are built of: its ``.js`` and its ``.css``."""


def static_question(
    question_id: str, text: str, advice: str, form: Mapping[str, Any], *, holds_page: bool = True
) -> Shown:
    """A question in words, and what a ``form`` for it needs: its ``kind`` is ``ratio`` (with
    ``baseline`` and ``candidate``), ``choice`` (with ``choices``) or ``numbers`` (with ``labels``).
    """
    data = {"id": question_id, "text": text, **form}
    holds = " data-holds" if holds_page else ""
    what = "prediction" if form["kind"] == "ratio" else "answer"
    markup = (
        f'<div class="lt-gate-static"{holds} {_attribute("question", data)} style="{BOX}">'
        f"<strong>Your {what}</strong><p>{html.escape(text)}</p>"
        f"<p>{html.escape(advice)}</p></div>"
    )
    return Shown(markup, f"{text}\n{advice}")


def static_result(
    shown: Shown, question_id: str = "", scored: Mapping[str, Any] | None = None
) -> Shown:
    """A result, closed until its reader opens it or commits a guess.

    It answers ``question_id``, if any; a guess is ``scored`` against ``ratio`` and ``interval``, or
    ``right``.
    """
    of = f' data-of="{html.escape(question_id)}"' if question_id else ""
    against = f" {_attribute('scored', scored)}" if scored else ""
    return Shown(
        f'<details class="lt-result"{of}{against}><summary style="cursor:pointer">{_SUMMARY}'
        f"</summary>{shown.html}</details>",
        shown.text,
    )


def static_rounds(rounds: Sequence[str], board_note: str) -> str:
    """HTML of rounds that the site's script plays one after another; see `static_round`."""
    told = (
        "<noscript><p>The rounds below need a script. Without one, decide here, and play them in "
        "Jupyter to see the answers.</p></noscript>"
    )
    note = html.escape(board_note, quote=True)
    return f'<div class="lt-rounds-static" data-note="{note}">{told}{"".join(rounds)}</div>'


def static_round(question: Shown, hints: Mapping[str, Shown], gate: Shown, sealed: Any) -> str:
    """HTML of one round."""
    shown = "".join(
        f'<details class="lt-hint"><summary>{html.escape(label)}</summary>{hint.html}</details>'
        for label, hint in hints.items()
    )
    packed = base64.b64encode(json.dumps(sealed).encode()).decode()
    return (
        f'<section class="lt-round" data-sealed="{packed}">{question.html}{shown}{gate.html}'
        "</section>"
    )


def guess_script() -> str:
    """JavaScript that draws the form and scores by the journal's rules; kit.js stands before it.

    It defines ``render`` of gate.js, ``Asked``, which is the form's model, and ``verdict``.
    """
    form = (_HERE / "gate.js").read_text().replace("export default { render };", "")
    rules = {"sameWithin": SAME_WITHIN, "sizes": SIZES}
    rules |= {"misunderstoodFrom": MISUNDERSTOOD_FROM, "misunderstood": MISUNDERSTOOD}
    parts = (form, f"const RULES = {json.dumps(rules)};", (_HERE / "guess.js").read_text())
    return "\n".join(parts)


def guess_style() -> str:
    """The style of the form."""
    return (_HERE / "gate.css").read_text()


def site_script() -> str:
    """The script of the site that asks questions: the form that Jupyter shows, and its keeper."""
    kit, keeper = ((_HERE / name).read_text() for name in ("kit.js", "static_page.js"))
    return "\n".join(["(() => {", kit, guess_script(), keeper, "})();", ""])


def site_style() -> str:
    """The style of the form, as Jupyter has it, and of what the site adds."""
    return guess_style() + (_HERE / "static_page.css").read_text()


def _attribute(name: str, data: Any) -> str:
    return f'data-{name}="{html.escape(json.dumps(data), quote=True)}"'
