"""What ``jupyter-book build -W -n --keep-going`` does, on several cores and sooner under way.

With ``--builder epub`` it makes the EPUB, ``book/_ext/epub.py``.

``tools/book.py`` runs it in a process of its own: Sphinx changes docutils for its whole process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import tools.light_jsonschema  # noqa: F401


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the folder with _config.yml and _toc.yml")
    parser.add_argument("output", type=Path, help="the folder that gets the site")
    parser.add_argument("--builder", default="html")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(argv)

    from jupyter_book.sphinx import build_sphinx

    result = build_sphinx(
        options.root,
        options.output,
        path_config=options.root / "_config.yml",
        noconfig=True,
        confoverrides={
            "external_toc_path": str(options.root / "_toc.yml"),
            "latex_individualpages": False,
            "nitpicky": True,
        },
        builder=options.builder,
        warningiserror=True,
        keep_going=True,
        jobs=options.jobs,
    )
    return 0 if result == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
