"""Readers' Python, in processes of its own: it is asked, and answers with data.

What judges a kernel never loads the kernel's Python. One process has the rung, and is told neither
the seed of the inputs nor what is done with its answers, of which each is asked once. Where the
file brings an operation too, another process has that: it draws inputs and knows the answer, by
which the kernel is then judged, and lays out no launches. It is no sandbox: either process may do
what its user may do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .checked import check_fields
from .compare import MOST_ROUNDED, MOST_TOLERANCE, ROUNDED, largest_change, tolerance_of
from .errors import KernelError, LabError
from .problem import (
    Buffer,
    Fetch,
    Fill,
    HeldInputs,
    Operation,
    Part,
    Problem,
    Rng,
    Store,
    Supports,
    operations,
    problem_from_dict,
    register_operation,
    takes_all,
)
from .reference import torch_peers
from .rung import ASKED_WITH, Rung
from .storage import element_dtype, largest_of
from .text import read_given
from .wire import Wire

LIMIT_S = 6.0
"""Of one answer of a rung's Python, and of loading it."""
LIMIT_BYTES = 2**30
"""Of its memory, beside what its process begins with."""
REFERENCE_LIMIT_S = 600.0
"""Of one answer of an operation's Python, which may compute for long."""
HOST_MODULE = "labtools.problem.isolated_host"
_HOST_PROGRAM = f"import sys; sys.path.insert(0, sys.argv[1]); import {HOST_MODULE} as h; h.main()"
Back = Mapping[str, Callable[..., Any]]
"""What the other process may ask back while it is asked, by name."""


class _Host:
    """The process of which each file's is a copy, which costs less than a new one."""

    def __init__(self) -> None:
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._end.settimeout(2 * LIMIT_S)  # a file may stop what it is a copy of
        package = str(Path(__file__).parents[2])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _HOST_PROGRAM, package, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def copy(self) -> tuple[socket.socket, int]:
        """A connection to a new process, and its number."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            socket.send_fds(self._end, [b"+"], [theirs.fileno()])
        number = self._end.recv(4, socket.MSG_WAITALL)
        if len(number) < 4:
            raise EOFError
        return mine, int.from_bytes(number, "big")

    def stop(self) -> None:
        """End it. Its copies end where nobody is connected to them any more."""
        self._end.close()
        self._process.kill()
        self._process.wait()


_hosts: dict[int, _Host] = {}
"""By process: a copy of this one needs its own."""
_starting = threading.Lock()


def _new_copy() -> tuple[socket.socket, int]:
    with _starting:
        if (host := _hosts.get(os.getpid())) is not None:
            with contextlib.suppress(EOFError, OSError):
                return host.copy()
            host.stop()
        _hosts[os.getpid()] = _Host()
        return _hosts[os.getpid()].copy()


class Guest:
    """One file of Python, loaded in a process of its own."""

    def __init__(self, path: Path, limit_bytes: int | None = LIMIT_BYTES) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._lock = threading.RLock()
        self._end: Callable[[], Any] = lambda: None
        self._wire: Wire | None = None
        self._process = 0  # that is connected
        self._answers: dict[tuple[bytes, bytes], Any] = {}

    def ask(
        self, what: str, *args: Any, limit_s: float | None = None, back: Back | None = None
    ) -> Any:
        """What the file answers within ``limit_s``, None `LIMIT_S`.

        Raises LabError: in its own words; KernelError: it took too long, ended its process, or
        answered with nonsense.
        """
        return self._exchange(_PLAIN.pack((what, args)), limit_s, back)

    def ask_once(self, what: str, *args: Any) -> Any:
        """`ask`, or what it answered to the same before: what is checked is what is timed."""
        with self._lock:
            text, arrays = _PLAIN.pack((what, args))
            key = text, b"".join(arrays)
            if key not in self._answers:
                self._answers[key] = self._exchange((text, arrays))
            return self._answers[key]

    def _exchange(
        self,
        packed: tuple[bytes, list[memoryview]],
        limit_s: float | None = None,
        back: Back | None = None,
    ) -> Any:
        limit_s = LIMIT_S if limit_s is None else limit_s
        with self._lock:
            try:
                wire = self._connected()
                deadline = time.monotonic() + limit_s
                wire.send_packed(*packed, deadline)
                while True:
                    kind, *rest = wire.receive(deadline)
                    if kind == "answer":
                        return rest[0]
                    if kind == "error":
                        raise _error_of(*rest)
                    wire.send(_answer_back(back or {}, *rest), deadline)
            except LabError:
                raise
            except KeyboardInterrupt:
                self.stop()
                raise
            except TimeoutError as error:
                raise self._failed(f"it did not end within {limit_s:g} s") from error
            except (EOFError, OSError) as error:
                raise self._failed("it ended its process") from error
            except Exception as error:
                raise self._failed(f"it answered with nonsense: {error}") from error

    def stop(self) -> None:
        """End its process; the next question starts another."""
        self._end()
        self._wire = None

    def _connected(self) -> Wire:
        if self._wire is None or self._process != os.getpid():
            end, number = _new_copy()
            self._end = weakref.finalize(self, _hang_up, end, number, os.getpid())
            self._wire, self._process = Wire(end, _write_handle), os.getpid()
            deadline = time.monotonic() + LIMIT_S
            about = (str(self.path), self._limit_bytes, os.getcwd(), sys.path, dict(os.environ))
            self._wire.send(about, deadline)
        return self._wire

    def _failed(self, why: str) -> KernelError:
        self.stop()
        works = "correct the rung's .py file; every other rung is unaffected"
        return KernelError(f"The Python of {self.path.name} gave no answer.", why, works)


def _hang_up(end: socket.socket, number: int, process: int) -> None:
    end.close()
    if process == os.getpid():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)


def _answer_back(back: Back, name: str, args: Sequence[Any]) -> tuple[str, Any]:
    try:
        return "answer", back[name](*args)
    except LabError as error:
        return "error", error_parts(error)


def error_parts(error: LabError) -> tuple[bool, str, str, str]:
    """Whether it is a KernelError, and its parts."""
    return isinstance(error, KernelError), error.what, error.why, error.still_works


def _error_of(parts: tuple[bool, str, str, str]) -> LabError:
    is_kernel, *said = parts
    return (KernelError if is_kernel else LabError)(*map(str, said))


# ------------------------------------------------------------------------------------- the rung


class _Asked:
    """One function of a rung, which its file's process runs."""

    def __init__(self, guest: Guest, name: str, text: str) -> None:
        self._guest, self._name = guest, name
        self.text = text  # of the function
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parts = [inspect.Parameter(one, kinds) for one in ASKED_WITH[name]]
        self.__signature__ = inspect.Signature(parts)

    def __call__(self, *args: Any) -> Any:
        return self._guest.ask_once(self._name, *args)


