"""What was expensive, kept on disk by content: compiled code, disassembly, forecasts.

A value is kept under a hash of all that it was made from, project code included, so it is never
out of date. joblib keeps the files, in a folder of this user's own; what comes out of them is data
(`_DataReader`). What another program must find as a file stands beside (`in_folder`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import errno
import functools
import hashlib
import io
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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from labtools.problem import LabError
from labtools.problem.errors import Notice

if TYPE_CHECKING:
    from joblib._store_backends import StoreBackendBase

SIZE_VARIABLE = "LABTOOLS_CACHE_MIB"
USUAL_MIB = 1024
SHARES = {"kept": 0.5, "cpu": 0.375, "cubins": 0.125}
"""The part of the limit that each folder may take: values, executables of the CPU runner, and
compiled kernels for measuring children."""
SIZE_CHECKS = 64
"""The size is looked at once for this part of the limit written, on average."""

_FORMAT = f"1, Python {sys.version_info[0]}.{sys.version_info[1]}, numpy {np.__version__}"
_ROOM = Path(__file__).parents[1]
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_PROBE_BYTES = 16 * 2**20

T = TypeVar("T")


class CacheWarning(Notice):
    """The cache on disk is not used, or not as was wished, and why. Everything works."""


@functools.cache
def _warn_once(what: str, then: str = " Everything works, and takes longer.") -> None:
    warnings.warn(f"{what}.{then}", CacheWarning, stacklevel=3)


# ------------------------------------------------------------------------------------- content


def content_key(*parts: Any) -> str:
    """One hash of some values: equal content gives an equal key, in every process.

    Parts are text, bytes, numbers, None, paths (as text), numpy scalars and arrays, and sequences,
    mappings and dataclasses of them.

    Raises TypeError: a part is of another type.
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

    Raises OSError: it cannot be read.
    """
    found = path.stat()
    return _binary_mark(str(path), found.st_size, found.st_mtime_ns)


class Recent(Generic[T]):
    """At most ``most`` values of this process, those asked for last; several threads may ask."""

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
    """``labtools/NAME`` under ``$XDG_CACHE_HOME`` or ``~/.cache``; None where it is not ours."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"))
    folder = base / "labtools" / name
    return folder if own_folder(Path(os.path.realpath(folder))) else None


def own_folder(folder: Path) -> bool:
    """Whether a folder is there, or could be made, that is no link, belongs to this user and that
    nobody else can write in."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        if not (ours and stat.S_ISDIR(found.st_mode)):
            _warn_once(f"{folder} belongs to another user or is a link, so nothing is kept there")
            return False
        if os.name == "posix" and found.st_mode & 0o077:
            folder.chmod(0o700)
        return os.access(folder, os.W_OK)
    except OSError:
        return False


def in_folder(name: str, work: Callable[[Path], T], what: str) -> T:
    """Do work that leaves files which other programs read by their path.

    The folder is `cache_dir`; with the cache switched off, and where that cannot be written, a
    temporary one that goes with this process. ``work`` is done once more from its start where the
    files vanish meanwhile or need the other folder. ``what`` names the files in the message.
    """
    for _ in range(2 if limit_bytes() else 0):
        folder = cache_dir(name)
        if folder is None or folder in _full:
            break
        try:
            return work(folder)
        except FileNotFoundError:  # somebody deletes the cache
            continue
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _full.add(folder)
            _warn_once(f"{folder} cannot be written ({error.strerror}), so nothing is kept there")
            break
    try:
        return work(_passing_folder(name))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        why = f"{tempfile.gettempdir()} cannot be written: {error.strerror}"
        still = "everything that writes nothing; make room, or let TMPDIR name another folder"
        raise LabError(f"There is no room for {what}.", why, still) from error


def check_room(folder: Path) -> None:
    """Write and remove some MiB, before a tool is started that would fail for want of them.

    Raises OSError: there is no room, or the folder is gone.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_PROBE_BYTES))
        file.flush()


_full: set[Path] = set()  # folders that had no room in this process, which asks them no more
_passing: dict[tuple[int, str], tempfile.TemporaryDirectory[str]] = {}


def _passing_folder(name: str) -> Path:
    """A temporary folder of this process, which removes it at its end."""
    key = (os.getpid(), name)
    if key not in _passing or not Path(_passing[key].name).is_dir():
        _passing[key] = tempfile.TemporaryDirectory(prefix=f"labtools-{name}-")
    return Path(_passing[key].name)


def prune_kept(name: str, written: int, spare: Collection[Path] = ()) -> None:
    """Bring a folder of `in_folder` down to its part of the limit, now and then, but for ``spare``.

    ``written`` are bytes written there since the last call.
    """
    folder = cache_dir(name) if limit_bytes() else None
    if folder is not None and _size_is_due(written, share_bytes(name)):
        prune_folder(folder, share_bytes(name), spare)


def _size_is_due(written: int, most: int) -> bool:
    """Whether to look at a folder's size now; drawn, so that processes need not count together."""
    return random.random() * most < written * SIZE_CHECKS


