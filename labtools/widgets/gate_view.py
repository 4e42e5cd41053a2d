"""The form in which a reader commits a guess."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

from .scripts import view_script

_HERE = Path(__file__).parent


class GateView(anywidget.AnyWidget):
    """The question as a form; its JavaScript sends a guess and shows what Python answers."""

    _esm = view_script("gate.js")
    _css = (_HERE / "gate.css").read_text()

    text = traitlets.Unicode().tag(sync=True)
    baseline = traitlets.Unicode().tag(sync=True)
    candidate = traitlets.Unicode().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    again_message = traitlets.Unicode().tag(sync=True)
