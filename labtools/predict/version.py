"""Which model made a forecast: a number that is raised by hand. The goldens keep it, and refuse a
forecast that moved under an unchanged number."""

from __future__ import annotations

MODEL_VERSION = 2
"""Raise it whenever a rule or a number of the model moves any forecast."""


def model_name() -> str:
    """For example ``chain model 2``; what a record says of its forecast."""
    return f"chain model {MODEL_VERSION}"