def prune_folder(folder: Path, most_bytes: int, spare: Collection[Path] = ()) -> None:
    """Remove whole entries of a folder that were not used for the longest time.

    The newest stays, and so do those to ``spare``, however large they are.
    """
    entries: list[tuple[float, Path]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            entries.append((path.stat().st_mtime, path))
    total = 0
    for number, (_, path) in enumerate(sorted(entries, reverse=True)):
        total += size_of(path)
        if number and path not in spare and total > most_bytes:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what vanishes meanwhile counts nothing."""
    total = 0
    with contextlib.suppress(OSError):
        for file in path.rglob("*") if path.is_dir() else [path]:
            with contextlib.suppress(OSError):
                total += file.stat().st_size if file.is_file() else 0
    return total


# ------------------------------------------------------------------------------------ the cache


@dataclass(frozen=True)
class CacheState:
    """Where the cache is and how large."""

    folder: Path | None  # of what is kept by content; None where nothing is
    bytes: int
    items: int
    limit_bytes: int  # what all folders together may grow to; 0 where nothing is kept
    why: str = ""  # why nothing is kept


def limit_bytes() -> int:
    """How much may be kept on disk, in all folders together; 0 switches the cache off."""
    given = os.environ.get(SIZE_VARIABLE, "").strip()
    mib = float(USUAL_MIB)
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", given):
        mib = float(given)
    elif given:
        what = f"{SIZE_VARIABLE} is {given!r}, which is no number of MiB from 0 on"
        _warn_once(f"{what}; {USUAL_MIB} it is", then="")
    return int(min(mib * 2**20, sys.maxsize))


def share_bytes(name: str) -> int:
    """How much of `limit_bytes` the folder of this name may take."""
    return int(limit_bytes() * SHARES[name])


_lock = threading.Lock()


class _DataReader(pickle.Unpickler):
    """Makes arrays, and dataclasses, enumerations and errors of labtools; calls nothing else."""

    _KNOWN = ("labtools.problem.errors._blank", "numpy.dtype", "numpy.ndarray")
    _OF_NUMPY = ("_reconstruct", "scalar", "_frombuffer")
    _BUILTIN = ("builtins.set", "builtins.frozenset", "builtins.complex", "collections.OrderedDict")

    def find_class(self, module: str, name: str) -> Any:
        """A type or a function of these. Raises UnpicklingError: it is none of them."""
        place, plain = f"{module}.{name}", "." not in name
        if plain and place in (*self._KNOWN, *self._BUILTIN):
            return super().find_class(module, name)
        if plain and module.startswith("numpy.") and name in self._OF_NUMPY:
            return super().find_class(module, name)
        if module.split(".")[0] == "labtools" and isinstance(
            found := super().find_class(module, name), type
        ):
            data = dataclasses.is_dataclass(found) or issubclass(found, (enum.Enum, LabError))
            if data and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{place} is no data")


def _read(data: bytes) -> Any:
    return _DataReader(io.BytesIO(data)).load()


def _files() -> StoreBackendBase | None:
    """joblib's files in this process's folder; None where nothing is kept."""
    if limit_bytes() == 0:
        return None
    folder = cache_dir("kept")
    if folder is None:
        _warn_once("There is no folder for a cache that this user alone can write")
    return folder and _files_in(folder)


@functools.cache
def _files_in(folder: Path) -> StoreBackendBase | None:
    from joblib import Memory

    try:
        return Memory(folder, verbose=0).store_backend
    except OSError as error:
        _warn_once(f"{folder} cannot be used ({error.strerror or error})")
        return None


def kept(kind: str, parts: Iterable[Any], make: Callable[[], T]) -> T:
    """A value that is made once for its content, on this machine.

    Two calls get equal objects of their own. What ``make`` raises is raised, and not kept.
    ``parts`` are all that the value follows from; where project code makes it, its `code_digest`
    too.
    """
    files = _files()
    if files is None:
        return make()
    place = [kind, content_key(*parts)[:32]]
    try:
        file = Path(files.location, *place, "output.pkl")  # joblib's own reading runs what it holds
        return _read(zlib.decompress(_read(file.read_bytes())))  # type: ignore[no-any-return]
    except FileNotFoundError:
        pass
    except Exception:  # damaged: as if it were not there
        with contextlib.suppress(OSError):
            files.clear_item(place)
    value = make()
    data = zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it cannot write is said below, in our words
        files.dump_item(place, data, verbose=0)
        written = files.contains_item(place)
    with contextlib.suppress(OSError):
        if not written:
            _warn_once(f"{files.location} cannot be written (is the disk full?)")
            files.clear_item(place)
        elif _size_is_due(len(data), most := share_bytes("kept")):
            files.enforce_store_limits(most)
    return value


def is_kept(kind: str, parts: Iterable[Any]) -> bool:
    """Whether `kept` would find such a value; it may still be damaged."""
    files = _files()
    return files is not None and bool(files.contains_item([kind, content_key(*parts)[:32]]))


def kept_values(kind: str) -> list[Any]:
    """All of one kind that `kept` has kept and can be read."""
    files, found = _files(), []
    for file in sorted(Path(files.location, kind).glob("*/output.pkl")) if files else ():
        with contextlib.suppress(Exception):  # damaged: as if it were not there
            found.append(_read(zlib.decompress(_read(file.read_bytes()))))
    return found


def cache_state() -> CacheState:
    """Where the cache is and how large; makes nothing but the folder."""
    most = limit_bytes()
    if most == 0:
        return CacheState(None, 0, 0, 0, f"{SIZE_VARIABLE}=0 switches it off")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        files = _files()
    if files is None:
        return CacheState(None, 0, 0, most, "there is no folder that this user alone can write")
    items = files.get_items()
    return CacheState(cache_dir("kept"), sum(item.size for item in items), len(items), most)
