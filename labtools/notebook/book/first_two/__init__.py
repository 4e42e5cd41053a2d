"""Drawn for `book/first_two.md`."""
