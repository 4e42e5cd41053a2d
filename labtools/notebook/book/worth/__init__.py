"""Drawn for `book/what_it_is_worth.md`."""
