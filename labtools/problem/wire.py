"""Values as they cross to another process and back: data only, which runs nothing when it is read.

Numbers, text, arrays, what contains these, problems, and the dataclasses of this room. Of anything
else the name of its type arrives.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .problem import Problem, problem_from_dict
from .storage import element_dtype

_ROOM = __name__.rpartition(".")[0] + "."
_HEAD = struct.Struct(">QQ")
_MOST_TEXT = 2**28
"""Bytes of a message without its arrays."""


class Wire:
    """One end of a connection. ``write`` gives plain values for what is only known there, or None,
    and ``read`` makes something of these."""

    def __init__(
        self,
        end: socket.socket,
        write: Callable[[Any], Any] = lambda value: None,
        read: Callable[[Any], Any] = lambda data: data,
    ) -> None:
        self._end, self._write, self._read = end, write, read

    def send(self, message: Any, deadline: float | None = None) -> None:
        """Send a message, at most until the deadline on the monotonic clock."""
        self.send_packed(*self.pack(message), deadline)

    def send_packed(
        self, text: bytes, arrays: Sequence[memoryview], deadline: float | None = None
    ) -> None:
        """`send` of what `pack` gave."""
        head = _HEAD.pack(len(text), sum(map(len, arrays)))
        for piece in (memoryview(head + text), *arrays):
            self._limit(deadline)
            self._end.sendall(piece)

    def receive(self, deadline: float | None = None) -> Any:
        """The next message. An EOFError where the other end has gone, a TimeoutError past the
        deadline, a ValueError where it is no message."""
        size, more = _HEAD.unpack(self._take(_HEAD.size, deadline))
        if size > _MOST_TEXT:
            raise ValueError(f"a message of {size} bytes")
        text, arrays = self._take(size, deadline), self._take(more, deadline)
        try:
            return self._from_plain(json.loads(text), memoryview(arrays))
        except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise ValueError(f"no message: {error}") from error

    def pack(self, message: Any) -> tuple[bytes, list[memoryview]]:
        """A message as text and the bytes of its arrays, which are not copied."""
        arrays: list[memoryview] = []
        return json.dumps(self._to_plain(message, arrays)).encode(), arrays

    def _limit(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self._end.settimeout(left)

    def _take(self, size: int, deadline: float | None) -> bytearray:
        held = bytearray(size)
        free = memoryview(held)
        while free:
            self._limit(deadline)
            count = self._end.recv_into(free)
            if not count:
                raise EOFError
            free = free[count:]
        return held

    def _to_plain(self, value: Any, arrays: list[memoryview]) -> Any:
        def inner(one: Any) -> Any:
            return self._to_plain(one, arrays)

        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.generic):
            return ["scalar", *inner(np.asarray(value))[1:]]
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            place = sum(map(len, arrays))
            arrays.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
            # A structure goes as its bytes: no more of it is passed to a kernel.
            kind = f"V{value.itemsize}" if value.dtype.type is np.void else str(value.dtype)
            return ["array", kind, list(value.shape), place]
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return int.__index__(value)
        if isinstance(value, Mapping):
            return ["dict", [[inner(key), inner(one)] for key, one in value.items()]]
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, [inner(one) for one in value]]
        if isinstance(value, slice):
            return ["slice", [inner(one) for one in (value.start, value.stop, value.step)]]
        if value is Ellipsis:
            return ["ellipsis"]
        if isinstance(value, Problem):
            of, told = type(value), value.to_dict()
            usual = type(problem_from_dict(told)) is of or not of.__module__.startswith(_ROOM)
            return ["problem", inner(told), *(() if usual else (of.__module__, of.__qualname__))]
        if (own := self._write(value)) is not None:
            return ["own", inner(own)]
        for base in type(value).__mro__:
            if base.__module__.startswith(_ROOM) and dataclasses.is_dataclass(base):
                given = (one.name for one in dataclasses.fields(base) if one.init)
                fields = {name: inner(getattr(value, name)) for name in given}
                return ["made", base.__module__, base.__qualname__, fields]
        return ["other", type(value).__name__]

    def _from_plain(self, data: Any, arrays: memoryview) -> Any:
        def inner(one: Any) -> Any:
            return self._from_plain(one, arrays)

        if not isinstance(data, list):
            return data
        tag, *rest = data
        if tag in ("array", "scalar"):
            dtype, (shape, place) = element_dtype(rest[0]), rest[1:]
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            array = np.frombuffer(arrays[place : place + size], dtype).reshape(shape)
            return array if tag == "array" else array[()]
        if tag == "dict":
            return {inner(key): inner(one) for key, one in rest[0]}
        if tag in ("list", "tuple", "slice"):
            parts = [inner(one) for one in rest[0]]
            if tag == "slice":
                return slice(*parts)
            return parts if tag == "list" else tuple(parts)
        if tag == "ellipsis":
            return Ellipsis
        if tag == "problem":
            found = problem_from_dict(inner(rest[0]))
            if len(rest) == 1:
                return found
            kind = getattr(sys.modules[rest[1]], rest[2])  # one laid out in another way
            if not (rest[1].startswith(_ROOM) and issubclass(kind, type(found))):
                raise ValueError(f"{rest[2]} is no kind of {type(found).__name__}")
            return kind(**vars(found))
        if tag == "made":
            kind = getattr(sys.modules[rest[0]], rest[1])
            if not (rest[0].startswith(_ROOM) and isinstance(kind, type)):
                raise ValueError(f"{rest[1]} is no kind of data")
            if not dataclasses.is_dataclass(kind) or issubclass(kind, Problem):
                raise ValueError(f"{rest[1]} is no kind of data")
            return kind(**{name: inner(one) for name, one in rest[2].items()})
        if tag == "own":
            return self._read(inner(rest[0]))
        if tag == "other":
            return type(str(rest[0]), (), {})()  # a value of a type of that name, and no more
        raise ValueError(f"{tag!r} is no kind of value")
