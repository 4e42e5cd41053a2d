"""Drawn for `book/triton_kernel.md`."""
