"""Importing this first makes ``import jsonschema`` two seconds shorter, and with it nbformat's.

jsonschema looks for rfc3987_syntax, which builds 39 grammars when it is imported. They check
internationalised addresses, a format that no notebook's schema has. Where the package is not
installed jsonschema does without, and so it does here. Import it before nbformat, nbclient or
jupyter_book.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
