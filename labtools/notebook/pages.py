"""The learner's own copies of the pages, in ``work/``: made once and never overwritten.

A fresh copy is had with ``labtools reset PAGE``, which keeps the old one beside it.
"""

from __future__ import annotations

import hashlib
import json
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from labtools.problem import LabError, repository_root
from labtools.record.folders import work_dir
from labtools.record.whole import write_whole

PAGE_FOLDERS = ("book", "labs")
START_PAGE = "book/index.md"
_MANIFEST = ".copied.json"


class PageError(LabError):
    """A page that cannot be found or copied."""


@dataclass(frozen=True)
class Copies:
    """What ``make_copies`` did, in paths relative to the work folder."""

    made: tuple[str, ...]
    outdated: tuple[str, ...]


@dataclass(frozen=True)
class Reset:
    """A fresh copy, and where the old one is kept (None when there was none), with its outputs in
    the ``.ipynb`` beside it."""

    page: Path
    backup: Path | None


def list_pages(root: Path | None = None) -> list[str]:
    """Every file that belongs to the pages, relative to the repository, sorted; folders whose name
    begins with ``_`` or ``.`` hold none."""
    root = root or repository_root()
    found = []
    for folder in PAGE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            if path.is_file() and not any(part[0] in "._" for part in relative.parts):
                found.append(relative.as_posix())
    return found


def make_copies(root: Path | None = None) -> Copies:
    """Copy every page into ``work/`` that is not there yet. Never overwrites."""
    root = root or repository_root()
    work = work_dir(root)
    origins = _read_manifest(work)
    made, outdated = [], []
    for page in list_pages(root):
        source, copy = root / page, work / page
        if not copy.exists():
            _copy(source, copy)
            origins[page] = _digest(source)
            made.append(page)
        elif origins.get(page) != _digest(source) and _digest(copy) != _digest(source):
            outdated.append(page)
    if made:
        _write_manifest(work, origins)
    return Copies(tuple(made), tuple(outdated))


def reset_page(page: str, root: Path | None = None) -> Reset:
    """Give the learner a fresh copy of one page, named as in `find_page`; the old one is kept
    beside it."""
    root = root or repository_root()
    work = work_dir(root)
    name = find_page(page, root)
    copy, backup = work / name, None
    if copy.exists():
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        numbers = ("", *(f"-{number}" for number in range(2, 1000)))
        names = (f"{copy.stem}.before-{stamp}{number}{copy.suffix}" for number in numbers)
        backup = next(path for path in map(copy.with_name, names) if not path.exists())
        for ending in {copy.suffix, ".ipynb"}:
            if copy.with_suffix(ending).exists():
                copy.with_suffix(ending).rename(backup.with_suffix(ending))
    _copy(root / name, copy)
    origins = _read_manifest(work)
    origins[name] = _digest(root / name)
    _write_manifest(work, origins)
    return Reset(copy, backup)


def find_page(page: str, root: Path | None = None) -> str:
    """What ``attention``, ``book/attention.md`` or the path of a copy names, relative to the
    repository.

    Raises PageError: no page, or more than one, goes by that name.
    """
    root = root or repository_root()
    pages = list_pages(root)
    wanted = Path(page)
    for base in (work_dir(root), root):
        if wanted.is_absolute() and wanted.is_relative_to(base):
            wanted = wanted.relative_to(base)
    text = wanted.as_posix().removeprefix("./").removeprefix("work/")
    text = text.removesuffix(".ipynb")
    fits = [name for name in pages if text in (name, name.removesuffix(".md"))]
    fits = fits or [name for name in pages if text in (Path(name).name, Path(name).stem)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise PageError(f"More than one page is called {page}.", f"They are {', '.join(fits)}.")
    names = ", ".join(name.removesuffix(".md") for name in pages if name.endswith(".md"))
    raise PageError(f"There is no page called {page}.", f"The pages are {names}.")


def _copy(source: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_whole(copy, source.read_bytes(), mode=stat.S_IMODE(source.stat().st_mode))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_manifest(work: Path) -> dict[str, str]:
    try:
        return dict(json.loads((work / _MANIFEST).read_text()))
    except (OSError, ValueError, TypeError):
        return {}  # the only loss is the hint that a page has a newer original


def _write_manifest(work: Path, origins: dict[str, str]) -> None:
    write_whole(work / _MANIFEST, json.dumps(origins, indent=1, sort_keys=True).encode())
