"""``python -m labtools`` is the command ``labtools``."""

import sys

from labtools.cli import main

if __name__ == "__main__":
    sys.exit(main())
