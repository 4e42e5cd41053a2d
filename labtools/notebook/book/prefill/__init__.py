"""Drawn for the pages of `book/prefill`."""
