"""What was expensive, kept on disk by content: compiled code, disassembly, forecasts.

A value is kept under a hash of all that it was made from, so nothing here is ever out of date: what
changes gives another hash, and what was kept under the old one is evicted some day. No path and no
time is a key. Where a value is more than a tool's output, the code that makes it is part of what it
is made from (`code_digest`).

The files are joblib's: each is written beside its place and renamed, so that two processes at once
never see half of one, and the ones that were not read for the longest time go when there are too
many. What a file holds carries its own hash; a damaged one counts as not there.

Losing the folder loses time and nothing else. A folder that belongs to somebody else is not used,
because what lies in it is loaded as Python objects. Environment variables: ``XDG_CACHE_HOME`` says
where (``~/.cache`` without it), ``LABTOOLS_CACHE_MIB`` how much at most (1024 without it; 0 keeps
nothing on disk). Each folder may take its part of that (`SHARES`).

What another program must find as a file, such as an executable, stands beside (`in_folder`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import hashlib
import os
import pickle
import random
import re
import shutil
import stat
import sys
import tempfile
import threading
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from labtools.problem import LabError
from labtools.problem.errors import Notice

SIZE_VARIABLE = "LABTOOLS_CACHE_MIB"
USUAL_MIB = 1024
SHARES = {"kept": 0.5, "cpu": 0.375, "cubins": 0.125}
"""The part of the limit that each folder may take: values, executables of the CPU runner, and
compiled kernels for measuring children."""
SIZE_CHECKS = 64
"""The size is looked at once for this part of the limit written, on average."""

_FORMAT = f"1, Python {sys.version_info[0]}.{sys.version_info[1]}, numpy {np.__version__}"
_CHECK_BYTES = 16
_ROOM = Path(__file__).parents[1]
_NO_ROOM = frozenset(
    (*(errno.ENOSPC, errno.EDQUOT, errno.EFBIG), *(errno.EROFS, errno.EACCES, errno.EPERM))
)
"""A full disk, and a folder in which nothing may be written."""
_PROBE_BYTES = 16 * 2**20

T = TypeVar("T")


class CacheWarning(Notice):
    """The cache on disk is not used, or not as was wished, and why. Everything works."""


# ------------------------------------------------------------------------------------- content


def content_key(*parts: Any) -> str:
    """One hash of some values: equal content gives an equal key, in every process.

    Args:
        parts: text, bytes, numbers, None, paths (as text), numpy scalars and arrays, and sequences,
            mappings and dataclasses of them.

    Raises:
        TypeError: a part is of another type.
    """
    digest = hashlib.sha256(_FORMAT.encode())
    _feed(digest.update, parts)
    return digest.hexdigest()


def _feed(write: Callable[[bytes], None], value: Any) -> None:
    if value is None or isinstance(value, (bool, int, float)):
        write(f"{type(value).__name__} {value!r};".encode())
    elif isinstance(value, (str, bytes, Path)):
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        write(f"{type(value).__name__} {len(data)}:".encode())
        write(data)
    elif isinstance(value, (np.ndarray, np.generic)):
        write(f"{value.dtype.str} {value.shape}:".encode())
        write(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        write(f"mapping {len(value)}:".encode())
        for name in sorted(value):
            _feed(write, (name, value[name]))
    elif isinstance(value, (Sequence, set, frozenset)):
        items = value if isinstance(value, Sequence) else sorted(value)
        write(f"sequence {len(items)}:".encode())
        for item in items:
            _feed(write, item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        write(f"{type(value).__module__}.{type(value).__qualname__}(".encode())
        for field in dataclasses.fields(value):
            _feed(write, (field.name, getattr(value, field.name)))
    else:
        raise TypeError(f"{type(value).__name__} has no content that could be a key")


def code_digest(*rooms: str) -> str:
    """SHA-256 of the code and tables of some rooms of labtools, as they stand on disk.

    Ask when a module is imported: what it says later may be the code of another time.
    """
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted((_ROOM / room).rglob("*")):
            if path.suffix in (".py", ".toml"):
                data = path.read_bytes().replace(b"\r\n", b"\n")
                digest.update(f"{path.relative_to(_ROOM).as_posix()} {len(data)}:".encode())
                digest.update(data)
    return digest.hexdigest()


@functools.lru_cache(maxsize=64)
def _binary_mark(path: str, size: int, _changed_ns: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as file:
        for part in range(64):
            file.seek(size * part // 64)
            digest.update(file.read(4096))
    return digest.hexdigest()


def binary_mark(path: Path) -> str:
    """A hash that two builds of one library or tool do not share: its size and 64 samples of it.

    Raises:
        OSError: it cannot be read.
    """
    found = path.stat()
    return _binary_mark(str(path), found.st_size, found.st_mtime_ns)


class Recent(Generic[T]):
    """The values of this process that were asked for last, by key; several threads may ask.

    Args:
        most: how many; then the one that was not asked for the longest goes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """The value of a key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: T) -> None:
        """Keep a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()


# -------------------------------------------------------------------------------------- folders


