"""Write what Triton makes of a page's kernels (``python -m tools.write_triton``), where Triton is.

The page is executed, and what it asks Triton for is kept for machines without it.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile

from labtools.toolchain.cache import kept_values
from labtools.toolchain.triton_code import portable_answer, stored_answers_path
from tools.execute import PageRunError, run_page

TRITON_PAGE = "book/triton_kernel"


def main() -> int:
    """Execute the page with Triton and write the file; 0 where every cell ran."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # of the page's questions alone
        run = run_page(TRITON_PAGE, solutions=True)
        if said := run.error or run.solution_error:
            raise PageRunError(said)
        asked = sorted(json.dumps(told["asked"]) for told in kept_values("triton"))
        answers = [portable_answer(json.loads(one)) for one in asked]
    text = json.dumps(answers, indent=0)
    path = stored_answers_path()
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{path.name}: {len(answers)} kernels, {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
