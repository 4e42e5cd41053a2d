"""The form in which a reader commits a guess."""

from __future__ import annotations

import traitlets

from .bench import View


class GateView(View, script="gate"):
    """The question as a form; its JavaScript sends a guess and shows what Python answers."""

    text = traitlets.Unicode().tag(sync=True)
    baseline = traitlets.Unicode().tag(sync=True)
    candidate = traitlets.Unicode().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    again_message = traitlets.Unicode().tag(sync=True)
