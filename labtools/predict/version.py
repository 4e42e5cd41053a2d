"""Which model made a forecast: a name that is a hash of what the model says.

The hash is over the model's tables and over its forecasts of forty frozen listings. A comment, a
moved file or a renamed variable gives the same name; a rule or a number that moves any of the
forty forecasts gives another one, in whatever file it stands.

Forty forecasts take seconds, so ``model_name.toml`` keeps the name beside a digest of the code and
the tables that it was computed with. Where the digest fits, the name is read there. Where somebody
edited the model, it is computed once and kept on this machine; ``make name`` writes the file anew.
"""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from labtools.problem import repository_root
from labtools.toolchain.cache import kept as cached

from .forecasting import forecast
from .frozen import FROZEN, FrozenListing, read_frozen
from .latencies import TABLES
from .machine import FITTED, READ_EFFICIENCY
from .sheets import SHEETS

MODEL = "chain model 1"
DIGITS = 9
"""Of a forecast, in the hash: more than any machine's last digits, less than any rule's change."""
KEPT_NAME = Path(__file__).with_name("model_name.toml")
ROOT_MODULE = __name__
_WORDS = ("source", "sources", "documents", "title", "notes", "date", "driver", "nvrtc", "aliases")
"""What a table says besides its numbers. A corrected title makes no new model."""


@lru_cache(maxsize=1)
def model_name() -> str:
    """For example ``chain model 1, 3f9a01c2``; another model has another name."""
    root = repository_root()
    kept = _read_kept(KEPT_NAME)
    files = [root / name for name in kept.get("files", ())]
    if files and digest_of([*files, *_tables(), FROZEN]) == kept.get("digest"):
        return str(kept["name"])
    digest = digest_of([*model_files(root), *_tables(), FROZEN])
    return cached("model-name", [digest], compute_name)


def compute_name(listings: Sequence[FrozenListing] | None = None) -> str:
    """Forecast the frozen listings and hash what came out; takes seconds."""
    said = {
        "tables": canonical_tables(_tables()),
        "forecasts": [say_forecast(one) for one in listings or read_frozen()],
    }
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return f"{MODEL}, {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def say_forecast(one: FrozenListing) -> str:
    """The forecast of a frozen listing in the words that are hashed."""
    made = forecast(one.rung, one.workload, one.sheet, code=one.code)
    return f"{made.time_us:.{DIGITS}g} {made.bound}"


def canonical_tables(paths: Iterable[Path]) -> dict[str, Any]:
    """The numbers of some tables by the tables' names, and the numbers that were fitted."""
    tables = {path.stem: _numbers(tomllib.loads(path.read_text("utf-8"))) for path in paths}
    return {**tables, "fitted": {**FITTED, "read_efficiency": READ_EFFICIENCY}}


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _numbers(one) for name, one in value.items() if name not in _WORDS}
        return {name: one for name, one in kept.items() if one != {}}
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _tables() -> list[Path]:
    return [*sorted(TABLES.glob("*.toml")), SHEETS]


# --------------------------------------------------------------------------- the kept name


def write_name(path: Path = KEPT_NAME) -> str:
    """Compute the name and keep it with the digest of the code that it was computed with."""
    root = repository_root()
    files = model_files(root)
    name, digest = compute_name(), digest_of([*files, *_tables(), FROZEN])
    listed = "".join(f'    "{one.relative_to(root).as_posix()}",\n' for one in files)
    path.write_text(
        "# Written by make name; do not edit.\n"
        f'name = "{name}"\ndigest = "{digest}"\nfiles = [\n{listed}]\n',
        "utf-8",
    )
    return name


def _read_kept(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # it only saves time


def digest_of(paths: Iterable[Path]) -> str:
    """One digest of some files' contents, whatever they are called and wherever they are."""
    digests = []
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError:
            return ""
        if path.suffix != ".gz":
            data = data.replace(b"\r\n", b"\n")
        digests.append(hashlib.sha256(data).hexdigest())
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def model_files(root: Path) -> list[Path]:
    """The files of labtools that a forecast can depend on: what `forecasting` imports, and so on.

    A name that a package hands on is followed to the module that defines it, so that the other
    modules of the package are left out.
    """
    found: set[Path] = set()
    waiting = [ROOT_MODULE]
    while waiting:
        path = _file_of(root, waiting.pop())
        if path is None or path in found:
            continue
        found.add(path)
        waiting += _imported(root, path)
    return sorted(found)


def _imported(root: Path, path: Path) -> Iterator[str]:
    """The modules of labtools that a file imports, at its top or in a function."""
    package = ".".join(path.relative_to(root).parent.parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("labtools"))
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base.split(".")[0] == "labtools":
                for one in node.names:
                    yield _defining(root, base, one.name)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *filter(None, [node.module])])


def _defining(root: Path, base: str, name: str) -> str:
    """The module in which a name that is imported from ``base`` is defined."""
    if _file_of(root, f"{base}.{name}"):
        return f"{base}.{name}"
    path = _file_of(root, base)
    if path is None or path.name != "__init__.py":
        return base
    package = ".".join(path.relative_to(root).parent.parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                if (one.asname or one.name) == name:
                    return _defining(root, _absolute(node, package), one.name)
    return base


def _file_of(root: Path, module: str) -> Path | None:
    path = root.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None
