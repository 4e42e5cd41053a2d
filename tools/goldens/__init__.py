"""Goldens: what the project answered once, kept, and compared with what it answers now.

A change of the house must not change what it says. The goldens are the answers of the command
line with ``--json`` and, of every shipped record of decode, the forecast, the hash of its code and
its median. ``make goldens`` asks for all of them again and compares.

The parts: `ask` puts the questions to labtools and is the one place to adapt when a name there
changes; `commands` lists the command lines; `masks` says what of an answer depends on the machine;
`values` makes answers small and comparable; `changes` reads what differs on purpose; `store`
reads and writes ``tests/goldens``; `cases` knows every question; `compare` holds the verdict.
"""
