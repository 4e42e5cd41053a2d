"""Execute the pages: each once, several side by side, and keep what came out.

A page runs in a kernel of its own; the solutions of its exercises can follow in the same run. What
is kept lies under a key that covers everything that outputs depend on beside the page's own text,
so it cannot be stale. A failing page is never kept.
"""

from __future__ import annotations

# isort: off
import tools.light_jsonschema  # noqa: F401  (before all that imports nbformat)

# isort: on
import copy
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import read_myst_markdown_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from tools.install import ROOT, fingerprint
from tools.nbpoll import poll_in_slices
from tools.page_kernels import CopiedKernelManager, kernel_source
from tools.toc import solutions_of

# What a page's outputs depend on beside the page. Pages' own text is jupyter-cache's business.
DEPENDS = (
    *("kernels", "labtools", "requirements.lock", "pyproject.toml"),
    *("book/claims.yml", "book/noted_h200.toml", "tools/page_kernels.py", "tools/opened.py"),
    "work/records",  # a reader's own
)
CELL_LIMIT_S = 300
JOBS = max(1, min(2, os.cpu_count() or 1))
"""Pages side by side. Each has a kernel of its own, which takes a few hundred MB."""

# Runs in the kernel before the page: writes down which files of the repository Python opens.
_WATCH = """
from tools.opened import watch_opened
watch_opened({root!r}, {log!r})
del watch_opened
"""


@dataclass(frozen=True)
class PageRun:
    """One execution of one page."""

    page: str  # as in ``_toc.yml``, without ending
    notebook: NotebookNode  # the page with its outputs; without those of its solutions
    wall_s: float = 0.0  # from the start of its kernel to the page's last cell
    # processor time of the kernel and of the programs it waited for, solutions included
    cpu_s: float = 0.0
    error: str = ""  # what the first failing cell said, or ""
    # how many cells of solutions ran after the page; None when they were not asked for
    solutions: int | None = None
    solution_error: str = ""  # what the first failing one said, or ""
    # files and folders of the repository that Python opened, relative to its root
    opened: tuple[str, ...] = field(default=(), repr=False)


def longest_first(pages: Sequence[str], root: Path, times_s: Mapping[str, float]) -> list[str]:
    """The pages, those that took longest before first, and new ones by their length."""

    def expected(page: str) -> tuple[float, int]:
        return times_s.get(page, float("inf")), len((root / f"{page}.md").read_text())

    return sorted(pages, key=expected, reverse=True)


def pages_key(root: Path = ROOT) -> str:
    """A hash of everything that pages' outputs depend on beside the pages themselves."""
    return fingerprint(sys.version, *named_files(root, DEPENDS))[:20]


def named_files(root: Path, names: Sequence[str]) -> list[str | Path]:
    """Each file among some files and folders of the repository, after its name: for a hash."""
    parts: list[str | Path] = []
    for name in names:
        path = root / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                parts += [file.relative_to(root).as_posix(), file]
    return parts


def is_depended_on(name: str) -> bool:
    """Whether a path of the repository is covered by the key."""
    return any(name == known or name.startswith(f"{known}/") for known in DEPENDS)


def is_page(name: str) -> bool:
    """Whether a path of the repository is a page's, which another page may read."""
    return name.endswith(".md") and name.startswith(("book/", "labs/"))


def pages_read(opened: Sequence[str], root: Path) -> str:
    """A hash of the pages' texts among some paths: what a page says of them goes out of date with
    them, and no other page does."""
    texts = [root / name for name in sorted(filter(is_page, opened))]
    return fingerprint(*(text if text.is_file() else str(text) for text in texts))[:20]


def read_page(page: str, root: Path = ROOT) -> NotebookNode:
    """A page as Sphinx reads it: jupyter-cache compares the two cell by cell."""
    path = root / f"{page}.md"
    return read_myst_markdown_notebook(path.read_text(), add_source_map=True, path=path)