def cache_dir(name: str) -> Path | None:
    """A folder for one kind of what can be made again, or None where there is none to be had.

    It is ``labtools/NAME`` under ``$XDG_CACHE_HOME`` or ``~/.cache``, else a folder of the
    system's temporary one. It belongs to this user, and nobody else can write in it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if own_folder(kept_at := Path(base) / "labtools" / name, linked=True):
        return kept_at
    passing = temporary_folder(name)
    return passing if own_folder(passing) else None


def temporary_folder(name: str) -> Path:
    """Where this user's folder of that name is in the system's temporary one, if it is ours."""
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    return Path(tempfile.gettempdir()) / f"labtools-{name}{user}"


def own_folder(folder: Path, *, linked: bool = False) -> bool:
    """Whether a folder is there, or could be made, that belongs to this user and that nobody else
    can write in.

    Args:
        folder: is made where it is missing.
        linked: it may be a link to such a folder. Where everybody can write, a link may be
            somebody's way to have our files written or removed elsewhere.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not hasattr(os, "getuid"):  # Windows: the profile's folder is the user's
            return os.access(folder, os.W_OK)
        found = folder.stat() if linked else folder.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            _say_once(f"{folder} belongs to another user or is a link, so nothing is kept there")
            return False
        if found.st_mode & 0o077:
            folder.chmod(0o700)
        return os.access(folder, os.W_OK)
    except OSError:
        return False


def in_folder(name: str, work: Callable[[Path], T], what: str) -> T:
    """Do work that leaves files which other programs read by their path.

    The folder is `cache_dir`. With the cache switched off, and where that folder cannot be
    written, it is a temporary one that goes when this process ends.

    Args:
        name: as for `cache_dir`.
        work: writes into the folder and says what is there. It is done once more from its start
            when the files vanish meanwhile, and when they need the other folder.
        what: the files in words, for the message.

    Raises:
        LabError: neither folder can be written, and why.
    """
    for _ in range(2 if limit_bytes() else 0):
        folder = cache_dir(name)
        if folder is None:
            break
        try:
            return work(folder)
        except FileNotFoundError:  # somebody deletes the cache
            continue
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _say_once(f"{folder} cannot be written ({error.strerror}), so nothing is kept there")
            break
    try:
        return work(_passing_folder(name))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise LabError(
            f"There is no room for {what}.",
            f"{tempfile.gettempdir()} cannot be written: {error.strerror}",
            "everything that writes nothing; make room, or let TMPDIR name another folder",
        ) from error


def check_room(folder: Path) -> None:
    """Write and remove some MiB: a tool that failed may have failed for want of them.

    Raises:
        OSError: there is no room, or the folder is gone.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_PROBE_BYTES))
        file.flush()


_passing: dict[tuple[int, str], tempfile.TemporaryDirectory[str]] = {}
"""Temporary folders by process and name."""


def _passing_folder(name: str) -> Path:
    """A folder of this process, which removes it at its end."""
    key = (os.getpid(), name)
    if key not in _passing or not Path(_passing[key].name).is_dir():
        _passing[key] = tempfile.TemporaryDirectory(prefix=f"labtools-{name}-")
    return Path(_passing[key].name)


def prune_kept(name: str, written: int, spare: Collection[Path] = ()) -> None:
    """Bring a folder of `in_folder` down to its part of the limit, now and then.

    Args:
        name: as for `cache_dir`.
        written: how many bytes, at most, were written there since the last call.
        spare: what is still needed, whenever it was used.
    """
    folder = cache_dir(name) if limit_bytes() else None
    if folder is not None and _size_is_due(written, share_bytes(name)):
        prune_folder(folder, share_bytes(name), spare)


def _size_is_due(written: int, most: int) -> bool:
    """Whether to look at the size of a folder after this many bytes were written to it.

    On average once for each 64th of what it may hold, by whichever process.
    """
    return _chance.random() * most < written * SIZE_CHECKS


def prune_folder(folder: Path, most_bytes: int, spare: Collection[Path] = ()) -> None:
    """Remove what was not used for the longest time from a folder of files and folders.

    Args:
        folder: its entries are removed whole; the one that was used last stays.
        most_bytes: how large all that stays may be.
        spare: entries that stay whenever they were used.
    """
    entries: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                entries.append((path.stat().st_mtime, path))
    entries.sort(reverse=True)
    total = 0
    for number, (_, path) in enumerate(entries):
        total += size_of(path)
        if number and path not in spare and total > most_bytes:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what vanishes meanwhile counts nothing."""
    total = 0
    with contextlib.suppress(OSError):
        for one in path.rglob("*") if path.is_dir() else [path]:
            with contextlib.suppress(OSError):
                total += one.stat().st_size if one.is_file() else 0
    return total


_said: set[str] = set()


def _say_once(what: str, then: str = " Everything works, and takes longer.") -> None:
    if what not in _said:
        _said.add(what)
        warnings.warn(f"{what}.{then}", CacheWarning, stacklevel=2)


# ------------------------------------------------------------------------------------ the cache


