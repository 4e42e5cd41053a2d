"""Bounds and their bytes."""