def isolated_rung(path: Path) -> Rung:
    """The rung of a reader's file; operations that the file brings are registered.

    Raises LabError: it defines no rung, or does not load.
    """
    guest = Guest(path)
    fields, texts, brings = guest.ask("describe")
    own = [name for name in brings if not _is_ours(name)]
    if own:
        reference = Guest(path, limit_bytes=None)
        for name in own:
            _register(reference, name)
    asked = {name: _Asked(guest, name, text) for name, text in texts.items()}
    rung = Rung(**{**fields, **asked, "source": Path(fields["source"])})
    with contextlib.suppress(OSError, ValueError):  # whoever needs it is told why there is none
        return dataclasses.replace(rung, read_text=read_given(rung.source))
    return rung


def _is_ours(name: str) -> bool:
    known = operations().get(name)
    return known is not None and type(known).__module__ != __name__


# -------------------------------------------------------------------------------- the operation


@dataclass(frozen=True)
class _Facts:
    """What a problem says of itself."""

    inputs: Mapping[str, Buffer]
    output: Buffer
    part_shape: tuple[int, ...]
    outputs: Mapping[str, Buffer]
    streamed_bytes: int
    minimal_bytes: int
    flops: int
    visits: int
    part_visits: int
    call_inputs: tuple[str, ...]
    read_in_part: tuple[str, ...]
    layout: str
    uneven: bool
    empty_parts: bool
    used_share: float
    forecast_note: str
    tolerance: float
    defines: Mapping[str, str]
    usual_refusal: str | None

    def __post_init__(self) -> None:
        check_fields(self, "A problem")


FACTS = tuple(field.name for field in dataclasses.fields(_Facts))


