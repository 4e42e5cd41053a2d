"""Build the book as a static site that works from disk without a network (``make book``).

Every build starts clean and treats each warning as an error. Executed pages are cached under a
key that covers everything their outputs depend on beside their own text: ``kernels/`` (records
included), ``labtools/`` and the locks. So the cache can save time and cannot be stale. With a GPU
there is no cache at all, because a live number must be of this build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from tools.choose import find_driver
from tools.install import ROOT, fingerprint
from tools.site_assets import AssetError, fetch_assets

BUILD = ROOT / "_build"
# What a page's outputs depend on beside the page. Pages' own text is jupyter-cache's business.
DEPENDS = (
    *("kernels", "labtools", "requirements.lock", "pyproject.toml"),
    *("book/claims.yml", "book/noted_h200.toml"),
)
_OUTSIDE = re.compile(
    r"<(?:script|img|iframe|source|audio|video|embed)\b[^>]*?\bsrc\s*=\s*[\"'](?:https?:)?//[^\"']+"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|next|prev|author|license))[^>]*?"
    r"\bhref\s*=\s*[\"'](?:https?:)?//[^\"']+"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//[^\"')]+"
    r"|url\(\s*[\"']?(?:https?:)?//[^\"')]+",
    re.IGNORECASE,
)


def content_key(root: Path = ROOT) -> str:
    """A hash of everything that pages' outputs depend on beside the pages themselves."""
    parts: list[str | Path] = [sys.version]
    for name in DEPENDS:
        path = root / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                parts += [file.relative_to(root).as_posix(), file]
    return fingerprint(*parts)[:20]


def toc_pages(root: Path = ROOT) -> list[str]:
    """The pages of ``_toc.yml``, in order, without endings."""
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    pages = [toc["root"]]

    def walk(node: object) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item)
        elif isinstance(node, dict):
            if "file" in node:
                pages.append(node["file"])
            for key in ("parts", "chapters", "sections"):
                walk(node.get(key))

    walk({key: value for key, value in toc.items() if key != "root"})
    return [page.removesuffix(".md") for page in pages]


def built_pages(html: Path) -> list[str]:
    """The pages of a built site, without the ones Sphinx adds."""
    added = {"genindex", "search", "index", "py-modindex"}
    found = (path.relative_to(html).with_suffix("").as_posix() for path in html.rglob("*.html"))
    return sorted(page for page in found if page not in added and not page.startswith("_static/"))


def outside_requests(html: Path) -> list[str]:
    """Everything in a built site that a browser would fetch from another host by itself."""
    found = []
    for path in sorted(html.rglob("*")):
        if path.suffix == ".html" or (path.suffix == ".css" and path.is_file()):
            for match in _OUTSIDE.finditer(path.read_text(encoding="utf-8", errors="replace")):
                found.append(f"{path.relative_to(html)}: {match[0][:160]}")
    return found


def build(root: Path = ROOT, output: Path | None = None, cache: bool = True) -> Path:
    """Build the site.

    Args:
        root: the folder with ``_config.yml`` and ``_toc.yml``.
        output: the folder that gets ``_build``; by default ``root``.
        cache: keep executed pages between builds.

    Returns: the folder of the site's HTML.

    Raises:
        SystemExit: when the build fails or warns, a page is missing or not in the table of
            contents, or a page would ask for something from outside.
    """
    output = output or root
    html = output / "_build" / "html"
    for stale in (html, output / "_build" / ".doctrees"):
        shutil.rmtree(stale, ignore_errors=True)
    try:
        assets = fetch_assets()
    except AssetError as error:
        raise SystemExit(
            f"The site cannot be built.\nWhy: {error}\n"
            "What still works: the same pages in JupyterLab (make lab)."
        ) from None
    env = {**os.environ, "LABTOOLS_READER": "0", "FIELDGUIDE_ASSETS": str(assets)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    # Pages run with whatever python the kernel spec names; that must be this environment's.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    caches = output / "_build" / ".executed"
    if cache and find_driver() is None:
        key = content_key(root)
        for old in caches.glob("*"):
            if old.name != key:
                shutil.rmtree(old, ignore_errors=True)
        env["FIELDGUIDE_CACHE"] = str(caches / key)
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", str(root)]
    command += ["--path-output", str(output), "-W", "-n", "--keep-going"]
    done = subprocess.run(command, cwd=root, env=env)
    if done.returncode != 0:
        raise SystemExit("The book has errors or warnings; they are above. No site was made.")
    differing = set(toc_pages(root)) ^ set(built_pages(html))
    if differing:
        raise SystemExit(f"Pages and table of contents differ: {', '.join(sorted(differing))}")
    outside = outside_requests(html)
    if outside:
        raise SystemExit("The site would ask other hosts:\n" + "\n".join(outside))
    return html


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="put _build there instead of here")
    parser.add_argument("--no-cache", action="store_true", help="execute every page anew")
    options = parser.parse_args(argv)
    html = build(ROOT, options.output, cache=not options.no_cache)
    start = html / f"{toc_pages()[0]}.html"
    print(f"The site is in {html}. Open {start.as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
