"""Goldens: what the project answered once, compared with what it answers now."""
