"""The ``%%solution`` cell: what it holds runs when a reader asks for it, and not before."""

from __future__ import annotations

from typing import Any

from labtools.problem import LabError

from .reader import reader_present


def run_solution(shell: Any, line: str, cell: str) -> None:
    """What a ``%%solution`` cell does: with a reader here, offer the solution and run nothing,
    unless its ``line`` is ``show``, for a frontend without widgets.

    Raises LabError: the line is not understood.
    """
    word = line.strip()
    if word not in ("", "show"):
        what = f"This %%solution line is not understood: {word}."
        raise LabError(what, "it is empty, or the word show")
    if word or not reader_present():
        shell.run_cell(cell).raise_error()
    else:
        _offer(shell, cell)


def _offer(shell: Any, cell: str) -> None:
    import ipywidgets as widgets
    from IPython.display import display

    layout = widgets.Layout(width="auto")
    button = widgets.Button(description="Show the solution", layout=layout)
    button.tooltip = "runs the solution in this cell"
    shown = widgets.Output()

    def show(_: Any) -> None:
        button.disabled = True
        shown.clear_output()
        with shown:
            shell.run_cell(cell)
        button.disabled = False
        button.description = "Run the solution again"

    button.on_click(show)
    box = widgets.VBox([button, shown])
    box.add_class("lt-solution")
    display(box)