class IsolatedProblem(Problem):
    """A problem whose operation stands in a reader's file."""

    of: ClassVar[IsolatedOperation]

    def __reduce__(self) -> tuple[Any, ...]:
        return problem_from_dict, (self.to_dict(),)

    @property
    def facts(self) -> _Facts:
        """What the file says of it."""
        return self.of.facts(self)

    def defines(self) -> dict[str, str]:
        return dict(self.facts.defines)

    def usual_refusal(self) -> str | None:
        return self.facts.usual_refusal

    @property
    def tolerance(self) -> float:
        """What the file says, but no more than its type may have."""
        dtype = self.output.dtype
        return min(self.facts.tolerance, MOST_TOLERANCE.get(dtype, tolerance_of(dtype)))

    def why_absent(self, name: str) -> str | None:
        return self.of.ask("problem.why_absent", self, name)  # type: ignore[no-any-return]

    def call_bytes(self, read: Iterable[str]) -> int:
        return int(self.of.ask("problem.call_bytes", self, sorted(read)))

    def traced_contents(self) -> dict[str, np.ndarray]:
        return dict(self.of.ask("problem.traced_contents", self))

    def argument_texts(self) -> list[str]:
        return list(self.of.ask("problem.argument_texts", self))


def _fact(name: str) -> property:
    return property(lambda self: getattr(self.facts, name))


for _name in FACTS:
    if _name not in vars(IsolatedProblem):
        setattr(IsolatedProblem, _name, _fact(_name))
IsolatedProblem.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class IsolatedInputs(HeldInputs):
    """Inputs of one problem. The process that drew them keeps what it made them of."""

    number: int


@dataclass(frozen=True)
class OtherValues(HeldInputs):
    """Inputs of one problem whose numbers are of another kind than its author drew."""

    tolerance: float | None = None  # that such inputs need; None as for any others


def _below_zero(values: np.ndarray, rng: Rng) -> np.ndarray:
    return -np.abs(values)


def _with_ties(values: np.ndarray, rng: Rng) -> np.ndarray:
    return np.round(2 * values) / 2


def _of_all_sizes(values: np.ndarray, rng: Rng) -> np.ndarray:
    """Up to 64 times as large or as small, by a factor drawn for each index of the first axis."""
    factors = 64.0 ** rng.uniform(-1, 1, len(values))
    return values * factors.reshape(-1, *[1] * (values.ndim - 1))


def _moved_by(deviations: float) -> Callable[[np.ndarray, Rng], np.ndarray]:
    return lambda values, rng: values + deviations * values.std()


def _sunk(values: np.ndarray, rng: Rng) -> np.ndarray:
    return -SUNK_TO * (1 + np.abs(values) / (np.abs(values).max(initial=0) or 1))


def _up_to(most: float, values: np.ndarray) -> np.ndarray:
    """Values whose largest is ``most``, or half of what their type holds; of several rows every
    other one lies below zero, half as far at least."""
    wide, most = values.astype(np.float64), min(most, largest_of(values.dtype) / 2)
    wide /= np.abs(wide).max(initial=0) or 1
    if wide.ndim > 1:
        wide[1::2] = -(1 + np.abs(wide[1::2])) / 2
    return (most * wide).astype(values.dtype)


def _rising(values: np.ndarray, rng: Rng) -> np.ndarray:
    return np.sort(values, axis=-1)


def _is_in_order(values: np.ndarray) -> bool:
    return bool((np.diff(values.astype(np.int64), axis=-1) >= 0).all())


def _with_repeats(values: np.ndarray, rng: Rng) -> np.ndarray:
    """Rows of the values that each had, some more than once, and a row that has one value alone; a
    row that was in order stays so, and keeps its ends."""
    rows = values.reshape(-1, values.shape[-1])
    made = np.stack([rng.choice(row, len(row)) for row in rows])
    if _is_in_order(rows):
        made.sort(axis=-1)
        made[:, 0], made[:, -1] = rows[:, 0], rows[:, -1]
    elif len(rows) > 1:
        made[-1] = rows[-1].min()
    return made.reshape(values.shape)