def page_environment() -> dict[str, str]:
    """The environment of a page's kernel: this Python, and nobody there to predict."""
    # Pages side by side share the cores; libraries that take them all for each would only wait.
    threads = str(max(1, (os.cpu_count() or 1) // JOBS))
    env = {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, **os.environ}
    env |= {"LABTOOLS_READER": "0", "JUPYTER_PREFER_ENV_PATH": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    # Pages run with whatever python the kernel spec names; that must be this environment's.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    return env


_kernels: set[psutil.Process | None] = set()
"""The kernels that this process has under way."""


class _Run:
    """What nbclient's hooks see of one execution."""

    def __init__(self, client: NotebookClient, page_cells: int) -> None:
        self.client = client
        self.page_cells = page_cells
        self.begun = time.monotonic()
        self.page: NotebookNode | None = None
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.kernel: psutil.Process | None = None
        client.on_notebook_start = self.starts
        client.on_cell_start = self.cell_starts
        client.on_cell_executed = self.cell_ran

    def starts(self, **_: Any) -> None:
        manager: Any = self.client.km
        self.kernel = psutil.Process(manager.provisioner.pid)
        _kernels.add(self.kernel)

    def cell_starts(self, cell: NotebookNode, cell_index: int) -> None:
        if cell_index == self.page_cells:
            self.page_ends()

    def cell_ran(self, **_: Any) -> None:
        assert self.kernel is not None
        self.cpu_s = sum(self.kernel.cpu_times()[:4])

    def page_ends(self) -> None:
        """Take the page as it is now: solutions that follow are not part of it."""
        if self.page is None:
            self.wall_s = time.monotonic() - self.begun
            self.client.set_widgets_metadata()
            self.page = copy.deepcopy(self.client.nb)
            self.page.cells = self.page.cells[: self.page_cells]


def run_page(page: str, root: Path = ROOT, solutions: bool = False) -> PageRun:
    """Execute one page in a kernel of its own. What a failing cell says is in the result."""
    poll_in_slices()
    notebook = read_page(page, root)
    page_cells = len(notebook.cells)
    further = solutions_of((root / f"{page}.md").read_text()) if solutions else []
    notebook.cells += [new_code_cell(block) for block in further]
    with tempfile.TemporaryDirectory() as scratch:
        log, watch = Path(scratch) / "opened", Path(scratch) / "watch.py"
        log.touch()
        watch.write_text(_WATCH.format(root=str(root) + os.sep, log=str(log)))
        environment = page_environment()
        client = NotebookClient(
            notebook,
            kernel_manager_class=CopiedKernelManager,
            timeout=CELL_LIMIT_S,
            startup_timeout=CELL_LIMIT_S,
            record_timing=False,
            resources={"metadata": {"path": str((root / page).parent)}},
            extra_arguments=[f"--IPKernelApp.exec_files={watch}"],
        )
        run, error = _Run(client, page_cells), ""
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as failure:
            error = str(failure)
        finally:
            _kernels.discard(run.kernel)
        ended = run.page is not None
        run.page_ends()
        source = kernel_source(environment)
        before = [path for path in source.opened if path.is_relative_to(root)] if source else []
        opened = {Path(line) for line in log.read_text().splitlines()}.union(before)
    assert run.page is not None
    return PageRun(
        page=page,
        notebook=run.page,
        wall_s=run.wall_s,
        cpu_s=run.cpu_s,
        error="" if ended else error,
        solutions=len(further) if solutions else None,
        solution_error=error if ended else "",
        opened=tuple(sorted(path.relative_to(root).as_posix() for path in opened)),
    )


@dataclass(frozen=True)
class Noted:
    """What is kept beside a page's outputs. The fields are those of `PageRun`."""

    wall_s: float
    cpu_s: float
    solutions: int | None
    solution_error: str
    opened: list[str]
    by: str  # whose run it was, as given to `KeptPages.run_once`
    # what `pages_read` said of the pages that it opened; "" where an older text of this file kept
    # the run, which is then executed anew
    read: str = ""

    def answers(self, solutions: bool) -> bool:
        """Whether the run was of all that is asked for."""
        return self.solutions is not None or not solutions


class PageRunError(Exception):
    """A cell of a page fails."""


class KeptPages:
    """Executed pages on disk, by content; several processes may use one folder at once.

    ``key`` is what `pages_key` said of the state that they belong to; None is any.
    """

    def __init__(self, folder: Path, root: Path = ROOT, key: str | None = None) -> None:
        self.folder = folder
        self.root = root
        self.key = key
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _cache(self) -> Iterator[Any]:
        with FileLock(self.folder / "kept.lock"):
            yield get_cache(str(self.folder))

    def find(self, page: str) -> Noted | None:
        """What was noted of the last good run of the page's cells as they are; None without one,
        and where another page that it read has changed since."""
        found = self._look_up(page)
        return found and found[0]

    def mark(self, page: str) -> str | None:
        """What is another after every execution of the page; None where `find` finds none."""
        found = self._look_up(page)
        return found and found[1]

    def _look_up(self, page: str) -> tuple[Noted, str] | None:
        with self._cache() as cache:
            try:
                record = cache.match_cache_notebook(read_page(page, self.root))
            except KeyError:
                return None
            if "by" not in record.data:  # Sphinx ran it: it was edited while a site was made
                return None
            noted, mark = Noted(**record.data), f"{record.hashkey} {record.created.isoformat()}"
        return (noted, mark) if noted.read == pages_read(noted.opened, self.root) else None

    def outputs(self, page: str) -> NotebookNode:
        """The page with the outputs that are kept; KeyError where none are."""
        with self._cache() as cache:
            return cache.merge_match_into_notebook(read_page(page, self.root))[1]

    def keep(self, run: PageRun, by: str = "") -> Noted:
        """Keep a page that ran without an error."""
        noted = Noted(
            wall_s=run.wall_s,
            cpu_s=run.cpu_s,
            solutions=run.solutions,
            solution_error=run.solution_error,
            opened=list(run.opened),
            by=by,
            read=pages_read(run.opened, self.root),
        )
        source = str(self.root / f"{run.page}.md")
        with self._cache() as cache:
            cache.cache_notebook_bundle(
                CacheBundleIn(run.notebook, source, data=asdict(noted)),
                check_validity=False,
                overwrite=True,
            )
        return noted

    def run_once(self, page: str, by: str = "", solutions: bool = False) -> Noted:
        """Execute the page unless it is kept. Two processes that ask at once execute it once.

        ``by`` names the run whose result it must be, such as one of the tests; "" takes any.
        ``solutions`` asks that they have run too.

        Raises PageRunError: a cell fails, or what the page depends on changed meanwhile.
        """
        with FileLock(self.folder / f"{page.replace('/', '-')}.lock"):
            noted = self.find(page)
            if noted is not None and by in ("", noted.by) and noted.answers(solutions):
                return noted
            run = run_page(page, self.root, solutions)
            if run.error:
                raise PageRunError(f"{page}.md\n{run.error}")
            if self.key is not None and pages_key(self.root) != self.key:
                raise PageRunError(f"{page}.md\nFiles it depends on changed while it was executed.")
            return self.keep(run, by)


def execute_pages(
    pages: Sequence[str], kept: KeptPages, jobs: int = JOBS, by: str = "", solutions: bool = False
) -> dict[str, PageRunError]:
    """Execute pages side by side, unless they are kept; returns those that fail."""
    failed: dict[str, PageRunError] = {}
    # The work is done by the kernels, which are processes; a thread waits for each.
    pool = ThreadPoolExecutor(jobs)
    waiting = {pool.submit(kept.run_once, page, by, solutions): page for page in pages}
    try:
        for future in as_completed(waiting):
            page = waiting[future]
            try:
                noted = future.result()
                print(f"{noted.wall_s:7.1f} s  {page} ({noted.cpu_s:.1f} s of a core)", flush=True)
            except PageRunError as error:
                failed[page] = error
                print(f"   failed  {error}", file=sys.stderr, flush=True)
    finally:
        # After Ctrl-C nothing new begins, and the pages under way end with their kernels.
        pool.shutdown(wait=False, cancel_futures=True)
        for kernel in filter(None, list(_kernels)):
            kernel.kill()
    return failed
