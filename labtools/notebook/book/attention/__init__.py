"""Drawn for `book/attention.md`."""
