"""The scripts of the views."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def view_script(name: str) -> str:
    """A view's script, with the drawing functions that all of them share in front of it."""
    return f"{(_HERE / 'draw.js').read_text()}\n{(_HERE / name).read_text()}"
