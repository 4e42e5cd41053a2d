"""A bench: controls above a picture, linked in the browser so that no kernel is needed."""

from __future__ import annotations

from typing import Any

import ipywidgets


class Bench(ipywidgets.VBox):
    """Controls and the picture they steer.

    Args:
        controls: by name; the picture has a trait ``NAME_index`` for each.
        view: the picture.
    """

    def __init__(self, controls: dict[str, ipywidgets.Widget], view: Any) -> None:
        self.controls = controls
        self.view = view
        for name, control in controls.items():
            ipywidgets.jslink((control, "index"), (view, f"{name}_index"))
        super().__init__([*controls.values(), view])
        self.add_class("lt-bench")
