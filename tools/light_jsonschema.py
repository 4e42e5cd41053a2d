"""Import this before nbformat: it makes ``import jsonschema`` two seconds shorter.

jsonschema looks for rfc3987_syntax, which builds 39 grammars for a format that no notebook has.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
