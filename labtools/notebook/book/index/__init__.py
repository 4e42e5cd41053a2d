"""Drawn for `book/index.md`."""
