"""Goldens: what the project answered once, kept, and compared with what it answers now.

`commands` lists the command lines, `cases` knows every question and asks it, `values` makes answers
small and comparable, `storage` is where the snapshot library keeps them. ``make goldens`` compares
all of them; ``make accept WHAT=...`` keeps what is said now.
"""
