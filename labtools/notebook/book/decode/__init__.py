"""Drawn for `book/decode.md`."""
