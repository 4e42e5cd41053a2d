"""A bench: controls above a picture, linked in the browser so that no kernel is needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from labtools.problem import LabError

from .static_page import KIT, guess_script, guess_style


class View(anywidget.AnyWidget):
    """A picture that its own JavaScript draws.

    ``class SplitView(View, script="view")`` takes ``view.js``, and ``view.css`` where there is one,
    of the folder where the class stands, behind the kit, those named in ``before``, and with
    ``guesses`` the form of a guess. A view of a `Bench` has a trait ``NAME_index`` for each of its
    ``controls``, and ``tables``.
    """

    def __init_subclass__(
        cls,
        *,
        script: str = "",
        before: Sequence[str] = (),
        guesses: bool = False,
        controls: Sequence[str] = (),
        **options: Any,
    ) -> None:
        traits: dict[str, Any] = {"tables": traitlets.Dict()} if controls else {}
        traits |= {f"{name}_index": traitlets.Int(0) for name in controls}
        for name, trait in traits.items():
            setattr(cls, name, trait.tag(sync=True))
            trait.class_init(cls, name)
        if script:  # a widget's traits make a class of their own, which draws as its parent does
            folder = Path(inspect.getfile(cls)).parent
            files = [KIT, *(folder / name for name in (*before, script))]
            parts = [path.with_suffix(".js").read_text() for path in files]
            styles = [path.with_suffix(".css") for path in files]
            looks = [path.read_text() for path in styles if path.exists()]
            if guesses:
                parts.insert(1, guess_script())
                looks.insert(1, guess_style())
            cls._esm, cls._css = "\n".join(parts), "\n".join(looks)
        super().__init_subclass__(**options)


class GateView(View, script="gate"):
    """The form of a question; its JavaScript sends a guess and shows what Python answers."""

    text = traitlets.Unicode().tag(sync=True)
    form = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    again_message = traitlets.Unicode().tag(sync=True)


class Bench(ipywidgets.VBox):
    """Controls by name, the picture they steer, and every answer that it may look up."""

    def __init__(
        self, controls: dict[str, ipywidgets.Widget], view: type[View], tables: dict[str, Any]
    ) -> None:
        self.controls = controls
        starts = {f"{name}_index": control.index for name, control in controls.items()}
        self.view = view(tables=tables, **starts)
        for name, control in controls.items():
            ipywidgets.jslink((control, "index"), (self.view, f"{name}_index"))
        super().__init__([*controls.values(), self.view])
        self.add_class("lt-bench")


def look(description: str, label_width: str = "9.5em", most_width: str = "38em") -> dict[str, Any]:
    """How every control of a bench looks: its label before it, as wide as the page has room."""
    return {
        "description": description,
        "style": {"description_width": label_width},
        "layout": ipywidgets.Layout(width="100%", max_width=most_width),
    }


def slider(
    text: str, values: Sequence[Any], start: Any, say: Callable[[Any], str] = str, **widths: str
) -> Any:
    """A slider over some values, as ``say`` reads them. Raises LabError: ``start`` is none."""
    options, index = [(say(value), value) for value in values], place_of(start, values)
    return ipywidgets.SelectionSlider(options=options, index=index, **look(text, **widths))


def dropdown(text: str, values: Sequence[Any], index: int = 0, **widths: str) -> Any:
    """A list of some values, as they read."""
    options = [str(value) for value in values]
    return ipywidgets.Dropdown(options=options, index=index, **look(text, **widths))


def place_of(name: Any, offered: Sequence[Any]) -> int:
    """Where something stands among what a bench offers. Raises LabError: nowhere."""
    if name not in offered:
        why = f"it offers {', '.join(map(str, offered))}"
        raise LabError(f"{name} is not on this bench.", why, "start with one of them")
    return list(offered).index(name)
