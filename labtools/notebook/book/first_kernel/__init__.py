"""Drawn for `book/first_kernel.md`."""
