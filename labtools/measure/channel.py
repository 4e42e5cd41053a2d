"""The one channel between this process and a child: calls with typed requests and replies.

Both cross as JSON that pydantic writes and reads by the annotations of the called function, so
nothing that a child sends is executed. What it reports on the way crosses at once and outlives it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import socket
import time
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing.connection import Connection
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter

from labtools.problem import LabError

Item = TypeVar("Item")

CONNECT_LIMIT_S = 30.0


@dataclass(frozen=True)
class Step:
    """What a child is doing."""

    name: str  # in words
    limit_s: float  # it ends itself when the step takes longer
    label: str = ""  # of the candidate that the step is about, if it is about one
    running: bool = True  # False once the step is over
    at_s: float = 0.0  # when it began or ended, on the clock that all processes of a machine share


@dataclass(frozen=True)
class Told:
    """A sentence of a `Progress`."""

    text: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Refusal:
    """The three parts of a `LabError`."""

    what: str
    why: str
    still_works: str


class Signature(NamedTuple):
    """The types of one call."""

    request: Any
    reply: Any
    item: Any


class Channel:
    """Messages over a connected socket: each has a kind and a value of the type that goes with it.

    The channel owns its end of the socket from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        self._connection = Connection(end.detach())

    def fileno(self) -> int:
        """For whoever waits on several things at once."""
        return self._connection.fileno()

    def send(self, kind: str, value: Any, of: Any) -> None:
        plain = adapter_of(of).dump_python(value, mode="json")
        self._connection.send_bytes(json.dumps([kind, plain]).encode())

    def receive(self) -> tuple[str, Any]:
        """The next message: its kind and its value, which `read` turns into its type.

        Raises EOFError: the other side has gone.
        """
        try:
            kind, plain = json.loads(self._connection.recv_bytes())
        except OSError as error:  # it was cut off in the middle of a message
            raise EOFError from error
        return kind, plain

    def close(self) -> None:
        """Tell the other side that there is no more to come."""
        self._connection.close()


@cache
def adapter_of(of: Any) -> TypeAdapter[Any]:
    """What writes and reads values of a type; made once."""
    return TypeAdapter(of)


def read(plain: Any, of: Any) -> Any:
    """A value of the type ``of`` from what came over a channel."""
    return adapter_of(of).validate_python(plain)


class Reporter(Generic[Item]):
    """The child's side of a call: tells the parent what is going on."""

    def __init__(self, channel: Channel, item: Any) -> None:
        self._channel = channel
        self._item = item

    def progress(self, text: str, done: int = 0, total: int = 0, /) -> None:
        """A `Progress` whose line the parent shows."""
        self._channel.send("progress", Told(text, done, total), Told)

    def item(self, value: Item) -> None:
        """Hand over a part of the result, which is safe from now on."""
        self._channel.send("item", value, self._item)

    @contextlib.contextmanager
    def step(self, name: str, limit_s: float, label: str = "") -> Iterator[None]:
        """Run a step; the process ends if it is not over in ``limit_s`` seconds.

        A kernel that never ends blocks the thread that waits for it. ``faulthandler`` watches from
        a thread in C that needs nothing from Python, so it ends the process in that state too.
        """
        self._say(name, limit_s, label, True)
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._say(name, limit_s, label, False)

    def _say(self, name: str, limit_s: float, label: str, running: bool) -> None:
        step = Step(name, limit_s, label, running, time.monotonic())
        self._channel.send("step", step, Step)


def name_of(function: Callable[..., Any]) -> str:
    """``package.module:function``, by which a child finds it."""
    return f"{function.__module__}:{function.__qualname__}"


@lru_cache(maxsize=64)
def signature_of(function: Callable[..., Any]) -> Signature:
    """The types of ``function(report: Reporter[Item], request: Request) -> Reply``."""
    hints = typing.get_type_hints(function, include_extras=True)
    reply = hints.pop("return")
    report, request = hints.values()
    (item,) = typing.get_args(report) or (NoneType,)
    return Signature(request, reply, item)


def serve(address: str) -> bool:
    """The child's side: answer calls until the parent hangs up; was the last one answered?

    It may be refused with a `LabError`. Any other error is raised: the parent reads its traceback.
    """
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.settimeout(CONNECT_LIMIT_S)
    end.connect(address)
    end.settimeout(None)
    channel = Channel(end)
    answered = True
    with contextlib.suppress(EOFError):
        while True:
            name, plain = channel.receive()
            module, _, called = name.partition(":")
            function = getattr(importlib.import_module(module), called)
            types = signature_of(function)
            report: Reporter[Any] = Reporter(channel, types.item)
            try:
                reply = function(report, read(plain, types.request))
            except LabError as error:
                answered = False
                refusal = Refusal(error.what, error.why, error.still_works)
                channel.send("refusal", refusal, Refusal)
            else:
                answered = True
                channel.send("reply", reply, types.reply)
    return answered