SUNK_TO = 1e6
RISING, TIES = "values in rising order", "values that are often equal"
OTHER_VALUES: Mapping[str, Callable[[np.ndarray, Rng], np.ndarray]] = {
    "values below zero": _below_zero,
    TIES: _with_ties,
    "rows of all sizes": _of_all_sizes,
    "values far from zero": _moved_by(300),
    "values far below zero": _moved_by(-300),
    "values below minus a million": _sunk,
    RISING: _rising,
}
"""Kinds of numbers that an operation's author may not have thought of, made of those drawn."""
ZEROS = "zeros"  # a kind too: in one input after the other
VALUES_UP_TO: Mapping[str, float] = {
    "values past what an int holds": 1e10,
    "values whose squares no float32 holds": 1e36,
}
"""Kinds too, by their largest: an author may have ruled them out."""
LARGE_SIZES = (66_307, 16_411, 601)
"""Sizes of each field of which an operation's battery gets the first that leaves its work small:
more than 16 bits count, more than a block has registers for, more than a GPU has blocks at once."""
WIDE = 512  # the last field beside one of which there are millions
SMALL_SIZES = (1, 2, 97)
"""And those of which it gets each where its reference says an answer: fewer than a neighbour or a
lane wants, and no multiple of anything."""
MOST_ELEMENTS, MOST_OF_PARTS, MOST_CHECKED_FLOPS = 2**18, 1000, 2**26
MOST_FROM_ROUNDING = 0.05


