"""Drawn for `book/which_tool.md`."""
