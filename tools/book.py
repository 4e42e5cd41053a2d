"""Build the book as a static site that works from disk without a network (``make book``), and as
an EPUB (``make epub``).

Pages are executed first (``tools/execute.py``). Every site is made from nothing and treats each
warning as an error; one of which nothing has changed since stands.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.choose import find_driver
from tools.execute import (
    JOBS,
    KeptPages,
    Noted,
    execute_pages,
    longest_first,
    named_files,
    page_environment,
    pages_key,
)
from tools.install import ROOT, fingerprint
from tools.site_assets import AssetError, fetch_assets
from tools.toc import executable_pages, toc_pages

# Kernels are checked beside each other here, and the process is copied for a compilation: a product
# that several threads of OpenBLAS share then hangs. It asks once, when numpy is imported: later.
for _library in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_library, "1")

SLOW_S = 20.0
"""No page should take longer."""
STATES_KEPT = 3
_OUTSIDE = re.compile(
    r"<(?:script|img|iframe|source|audio|video|embed)\b[^>]*?\bsrc\s*=\s*[\"'](?:https?:)?//[^\"']+"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|next|prev|author|license))[^>]*?"
    r"\bhref\s*=\s*[\"'](?:https?:)?//[^\"']+"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//[^\"')]+"
    r"|url\(\s*[\"']?(?:https?:)?//[^\"')]+",
    re.IGNORECASE,
)


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


def kept_pages(root: Path, folder: Path) -> KeptPages:
    """The executed pages that still hold, in a folder a state; other states are dropped, all but a
    few.
    """
    key = pages_key(root)
    kept = KeptPages(folder / key, root, key)
    os.utime(kept.folder)
    others = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in others[STATES_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return kept


def tell_times(noted: Mapping[str, Noted], path: Path) -> None:
    """Say which pages are slow, and write down how long each took when it was executed."""
    times = {page: one.wall_s for page, one in noted.items()}
    path.write_text(json.dumps({page: round(times[page], 2) for page in sorted(times)}, indent=1))
    cores_s = sum(one.cpu_s for one in noted.values())
    print(
        f"{len(times)} pages took {sum(times.values()):.0f} s when they were executed, "
        f"and {cores_s:.0f} s of a core."
    )
    slow = [page for page in times if times[page] > SLOW_S]
    if slow:
        print(f"Over {SLOW_S:.0f} s: {', '.join(sorted(slow, key=times.__getitem__))}")


def read_times(path: Path) -> dict[str, float]:
    """How long each page took the last time; nothing where that is not known."""
    try:
        return {str(page): float(seconds) for page, seconds in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def execute_all(root: Path, kept: KeptPages, times: Path, jobs: int) -> None:
    """Execute every page that is not kept; ends where a page fails."""
    pages = longest_first(executable_pages(root), root, read_times(times))
    failed = execute_pages([page for page in pages if kept.find(page) is None], kept, jobs)
    if failed:
        raise SystemExit(
            f"The book has errors: {', '.join(sorted(failed))}. They are above. No site was made."
        )
    found = {page: kept.find(page) for page in pages}
    tell_times({page: one for page, one in found.items() if one is not None}, times)


def run_sphinx(
    root: Path,
    output: Path,
    kept: KeptPages,
    assets: Path,
    jobs: int,
    builder: str = "html",
    editor: Path | None = None,
) -> None:
    """Make the site, or what another builder makes, of executed pages; ends on a warning too."""
    env = page_environment()
    env |= {"FIELDGUIDE_ASSETS": str(assets), "FIELDGUIDE_CACHE": str(kept.folder)}
    env |= {"FIELDGUIDE_WRITE": str(editor or "")}
    command = [sys.executable, "-m", "tools.sphinx_site", str(root), str(output)]
    command += ["--jobs", str(jobs), "--builder", builder]
    if subprocess.run(command, cwd=root, env=env).returncode != 0:
        raise SystemExit("The book has errors or warnings; they are above. Nothing was made.")


SITE_PARTS = ("book", "labs", "tools", "_config.yml", "_toc.yml", "tests/goldens/prepared.jsonl.gz")
"""What a site is made of beside executed pages."""


def site_mark(root: Path, kept: KeptPages) -> str | None:
    """A hash of all that a site is made of; None where a page must be executed first."""
    parts: list[str | Path] = [kept.key or ""]
    for page in executable_pages(root):
        executed = kept.mark(page)
        if executed is None:
            return None
        parts += [page, executed]
    return fingerprint(*parts, *named_files(root, SITE_PARTS))


def site_files(html: Path) -> dict[str, list[int]]:
    """Size and time of every file of a site, so that it is seen when one was touched."""
    found = {path.relative_to(html).as_posix(): path.stat() for path in html.rglob("*")}
    return {name: [one.st_size, one.st_mtime_ns] for name, one in sorted(found.items())}


def stands(html: Path, noted: Path, root: Path, kept: KeptPages) -> bool:
    """Whether the site that `build` wrote down is there, whole, and would be made of the same
    again.
    """
    try:
        made = json.loads(noted.read_text())
    except (OSError, ValueError):
        return False
    mark = site_mark(root, kept)
    return mark is not None and bool(made == {"mark": mark, "files": site_files(html)})


def build(
    root: Path = ROOT,
    output: Path | None = None,
    cache: bool = True,
    kept: KeptPages | None = None,
    jobs: int = JOBS,
    epub: bool = False,
) -> Path:
    """Build the site, and the EPUB on request; returns the folder of the site's HTML.

    The pages taken are those of ``kept``, with what is missing added; by default pages are kept
    between builds, but with a GPU, where also one page runs at a time and has it to itself.

    Raises SystemExit: it fails or warns, a page is missing or not in the table of contents, or a
    page would ask for something from outside.
    """
    output = (output or root).resolve()
    made = output / "_build"
    html = made / "html"
    live = find_driver() is not None
    with tempfile.TemporaryDirectory() as scratch:
        if kept is None:
            folder = made / ".executed" if cache and not live else Path(scratch)
            kept = kept_pages(root, folder)
        if stands(html, made / "site.json", root, kept):
            print("Nothing has changed: the site stands as it was made.")
        else:
            make_site(root, html, kept, jobs)
        if epub:
            make_epub(root, html, kept, jobs)
    return html


def make_site(root: Path, html: Path, kept: KeptPages, jobs: int) -> None:
    """Make the site from nothing, for `build`; pages that are not kept are executed first."""
    made, noted = html.parent, html.parent / "site.json"
    noted.unlink(missing_ok=True)
    for stale in (html, made / ".doctrees"):
        shutil.rmtree(stale, ignore_errors=True)
    try:
        assets = fetch_assets()
    except AssetError as error:
        raise SystemExit(
            f"The site cannot be built.\nWhy: {error}\n"
            "What still works: the same pages in JupyterLab (make lab)."
        ) from None
    made.mkdir(parents=True, exist_ok=True)
    alone = find_driver() is not None
    with ThreadPoolExecutor(1) as beside:
        making = beside.submit(editor_of, root)  # it needs nothing of the pages
        execute_all(root, kept, made / "page-times.json", 1 if alone else jobs)
        mark = site_mark(root, kept)
        editor = making.result()
    run_sphinx(root, html, kept, assets, jobs, editor=editor)
    if mark != site_mark(root, kept) or (root == ROOT and editor is None):
        mark = None  # edited meanwhile, or to be made again when a compiler can be had
    differing = set(toc_pages(root)) ^ set(built_pages(html))
    if differing:
        raise SystemExit(f"Pages and table of contents differ: {', '.join(sorted(differing))}")
    outside = outside_requests(html)
    if outside:
        raise SystemExit("The site would ask other hosts:\n" + "\n".join(outside))
    noted.write_text(json.dumps({"mark": mark, "files": site_files(html)}))


def editor_of(root: Path) -> Path | None:
    """What the repository's own site needs so that kernels are written in it; says why not."""
    from labtools.problem import LabError
    from tools.write_in_page import make_editor  # much to import, for what fills pages too

    try:
        return make_editor() if root == ROOT else None
    except (AssetError, LabError) as error:
        what = "The site has no compiler, so its kernels can be written in JupyterLab only"
        print(f"{what}: {error}")
        return None