@dataclass(frozen=True)
class CacheState:
    """Where the cache is and how large."""

    folder: Path | None  # of what is kept by content; None where nothing is
    # bytes, items: what is in it
    bytes: int
    items: int
    limit_bytes: int  # what all folders together may grow to; 0 where nothing is kept
    why: str = ""  # why nothing is kept, or an empty string


def limit_bytes() -> int:
    """How much may be kept on disk, in all folders together; 0 switches the cache off."""
    given = os.environ.get(SIZE_VARIABLE, "").strip()
    mib = float(USUAL_MIB)
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", given):
        mib = float(given)
    elif given:
        what = f"{SIZE_VARIABLE} is {given!r}, which is no number of MiB from 0 on"
        _say_once(f"{what}; {USUAL_MIB} it is", then="")
    return int(min(mib * 2**20, sys.maxsize))


def share_bytes(name: str) -> int:
    """How much of `limit_bytes` the folder of this name may take."""
    return int(limit_bytes() * SHARES[name])


class _Store:
    """One folder of values, by kind and key."""

    def __init__(self, folder: Path) -> None:
        from joblib import Memory

        self.folder = folder
        self._files = Memory(folder, verbose=0).store_backend
        self.full = False

    def load(self, kind: str, key: str) -> tuple[bool, Any]:
        """(it was there, the value)."""
        place = _place(kind, key)
        try:
            stored = self._files.load_item(place, verbose=0)
        except KeyError:
            return False, None
        except Exception:  # cut off, of another format, or unreadable: as if it were not there
            self._remove(place)
            return False, None
        try:
            check, data = stored[:_CHECK_BYTES], stored[_CHECK_BYTES:]
            if hashlib.sha256(data).digest()[:_CHECK_BYTES] != check:
                raise ValueError("the contents are not those that were written")
            return True, pickle.loads(zlib.decompress(data))
        except Exception:  # damaged
            self._remove(place)
            return False, None

    def has(self, kind: str, key: str) -> bool:
        """Whether a value is there; it may still be damaged."""
        return bool(self._files.contains_item(_place(kind, key)))

    def save(self, kind: str, key: str, value: Any) -> None:
        """Keep a value. After the first failure nothing more is written in this process."""
        if self.full:
            return
        place = _place(kind, key)
        data = zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)
        data = hashlib.sha256(data).digest()[:_CHECK_BYTES] + data
        with _lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it cannot write is said below, in our words
            self._files.dump_item(place, data, verbose=0)
            written = self._files.contains_item(place)
        if not written:
            self._remove(place)
            self.full = True
            _say_once(f"{self.folder} cannot be written (is the disk full?), so nothing is kept")
            return
        most = share_bytes("kept")
        if _size_is_due(len(data), most):
            with contextlib.suppress(OSError):
                self._files.enforce_store_limits(most)

    def _remove(self, place: list[str]) -> None:
        with contextlib.suppress(OSError):
            self._files.clear_item(place)

    def size(self) -> tuple[int, int]:
        """(bytes, items)."""
        items = self._files.get_items()
        return sum(one.size for one in items), len(items)


_lock = threading.Lock()
_chance = random.Random()
_stores: dict[Path, _Store | None] = {}


def _place(kind: str, key: str) -> list[str]:
    return [kind, key[:32]]


def _store() -> _Store | None:
    if limit_bytes() == 0:
        return None
    folder = cache_dir("kept")
    if folder is None:
        _say_once("There is no folder for a cache that this user alone can write")
        return None
    with _lock:
        if folder not in _stores:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    _stores[folder] = _Store(folder)
            except OSError as error:
                _say_once(f"{folder} cannot be used ({error.strerror or error})")
                _stores[folder] = None
        return _stores[folder]


def kept(kind: str, parts: Iterable[Any], make: Callable[[], T]) -> T:
    """A value that is made once for its content, on this machine.

    Args:
        kind: what it is, one word: ``cubin``, ``forecast``.
        parts: all that the value follows from, as for `content_key`; where project code makes it,
            the `code_digest` of that code too.
        make: makes it where it was not kept. What it raises is raised, and not kept.

    Returns:
        The value, or an equal one: two calls get objects of their own.
    """
    store = _store()
    if store is None:
        return make()
    key = content_key(*parts)
    there, value = store.load(kind, key)
    if there:
        return value  # type: ignore[no-any-return]
    value = make()
    store.save(kind, key, value)
    return value


def is_kept(kind: str, parts: Iterable[Any]) -> bool:
    """Whether `kept` would find such a value."""
    store = _store()
    return store is not None and store.has(kind, content_key(*parts))


def cache_state() -> CacheState:
    """Where the cache is and how large; makes nothing but the folder."""
    most = limit_bytes()
    if most == 0:
        return CacheState(None, 0, 0, 0, f"{SIZE_VARIABLE}=0 switches it off")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        store = _store()
    if store is None:
        return CacheState(None, 0, 0, most, "there is no folder that this user alone can write")
    size, items = store.size()
    return CacheState(store.folder, size, items, most)