def _with_kinds(
    arrays: Mapping[str, np.ndarray], kinds: Iterable[str], rng: Rng, bounded: Sequence[str]
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Inputs with other values where they are no integers and have no range, by what is then said
    of them."""
    floats = {x: one for x, one in arrays.items() if one.dtype.kind not in "iub"}
    floats = {x: one for x, one in floats.items() if x not in bounded}
    if not floats:
        return
    for kind in kinds:
        if kind == ZEROS:
            for name, one in floats.items():
                yield f"{ZEROS} in `{name}`", {**arrays, name: np.zeros_like(one)}
        elif kind in VALUES_UP_TO:
            yield kind, {**arrays, **{x: _up_to(VALUES_UP_TO[kind], floats[x]) for x in floats}}
        else:
            change = OTHER_VALUES[kind]
            made = {
                name: np.clip(
                    change(one.astype(np.float64), rng), -(most := largest_of(one.dtype) / 2), most
                ).astype(one.dtype)
                for name, one in floats.items()
            }
            yield kind, {**arrays, **made}


def _write_handle(value: Any) -> Any:
    return value.number if isinstance(value, IsolatedInputs) else None


_PLAIN = Wire(None, _write_handle)  # type: ignore[arg-type]


def _is_moderate(problem: IsolatedProblem, supports: Supports) -> bool:
    with contextlib.suppress(LabError):  # its sizes may be bound to each other
        most = max(one.elements for one in (*problem.inputs.values(), *problem.outputs.values()))
        small = most <= MOST_ELEMENTS and problem.num_parts <= MOST_OF_PARTS
        return small and problem.flops <= MOST_CHECKED_FLOPS and supports(problem) is None
    return False


class IsolatedOperation(Operation[IsolatedProblem, IsolatedInputs]):
    """What a reader's file computes: its inputs and its answer come from the file's process, which
    is another one than its rung's."""

    is_ours = False

    def __init__(self, guest: Guest, name: str, told: Mapping[str, Any]) -> None:
        self.told, self.path = told, guest.path
        self.guest = guest
        self._name = name
        self._facts = lru_cache(maxsize=4096)(self._ask_facts)
        self._dropped: list[int] = []  # inputs that nobody holds any more
        fields = [
            (field, Any, dataclasses.field(default=default)) if has_default else (field, Any)
            for field, has_default, default in told["fields"]
        ]
        made = dataclasses.make_dataclass(
            told["problem"], fields, bases=(IsolatedProblem,), frozen=True
        )
        for attribute, value in {"of": self, "operation": name, **told["attributes"]}.items():
            setattr(made, attribute, value)
        self.problem = made
        for attribute in ("bytes_name", "minimal_name", "folder", "baseline"):
            setattr(self, attribute, told[attribute])
        self.peers = torch_peers(guest.path, name) if told["in_torch"] else ()

    def __getattr__(self, name: str) -> Any:
        if name in ("headline", "small", "watched"):
            return self.problem.from_dict(self.told[name])
        if name == "given":
            return [self.problem.from_dict(one) for one in self.told[name]]
        raise AttributeError(name)

    def ask(self, what: str, *args: Any, back: Back | None = None) -> Any:
        """What its file answers to a question about it."""
        dropped: list[int] = []
        with contextlib.suppress(IndexError):
            while True:
                dropped.append(self._dropped.pop())
        named = (self._name, dropped, *args)
        return self.guest.ask(what, *named, limit_s=REFERENCE_LIMIT_S, back=back)

    def facts(self, problem: IsolatedProblem) -> _Facts:
        """What a problem says of itself."""
        return self._facts(problem.key())

    def _ask_facts(self, key: str) -> _Facts:
        return _Facts(**self.ask("facts", key))

    def _inputs(self, found: tuple[int, Any, Mapping[str, np.ndarray]]) -> IsolatedInputs:
        number, problem, arrays = found
        inputs = IsolatedInputs(problem, arrays, number)
        weakref.finalize(inputs, self._dropped.append, number).atexit = False
        return inputs

    def draw(self, problem: IsolatedProblem) -> IsolatedInputs:
        return self._inputs(self.ask("draw", problem))

    def oracle(
        self, inputs: IsolatedInputs | OtherValues, parts: Iterable[Part] | None = None
    ) -> Any:
        if isinstance(inputs, OtherValues):
            every = np.ndindex(*inputs.problem.part_shape)
            return self.expect_parts(
                inputs.problem,
                every if parts is None else parts,
                lambda name, index: inputs.arrays[name][index],
            )
        chosen = None if parts is None else [tuple(part) for part in parts]
        found = self.ask("oracle", inputs, chosen)
        arrays = found if isinstance(found, Mapping) else {"": found}
        if parts is None and any(np.isnan(one).any() for one in arrays.values()):
            what = f"The reference of {self._name} says no answer for {inputs.problem}."
            raise KernelError(what, "some of it is not a number", "correct its oracle")
        return found

    def battery(
        self, problem: IsolatedProblem, supports: Supports = takes_all
    ) -> list[IsolatedProblem]:
        found = self.ask("battery", problem, back={"supports": supports})
        for narrow, field in self.widening(problem, supports):
            large = [narrow.replace(**{field: size}) for size in LARGE_SIZES]
            found += [one for one in large if _is_moderate(one, supports)][:1]
            small = (narrow.replace(**{field: size}) for size in SMALL_SIZES)
            found += [one for one in small if _is_moderate(one, supports) and self._answers(one)]
        return list(dict.fromkeys([problem, *found]))

    def _answers(self, given: IsolatedProblem | OtherValues) -> bool:
        """Whether the reference says a finite answer of the right form."""
        problem = given.problem if isinstance(given, OtherValues) else given
        try:
            inputs = given if isinstance(given, OtherValues) else self.draw(given)
            expected = problem.by_output(self.oracle(inputs))
        except LabError:
            return False
        return all(
            one.shape == (known := problem.outputs[name]).shape
            and (np.abs(one.astype(float)) <= largest_of(element_dtype(known.dtype))).all()
            for name, one in expected.items()
        )

    def widening(
        self, problem: IsolatedProblem, supports: Supports = takes_all
    ) -> list[tuple[IsolatedProblem, str]]:
        sizes = {name: getattr(self.watched, name) for name in self.problem.shape_fields}
        narrow = problem.replace(**sizes)
        return [(narrow, name) for name in sizes] if _is_moderate(narrow, supports) else []

    def far_apart(self, problem: IsolatedProblem) -> list[tuple[IsolatedProblem, ...]]:
        """By field the last of many on the first axes that grow with it; who runs these finds out
        whether the last answer is that of the last alone."""
        found: list[tuple[IsolatedProblem, ...]] = []
        for narrow, field in self.widening(problem):
            others = [one for one in narrow.shape_fields if one != field]
            with contextlib.suppress(LabError, ValueError):  # its sizes are bound, nothing grows
                near, middle, far = narrow.replace(**dict.fromkeys(others[-1:], WIDE)).stretched(
                    field
                )
                if all(
                    one.shape[1:] == far.buffers[x].shape[1:] for x, one in near.buffers.items()
                ):
                    found.append((near, middle, far))
        return found

    def other_values(
        self, problem: IsolatedProblem, kinds: Iterable[str] = (*OTHER_VALUES, ZEROS)
    ) -> list[tuple[str, OtherValues]]:
        """A problem with `OTHER_VALUES` of some kinds in its inputs that are no integers, where the
        reference then says an answer for every part that the output's type can hold. It is allowed
        several times what the answer changes by when the inputs do by what float32 rounds."""
        drawn, found = self.draw(problem), []
        rng = np.random.default_rng(problem.seed)

        def rounded(values: np.ndarray) -> np.ndarray:
            wide = values.astype(np.result_type(values.dtype, np.float32))
            return wide * (1 + rng.choice([-1, 1], values.shape) * ROUNDED).astype(wide.dtype)

        for kind, arrays in _with_kinds(drawn.arrays, kinds, rng, self.told["bounded"]):
            near = {
                name: one if one.dtype.kind in "iub" else rounded(one)
                for name, one in arrays.items()
            }
            given = OtherValues(problem, arrays)
            with contextlib.suppress(LabError), np.errstate(all="ignore"):
                expected = problem.by_output(self.oracle(given))
                other = problem.by_output(self.oracle(OtherValues(problem, near)))
                moved = max(largest_change(one, other[name]) for name, one in expected.items())
                if MOST_ROUNDED * moved <= MOST_FROM_ROUNDING and all(
                    np.isfinite(held := one.astype(problem.outputs[name].dtype).astype(float)).all()
                    and largest_change(one, held) <= problem.tolerance / 2
                    for name, one in expected.items()
                ):
                    least = max(problem.tolerance, float(f"{MOST_ROUNDED * moved:.0e}"))
                    found.append((kind, OtherValues(problem, arrays, least)))
        return found

    def other_integers(self, problem: IsolatedProblem) -> list[tuple[str, OtherValues]]:
        """A problem with other values in one of its inputs that are integers, where its reference
        says a finite answer: every value of a byte, or else those of a row, with repeats; where
        some are below zero, larger ones; and where no order holds, one value throughout. Where the
        output is integers, `TIES` too: a sum that is rounded otherwise may decide otherwise."""
        drawn = self.draw(problem)
        rng = np.random.default_rng(problem.seed)
        tried: list[tuple[str, Mapping[str, np.ndarray]]] = []
        if all(element_dtype(one.dtype).kind in "iu" for one in problem.outputs.values()):
            tried += _with_kinds(drawn.arrays, [TIES], rng, self.told["bounded"])
        for name, one in drawn.arrays.items():
            if one.dtype.kind not in "iu" or one.size < 2 or name in self.told["bounded"]:
                continue
            made, kind = _with_repeats(one, rng), f"values of `{name}` that repeat"
            if one.dtype.itemsize == 1:
                least, most = np.iinfo(one.dtype).min, np.iinfo(one.dtype).max
                made = rng.integers(least, most, one.shape, one.dtype, endpoint=True)
                kind = f"every value of a byte in `{name}`"
            tried.append((kind, {**drawn.arrays, name: made}))
            if one.min() < 0 and one.dtype.itemsize > 2:  # no index, then
                kind, made = f"values of `{name}` a thousand times as large", one * 1000
                tried.append((kind, {**drawn.arrays, name: made}))
            if not _is_in_order(one):
                made = np.full_like(one, one.min())
                tried.append((f"one value throughout in `{name}`", {**drawn.arrays, name: made}))
        given = [(kind, OtherValues(problem, arrays)) for kind, arrays in tried]
        return [(kind, one) for kind, one in given if self._answers(one)]

    def covered(self, cases: Sequence[IsolatedProblem]) -> list[str]:
        return list(self.ask("covered", list(cases)))

    def draw_problems(
        self, count: int, seed: int, supports: Supports = takes_all
    ) -> list[IsolatedProblem]:
        return list(self.ask("draw_problems", count, seed, back={"supports": supports}))

    def read_part(self, problem: IsolatedProblem, part: Part, fetch: Fetch) -> IsolatedInputs:
        """What was read is kept by the process that answers for it; none of it comes back."""
        back = {"fetch": fetch}
        return self._inputs(self.ask("read_part", problem, tuple(part), back=back))

    def alter_part(
        self, problem: IsolatedProblem, part: Part, fetch: Fetch, store: Store, rng: Rng
    ) -> None:
        back = {"fetch": fetch, "store": store}
        self.ask("alter_part", problem, tuple(part), int(rng.integers(2**63)), back=back)

    def fills(self, problem: IsolatedProblem, seed: int) -> list[Fill] | None:
        return self.ask("fills", problem, seed)  # type: ignore[no-any-return]


def _register(reference: Guest, name: str) -> None:
    """Make an operation of a file known. One that says of itself what it said before keeps its
    class of problems, so that those which are there already are its own."""
    told = reference.ask("describe_operation", name, [])
    known = operations().get(name)
    if isinstance(known, IsolatedOperation) and (known.path, known.told) == (reference.path, told):
        known.guest = reference
        known._facts.cache_clear()
        return
    register_operation(IsolatedOperation(reference, name, told))


def isolated_files() -> list[Path]:
    """The files whose operations are known."""
    found = (one.path for one in operations().values() if isinstance(one, IsolatedOperation))
    return list(dict.fromkeys(found))