def make_epub(root: Path, html: Path, kept: KeptPages, jobs: int = JOBS) -> Path:
    """Make the EPUB of what the site was made of; returns it, ``book.epub`` beside the site."""
    folder = html.parent / "epub"
    shutil.rmtree(folder, ignore_errors=True)
    run_sphinx(root, folder, kept, fetch_assets(), jobs, builder="epub")
    return (folder / "book.epub").rename(html.parent / "book.epub")


def archive(html: Path, path: Path) -> Path:
    """Pack a site for a static host; the same site makes the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo(".nojekyll"), "")  # or GitHub leaves out _static
        for name in site_files(html):
            if (html / name).is_file():
                entry = zipfile.ZipInfo(name)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                packed.writestr(entry, (html / name).read_bytes())
    return path


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="put _build there instead of here")
    parser.add_argument("--no-cache", action="store_true", help="execute every page anew")
    parser.add_argument("--jobs", type=int, default=JOBS, help="pages at a time (%(default)s)")
    parser.add_argument("--archive", action="store_true", help="pack the site into site.zip too")
    parser.add_argument("--epub", action="store_true", help="make book.epub too")
    options = parser.parse_args(argv)
    cache = not options.no_cache
    html = build(ROOT, options.output, cache, jobs=options.jobs, epub=options.epub)
    start = html / f"{toc_pages()[0]}.html"
    print(f"The site is in {html}. Open {start.as_uri()}")
    if options.archive:
        packed = archive(html, html.parent / "site.zip")
        print(f"For a static host: {packed}, {packed.stat().st_size / 1e6:.0f} MB")
    if options.epub:
        print(f"The EPUB: {html.parent / 'book.epub'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
