"""Drawn for `book/fusion.md`."""
