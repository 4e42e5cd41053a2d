"""The command line, ``labtools``. Every command has ``--json``; progress goes to stderr."""

from .entry import main
