"""Write the model's name beside a digest of its code and tables (``make name``).

Run it after an edit of the model. The name changes only if what the model says has changed; the
digest changes with every edit, and while it does not fit, the name takes seconds to compute.
"""

from __future__ import annotations

import sys

from labtools.predict.version import read_kept, write_name
from labtools.problem import LabError


def main() -> int:
    """Write the name, and say whether it is another one."""
    try:
        before = read_kept().get("name")
        name = write_name()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{name}, {'as before' if name == before else 'another model than before'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
