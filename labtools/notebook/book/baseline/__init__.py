"""Drawn for `book/baseline.md`."""
