"""Drawn for the pages of `book/ladder`."""
