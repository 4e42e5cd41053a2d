"""Drawn for `book/the_gpu.md`."""
