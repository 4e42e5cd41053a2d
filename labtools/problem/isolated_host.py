"""The other side of `isolated`: loads one file and answers questions about it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import loading
from .address_space import limit_memory
from .errors import KernelError, LabError
from .isolated import FACTS, error_parts
from .problem import Operation, Problem, operation_of, operations, problem_from_dict
from .rung import ASKED_WITH, Rung, ask_rung, function_text, say_failure
from .wire import Wire

_ATTRIBUTES = """
    shape_fields may_be_zero most_rows letters options counted example distributions axes
""".split()
_FIELDS = [one.name for one in dataclasses.fields(Rung)]


def main() -> None:
    """Become another file's process whenever a connection arrives; ends with the asker."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    door = socket.socket(fileno=int(sys.argv[2]))
    while True:
        said, ends, _, _ = socket.recv_fds(door, 1, 1)
        if not said:
            return
        if number := os.fork():
            os.close(ends[0])
            door.sendall(number.to_bytes(4, "big"))
            continue
        door.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(EOFError, OSError):
            _Loaded(socket.socket(fileno=ends[0])).serve()
        os._exit(0)


class _Loaded:
    """A file that was loaded, and what it is asked."""

    def __init__(self, end: socket.socket) -> None:
        self._wire = Wire(end, read=self._held_inputs)
        path, limit_bytes, folder, paths, environment = self._wire.receive()
        self._path = Path(path)
        with contextlib.suppress(OSError):
            os.chdir(folder)
        sys.path[:] = paths
        os.environ.clear()
        os.environ.update(environment)
        threading.Thread(target=_end_with, args=(end,), daemon=True).start()
        os.dup2(2, 1)  # what it prints is no answer of a command
        if limit_bytes is not None:
            limit_memory(limit_bytes)
        self._known = operations()
        self._loaded = self._try(lambda: loading.load_in_place(self._path))
        self._inputs: dict[int, Any] = {}
        self._numbers = itertools.count()

    def serve(self) -> None:
        """Answer questions, one after the other."""
        while True:
            self._reply(self._receive())

    def _reply(self, asked: Any) -> None:
        answer = self._try(partial(self._packed_answer, asked))
        if isinstance(answer, LabError):
            answer = self._wire.pack(("error", error_parts(answer)))
        self._wire.send_packed(*answer)

    def _packed_answer(self, asked: Any) -> tuple[bytes, list[memoryview]]:
        return self._wire.pack(("answer", self._answer(asked)))

    def _try(self, work: Callable[[], Any]) -> Any:
        """What some work gives, or how it failed: a file may raise whatever it likes."""
        try:
            return work()
        except LabError as error:
            return error
        except BaseException as error:
            works = "correct the rung's .py file; every other rung is unaffected"
            return KernelError(
                f"The Python of {self._path.name} failed.", say_failure(error), works
            )

    def _receive(self) -> Any:
        """A question and its arguments, or ``none`` and why it is none: reading a problem asks the
        file whether it is one."""
        try:
            return self._wire.receive()
        except LabError as error:
            return "none", error
        except (EOFError, OSError):
            os._exit(0)

    def _answer(self, asked: Any) -> Any:
        rung, (what, args) = self._loaded, asked
        for failed in (rung, args):
            if isinstance(failed, LabError):
                raise failed
        if what == "describe":
            return self._describe(rung)
        if what in ASKED_WITH:
            return ask_rung(rung.id, getattr(rung, what), *args)
        name, dropped, *more = args
        for number in dropped:
            self._inputs.pop(number, None)
        if what.startswith("problem."):
            problem, *given = more
            return getattr(problem, what.partition(".")[2])(*given)
        answer: Callable[..., Any] = getattr(self, f"_{what}")
        return answer(operation_of(str(name)), *more)

    def _describe(self, rung: Rung) -> tuple[dict[str, Any], dict[str, str], list[str]]:
        """Fields that are data, the text of each function, and the operations that it brings."""
        held = {name: getattr(rung, name) for name in _FIELDS if name not in ASKED_WITH}
        given = [name for name in ASKED_WITH if getattr(rung, name) is not None]
        brings = [name for name, one in operations().items() if self._known.get(name) is not one]
        fields = {**held, "source": str(rung.source.resolve())}
        return fields, {name: function_text(getattr(rung, name)) for name in given}, brings

    # What an operation is asked.

    def _describe_operation(self, operation: Operation[Any, Any]) -> dict[str, Any]:
        kind = operation.problem
        fields = [
            (one.name, one.default is not dataclasses.MISSING, _default_of(one))
            for one in dataclasses.fields(kind)
        ]
        problems = {
            name: getattr(operation, name).to_dict() for name in ("headline", "small", "watched")
        }
        names = ("bytes_name", "minimal_name", "folder", "baseline")
        return {
            "problem": kind.__name__,
            "fields": fields,
            "attributes": {name: getattr(kind, name) for name in _ATTRIBUTES},
            **{name: getattr(operation, name) for name in names},
            "given": [one.to_dict() for one in getattr(operation, "given", ())],
            "bounded": list(getattr(operation, "bounded", ())),
            "in_torch": bool(getattr(operation, "in_torch", False)),
            **problems,
        }

    def _facts(self, operation: Operation[Any, Any], key: str) -> dict[str, Any]:
        problem = problem_from_dict(json.loads(key))
        found = {name: getattr(problem, name) for name in FACTS}
        return {name: one() if callable(one) else one for name, one in found.items()}

    def _draw(self, operation: Operation[Any, Any], problem: Problem) -> Any:
        return self._keep(operation.draw(problem))

    def _keep(self, inputs: Any) -> tuple[int, Any, Mapping[str, np.ndarray]]:
        number = next(self._numbers)
        self._inputs[number] = inputs
        return number, inputs.problem, inputs.buffers()

    def _held_inputs(self, number: Any) -> Any:
        return self._inputs[number]

    def _oracle(self, operation: Operation[Any, Any], inputs: Any, parts: Any) -> Any:
        return operation.oracle(inputs, parts)

    def _battery(self, operation: Operation[Any, Any], problem: Any) -> list[Any]:
        return operation.battery(problem, self._back("supports"))

    def _covered(self, operation: Operation[Any, Any], cases: list[Any]) -> list[str]:
        return operation.covered(cases)

    def _draw_problems(self, operation: Operation[Any, Any], count: int, seed: int) -> list[Any]:
        return operation.draw_problems(count, seed, self._back("supports"))

    def _read_part(self, operation: Operation[Any, Any], problem: Any, part: Any) -> Any:
        number, of, _ = self._keep(operation.read_part(problem, part, self._back("fetch")))
        return number, of, {}

    def _alter_part(
        self, operation: Operation[Any, Any], problem: Any, part: Any, seed: int
    ) -> None:
        fetch, store = self._back("fetch"), self._back("store")
        operation.alter_part(problem, part, fetch, store, np.random.default_rng(seed))

    def _fills(self, operation: Operation[Any, Any], problem: Any, seed: int) -> Any:
        return operation.fills(problem, seed)

    def _back(self, name: str) -> Callable[..., Any]:
        """A function of the asker's, called there. To answer, the asker may ask in its turn: a
        problem that it has not seen is asked for its facts."""

        def call(*args: Any) -> Any:
            self._wire.send(("back", name, args))
            while (said := self._receive())[0] not in ("answer", "error"):
                self._reply(said)
            kind, found = said
            if kind == "error":
                raise KernelError(*found[1:]) if found[0] else LabError(*found[1:])
            return found

        return call


def _default_of(field: dataclasses.Field[Any]) -> Any:
    return None if field.default is dataclasses.MISSING else field.default


def _end_with(end: socket.socket) -> None:
    """Wait until the asker has gone, whatever the file's Python does meanwhile."""
    watch = select.poll()
    watch.register(end, getattr(select, "POLLRDHUP", select.POLLHUP))
    watch.poll()
    os._exit(0)
